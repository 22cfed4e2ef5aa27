/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_ring.c - the rare cases of the ring, see shm_ring.h. */
#include "shm_ring.h"

void shm_ring_init(struct shm_tx *tx, struct shm_rx *rx, struct shm_file *own, const struct shm_file *peer)
{
	*tx = (struct shm_tx){.own = own, .peer = peer, .clear = SHM_SLOTS};
	*rx = (struct shm_rx){.next = peer->ring, .peer = peer, .own = own};
}

bool shm_tx_fits(struct shm_tx *tx, uint32_t slots, bool *broken)
{
	uint32_t taken = shm_load(&tx->peer->taken);

	/* A reader is never ahead of the writer, and never goes back. */
	if (tx->filled - taken > tx->filled - tx->taken) {
		*broken = true;
		return false;
	}
	tx->taken = taken;
	return tx->filled - taken + slots <= SHM_SLOTS;
}

int shm_rx_skip(struct shm_rx *rx)
{
	const struct shm_slot *first = rx->peer->ring;
	uint32_t head = shm_rx_head(first);

	/* The record is written first, and is not the second one that skips. */
	if (rx->next == first || head == 0 || head > SHM_AM_MAX)
		return SHM_RING_BROKEN;
	rx->taken += (uint32_t)(&first[SHM_SLOTS] - rx->next);
	rx->next = first;
	return (int)head;
}

void shm_rx_cut(const struct shm_rx *rx, struct shm_frame *f)
{
	uint32_t hlen = shm_load(&rx->next->hlen);

	if (hlen == 0 || hlen >= f->hlen || f->hlen - hlen < SHM_LONG)
		return;
	f->dlen = f->hlen - hlen;
	f->hlen = hlen;
	f->data = (const uint8_t *)rx->next + SHM_HEAD + hlen; /* beyond the one slot that the type has */
}
