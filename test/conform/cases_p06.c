/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p06.c - P6, bounds: what the key does not grant is refused at once, at the initiator, and nothing happens. */
#include "harness.h"

enum { LEN = 4096 };

/* One way to be out of bounds: `from_end` counts the offset from the region's end. */
struct beyond {
	bool from_end;
	uint64_t offset;
	size_t len;
};

static const struct beyond beyonds[] = {
	{true, 0, 1},
	{true, (uint64_t)-1, 2},
	{true, 1, 0},
	{true, 1, 1},
	{true, 1000000, 8},
	{true, 1000000, 0},
	{false, 0, LEN * 64},
	{false, UINT64_MAX, 1},
	{false, UINT64_MAX, 0},
	{false, UINT64_MAX - 7, 8},
	{false, UINT64_MAX - 7, 16},
	{false, (uint64_t)1 << 63, 8},
	{false, 8, SIZE_MAX},
	{false, 8, SIZE_MAX - 7},
	{false, 0, SIZE_MAX},
};

static void target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_fill(m.p, LEN, 1);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p, LEN, 1);
	H_GUARDS(m);
	H_EQ(0, h->nqueue);
	h_sync(h);
	h_sync(h);
	H_FILLED(m.p, LEN, 2);
	H_GUARDS(m);
}

static int try_op(struct h *h, int type, void *buf, size_t len, const struct h_rkey *r, uint64_t offset)
{
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};

	if (type == XPORT_OP_PUT)
		return xport_put(h->ep[0], buf, len, r->k, offset, &o);
	if (type == XPORT_OP_GET)
		return xport_get(h->ep[0], buf, len, r->k, offset, &o);
	if (type == XPORT_OP_PUT_NOTIFY)
		return xport_put_notify(h->ep[0], buf, len, r->k, offset, &o);
	return xport_atomic(h->ep[0], &a, r->k, offset, &o);
}

/* Each kind of operation, each way out; after all of it the same endpoint does honest work. */
static void out_of_bounds(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	int type = (int)h->param;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	memset(l.p, 0x44, LEN);
	r = h_import(h, 0);
	for (size_t i = 0; i < sizeof(beyonds) / sizeof(beyonds[0]); i++) {
		const struct beyond *b = &beyonds[i];
		uint64_t offset = b->offset + (b->from_end ? r.length : 0);
		int s;

		if (type == XPORT_OP_ATOMIC && ((offset + 8 <= r.length && offset < r.length) || offset % 8))
			continue; /* inside after all, or misaligned: other tests */
		s = try_op(h, type, l.p, b->len, &r, offset);
		H_CHECK(s == XPORT_ERR_BOUNDS, "way %zu (offset %" PRIx64 ", length %zx): %s", i, offset, b->len,
		        xport_status_name(s));
	}
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	H_BYTES(l.p, LEN, 0x44);
	h_sync(h);
	h_sync(h);
	h_fill(l.p, LEN, 2);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
	h_sync(h);
}

/* Zero bytes at the very end is inside. */
static void zero_at_end(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	r.offset = 0;
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 0), &r, r.length, 0));
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 0), &r, r.length));
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 0), &r, 0, 0));
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, 0), &r, 0));
	H_STATUS(XPORT_ERR_BOUNDS, try_op(h, XPORT_OP_PUT, l.p, 0, &r, r.length + 1));
	H_STATUS(XPORT_ERR_BOUNDS, try_op(h, XPORT_OP_GET, l.p, 0, &r, r.length + 1));
	h_sync(h);
}

static void zero_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_BYTES(m.p, LEN, 0);
	H_GUARDS(m);
}

/* The last byte, and everything but it. */
static void whole_region(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	h_fill(l.p, LEN, 1);
	r = h_import(h, 0);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN - 1), &r, 0, 0));
	H_DONE(h_put(h, h->ep[0], H_AT(l, LEN - 1, 1), &r, LEN - 1, 0));
	h_sync(h);
	h_sync(h);
	h_fill(l.p, LEN, 2);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
	h_sync(h);
}

/* The eight sets of rights against the operations: granted works, not granted is refused, nothing else changes. */
static void rights_target(struct h *h)
{
	struct h_mem m[8];

	h_mesh(h, NULL);
	for (uint32_t i = 0; i < 8; i++) {
		m[i] = h_mem_target(h, LEN, 0, i);
		h_share(h, 1, &m[i]);
	}
	h_sync(h);
	for (uint32_t i = 0; i < 8; i++) {
		if (!(i & (XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC)))
			H_BYTES(m[i].p, LEN, 0);
		H_EQ(i & XPORT_REMOTE_WRITE ? 0x5151515151515151 : 0, *(uint64_t *)m[i].p);
		H_EQ(i & XPORT_REMOTE_ATOMIC ? 1 : 0, *(uint64_t *)(m[i].p + 512));
		H_GUARDS(m[i]);
	}
}

