/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer's side: a few steps, each of which ends with the completion of one operation. The next operation is posted
 * after that, so no order among puts and gets is needed.
 *
 * If the peer's memory is mapped here, a get or put is a copy by this processor. A fence after each completion keeps
 * this copy before the next one: acquire for a get, release for a put.
 *
 * Locks: `lock` protects the fields that change, and the local memory if nothing is in progress there. It is held
 * during a post, because another thread may reap the operation before the post has returned.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

#include "services/clock.h"
#include "services/last_error.h"
#include "services/snapshot.h"

enum step {
	IDLE,
	READ_MARK,       /* CHECKED, COPIES: which version there is */
	READ_BODY,       /* CHECKED: its bytes.  SUMMED, COPIES: a mark and its bytes */
	READ_MARK_AGAIN, /* CHECKED: whether it still is */
	LOCK,
	WRITE_MARK, /* the version before */
	WRITE_ODD,  /* CHECKED: a version that nobody accepts */
	WRITE_BODY, /* SUMMED: with its mark */
	WRITE_EVEN, /* CHECKED */
	UNLOCK
};

struct xport_versioned_peer {
	xport *x;
	xport_ep *ep;
	xport_rkey *rkey;
	uint64_t offset;
	struct xport_versioned_attr a;
	xport_mr *mr;   /* local */
	uint8_t *local; /* a mark, and the bytes */
	pthread_mutex_t lock;
	enum step step;
	bool posted; /* an operation is under way; else it has to be posted yet */
	int tries;
	_Atomic uint64_t version, retries; /* read without the lock */
	uint64_t seen, old_lock;
	uint64_t next; /* what a write makes of it; nobody's version before the lock was given back */
	uint64_t mine; /* what the lock is while it is held here; nobody else's */
	void *to;
};

static const size_t MARK = sizeof(struct svc_mark);

static uint8_t *body(struct xport_versioned_peer *p)
{
	return p->local + sizeof(struct svc_mark);
}

/* ---- operations ---- */

static int get(struct xport_versioned_peer *p, uint8_t *to, size_t length, uint64_t at)
{
	struct xport_opt o = {.size = sizeof(o), .context = p, .mr = p->mr};

	return xport_get(p->ep, to, length, p->rkey, p->offset + at, &o);
}

static int versioned_put(struct xport_versioned_peer *p, const uint8_t *from, size_t length, uint64_t at)
{
	struct xport_opt o = {.size = sizeof(o), .context = p, .mr = p->mr};

	return xport_put(p->ep, from, length, p->rkey, p->offset + at, &o);
}

/* From one value to another; what it was goes to old_lock. */
static int versioned_lock(struct xport_versioned_peer *p, uint64_t from, uint64_t to)
{
	struct xport_opt o = {.size = sizeof(o), .context = p};
	struct xport_atomic_args a = {.size = sizeof(a),
	                              .op = XPORT_ATOMIC_CAS,
	                              .width = 8,
	                              .operand = to,
	                              .compare = from,
	                              .result = &p->old_lock};

	return xport_atomic(p->ep, &a, p->rkey, p->offset + SVC_LOCK, &o);
}

static int post_read_body(struct xport_versioned_peer *p)
{
	if (p->a.form == XPORT_VERSIONED_CHECKED)
		return get(p, body(p), p->a.length, SVC_BODY);
	return get(p, p->local, MARK + p->a.length,
	           p->a.form == XPORT_VERSIONED_SUMMED ? SVC_MARK : svc_snapshot_copy(&p->a, p->seen));
}

static int post_write_mark(struct xport_versioned_peer *p, uint64_t version)
{
	struct svc_mark m = svc_mark_alone(version);

	memcpy(p->local, &m, MARK);
	return versioned_put(p, p->local, MARK, SVC_MARK);
}

static int post_write_body(struct xport_versioned_peer *p)
{
	struct svc_mark m;

	if (p->a.form == XPORT_VERSIONED_CHECKED)
		return versioned_put(p, body(p), p->a.length, SVC_BODY);
	m = svc_mark_over(p->next, body(p), p->a.length);
	memcpy(p->local, &m, MARK);
	return versioned_put(p, p->local, MARK + p->a.length, SVC_MARK);
}

static int versioned_post(struct xport_versioned_peer *p)
{
	switch (p->step) {
	case READ_MARK:
	case READ_MARK_AGAIN:
	case WRITE_MARK:
		return get(p, p->local, MARK, SVC_MARK);
	case READ_BODY:
		return post_read_body(p);
	case LOCK:
		return versioned_lock(p, 0, p->mine);
	case WRITE_ODD:
		return post_write_mark(p, p->next - 1);
	case WRITE_BODY:
		return post_write_body(p);
	case WRITE_EVEN:
		return post_write_mark(p, p->next);
	case UNLOCK:
		return versioned_lock(p, p->mine, 0);
	default:
		return XPORT_ERR_INVALID;
	}
}

