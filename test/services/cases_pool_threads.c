/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_pool_threads.c - several threads use one pool. */
#include <stdlib.h>

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { THREADS = 4, ROUNDS = 20000, HAND = 64 };

struct crowd {
	xport_pool *pool;
	/* Blocks handed from thread to thread: whoever finds one frees it. */
	void *_Atomic hand[HAND];
	atomic_int failures;
};

static void *member(void *arg)
{
	struct crowd *c = arg;
	unsigned seed = (unsigned)(uintptr_t)&seed;
	struct xport_block b;
	unsigned char *got;

	for (int i = 0; i < ROUNDS; i++) {
		size_t len = (size_t)16 << rand_r(&seed) % 12;

		if (xport_pool_alloc(c->pool, len, 0, &b) != XPORT_OK) {
			atomic_fetch_add(&c->failures, 1);
			break;
		}
		/* Its length in its first and last bytes, for whoever frees it. */
		memcpy(b.address, &len, sizeof(len));
		((unsigned char *)b.address)[len - 1] = (unsigned char)(len >> 4);
		got = atomic_exchange(&c->hand[rand_r(&seed) % HAND], b.address);
		if (got == NULL)
			continue;
		memcpy(&len, got, sizeof(len));
		if (got[len - 1] != (unsigned char)(len >> 4) || xport_pool_free(c->pool, got) != XPORT_OK)
			atomic_fetch_add(&c->failures, 1);
	}
	return NULL;
}

static void threads(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct crowd c = {0};
	pthread_t t[THREADS];
	struct xport_pool_info i;

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_open(h, &a);
	c.pool = svc_pool_make(h, (uint32_t)h->param, 0);
	for (int n = 0; n < THREADS; n++)
		H_EQ(0, pthread_create(&t[n], NULL, member, &c));
	for (int n = 0; n < THREADS; n++)
		pthread_join(t[n], NULL);
	H_EQ(0, atomic_load(&c.failures));
	i = svc_pool_ask(h, c.pool);
	H_EQ(0, i.threads); /* what they kept is given back */
	H_EQ(0, i.cached);
	H_EQ(THREADS * ROUNDS, i.allocations);
	for (int n = 0; n < HAND; n++)
		H_OK(xport_pool_free(c.pool, atomic_load(&c.hand[n])));
	i = svc_pool_ask(h, c.pool);
	H_EQ(0, i.in_use);
	H_EQ(i.allocations, i.frees);
	H_TRUE(xport_pool_trim(c.pool) == (int)i.slabs);
	H_OK(xport_pool_destroy(c.pool));
}

static void *take_one(void *arg)
{
	struct xport_block b;
	struct xport_error e = {.size = sizeof(e)};
	int r = xport_pool_alloc(arg, 100, 0, &b);

	if (r != XPORT_OK &&
	    (xport_services_last_error(&e) != XPORT_OK || strstr(e.text, "only the thread that created it") == NULL))
		return (void *)1l;
	return (void *)(intptr_t)r;
}

static void *reserve_one(void *arg)
{
	return (void *)(intptr_t)xport_pool_reserve(arg, 1);
}

static int in_a_thread(struct h *h, void *arg, void *(*what)(void *))
{
	pthread_t t;
	void *r;

	H_EQ(0, pthread_create(&t, NULL, what, arg));
	pthread_join(t, &r);
	return (int)(intptr_t)r;
}

/* On an instance that does not lock, other threads live on what is reserved. */
static void growth(struct h *h)
{
	xport_pool *p;

	h_open(h, NULL);
	p = svc_pool_make(h, 0, 0);
	H_EQ(XPORT_ERR_NO_MEMORY, in_a_thread(h, p, take_one));
	H_OK(xport_pool_reserve(p, 1));
	H_EQ(XPORT_OK, in_a_thread(h, p, take_one));
	H_OK(xport_pool_destroy(p));
	/* Whoever is let in reserves: one at a time is all that the instance asks for. */
	p = svc_pool_make(h, 0, 0);
	H_EQ(XPORT_OK, in_a_thread(h, p, reserve_one));
	H_EQ(XPORT_OK, in_a_thread(h, p, take_one));
	H_EQ(1, svc_pool_ask(h, p).slabs);
	H_OK(xport_pool_destroy(p));
}

struct maker {
	xport *x;
	xport_pool *pool;
};

static void *make_one(void *arg)
{
	struct maker *m = arg;

	return (void *)(intptr_t)xport_pool_create(m->x, NULL, &m->pool);
}

/* A thread that gets the pthread_t of the one that made the pool, and has ended, is another one. */
static void maker_gone(struct h *h)
{
	struct maker m = {0};

	h_open(h, NULL);
	m.x = h->x;
	H_EQ(XPORT_OK, in_a_thread(h, &m, make_one));
	for (int i = 0; i < 8; i++)
		H_EQ(XPORT_ERR_NO_MEMORY, in_a_thread(h, m.pool, take_one));
	H_EQ(0, svc_pool_ask(h, m.pool).registrations);
	H_OK(xport_pool_destroy(m.pool));
}

static const struct h_param modes[] = {{"", 0}, {"debug", XPORT_POOL_DEBUG}, {NULL, 0}};

const struct h_scenario svc_cases_pool_threads[] = {
	{"pool_threads", {threads}, modes, 0, 0},
	{"pool_growth", {growth}, NULL, 0, 0},
	{"pool_maker_gone", {maker_gone}, NULL, 0, 0},
	{0},
};
