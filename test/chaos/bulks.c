/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulks.c - transfers of memory in pieces (xport_bulk.h), again and again, whatever happens to their connection.
 *
 * The first side owns the memory. The second one pulls and pushes, and continues on a new connection with the same descriptors
 * when one has ended. It checks what always holds: each transfer is done once, with a permitted status; what was pulled is what
 * the owner has; once a transfer is released nothing accesses its local memory; nothing but the pieces is written to.
 */
#include "chaos/sweep.h"

#include "conform/harness.h"
#include "conform/shared.h"
#include "services/xport_services.h"

enum { PULLS = 3, PUSHES = 2, REGION = 64 << 10, DEADLINE_MS = 20000 };
enum { SEED = 71, BLANK = 0x3c };

/* Of both descriptors. */
static const struct {
	uint64_t offset, length, stride, count;
} runs[] = {{0, 1000, 1500, 20}, {40000, 20000, 0, 1}};
enum { NRUNS = 2, LENGTH = 40000 };

/* Ranges of a round. */
static const struct {
	uint64_t at, len;
} ranges[PULLS] = {{0, LENGTH}, {500, 3000}, {LENGTH - 1000, 1000}};

struct side {
	struct h *h;
	xport_ep *ep;
	bool ended;
	/* the owner */
	struct h_mem source, sink;
	uint8_t *copy; /* of the sink */
	/* the other one */
	xport_bulks *b;
	const struct h_key *from_key, *to_key;
	xport_bulk *from, *to;
	uint8_t *whole;       /* the bytes of the source */
	uint8_t *in[PULLS];   /* what is pulled */
	unsigned in_progress; /* transfers that are not released */
};

static bool may_be(int status)
{
	return status == XPORT_OK || status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED ||
	       status == XPORT_ERR_CLOSED || status == XPORT_ERR_STALE_KEY;
}

/* Calls back for each piece, in the order of the bytes. */
static void each_piece(void (*fn)(uint8_t *piece, uint64_t at, uint64_t len, void *arg), uint8_t *region, void *arg)
{
	uint64_t at = 0;

	for (int i = 0; i < NRUNS; i++)
		for (uint64_t k = 0; k < runs[i].count; k++, at += runs[i].length)
			fn(region + runs[i].offset + k * runs[i].stride, at, runs[i].length, arg);
}

static void copy_piece(uint8_t *piece, uint64_t at, uint64_t len, void *to)
{
	memcpy((uint8_t *)to + at, piece, len);
}

/* ---- the owner ---- */

static void tell_bulk(struct side *s, const struct h_mem *m, uint32_t rights, xport_bulk **bulk)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = rights};
	struct xport_bulk_run run[NRUNS];
	uint8_t bytes[1024];
	size_t len = sizeof(bytes);
	struct h *h = s->h;

	for (int i = 0; i < NRUNS; i++)
		run[i] = (struct xport_bulk_run){.mr = m->mr,
		                                 .offset = m->offset + runs[i].offset,
		                                 .length = runs[i].length,
		                                 .stride = runs[i].stride,
		                                 .count = runs[i].count};
	H_OK(xport_bulk_create(h->x, run, NRUNS, &a, bulk));
	H_OK(xport_bulk_pack(*bulk, bytes, &len));
	h_tell(h, 1, bytes, len);
}

/* Takes the pieces out of a copy of the sink, which is blank but for them; each byte is blank or the pushed one. */
static void check_piece(uint8_t *piece, uint64_t at, uint64_t len, void *arg)
{
	const struct side *s = arg;
	struct h *h = s->h;

	for (uint64_t i = 0; i < len; i++)
		H_CHECK(piece[i] == BLANK || piece[i] == s->whole[at + i], "byte %llu was pushed as %#x",
		        (unsigned long long)(at + i), piece[i]);
	memset(piece, BLANK, len);
}

static void check_sink(struct side *s)
{
	struct h *h = s->h;

	memcpy(s->copy, s->sink.p, REGION); /* the peer may have come back, and push */
	each_piece(check_piece, s->copy, s);
	H_BYTES(s->copy, REGION, BLANK);
	H_FILLED(s->source.p, REGION, SEED);
	H_GUARDS(s->sink);
	H_GUARDS(s->source);
}

