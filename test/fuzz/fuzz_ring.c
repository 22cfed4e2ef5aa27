/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_ring.c - the ring of the back end shm with a peer that writes anything, at any moment, into its own file.
 *
 * The files, and what a frame is copied to, are blocks of exactly their size: a sanitizer sees each byte beyond. A
 * second pair of rings has honest sides: what is pushed there comes out, in order.
 */
#include <stdint.h>

/* The hostile side changes what was just loaded: who loads it twice sees two values. */
static void loaded(const uint32_t *word);
#define SHM_LOADED(word) loaded(word)

#include "backends/shm/shm_ring.c"
#include "fuzz/fuzz.h"

enum { STEPS_MAX = 20000, KEPT = SHM_SLOTS };

struct side {
	struct shm_file *own;
	struct shm_tx tx;
	struct shm_rx rx;
};

struct world {
	struct side us, hostile;     /* hostile: its file alone is used */
	struct side writer, reader;  /* honest */
	uint32_t lengths[KEPT];      /* of the frames under way between them */
	uint64_t pushed, popped;
	uint8_t *frame;              /* SHM_AM_MAX bytes */
	uint8_t *source;             /* the same */
	bool broken;
};

static struct {
	struct shm_file *file; /* of the hostile side */
	uint32_t value;
	bool armed;
} flip;

static void loaded(const uint32_t *word)
{
	uintptr_t at = (uintptr_t)word - (uintptr_t)flip.file;

	if (flip.armed && at < sizeof(*flip.file))
		*(uint32_t *)((uint8_t *)flip.file + at) = flip.value;
}

static struct shm_file *file_new(void)
{
	struct shm_file *f = aligned_alloc(SHM_SLOT, sizeof(*f));

	FUZZ_CHECK(f != NULL);
	memset(f, 0, sizeof(*f));
	return f;
}

/* ---- against the hostile one ---- */

static void spoil(struct fuzz_in *in, struct shm_file *f)
{
	uint32_t slot = fuzz_u16(in) % SHM_SLOTS, value = (uint32_t)fuzz_le(in, 4);
	unsigned how = fuzz_u8(in);

	/* What is loaded next becomes another length. */
	flip.armed = (how & 0x40) != 0;
	flip.value = how & 0x20 ? SHM_SKIP : value >> 16;
	switch (how % 5) {
	case 0:
		f->ring[slot].head = value;
		break;
	case 1: /* likely lengths */
		f->ring[slot].head = value % (SHM_AM_MAX + 2);
		f->ring[slot].hlen = value >> 16;
		break;
	case 2:
		f->ring[slot].head = SHM_SKIP;
		break;
	case 3:
		f->taken = value;
		break;
	default: /* the same everywhere */
		for (uint32_t i = 0; i < SHM_SLOTS; i++)
			f->ring[i] = (struct shm_slot){.head = how & 0x80 ? SHM_SKIP : value % (SHM_AM_MAX + 2),
			                               .hlen = value >> 16};
	}
}

/* Takes the next frame as the core does: what lies in the ring is copied, and must lie there whole. */
static int fuzz_take(struct shm_rx *rx, uint8_t *frame)
{
	struct shm_frame f;
	int n = shm_ring_peek(rx, frame, &f);

	if (n <= 0)
		return n;
	FUZZ_CHECK(f.hlen > 0 && (uint64_t)f.hlen + f.dlen == (uint32_t)n);
	FUZZ_CHECK((f.data != NULL) == (f.dlen > 0) && (f.dlen == 0 || f.dlen >= SHM_LONG));
	if (f.data != NULL) {
		FUZZ_CHECK(f.data >= (const uint8_t *)rx->next &&
		           f.data + f.dlen <= (const uint8_t *)&rx->peer->ring[SHM_SLOTS]);
		memcpy(frame + f.hlen, f.data, f.dlen);
	}
	shm_ring_pop(rx, &f);
	return n;
}

