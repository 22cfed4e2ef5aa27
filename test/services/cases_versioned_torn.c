/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_versioned_torn.c - versioned objects whose writer does not pause are read without tearing. A detector must see
 * tearing where there is some.
 */
#include <stdlib.h>
#include <time.h>

#include "conform/harness.h"
#include "services/versioned.h"

enum { READS = 1000, NAIVE = 200000, NAIVE_US = 20000000, LONG = 256, AT_ONCE = 256, PACED = 1, STOP = 2 };

struct xport_versioned_attr v_attr(uint64_t form)
{
	return (struct xport_versioned_attr){.size = sizeof(struct xport_versioned_attr),
	                                     .form = (int)(form & ~(uint64_t)LONG),
	                                     .length = V_LEN,
	                                     .copies = 16,
	                                     .grace_ms = 20,
	                                     .tries = 50};
}

void v_fill(uint64_t *data, uint64_t n)
{
	for (uint64_t i = 0; i < V_WORDS; i++)
		data[i] = n * 1000003 + i;
}

bool v_torn(const uint64_t *data)
{
	for (uint64_t i = 1; i < V_WORDS; i++) {
		if (data[i] != data[0] + i)
			return true;
	}
	return false;
}

void v_needs_races(struct h *h)
{
#ifdef __SANITIZE_THREAD__
	h_skip(h, "ThreadSanitizer reports the races that the scenario is made of");
#else
	(void)h;
#endif
}

/* ---- the owner ---- */

struct owner {
	xport_versioned *object;
	_Atomic uint64_t *mode;
	uint64_t writes;
	int failed;
};

/* Never pauses, or, if it is told so, after some writes; it does not call the instance. */
static void *writer(void *arg)
{
	struct owner *o = arg;
	uint64_t data[V_WORDS], mode;

	while ((mode = atomic_load(o->mode)) != STOP) {
		v_fill(data, o->writes + 1);
		switch (xport_versioned_write(o->object, data)) {
		case XPORT_OK:
			o->writes++;
			break;
		case XPORT_ERR_AGAIN:
			break;
		default:
			o->failed = 1;
			return NULL;
		}
		if (mode == PACED && o->writes % 16 == 0)
			nanosleep(&(struct timespec){0, 2000000}, NULL);
	}
	return NULL;
}

struct h_mem svc_object_memory(struct h *h, const struct xport_versioned_attr *a)
{
	xport_mr *mr;
	struct xport_mr_info info = {.size = sizeof(info)};

	H_OK(xport_mr_alloc(h->x, xport_versioned_size(a), H_ALL, &mr));
	H_OK(xport_mr_query(mr, &info));
	return (struct h_mem){.p = info.base, .len = info.length, .mr = mr, .allocated = true};
}

xport_versioned *v_object(struct h *h, uint64_t form, struct h_mem *m)
{
	struct xport_versioned_attr a = v_attr(form);
	xport_versioned *object;

	h_mesh(h, NULL);
	*m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m->mr, 0, &a, &object));
	return object;
}

void v_end(struct h *h, xport_versioned *object, struct h_mem *m)
{
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m->mr));
}

void v_serve(struct h *h, uint64_t form)
{
	struct h_mem m;
	xport_versioned *object = v_object(h, form, &m);

	h_share(h, 1, &m);
	h_sync(h); /* serves meanwhile */
	v_end(h, object, &m);
}

static void torn_owner(struct h *h)
{
	struct owner o = {.mode = h_word(h, 0)};
	struct h_mem m;
	uint64_t data[V_WORDS];
	pthread_t t;

	v_needs_races(h);
	o.object = v_object(h, h->param, &m);
	v_fill(data, 0);
	H_OK(xport_versioned_write(o.object, data));
	h_share(h, 1, &m);
	H_EQ(0, pthread_create(&t, NULL, writer, &o));
	h_sync(h); /* serves meanwhile */
	pthread_join(t, NULL);
	H_EQ(0, o.failed);
	h_record(h, "writes", o.writes);
	v_end(h, o.object, &m);
}

/* ---- the reader ---- */

static void unexpected(void *arg, const struct xport_completion *c)
{
	struct h *h = arg;

	h_fail(h, __FILE__, __LINE__, "completion", "type %u, %s", (unsigned)c->type, xport_status_name(c->status));
}

int v_read_one(struct h *h, xport_versioned_peer *p, uint64_t *data)
{
	int r;

	H_OK(xport_versioned_peer_read(p, data));
	r = xport_versioned_peer_wait(p, unexpected, h, h_ms(10000));
	H_CHECK(r == XPORT_OK || r == XPORT_ERR_AGAIN, "%s", xport_status_name(r));
	return r;
}

/* What was read is one write, and none before the last one that was seen.  Ends the test otherwise. */
static void check_read(struct h *h, const xport_versioned_peer *p, const uint64_t *data, uint64_t *last)
{
	H_CHECK(!v_torn(data), "a read is torn: version %" PRIu64, xport_versioned_peer_version(p));
	/* The first write is of version 2. */
	H_EQ((xport_versioned_peer_version(p) / 2 - 1) * 1000003, data[0]);
	H_TRUE(xport_versioned_peer_version(p) >= *last);
	*last = xport_versioned_peer_version(p);
}

/* At least so many reads and so long; how many were accepted. */
static uint64_t read_many(struct h *h, xport_versioned_peer *p, uint64_t reads, int64_t least_us)
{
	uint64_t data[V_WORDS], accepted = 0, last = 0;
	int64_t begun = h_now_us();

	for (uint64_t i = 0; i < reads || h_now_us() - begun < least_us; i++) {
		if (v_read_one(h, p, data) != XPORT_OK)
			continue;
		accepted++;
		check_read(h, p, data, &last);
	}
	return accepted;
}

