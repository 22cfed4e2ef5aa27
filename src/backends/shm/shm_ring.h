/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_ring.h - the ring by which frames go from one process to another.
 *
 * Each side of an endpoint makes one file. It alone writes to its file, and the peer maps it for reading: a process
 * cannot spoil what others write. A file holds
 *   - the ring of the frames that its owner sends
 *   - how much of the peer's ring its owner has read
 *   - whether its owner sleeps
 *
 * The ring consists of slots. A record is a head, the length of the frame, and the frame; it begins with a slot and
 * lies in one piece. The reader finds a record by its head: no counter has to be read first, and a short frame costs one
 * cache line. The writer clears the head after a record before it publishes the record, so the reader never sees a stale
 * head.
 *
 * The reader trusts nothing: it reads each head once, checks it, and copies the frame before anybody looks into it. Only
 * long data stays in the ring until it is copied to its destination.
 */
#ifndef SHM_RING_H
#define SHM_RING_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/copy.h"

enum {
	SHM_SLOT = 64,
	SHM_SLOTS = 4096, /* 256 KiB */
	SHM_HEAD = 8,
	SHM_AM_SLOTS = 261,
	SHM_AM_MAX = SHM_AM_SLOTS * SHM_SLOT - SHM_HEAD, /* 16 KiB of data and the headers of the core */
	SHM_LONG = 2048,                                 /* data of this length or more is delivered in the ring */
	SHM_TELL = SHM_SLOTS / 32,                       /* the reader reports after so many slots */
	SHM_LOST = SHM_AM_SLOTS + SHM_TELL + 2           /* skipped at the end, not reported yet, cleared ahead */
};

#define SHM_MAGIC UINT64_C(0x326d687374726f70) /* "portshm2" */
#define SHM_SKIP UINT32_MAX                    /* head: the next record is at the beginning of the ring */

struct shm_slot {
	alignas(SHM_SLOT) uint32_t head; /* 0: no record yet; SHM_SKIP, or the length of the frame */
	uint32_t hlen;                      /* the first piece of the frame */
	uint8_t frame[SHM_SLOT - SHM_HEAD]; /* it goes on in the next slots */
};

struct shm_file {
	alignas(SHM_SLOT) uint64_t magic;
	uint32_t slots;
	uint32_t mails; /* descriptors of regions that the owner has taken out of its socket, ever; modulo 2^32 */
	alignas(SHM_SLOT) uint32_t taken; /* slots of the peer's ring that the owner has read, ever; modulo 2^32 */
	alignas(SHM_SLOT) uint32_t sleep; /* odd: the owner sleeps, or will, until its bell rings */
	struct shm_slot ring[SHM_SLOTS];
};

/* The writer's side. */
struct shm_tx {
	struct shm_file *own;
	const struct shm_file *peer;
	uint32_t at;     /* the slot of the next record */
	uint32_t filled; /* slots written, ever; modulo 2^32 */
	uint32_t taken;  /* of these, read by the peer when we last looked */
	uint32_t clear;  /* a slot whose head is clear already; SHM_SLOTS: none */
};

/* The reader's side. */
struct shm_rx {
	const struct shm_slot *next; /* where the next record begins */
	const struct shm_file *peer;
	struct shm_file *own;
	uint32_t taken, told; /* slots read, ever; and what the peer knows */
};

/* A frame of the reader's: the first piece is copied, the second lies in the ring, and the peer can still change it. */
struct shm_frame {
	uint32_t slots, hlen, dlen;
	const uint8_t *data; /* NULL: all of it is copied */
};

enum { SHM_RING_EMPTY = 0, SHM_RING_BROKEN = -1 };

/* shm_ring_init - begin with two files that are zeroed, but for their first line. */
void shm_ring_init(struct shm_tx *tx, struct shm_rx *rx, struct shm_file *own, const struct shm_file *peer);

/* shm_tx_fits - find out whether so many slots are free. False, and *broken: the peer's counter is wrong. */
bool shm_tx_fits(struct shm_tx *tx, uint32_t slots, bool *broken);

/*
 * shm_rx_skip - follow a head that says SHM_SKIP.
 *
 * Returns its head, or SHM_RING_BROKEN.
 */
int shm_rx_skip(struct shm_rx *rx);

/* shm_rx_cut - leave the second piece of a long frame in the ring, if it is long. */
void shm_rx_cut(const struct shm_rx *rx, struct shm_frame *f);

static inline uint32_t shm_slots_of(size_t len)
{
	return (uint32_t)((len + SHM_HEAD + SHM_SLOT - 1) / SHM_SLOT);
}

