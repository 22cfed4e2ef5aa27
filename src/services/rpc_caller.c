/* SPDX-License-Identifier: BSD-3-Clause */
/* The caller's side: calls in the queue of their peer, in flight, and done. */
#include <stdlib.h>
#include <string.h>

#include "services/grow.h"
#include "services/last_error.h"
#include "services/rpc.h"

enum { SHORT_MS = 200 }; /* deadlines below it are exact */

/* ---- the end of a call ---- */

static void call_event_push(struct xport_rpcs *r, struct svc_rpc_call *call)
{
	if (svc_ring_empty(&call->node.link))
		svc_ring_push(&r->events, &call->node.link);
	atomic_store_explicit(&r->any_event, true, memory_order_relaxed);
}

static void call_free(struct xport_rpcs *r, struct svc_rpc_call *call)
{
	svc_slot_give(&r->calls, call->id);
}

static void call_unqueue(struct xport_rpcs *r, struct svc_rpc_call *call)
{
	if (call->sent)
		return;
	free(call->payload);
	call->payload = NULL;
	r->info.queued--;
}

/* Nothing of the callee's can come for the call any more. */
static void call_released(struct xport_rpcs *r, struct svc_rpc_call *call, int status)
{
	svc_ring_remove(&call->of_peer);
	call->peer = NULL;
	if ((call->flags & XPORT_RPC_LENT) == 0)
		return;
	call->released = true;
	call->release_status = status;
	call_event_push(r, call);
}

static void call_done(struct xport_rpcs *r, struct svc_rpc_call *call, int status, int ran, const char *why)
{
	svc_ring_remove(&call->open);
	call_unqueue(r, call);
	call->done = true;
	call->status = status;
	call->ran = ran;
	call->why = why;
	r->info.timeouts += status == XPORT_ERR_TIMEOUT && ran != XPORT_RPC_RAN_YES;
	call_event_push(r, call);
}

/* Ends a call on this side. One that was sent and lent memory stays with its peer until the callee answers. */
static void call_end(struct xport_rpcs *r, struct svc_rpc_call *call, int status, const char *why)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION, .type = SVC_RPC_CANCEL, .id = call->id};
	bool sent = call->sent;

	call_done(r, call, status, sent ? XPORT_RPC_RAN_UNKNOWN : XPORT_RPC_RAN_NO, why);
	if (sent && svc_msgq_clear(call->peer->msgq)) {
		struct svc_msgq_peer *to = call->peer->msgq;

		if ((call->flags & XPORT_RPC_LENT) == 0)
			call_released(r, call, XPORT_OK);
		(void)svc_rpc_send(to, &m, true); /* it may end the peer, and then all of its calls */
		return;
	}
	if (!sent || (call->flags & XPORT_RPC_LENT) == 0)
		call_released(r, call, XPORT_OK);
}

void svc_rpc_call_event(struct xport_rpcs *r, struct svc_rpc_call *call, struct xport_rpc_event *event)
{
	event->id = call->id;
	event->context = call->context;
	event->ep = call->ep;
	if (call->done) {
		call->done = false;
		event->type = XPORT_RPC_DONE;
		event->status = call->status;
		event->ran = call->ran;
		event->why = call->why;
		event->retry_after_ms = call->retry_after_ms;
		event->len = call->reply_len;
	} else {
		call->released = false;
		event->type = XPORT_RPC_RELEASED;
		event->status = call->release_status;
	}
	if (call->released)
		return;
	svc_ring_remove(&call->node.link);
	if (call->peer == NULL)
		call_free(r, call);
}

static const char *end_text(int status)
{
	return status == XPORT_ERR_PROTOCOL ? "the peer violated the protocol, and is ignored"
	                                    : "the endpoint ended, or the peer destroyed its calls";
}

