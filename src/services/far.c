/* SPDX-License-Identifier: BSD-3-Clause */
/* far.c - far memory: the loop, what the leases report, events, life. */
#include "services/far.h"

#include <stdlib.h>

#include "services/clock.h"
#include "services/grow.h"
#include "services/last_error.h"

static const uint64_t TAG = UINT64_C(0x78706f7266617200);
enum { PIECE = 4 << 20, PIECES_OF_PEER = 65536, SLICE_MS = 20 };

/* ---- operations of the library's own ---- */

void svc_far_flies(struct xport_far *f, struct svc_far_own *own)
{
	own->next = f->flying;
	f->flying = own;
}

/* Whether it is a completion of the library's own operations. */
static bool own_done(struct xport_far *f, const struct xport_completion *c)
{
	for (struct svc_far_own **at = &f->flying; *at != NULL; at = &(*at)->next) {
		struct svc_far_own *own = *at;

		if (own != c->context)
			continue;
		*at = own->next;
		own->done(own, c->status);
		return true;
	}
	return false;
}

/* ---- what the leases report ---- */

static void lease_event(struct xport_far *f, const struct xport_lease_event *e)
{
	struct xport_lease_info info = {.size = sizeof(info)};
	struct svc_far_piece *p = e->context;

	if (xport_lease_query(e->lease, &info) == XPORT_OK && info.lender) {
		if (e->type == XPORT_LEASE_ENDED)
			(void)xport_lease_free(e->lease);
		svc_far_state_update(f);
		return;
	}
	if (e->type != XPORT_LEASE_ENDED) {
		svc_far_granted(p);
		return;
	}
	p->lease = NULL;
	p->ended = e->lease;
	svc_far_piece_ended(p, e->status);
}

/* Returns whether there was an event. */
static bool take_leases(struct xport_far *f)
{
	struct xport_lease_event e = {.size = sizeof(e)};
	bool any = false;

	for (; xport_leases_next(f->leases, &e) == 1; any = true)
		lease_event(f, &e);
	return any;
}

/* ---- the loop ---- */

static void go_on(struct xport_far *f)
{
	int64_t now;

	(void)take_leases(f);
	if (f->due > 0)
		svc_far_look_due(f);
	if (f->busy == 0)
		return;
	now = svc_now_ms();
	do {
		for (struct xport_far_block *b = f->blocks; b != NULL; b = b->next)
			if (b->op != SVC_FAR_NONE)
				svc_far_block_move(b, now);
	} while (take_leases(f)); /* asking may find that an endpoint has ended */
}

