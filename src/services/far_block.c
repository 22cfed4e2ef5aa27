/* SPDX-License-Identifier: BSD-3-Clause */
/* far_block.c - blocks of far memory: their pieces, operations on them, access. */
#include <inttypes.h>
#include <stdlib.h>

#include "services/clock.h"
#include "services/far.h"
#include "services/grow.h"
#include "services/last_error.h"
#include "services/wire.h"

/* ---- pieces ---- */

struct svc_far_piece *svc_far_ask(struct xport_far_block *b, struct svc_far_lender *l, size_t index)
{
	struct svc_far_piece *p = calloc(1, sizeof(*p));
	struct xport_far *f = b->far;

	if (p == NULL)
		return NULL;
	p->block = b;
	p->lender = l;
	p->index = index;
	p->bytes = UINT64_C(1) << b->shift;
	p->state = SVC_FAR_ASKED;
	p->fresh = true;
	if (xport_lease_ask(f->leases, l->ep, p->bytes, b->rights, p, &p->lease) != XPORT_OK) {
		free(p);
		return NULL;
	}
	p->next = f->pieces;
	p->at = &f->pieces;
	if (p->next != NULL)
		p->next->at = &p->next;
	f->pieces = p;
	l->pieces++;
	l->free -= p->bytes;
	b->asked++;
	return p;
}

static void ended_free(struct svc_far_piece *p)
{
	(void)xport_lease_free(p->ended);
	p->ended = NULL;
}

void svc_far_piece_free(struct svc_far_piece *p)
{
	ended_free(p);
	*p->at = p->next;
	if (p->next != NULL)
		p->next->at = p->at;
	free(p);
}

static void untold_none(struct svc_far_piece *p)
{
	if (p->state != SVC_FAR_GONE || p->told)
		return;
	p->block->lost_untold--;
	p->block->far->events--;
}

void svc_far_return(struct svc_far_piece *p)
{
	struct xport_far *far = p->block->far;

	untold_none(p);
	p->block = NULL;
	if (p->lease == NULL) {
		svc_far_piece_free(p);
		return;
	}
	p->lender->bytes -= p->bytes;
	p->state = SVC_FAR_RETURNED;
	far->returning++;
	(void)xport_lease_return(p->lease); /* CLOSED: it has ended, and its event is still to come */
}

void svc_far_granted(struct svc_far_piece *p)
{
	struct xport_lease_info info = {.size = sizeof(info)};
	struct xport_far_block *b = p->block;

	p->state = SVC_FAR_HELD;
	p->lender->bytes += p->bytes;
	b->asked--;
	if (p != b->copy.to && xport_lease_query(p->lease, &info) == XPORT_OK)
		b->slot[p->index] = (struct svc_far_slot){p->lender->ep, info.rkey};
}

/* It granted something else, or breaks the protocol: it is not asked again. Or it has no memory, until the next look. */
static void refused(struct svc_far_lender *l, int status)
{
	if (status == XPORT_ERR_BAD_KEY || status == XPORT_ERR_PROTOCOL || status == XPORT_ERR_INVALID)
		l->status = XPORT_ERR_PROTOCOL;
	l->free = 0;
}

static void piece_refused(struct svc_far_piece *p, int status)
{
	struct xport_far_block *b = p->block;

	refused(p->lender, status);
	b->refused = true;
	b->asked--;
	if (p == b->copy.to) {
		b->copy.to = NULL;
	} else {
		b->piece[p->index] = NULL;
		if (p->index < b->cursor)
			b->cursor = p->index;
	}
	svc_far_piece_free(p);
}

static void piece_lost(struct svc_far_piece *p, int status)
{
	struct xport_far_block *b = p->block;

	if (p == b->copy.to) {
		svc_far_piece_free(p);
		svc_far_move_ended(b, status);
		return;
	}
	b->slot[p->index] = (struct svc_far_slot){0};
	p->state = SVC_FAR_GONE;
	p->status = status;
	b->lost_untold++;
	b->far->events++;
}

void svc_far_piece_ended(struct svc_far_piece *p, int status)
{
	struct svc_far_lender *l = p->lender;

	l->pieces--;
	if (p->state == SVC_FAR_ASKED) {
		piece_refused(p, status);
		return;
	}
	if (p->state == SVC_FAR_RETURNED) {
		l->far->returning--;
		l->free += status == XPORT_OK && l->free + p->bytes <= l->capacity ? p->bytes : 0;
		svc_far_piece_free(p);
		return;
	}
	l->bytes -= p->bytes;
	p->lender = NULL;
	piece_lost(p, status);
}

/* ---- operations ---- */

bool svc_far_look_on(struct xport_far_block *b)
{
	if (!svc_far_looking(b->far))
		return false;
	b->phase = SVC_FAR_LOOKING;
	b->until = svc_now_ms() + SVC_FAR_LOOK_MS;
	return true;
}