/* One of many readers of the same object. */
struct reader {
	xport_versioned_peer *p;
	uint64_t last, data[V_WORDS];
};

static int by_peer(const void *a, const void *b)
{
	uintptr_t p = (uintptr_t)((const struct reader *)a)->p, q = (uintptr_t)((const struct reader *)b)->p;

	return (p > q) - (p < q);
}

/* So many reads, by AT_ONCE readers side by side; how many were accepted. */
static uint64_t read_side_by_side(struct h *h, const struct h_rkey *k, const struct xport_versioned_attr *a,
                                  uint64_t reads, uint64_t *retries)
{
	struct reader *r = h_buf(h, AT_ONCE * sizeof(*r)), *one, key = {0};
	struct xport_completion c[AT_ONCE];
	uint64_t begun = AT_ONCE, ended = 0, accepted = 0;

	for (int i = 0; i < AT_ONCE; i++)
		H_OK(xport_versioned_peer_create(h->x, h->ep[0], k->k, 0, a, &r[i].p));
	qsort(r, AT_ONCE, sizeof(*r), by_peer);
	for (int i = 0; i < AT_ONCE; i++)
		H_OK(xport_versioned_peer_read(r[i].p, r[i].data));
	while (ended < begun) {
		int64_t until = h_now_us() + (int64_t)h_ms(10000) * 1000;
		int n;

		/* It gives 0 as well when somebody stopped the process, and let it go on. */
		do
			n = xport_wait(h->x, c, AT_ONCE, h_ms(10000));
		while (n == 0 && h_now_us() < until);
		H_CHECK(n > 0, "nothing came: %d", n);
		for (int i = 0; i < n; i++) {
			int s;

			key.p = c[i].context;
			one = bsearch(&key, r, AT_ONCE, sizeof(*r), by_peer);
			if (one == NULL)
				unexpected(h, &c[i]);
			s = xport_versioned_peer_step(one->p, &c[i]);
			if (s == 1)
				continue;
			H_CHECK(s == XPORT_OK || s == XPORT_ERR_AGAIN, "%s", xport_status_name(s));
			if (s == XPORT_OK)
				check_read(h, one->p, one->data, &one->last);
			accepted += s == XPORT_OK;
			ended++;
			if (begun >= reads)
				continue;
			H_OK(xport_versioned_peer_read(one->p, one->data));
			begun++;
		}
	}
	for (int i = 0; i < AT_ONCE; i++) {
		*retries += xport_versioned_peer_retries(r[i].p);
		xport_versioned_peer_destroy(r[i].p);
	}
	return accepted;
}

/* A get of the bytes as they are, which is what one would do without all this. */
static uint64_t read_naively(struct h *h, const struct h_rkey *k, uint64_t offset)
{
	struct h_mem m = h_mem_local(h, V_LEN, 0);
	int64_t begun = h_now_us();
	uint64_t found = 0;

	/* On a busy machine reader and writer may run by turns for long. */
	for (int i = 0; found < 10 && (i < NAIVE || (found == 0 && h_now_us() - begun < NAIVE_US)); i++) {
		H_DONE(h_get(h, h->ep[0], H_AT(m, 0, V_LEN), k, offset));
		found += v_torn((uint64_t *)(void *)m.p);
	}
	return found;
}

static void torn_reader(struct h *h)
{
	struct xport_versioned_attr a = v_attr(h->param);
	const char *reads = getenv("SERVICES_READS");
	uint64_t n = (h->param & LONG) == 0 ? READS : reads != NULL ? strtoull(reads, NULL, 0) : 100000000;
	uint64_t accepted, naive, retries = 0;
	xport_versioned_peer *p;
	struct h_rkey k;

	v_needs_races(h);
	h_mesh(h, NULL);
	k = h_import(h, 0);
	H_OK(xport_versioned_peer_create(h->x, h->ep[0], k.k, 0, &a, &p));
	if (h->param & LONG) {
		accepted = read_side_by_side(h, &k, &a, n, &retries);
	} else {
		accepted = read_many(h, p, n, 300000);
		retries = xport_versioned_peer_retries(p);
	}
	h_record(h, "accepted_never_paused", accepted);
	h_record(h, "retries_never_paused", retries);
	if (a.form == XPORT_VERSIONED_COPIES)
		H_TRUE(accepted > 0);
	else { /* the detector's own test */
		naive = read_naively(h, &k, V_BODY);
		h_record(h, "naive_torn", naive);
		H_CHECK(naive > 0, "no naive read was torn: this proves nothing");
	}
	atomic_store(h_word(h, 0), PACED);
	accepted = read_many(h, p, READS, 300000);
	h_record(h, "accepted_paused", accepted);
	H_TRUE(accepted > 0);
	atomic_store(h_word(h, 0), STOP);
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

static const struct h_param forms[] = {{"checked", XPORT_VERSIONED_CHECKED},
                                       {"summed", XPORT_VERSIONED_SUMMED},
                                       {"copies", XPORT_VERSIONED_COPIES},
                                       {NULL, 0}};
static const struct h_param long_forms[] = {{"checked", XPORT_VERSIONED_CHECKED | LONG},
                                            {"summed", XPORT_VERSIONED_SUMMED | LONG},
                                            {"copies", XPORT_VERSIONED_COPIES | LONG},
                                            {NULL, 0}};

const struct h_scenario svc_cases_versioned_torn[] = {
	{"versioned_torn", {torn_owner, torn_reader}, forms, 0, 60},
	{"versioned_long", {torn_owner, torn_reader}, long_forms, H_SLOW, 100000},
	{0},
};