static void look(struct side *s)
{
	struct xport_completion c;
	struct h *h = s->h;

	while (h->nqueue > 0) {
		c = h->queue[0];
		memmove(h->queue, h->queue + 1, (size_t)--h->nqueue * sizeof(c));
		if (c.type != XPORT_EVENT_CLOSED && c.type != XPORT_EVENT_LOST)
			continue;
		H_CHECK(may_be(c.status), "an endpoint ended as %s", xport_status_name(c.status));
		if (c.ep == s->ep)
			s->ended = true;
		else /* it ended before it was accepted */
			xport_ep_destroy(c.ep);
	}
}

static void serve_one(struct side *s)
{
	struct h *h = s->h;
	int64_t end = h_now_us() + (int64_t)h_ms(50000) * 1000;

	for (s->ended = false; !s->ended; look(s)) {
		H_CHECK(h_now_us() < end, "an endpoint does not end");
		h_breathe(h);
	}
	xport_ep_destroy(s->ep);
	s->ep = NULL;
	h_run_for(h, 10);
	check_sink(s);
}

static void owner(struct h *h)
{
	struct side *s = h_buf(h, sizeof(*s));
	xport_bulk *from, *to;

	s->h = h;
	h->kind = H_REG;
	h_open(h, NULL);
	s->source = h_mem_target(h, REGION, 0, H_ALL);
	s->sink = h_mem_target(h, REGION, 0, H_ALL);
	h_fill(s->source.p, REGION, SEED);
	memset(s->sink.p, BLANK, REGION);
	s->copy = h_buf(h, REGION);
	s->whole = h_buf(h, LENGTH);
	each_piece(copy_piece, s->source.p, s->whole);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	tell_bulk(s, &s->source, XPORT_REMOTE_READ, &from);
	tell_bulk(s, &s->sink, XPORT_REMOTE_WRITE, &to);
	while (!h_heard(h, 1) && atomic_load(&h->shared->role[1].state) != H_ENDED) {
		int r = xport_accept(h->listener, 20, &s->ep);

		H_CHECK(r == XPORT_OK || r == XPORT_ERR_TIMEOUT, "accepting: %s", xport_status_name(r));
		if (r == XPORT_OK)
			serve_one(s);
		look(s);
	}
	if (h->param == SWEEP_BOTH_LIVE)
		h_hear_u64(h, 1);
	xport_bulk_free(from);
	xport_bulk_free(to);
	h_mem_free(h, &s->source);
	h_mem_free(h, &s->sink);
}

/* ---- the one that transfers ---- */

static void other(void *arg, const struct xport_completion *c)
{
	struct side *s = arg;
	struct h *h = s->h;

	if (c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST) {
		H_TRUE(c->ep == s->ep && !s->ended);
		s->ended = true;
	}
}

/* Returns false if the endpoint has ended. */
static bool start(struct side *s, int i, bool push)
{
	struct xport_iov iov = {.addr = push ? s->whole + ranges[i].at : s->in[i], .len = ranges[i].len};
	struct xport_bulk_args a = {.size = sizeof(a),
	                            .offset = ranges[i].at,
	                            .local = &iov,
	                            .nlocal = 1,
	                            .deadline_ms = (uint32_t)h_ms(DEADLINE_MS),
	                            .context = push ? NULL : (void *)(uintptr_t)(i + 1)};
	struct h *h = s->h;
	int r = push ? xport_bulk_push(s->b, s->to, &a) : xport_bulk_pull(s->b, s->from, &a);

	H_CHECK(may_be(r), "a transfer was refused as %s", xport_status_name(r));
	s->in_progress += r == XPORT_OK;
	return r == XPORT_OK;
}

