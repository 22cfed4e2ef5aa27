/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_prepared.c - prepared and strided transfers: compared with the copies of a model, and wrong arguments. */
#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { LEN = 1 << 16, ROUNDS = 60, RUNS = 4, MOST = 1 << 20 };

static const size_t ENTRY = sizeof(struct xport_prepared_run);

static void target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_fill(m.p, LEN, 1000);
	h_share(h, 1, &m);
	h_sync(h);
	h_mem_free(h, &m);
}

struct user {
	struct h_mem l, look;
	struct h_rkey r;
	uint8_t model[LEN];
	xport_prepared *set;
	uint64_t random;
};

static struct user *begin(struct h *h, const struct xport_attr *attr)
{
	struct user *u = h_buf(h, sizeof(*u));

	h_mesh(h, attr);
	u->l = h_mem_local(h, LEN, 0);
	u->look = h_mem_local(h, LEN, 0);
	u->r = h_import(h, 0);
	u->random = 12345;
	H_OK(xport_prepared_create(h->x, h->ep[0], u->r.k, u->l.p, LEN, u->l.mr, &u->set));
	return u;
}

static void end(struct h *h, struct user *u)
{
	xport_prepared_destroy(u->set);
	h_sync(h);
	H_EQ(0, h->nqueue);
}

static uint64_t below(struct user *u, uint64_t n)
{
	u->random = u->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (u->random >> 33) % n;
}

/* A run without overlap in itself, inside the window of the memories that is its own. */
static struct xport_prepared_run some_run(struct user *u, unsigned i)
{
	uint64_t window = LEN / RUNS, outer = 1 + below(u, 4), inner = 1 + below(u, 40), group = window / outer;
	uint64_t step = group / inner, dense = below(u, 3);
	struct xport_prepared_run run = {.length = 1 + below(u, step)};

	run.level[0] =
		(struct xport_prepared_level){inner, dense == 0 ? run.length : step, dense == 1 ? run.length : step};
	run.level[1] = (struct xport_prepared_level){outer, group, group};
	if (below(u, 8) == 0)
		run.level[1].count = 0; /* as 1 */
	run.local = i * window;
	run.remote = u->r.offset + (RUNS - 1 - i) * window;
	return run;
}

/* The same by copies, between the local memory and a model of the remote one. */
static uint64_t model_copy(struct user *u, const struct xport_prepared_run *run, bool put)
{
	uint64_t bytes = 0;

	for (uint64_t o = 0; o == 0 || o < run->level[1].count; o++)
		for (uint64_t i = 0; i == 0 || i < run->level[0].count; i++) {
			uint8_t *l =
				u->l.p + run->local + o * run->level[1].local_stride + i * run->level[0].local_stride;
			uint8_t *r = u->model + (run->remote - u->r.offset) + o * run->level[1].remote_stride +
			             i * run->level[0].remote_stride;

			memcpy(put ? r : l, put ? l : r, run->length);
			bytes += run->length;
		}
	return bytes;
}

/* Posts, with polls in between while the queue is full, and waits for the one completion. */
static void transfer(struct h *h, struct user *u, size_t index, bool put, bool quiet)
{
	struct xport_opt o = {.size = sizeof(o), .context = u, .flags = quiet ? XPORT_QUIET : 0};
	struct xport_prepared_info info = {.size = sizeof(info)};
	struct xport_completion c;
	size_t posted = 0;
	int r;

	H_OK(xport_prepared_query(u->set, index, &info));
	while ((r = put ? xport_prepared_put(u->set, index, &o, &posted)
	                : xport_prepared_get(u->set, index, &o, &posted)) == XPORT_ERR_AGAIN) {
		SVC_ERROR(XPORT_ERR_AGAIN, put ? "xport_prepared_put" : "xport_prepared_get", "full");
		h_breathe(h);
	}
	H_OK(r);
	H_EQ(0, posted); /* ready for the next post */
	if (quiet) {
		H_DONE(h_flush(h, h->ep[0]));
		return;
	}
	c = h_event_at(h, __FILE__, __LINE__, info.lists > 1 ? XPORT_OP_FLUSH : put ? XPORT_OP_PUT : XPORT_OP_GET);
	H_OK(c.status);
	H_TRUE(c.context == u);
	if (info.lists == 1)
		H_EQ(info.bytes, c.length);
}

