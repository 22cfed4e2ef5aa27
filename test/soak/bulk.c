/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk.c - the transfers of a round: a side pulls from the pattern of the other one, and pushes into its sink.
 *
 * The descriptors are made once. Each connection unpacks them anew. The sink has two halves, and rounds take turns. The
 * transfers go while the other side is still in its round, and end before this one says that it is through with it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "soak/side.h"

enum { HALF = 1 << 19, HALF_BYTES = 400000, TRANSFERS = 4, DEADLINE_MS = 60000, TURN_MS = 100 };

/* Of each half of the sink, and of the pattern. */
static const struct {
	uint64_t offset, length, stride, count;
} runs[] = {{16, 1000, 1500, 100}, {200000, 300000, 0, 1}};
enum { NRUNS = 2 };

struct transfer {
	bool push;
	uint64_t at, len, slice; /* slice: of the pattern, what is pushed */
};

static uint64_t next_number(uint64_t *state)
{
	uint64_t v = *state += UINT64_C(0x9e3779b97f4a7c15);

	v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
	return v ^ v >> 31;
}

/* What a side does in this round. Pushes have parts of the half of their own, so they do not overlap. */
static void foresee_transfers(const struct soak_side *s, int role, struct transfer *t)
{
	uint64_t state = s->o.run.seed ^ s->round << 16 ^ (uint64_t)role << 8, part = HALF_BYTES / (TRANSFERS / 2);

	for (int i = 0; i < TRANSFERS; i++) {
		uint64_t most, first;

		t[i].push = i % 2 == 1;
		most = t[i].push ? part : HALF_BYTES;
		first = t[i].push ? (uint64_t)(i / 2) * part : 0;
		t[i].len = 1 + next_number(&state) % most;
		t[i].len = 1 + (t[i].len - 1) % (UINT64_C(1) << (1 + next_number(&state) % 19));
		t[i].at = first + next_number(&state) % (most - t[i].len + 1);
		t[i].slice = next_number(&state) % (SOAK_PATTERN - t[i].len);
	}
}

/* Copies between the pieces and their bytes from `at` on. */
static void copy_pieces(uint8_t *region, uint64_t at, uint64_t len, uint8_t *bytes, bool out)
{
	uint64_t begin = 0;

	for (int i = 0; i < NRUNS; i++) {
		for (uint64_t k = 0; k < runs[i].count; k++, begin += runs[i].length) {
			uint64_t from = at > begin ? at : begin, to = begin + runs[i].length;
			uint8_t *piece = region + runs[i].offset + k * runs[i].stride;

			to = to < at + len ? to : at + len;
			if (from < to && out)
				memcpy(bytes + (from - at), piece + (from - begin), to - from);
			else if (from < to)
				memcpy(piece + (from - begin), bytes + (from - at), to - from);
		}
	}
}

/* ---- life ---- */

static uint8_t *blank_memory(struct soak_side *s, size_t len)
{
	uint8_t *p = aligned_alloc(4096, len);

	if (p == NULL)
		soak_fail(s, "no memory for %zu bytes", len);
	soak_blank(p, len);
	return p;
}

static xport_bulk *describe(struct soak_side *s, xport_mr *mr, unsigned halves, uint32_t rights)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = rights};
	struct xport_bulk_run run[2 * NRUNS];
	xport_bulk *bulk;

	for (unsigned i = 0; i < halves * NRUNS; i++)
		run[i] = (struct xport_bulk_run){.mr = mr,
		                                 .offset = i / NRUNS * HALF + runs[i % NRUNS].offset,
		                                 .length = runs[i % NRUNS].length,
		                                 .stride = runs[i % NRUNS].stride,
		                                 .count = runs[i % NRUNS].count};
	soak_must(s, xport_bulk_create(s->x, run, (size_t)halves * NRUNS, &a, &bulk), "xport_bulk_create");
	return bulk;
}

void soak_bulks_open(struct soak_side *s)
{
	struct soak_bulks *b = &s->bulks;

	b->sink = blank_memory(s, 2 * HALF);
	b->in = blank_memory(s, TRANSFERS * HALF);
	b->image = blank_memory(s, HALF);
	soak_must(s, xport_mr_reg(s->x, b->sink, 2 * HALF, XPORT_REMOTE_WRITE, &b->sink_mr), "xport_mr_reg");
	b->own[0] = describe(s, s->region[SOAK_SOURCE].mr, 1, XPORT_REMOTE_READ);
	b->own[1] = describe(s, b->sink_mr, 2, XPORT_REMOTE_WRITE);
	soak_must(s, xport_bulks_create(s->x, NULL, &b->b), "xport_bulks_create");
}

