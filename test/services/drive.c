/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/drive.h"

#include <poll.h>
#include <time.h>

static void other(void *arg, const struct xport_completion *c)
{
	struct d_op *op = c->context;
	struct d *d = arg;

	if (c->type >= XPORT_EVENT_NOTIFY) {
		if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED) {
			atomic_store(&d->reason, c->status);
			atomic_fetch_add(&d->gone, 1);
		}
		return;
	}
	if (op == NULL)
		return;
	op->status = c->status;
	op->c = *c;
	atomic_store(&op->done, 1);
}

/* An event loop's turn. */
static void loop_turn(struct d *d)
{
	struct pollfd p = {.fd = xport_fd(d->h->x), .events = POLLIN};
	int ms = xport_leases_timeout(d->l), n;
	struct xport_completion c[8];

	poll(&p, 1, ms < 0 || ms > 2 ? 2 : ms);
	n = xport_poll(d->h->x, c, 8);
	for (int i = 0; i < n; i++) {
		if (xport_leases_step(d->l, &c[i]) == 0)
			other(d, &c[i]);
	}
	if (n <= 0)
		(void)xport_leases_step(d->l, NULL);
}

static void *thread(void *arg)
{
	struct d *d = arg;

	while (!atomic_load(&d->stop))
		loop_turn(d);
	return NULL;
}

void d_begin(struct d *d, struct h *h, int driver, const struct xport_leases_attr *attr)
{
	d_begin_for(d, h, driver, attr, h_ms(5000));
}

void d_begin_for(struct d *d, struct h *h, int driver, const struct xport_leases_attr *attr, int peer_timeout_ms)
{
	struct xport_attr a = h_attr(h);

	memset(d, 0, sizeof(*d));
	d->h = h;
	d->driver = driver;
	a.peer_timeout_ms = peer_timeout_ms;
	if (driver == D_THREAD)
		a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	H_OK(xport_leases_create(h->x, attr, &d->l));
	h->idle = true; /* a completion that the harness reaps is none that the leases are told of */
	h_sync(h);
	if (driver == D_THREAD)
		H_EQ(0, pthread_create(&d->thread, NULL, thread, d));
}

void d_end(struct d *d)
{
	struct h *h = d->h;

	if (d->driver == D_THREAD) {
		atomic_store(&d->stop, 1);
		pthread_join(d->thread, NULL);
	}
	H_OK(xport_leases_destroy(d->l, other, d, h_ms(10000)));
	d->l = NULL;
	h->idle = false;
}

void d_turn(struct d *d)
{
	if (d->driver == D_THREAD)
		nanosleep(&(struct timespec){0, 500000}, NULL);
	else
		loop_turn(d);
}

void d_turn_for(struct d *d, int ms)
{
	int64_t end = h_now_us() + (int64_t)ms * 1000;

	while (h_now_us() < end)
		d_turn(d);
}

struct xport_lease_event d_event(struct d *d, const char *file, int line, int type)
{
	int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000;
	struct xport_lease_event e = {.size = sizeof(e)};
	struct h *h = d->h;

	if (d->driver == D_LOOP) {
		while (xport_leases_next(d->l, &e) == 0) {
			if (h_now_us() > end)
				h_fail(h, file, line, "lease event", "none of type %d came", type);
			d_turn(d);
		}
	} else {
		h_check_status(h, file, line, "xport_leases_wait", XPORT_OK,
		               xport_leases_wait(d->l, &e, other, d, h_ms(10000)));
	}
	if (e.type != type)
		h_fail(h, file, line, "lease event", "of type %d (%s), not %d", e.type, xport_status_name(e.status),
		       type);
	return e;
}

int d_settled(struct d *d, xport_lease *lease)
{
	struct xport_lease_info i = {.size = sizeof(i)};
	struct xport_lease_event e = {.size = sizeof(e)};
	int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000;
	struct h *h = d->h;

	if (d->driver != D_LOOP)
		return xport_lease_wait(lease, other, d, h_ms(10000));
	do {
		H_CHECK(h_now_us() < end, "the lease is in state %d still", i.state);
		d_turn(d);
		H_OK(xport_lease_query(lease, &i));
	} while (i.state == XPORT_LEASE_ASKING || i.state == XPORT_LEASE_ENDING);
	H_EQ(1, xport_leases_next(d->l, &e));
	H_TRUE(e.lease == lease);
	return e.status;
}

int d_ended(struct d *d, struct d_op *op)
{
	int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000;
	struct h *h = d->h;

	while (!atomic_load(&op->done)) {
		H_CHECK(h_now_us() < end, "an operation did not end");
		d_turn(d);
	}
	return op->status;
}

void d_sync(struct d *d, int role)
{
	struct h *h = d->h;

	h_tell_u64(h, role, 1);
	while (!h_heard(h, role))
		d_turn(d);
	h_hear_u64(h, role);
}

struct xport_lease_info d_info(struct d *d, const xport_lease *lease)
{
	struct xport_lease_info i = {.size = sizeof(i)};
	struct h *h = d->h;

	H_OK(xport_lease_query(lease, &i));
	return i;
}

int d_refused(struct d *d, uint64_t length, uint32_t rights)
{
	xport_lease *lease;
	struct h *h = d->h;
	int r;

	H_OK(xport_lease_ask(d->l, h->ep[0], length, rights, NULL, &lease));
	r = d_settled(d, lease);
	H_CHECK(r < 0, "%" PRIu64 " bytes were lent", length);
	H_EQ(XPORT_LEASE_OVER, d_info(d, lease).state);
	H_TRUE(d_info(d, lease).rkey == NULL);
	H_OK(xport_lease_free(lease));
	return r;
}

struct xport_leases_info d_all(struct d *d)
{
	struct xport_leases_info i = {.size = sizeof(i)};
	struct h *h = d->h;

	H_OK(xport_leases_query(d->l, &i));
	return i;
}

static int move(struct d *d, xport_lease *lease, void *buf, size_t len, uint64_t offset, bool put)
{
	struct d_op op = {0};
	struct xport_opt o = {.size = sizeof(o), .context = &op};
	struct xport_lease_info i = d_info(d, lease);
	int r;

	do {
		r = put ? xport_put(i.ep != NULL ? i.ep : d->h->ep[!d->h->role], buf, len, i.rkey, offset, &o)
		        : xport_get(i.ep != NULL ? i.ep : d->h->ep[!d->h->role], buf, len, i.rkey, offset, &o);
		if (r == XPORT_ERR_AGAIN)
			d_turn(d);
	} while (r == XPORT_ERR_AGAIN);
	return r == XPORT_OK ? d_ended(d, &op) : r;
}

int d_put(struct d *d, xport_lease *lease, const void *buf, size_t len, uint64_t offset)
{
	return move(d, lease, (void *)(uintptr_t)buf, len, offset, true);
}

int d_get(struct d *d, xport_lease *lease, void *buf, size_t len, uint64_t offset)
{
	return move(d, lease, buf, len, offset, false);
}

struct xport_leases_attr d_attr(void)
{
	return (struct xport_leases_attr){
		.size = sizeof(struct xport_leases_attr), .quota = 4 << 20, .patience_ms = 5000};
}