static void check_round(struct h *h, struct user *u, unsigned round)
{
	struct xport_prepared_info info = {.size = sizeof(info)};
	uint8_t *local = h_buf(h, LEN);
	struct xport_prepared_run runs[RUNS];
	size_t index, n = 1 + below(u, RUNS);
	uint64_t bytes = 0;
	bool put = round % 2 == 0;

	for (unsigned i = 0; i < n; i++)
		runs[i] = some_run(u, i);
	H_OK(xport_prepared_add(u->set, runs, ENTRY, n, &index));
	H_EQ(round, index);
	for (int again = 0; again < 2; again++) {
		bytes = 0;
		h_fill(u->l.p, LEN, 2 * round + (unsigned)again);
		memcpy(local, u->l.p, LEN);
		for (size_t i = 0; i < n; i++)
			bytes += model_copy(u, &runs[i], put);
		if (!put) { /* the model wrote what the get has to */
			memcpy(u->look.p, u->l.p, LEN);
			memcpy(u->l.p, local, LEN);
		}
		transfer(h, u, index, put, round % 5 == 4);
		if (!put)
			H_TRUE(memcmp(u->look.p, u->l.p, LEN) == 0);
	}
	H_OK(xport_prepared_query(u->set, index, &info));
	H_EQ(bytes, info.bytes);
	H_DONE(h_get(h, h->ep[0], H_AT(u->look, 0, LEN), &u->r, 0));
	H_CHECK(memcmp(u->look.p, u->model, LEN) == 0, "round %u: the remote memory is not what copies leave", round);
	h_buf_free(h, local);
}

static void same_as_copies(struct h *h)
{
	struct user *u = begin(h, NULL);

	h_fill(u->model, LEN, 1000);
	for (unsigned i = 0; i < ROUNDS; i++)
		check_round(h, u, i);
	end(h, u);
}

/* Two lists of a queue of one: each call gets one of them in. */
static void short_queue(struct h *h)
{
	struct xport_attr attr = h_attr(h);
	struct xport_prepared_run run = {.length = 8, .level = {{1000, 16, 16}, {0}}};
	struct user *u;
	size_t index;

	attr.queue_depth = 1;
	u = begin(h, &attr);
	run.remote = u->r.offset;
	h_fill(u->model, LEN, 1000);
	h_fill(u->l.p, LEN, 5);
	H_OK(xport_prepared_add(u->set, &run, ENTRY, 1, &index));
	model_copy(u, &run, true);
	transfer(h, u, index, true, false);
	H_DONE(h_get(h, h->ep[0], H_AT(u->look, 0, LEN), &u->r, 0));
	H_TRUE(memcmp(u->look.p, u->model, LEN) == 0);
	end(h, u);
}

static void merges(struct h *h)
{
	const struct {
		struct xport_prepared_run run;
		uint64_t local, remote, lists;
	} all[] = {
		{{.length = 64, .level = {{16, 64, 64}, {16, 1024, 1024}}}, 1, 1, 1},
		{{.length = 64, .level = {{16, 64, 128}, {2, 1024, 2048}}}, 1, 32, 1},
		{{.length = 64, .level = {{64, 128, 128}, {0}}}, 64, 64, 1},
		{{.length = 64, .level = {{65, 128, 128}, {0}}}, 65, 65, 2},
		{{.length = 8, .level = {{200, 8, 16}, {0}}}, 4, 200, 4},
		{{.length = 1, .level = {{LEN / 2, 1, 1}, {0}}}, 1, 1, 1},
		{{.length = 4, .level = {{0}, {3, 4, 8}}}, 1, 3, 1},
		{{.length = 1, .level = {{MOST, 0, 0}, {0}}}, MOST, MOST, MOST / 64},
	};
	struct user *u = begin(h, NULL);

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct xport_prepared_info info = {.size = sizeof(info)};
		struct xport_prepared_run run = all[i].run;
		size_t index;

		run.remote = u->r.offset;
		H_OK(xport_prepared_add(u->set, &run, ENTRY, 1, &index));
		H_OK(xport_prepared_query(u->set, index, &info));
		H_EQ(all[i].local, info.local_pieces);
		H_EQ(all[i].remote, info.remote_pieces);
		H_EQ(all[i].lists, info.lists);
	}
	end(h, u);
}

static void add_refused(struct h *h, struct user *u, int status, const char *words, struct xport_prepared_run run)
{
	size_t index = 77;

	run.remote += u->r.offset;
	H_STATUS(status, xport_prepared_add(u->set, &run, ENTRY, 1, &index));
	SVC_ERROR(status, "xport_prepared_add", words);
	H_EQ(77, index);
}

