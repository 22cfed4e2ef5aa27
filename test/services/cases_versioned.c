/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_versioned.c - objects that are read without tearing, and a detector that sees tearing where there is some. */
#include <stdlib.h>
#include <time.h>

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum {
	WORDS = 128,
	LEN = WORDS * 8,
	READS = 1000,
	NAIVE = 200000,
	NAIVE_US = 20000000,
	LONG = 256,
	AT_ONCE = 64,
	PACED = 1,
	STOP = 2,
	BODY = 64,
	SUM = 16
};

static struct xport_versioned_attr attr(uint64_t form)
{
	return (struct xport_versioned_attr){.size = sizeof(struct xport_versioned_attr),
	                                     .form = (int)(form & ~(uint64_t)LONG),
	                                     .length = LEN,
	                                     .copies = 16,
	                                     .grace_ms = 20,
	                                     .tries = 50};
}

/* Each word tells which write it is of. */
static void fill(uint64_t *data, uint64_t n)
{
	for (uint64_t i = 0; i < WORDS; i++)
		data[i] = n * 1000003 + i;
}

static bool torn(const uint64_t *data)
{
	for (uint64_t i = 1; i < WORDS; i++) {
		if (data[i] != data[0] + i)
			return true;
	}
	return false;
}

/* That memory is read while it is written is what these are about. */
static void needs_races(struct h *h)
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
	uint64_t data[WORDS], mode;

	while ((mode = atomic_load(o->mode)) != STOP) {
		fill(data, o->writes + 1);
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

static void torn_owner(struct h *h)
{
	struct xport_versioned_attr a = attr(h->param);
	struct owner o = {.mode = h_word(h, 0)};
	struct h_mem m;
	uint64_t data[WORDS];
	pthread_t t;

	needs_races(h);
	h_mesh(h, NULL);
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &o.object));
	fill(data, 0);
	H_OK(xport_versioned_write(o.object, data));
	h_share(h, 1, &m);
	H_EQ(0, pthread_create(&t, NULL, writer, &o));
	h_sync(h); /* serves meanwhile */
	pthread_join(t, NULL);
	H_EQ(0, o.failed);
	h_record(h, "writes", o.writes);
	xport_versioned_destroy(o.object);
	H_OK(xport_mr_dereg(m.mr));
}

/* ---- the reader ---- */

static void unexpected(void *arg, const struct xport_completion *c)
{
	struct h *h = arg;

	h_fail(h, __FILE__, __LINE__, "completion", "type %u, %s", (unsigned)c->type, xport_status_name(c->status));
}

/* XPORT_OK or AGAIN. */
static int read_one(struct h *h, xport_versioned_peer *p, uint64_t *data)
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
	H_CHECK(!torn(data), "a read is torn: version %" PRIu64, xport_versioned_peer_version(p));
	/* The first write is of version 2. */
	H_EQ((xport_versioned_peer_version(p) / 2 - 1) * 1000003, data[0]);
	H_TRUE(xport_versioned_peer_version(p) >= *last);
	*last = xport_versioned_peer_version(p);
}

/* At least so many reads and so long; how many were accepted. */
static uint64_t read_many(struct h *h, xport_versioned_peer *p, uint64_t reads, int64_t least_us)
{
	uint64_t data[WORDS], accepted = 0, last = 0;
	int64_t begun = h_now_us();

	for (uint64_t i = 0; i < reads || h_now_us() - begun < least_us; i++) {
		if (read_one(h, p, data) != XPORT_OK)
			continue;
		accepted++;
		check_read(h, p, data, &last);
	}
	return accepted;
}

/* One of many readers of the same object. */
struct reader {
	xport_versioned_peer *p;
	uint64_t last, data[WORDS];
};