static void look_first(struct xport_far_block *b)
{
	b->phase = SVC_FAR_LOOKING;
	b->until = svc_now_ms() + SVC_FAR_LOOK_MS;
	svc_far_look_all(b->far);
}

void svc_far_begin(struct xport_far_block *b, int op)
{
	b->op = op;
	b->status = XPORT_OK;
	b->cursor = 0;
	b->refused = false;
	b->again = 0;
	b->far->busy++;
	look_first(b);
	if (b->far->returning > 0)
		b->phase = SVC_FAR_CLEARING;
}

void svc_far_done(struct xport_far_block *b, int status)
{
	b->op = SVC_FAR_NONE;
	b->far->busy--;
	b->status = status;
	b->done_event = true;
	b->far->events++;
}

/* A piece that was lost, and whose loss was reported, is replaced. */
static bool placed(const struct svc_far_piece *p)
{
	return p != NULL && (p->state != SVC_FAR_GONE || !p->told);
}

/* What a lender says is old while it answers: others may have been served meanwhile. */
static void none_left(struct xport_far_block *b)
{
	if (svc_far_look_on(b))
		return;
	if (!b->refused || b->again++ == SVC_FAR_AGAIN) {
		b->status = XPORT_ERR_NO_MEMORY;
		return;
	}
	b->refused = false;
	look_first(b);
}

static void place(struct xport_far_block *b)
{
	while (b->status == XPORT_OK && b->cursor < b->want && b->asked < SVC_FAR_ASKS) {
		struct svc_far_lender *l;
		size_t i = b->cursor;

		if (placed(b->piece[i])) {
			b->cursor++;
			continue;
		}
		l = svc_far_choose(b->far, b->policy, UINT64_C(1) << b->shift, NULL);
		if (l == NULL) {
			none_left(b);
			return;
		}
		if (b->piece[i] != NULL)
			svc_far_return(b->piece[i]);
		b->piece[i] = svc_far_ask(b, l, i);
		if (b->piece[i] == NULL)
			l->free = 0;
		else
			b->cursor++;
	}
}

static void take_out(struct xport_far_block *b, size_t i)
{
	if (b->piece[i] == NULL)
		return;
	b->slot[i] = (struct svc_far_slot){0};
	svc_far_return(b->piece[i]);
	b->piece[i] = NULL;
}

static void shorten(struct xport_far_block *b, size_t n)
{
	while (b->n > n)
		take_out(b, --b->n);
}

/* Of the operation that has failed nothing stays. */
static void roll_back(struct xport_far_block *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->piece[i] != NULL && b->piece[i]->fresh)
			take_out(b, i);
	shorten(b, b->before);
}

static void place_end(struct xport_far_block *b)
{
	if (b->phase == SVC_FAR_LOOKING || b->asked > 0 || (b->status == XPORT_OK && b->cursor < b->want))
		return;
	if (b->status != XPORT_OK)
		roll_back(b);
	else
		shorten(b, b->want);
	b->length = (uint64_t)b->n << b->shift;
	for (size_t i = 0; i < b->n; i++)
		if (b->piece[i] != NULL)
			b->piece[i]->fresh = false;
	svc_far_done(b, b->status);
}

void svc_far_block_move(struct xport_far_block *b, int64_t now)
{
	if (b->phase == SVC_FAR_CLEARING) {
		if (b->far->returning > 0 && now < b->until)
			return;
		look_first(b);
	}
	if (b->phase == SVC_FAR_LOOKING) {
		if (svc_far_looking(b->far) && now < b->until)
			return;
		b->phase = SVC_FAR_PLACING;
	}
	if (b->op == SVC_FAR_MOVE) {
		svc_far_move_on(b);
		return;
	}
	place(b);
	place_end(b);
}

/* ---- events ---- */

static void lost_event(struct xport_far_block *b, struct xport_far_event *event)
{
	size_t first = 0, i;

	while (b->piece[first] == NULL || b->piece[first]->state != SVC_FAR_GONE || b->piece[first]->told)
		first++;
	for (i = first; i < b->n; i++) {
		struct svc_far_piece *p = b->piece[i];

		if (p == NULL || p->state != SVC_FAR_GONE || p->told || p->status != b->piece[first]->status)
			break;
		untold_none(p);
		p->told = true;
		ended_free(p);
	}
	event->type = XPORT_FAR_LOST;
	event->status = b->piece[first]->status;
	event->offset = (uint64_t)first << b->shift;
	event->length = (uint64_t)(i - first) << b->shift;
}