static void calls_end_list(struct xport_rpcs *r, struct svc_link *list, int status)
{
	while (!svc_ring_empty(list)) {
		struct svc_rpc_call *call = SVC_OF(list->next, struct svc_rpc_call, of_peer);
		bool left = call->sent && !call->posting;

		if (!svc_ring_empty(&call->open))
			call_done(r, call, status, left ? XPORT_RPC_RAN_UNKNOWN : XPORT_RPC_RAN_NO, end_text(status));
		call_released(r, call, status);
	}
}

void svc_rpc_calls_end(struct xport_rpcs *r, struct svc_rpc_peer *p, int status)
{
	calls_end_list(r, &p->sent, status);
	calls_end_list(r, &p->queue, status);
	svc_ring_remove(&p->stalled);
}

/* ---- sending ---- */

static uint32_t call_left(const struct svc_rpc_call *call, int64_t now)
{
	int64_t left = call->until - now;

	return left < 1 ? 1 : left > call->deadline_ms ? call->deadline_ms : (uint32_t)left;
}

/* Sends a call, whose payload is at `payload`. Returns XPORT_OK if it left, or NO_MEMORY. */
static int call_post(struct svc_rpc_call *call, const void *payload, int64_t now)
{
	struct svc_rpc_peer *p = call->peer;
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_CALL,
	                            .flags = (uint8_t)call->flags,
	                            .id = call->id,
	                            .method = call->method,
	                            .ms = call_left(call, now),
	                            .payload = payload,
	                            .len = call->len};
	int status;

	memcpy(m.trace, call->trace, sizeof(m.trace));
	/* Before it is sent: sending may find that the endpoint has ended, and then ends the call. */
	svc_ring_remove(&call->of_peer);
	svc_ring_push(&p->sent, &call->of_peer);
	call->sent = true;
	p->in_flight++;
	call->posting = true;
	status = svc_rpc_send(p->msgq, &m, false);
	call->posting = false;
	if (status != XPORT_ERR_NO_MEMORY)
		return XPORT_OK;
	p->in_flight--;
	call->sent = false;
	svc_ring_remove(&call->of_peer);
	call->of_peer.next = p->queue.next; /* it was the first one */
	call->of_peer.prev = &p->queue;
	p->queue.next->prev = &call->of_peer;
	p->queue.next = &call->of_peer;
	return status;
}

static bool peer_takes_call(const struct svc_rpc_peer *p)
{
	return p->greeting == SVC_RPC_MET && p->in_flight < p->credits && svc_msgq_clear(p->msgq);
}

/* Sends what is queued for the peer, as far as its credits reach. */
static void rpc_peer_pump(struct xport_rpcs *r, struct svc_msgq_peer *msgq)
{
	int64_t now = svc_coarse_ms();
	struct svc_rpc_peer *p;

	/* Sending may end the peer: it is looked up each time. */
	while (msgq->ended == XPORT_OK && (p = msgq->user) != NULL && !svc_ring_empty(&p->queue)) {
		struct svc_rpc_call *call = SVC_OF(p->queue.next, struct svc_rpc_call, of_peer);
		uint8_t *payload = call->payload;

		svc_ring_remove(&p->stalled);
		if (p->greeting == SVC_RPC_MET && p->refused != XPORT_OK) {
			call_end(r, call, p->refused, "the peer speaks another version");
			continue;
		}
		if (p->greeting == SVC_RPC_MET && call->len > p->max_payload) {
			call_end(r, call, XPORT_ERR_BOUNDS, "the payload is longer than the peer takes");
			continue;
		}
		if (p->greeting != SVC_RPC_MET || p->in_flight >= p->credits)
			return; /* WELCOME or a reply goes on */
		if (!svc_msgq_clear(msgq)) {
			svc_ring_push(&r->stalled, &p->stalled);
			return;
		}
		call->payload = NULL;
		r->info.queued--;
		if (call_post(call, payload, now) == XPORT_OK) {
			free(payload);
			continue;
		}
		call->payload = payload;
		r->info.queued++;
		svc_ring_push(&r->stalled, &p->stalled);
		return;
	}
}