/* Takes all events. Returns whether all transfers succeeded. */
static bool finish(struct side *s)
{
	struct xport_bulk_event e = {.size = sizeof(e)};
	struct h *h = s->h;
	bool right = true;

	while (s->in_progress > 0) {
		uintptr_t i;

		H_OK(xport_bulks_wait(s->b, &e, other, s, h_ms(2 * DEADLINE_MS)));
		i = (uintptr_t)e.context;
		if (e.type == XPORT_BULK_DONE) {
			H_CHECK(may_be(e.status), "a transfer was done as %s: %s", xport_status_name(e.status), e.why);
			right = right && e.status == XPORT_OK;
			if (e.status == XPORT_OK && i > 0)
				H_CHECK(!memcmp(s->in[i - 1], s->whole + ranges[i - 1].at, ranges[i - 1].len),
				        "range %zu was pulled with other bytes", (size_t)(i - 1));
		}
		if (e.type == XPORT_BULK_DONE && !e.released)
			continue;
		if (i > 0)
			memset(s->in[i - 1], BLANK, ranges[i - 1].len); /* it is ours again */
		s->in_progress--;
	}
	return right;
}

static bool round_of_transfers(struct side *s)
{
	bool right = true;

	for (int i = 0; i < PULLS && right; i++)
		right = start(s, i, false) && (i >= PUSHES || start(s, i, true));
	return finish(s) && right;
}

/* Returns how many rounds were whole. */
static int life(struct side *s, const struct h_key *from, const struct h_key *to)
{
	struct h *h = s->h;
	int whole = 0, r;

	s->ended = false;
	s->from = s->to = NULL;
	r = xport_bulk_unpack(s->ep, from->bytes, from->len, &s->from);
	if (r == XPORT_OK)
		r = xport_bulk_unpack(s->ep, to->bytes, to->len, &s->to);
	H_CHECK(may_be(r), "a descriptor was refused as %s", xport_status_name(r));
	while (r == XPORT_OK && whole < SWEEP_ROUNDS && round_of_transfers(s))
		whole++;
	xport_ep_close(s->ep, h_ms(5000));
	xport_bulks_forget(s->b, s->ep);
	for (int i = 0; i < 10; i++) { /* nothing may come any more */
		struct xport_bulk_event e = {.size = sizeof(e)};

		H_STATUS(XPORT_ERR_TIMEOUT, xport_bulks_wait(s->b, &e, other, s, 1));
	}
	for (int i = 0; i < PULLS; i++)
		H_BYTES(s->in[i], ranges[i].len, BLANK);
	xport_bulk_free(s->from);
	xport_bulk_free(s->to);
	xport_ep_destroy(s->ep);
	s->ep = NULL;
	return whole;
}

static int life_of(void *arg, xport_ep *ep)
{
	struct side *s = arg;

	s->ep = ep;
	return life(s, s->from_key, s->to_key);
}

static void mover(struct h *h)
{
	struct side *s = h_buf(h, sizeof(*s));
	uint8_t *region = h_buf(h, REGION);
	struct h_key from, to;
	char address[80];

	s->h = h;
	if (h->param == SWEEP_MAY_DIE) {
		setenv("XPORT_CHAOS", sweep_mortal, 1);
		atomic_store(&h->shared->role[1].gone, H_MAY_GO);
	}
	h_open(h, NULL);
	H_OK(xport_bulks_create(h->x, NULL, &s->b));
	h_fill(region, REGION, SEED);
	s->whole = h_buf(h, LENGTH);
	each_piece(copy_piece, region, s->whole);
	for (int i = 0; i < PULLS; i++) {
		s->in[i] = h_buf(h, ranges[i].len);
		memset(s->in[i], BLANK, ranges[i].len);
	}
	h_hear(h, 0, address, sizeof(address));
	from.len = h_hear(h, 0, from.bytes, sizeof(from.bytes));
	to.len = h_hear(h, 0, to.bytes, sizeof(to.bytes));
	h->idle = true;
	s->from_key = &from;
	s->to_key = &to;
	sweep_connect(h, address, life_of, s);
	H_OK(xport_bulks_destroy(s->b, NULL, NULL, h_ms(10000)));
	h->idle = false;
	if (h->param == SWEEP_BOTH_LIVE) {
		h_tell_u64(h, 0, 1);
	} else {
		xport_close(h->x); /* a step of this, too, may be its last */
		h_exit(h, false);
	}
}

const struct h_scenario bulks_scenario = {.name = "bulks", .role = {owner, mover}, .timeout_s = 60};