bool svc_far_block_event(struct xport_far_block *b, struct xport_far_event *event)
{
	if (b->lost_untold == 0 && !b->done_event)
		return false;
	event->block = b;
	event->context = b->context;
	if (b->lost_untold > 0) {
		lost_event(b, event);
		return true;
	}
	event->type = XPORT_FAR_DONE;
	event->status = b->status;
	event->length = b->copy.moved;
	b->copy.moved = 0;
	b->done_event = false;
	b->far->events--;
	return true;
}

/* ---- life ---- */

/* Pieces for so many bytes; 0: too many. */
static size_t pieces_for(uint64_t length, unsigned shift)
{
	uint64_t n = (length >> shift) + ((length & ((UINT64_C(1) << shift) - 1)) != 0);

	return n > XPORT_FAR_PIECES_MAX ? 0 : (size_t)n;
}

static bool make_room(struct xport_far_block *b, size_t n)
{
	struct svc_far_piece **piece;
	struct svc_far_slot *slot;

	if (n <= b->room)
		return true;
	piece = realloc(b->piece, n * sizeof(struct svc_far_piece *));
	if (piece != NULL)
		b->piece = piece;
	slot = piece == NULL ? NULL : realloc(b->slot, n * sizeof(*slot));
	if (slot == NULL)
		return false;
	b->slot = slot;
	b->room = n;
	return true;
}

static void add_empty(struct xport_far_block *b, size_t n)
{
	for (; b->n < n; b->n++) {
		b->piece[b->n] = NULL;
		b->slot[b->n] = (struct svc_far_slot){0};
	}
}

static const char *args_wrong(const struct xport_far_args *a)
{
	if (a->length == 0)
		return "xport_far_args.length is 0";
	if (a->piece != 0 && (a->piece < XPORT_FAR_PIECE_MIN || (a->piece & (a->piece - 1)) != 0))
		return "xport_far_args.piece is not a power of 2, or is too small";
	if (a->policy < XPORT_FAR_MOST_FREE || a->policy > XPORT_FAR_SPREAD)
		return "xport_far_args.policy is unknown";
	if (a->rights > SVC_RIGHTS)
		return "xport_far_args.rights has unknown bits";
	return NULL;
}

static struct xport_far_block *block_new(struct xport_far *f, const struct xport_far_args *a)
{
	uint64_t piece = a->piece != 0 ? a->piece : f->a.piece;
	struct xport_far_block *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	while (a->piece == 0 && piece > XPORT_FAR_PIECE_MIN && piece / 2 >= a->length)
		piece /= 2;
	b->far = f;
	b->shift = (unsigned)__builtin_ctzll(piece);
	b->policy = a->policy;
	b->rights = a->rights != 0 ? a->rights : XPORT_REMOTE_READ | XPORT_REMOTE_WRITE;
	b->context = a->context;
	b->next = f->blocks;
	b->link = &f->blocks;
	if (b->next != NULL)
		b->next->link = &b->next;
	f->blocks = b;
	f->nblocks++;
	return b;
}

void svc_far_block_release(struct xport_far_block *b)
{
	*b->link = b->next;
	if (b->next != NULL)
		b->next->link = b->link;
	b->far->nblocks--;
	free(b->copy.bytes);
	free(b->piece);
	free(b->slot);
	free(b);
}