/* Asks the peer for its limits. */
static int greet(struct xport_rpcs *r, struct svc_rpc_peer *p)
{
	struct svc_rpc_message m = {
		.version = SVC_RPC_VERSION, .type = SVC_RPC_HELLO, .id = 1, .size = r->a.max_payload};

	p->greeting = SVC_RPC_ASKED;
	return svc_rpc_send(p->msgq, &m, false);
}

/* ---- time ---- */

static void calls_expire(struct xport_rpcs *r, int64_t now)
{
	struct svc_link *l = r->open.next;
	struct svc_link expired;

	r->next_deadline = INT64_MAX;
	svc_ring_init(&expired);
	while (l != &r->open) {
		struct svc_rpc_call *call = SVC_OF(l, struct svc_rpc_call, open);

		l = l->next;
		if (call->until <= now) {
			svc_ring_remove(&call->open);
			svc_ring_push(&expired, &call->open);
		} else if (call->until < r->next_deadline) {
			r->next_deadline = call->until;
		}
	}
	/* Ending one may end others, which leave the list then. */
	while (!svc_ring_empty(&expired))
		call_end(r, SVC_OF(expired.next, struct svc_rpc_call, open), XPORT_ERR_TIMEOUT, "the deadline expired");
}

void svc_rpc_calls_work(struct xport_rpcs *r)
{
	struct svc_link *l, *next;

	if (r->next_deadline != INT64_MAX && svc_coarse_ms() + SVC_COARSE_MS >= r->next_deadline) {
		int64_t now = svc_now_ms();

		if (now >= r->next_deadline)
			calls_expire(r, now);
	}
	for (l = r->stalled.next; l != &r->stalled; l = next) {
		struct svc_rpc_peer *p = SVC_OF(l, struct svc_rpc_peer, stalled);

		next = l->next;
		if (!svc_msgq_clear(p->msgq))
			continue;
		rpc_peer_pump(r, p->msgq);
		break; /* the others may have ended meanwhile; their turn is the next one */
	}
}

int svc_rpc_calls_timeout(const struct xport_rpcs *r)
{
	int64_t left;

	if (!svc_ring_empty(&r->stalled))
		return 1;
	if (r->next_deadline == INT64_MAX)
		return -1;
	left = r->next_deadline - svc_now_ms();
	return left < 0 ? 0 : (int)left;
}

/* ---- what the callee sends ---- */

int svc_rpc_welcome(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m)
{
	struct svc_rpc_peer *p = from->user;

	if (p->greeting != SVC_RPC_ASKED)
		return XPORT_OK;
	p->greeting = SVC_RPC_MET;
	p->refused = m->version != SVC_RPC_VERSION ? XPORT_ERR_INCOMPATIBLE : m->status;
	p->max_payload = m->size < r->a.max_payload ? m->size : r->a.max_payload;
	p->credits = m->credits < SVC_MSGQ_WINDOW ? m->credits : SVC_MSGQ_WINDOW;
	rpc_peer_pump(r, from);
	return XPORT_OK;
}

static void call_reply(struct xport_rpcs *r, struct svc_rpc_call *call, const struct svc_rpc_message *m)
{
	size_t len = m->len < call->reply_max ? m->len : call->reply_max;
	int status = m->status;
	const char *why = "";

	if (len > 0)
		memcpy(call->reply, m->payload, len);
	call->reply_len = m->len;
	call->retry_after_ms = m->ms;
	if (m->ran == XPORT_RPC_RAN_NO) {
		why = status == XPORT_ERR_NOT_SUPPORTED ? "the peer has no such method"
		      : status == XPORT_ERR_BUSY        ? "the peer holds too many requests"
		      : status == XPORT_ERR_NO_MEMORY   ? "the peer is out of memory"
		                                        : "the request expired before its handler ran";
	} else if (m->len > call->reply_max && call->reply != NULL) {
		status = XPORT_ERR_TRUNCATED;
		why = "the reply is longer than reply_max";
	}
	call_done(r, call, status, m->ran, why);
}

