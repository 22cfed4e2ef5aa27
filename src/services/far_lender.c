/* SPDX-License-Identifier: BSD-3-Clause */
/* far_lender.c - lenders: their state, how much is free, and which of them gets a piece. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/far.h"
#include "services/grow.h"
#include "services/last_error.h"

static const uint64_t MAGIC = UINT64_C(0x31726166542d5058); /* "XP-Tfar1" */

static uint64_t check_of(uint64_t capacity, uint64_t left)
{
	uint64_t h = (MAGIC ^ capacity) * UINT64_C(0x9e3779b97f4a7c15);

	return ((h ^ h >> 29) + left) * UINT64_C(0xbf58476d1ce4e5b9);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- as a lender ---- */

void svc_far_state_write(uint8_t *to, uint64_t capacity, uint64_t left)
{
	uint64_t word[4] = {htole64(MAGIC), htole64(capacity), htole64(left), htole64(check_of(capacity, left))};

	memcpy(to, word, sizeof(word));
}

int svc_far_state_make(struct xport_far *f)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	int r;

	if (f->a.lend == 0)
		return XPORT_OK;
	r = xport_mr_alloc(f->x, SVC_FAR_STATE, XPORT_REMOTE_READ, &f->mr);
	if (r == XPORT_OK)
		r = xport_mr_query(f->mr, &info);
	f->state = info.base;
	return r;
}

void svc_far_state_update(struct xport_far *f)
{
	struct xport_leases_info info = {.size = sizeof(info)};

	if (f->state == NULL || xport_leases_query(f->leases, &info) != XPORT_OK)
		return;
	svc_far_state_write(f->state, f->a.lend, info.lent_bytes < f->a.lend ? f->a.lend - info.lent_bytes : 0);
}

int xport_far_entry(xport_far *f, struct xport_directory_entry *entry)
{
	if (f == NULL || entry == NULL || f->mr == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_entry",
		                f == NULL || entry == NULL ? NULL : "set xport_far_attr.lend",
		                f == NULL || entry == NULL ? "an argument is NULL" : "this process lends nothing");
	return xport_directory_region(f->mr, 0, SVC_FAR_STATE, entry);
}

/* ---- looking ---- */

/* It has an event. */
static void lender_end(struct svc_far_lender *l, int status)
{
	struct xport_far *f = l->far;

	l->gone = true;
	l->status = status;
	f->ended++;
	if (l->due) {
		l->due = false;
		f->due--;
		l->looking = false;
	}
	if (!l->known && !l->joined_event) {
		l->joined_event = true; /* it never did */
		f->events++;
		return;
	}
	l->gone_event = true;
	f->events++;
}

static void look_end(struct svc_far_lender *l, int status)
{
	l->looking = false;
	if (l->gone)
		return;
	if (status == XPORT_ERR_STALE_KEY) { /* its state is gone: what the peer lends now, another entry tells */
		lender_end(l, status);
		return;
	}
	if (l->status != XPORT_ERR_PROTOCOL)
		l->status = status;
	if (!l->known && !l->joined_event) {
		l->joined_event = true;
		l->far->events++;
	}
	l->known = true;
}

/* XPORT_OK, AGAIN if it was torn, or PROTOCOL. */
static int state_read(struct svc_far_lender *l)
{
	uint64_t word[4];

	memcpy(word, l->state, sizeof(word));
	for (int i = 0; i < 4; i++)
		word[i] = le64toh(word[i]);
	if (word[0] != MAGIC)
		return XPORT_ERR_PROTOCOL;
	if (word[3] != check_of(word[1], word[2]))
		return XPORT_ERR_AGAIN;
	if (word[2] > word[1])
		return XPORT_ERR_PROTOCOL;
	l->capacity = word[1];
	l->free = word[2];
	return XPORT_OK;
}

static void look_due(struct svc_far_lender *l)
{
	l->far->due += !l->due;
	l->due = true;
}

static void looked(struct svc_far_own *own, int status)
{
	struct svc_far_lender *l = (struct svc_far_lender *)own;
	uint64_t trip = now_ns() - (uint64_t)l->since;

	if (status == XPORT_OK)
		status = state_read(l);
	if (status == XPORT_ERR_AGAIN && !l->gone && ++l->tries < SVC_FAR_TRIES) {
		look_due(l);
		return;
	}
	if (status == XPORT_OK && (l->trip_ns == 0 || trip < l->trip_ns))
		l->trip_ns = trip;
	look_end(l, status == XPORT_ERR_AGAIN ? XPORT_ERR_PROTOCOL : status);
}

static void look_post(struct svc_far_lender *l)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = &l->look};
	int r;

	l->since = (int64_t)now_ns();
	r = xport_get(l->ep, l->state, SVC_FAR_STATE, l->rkey, 0, &opt);
	if (r == XPORT_ERR_AGAIN)
		return;
	l->due = false;
	l->far->due--;
	if (r == XPORT_OK)
		svc_far_flies(l->far, &l->look);
	else
		look_end(l, r);
}

void svc_far_look_due(struct xport_far *f)
{
	for (struct svc_far_lender *l = f->lenders; l != NULL && f->due > 0; l = l->next)
		if (l->due)
			look_post(l);
}

static void look(struct svc_far_lender *l)
{
	if (l->looking || l->gone || l->status == XPORT_ERR_PROTOCOL)
		return;
	l->looking = true;
	l->tries = 0;
	look_due(l);
}

void svc_far_look_all(struct xport_far *f)
{
	for (struct svc_far_lender *l = f->lenders; l != NULL; l = l->next)
		look(l);
	svc_far_look_due(f);
}

bool svc_far_looking(const struct xport_far *f)
{
	for (const struct svc_far_lender *l = f->lenders; l != NULL; l = l->next)
		if (l->looking && !l->gone)
			return true;
	return false;
}