int xport_far_alloc(xport_far *f, const struct xport_far_args *args, xport_far_block **block)
{
	struct xport_far_args a;
	struct xport_far_block *b;
	size_t n;
	int r;

	if (f == NULL || args == NULL || block == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_alloc", NULL, "an argument is NULL");
	r = svc_grow_in(&a, sizeof(a), SVC_FIRST_FAR_ARGS, args, "xport_far_alloc", "xport_far_args");
	if (r != XPORT_OK)
		return r;
	if (args_wrong(&a) != NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_alloc", NULL, "%s", args_wrong(&a));
	b = block_new(f, &a);
	n = b == NULL ? 0 : pieces_for(a.length, b->shift);
	if (b != NULL && n == 0) {
		svc_far_block_release(b);
		return svc_fail(XPORT_ERR_INVALID, "xport_far_alloc", "set a larger xport_far_args.piece",
		                "%" PRIu64 " bytes need more than %d pieces", a.length, XPORT_FAR_PIECES_MAX);
	}
	if (b == NULL || !make_room(b, n)) {
		if (b != NULL)
			svc_far_block_release(b);
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_far_alloc", NULL, "out of memory");
	}
	add_empty(b, n);
	b->want = n;
	svc_far_begin(b, SVC_FAR_ALLOC);
	*block = b;
	return XPORT_OK;
}

static int busy(const char *operation)
{
	return svc_fail(XPORT_ERR_BUSY, operation, "take the events of xport_far_next first",
	                "an operation on the block has not ended, or a loss of it was not taken");
}

int xport_far_resize(xport_far_block *b, uint64_t length)
{
	size_t n;

	if (b == NULL || length == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_resize", length == 0 ? "call xport_far_free" : NULL,
		                length == 0 ? "the length is 0" : "block is NULL");
	if (b->op != SVC_FAR_NONE || b->lost_untold > 0 || b->done_event)
		return busy("xport_far_resize");
	n = pieces_for(length, b->shift);
	if (n == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_far_resize", "allocate a block with longer pieces",
		                "%" PRIu64 " bytes need more than %d pieces", length, XPORT_FAR_PIECES_MAX);
	if (!make_room(b, n))
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_far_resize", NULL, "out of memory");
	b->before = b->n;
	b->want = n;
	if (n < b->n)
		b->length = (uint64_t)n << b->shift;
	add_empty(b, n);
	svc_far_begin(b, SVC_FAR_RESIZE);
	return XPORT_OK;
}

int xport_far_free(xport_far_block *b)
{
	if (b == NULL)
		return XPORT_OK;
	if (b->op != SVC_FAR_NONE)
		return busy("xport_far_free");
	for (size_t i = 0; i < b->n; i++)
		if (b->piece[i] != NULL)
			svc_far_return(b->piece[i]);
	b->far->events -= b->done_event;
	svc_far_block_release(b);
	return XPORT_OK;
}

/* ---- access ---- */

static int refuse_access(const struct xport_far_block *b, const char *operation, uint64_t offset, uint64_t len)
{
	uint64_t piece = b != NULL ? UINT64_C(1) << b->shift : 0;

	if (b == NULL)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "block is NULL");
	if (offset >= b->length || len > b->length - offset)
		return svc_fail(XPORT_ERR_BOUNDS, operation, NULL,
		                "%" PRIu64 " bytes at offset %" PRIu64 " of a block of %" PRIu64 " bytes", len, offset,
		                b->length);
	if (len > piece - (offset & (piece - 1)))
		return svc_fail(XPORT_ERR_BOUNDS, operation, "divide it by xport_far_locate",
		                "%" PRIu64 " bytes at offset %" PRIu64 " are in more than one piece of %" PRIu64
		                " bytes",
		                len, offset, piece);
	return svc_fail(XPORT_ERR_PEER_LOST, operation, "call xport_far_resize to replace what was lost",
	                "the piece at offset %" PRIu64 " was lost", offset & ~(piece - 1));
}

/* The piece of a range; NULL: none has it. */
static inline const struct svc_far_slot *slot_of(const struct xport_far_block *b, uint64_t offset, uint64_t len,
                                                 uint64_t *in)
{
	uint64_t piece;

	if (b == NULL || offset >= b->length)
		return NULL;
	piece = UINT64_C(1) << b->shift;
	*in = offset & (piece - 1);
	return len <= piece - *in && b->slot[offset >> b->shift].rkey != NULL ? &b->slot[offset >> b->shift] : NULL;
}

static int passed(const struct xport_far_block *b, int r, const char *operation)
{
	return r == XPORT_OK || r == XPORT_ERR_AGAIN ? r : svc_pass(b->far->x, r, operation);
}

int xport_far_get(xport_far_block *b, uint64_t offset, void *buf, size_t len, const struct xport_opt *opt)
{
	const struct svc_far_slot *s;
	uint64_t in;

	s = slot_of(b, offset, len, &in);
	if (s == NULL)
		return refuse_access(b, "xport_far_get", offset, len);
	return passed(b, xport_get(s->ep, buf, len, s->rkey, in, opt), "xport_far_get");
}

int xport_far_put(xport_far_block *b, uint64_t offset, const void *buf, size_t len, const struct xport_opt *opt)
{
	const struct svc_far_slot *s;
	uint64_t in;

	s = slot_of(b, offset, len, &in);
	if (s == NULL)
		return refuse_access(b, "xport_far_put", offset, len);
	return passed(b, xport_put(s->ep, buf, len, s->rkey, in, opt), "xport_far_put");
}

int xport_far_locate(const xport_far_block *b, uint64_t offset, struct xport_far_place *place)
{
	struct xport_far_place p = {.size = sizeof(p)};
	const struct svc_far_slot *s;

	if (b == NULL || place == NULL || !svc_grow_size(place->size, SVC_FIRST_FAR_PLACE))
		return svc_fail(XPORT_ERR_INVALID, "xport_far_locate", NULL,
		                "an argument is NULL, or xport_far_place.size is not the size of the struct");
	s = slot_of(b, offset, 1, &p.offset);
	if (s == NULL)
		return refuse_access(b, "xport_far_locate", offset, 1);
	p.ep = s->ep;
	p.rkey = s->rkey;
	p.length = (UINT64_C(1) << b->shift) - p.offset;
	svc_grow_out(place, &p, sizeof(p));
	return XPORT_OK;
}