int xport_far_step(xport_far *f, const struct xport_completion *c)
{
	bool own;

	if (f == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_step", NULL, "far is NULL");
	if (c != NULL && (c->type == XPORT_OP_GET || c->type == XPORT_OP_PUT)) {
		own = f->flying != NULL && own_done(f, c);
		if (own)
			go_on(f);
		return own;
	}
	own = xport_leases_step(f->leases, c) == 1;
	if (c != NULL && (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED)) {
		(void)take_leases(f);
		svc_far_lender_ended(f, c->ep, c->status);
	}
	go_on(f);
	return own;
}

int xport_far_timeout(xport_far *f)
{
	int ms = xport_leases_timeout(f->leases);
	int64_t now;

	if (f->due > 0 && (ms < 0 || ms > 1))
		ms = 1; /* a full queue refused it */
	if (f->busy == 0)
		return ms;
	now = svc_now_ms();
	for (const struct xport_far_block *b = f->blocks; b != NULL; b = b->next) {
		int64_t left = b->op == SVC_FAR_NONE         ? INT32_MAX
		               : b->phase <= SVC_FAR_LOOKING ? b->until - now
		               : b->op == SVC_FAR_MOVE       ? (b->copy.flying || b->asked > 0 ? INT32_MAX : 1)
		                                             : INT32_MAX;

		if (left < INT32_MAX && (ms < 0 || left < ms))
			ms = left < 0 ? 0 : (int)left;
	}
	return ms;
}

void xport_far_forget(xport_far *f, xport_ep *ep)
{
	if (f == NULL || ep == NULL)
		return;
	xport_leases_forget(f->leases, ep);
	(void)take_leases(f);
	svc_far_lender_ended(f, ep, XPORT_ERR_CLOSED);
	go_on(f);
}

/* ---- events ---- */

int xport_far_next(xport_far *f, struct xport_far_event *event)
{
	struct xport_far_event e = {.size = sizeof(e)};
	bool found = false;

	if (f == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_FAR_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_far_next", NULL,
		                "an argument is NULL, or xport_far_event.size is not the size of the struct");
	if (f->ended > 0)
		svc_far_lenders_sweep(f);
	if (f->events == 0)
		return 0;
	for (struct xport_far_block *b = f->blocks; b != NULL && !found; b = b->next)
		found = svc_far_block_event(b, &e);
	if (!found)
		found = svc_far_lender_event(f, &e);
	if (found)
		svc_grow_out(event, &e, sizeof(e));
	return found;
}

/* Milliseconds until `until`, at least 0; -1: no limit. */
static int time_left(int64_t until)
{
	int64_t left = until - svc_now_ms();

	return until < 0 ? -1 : left < 0 ? 0 : (int)left;
}

/* The longest sleep: another thread may do what is waited for. */
static int slice(int64_t until)
{
	int left = time_left(until);

	return left < 0 || left > SLICE_MS ? SLICE_MS : left;
}

/* One poll, or a sleep until `until` at most; below 0: no limit. */
static int far_poll(struct xport_far *f, int64_t until, xport_completion_fn other, void *arg)
{
	struct xport_completion c;
	int ms = xport_far_timeout(f), left = slice(until), n;

	if (ms >= 0 && ms < left)
		left = ms;
	n = xport_wait(f->x, &c, 1, left);
	if (n < 0)
		return n;
	if (xport_far_step(f, n > 0 ? &c : NULL) == 0 && n > 0 && other != NULL)
		other(arg, &c);
	return XPORT_OK;
}

int xport_far_wait(xport_far *f, struct xport_far_event *event, xport_completion_fn other, void *arg, int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	bool late = false;
	int r = svc_time_valid(timeout_ms, "xport_far_wait");

	if (r != XPORT_OK)
		return r;
	while ((r = xport_far_next(f, event)) == 0) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, "xport_far_wait", NULL, "the time limit of %d ms expired",
			                timeout_ms);
		r = far_poll(f, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(f->x, r, "xport_far_wait");
		late = until >= 0 && svc_now_ms() >= until;
	}
	return r < 0 ? r : XPORT_OK;
}

/* ---- life ---- */

static int far_open(struct xport_far *f)
{
	struct xport_leases_attr a = {.size = sizeof(a),
	                              .tag = f->a.tag,
	                              .quota = f->a.lend,
	                              .peer_quota = f->a.lend_peer,
	                              .max_leases = f->a.max_pieces,
	                              .pool = f->a.pool};
	int r = svc_far_state_make(f);

	/* The leases come last: they cannot be undone without a poll, which takes completions of the application. */
	if (r == XPORT_OK)
		r = xport_leases_create(f->x, &a, &f->leases);
	else
		r = svc_pass(f->x, r, "xport_far_create");
	if (r == XPORT_OK) {
		svc_far_state_update(f);
		return XPORT_OK;
	}
	if (f->mr != NULL)
		(void)xport_mr_dereg(f->mr);
	return r;
}