#ifndef SHM_LOADED /* where the fuzz target changes the word */
#define SHM_LOADED(word) ((void)0)
#endif

/* Reads a word of the peer, which may change it at any time. */
static inline uint32_t shm_load(const uint32_t *word)
{
	uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	SHM_LOADED(word);
	return value;
}

static inline uint32_t shm_rx_head(const struct shm_slot *slot)
{
	return shm_load(&slot->head);
}

/*
 * shm_ring_push - write a frame of 1 to SHM_AM_MAX bytes, in two pieces.
 *
 * Returns false if it does not fit now. *broken: it never will.
 */
static inline bool shm_ring_push(struct shm_tx *tx, const void *hdr, size_t hlen, const void *data, size_t dlen,
                                 bool *broken)
{
	uint32_t n = shm_slots_of(hlen + dlen), at = tx->at, skip = at + n > SHM_SLOTS ? SHM_SLOTS - at : 0, next;
	struct shm_slot *slot = &tx->own->ring[skip > 0 ? 0 : at];
	uint8_t *to;

	/* Two more, whose heads are cleared: now, and by shm_ring_clear. */
	if (__builtin_expect(tx->filled - tx->taken + skip + n + 2 > SHM_SLOTS, 0) &&
	    !shm_tx_fits(tx, skip + n + 2, broken))
		return false;
	next = (skip > 0 ? 0 : at) + n;
	next = next == SHM_SLOTS ? 0 : next;
	if (next != tx->clear)
		__atomic_store_n(&tx->own->ring[next].head, 0, __ATOMIC_RELAXED);
	tx->clear = SHM_SLOTS;
	to = (uint8_t *)slot + SHM_HEAD;
	xpi_copy(to, hdr, hlen);
	if (dlen > 0)
		memcpy(to + hlen, data, dlen);
	__atomic_store_n(&slot->hlen, (uint32_t)hlen, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->head, (uint32_t)(hlen + dlen), __ATOMIC_RELEASE);
	if (skip > 0)
		__atomic_store_n(&tx->own->ring[at].head, SHM_SKIP, __ATOMIC_RELEASE);
	tx->at = next;
	tx->filled += skip + n;
	return true;
}

/*
 * shm_ring_clear - clear the head behind the next record, as if it were short.
 *
 * Call it after shm_ring_push, when nobody waits for what is stored next: the reader's processor may have the line, and
 * stores become visible in their order.
 */
static inline void shm_ring_clear(struct shm_tx *tx)
{
	tx->clear = tx->at + 1 == SHM_SLOTS ? 0 : tx->at + 1;
	__atomic_store_n(&tx->own->ring[tx->clear].head, 0, __ATOMIC_RELAXED);
}

/*
 * shm_ring_peek - copy the next frame to `to`, which has SHM_AM_MAX bytes, but for long data.
 *
 * Returns its length, SHM_RING_EMPTY or SHM_RING_BROKEN. If it returns a length, call shm_ring_pop when the frame is no
 * longer needed.
 */
static inline int shm_ring_peek(struct shm_rx *rx, void *to, struct shm_frame *f)
{
	uint32_t head = shm_rx_head(rx->next);

	if (head == 0)
		return SHM_RING_EMPTY;
	if (__builtin_expect(head == SHM_SKIP, 0)) {
		int r = shm_rx_skip(rx);

		if (r <= 0)
			return r;
		head = (uint32_t)r;
	}
	if (__builtin_expect(head > SHM_AM_MAX, 0))
		return SHM_RING_BROKEN;
	*f = (struct shm_frame){.slots = shm_slots_of(head), .hlen = head};
	if (__builtin_expect(f->slots > (size_t)(&rx->peer->ring[SHM_SLOTS] - rx->next), 0))
		return SHM_RING_BROKEN;
	if (head >= SHM_LONG)
		shm_rx_cut(rx, f);
	xpi_copy(to, rx->next->frame, f->hlen);
	return (int)head;
}

/* shm_ring_pop - give the slots of the frame back to the peer. */
static inline void shm_ring_pop(struct shm_rx *rx, const struct shm_frame *f)
{
	rx->next += f->slots;
	if (rx->next == &rx->peer->ring[SHM_SLOTS])
		rx->next = rx->peer->ring;
	rx->taken += f->slots;
	if (rx->taken - rx->told >= SHM_TELL) {
		rx->told = rx->taken;
		__atomic_store_n(&rx->own->taken, rx->taken, __ATOMIC_RELEASE);
	}
}

#endif
