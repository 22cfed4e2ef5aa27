/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * op_life.h - the steps in the life of an operation: allocate, settle in the queue where it waits, complete, free.
 *
 * Operations of the application and events count in ep->refs until they are reaped. The core's own operations do not:
 * they are gone when the endpoint is DEAD.
 */
#ifndef XPI_CORE_OBJECT_OP_LIFE_H
#define XPI_CORE_OBJECT_OP_LIFE_H

#include <endian.h>
#include <string.h>

#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/mr.h"

/*
 * xpi_op_get - allocate an operation that waits for nothing and is in no queue. It does not count in ep->refs.
 *
 * Returns NULL if out of memory.
 */
static inline __attribute__((always_inline)) struct xpi_op *xpi_op_get(struct xport *x, struct xport_ep *ep,
                                                                       unsigned kind)
{
	struct xpi_op *op = xpi_pool_get(&x->op_pool);

	if (__builtin_expect(op == NULL, 0))
		return NULL;
	op->wait.kind = XPI_WAIT_OP;
	op->kind = kind;
	op->flags = 0;
	op->waits = 0;
	op->alive = true;
	op->status = XPORT_OK;
	op->link.next = NULL;
	op->ep = ep;
	op->mr = NULL;
	op->rkey = NULL;
	op->charge = 0;
	op->pending = 0;
	op->done = 0;
	return op;
}

/*
 * xpi_op_owed - true for replies whose number is limited.
 *
 * A peer that does not drain its replies could request these without end.
 */
static inline bool xpi_op_owed(unsigned kind)
{
	return kind == XPI_OP_VALUE || kind == XPI_OP_NAK || kind == XPI_OP_GRANT || kind == XPI_OP_ADOPT ||
	       kind == XPI_OP_GONE || kind == XPI_OP_REVOKED || kind == XPI_OP_CMA_ANSWER;
}

/* xpi_op_put, xpi_op_free - free an operation. It must not count in ep->refs any more. */
static inline void xpi_op_put(struct xport *x, struct xpi_op *op)
{
	op->alive = false;
	op->gen++;
	op->peer = 0;
	xpi_pool_put(&x->op_pool, op);
}

static inline void xpi_op_free(struct xport_ep *ep, struct xpi_op *op)
{
	xpi_op_put(ep->x, op);
}

/*
 * xpi_full, xpi_full_at - true if too many operations are in flight or not reaped: a post then returns XPORT_ERR_AGAIN.
 *
 * Completions without an operation object count here only. Below ep->limit there is no new maximum to record either.
 */
bool xpi_full_at(struct xport_ep *ep, uint32_t in_flight);

static inline __attribute__((always_inline)) bool xpi_full(struct xport_ep *ep)
{
	uint32_t in_flight = ep->refs + xpi_cq_ready(&ep->x->cq);

	return __builtin_expect(in_flight >= ep->limit, 0) && xpi_full_at(ep, in_flight);
}

/* xpi_full_refuse - describe that the queue is full. */
int xpi_full_refuse(struct xport_ep *ep, const char *operation) __attribute__((cold));

/* xpi_op_no_memory - describe that there is no memory for another operation. Returns XPORT_ERR_NO_MEMORY. */
int xpi_op_no_memory(struct xport_ep *ep, const char *operation) __attribute__((cold));

/* xpi_op_id - the number by which the application names the operation in xport_cancel. */
static inline uint64_t xpi_op_id(struct xport *x, struct xpi_op *op)
{
	return (uint64_t)op->gen << 32 | (xpi_pool_index(&x->op_pool, op) + 1);
}

/* xpi_op_find - the operation with this id. Returns NULL if it was freed. */
static inline struct xpi_op *xpi_op_find(struct xport *x, uint64_t id)
{
	uint32_t name = (uint32_t)id;
	struct xpi_op *op = name != 0 ? xpi_pool_at(&x->op_pool, name - 1) : NULL;

	return op != NULL && op->alive && op->gen == (uint32_t)(id >> 32) ? op : NULL;
}

/* xpi_op_name - the number by which the peer names the operation in its replies. */
static inline uint32_t xpi_op_name(struct xport *x, struct xpi_op *op)
{
	return xpi_pool_index(&x->op_pool, op) + 1;
}

/*
 * xpi_opt_bits - the flags, and the deadline in the upper half: one test finds an unusual flag and a deadline.
 *
 * An operation with a deadline so takes the way of one whose flags do not fit, and the others do not look for it.
 */
static inline uint64_t xpi_opt_bits(const struct xport_opt *opt)
{
#if __BYTE_ORDER == __LITTLE_ENDIAN
	uint64_t bits;

	_Static_assert(offsetof(struct xport_opt, deadline_ms) == offsetof(struct xport_opt, flags) + 4, "one word");
	memcpy(&bits, (const char *)opt + offsetof(struct xport_opt, flags), sizeof(bits));
	return bits;
#else
	return opt->flags | (uint64_t)opt->deadline_ms << 32;
#endif
}