void soak_bulks_close(struct soak_side *s)
{
	struct soak_bulks *b = &s->bulks;

	soak_must(s, xport_bulks_destroy(b->b, NULL, NULL, DEADLINE_MS), "xport_bulks_destroy");
	for (int i = 0; i < SOAK_BULKS; i++)
		xport_bulk_free(b->own[i]);
	soak_must(s, xport_mr_dereg(b->sink_mr), "xport_mr_dereg");
	free(b->sink);
	free(b->in);
	free(b->image);
}

void soak_bulks_take(struct soak_side *s, int i, const uint8_t *bytes, size_t len)
{
	soak_must(s, xport_bulk_unpack(s->ep, bytes, len, &s->bulks.peer[i]), "xport_bulk_unpack");
}

void soak_bulks_part(struct soak_side *s)
{
	xport_bulks_forget(s->bulks.b, s->ep);
	for (int i = 0; i < SOAK_BULKS; i++) {
		xport_bulk_free(s->bulks.peer[i]);
		s->bulks.peer[i] = NULL;
	}
}

/* ---- a round ---- */

static void start(struct soak_side *s, const struct transfer *t, uint32_t i)
{
	uint8_t *here = t->push ? s->region[SOAK_SOURCE].p + t->slice : s->bulks.in + (size_t)i * HALF;
	struct xport_iov iov = {.addr = here, .len = t->len};
	struct xport_bulk_args a = {.size = sizeof(a),
	                            .offset = t->at + (t->push ? (s->round & 1) * HALF_BYTES : 0),
	                            .local = &iov,
	                            .nlocal = 1,
	                            .deadline_ms = DEADLINE_MS};

	if (t->push)
		soak_must(s, xport_bulk_push(s->bulks.b, s->bulks.peer[1], &a), "xport_bulk_push");
	else
		soak_must(s, xport_bulk_pull(s->bulks.b, s->bulks.peer[0], &a), "xport_bulk_pull");
}

static void check_pulled(struct soak_side *s, const struct transfer *t, uint32_t i)
{
	uint8_t *got = s->bulks.in + (size_t)i * HALF;

	/* Both sides have the same pattern. */
	copy_pieces(s->region[SOAK_SOURCE].p, t->at, t->len, s->bulks.image, true);
	if (memcmp(got, s->bulks.image, t->len) != 0)
		soak_fail(s, "MISMATCH: a pull of %" PRIu64 " bytes at %" PRIu64, t->len, t->at);
	soak_blank(s->bulks.image, HALF);
	soak_blank(got, t->len);
	for (size_t n = t->len; n < HALF; n++)
		if (got[n] != SOAK_BLANK)
			soak_fail(s, "MISMATCH: a pull of %" PRIu64 " bytes wrote byte %zu", t->len, n);
}

void soak_bulks_round(struct soak_side *s)
{
	struct xport_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct xport_bulk_event e = {.size = sizeof(e)};
	struct transfer t[TRANSFERS];

	foresee_transfers(s, s->role, t);
	soak_must(s, xport_stats(s->x, NULL, &before), "xport_stats");
	for (uint32_t i = 0; i < TRANSFERS; i++)
		start(s, &t[i], i);
	for (int done = 0; done < TRANSFERS;) {
		int r = xport_bulks_wait(s->bulks.b, &e, soak_take, s, TURN_MS);

		soak_post_late(s);
		if (r == XPORT_ERR_TIMEOUT)
			continue; /* its own deadline ends it */
		soak_must(s, r, "xport_bulks_wait");
		if (e.status != XPORT_OK)
			soak_fail(s, "a transfer ended as %s: %s", xport_status_name(e.status), e.why);
		done++;
	}
	soak_must(s, xport_stats(s->x, NULL, &after), "xport_stats");
	s->count.puts += after.puts - before.puts;
	s->count.gets += after.gets - before.gets;
	s->count.flushes += after.flushes - before.flushes;
	for (uint32_t i = 0; i < TRANSFERS; i++)
		if (!t[i].push)
			check_pulled(s, &t[i], i);
	s->ops += 2 * TRANSFERS; /* and the other side's */
}

void soak_bulks_verify(struct soak_side *s)
{
	uint8_t *half = s->bulks.sink + (s->round & 1) * HALF;
	struct transfer t[TRANSFERS];

	foresee_transfers(s, 1 - s->role, t);
	for (int i = 0; i < TRANSFERS; i++)
		if (t[i].push)
			copy_pieces(s->bulks.image, t[i].at, t[i].len, s->region[SOAK_SOURCE].p + t[i].slice, false);
	if (memcmp(half, s->bulks.image, HALF) != 0)
		soak_fail(s, "MISMATCH: the bytes of the other side's pushes");
	soak_blank(s->bulks.image, HALF);
	soak_blank(half, HALF);
}
