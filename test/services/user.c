/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/user.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>

enum { TTL_S = 2 }; /* of a lease in etcd: the least that it grants */

bool u_etcd(void)
{
	return getenv("XPORT_DIRECTORY") != NULL;
}

struct op {
	_Atomic int done;
	int status;
};

void u_other(void *arg, const struct xport_completion *c)
{
	struct op *op = c->context;
	struct u *u = arg;

	if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED)
		atomic_fetch_add(&u->gone, 1);
	if (c->type >= XPORT_EVENT_NOTIFY || op == NULL)
		return;
	op->status = c->status;
	atomic_store(&op->done, 1);
}

static void loop_turn(struct u *u)
{
	struct pollfd p = {.fd = xport_fd(u->h->x), .events = POLLIN};
	struct xport_completion c[8];
	int ms = xport_directory_timeout(u->d), n;

	poll(&p, 1, ms < 0 || ms > 2 ? 2 : ms);
	n = xport_poll(u->h->x, c, 8);
	for (int i = 0; i < n; i++) {
		if (xport_directory_step(u->d, &c[i]) == 0)
			u_other(u, &c[i]);
	}
	if (n <= 0)
		(void)xport_directory_step(u->d, NULL);
}

static void *thread(void *arg)
{
	struct u *u = arg;

	while (!atomic_load(&u->stop))
		loop_turn(u);
	return NULL;
}

void u_turn(struct u *u)
{
	if (u->driver == U_THREAD)
		nanosleep(&(struct timespec){0, 500000}, NULL);
	else
		loop_turn(u);
}

void u_turn_for(struct u *u, int ms)
{
	int64_t end = h_now_us() + (int64_t)ms * 1000;

	while (h_now_us() < end)
		u_turn(u);
}

void u_begin(struct u *u, struct h *h, int driver, const struct xport_directory_attr *attr)
{
	struct xport_directory_attr da = {.size = sizeof(da)};
	struct xport_attr a = h_attr(h);

	memset(u, 0, sizeof(*u));
	u->h = h;
	u->driver = driver;
	if (attr != NULL)
		da = *attr;
	snprintf(u->node, sizeof(u->node), "role %d", h->role);
	da.node = u->node;
	da.ttl_s = TTL_S;
	a.peer_timeout_ms = h_ms(5000);
	if (driver == U_THREAD)
		a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	H_OK(xport_directory_create(h->x, &da, &u->d));
	h->idle = true;
	h_sync(h);
	if (driver == U_THREAD)
		H_EQ(0, pthread_create(&u->thread, NULL, thread, u));
	if (!da.serve)
		H_OK(xport_directory_join(u->d, h->ep[0]));
}

void u_end(struct u *u)
{
	struct h *h = u->h;

	if (u->driver == U_THREAD) {
		atomic_store(&u->stop, 1);
		pthread_join(u->thread, NULL);
	}
	H_OK(xport_directory_destroy(u->d, u_other, u, h_ms(10000)));
	h->idle = false;
}

void u_meet(struct u *u, int role)
{
	struct h *h = u->h;

	h_tell_u64(h, role, 1);
	while (!h_heard(h, role))
		u_turn(u);
	h_hear_u64(h, role);
}

struct xport_directory_event u_next(struct u *u, const char *file, int line, int type)
{
	int64_t until = h_now_us() + (int64_t)h_ms(10000) * 1000;
	struct xport_directory_event e = {.size = sizeof(e)};
	struct h *h = u->h;

	if (u->driver == 0) {
		while (xport_directory_next(u->d, &e) == 0) {
			if (h_now_us() > until)
				h_fail(h, file, line, "directory event", "none of type %d came", type);
			u_turn(u);
		}
	} else {
		h_check_status(h, file, line, "xport_directory_wait", XPORT_OK,
		               xport_directory_wait(u->d, &e, u_other, u, h_ms(10000)));
	}
	if (e.type != type)
		h_fail(h, file, line, "directory event", "of type %d (%s, %s), not %d", e.type, e.name,
		       xport_status_name(e.status), type);
	return e;
}

struct xport_directory_info u_info(struct u *u)
{
	struct xport_directory_info i = {.size = sizeof(i)};
	struct h *h = u->h;

	H_OK(xport_directory_query(u->d, &i));
	return i;
}

bool u_is(const struct xport_directory_event *e, const char *name)
{
	return e->name_len == strlen(name) && memcmp(e->name, name, e->name_len) == 0;
}

struct xport_directory_entry u_region(struct h *h, xport_mr *mr, uint64_t offset, uint64_t length)
{
	struct xport_directory_entry e;

	H_OK(xport_directory_region(mr, offset, length, &e));
	return e;
}

int u_put(struct u *u, const char *name, const struct xport_directory_entry *e)
{
	struct h *h = u->h;

	H_OK(xport_directory_put(u->d, name, strlen(name), e, 0, u));
	return U_DONE(u).status;
}

int u_find(struct u *u, const char *name, struct xport_directory_entry *entry)
{
	struct xport_directory_event e;
	struct h *h = u->h;

	H_OK(xport_directory_find(u->d, name, strlen(name), u));
	e = U_DONE(u);
	H_TRUE(e.context == u);
	H_TRUE(u_is(&e, name));
	*entry = e.entry;
	return e.status;
}

int u_fetch(struct u *u, const struct xport_directory_entry *e, uint64_t seed)
{
	struct op op = {0};
	struct xport_opt o = {.size = sizeof(o), .context = &op};
	uint8_t *buf = h_buf(u->h, U_LEN);
	struct h *h = u->h;
	xport_rkey *k;
	int role, r;

	H_EQ(1, sscanf(e->node, "role %d", &role));
	r = xport_rkey_unpack(h->ep[role], e->key, e->key_len, &k);
	if (r != XPORT_OK)
		return r;
	r = xport_get(h->ep[role], buf, e->length, k, e->offset, &o);
	while (r == XPORT_OK && !atomic_load(&op.done))
		u_turn(u);
	xport_rkey_destroy(k);
	if (r == XPORT_OK && (r = op.status) == XPORT_OK)
		H_FILLED(buf, e->length, seed);
	h_buf_free(h, buf);
	return r;
}

void u_publish(struct u *u, const char *name, struct xport_directory_entry *e)
{
	struct h *h = u->h;
	uint8_t *buf = h_buf(h, U_LEN);
	xport_mr *mr;

	H_OK(xport_mr_reg(h->x, buf, U_LEN, XPORT_REMOTE_READ, &mr));
	*e = u_region(h, mr, 0, U_LEN);
	H_OK(u_put(u, name, e));
}
