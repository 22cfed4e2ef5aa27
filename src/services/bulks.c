/* SPDX-License-Identifier: BSD-3-Clause */
/* The transfers of an instance: their life, their events, and the loop that drives them. */
#include <stdlib.h>
#include <string.h>

#include "services/bulk.h"
#include "services/clock.h"
#include "services/grow.h"
#include "services/last_error.h"

enum { IN_FLIGHT = 64 << 20, LEAST = 65536, TRANSFERS = 1024, SLICE_MS = 20 };
static const char EVENT_WRONG[] = "an argument is NULL, or xport_bulk_event.size is not the size of the struct";

/* ---- the loop ---- */

/* Needs the lock, and may let go of it for a while. */
static bool bulks_complete(struct xport_bulks *b, const struct xport_completion *c)
{
	struct svc_bulk_transfer *t;
	struct svc_bulk_op *op;
	uint64_t sum = 0;

	if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED) {
		svc_bulk_peer_ended(b, c->ep, c->status == XPORT_OK ? XPORT_ERR_CLOSED : c->status);
		return false;
	}
	op = c->type == XPORT_OP_GET || c->type == XPORT_OP_PUT ? svc_bulk_op_of(b, c) : NULL;
	if (op == NULL)
		return false;
	t = svc_bulk_op_sums(op, c->status);
	if (t != NULL) {
		pthread_mutex_unlock(&b->lock);
		sum = svc_bulk_sum(t->local, t->nlocal);
		pthread_mutex_lock(&b->lock);
	}
	svc_bulk_op_done(b, op, c->status, t != NULL ? &sum : NULL);
	return true;
}

int xport_bulks_step(xport_bulks *b, const struct xport_completion *c)
{
	bool own;

	if (b == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_bulks_step", NULL, "bulks is NULL");
	pthread_mutex_lock(&b->lock);
	own = c != NULL && bulks_complete(b, c);
	if (!b->destroying)
		svc_bulk_work(b);
	pthread_mutex_unlock(&b->lock);
	return own;
}

int xport_bulks_timeout(xport_bulks *b)
{
	int ms;

	if (b == NULL)
		return -1;
	pthread_mutex_lock(&b->lock);
	ms = b->destroying ? -1 : svc_bulk_work_timeout(b);
	pthread_mutex_unlock(&b->lock);
	return ms;
}

void xport_bulks_forget(xport_bulks *b, xport_ep *ep)
{
	if (b == NULL || ep == NULL)
		return;
	pthread_mutex_lock(&b->lock);
	svc_bulk_peer_ended(b, ep, XPORT_ERR_CLOSED);
	if (!b->destroying)
		svc_bulk_work(b);
	pthread_mutex_unlock(&b->lock);
}

/* One poll, or a sleep until `until` at most; below 0: no limit. */
static int bulks_poll(struct xport_bulks *b, int64_t until, xport_completion_fn other, void *arg)
{
	int64_t left = until < 0 ? SLICE_MS : until - svc_now_ms();
	int ms = xport_bulks_timeout(b), n;
	struct xport_completion c;

	left = left > SLICE_MS ? SLICE_MS : left < 0 ? 0 : left; /* another thread may do what is waited for */
	if (ms >= 0 && ms < left)
		left = ms;
	n = xport_wait(b->x, &c, 1, (int)left);
	if (n < 0)
		return n;
	if (xport_bulks_step(b, n > 0 ? &c : NULL) == 0 && n > 0 && other != NULL)
		other(arg, &c);
	return XPORT_OK;
}

/* Polls until `ready` returns true. Returns XPORT_OK, or an error that is described. */
static int bulks_wait(struct xport_bulks *b, bool (*ready)(struct xport_bulks *b, void *ready_arg), void *ready_arg,
                      xport_completion_fn other, void *arg, int timeout_ms, const char *operation)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	bool late = false;
	int status = svc_time_valid(timeout_ms, operation);

	while (status == XPORT_OK && !ready(b, ready_arg)) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, operation, NULL, "the time limit of %d ms expired",
			                timeout_ms);
		status = bulks_poll(b, until, other, arg);
		if (status != XPORT_OK)
			return svc_pass(b->x, status, operation);
		late = until >= 0 && svc_now_ms() >= until; /* after a poll: a caller with the limit 0 makes progress */
	}
	return status;
}

/* ---- events ---- */

