/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h - objects that are found by an id. An id is never used again; 0 is not an id. */
#ifndef SVC_SLOTS_H
#define SVC_SLOTS_H

#include <stddef.h>
#include <stdint.h>

enum { SVC_SLOTS_MAX = 65535 };

struct svc_slot {
	uint64_t id; /* 0: the slot is free */
	void *thing;
};

struct svc_slots {
	struct svc_slot *slot;
	uint32_t *free; /* stack of the free slots */
	uint32_t nfree, size;
	uint64_t count; /* ids that were given out */
};

/* Makes `size` slots, at most SVC_SLOTS_MAX. Returns XPORT_OK or XPORT_ERR_NO_MEMORY. */
int svc_slots_init(struct svc_slots *s, uint32_t size);
void svc_slots_fini(struct svc_slots *s);

/* Returns an id for the thing, or 0 if all slots are taken. */
static inline uint64_t svc_slot_take(struct svc_slots *s, void *thing)
{
	uint32_t i;

	if (s->nfree == 0)
		return 0;
	i = s->free[--s->nfree];
	s->slot[i].id = ++s->count << 16 | i;
	s->slot[i].thing = thing;
	return s->slot[i].id;
}

/* Returns the thing with this id, or NULL. */
static inline void *svc_slot_find(const struct svc_slots *s, uint64_t id)
{
	size_t i = id & 0xffff;

	return id != 0 && i < s->size && s->slot[i].id == id ? s->slot[i].thing : NULL;
}

/* Frees the slot of an id that is in use. */
static inline void svc_slot_give(struct svc_slots *s, uint64_t id)
{
	uint32_t i = (uint32_t)(id & 0xffff);

	s->slot[i].id = 0;
	s->free[s->nfree++] = i;
}

#endif