static void adds_refused(struct h *h, struct user *u)
{
	const uint64_t big = UINT64_C(1) << 63;
	struct xport_prepared_run good = {.length = 1, .remote = u->r.offset};
	struct {
		struct xport_prepared_run run;
		uint64_t more;
	} longer = {.run = good, .more = 1};
	size_t index;

	add_refused(h, u, XPORT_ERR_INVALID, "length", (struct xport_prepared_run){0});
	add_refused(h, u, XPORT_ERR_BOUNDS, "local", (struct xport_prepared_run){.length = LEN + 1});
	add_refused(h, u, XPORT_ERR_BOUNDS, "local", (struct xport_prepared_run){.length = 1, .local = LEN});
	add_refused(h, u, XPORT_ERR_BOUNDS, "local",
	            (struct xport_prepared_run){.length = 1, .level = {{2, LEN, 0}, {0}}});
	add_refused(h, u, XPORT_ERR_BOUNDS, "local",
	            (struct xport_prepared_run){.length = 1, .level = {{3, big, 0}, {0}}});
	add_refused(h, u, XPORT_ERR_BOUNDS, "local", (struct xport_prepared_run){.length = 9, .local = UINT64_MAX - 3});
	add_refused(h, u, XPORT_ERR_BOUNDS, "remote",
	            (struct xport_prepared_run){.length = 1, .level = {{0}, {2, 1, u->r.length}}});
	add_refused(h, u, XPORT_ERR_BOUNDS, "remote",
	            (struct xport_prepared_run){.length = 1, .level = {{3, 1, 0}, {3, 1, big}}});
	add_refused(h, u, XPORT_ERR_INVALID, "pieces",
	            (struct xport_prepared_run){.length = 1, .level = {{big, 0, 0}, {0}}});
	add_refused(h, u, XPORT_ERR_INVALID, "pieces",
	            (struct xport_prepared_run){.length = 1, .level = {{MOST + 1, 0, 0}, {0}}});
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_add(NULL, &good, ENTRY, 1, &index));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_add(u->set, NULL, ENTRY, 1, &index));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_add(u->set, &good, ENTRY - 1, 1, &index));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_add(u->set, &good, ENTRY, 0, &index));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_add(u->set, &good, ENTRY, 1, NULL));
	H_STATUS(XPORT_ERR_NOT_SUPPORTED, xport_prepared_add(u->set, &longer.run, sizeof(longer), 1, &index));
	longer.more = 0;
	H_OK(xport_prepared_add(u->set, &longer.run, sizeof(longer), 1, &index));
	H_EQ(0, index);
}

static void refused(struct h *h)
{
	struct xport_prepared_info info = {.size = 1};
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_EAGER};
	struct user *u = begin(h, NULL);
	struct xport_prepared_run many = {.length = 1, .remote = u->r.offset, .level = {{100, 2, 2}, {0}}};
	xport_prepared *none = NULL;
	size_t index, posted = 1;

	adds_refused(h, u);
	H_OK(xport_prepared_add(u->set, &many, ENTRY, 1, &index));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_create(NULL, h->ep[0], u->r.k, u->l.p, LEN, NULL, &none));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_create(h->x, NULL, u->r.k, u->l.p, LEN, NULL, &none));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_create(h->x, h->ep[0], NULL, u->l.p, LEN, NULL, &none));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_create(h->x, h->ep[0], u->r.k, NULL, LEN, NULL, &none));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_create(h->x, h->ep[0], u->r.k, u->l.p, 0, NULL, &none));
	if (u->l.mr != NULL) {
		H_STATUS(XPORT_ERR_INVALID,
		         xport_prepared_create(h->x, h->ep[0], u->r.k, u->l.p, LEN + 8192, u->l.mr, &none));
		SVC_ERROR(XPORT_ERR_INVALID, "xport_prepared_create", "not inside mr");
	}
	H_TRUE(none == NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_query(u->set, 0, &info));
	info.size = sizeof(info);
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_query(u->set, 2, &info));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_put(u->set, 2, NULL, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_put(NULL, 0, NULL, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_put(u->set, 0, NULL, &posted));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_put(u->set, index, NULL, NULL));
	posted = 3;
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_get(u->set, index, NULL, &posted));
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_put(u->set, 0, &o, NULL));
	o.flags = XPORT_LOCAL;
	H_STATUS(XPORT_ERR_INVALID, xport_prepared_get(u->set, 0, &o, NULL));
	xport_prepared_destroy(NULL);
	end(h, u);
}

/* The key does not allow it, or its region is gone: libxport's own refusal, with its text. */
static void stale_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, XPORT_REMOTE_READ);
	h_share(h, 1, &m);
	h_sync(h);
	h_mem_free(h, &m);
	h_sync(h);
}

static void stale(struct h *h)
{
	struct user *u = begin(h, NULL);
	struct xport_prepared_run run = {.length = 8, .remote = u->r.offset, .level = {{100, 16, 16}, {0}}};
	struct xport_completion c;
	size_t index, posted = 0;
	int r;

	H_OK(xport_prepared_add(u->set, &run, ENTRY, 1, &index));
	H_STATUS(XPORT_ERR_ACCESS, xport_prepared_put(u->set, index, NULL, &posted));
	SVC_ERROR(XPORT_ERR_ACCESS, "xport_prepared_put", "XPORT_REMOTE_WRITE");
	H_EQ(0, posted);
	h_sync(h);
	h_run_for(h, 20);
	r = xport_prepared_get(u->set, index, NULL, &posted);
	if (r == XPORT_OK) {
		c = H_EVENT(XPORT_OP_FLUSH);
		r = c.status;
	}
	H_STATUS(XPORT_ERR_STALE_KEY, r);
	end(h, u);
}

const struct h_scenario svc_cases_prepared[] = {
	{.name = "prepared_same_as_copies", .role = {target, same_as_copies}},
	{.name = "prepared_in_a_short_queue", .role = {target, short_queue}},
	{.name = "prepared_merges_neighbours", .role = {target, merges}},
	{.name = "prepared_refused", .role = {target, refused}},
	{.name = "prepared_to_a_region_that_is_gone", .role = {stale_target, stale}},
	{.name = NULL},
};
