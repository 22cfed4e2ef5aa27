/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.h - doubly linked lists. An element has a link for each list that it can be in. */
#ifndef SVC_RING_H
#define SVC_RING_H

#include <stdbool.h>
#include <stddef.h>

struct svc_link {
	struct svc_link *next, *prev;
};

/* The struct that has the link `member`. */
#define SVC_OF(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Makes an empty list, or a link that is in no list. */
static inline void svc_ring_init(struct svc_link *l)
{
	l->next = l->prev = l;
}

static inline bool svc_ring_empty(const struct svc_link *l)
{
	return l->next == l;
}

static inline void svc_ring_push(struct svc_link *list, struct svc_link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}

/* Does nothing with a link that is in no list. */
static inline void svc_ring_remove(struct svc_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	svc_ring_init(l);
}

#endif