/* Returns 1: it is under way, or waits for room in the queue. */
static int versioned_go(struct xport_versioned_peer *p, enum step step)
{
	int r;

	p->step = step;
	r = versioned_post(p);
	p->posted = r == XPORT_OK;
	if (r == XPORT_OK || r == XPORT_ERR_AGAIN)
		return 1;
	p->step = IDLE;
	return svc_pass(p->x, r, "xport_versioned_peer_step");
}

/* ---- steps ---- */

static int end(struct xport_versioned_peer *p, int status)
{
	p->step = IDLE;
	return status;
}

static enum step first_read(const struct xport_versioned_peer *p)
{
	return p->a.form == XPORT_VERSIONED_SUMMED ? READ_BODY : READ_MARK;
}

static int again(struct xport_versioned_peer *p, enum step step)
{
	if (step != LOCK)
		p->retries++;
	if (++p->tries < p->a.tries)
		return versioned_go(p, step);
	end(p, XPORT_ERR_AGAIN);
	return svc_fail(XPORT_ERR_AGAIN, "xport_versioned_peer_step",
	                step == LOCK
	                        ? "call again; if the lock's holder died, the owner must call xport_versioned_recover"
	                        : "call again, or write less often; form COPIES does not have this problem",
	                step == LOCK ? "another peer held the lock at each of %d tries"
	                             : "the bytes changed during each of %d reads",
	                p->a.tries);
}

static int got_bytes(struct xport_versioned_peer *p, uint64_t version)
{
	p->version = version;
	memcpy(p->to, body(p), p->a.length);
	return end(p, XPORT_OK);
}

static int read_on(struct xport_versioned_peer *p)
{
	uint64_t version;

	if (p->step == READ_BODY && p->a.form == XPORT_VERSIONED_CHECKED)
		return versioned_go(p, READ_MARK_AGAIN);
	if (p->step == READ_BODY) {
		if (svc_mark_read_over(p->local, body(p), p->a.length, &version) &&
		    (p->a.form == XPORT_VERSIONED_SUMMED || version == p->seen))
			return got_bytes(p, version);
		return again(p, first_read(p));
	}
	if (!svc_mark_read_alone(p->local, &version) || version % 2 != 0)
		return again(p, READ_MARK);
	if (p->step == READ_MARK_AGAIN && version == p->seen)
		return got_bytes(p, version);
	if (p->step == READ_MARK_AGAIN) {
		/* It is the version before the next try. */
		p->seen = version;
		return again(p, READ_BODY);
	}
	p->seen = version;
	return versioned_go(p, READ_BODY);
}

static int write_on(struct xport_versioned_peer *p)
{
	uint64_t version;

	switch (p->step) {
	case LOCK:
		return p->old_lock == 0 ? versioned_go(p, WRITE_MARK) : again(p, LOCK);
	case WRITE_MARK:
		/* With the lock held it is a whole one, but for one that a writer left who died. */
		memcpy(&version, p->local, sizeof(version));
		p->next = (le64toh(version) | 1) + 1;
		return versioned_go(p, p->a.form == XPORT_VERSIONED_CHECKED ? WRITE_ODD : WRITE_BODY);
	case WRITE_ODD:
		return versioned_go(p, WRITE_BODY);
	case WRITE_BODY:
		return versioned_go(p, p->a.form == XPORT_VERSIONED_CHECKED ? WRITE_EVEN : UNLOCK);
	case WRITE_EVEN:
		return versioned_go(p, UNLOCK);
	default:
		if (p->old_lock == p->mine) {
			p->version = p->next;
			return end(p, XPORT_OK);
		}
		end(p, XPORT_ERR_AGAIN);
		return svc_fail(XPORT_ERR_AGAIN, "xport_versioned_peer_step", "write again",
		                "the owner took the lock away during the write: another write may have overlapped");
	}
}

static int versioned_step(struct xport_versioned_peer *p, const struct xport_completion *c)
{
	if (p->step == IDLE)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_peer_step", NULL,
		                "no read or write is in progress");
	if (!p->posted)
		return versioned_go(p, p->step);
	if (c == NULL)
		return 1;
	p->posted = false;
	if (c->status != XPORT_OK) {
		end(p, c->status);
		return svc_fail(c->status, "xport_versioned_peer_step", NULL, "an operation failed: %s",
		                xport_strerror(c->status));
	}
	atomic_thread_fence(memory_order_acq_rel);
	return p->step < LOCK ? read_on(p) : write_on(p);
}

/* ---- public ---- */

