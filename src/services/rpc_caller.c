/* SPDX-License-Identifier: BSD-3-Clause */
/* The caller's side: calls in the queue of their peer, in flight, and done. */
#include <stdlib.h>
#include <string.h>

#include "services/grow.h"
#include "services/last_error.h"
#include "services/rpc.h"

enum { SHORT_MS = 200 }; /* deadlines below it are exact */
static const char OTHER_VERSION[] = "the peer speaks another version of these messages: use one release of libxport";

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
	svc_rpc_bulks_end(&call->bulks);
	r->lent -= call->lent;
	call->lent = false;
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

/*
 * Ends a call on this side. One that was sent and lent memory stays with its peer until the callee answers.
 *
 * CANCEL goes as a reply, which waits for no credit: nothing else gives the credits of calls back that nobody replies to. An
 * honest callee does not mute for lack of reading them: at most 32 CANCEL wait here, because no call leaves while they do,
 * and at most 32 replies to requests of the callee.
 */
static void call_end(struct xport_rpcs *r, struct svc_rpc_call *call, int status, const char *why)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION, .type = SVC_RPC_CANCEL, .id = call->id};
	struct svc_msgq_peer *to = call->peer->msgq;
	bool sent = call->sent;

	call_done(r, call, status, sent ? XPORT_RPC_RAN_UNKNOWN : XPORT_RPC_RAN_NO, why);
	call->lent = sent && (call->flags & XPORT_RPC_LENT) != 0;
	r->lent += call->lent;
	if (!call->lent)
		call_released(r, call, XPORT_OK);
	if (sent)
		(void)svc_rpc_send(to, &m, true); /* it may end the peer, and then all of its calls */
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
	switch (status) {
	case XPORT_ERR_PROTOCOL:
		return "the peer violated the protocol, and is ignored";
	case XPORT_ERR_NO_MEMORY:
		return "out of memory for the messages of this peer";
	case XPORT_ERR_TIMEOUT:
		return "the endpoint ended: an operation was older than XPORT_OP_TIMEOUT";
	case XPORT_ERR_CLOSED:
		return "the endpoint was closed here";
	case XPORT_ERR_PEER_CLOSED:
		return "the peer closed the endpoint, destroyed its calls, or ran out of memory";
	default:
		return "the endpoint ended";
	}
}