/* So many reads, by AT_ONCE readers side by side; how many were accepted. */
static uint64_t read_side_by_side(struct h *h, const struct h_rkey *k, const struct xport_versioned_attr *a,
                                  uint64_t reads, uint64_t *retries)
{
	struct reader *r = h_buf(h, AT_ONCE * sizeof(*r));
	struct xport_completion c[AT_ONCE];
	uint64_t begun = 0, ended = 0, accepted = 0;

	for (; begun < AT_ONCE; begun++) {
		H_OK(xport_versioned_peer_create(h->x, h->ep[0], k->k, 0, a, &r[begun].p));
		H_OK(xport_versioned_peer_read(r[begun].p, r[begun].data));
	}
	while (ended < begun) {
		int n = xport_wait(h->x, c, AT_ONCE, h_ms(10000));

		H_CHECK(n > 0, "nothing came: %d", n);
		for (int i = 0; i < n; i++) {
			struct reader *one = r;
			int s;

			while (one < r + AT_ONCE && one->p != c[i].context)
				one++;
			if (one == r + AT_ONCE)
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
	struct h_mem m = h_mem_local(h, LEN, 0);
	int64_t begun = h_now_us();
	uint64_t found = 0;

	/* On a busy machine reader and writer may run by turns for long. */
	for (int i = 0; found < 10 && (i < NAIVE || (found == 0 && h_now_us() - begun < NAIVE_US)); i++) {
		H_DONE(h_get(h, h->ep[0], H_AT(m, 0, LEN), k, offset));
		found += torn((uint64_t *)(void *)m.p);
	}
	return found;
}

static void torn_reader(struct h *h)
{
	struct xport_versioned_attr a = attr(h->param);
	const char *reads = getenv("SERVICES_READS");
	uint64_t n = (h->param & LONG) == 0 ? READS : reads != NULL ? strtoull(reads, NULL, 0) : 100000000;
	uint64_t accepted, naive, retries = 0;
	xport_versioned_peer *p;
	struct h_rkey k;

	needs_races(h);
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
		naive = read_naively(h, &k, BODY);
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

/* ---- writers everywhere ---- */

enum { WRITES = 100 };

static void writers_owner(struct h *h)
{
	struct xport_versioned_attr a = attr(h->param);
	xport_versioned *object;
	uint64_t data[WORDS];
	struct h_mem m;

	if (h->config->threads)
		needs_races(h);
	h_mesh(h, NULL);
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	for (int i = 1; i < h->nroles; i++)
		h_share(h, i, &m);
	h_sync(h);
	for (int n = 0; n < WRITES;) {
		fill(data, (uint64_t)n);
		if (xport_versioned_write(object, data) == XPORT_OK)
			n++;
		h_progress(h);
	}
	h_sync(h);
	h_sync(h);
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
}

static xport_versioned_peer *reach(struct h *h, struct h_rkey *k)
{
	struct xport_versioned_attr a = attr(h->param);
	xport_versioned_peer *p;

	a.tries = 10000;
	*k = h_import(h, 0);
	H_OK(xport_versioned_peer_create(h->x, h->ep[0], k->k, 0, &a, &p));
	return p;
}

static void writers_peer(struct h *h)
{
	xport_versioned_peer *p;
	uint64_t data[WORDS];
	struct h_rkey k;
	int r;

	if (h->config->threads)
		needs_races(h);
	h_mesh(h, NULL);
	p = reach(h, &k);
	h_sync(h);
	for (int n = 0; n < WRITES;) {
		fill(data, (uint64_t)(n + h->role * 100000));
		H_OK(xport_versioned_peer_write(p, data));
		r = xport_versioned_peer_wait(p, NULL, NULL, h_ms(10000));
		H_CHECK(r == XPORT_OK || r == XPORT_ERR_AGAIN, "%s", xport_status_name(r));
		n += r == XPORT_OK;
	}
	h_sync(h);
	/* Each write of each counts. */
	H_EQ(XPORT_OK, read_one(h, p, data));
	H_EQ((h->nroles - 1) * WRITES * 2, xport_versioned_peer_version(p));
	H_TRUE(!torn(data));
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

static void writers_reader(struct h *h)
{
	xport_versioned_peer *p;
	uint64_t data[WORDS] = {0}, accepted = 0;
	struct h_rkey k;

	if (h->config->threads)
		needs_races(h);
	h_mesh(h, NULL);
	p = reach(h, &k);
	h_sync(h);
	while (xport_versioned_peer_version(p) < 3 * WRITES * 2) {
		if (read_one(h, p, data) == XPORT_OK && xport_versioned_peer_version(p) > 0) {
			accepted++;
			H_TRUE(!torn(data));
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
	struct xport_versioned_attr a = attr(h->param);
	xport_versioned *object;
	uint64_t data[WORDS];
	struct h_mem m;

	h_mesh(h, NULL);
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	fill(data, 1);
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
	fill(data, 2);
	H_OK(xport_versioned_write(object, data));
	h_sync_with(h, 2);
	h_sync_with(h, 2);
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
}

/* Ends when its bytes are there, but not what says so. */
static void death_writer(struct h *h)
{
	struct xport_completion c;
	xport_versioned_peer *p;
	uint64_t data[WORDS];
	struct h_rkey k;
	int puts = 0, last = h->param == XPORT_VERSIONED_CHECKED ? 2 : 1;

	h_mesh(h, NULL);
	p = reach(h, &k);
	fill(data, 5);
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
	uint64_t data[WORDS];
	struct h_rkey k;

	h_mesh(h, NULL);
	p = reach(h, &k);
	xport_versioned_peer_destroy(p);
	{
		struct xport_versioned_attr a = attr(h->param);

		H_OK(xport_versioned_peer_create(h->x, h->ep[0], k.k, 0, &a, &p));
	}
	H_EVENT(XPORT_EVENT_LOST);
	h_sync_with(h, 0);
	/* Under the checked form it was in the middle; the summed one's put was all there was to it. */
	if (h->param == XPORT_VERSIONED_CHECKED) {
		H_EQ(XPORT_ERR_AGAIN, read_one(h, p, data));
		SVC_ERROR(XPORT_ERR_AGAIN, "xport_versioned_peer_step", "changed during each of 50 reads");
	} else {
		H_EQ(XPORT_OK, read_one(h, p, data));
		H_EQ(0, data[7]);
	}
	h_sync_with(h, 0);
	h_sync_with(h, 0);
	H_EQ(XPORT_OK, read_one(h, p, data));
	H_EQ(2 * 1000003, data[0]);
	H_TRUE(!torn(data));
	h_sync_with(h, 0);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

/* ---- a lock that is taken away from one that lives ---- */

static void robbed_owner(struct h *h)
{
	struct xport_versioned_attr a = attr(h->param);
	xport_versioned *object;
	struct h_mem m;

	h_mesh(h, NULL);
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	h_share(h, 1, &m);
	h_sync(h); /* it holds the lock */
	H_EQ(1, xport_versioned_recover(object));
	h_sync(h);
	h_sync(h); /* it has written, and again */
	H_EQ(0, xport_versioned_recover(object));
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
}

/* The next completion of its own. */
static struct xport_completion next_of(struct h *h, const xport_versioned_peer *p)
{
	struct xport_completion c = {.context = NULL};

	while (c.context != p)
		H_TRUE(xport_wait(h->x, &c, 1, h_ms(1000)) >= 0);
	return c;
}

static int write_rest(struct h *h, xport_versioned_peer *p, struct xport_completion c)
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
	uint64_t data[WORDS];
	struct h_rkey k;

	h_mesh(h, NULL);
	p = reach(h, &k);
	fill(data, 5);
	H_OK(xport_versioned_peer_write(p, data));
	while ((c = next_of(h, p)).type != XPORT_OP_PUT)
		H_EQ(1, xport_versioned_peer_step(p, &c));
	h_sync(h); /* the odd mark, or the bytes, are put */
	h_sync(h);
	H_EQ(XPORT_ERR_AGAIN, write_rest(h, p, c));
	SVC_ERROR(XPORT_ERR_AGAIN, "xport_versioned_peer_step", "taken away while it was held");
	H_OK(xport_versioned_peer_write(p, data));
	H_OK(write_rest(h, p, next_of(h, p)));
	h_sync(h);
	xport_versioned_peer_destroy(p);
	xport_rkey_destroy(k.k);
}

/* ---- a queue that is full ---- */

enum { DEPTH = 2, ROUNDS = 20 };

static void full_owner(struct h *h)
{
	struct xport_versioned_attr a = attr(h->param);
	xport_versioned *object;
	struct h_mem m;

	h_mesh(h, NULL);
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	h_share(h, 1, &m);
	h_sync(h); /* serves meanwhile */
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
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
	uint64_t data[WORDS], back[WORDS];
	struct xport_completion c;
	xport_versioned_peer *p;
	struct h_rkey k;
	int others = 0;

	a.queue_depth = DEPTH;
	h_mesh(h, &a);
	p = reach(h, &k);
	m = h_mem_local(h, 8, 0);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		fill(data, i);
		others += fill_queue(h, &k, &m);
		H_OK(xport_versioned_peer_write(p, data));
		H_EQ(XPORT_OK, drive_full(h, p, &k, &m, &others));
		H_OK(xport_versioned_peer_read(p, back));
		H_EQ(XPORT_OK, drive_full(h, p, &k, &m, &others));
		H_EQ(2 * i, xport_versioned_peer_version(p));
		H_TRUE(memcmp(data, back, LEN) == 0);
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

/* ---- alone ---- */

static void wrong(struct h *h)
{
	struct xport_versioned_attr a = attr(XPORT_VERSIONED_CHECKED), b = a;
	xport_versioned *object;
	xport_versioned_peer *p;
	uint64_t data[WORDS];
	struct h_mem m;
	xport_mr *nic;

	h_open(h, NULL);
	m = svc_object_memory(h, &a);
	H_EQ(BODY + LEN, xport_versioned_size(&a));
	H_EQ(0, xport_versioned_size(NULL));
	b.form = 0;
	H_EQ(0, xport_versioned_size(&b));
	b = attr(XPORT_VERSIONED_COPIES);
	H_EQ(BODY + 16 * (LEN + 64), xport_versioned_size(&b));
	H_STATUS(XPORT_ERR_BOUNDS, xport_versioned_create(m.mr, 0, &b, &object));
	b.copies = 1;
	H_EQ(0, xport_versioned_size(&b));
	b = a;
	b.length = 0;
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(m.mr, 0, &b, &object));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(NULL, 0, &a, &object));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(m.mr, 8, &a, &object));
	H_STATUS(XPORT_ERR_BOUNDS, xport_versioned_create(m.mr, 1 << 20, &a, &object));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_versioned_create", "and 0 are there");
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_peer_create(h->x, NULL, NULL, 0, &a, &p));
	/* The owner's CPU and an adapter would not exclude each other. */
	H_OK(xport_mr_alloc(h->x, xport_versioned_size(&a), H_ALL | XPORT_ATOMIC_NIC, &nic));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_create(nic, 0, &a, &object));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_versioned_create", "without XPORT_ATOMIC_NIC");
	H_OK(xport_mr_dereg(nic));
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	H_STATUS(XPORT_ERR_INVALID, xport_versioned_write(object, NULL));
	fill(data, 3);
	H_OK(xport_versioned_write(object, data));
	H_TRUE(memcmp(m.p + BODY, data, LEN) == 0);
	xport_versioned_destroy(object);
	xport_versioned_destroy(NULL);
	xport_versioned_peer_destroy(NULL);
	H_OK(xport_mr_dereg(m.mr));
}

/* What was published stays as it is for the grace period.  It is an hour until its end is what is looked at, so that a busy
 * machine does not see it pass. */
static void grace(struct h *h)
{
	struct xport_versioned_attr a = attr(XPORT_VERSIONED_COPIES);
	uint64_t data[WORDS], stride = LEN + 64;
	bool ends = h->param;
	xport_versioned *object;
	struct h_mem m;

	h_open(h, NULL);
	a.copies = 3;
	a.grace_ms = ends ? 100 : 3600 * 1000;
	m = svc_object_memory(h, &a);
	H_OK(xport_versioned_create(m.mr, 0, &a, &object));
	for (uint64_t n = 1; n <= 2; n++) {
		fill(data, n);
		H_OK(xport_versioned_write(object, data));
	}
	fill(data, 3);
	h_run_for(h, 150);
	if (ends) {
		H_OK(xport_versioned_write(object, data)); /* over the first, zero one */
		H_TRUE(memcmp(m.p + BODY + SUM, data, LEN) == 0);
	} else {
		H_STATUS(XPORT_ERR_AGAIN, xport_versioned_write(object, data));
		SVC_ERROR(XPORT_ERR_AGAIN, "xport_versioned_write", "the oldest of 3 copies");
	}
	fill(data, 1);
	H_TRUE(memcmp(m.p + BODY + stride + SUM, data, LEN) == 0);
	xport_versioned_destroy(object);
	H_OK(xport_mr_dereg(m.mr));
}

static const struct h_param forms[] = {{"checked", XPORT_VERSIONED_CHECKED},
                                       {"summed", XPORT_VERSIONED_SUMMED},
                                       {"copies", XPORT_VERSIONED_COPIES},
                                       {NULL, 0}};
static const struct h_param long_forms[] = {{"checked", XPORT_VERSIONED_CHECKED | LONG},
                                            {"summed", XPORT_VERSIONED_SUMMED | LONG},
                                            {"copies", XPORT_VERSIONED_COPIES | LONG},
                                            {NULL, 0}};
static const struct h_param written[] = {
	{"checked", XPORT_VERSIONED_CHECKED}, {"summed", XPORT_VERSIONED_SUMMED}, {NULL, 0}};

static const struct h_param grace_parts[] = {{"holds", 0}, {"ends", 1}, {NULL, 0}};

const struct h_scenario svc_cases_versioned[] = {
	{"versioned_wrong", {wrong}, NULL, 0, 0},
	{"versioned_grace", {grace}, grace_parts, 0, 0},
	{"versioned_torn", {torn_owner, torn_reader}, forms, 0, 60},
	{"versioned_long", {torn_owner, torn_reader}, long_forms, H_SLOW, 100000},
	{"versioned_writers", {writers_owner, writers_peer, writers_peer, writers_reader}, written, 0, 60},
	{"versioned_robbed", {robbed_owner, robbed_writer}, written, 0, 60},
	{"versioned_full", {full_owner, full_peer}, written, 0, 60},
	{"versioned_death", {death_owner, death_writer, death_reader}, written, H_KILLS, 60},
	{0},
};