int xport_versioned_peer_step(xport_versioned_peer *p, const struct xport_completion *c)
{
	int r;

	if (p == NULL || (c != NULL && c->context != p))
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_peer_step", NULL, "%s",
		                p == NULL ? "peer is NULL" : "the completion does not belong to this object");
	pthread_mutex_lock(&p->lock);
	r = versioned_step(p, c);
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* To read into `to`, or to write what is `from`. */
static int versioned_begin(struct xport_versioned_peer *p, void *to, const void *from, const char *operation)
{
	int r;

	pthread_mutex_lock(&p->lock);
	if (p->step != IDLE) {
		r = svc_fail(XPORT_ERR_BUSY, operation, "wait for it to end", "a read or write is in progress");
	} else {
		p->tries = 0;
		p->to = to;
		if (from != NULL)
			memcpy(body(p), from, p->a.length);
		r = versioned_go(p, from != NULL ? LOCK : first_read(p));
	}
	pthread_mutex_unlock(&p->lock);
	return r < 0 ? r : XPORT_OK;
}

int xport_versioned_peer_read(xport_versioned_peer *p, void *data)
{
	if (p == NULL || data == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_peer_read", NULL, "an argument is NULL");
	return versioned_begin(p, data, NULL, "xport_versioned_peer_read");
}

int xport_versioned_peer_write(xport_versioned_peer *p, const void *data)
{
	if (p == NULL || data == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_peer_write", NULL, "an argument is NULL");
	if (p->a.form == XPORT_VERSIONED_COPIES)
		return svc_fail(XPORT_ERR_NOT_SUPPORTED, "xport_versioned_peer_write", "use CHECKED or SUMMED",
		                "only the owner can write an object in form COPIES");
	return versioned_begin(p, NULL, data, "xport_versioned_peer_write");
}

/* 1: an operation is posted; 0: it waits for room in the queue; -1: nothing is under way. */
static int versioned_under_way(struct xport_versioned_peer *p)
{
	int r;

	pthread_mutex_lock(&p->lock);
	r = p->step == IDLE ? -1 : p->posted;
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* How long the next sleep may be; a step that waits for room in the queue is not told of by a completion. */
static int left_ms(struct xport_versioned_peer *p, int64_t until)
{
	int64_t left = until < 0 ? INT32_MAX : until - svc_now_ms();

	if (versioned_under_way(p) < 1 && left > 1)
		left = 1;
	return left < 0 ? 0 : (int)left;
}

int xport_versioned_peer_wait(xport_versioned_peer *p, xport_completion_fn other, void *arg, int timeout_ms)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	struct xport_completion c;
	int n, r = svc_time_valid(timeout_ms, "xport_versioned_peer_wait");

	if (r != XPORT_OK)
		return r;
	if (p == NULL || versioned_under_way(p) < 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_peer_wait", NULL,
		                "no read or write is in progress");
	r = 1;
	/* It goes on before it looks at the clock, also if it may not wait; and whatever others do the limit holds. */
	for (bool late = false; r == 1; late = until >= 0 && svc_now_ms() >= until) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, "xport_versioned_peer_wait", NULL,
			                "the time limit of %d ms expired", timeout_ms);
		n = xport_poll(p->x, &c, 1);
		if (n == 0)
			n = xport_wait(p->x, &c, 1, left_ms(p, until));
		if (n < 0)
			return svc_pass(p->x, n, "xport_versioned_peer_wait");
		if (n > 0 && c.context != p && other != NULL)
			other(arg, &c);
		r = xport_versioned_peer_step(p, n > 0 && c.context == p ? &c : NULL);
	}
	return r;
}

uint64_t xport_versioned_peer_version(const xport_versioned_peer *p)
{
	return p->version;
}

uint64_t xport_versioned_peer_retries(const xport_versioned_peer *p)
{
	return p->retries;
}

int xport_versioned_peer_create(xport *x, xport_ep *ep, xport_rkey *rkey, uint64_t offset,
                                const struct xport_versioned_attr *attr, xport_versioned_peer **peer)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	struct xport_versioned_attr a;
	struct xport_versioned_peer *p;
	int r = svc_snapshot_attr(attr, &a, "xport_versioned_peer_create");

	if (r != XPORT_OK)
		return r;
	if (x == NULL || ep == NULL || rkey == NULL || peer == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_peer_create", NULL, "an argument is NULL");
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_versioned_peer_create", NULL, "out of memory");
	r = xport_mr_alloc(x, MARK + a.length, 0, &p->mr);
	if (r == XPORT_OK && (r = xport_mr_query(p->mr, &info)) != XPORT_OK)
		(void)xport_mr_dereg(p->mr);
	if (r != XPORT_OK) {
		free(p);
		return svc_pass(x, r, "xport_versioned_peer_create");
	}
	p->x = x;
	p->ep = ep;
	p->rkey = rkey;
	p->offset = offset;
	p->a = a;
	p->local = info.base;
	if (getrandom(&p->mine, sizeof(p->mine), 0) != sizeof(p->mine))
		p->mine = (uintptr_t)p;
	p->mine = p->mine >> 1 | 1;
	pthread_mutex_init(&p->lock, NULL);
	*peer = p;
	return XPORT_OK;
}

void xport_versioned_peer_destroy(xport_versioned_peer *p)
{
	if (p == NULL)
		return;
	(void)xport_mr_dereg(p->mr);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
