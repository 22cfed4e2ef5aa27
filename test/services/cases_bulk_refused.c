/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_bulk_refused.c - transfers that are refused. */
#include "services/bulk_user.h"

static void reader(struct h *h)
{
	struct bulk_owner o;

	h_mesh(h, NULL);
	bulk_own(&o, h, XPORT_REMOTE_READ, 0);
	bulk_tell(h, 1, o.bulk);
	h_hear_u64(h, 1);
	bulk_disown(&o);
	h_sync(h);
}

struct moving {
	struct bulk_user *u;
	xport_bulk *bulk;
	struct xport_iov iov[2];
	struct xport_bulk_args a;
};

static void move_refused(struct moving *m, int status, const char *words)
{
	struct h *h = m->u->h;

	H_STATUS(status, xport_bulk_pull(m->u->b, m->bulk, &m->a));
	SVC_ERROR(status, "xport_bulk_pull", words);
}

static void wrong_args(struct moving *m, struct h_mem *mem)
{
	const struct xport_bulk_args good = m->a;
	const struct xport_iov piece = m->iov[0];
	uint64_t length = bulk_info(m->u->h, m->bulk).length;

	m->a.offset = length - piece.len + 1;
	move_refused(m, XPORT_ERR_BOUNDS, "beyond");
	m->a.offset = UINT64_MAX;
	move_refused(m, XPORT_ERR_BOUNDS, "beyond");
	m->a = good;
	m->a.local = NULL;
	move_refused(m, XPORT_ERR_INVALID, "1 to 4096");
	m->a = good;
	m->a.nlocal = 0;
	move_refused(m, XPORT_ERR_INVALID, "1 to 4096");
	m->a = good;
	m->a.deadline_ms = 0;
	move_refused(m, XPORT_ERR_INVALID, "deadline");
	m->a.deadline_ms = UINT32_C(1) << 31;
	move_refused(m, XPORT_ERR_INVALID, "deadline");
	m->a = good;
	m->a.flags = 2;
	move_refused(m, XPORT_ERR_INVALID, "unknown bits");
	m->a = good;
	m->a.size = 1;
	move_refused(m, XPORT_ERR_INVALID, "size");
	m->a = good;
	m->iov[0].addr = NULL;
	move_refused(m, XPORT_ERR_INVALID, "NULL");
	m->iov[0] = piece;
	m->iov[0].mr = mem->mr;
	m->iov[0].addr = mem->p - H_GUARD - 1;
	move_refused(m, XPORT_ERR_INVALID, "inside its region");
	m->iov[0].addr = mem->p + mem->len + H_GUARD - 7;
	move_refused(m, XPORT_ERR_INVALID, "inside its region");
	m->iov[0] = piece;
	m->a.nlocal = 2;
	m->iov[1] = (struct xport_iov){.addr = piece.addr, .len = SIZE_MAX};
	move_refused(m, XPORT_ERR_INVALID, "2^63");
	m->iov[1].len = INT64_MAX - 100;
	move_refused(m, XPORT_ERR_BOUNDS, "beyond");
	m->iov[1].len = piece.len; /* the same memory twice */
	move_refused(m, XPORT_ERR_INVALID, "overlap");
	m->iov[0].addr = mem->p + piece.len - 1; /* by one byte, in the other order */
	move_refused(m, XPORT_ERR_INVALID, "overlap");
	m->iov[0] = piece;
	m->a = good;
}

static void move_wrong(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = 1000};
	struct xport_bulk_event e = {.size = 1};
	struct xport_attr other = h_attr(h);
	struct xport_bulks_info info = {.size = 1};
	struct bulk_user u;
	struct moving m = {.u = &u};
	struct h_mem mem;
	xport_bulks *b;
	xport *x;

	bulk_begin(&u, h, NULL);
	m.bulk = bulk_hear(&u, 0);
	mem = h_mem_local(h, 4096, 0);
	m.a = bulk_args(0, mem.p, 64, m.iov);
	wrong_args(&m, &mem);
	H_STATUS(XPORT_ERR_ACCESS, xport_bulk_push(u.b, m.bulk, &m.a));
	SVC_ERROR(XPORT_ERR_ACCESS, "xport_bulk_push", "XPORT_REMOTE_WRITE");
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_pull(NULL, m.bulk, &m.a));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_pull(u.b, NULL, &m.a));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_pull(u.b, m.bulk, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_cancel(u.b, 77));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_cancel(NULL, 77));
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_next(u.b, &e));
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_wait(u.b, &e, NULL, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_query(u.b, &info));
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_step(NULL, NULL));
	e.size = sizeof(e);
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_wait(u.b, &e, NULL, NULL, -2));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_bulks_wait(u.b, &e, bulk_other, &u, 1));
	H_EQ(-1, xport_bulks_timeout(u.b));
	H_EQ(-1, xport_bulks_timeout(NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_create(h->x, &attr, &b));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_bulks_create", "65536");
	attr.max_in_flight = 100000;
	attr.max_per_peer = 200000;
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_create(h->x, &attr, &b));
	attr.max_per_peer = 0;
	attr.max_transfers = 65536;
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_create(h->x, &attr, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_bulks_create(NULL, NULL, &b));
	/* A descriptor that leads nowhere, and one of another instance. */
	H_OK(xport_open(&other, &x));
	H_OK(xport_bulks_create(x, NULL, &b));
	H_STATUS(XPORT_ERR_INVALID, xport_bulk_pull(b, m.bulk, &m.a));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_bulk_pull", "another instance");
	H_OK(xport_bulks_destroy(b, NULL, NULL, 0));
	xport_close(x);
	H_EQ(0, bulks_info(&u).done);
	xport_bulk_free(m.bulk);
	H_OK(xport_bulk_unpack(NULL, u.bytes, u.len, &m.bulk));
	move_refused(&m, XPORT_ERR_INVALID, "was not unpacked on an endpoint");
	xport_bulk_free(m.bulk);
	h_mem_free(h, &mem);
	H_OK(xport_bulks_destroy(NULL, NULL, NULL, 0));
	h_tell_u64(h, 0, 1);
	bulk_end(&u);
	h_sync(h);
}

const struct h_scenario svc_cases_bulk_refused[] = {
	{.name = "bulk_move_wrong", .role = {reader, move_wrong}, .flags = H_ONCE},
	{.name = NULL},
};