/* xpi_opt_timed - true if the options have a deadline. Asked only after they did not fit. */
static inline bool xpi_opt_timed(const struct xport_opt *opt)
{
	return opt != NULL && opt->deadline_ms != 0;
}

/* xpi_opt_plain - the same options, without a deadline and without `flag`. */
static inline struct xport_opt xpi_opt_plain(const struct xport_opt *opt, uint32_t flag)
{
	struct xport_opt plain = *opt;

	plain.deadline_ms = 0;
	plain.flags &= ~flag;
	return plain;
}

/*
 * xpi_opt_fits - true if the options are valid for an operation, and opt->mr, if set, contains the buffer.
 *
 * flags   the flags that the operation takes
 * writes  the operation writes to the buffer, which must be writable
 */
static inline bool xpi_opt_fits(const struct xport *x, const void *buf, size_t len, const struct xport_opt *opt,
                                uint64_t flags, bool writes)
{
	const struct xport_mr *mr;

	if (buf == NULL && len > 0)
		return false;
	if (opt == NULL)
		return true;
	if ((xpi_opt_bits(opt) & ~flags) != 0)
		return false;
	mr = opt->mr;
	return mr == NULL || (xpi_mr_holds(mr, x, buf, len) &&
	                      !(writes && __builtin_expect(mr->readonly, 0) && !xpi_mr_writable(mr, buf, len)));
}

/*
 * xpi_opt_refuse - describe in xport_last_error what is wrong with the options.
 *
 * Returns
 *   XPORT_ERR_FAULT    the buffer is not writable
 *   XPORT_ERR_INVALID  everything else
 */
int xpi_opt_refuse(struct xport *x, const char *operation, const void *buf, size_t len, const struct xport_opt *opt,
                   uint64_t flags) __attribute__((cold));

/* xpi_op_named - the operation of this endpoint that the peer names by this number. Returns NULL if there is none. */
static inline struct xpi_op *xpi_op_named(struct xport_ep *ep, uint32_t name)
{
	struct xpi_op *op;

	if (name == 0 || name == XPI_OP_NOBODY)
		return NULL;
	op = xpi_pool_at(&ep->x->op_pool, name - 1);
	return op != NULL && op->alive && op->ep == ep ? op : NULL;
}

/* xpi_op_complete - remove an operation from its queue, and queue it for reaping; free it if it has no completion. */
void xpi_op_complete(struct xpi_op *op, int status);

/* xpi_run_ended - count the end of a run of this operation. The last one completes it, with the first error of any. */
void xpi_run_ended(struct xpi_op *op, int status);

/* xpi_op_list_end - free the list of a send or receive, which is one with a single buffer from then on. */
void xpi_op_list_end(struct xpi_op *op);

/* xpi_op_plain - true if the operation holds no region, key or offer, and has a completion. */
static inline bool xpi_op_plain(const struct xpi_op *op)
{
	return op->mr == NULL && op->rkey == NULL && op->offer == 0 && (op->flags & XPORT_QUIET) == 0;
}

/* xpi_op_complete_new - the same, with XPORT_OK, for the application's operations that have no key and no queue. */
static inline __attribute__((always_inline)) void xpi_op_complete_new(struct xport *x, struct xpi_op *op)
{
	if (__builtin_expect(op->mr != NULL || (op->flags & XPORT_QUIET) != 0, 0))
		xpi_op_complete(op, XPORT_OK);
	else
		xpi_cq_push(&x->cq, op);
}

/* xpi_quiet_failed - record the failure of an operation without a completion: the next flush reports it. */
void xpi_quiet_failed(struct xport_ep *ep, int status);

/* xpi_op_settle - queue an operation where it waits, or complete it if it waits for nothing. */
void xpi_op_settle(struct xpi_op *op);

/* xpi_op_sent - count a piece of the operation that the back end has released. */
void xpi_op_sent(struct xpi_op *op);

/* xpi_op_done - handle done() for a request of the operation. */
void xpi_op_done(struct xpi_op *op);

/*
 * xpi_event_room - allocate the memory of an event before the event can happen. So no event is lost if memory runs out.
 *
 * Returns NULL if out of memory.
 */
struct xpi_op *xpi_event_room(struct xport *x);
/* xpi_event_unroom - free *room, if it was not used. */
void xpi_event_unroom(struct xport *x, struct xpi_op **room);
/* xpi_event - queue an event about an endpoint or listener, in *room. Sets *room to NULL. */
void xpi_event(struct xport *x, struct xpi_op **room, int type, int status, struct xport_ep *ep, void *context);
/*
 * xpi_event_forget - remove the oldest event of this type and context that has no endpoint, if more than `keep` are not
 * reaped.
 *
 * Returns true if it removed one.
 */
bool xpi_event_forget(struct xport *x, int type, const void *context, unsigned keep);

#endif