static void rights(struct h *h)
{
	static const struct {
		int type;
		uint32_t need;
		uint64_t at;
	} ops[] = {{XPORT_OP_PUT, XPORT_REMOTE_WRITE, 0},
	           {XPORT_OP_PUT_NOTIFY, XPORT_REMOTE_WRITE, 64},
	           {XPORT_OP_GET, XPORT_REMOTE_READ, 128},
	           {XPORT_OP_ATOMIC, XPORT_REMOTE_ATOMIC, 512}};
	struct xport_rkey_info info = {.size = sizeof(info)};
	uint8_t buf[64];

	h_mesh(h, NULL);
	memset(buf, 0x51, sizeof(buf));
	for (uint32_t i = 0; i < 8; i++) {
		struct h_rkey r = h_import(h, 0);

		H_OK(xport_rkey_query(r.k, &info));
		H_EQ(i, info.rights);
		H_EQ(r.length, info.length);
		for (int k = 0; k < 4; k++) {
			int s = try_op(h, ops[k].type, buf, 8, &r, r.offset + ops[k].at);
			int want = i & ops[k].need ? XPORT_OK : XPORT_ERR_ACCESS;

			H_CHECK(s == want, "rights %u, type %d: %s", i, ops[k].type, xport_status_name(s));
			if (s == XPORT_OK)
				H_EQ(XPORT_OK, H_EVENT((uint32_t)ops[k].type).status);
			memset(buf, 0x51, sizeof(buf));
		}
		h_run_for(h, 2);
		H_EQ(0, h->nqueue);
	}
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

/* Zero bytes need the right as well. */
static void zero_rights(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	uint8_t b = 0;
	struct h_rkey none;

	h_mesh(h, NULL);
	none = h_import(h, 0);
	H_STATUS(XPORT_ERR_ACCESS, try_op(h, XPORT_OP_PUT, &b, 0, &none, none.offset));
	H_OK(xport_last_error(h->x, &e));
	H_CHECK(strstr(e.text, "no right") != NULL && strstr(e.text, "XPORT_REMOTE_WRITE") != NULL, "says \"%s\"",
	        e.text);
	H_STATUS(XPORT_ERR_ACCESS, try_op(h, XPORT_OP_GET, &b, 0, &none, none.offset));
	H_STATUS(XPORT_ERR_ACCESS, try_op(h, XPORT_OP_PUT_NOTIFY, &b, 0, &none, none.offset));
	h_sync(h);
}

static void zero_rights_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, 0);
	h_share(h, 1, &m);
	h_sync(h);
	H_EQ(0, h->nqueue);
}

/* What is said about the target's own check decides whether requiring it succeeds. */
static void require_bounds(struct h *h)
{
	struct xport_attr a = h_attr(h);
	xport *y = NULL;
	int s;

	if (h->param == 2)
		a.progress = "thread";
	h_open(h, &a);
	if (h->param == 2)
		H_EQ(1, h->info.passive_target);
	a.require = h->param ? "passive_target" : "target_bounds";
	s = xport_open(&a, &y);
	if (h->param ? h->info.passive_target : h->info.target_bounds)
		H_STATUS(XPORT_OK, s);
	else if (strchr(h->config->backend, '+') || !strcmp(h->config->backend, "auto"))
		H_CHECK(s == XPORT_OK || s == XPORT_ERR_NO_BACKEND, "%d", s); /* another of the set may have it */
	else
		H_STATUS(XPORT_ERR_NO_BACKEND, s);
	xport_close(y);
	if (h->config->emulate && !h->param)
		H_EQ(1, h->info.target_bounds);
}

static const struct h_param types[] = {{"put", XPORT_OP_PUT},
                                       {"get", XPORT_OP_GET},
                                       {"put_notify", XPORT_OP_PUT_NOTIFY},
                                       {"atomic", XPORT_OP_ATOMIC},
                                       {NULL, 0}};
static const struct h_param requirements[] = {
	{"target_bounds", 0}, {"passive_target", 1}, {"passive_target_by_thread", 2}, {NULL, 0}};

const struct h_scenario cases_p06[] = {
	{.name = "P6_out_of_bounds", .role = {target, out_of_bounds}, .params = types, .flags = H_TARGET},
	{.name = "P6_zero_bytes_at_the_end", .role = {zero_target, zero_at_end}, .flags = H_TARGET},
	{.name = "P6_first_to_last_byte", .role = {target, whole_region}, .flags = H_KINDS},
	{.name = "P6_rights", .role = {rights_target, rights}, .flags = H_TARGET},
	{.name = "P6_rights_for_zero_bytes", .role = {zero_rights_target, zero_rights}, .flags = H_TARGET},
	{.name = "P6_require", .role = {require_bounds}, .params = requirements},
	{.name = NULL},
};