static bool next_bulk_event(struct xport_bulks *b, void *to)
{
	struct xport_bulk_event e = {.size = sizeof(e), .why = ""};
	bool there;

	if (!atomic_load_explicit(&b->any_event, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&b->lock);
	there = svc_bulk_event(b, &e);
	atomic_store_explicit(&b->any_event, !svc_ring_empty(&b->events), memory_order_relaxed);
	pthread_mutex_unlock(&b->lock);
	if (there)
		svc_grow_out(to, &e, sizeof(e));
	return there;
}

int xport_bulks_next(xport_bulks *b, struct xport_bulk_event *event)
{
	if (b == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_BULK_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_bulks_next", NULL, EVENT_WRONG);
	return next_bulk_event(b, event);
}

int xport_bulks_wait(xport_bulks *b, struct xport_bulk_event *event, xport_completion_fn other, void *arg,
                     int timeout_ms)
{
	if (b == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_BULK_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_bulks_wait", NULL, EVENT_WRONG);
	return bulks_wait(b, next_bulk_event, event, other, arg, timeout_ms, "xport_bulks_wait");
}

/* ---- transfers ---- */

/* Adds up the local pieces, or describes what is wrong. */
static int local_check(const struct xport_bulk_args *a, const char *operation, uint64_t *length)
{
	*length = 0;
	for (size_t i = 0; i < a->nlocal; i++) {
		const struct xport_iov *piece = &a->local[i];
		struct xport_mr_info info = {.size = sizeof(info)};
		uintptr_t at = (uintptr_t)piece->addr;

		if (piece->len == 0)
			continue;
		if (piece->addr == NULL || piece->len > INT64_MAX - *length)
			return svc_fail(XPORT_ERR_INVALID, operation, NULL, "local piece %zu %s", i,
			                piece->addr == NULL ? "has the address NULL"
			                                    : "makes the range longer than 2^63 - 1 bytes");
		*length += piece->len;
		if (piece->mr == NULL)
			continue;
		if (xport_mr_query(piece->mr, &info) != XPORT_OK || at < (uintptr_t)info.base ||
		    at - (uintptr_t)info.base > info.length || piece->len > info.length - (at - (uintptr_t)info.base))
			return svc_fail(XPORT_ERR_INVALID, operation, NULL, "local piece %zu is not inside its region",
			                i);
	}
	return XPORT_OK;
}

static int span_order(const void *one, const void *two)
{
	const struct xport_iov *a = one, *b = two;

	return (uintptr_t)a->addr < (uintptr_t)b->addr ? -1 : (uintptr_t)a->addr > (uintptr_t)b->addr;
}

/* Whether each piece begins behind the one before it. Pieces without bytes do not count. */
static bool ascending(const struct xport_iov *piece, size_t n)
{
	const struct xport_iov *last = NULL;

	for (size_t i = 0; i < n; i++) {
		if (piece[i].len == 0)
			continue;
		if (last != NULL && ((uintptr_t)piece[i].addr < (uintptr_t)last->addr ||
		                     (uintptr_t)piece[i].addr - (uintptr_t)last->addr < last->len))
			return false;
		last = &piece[i];
	}
	return true;
}

/* Nobody could say what is in memory that a pull writes twice. */
static int local_apart(const struct xport_bulk_args *a, const char *operation)
{
	struct xport_iov *sorted;
	bool apart;

	if (ascending(a->local, a->nlocal))
		return XPORT_OK;
	sorted = malloc(a->nlocal * sizeof(*sorted));
	if (sorted == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	memcpy(sorted, a->local, a->nlocal * sizeof(*sorted));
	qsort(sorted, a->nlocal, sizeof(*sorted), span_order);
	apart = ascending(sorted, a->nlocal);
	free(sorted);
	return apart ? XPORT_OK : svc_fail(XPORT_ERR_INVALID, operation, NULL, "local pieces overlap");
}

static int bulk_args_check(const struct xport_bulk_args *a, const char *operation)
{
	if (a->local == NULL || a->nlocal == 0 || a->nlocal > XPORT_BULK_RUNS_MAX)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "there are %zu local pieces; 1 to %d are allowed",
		                a->local == NULL ? 0 : a->nlocal, XPORT_BULK_RUNS_MAX);
	if (a->deadline_ms == 0 || a->deadline_ms > XPORT_BULK_DEADLINE_MAX)
		return svc_fail(XPORT_ERR_INVALID, operation, "set xport_bulk_args.deadline_ms",
		                "the deadline of %u ms is not 1 to %d ms", (unsigned)a->deadline_ms,
		                XPORT_BULK_DEADLINE_MAX);
	if ((a->flags & ~(uint32_t)XPORT_BULK_SUM) != 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "xport_bulk_args.flags has unknown bits");
	return XPORT_OK;
}

static int range_check(const struct svc_bulk_desc *d, uint64_t offset, uint64_t length, uint32_t right,
                       const char *operation)
{
	if ((d->rights & right) == 0)
		return svc_fail(XPORT_ERR_ACCESS, operation, "create the descriptor with the right",
		                "the descriptor does not have %s",
		                right == XPORT_REMOTE_READ ? "XPORT_REMOTE_READ" : "XPORT_REMOTE_WRITE");
	if (offset <= d->length && length <= d->length - offset)
		return XPORT_OK;
	return svc_fail(XPORT_ERR_BOUNDS, operation, NULL,
	                "offset %llu plus %llu bytes is beyond the %llu bytes of the descriptor",
	                (unsigned long long)offset, (unsigned long long)length, (unsigned long long)d->length);
}

/* Whether it was unpacked on an endpoint of this instance. */
static int bulk_usable(struct xport_bulks *b, struct xport_bulk *bulk, const char *operation)
{
	if (bulk->ep == NULL)
		return svc_fail(XPORT_ERR_INVALID, operation, "unpack its bytes on an endpoint to the owner",
		                "the descriptor was not unpacked on an endpoint");
	if (svc_bulk_of(bulk, b->x))
		return XPORT_OK;
	return svc_fail(XPORT_ERR_INVALID, operation, NULL,
	                "the descriptor was unpacked on an endpoint of another instance");
}

static int bulk_move(struct xport_bulks *b, struct xport_bulk *bulk, const struct xport_bulk_args *args, bool push,
                     const char *operation)
{
	struct xport_bulk_args a;
	uint64_t length, sum = 0;
	int status;

	if (b == NULL || bulk == NULL || args == NULL)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "an argument is NULL");
	status = svc_grow_in(&a, sizeof(a), SVC_FIRST_BULK_ARGS, args, operation, "xport_bulk_args");
	if (status == XPORT_OK)
		status = bulk_args_check(&a, operation);
	if (status == XPORT_OK)
		status = bulk_usable(b, bulk, operation);
	if (status == XPORT_OK)
		status = local_check(&a, operation, &length);
	if (status == XPORT_OK)
		status = range_check(&bulk->d, a.offset, length, push ? XPORT_REMOTE_WRITE : XPORT_REMOTE_READ,
		                     operation);
	if (status == XPORT_OK && !push)
		status = local_apart(&a, operation);
	if (status != XPORT_OK)
		return status;
	if ((push || length == 0) && (a.flags & XPORT_BULK_SUM) != 0)
		sum = svc_bulk_sum(a.local, a.nlocal);
	pthread_mutex_lock(&b->lock);
	status = b->destroying ? svc_fail(XPORT_ERR_INVALID, operation, NULL, "the transfers are being destroyed")
	                       : svc_bulk_begin(b, bulk, &a, length, push, sum, operation);
	pthread_mutex_unlock(&b->lock);
	return status;
}

int xport_bulk_pull(xport_bulks *b, xport_bulk *bulk, const struct xport_bulk_args *args)
{
	return bulk_move(b, bulk, args, false, "xport_bulk_pull");
}

int xport_bulk_push(xport_bulks *b, xport_bulk *bulk, const struct xport_bulk_args *args)
{
	return bulk_move(b, bulk, args, true, "xport_bulk_push");
}

int xport_bulk_cancel(xport_bulks *b, uint64_t id)
{
	struct svc_bulk_transfer *t;
	int status = XPORT_OK;

	if (b == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_bulk_cancel", NULL, "bulks is NULL");
	pthread_mutex_lock(&b->lock);
	t = svc_slot_find(&b->slots, id);
	if (t != NULL && !svc_ring_empty(&t->open)) {
		svc_bulk_end(b, t, XPORT_ERR_CANCELED, "the transfer was cancelled");
		if (!b->destroying)
			svc_bulk_work(b); /* what waited behind it may fit now */
	} else {
		status = svc_fail(XPORT_ERR_INVALID, "xport_bulk_cancel", "take XPORT_BULK_DONE",
		                  "no transfer with this id is in progress");
	}
	pthread_mutex_unlock(&b->lock);
	return status;
}

int xport_bulks_query(xport_bulks *b, struct xport_bulks_info *info)
{
	struct xport_bulks_info i;

	if (b == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_BULKS_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_bulks_query", NULL,
		                "an argument is NULL, or xport_bulks_info.size is not the size of the struct");
	pthread_mutex_lock(&b->lock);
	i = b->info;
	i.transfers = b->slots.size - b->slots.nfree;
	pthread_mutex_unlock(&b->lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

/* ---- life ---- */

/* Sets the defaults, or says what is wrong. */
static const char *bulks_attr_complete(struct xport_bulks_attr *a)
{
	a->max_in_flight = a->max_in_flight == 0 ? IN_FLIGHT : a->max_in_flight;
	if (a->max_in_flight < LEAST || a->max_in_flight > INT64_MAX)
		return "max_in_flight is below 65536, or above 2^63 - 1";
	if (a->max_per_peer == 0)
		a->max_per_peer = a->max_in_flight / 4 < LEAST ? LEAST : a->max_in_flight / 4;
	if (a->max_per_peer < LEAST || a->max_per_peer > a->max_in_flight)
		return "max_per_peer is not 65536 to max_in_flight";
	a->max_transfers = a->max_transfers == 0 ? TRANSFERS : a->max_transfers;
	return a->max_transfers > SVC_SLOTS_MAX ? "max_transfers is above 65535" : NULL;
}

static void bulks_free(struct xport_bulks *b)
{
	for (uint32_t i = 0; b->transfer != NULL && i < b->a.max_transfers; i++)
		svc_bulk_transfer_fini(b, &b->transfer[i]);
	svc_slots_fini(&b->slots);
	free(b->transfer);
	free(b->op);
	free(b);
}

static struct xport_bulks *bulks_new(xport *x, const struct xport_bulks_attr *a)
{
	struct xport_bulks *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->x = x;
	b->a = *a;
	b->next_deadline = INT64_MAX;
	svc_ring_init(&b->ready);
	svc_ring_init(&b->stalled);
	svc_ring_init(&b->open);
	svc_ring_init(&b->events);
	b->op = calloc(SVC_BULK_OPS, sizeof(*b->op));
	b->transfer = calloc(a->max_transfers, sizeof(*b->transfer));
	if (b->op == NULL || b->transfer == NULL || svc_slots_init(&b->slots, a->max_transfers) != XPORT_OK) {
		bulks_free(b);
		return NULL;
	}
	for (size_t i = SVC_BULK_OPS; i > 0; i--) {
		b->op[i - 1].next = b->free_ops;
		b->free_ops = &b->op[i - 1];
	}
	return b;
}

int xport_bulks_create(xport *x, const struct xport_bulks_attr *attr, xport_bulks **bulks)
{
	static const char op[] = "xport_bulks_create";
	struct xport_info info = {.size = sizeof(info)};
	struct xport_bulks_attr a;
	struct xport_bulks *b;
	const char *wrong;
	int status = svc_grow_in(&a, sizeof(a), SVC_FIRST_BULKS_ATTR, attr, op, "xport_bulks_attr");

	if (status != XPORT_OK)
		return status;
	if (x == NULL || bulks == NULL)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "an argument is NULL");
	wrong = bulks_attr_complete(&a);
	if (wrong != NULL)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "xport_bulks_attr: %s", wrong);
	status = xport_query(x, &info);
	if (status != XPORT_OK)
		return svc_pass(x, status, op);
	b = bulks_new(x, &a);
	if (b == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, op, NULL, "out of memory");
	b->deadline_ends = info.deadline_ends;
	pthread_mutex_init(&b->lock, NULL);
	*bulks = b;
	return XPORT_OK;
}

static bool bulks_idle(struct xport_bulks *b, void *arg)
{
	bool idle;

	(void)arg;
	pthread_mutex_lock(&b->lock);
	idle = b->used_ops == 0;
	pthread_mutex_unlock(&b->lock);
	return idle;
}

int xport_bulks_destroy(xport_bulks *b, xport_completion_fn other, void *arg, int timeout_ms)
{
	int status;

	if (b == NULL)
		return XPORT_OK;
	status = svc_time_valid(timeout_ms, "xport_bulks_destroy");
	if (status != XPORT_OK)
		return status;
	pthread_mutex_lock(&b->lock);
	b->destroying = true;
	pthread_mutex_unlock(&b->lock);
	status = bulks_wait(b, bulks_idle, NULL, other, arg, timeout_ms, "xport_bulks_destroy");
	if (status != XPORT_OK)
		return status;
	pthread_mutex_destroy(&b->lock);
	bulks_free(b);
	return XPORT_OK;
}