int svc_rpc_answer(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m, bool answered)
{
	struct svc_rpc_peer *p = from->user;
	struct svc_rpc_call *call = svc_slot_find(&r->calls, m->id);

	if (answered && p->in_flight > 0)
		p->in_flight--;
	/* A call that is over here has let go of its peer. */
	if (call != NULL && call->peer == p && call->sent) {
		if (!svc_ring_empty(&call->open))
			call_reply(r, call, m);
		call_released(r, call, XPORT_OK);
	}
	rpc_peer_pump(r, from);
	return XPORT_OK;
}

/* ---- public ---- */

static int args_check(const struct xport_rpcs *r, const struct xport_rpc_args *a, uint64_t hash, const char *method)
{
	static const char op[] = "xport_rpc_call";

	if (hash == 0)
		return svc_fail(XPORT_ERR_INVALID, op, NULL,
		                "a name has 1 to %d characters from [A-Za-z0-9._/-]; '%.80s' does not",
		                XPORT_RPC_NAME_MAX, method);
	if (a->deadline_ms == 0)
		return svc_fail(XPORT_ERR_INVALID, op, "set xport_rpc_args.deadline_ms",
		                "the call of '%s' has no deadline", method);
	if (a->deadline_ms > XPORT_RPC_DEADLINE_MAX)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "the deadline of %u ms is above %d ms",
		                (unsigned)a->deadline_ms, XPORT_RPC_DEADLINE_MAX);
	if ((a->flags & ~(uint32_t)(XPORT_RPC_ONE_WAY | XPORT_RPC_LENT)) != 0)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "xport_rpc_args.flags has unknown bits");
	if (a->flags == (XPORT_RPC_ONE_WAY | XPORT_RPC_LENT))
		return svc_fail(XPORT_ERR_INVALID, op, "use XPORT_RPC_LENT alone: its reply ends the loan",
		                "XPORT_RPC_ONE_WAY and XPORT_RPC_LENT exclude each other");
	if ((a->payload == NULL && a->len > 0) || (a->reply == NULL && a->reply_max > 0))
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "payload or reply is NULL, and its length is not 0");
	if (a->len > r->a.max_payload)
		return svc_fail(XPORT_ERR_BOUNDS, op, "register long data, and pass its key",
		                "the payload has %zu bytes; max_payload is %u", a->len, (unsigned)r->a.max_payload);
	return XPORT_OK;
}

/* A call that is in no list. NULL: all are taken. */
static struct svc_rpc_call *call_new(struct xport_rpcs *r, const struct xport_rpc_args *a, uint64_t method)
{
	struct svc_rpc_call *call;
	uint64_t id = svc_slot_take(&r->calls, NULL);

	if (id == 0)
		return NULL;
	call = &r->call[id & 0xffff];
	r->calls.slot[id & 0xffff].thing = call;
	*call = (struct svc_rpc_call){
		.node.call = true,
		.id = id,
		.method = method,
		.until = a->deadline_ms + (a->deadline_ms < SHORT_MS ? svc_now_ms() : svc_coarse_ms() + SVC_COARSE_MS),
		.deadline_ms = a->deadline_ms,
		.flags = a->flags,
		.context = a->context,
		.reply = a->reply,
		.reply_max = a->reply_max,
		.len = a->len};
	memcpy(call->trace, a->trace, sizeof(call->trace));
	svc_ring_init(&call->node.link);
	svc_ring_init(&call->open);
	svc_ring_init(&call->of_peer);
	return call;
}

/* Keeps a copy of the payload until the call can be sent. */
static int call_queue(struct xport_rpcs *r, struct svc_rpc_call *call, const struct xport_rpc_args *a)
{
	call->payload = malloc(a->len + 1);
	if (call->payload == NULL)
		return XPORT_ERR_NO_MEMORY;
	if (a->len > 0)
		memcpy(call->payload, a->payload, a->len);
	svc_ring_push(&call->peer->queue, &call->of_peer);
	r->info.queued++;
	return XPORT_OK;
}