int xport_far_create(xport *x, const struct xport_far_attr *attr, xport_far **far)
{
	struct xport_far_attr a;
	struct xport_far *f;
	int r = svc_grow_in(&a, sizeof(a), SVC_FIRST_FAR_ATTR, attr, "xport_far_create", "xport_far_attr");

	if (r != XPORT_OK)
		return r;
	a.tag = a.tag == 0 ? TAG : a.tag;
	a.piece = a.piece == 0 ? PIECE : a.piece;
	a.max_pieces = a.max_pieces == 0 ? PIECES_OF_PEER : a.max_pieces;
	if (x == NULL || far == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_create", NULL, "an argument is NULL");
	if (a.piece < XPORT_FAR_PIECE_MIN || (a.piece & (a.piece - 1)) != 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_create", NULL,
		                "xport_far_attr.piece is not a power of 2 of at least %d", XPORT_FAR_PIECE_MIN);
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_far_create", NULL, "out of memory");
	f->x = x;
	f->a = a;
	r = far_open(f);
	if (r != XPORT_OK) {
		free(f);
		return r;
	}
	*far = f;
	return XPORT_OK;
}

/* Those of the library's own hold memory of it until they have ended. */
static int far_land(struct xport_far *f, xport_completion_fn other, void *arg, int64_t until)
{
	bool late = false;
	struct xport_completion c;
	int n;

	while (f->flying != NULL) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, "xport_far_destroy",
			                "close the endpoints that do not answer", "a get or put is still in flight");
		n = xport_wait(f->x, &c, 1, slice(until));
		if (n < 0)
			return svc_pass(f->x, n, "xport_far_destroy");
		if (n > 0 && !own_done(f, &c) && xport_leases_step(f->leases, &c) == 0 && other != NULL)
			other(arg, &c);
		late = until >= 0 && svc_now_ms() >= until;
	}
	return XPORT_OK;
}

int xport_far_destroy(xport_far *f, xport_completion_fn other, void *arg, int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	int r;

	if (f == NULL)
		return XPORT_OK;
	r = svc_time_valid(timeout_ms, "xport_far_destroy");
	if (r != XPORT_OK)
		return r;
	f->destroying = true;
	r = far_land(f, other, arg, until);
	if (r == XPORT_OK)
		r = xport_leases_destroy(f->leases, other, arg, time_left(until));
	if (r != XPORT_OK)
		return r;
	if (f->mr != NULL)
		(void)xport_mr_dereg(f->mr);
	while (f->blocks != NULL)
		svc_far_block_release(f->blocks);
	while (f->pieces != NULL) {
		f->pieces->ended = NULL; /* xport_leases_destroy has freed it */
		svc_far_piece_free(f->pieces);
	}
	svc_far_lenders_free(f);
	free(f);
	return XPORT_OK;
}

/* ---- what is known ---- */

/* Bytes that were lost and not replaced. */
static uint64_t block_lost(const struct xport_far_block *b)
{
	size_t n = (size_t)(b->length >> b->shift);
	uint64_t lost = 0;

	for (size_t i = 0; i < n; i++)
		lost += b->slot[i].rkey == NULL;
	return lost << b->shift;
}

int xport_far_query(xport_far *f, struct xport_far_info *info)
{
	struct xport_leases_info leases = {.size = sizeof(leases)};
	struct xport_far_info i = {.size = sizeof(i)};

	if (f == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_FAR_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_far_query", NULL,
		                "an argument is NULL, or xport_far_info.size is not the size of the struct");
	for (const struct svc_far_lender *l = f->lenders; l != NULL; l = l->next) {
		i.looking += l->looking && !l->gone;
		if (!l->known || l->gone || l->status != XPORT_OK)
			continue;
		i.lenders++;
		i.capacity += l->capacity;
		i.free += l->free;
	}
	i.blocks = f->nblocks;
	for (const struct svc_far_piece *p = f->pieces; p != NULL; p = p->next)
		i.bytes += p->state == SVC_FAR_HELD ? p->bytes : 0;
	for (const struct xport_far_block *b = f->blocks; b != NULL; b = b->next)
		i.lost += block_lost(b);
	if (xport_leases_query(f->leases, &leases) == XPORT_OK)
		i.lent = leases.lent_bytes;
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

int xport_far_block_query(const xport_far_block *b, struct xport_far_block_info *info)
{
	struct xport_far_block_info i = {.size = sizeof(i)};

	if (b == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_FAR_BLOCK_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_far_block_query", NULL,
		                "an argument is NULL, or xport_far_block_info.size is not the size of the struct");
	i.length = b->length;
	i.piece = UINT64_C(1) << b->shift;
	i.lost = block_lost(b);
	i.busy = b->op != SVC_FAR_NONE;
	i.policy = b->policy;
	i.context = b->context;
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}
