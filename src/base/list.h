/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h - an intrusive doubly-linked ring; a zeroed link is in no list. */
#ifndef XPI_BASE_LIST_H
#define XPI_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct xpi_list {
	struct xpi_list *next, *prev;
};

#define xpi_container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void xpi_list_init(struct xpi_list *head)
{
	head->next = head->prev = head;
}

static inline bool xpi_list_empty(const struct xpi_list *head)
{
	return head->next == head;
}

static inline bool xpi_list_linked(const struct xpi_list *link)
{
	return link->next != NULL;
}

static inline void xpi_list_push(struct xpi_list *head, struct xpi_list *link)
{
	link->next = head;
	link->prev = head->prev;
	head->prev->next = link;
	head->prev = link;
}

static inline void xpi_list_push_front(struct xpi_list *head, struct xpi_list *link)
{
	xpi_list_push(head->next, link);
}

static inline void xpi_list_del(struct xpi_list *link)
{
	link->next->prev = link->prev;
	link->prev->next = link->next;
	link->next = link->prev = NULL;
}

static inline struct xpi_list *xpi_list_pop(struct xpi_list *head)
{
	struct xpi_list *link = head->next;

	if (link == head)
		return NULL;
	xpi_list_del(link);
	return link;
}

#define xpi_list_for(pos, head) for (struct xpi_list *pos = (head)->next; pos != (head); pos = pos->next)
#define xpi_list_for_safe(pos, head) \
	for (struct xpi_list *pos = (head)->next, *pos##_next = pos->next; pos != (head); \
	     pos = pos##_next, pos##_next = pos->next)

#endif