int xport_far_look(xport_far *f)
{
	if (f == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_look", NULL, "far is NULL");
	svc_far_look_all(f);
	return XPORT_OK;
}

/* ---- choosing ---- */

bool svc_far_usable(const struct svc_far_lender *l, uint64_t bytes)
{
	return l->known && !l->looking && !l->gone && l->status == XPORT_OK && l->free >= bytes;
}

static bool better(const struct svc_far_lender *l, const struct svc_far_lender *than, int policy)
{
	if (policy == XPORT_FAR_NEAREST && l->trip_ns != than->trip_ns)
		return l->trip_ns < than->trip_ns;
	if (policy == XPORT_FAR_SPREAD && l->pieces != than->pieces)
		return l->pieces < than->pieces;
	return l->free > than->free;
}

struct svc_far_lender *svc_far_choose(const struct xport_far *f, int policy, uint64_t bytes,
                                      const struct svc_far_lender * not )
{
	struct svc_far_lender *best = NULL;

	for (struct svc_far_lender *l = f->lenders; l != NULL; l = l->next)
		if (l != not &&svc_far_usable(l, bytes) && (best == NULL || better(l, best, policy)))
			best = l;
	return best;
}

/* ---- life ---- */

struct svc_far_lender *svc_far_lender_find(const struct xport_far *f, const xport_ep *ep)
{
	struct svc_far_lender *l = f->lenders;

	while (l != NULL && (l->ep != ep || l->gone))
		l = l->next;
	return l;
}

/* The key must be one to a lender's state, as far as it tells. */
static int state_unpack(struct svc_far_lender *l, const struct xport_directory_entry *entry)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	int r;

	if (entry->key_len > sizeof(entry->key))
		return svc_fail(XPORT_ERR_INVALID, "xport_far_add", NULL, "the entry has a key of %u bytes",
		                (unsigned)entry->key_len);
	r = xport_rkey_unpack(l->ep, entry->key, entry->key_len, &l->rkey);
	if (r == XPORT_OK)
		r = xport_rkey_query(l->rkey, &info);
	if (r != XPORT_OK)
		return svc_pass(l->far->x, r, "xport_far_add");
	if (info.length < SVC_FAR_STATE || (info.rights & XPORT_REMOTE_READ) == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_add", "get the entry from the lender's xport_far_entry",
		                "the entry is not that of a lender");
	return XPORT_OK;
}

int xport_far_add(xport_far *f, xport_ep *ep, const struct xport_directory_entry *entry, void *context)
{
	struct svc_far_lender *l;
	int r;

	if (f == NULL || ep == NULL || entry == NULL || entry->size != sizeof(*entry))
		return svc_fail(XPORT_ERR_INVALID, "xport_far_add", NULL,
		                "an argument is NULL, or xport_directory_entry.size is wrong");
	if (svc_far_lender_find(f, ep) != NULL)
		return svc_fail(XPORT_ERR_BUSY, "xport_far_add", NULL, "the peer is a lender already");
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_far_add", NULL, "out of memory");
	l->far = f;
	l->ep = ep;
	l->context = context;
	l->look.done = looked;
	r = state_unpack(l, entry);
	if (r != XPORT_OK) {
		xport_rkey_destroy(l->rkey);
		free(l);
		return r;
	}
	l->next = f->lenders;
	f->lenders = l;
	look(l);
	svc_far_look_due(f);
	return XPORT_OK;
}

void svc_far_lender_ended(struct xport_far *f, const xport_ep *ep, int status)
{
	struct svc_far_lender *l = svc_far_lender_find(f, ep);

	if (l != NULL)
		lender_end(l, status);
}

/* A lender that is gone stays while something of it is in flight, or named by a piece or a move. */
void svc_far_lenders_sweep(struct xport_far *f)
{
	for (struct svc_far_lender **at = &f->lenders; *at != NULL;) {
		struct svc_far_lender *l = *at;

		if (!l->gone || l->joined_event || l->gone_event || l->looking || l->pieces > 0 || l->moves > 0) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		f->ended--;
		xport_rkey_destroy(l->rkey);
		free(l);
	}
}

bool svc_far_lender_event(struct xport_far *f, struct xport_far_event *event)
{
	for (struct svc_far_lender *l = f->lenders; l != NULL; l = l->next) {
		if (!l->joined_event && !l->gone_event)
			continue;
		event->type = l->joined_event ? XPORT_FAR_JOINED : XPORT_FAR_GONE;
		event->status = l->status;
		event->ep = l->ep;
		event->context = l->context;
		if (l->joined_event)
			l->joined_event = false;
		else
			l->gone_event = false;
		f->events--;
		return true;
	}
	return false;
}

void svc_far_lenders_free(struct xport_far *f)
{
	while (f->lenders != NULL) {
		struct svc_far_lender *l = f->lenders;

		f->lenders = l->next;
		xport_rkey_destroy(l->rkey);
		free(l);
	}
}

int xport_far_lender(xport_far *f, const xport_ep *ep, struct xport_far_lender_info *info)
{
	struct xport_far_lender_info i = {.size = sizeof(i)};
	const struct svc_far_lender *l;

	if (f == NULL || ep == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_FAR_LENDER_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_far_lender", NULL,
		                "an argument is NULL, or xport_far_lender_info.size is not the size of the struct");
	l = svc_far_lender_find(f, ep);
	if (l == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_lender", "call xport_far_add",
		                "the peer is not a lender");
	i.status = l->status;
	i.capacity = l->capacity;
	i.free = l->free;
	i.bytes = l->bytes;
	i.round_trip_ns = l->trip_ns;
	i.context = l->context;
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}