/* Takes a new call back. */
static int call_undo(struct xport_rpcs *r, struct svc_rpc_call *call)
{
	svc_ring_remove(&call->open);
	svc_ring_remove(&call->of_peer);
	call_unqueue(r, call);
	call_free(r, call);
	return svc_fail(XPORT_ERR_NO_MEMORY, "xport_rpc_call", NULL, "out of memory");
}

static int call_begin(struct xport_rpcs *r, struct svc_rpc_peer *p, const struct xport_rpc_args *a, uint64_t method)
{
	struct svc_rpc_call *call;
	bool now = svc_ring_empty(&p->queue) && peer_takes_call(p);

	if (p->greeting == SVC_RPC_MET && p->refused != XPORT_OK)
		return svc_fail(p->refused, "xport_rpc_call", NULL, "the peer speaks another version");
	if (p->greeting == SVC_RPC_MET && a->len > p->max_payload)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_rpc_call", "register long data, and pass its key",
		                "the payload has %zu bytes; the peer takes %u", a->len, (unsigned)p->max_payload);
	call = call_new(r, a, method);
	if (call == NULL)
		return svc_fail(XPORT_ERR_AGAIN, "xport_rpc_call", "take events, then call again",
		                "%u calls are in progress", (unsigned)r->calls.size);
	call->peer = p;
	call->ep = p->msgq->ep;
	svc_ring_push(&r->open, &call->open);
	if (call->until < r->next_deadline)
		r->next_deadline = call->until;
	if (a->id != NULL)
		*a->id = call->id;
	if (!now && call_queue(r, call, a) != XPORT_OK) {
		call->sent = true; /* it is not queued */
		return call_undo(r, call);
	}
	if (now) {
		if (call_post(call, a->payload, call->until - a->deadline_ms) == XPORT_OK)
			return XPORT_OK;
		call->sent = true;
		return call_undo(r, call);
	}
	if (p->greeting == SVC_RPC_STRANGER && greet(r, p) == XPORT_ERR_NO_MEMORY) {
		p->greeting = SVC_RPC_STRANGER;
		return call_undo(r, call);
	}
	return XPORT_OK;
}

int xport_rpc_call(xport_rpcs *r, xport_ep *ep, const char *method, const struct xport_rpc_args *args)
{
	struct xport_rpc_args a;
	struct svc_msgq_peer *msgq;
	uint64_t hash;
	int status;

	if (r == NULL || ep == NULL || method == NULL || args == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_call", NULL, "an argument is NULL");
	status = svc_grow_in(&a, sizeof(a), SVC_FIRST_RPC_ARGS, args, "xport_rpc_call", "xport_rpc_args");
	if (status != XPORT_OK)
		return status;
	hash = svc_rpc_hash(method);
	status = args_check(r, &a, hash, method);
	if (status != XPORT_OK)
		return status;
	pthread_mutex_lock(&r->engine.lock);
	status = svc_engine_peer_known(&r->engine, ep, "xport_rpc_call", &msgq);
	if (status == XPORT_OK && svc_rpc_peer_of(r, msgq) == NULL)
		status = svc_fail(XPORT_ERR_NO_MEMORY, "xport_rpc_call", NULL, "out of memory");
	if (status == XPORT_OK)
		status = call_begin(r, msgq->user, &a, hash);
	pthread_mutex_unlock(&r->engine.lock);
	return status;
}

int xport_rpc_cancel(xport_rpcs *r, uint64_t id)
{
	struct svc_rpc_call *call;
	int status = XPORT_OK;

	if (r == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_cancel", NULL, "rpcs is NULL");
	pthread_mutex_lock(&r->engine.lock);
	call = svc_slot_find(&r->calls, id);
	if (call != NULL && !svc_ring_empty(&call->open))
		call_end(r, call, XPORT_ERR_CANCELED, "the call was cancelled");
	else
		status = svc_fail(XPORT_ERR_INVALID, "xport_rpc_cancel", "take XPORT_RPC_DONE",
		                  "no call with this id is in progress");
	pthread_mutex_unlock(&r->engine.lock);
	return status;
}
