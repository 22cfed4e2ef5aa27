/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_versioned.c - versioned objects with several writers, some of which die, lose their lock or find the queue
 * full.
 */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "conform/harness.h"
#include "services/versioned.h"

/* ---- writers everywhere ---- */

enum { WRITES = 100 };

static void writers_owner(struct h *h)
{
	xport_versioned *object;
	uint64_t data[V_WORDS];
	struct h_mem m;

	if (h->config->threads)
		v_needs_races(h);
	object = v_object(h, h->param, &m);
	for (int i = 1; i < h->nroles; i++)
		h_share(h, i, &m);
	h_sync(h);
	for (int n = 0; n < WRITES;) {
		v_fill(data, (uint64_t)n);
		if (xport_versioned_write(object, data) == XPORT_OK)
			n++;
		h_progress(h);
	}
	h_sync(h);
	h_sync(h);
	v_end(h, object, &m);
}

static xport_versioned_peer *reach(struct h *h, struct h_rkey *k)
{
	struct xport_versioned_attr a = v_attr(h->param);
	xport_versioned_peer *p;

	a.tries = 10000;
	*k = h_import(h, 0);
	H_OK(xport_versioned_peer_create(h->x, h->ep[0], k->k, 0, &a, &p));
	return p;
}

static void writers_peer(struct h *h)
{
	xport_versioned_peer *p;
	uint64_t data[V_WORDS];
	struct h_rkey k;
	int r;

	if (h->config->threads)
		v_needs_races(h);
	h_mesh(h, NULL);
	p = reach(h, &k);
	h_sync(h);
	for (int n = 0; n < WRITES;) {
		v_fill(data, (uint64_t)(n + h->role * 100000));
		H_OK(xport_versioned_peer_write(p, data));
		r = xport_versioned_peer_wait(p, NULL, NULL, h_ms(10000));
		H_CHECK(r == XPORT_OK || r == XPORT_ERR_AGAIN, "%s", xport_status_name(r));
		n += r == XPORT_OK;
	}
	h_sync(h);
	/* Each write of each counts. */
	H_EQ(XPORT_OK, v_read_one(h, p, data));
	H_EQ((h->nroles - 1) * WRITES * 2, xport_versioned_peer_version(p));
	H_TRUE(!v_torn(data));
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

static void writers_reader(struct h *h)
{
	xport_versioned_peer *p;
	uint64_t data[V_WORDS] = {0}, accepted = 0;
	struct h_rkey k;

	if (h->config->threads)
		v_needs_races(h);
	h_mesh(h, NULL);
	p = reach(h, &k);
	h_sync(h);
	while (xport_versioned_peer_version(p) < 3 * WRITES * 2) {
		if (v_read_one(h, p, data) == XPORT_OK && xport_versioned_peer_version(p) > 0) {
			accepted++;
			H_TRUE(!v_torn(data));
		}
	}
	h_record(h, "accepted", accepted);
	h_sync(h);
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

/* ---- a writer that dies in the middle ---- */

static void death_owner(struct h *h)
{
	xport_versioned *object;
	uint64_t data[V_WORDS];
	struct h_mem m;

	object = v_object(h, h->param, &m);
	v_fill(data, 1);
	H_OK(xport_versioned_write(object, data));
	h_share(h, 1, &m);
	h_share(h, 2, &m);
	H_EVENT(XPORT_EVENT_LOST);
	H_STATUS(XPORT_ERR_AGAIN, xport_versioned_write(object, data));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_versioned_write", "xport_versioned_recover");
	H_EQ(1, xport_versioned_recover(object));
	H_EQ(0, xport_versioned_recover(object));
	h_sync_with(h, 2);
	h_sync_with(h, 2); /* it could not read */
	v_fill(data, 2);
	H_OK(xport_versioned_write(object, data));
	h_sync_with(h, 2);
	h_sync_with(h, 2);
	v_end(h, object, &m);
}

/* Ends when its bytes are there, but not what says so. */
static void death_writer(struct h *h)
{
	struct xport_completion c;
	xport_versioned_peer *p;
	uint64_t data[V_WORDS];
	struct h_rkey k;
	int puts = 0, last = h->param == XPORT_VERSIONED_CHECKED ? 2 : 1;

	h_mesh(h, NULL);
	p = reach(h, &k);
	v_fill(data, 5);
	data[7] = 0; /* which a reader would notice */
	H_OK(xport_versioned_peer_write(p, data));
	while (puts < last) {
		int n = xport_wait(h->x, &c, 1, h_ms(1000));

		H_TRUE(n >= 0);
		if (n == 0 || c.context != p)
			continue;
		puts += c.type == XPORT_OP_PUT;
		if (puts < last)
			H_EQ(1, xport_versioned_peer_step(p, &c));
	}
	h_exit(h, false);
}

static void death_reader(struct h *h)
{
	xport_versioned_peer *p;
	uint64_t data[V_WORDS];
	struct h_rkey k;

	h_mesh(h, NULL);
	p = reach(h, &k);
	xport_versioned_peer_destroy(p);
	{
		struct xport_versioned_attr a = v_attr(h->param);

		H_OK(xport_versioned_peer_create(h->x, h->ep[0], k.k, 0, &a, &p));
	}
	H_EVENT(XPORT_EVENT_LOST);
	h_sync_with(h, 0);
	/* Under the checked form it was in the middle; the summed one's put was all there was to it. */
	if (h->param == XPORT_VERSIONED_CHECKED) {
		H_EQ(XPORT_ERR_AGAIN, v_read_one(h, p, data));
		SVC_ERROR(XPORT_ERR_AGAIN, "xport_versioned_peer_step", "changed during each of 50 reads");
	} else {
		H_EQ(XPORT_OK, v_read_one(h, p, data));
		H_EQ(0, data[7]);
	}
	h_sync_with(h, 0);
	h_sync_with(h, 0);
	H_EQ(XPORT_OK, v_read_one(h, p, data));
	H_EQ(2 * 1000003, data[0]);
	H_TRUE(!v_torn(data));
	h_sync_with(h, 0);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

/* ---- a lock that is taken away from one that lives ---- */

static void robbed_owner(struct h *h)
{
	xport_versioned *object;
	struct h_mem m;

	object = v_object(h, h->param, &m);
	h_share(h, 1, &m);
	h_sync(h); /* it holds the lock */
	H_EQ(1, xport_versioned_recover(object));
	h_sync(h);
	h_sync(h); /* it has written, and again */
	H_EQ(0, xport_versioned_recover(object));
	v_end(h, object, &m);
}

/* The next completion of its own. */
static struct xport_completion next_of(struct h *h, const xport_versioned_peer *p)
{
	struct xport_completion c = {.context = NULL};

	while (c.context != p)
		H_TRUE(xport_wait(h->x, &c, 1, h_ms(1000)) >= 0);
	return c;
}

static int run_on(struct h *h, xport_versioned_peer *p, struct xport_completion c)
{
	int r;

	while ((r = xport_versioned_peer_step(p, &c)) == 1)
		c = next_of(h, p);
	return r;
}

static void robbed_writer(struct h *h)
{
	struct xport_completion c;
	xport_versioned_peer *p;
	uint64_t data[V_WORDS];
	struct h_rkey k;

	h_mesh(h, NULL);
	p = reach(h, &k);
	v_fill(data, 5);
	H_OK(xport_versioned_peer_write(p, data));
	while ((c = next_of(h, p)).type != XPORT_OP_PUT)
		H_EQ(1, xport_versioned_peer_step(p, &c));
	h_sync(h); /* the odd mark, or the bytes, are put */
	h_sync(h);
	H_EQ(XPORT_ERR_AGAIN, run_on(h, p, c));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_versioned_peer_step", "took the lock away");
	H_EQ(0, xport_versioned_peer_version(p)); /* none that was written */
	H_OK(xport_versioned_peer_write(p, data));
	H_OK(run_on(h, p, next_of(h, p)));
	H_TRUE(xport_versioned_peer_version(p) > 0);
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

/* ---- an object that is made again where one was ---- */

static void remade_owner(struct h *h)
{
	struct xport_versioned_attr a = v_attr(h->param);
	xport_versioned *object;
	uint64_t data[V_WORDS];
	struct h_mem m;

	object = v_object(h, h->param, &m);
	v_fill(data, 1);
	H_OK(xport_versioned_write(object, data));
	h_share(h, 1, &m);
	h_sync(h); /* it has read the version */
	xport_versioned_destroy(object);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	H_BYTES(m.p + V_BODY, V_LEN, 0);
	h_sync(h);
	h_sync(h); /* and the bytes */
	v_fill(data, 2);
	H_OK(xport_versioned_write(object, data));
	h_sync(h);
	h_sync(h);
	v_end(h, object, &m);
}

/* The version and the bytes of two objects are not one object's. */
static void remade_reader(struct h *h)
{
	struct xport_completion c;
	xport_versioned_peer *p;
	uint64_t data[V_WORDS];
	struct h_rkey k;

	h_mesh(h, NULL);
	p = reach(h, &k);
	H_OK(xport_versioned_peer_read(p, data));
	c = next_of(h, p);
	h_sync(h);
	h_sync(h);
	H_EQ(1, xport_versioned_peer_step(p, &c));
	c = next_of(h, p);
	h_sync(h);
	h_sync(h);
	H_OK(run_on(h, p, c));
	H_EQ(2 * 1000003, data[0]);
	H_TRUE(!v_torn(data));
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

/* ---- a queue that is full ---- */

enum { DEPTH = 2, ROUNDS = 20 };

static void full_owner(struct h *h)
{
	v_serve(h, h->param);
}

/* Gets of somebody else, as many as go in. */
static int fill_queue(struct h *h, const struct h_rkey *k, struct h_mem *m)
{
	struct xport_opt o = {.size = sizeof(o), .context = m, .mr = m->mr};
	int r, n = 0;

	while ((r = xport_get(h->ep[0], m->p, 8, k->k, 0, &o)) == XPORT_OK)
		n++;
	H_STATUS(XPORT_ERR_AGAIN, r);
	return n;
}

/* An event loop as the header has it. */
static int drive_full(struct h *h, xport_versioned_peer *p, const struct h_rkey *k, struct h_mem *m, int *others)
{
	int64_t until = h_now_us() + (int64_t)h_ms(10000) * 1000;
	struct xport_completion c[DEPTH];
	int n, r = 1;

	while (r == 1) {
		H_CHECK(h_now_us() < until, "it waits still");
		n = xport_wait(h->x, c, DEPTH, h_ms(1000));
		H_TRUE(n >= 0);
		for (int i = 0; i < n; i++) {
			if (c[i].context == p)
				r = xport_versioned_peer_step(p, &c[i]);
			else
				(*others)--;
		}
		if (r == 1)
			r = xport_versioned_peer_step(p, NULL);
		*others += fill_queue(h, k, m);
	}
	return r;
}

static void full_peer(struct h *h)
{
	struct h_mem m;
	struct xport_attr a = h_attr(h);
	uint64_t data[V_WORDS], back[V_WORDS];
	struct xport_completion c;
	xport_versioned_peer *p;
	struct h_rkey k;
	int others = 0;

	a.queue_depth = DEPTH;
	h_mesh(h, &a);
	p = reach(h, &k);
	m = h_mem_local(h, 8, 0);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		v_fill(data, i);
		others += fill_queue(h, &k, &m);
		H_OK(xport_versioned_peer_write(p, data));
		H_EQ(XPORT_OK, drive_full(h, p, &k, &m, &others));
		H_OK(xport_versioned_peer_read(p, back));
		H_EQ(XPORT_OK, drive_full(h, p, &k, &m, &others));
		H_EQ(2 * i, xport_versioned_peer_version(p));
		H_TRUE(memcmp(data, back, V_LEN) == 0);
	}
	while (others > 0) {
		int n = xport_wait(h->x, &c, 1, h_ms(5000));

		H_TRUE(n == 0 || (n == 1 && c.context == &m));
		others -= n;
	}
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
	h_mem_free(h, &m);
}

/* ---- another thread reaps ---- */

enum { BESIDE = 2000 };

struct beside {
	xport *x;
	xport_versioned_peer *p;
	_Atomic int stop, ended; /* ended: 1, or how */
};

static void *reaper(void *arg)
{
	struct beside *b = arg;
	struct xport_completion c[8];
	int n, r;

	while (!atomic_load(&b->stop)) {
		n = xport_wait(b->x, c, 8, 1);
		for (int i = 0; i < n; i++) {
			if (c[i].context == b->p && (r = xport_versioned_peer_step(b->p, &c[i])) != 1)
				atomic_store(&b->ended, r);
		}
		r = xport_versioned_peer_step(b->p, NULL);
		if (r != 1 && r != XPORT_ERR_INVALID) /* which it is between one and the next */
			atomic_store(&b->ended, r);
	}
	return NULL;
}

static void beside_owner(struct h *h)
{
	v_serve(h, h->param);
}

static void beside_peer(struct h *h)
{
	struct xport_attr a = h_attr(h);
	uint64_t data[V_WORDS], back[V_WORDS];
	struct beside b = {.ended = 1};
	struct h_rkey k;
	pthread_t t;
	int r;

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	b.x = h->x;
	b.p = reach(h, &k);
	h->idle = true; /* it alone reaps */
	H_EQ(0, pthread_create(&t, NULL, reaper, &b));
	for (uint64_t i = 0; i < 2 * BESIDE; i++) {
		int64_t until = h_now_us() + (int64_t)h_ms(10000) * 1000;

		v_fill(data, i / 2);
		atomic_store(&b.ended, 1);
		H_OK(i % 2 ? xport_versioned_peer_read(b.p, back) : xport_versioned_peer_write(b.p, data));
		while ((r = atomic_load(&b.ended)) == 1) {
			H_CHECK(h_now_us() < until, "%s %" PRIu64 " did not end", i % 2 ? "read" : "write", i / 2);
			sched_yield();
		}
		H_OK(r);
		H_EQ(2 * (i / 2 + 1), xport_versioned_peer_version(b.p));
		H_TRUE(i % 2 == 0 || memcmp(data, back, V_LEN) == 0);
	}
	atomic_store(&b.stop, 1);
	pthread_join(t, NULL);
	h->idle = false;
	h_sync(h);
	xport_versioned_peer_destroy(b.p);
	xport_rkey_destroy(k.k);
}

static const struct h_param written[] = {
	{"checked", XPORT_VERSIONED_CHECKED}, {"summed", XPORT_VERSIONED_SUMMED}, {NULL, 0}};

static const struct h_param checked[] = {{"checked", XPORT_VERSIONED_CHECKED}, {NULL, 0}};

const struct h_scenario svc_cases_versioned[] = {
	{"versioned_writers", {writers_owner, writers_peer, writers_peer, writers_reader}, written, 0, 60},
	{"versioned_robbed", {robbed_owner, robbed_writer}, written, 0, 60},
	{"versioned_remade", {remade_owner, remade_reader}, checked, 0, 60},
	{"versioned_full", {full_owner, full_peer}, written, 0, 60},
	{"versioned_beside", {beside_owner, beside_peer}, written, 0, 60},
	{"versioned_death", {death_owner, death_writer, death_reader}, written, H_KILLS, 60},
	{0},
};