static void calls_end_list(struct xport_rpcs *r, struct svc_link *list, int status)
{
	while (!svc_ring_empty(list)) {
		struct svc_rpc_call *call = SVC_OF(list->next, struct svc_rpc_call, of_peer);
		bool left = call->sent && !call->posting;

		if (!svc_ring_empty(&call->open))
			call_done(r, call, status, left ? XPORT_RPC_RAN_UNKNOWN : XPORT_RPC_RAN_NO, end_text(status));
		if (left)
			svc_rpc_bulks_doubt(&call->bulks);
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

static void call_to_front(struct svc_link *queue, struct svc_link *l)
{
	svc_ring_remove(l);
	svc_ring_push(queue->next, l); /* before the first one */
}

/*
 * Sends a call, whose payload is at `payload`, now or not at all. Returns XPORT_OK if it is in `sent`, or over because this
 * side has closed the endpoint; AGAIN, NO_MEMORY, or the status by which the endpoint refuses: it is the first of `queue`.
 */
static int call_post(struct svc_rpc_call *call, const void *payload, int64_t now)
{
	struct svc_rpc_peer *p = call->peer;
	struct svc_msgq_peer *msgq = p->msgq;
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_CALL,
	                            .flags = (uint8_t)call->flags,
	                            .id = call->id,
	                            .method = call->method,
	                            .ms = call_left(call, now),
	                            .size = call->bulks.bytes,
	                            .credits = call->bulks.n,
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
	status = svc_rpc_post(msgq, &m);
	if (msgq->user != p) /* it has ended, with all of its calls */
		return XPORT_OK;
	call->posting = false;
	if (status == XPORT_OK)
		return XPORT_OK;
	p->in_flight--;
	call->sent = false;
	call_to_front(&p->queue, &call->of_peer);
	return status;
}

static bool peer_takes_call(const struct svc_rpc_peer *p)
{
	return p->greeting == SVC_RPC_MET && p->in_flight < p->credits;
}

/* Sends, or ends, the first call in the queue. Returns false if it must wait. */
static bool queue_advance(struct xport_rpcs *r, struct svc_rpc_peer *p, int64_t now)
{
	struct svc_rpc_call *call = SVC_OF(p->queue.next, struct svc_rpc_call, of_peer);
	uint8_t *payload = call->payload;

	if (p->greeting == SVC_RPC_MET && p->refused != XPORT_OK) {
		call_end(r, call, p->refused, OTHER_VERSION);
		return true;
	}
	if (p->greeting == SVC_RPC_MET && call->len > p->max_payload) {
		call_end(r, call, XPORT_ERR_BOUNDS, "the payload is longer than the peer takes");
		return true;
	}
	if (!peer_takes_call(p))
		return false; /* WELCOME or a reply goes on */
	call->payload = NULL;
	r->info.queued--;
	if (call_post(call, payload, now) == XPORT_OK) {
		free(payload);
		return true;
	}
	call->payload = payload;
	r->info.queued++;
	if (p->msgq->refused == XPORT_OK) /* else its event ends the call */
		svc_ring_push(&r->stalled, &p->stalled);
	return false;
}

/* Sends what is queued for the peer, as far as its credits reach. */
static void rpc_peer_pump(struct xport_rpcs *r, struct svc_msgq_peer *msgq)
{
	int64_t now = svc_coarse_ms();
	struct svc_rpc_peer *p = msgq->user;

	if (p == NULL)
		return;
	svc_ring_remove(&p->stalled);
	while (!svc_ring_empty(&p->queue) && queue_advance(r, p, now)) {
		p = msgq->user; /* sending may have ended it */
		if (p == NULL)
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
	unsigned n = 0;

	if (r->next_deadline != INT64_MAX && svc_coarse_ms() + SVC_COARSE_MS >= r->next_deadline) {
		int64_t now = svc_now_ms();

		if (now >= r->next_deadline)
			calls_expire(r, now);
	}
	/* Each one once. A peer that must wait again goes to the end, and any peer may end meanwhile. */
	for (const struct svc_link *l = r->stalled.next; l != &r->stalled; l = l->next)
		n++;
	for (; n > 0 && !svc_ring_empty(&r->stalled); n--)
		rpc_peer_pump(r, SVC_OF(r->stalled.next, struct svc_rpc_peer, stalled)->msgq);
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
	p->version = m->version;
	p->max_payload = m->size < r->a.max_payload ? m->size : r->a.max_payload;
	p->credits = m->credits < SVC_MSGQ_WINDOW ? m->credits : SVC_MSGQ_WINDOW;
	rpc_peer_pump(r, from);
	return XPORT_OK;
}

static const char *refusal_text(int status)
{
	return status == XPORT_ERR_NOT_SUPPORTED ? "the peer has no such method"
	       : status == XPORT_ERR_BUSY        ? "the peer holds too many requests"
	       : status == XPORT_ERR_NO_MEMORY   ? "the peer is out of memory"
	       : status == XPORT_ERR_BAD_KEY     ? "a descriptor of the call, or a key in it, is damaged or not allowed"
	       : status == XPORT_ERR_STALE_KEY   ? "a descriptor of the call is of memory that has ended"
	                                         : "the request expired before its handler ran";
}

/* Only XPORT_ERR_TRUNCATED comes with a length above reply_max: an application may trust all others. */
static void call_reply(struct xport_rpcs *r, struct svc_rpc_call *call, const struct svc_rpc_message *m)
{
	size_t len = m->len < call->reply_max ? m->len : call->reply_max;
	bool cut = m->len > len && call->reply != NULL;
	const char *why = m->ran == XPORT_RPC_RAN_NO ? refusal_text(m->status) : "";
	int status = m->status;

	if (len > 0)
		memcpy(call->reply, m->payload, len);
	if (cut && status == XPORT_OK) {
		status = XPORT_ERR_TRUNCATED;
		why = "the reply is longer than reply_max";
	}
	call->reply_len = cut && status != XPORT_ERR_TRUNCATED ? len : m->len;
	call->retry_after_ms = m->ms < XPORT_RPC_DEADLINE_MAX ? m->ms : XPORT_RPC_DEADLINE_MAX;
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
		if (m->flags == SVC_RPC_DOUBTFUL)
			svc_rpc_bulks_doubt(&call->bulks);
		call_released(r, call, m->flags == SVC_RPC_DOUBTFUL ? XPORT_ERR_UNREACHABLE : XPORT_OK);
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
		return svc_fail(XPORT_ERR_BOUNDS, op, "describe long data by xport_bulk_create, and pass it in bulks",
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
	svc_ring_remove(&call->of_peer);
	svc_ring_push(&call->peer->queue, &call->of_peer);
	r->info.queued++;
	return XPORT_OK;
}

/* Takes a new call back. */
static int call_undo(struct xport_rpcs *r, struct svc_rpc_call *call, int status)
{
	svc_ring_remove(&call->open);
	svc_ring_remove(&call->of_peer);
	if (call->payload != NULL)
		call_unqueue(r, call);
	svc_rpc_bulks_end(&call->bulks);
	call_free(r, call);
	if (status == XPORT_ERR_NO_MEMORY)
		return svc_fail(status, "xport_rpc_call", NULL, "out of memory");
	return svc_fail(status, "xport_rpc_call", NULL, "the endpoint is not open: %s", xport_strerror(status));
}

/* Sends a new call, or queues it. Returns XPORT_OK, NO_MEMORY, or the status by which the endpoint refuses. */
static int call_send(struct xport_rpcs *r, struct svc_rpc_call *call, const struct xport_rpc_args *a)
{
	struct svc_rpc_peer *p = call->peer;
	int status = XPORT_ERR_AGAIN;

	if (svc_ring_empty(&p->queue) && peer_takes_call(p))
		status = call_post(call, a->payload, call->until - a->deadline_ms);
	if (status != XPORT_ERR_AGAIN)
		return status;
	status = call_queue(r, call, a);
	if (status != XPORT_OK)
		return status;
	if (peer_takes_call(p) && svc_ring_empty(&p->stalled)) /* no reply is needed to go on, but space in the queue */
		svc_ring_push(&r->stalled, &p->stalled);
	if (p->greeting == SVC_RPC_STRANGER && greet(r, p) == XPORT_ERR_NO_MEMORY) {
		p->greeting = SVC_RPC_STRANGER;
		return XPORT_ERR_NO_MEMORY;
	}
	return XPORT_OK;
}

/* Whether the peer, as it has said, takes this call. Otherwise an error that is described. */
static int peer_check(const struct svc_rpc_peer *p, const struct xport_rpc_args *a)
{
	if (p->greeting != SVC_RPC_MET)
		return XPORT_OK;
	if (p->refused != XPORT_OK)
		return svc_fail(p->refused, "xport_rpc_call", "use one release of libxport on both sides",
		                "the peer speaks version %u of these messages, and this side version %d",
		                (unsigned)p->version, SVC_RPC_VERSION);
	if (a->len > p->max_payload)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_rpc_call",
		                "describe long data by xport_bulk_create, and pass it in bulks",
		                "the payload has %zu bytes; the peer takes %u", a->len, (unsigned)p->max_payload);
	return XPORT_OK;
}

static int calls_full(const struct xport_rpcs *r)
{
	if (r->lent == 0)
		return svc_fail(XPORT_ERR_AGAIN, "xport_rpc_call", "take events, then call again",
		                "%u calls are in progress", (unsigned)r->calls.size);
	return svc_fail(XPORT_ERR_AGAIN, "xport_rpc_call", "take events until XPORT_RPC_RELEASED, then call again",
	                "%u calls are in progress; %u of them are done, but still lend memory", (unsigned)r->calls.size,
	                r->lent);
}

/* After XPORT_OK the descriptors are the call's. */
static int call_begin(struct xport_rpcs *r, struct svc_rpc_peer *p, const struct xport_rpc_args *a, uint64_t method,
                      struct svc_rpc_bulks *bulks)
{
	struct svc_rpc_call *call;
	uint64_t id;
	int status = peer_check(p, a);

	if (status != XPORT_OK)
		return status;
	call = call_new(r, a, method);
	if (call == NULL)
		return calls_full(r);
	call->peer = p;
	call->ep = p->msgq->ep;
	call->bulks = *bulks;
	*bulks = (struct svc_rpc_bulks){0};
	id = call->id;
	svc_ring_push(&r->open, &call->open);
	if (call->until < r->next_deadline)
		r->next_deadline = call->until;
	status = call_send(r, call, a);
	if (status != XPORT_OK)
		return call_undo(r, call, status);
	if (a->id != NULL)
		*a->id = id;
	return XPORT_OK;
}

int xport_rpc_call(xport_rpcs *r, xport_ep *ep, const char *method, const struct xport_rpc_args *args)
{
	struct svc_rpc_bulks bulks = {0};
	struct xport_rpc_args a;
	struct svc_msgq_peer *msgq;
	uint8_t *bytes = NULL;
	uint64_t hash;
	int status;

	if (r == NULL || ep == NULL || method == NULL || args == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_call", NULL, "an argument is NULL");
	status = svc_grow_in(&a, sizeof(a), SVC_FIRST_RPC_ARGS, args, "xport_rpc_call", "xport_rpc_args");
	if (status != XPORT_OK)
		return status;
	hash = svc_rpc_hash(method);
	status = args_check(r, &a, hash, method);
	if (status == XPORT_OK && a.nbulks > 0)
		status = svc_rpc_bulks_pack(r, &bulks, &a, &bytes);
	if (status != XPORT_OK) {
		free(bytes);
		return status;
	}
	pthread_mutex_lock(&r->engine.lock);
	status = svc_engine_peer_known(&r->engine, ep, "xport_rpc_call", &msgq);
	if (status == XPORT_OK && svc_rpc_peer_of(r, msgq) == NULL)
		status = svc_fail(XPORT_ERR_NO_MEMORY, "xport_rpc_call", NULL, "out of memory");
	if (status == XPORT_OK)
		status = call_begin(r, msgq->user, &a, hash, &bulks);
	pthread_mutex_unlock(&r->engine.lock);
	svc_rpc_bulks_end(&bulks);
	free(bytes);
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