static void read_hostile(struct world *w)
{
	const struct shm_slot *ring = w->hostile.own->ring;
	uint32_t before = w->us.rx.taken;
	int n;

	if (w->broken)
		return;
	n = fuzz_take(&w->us.rx, w->frame);
	FUZZ_CHECK(n <= SHM_AM_MAX);
	FUZZ_CHECK(w->us.rx.next >= ring && w->us.rx.next < ring + SHM_SLOTS);
	FUZZ_CHECK(w->us.rx.taken - before <= SHM_SLOTS + shm_slots_of(SHM_AM_MAX)); /* what is skipped, and one */
	FUZZ_CHECK(w->us.own->taken == w->us.rx.told);
	FUZZ_CHECK(n > 0 || n == SHM_RING_EMPTY || n == SHM_RING_BROKEN);
	w->broken = n == SHM_RING_BROKEN;
}

static void write_hostile(struct world *w, uint32_t len)
{
	bool broken = false, pushed = shm_ring_push(&w->us.tx, w->source, len, NULL, 0, &broken);

	FUZZ_CHECK(!(pushed && broken));
	if (pushed)
		shm_ring_clear(&w->us.tx);
	FUZZ_CHECK(w->us.tx.at < SHM_SLOTS);
	FUZZ_CHECK(w->us.tx.filled - w->us.tx.taken <= SHM_SLOTS);
}

/* ---- between honest ones ---- */

static void honest_push(struct world *w, uint32_t len, uint32_t cut)
{
	bool broken = false;

	if (w->pushed - w->popped == KEPT)
		return;
	memset(w->source, (int)(w->pushed * 7 + 1), len);
	if (!shm_ring_push(&w->writer.tx, w->source, cut, w->source + cut, len - cut, &broken)) {
		FUZZ_CHECK(!broken);
		FUZZ_CHECK(w->pushed > w->popped); /* an empty ring takes everything, but for what is not told yet */
		return;
	}
	if (len % 3 != 0) /* a writer may leave it out */
		shm_ring_clear(&w->writer.tx);
	w->lengths[w->pushed++ % KEPT] = len;
}

static void honest_pop(struct world *w)
{
	int n = fuzz_take(&w->reader.rx, w->frame);

	if (w->pushed == w->popped) {
		FUZZ_CHECK(n == SHM_RING_EMPTY);
		return;
	}
	FUZZ_CHECK(n > 0 && (uint32_t)n == w->lengths[w->popped % KEPT]);
	for (int i = 0; i < n; i++)
		FUZZ_CHECK(w->frame[i] == (uint8_t)(w->popped * 7 + 1));
	w->popped++;
}

int FUZZ_ENTRY(ring)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	struct world *w = calloc(1, sizeof(*w));

	FUZZ_CHECK(w != NULL);
	w->us.own = file_new();
	w->hostile.own = file_new();
	flip.file = w->hostile.own;
	flip.armed = false;
	w->writer.own = file_new();
	w->reader.own = file_new();
	w->frame = malloc(SHM_AM_MAX);
	w->source = calloc(1, SHM_AM_MAX);
	FUZZ_CHECK(w->frame != NULL && w->source != NULL);
	shm_ring_init(&w->us.tx, &w->us.rx, w->us.own, w->hostile.own);
	shm_ring_init(&w->writer.tx, &w->writer.rx, w->writer.own, w->reader.own);
	shm_ring_init(&w->reader.tx, &w->reader.rx, w->reader.own, w->writer.own);
	for (int i = 0; i < STEPS_MAX && in.left > 0; i++) {
		unsigned step = fuzz_u8(&in), times = 1 + (step >> 4);
		uint32_t len = step % 8 < 3 ? 0 : 1 + fuzz_u16(&in) % SHM_AM_MAX;

		for (; times > 0; times--) {
			if (step % 8 == 0)
				read_hostile(w);
			else if (step % 8 == 1)
				honest_pop(w);
			else if (step % 8 == 2)
				spoil(&in, w->hostile.own);
			else if (step % 8 < 5)
				write_hostile(w, len);
			else
				honest_push(w, len, step & 8 ? len : len / 2);
		}
	}
	while (w->popped < w->pushed)
		honest_pop(w);
	free(w->source);
	free(w->frame);
	free(w->us.own);
	free(w->hostile.own);
	free(w->writer.own);
	free(w->reader.own);
	free(w);
	return 0;
}
