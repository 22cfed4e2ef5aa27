/* SPDX-License-Identifier: BSD-3-Clause */
/* The callee's side: requests that wait for the application, and those that it has. */
#include <stdlib.h>
#include <string.h>

#include "services/last_error.h"
#include "services/rpc.h"

/* ---- answers ---- */

static int call_answer(struct svc_msgq_peer *to, uint64_t call, int status, int ran, uint32_t ms)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_REPLY,
	                            .ran = (uint8_t)ran,
	                            .id = call,
	                            .status = status,
	                            .ms = ms};

	return svc_rpc_send(to, &m, true);
}

int svc_rpc_hello(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m)
{
	struct svc_rpc_peer *p = from->user;
	struct svc_rpc_message w = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_WELCOME,
	                            .id = m->id,
	                            .size = r->a.max_payload,
	                            .credits = r->a.credits};

	if (m->version != SVC_RPC_VERSION)
		w.status = XPORT_ERR_INCOMPATIBLE;
	else
		p->takes = m->size < r->a.max_payload ? m->size : r->a.max_payload;
	p->greeted = m->version == SVC_RPC_VERSION;
	return svc_rpc_send(from, &w, true);
}

/* ---- requests ---- */

void svc_rpc_request_free(struct xport_rpcs *r, struct svc_rpc_request *q)
{
	svc_ring_remove(&q->node.link);
	svc_ring_remove(&q->of_peer);
	if (q->peer != NULL)
		q->peer->active--;
	svc_slot_give(&r->requests, q->id);
	r->request_bytes -= sizeof(*q) + q->len;
	r->info.active--;
	free(q);
}

static struct svc_rpc_request *request_add(struct xport_rpcs *r, struct svc_rpc_peer *p,
                                           const struct svc_rpc_message *m, struct svc_rpc_method *method)
{
	struct svc_rpc_request *q = malloc(sizeof(*q) + m->len);

	if (q == NULL)
		return NULL;
	*q = (struct svc_rpc_request){.peer = p,
	                              .ep = p->msgq->ep,
	                              .method = method,
	                              .id = svc_slot_take(&r->requests, q),
	                              .call = m->id,
	                              .until = svc_coarse_ms() + m->ms,
	                              .flags = m->flags,
	                              .len = m->len};
	memcpy(q->trace, m->trace, sizeof(q->trace));
	if (m->len > 0)
		memcpy(q->payload, m->payload, m->len);
	svc_ring_init(&q->node.link);
	svc_ring_init(&q->of_peer);
	svc_ring_push(&p->requests, &q->of_peer);
	svc_ring_push(method->fn != NULL ? &r->ready : &r->events, &q->node.link);
	atomic_store_explicit(method->fn != NULL ? &r->any_ready : &r->any_event, true, memory_order_relaxed);
	p->active++;
	r->request_bytes += sizeof(*q) + q->len;
	r->info.active++;
	return q;
}

static bool overloaded(const struct xport_rpcs *r, const struct svc_rpc_peer *p)
{
	return p->active >= r->a.credits || r->info.active + r->engine.msgq.replies >= r->a.max_active;
}

static int builtin_answer(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m,
                          struct svc_rpc_method *method)
{
	const struct svc_rpc_peer *p = from->user;
	struct svc_rpc_message a = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_REPLY,
	                            .ran = XPORT_RPC_RAN_YES,
	                            .id = m->id,
	                            .payload = r->scratch};

	method->calls++;
	if ((m->flags & XPORT_RPC_ONE_WAY) == 0)
		a.len = svc_rpc_builtin(r, method, m->payload, m->len, r->scratch, p->takes);
	return svc_rpc_send(from, &a, true);
}

int svc_rpc_request(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m)
{
	struct svc_rpc_method *method = svc_rpc_methods_find(&r->methods, m->method);
	struct svc_rpc_peer *p = from->user;

	if (!p->greeted)
		return XPORT_ERR_PROTOCOL;
	if (method == NULL)
		return call_answer(from, m->id, XPORT_ERR_NOT_SUPPORTED, XPORT_RPC_RAN_NO, 0);
	if (overloaded(r, p)) {
		r->info.busy++;
		return call_answer(from, m->id, XPORT_ERR_BUSY, XPORT_RPC_RAN_NO, r->a.retry_after_ms);
	}
	if (strncmp(method->name, "xport.", 6) == 0)
		return builtin_answer(r, from, m, method);
	if (request_add(r, p, m, method) == NULL)
		return call_answer(from, m->id, XPORT_ERR_NO_MEMORY, XPORT_RPC_RAN_NO, 0);
	return XPORT_OK;
}

/* Ends a request that the application has not seen. Returns as call_answer. */
static int request_drop(struct xport_rpcs *r, struct svc_rpc_request *q, int status)
{
	struct svc_msgq_peer *to = q->peer == NULL ? NULL : q->peer->msgq;
	uint64_t call = q->call;

	r->info.dropped++;
	svc_rpc_request_free(r, q);
	return to == NULL ? XPORT_OK : call_answer(to, call, status, XPORT_RPC_RAN_NO, 0);
}

/* An answer that does not answer a message just now: without memory for it the talk ends. */
static void answer_or_end(struct svc_msgq_peer *to, int sent)
{
	if (sent == XPORT_ERR_NO_MEMORY)
		svc_msgq_talk_over(to);
}

int svc_rpc_cancelled(struct xport_rpcs *r, struct svc_msgq_peer *from, const struct svc_rpc_message *m)
{
	struct svc_rpc_peer *p = from->user;

	for (struct svc_link *l = p->requests.next; l != &p->requests; l = l->next) {
		struct svc_rpc_request *q = SVC_OF(l, struct svc_rpc_request, of_peer);

		if (q->call != m->id)
			continue;
		if (!q->taken)
			return request_drop(r, q, XPORT_ERR_CANCELED);
		q->cancelled = true;
		/* The caller gets its credit back. But the memory that it has lent stays lent until the reply. */
		if (q->answered || (q->flags & XPORT_RPC_LENT) != 0)
			return XPORT_OK;
		q->answered = true;
		return call_answer(from, q->call, XPORT_ERR_CANCELED, XPORT_RPC_RAN_YES, 0);
	}
	return XPORT_OK;
}

/* Of a request that has ended: with XPORT_ERR_NO_MEMORY it would be one that has not. */
static int ended_status(int status)
{
	return status == XPORT_ERR_NO_MEMORY ? XPORT_ERR_CLOSED : status;
}

void svc_rpc_requests_end(struct xport_rpcs *r, struct svc_rpc_peer *p, int status)
{
	while (!svc_ring_empty(&p->requests)) {
		struct svc_rpc_request *q = SVC_OF(p->requests.next, struct svc_rpc_request, of_peer);

		svc_ring_remove(&q->of_peer);
		q->peer = NULL;
		q->ended = ended_status(status);
		if (!q->taken)
			(void)request_drop(r, q, status);
	}
	p->active = 0;
}

static void request_event(const struct svc_rpc_request *q, int64_t now, struct xport_rpc_event *event)
{
	event->type = XPORT_RPC_REQUEST;
	event->id = q->id;
	event->context = q->method->arg;
	event->ep = q->ep;
	event->method = q->method->name;
	event->payload = q->payload;
	event->len = q->len;
	event->flags = q->flags;
	event->left_ms = q->until > now ? (uint32_t)(q->until - now) : 0;
	memcpy(event->trace, q->trace, sizeof(event->trace));
}

bool svc_rpc_request_take(struct xport_rpcs *r, struct svc_rpc_request *q, struct xport_rpc_event *event)
{
	int64_t now = svc_coarse_ms();

	struct svc_msgq_peer *to = q->peer->msgq;

	if (q->until + SVC_COARSE_MS <= now) {
		answer_or_end(to, request_drop(r, q, XPORT_ERR_TIMEOUT));
		return false;
	}
	svc_ring_remove(&q->node.link);
	q->taken = true;
	q->method->calls++;
	r->info.requests++;
	request_event(q, now, event);
	if ((q->flags & XPORT_RPC_ONE_WAY) != 0) {
		q->answered = true;
		answer_or_end(to, call_answer(to, q->call, XPORT_OK, XPORT_RPC_RAN_YES, 0));
	}
	return true;
}

static bool ready_take(struct xport_rpcs *r, struct xport_rpc_event *event, xport_rpc_fn *fn)
{
	bool taken = false;

	pthread_mutex_lock(&r->engine.lock);
	while (!taken && !r->engine.destroying && !svc_ring_empty(&r->ready)) {
		struct svc_rpc_request *q = (struct svc_rpc_request *)SVC_OF(r->ready.next, struct svc_rpc_node, link);

		*fn = q->method->fn;
		taken = svc_rpc_request_take(r, q, event);
	}
	atomic_store_explicit(&r->any_ready, !svc_ring_empty(&r->ready) && !r->engine.destroying, memory_order_relaxed);
	pthread_mutex_unlock(&r->engine.lock);
	return taken;
}

void svc_rpc_dispatch(struct xport_rpcs *r)
{
	xport_rpc_fn fn;

	while (atomic_load_explicit(&r->any_ready, memory_order_relaxed)) {
		struct xport_rpc_event event = {.size = sizeof(event), .why = ""};

		if (ready_take(r, &event, &fn))
			fn(event.context, &event);
	}
}

/* ---- public ---- */

static int request_unknown(const char *operation)
{
	return svc_fail(XPORT_ERR_INVALID, operation, NULL, "no request has this id, or it was replied to already");
}

/* Returns XPORT_OK, or why nothing can be sent; INVALID is not among these. */
static int request_state(const struct svc_rpc_request *q)
{
	return q->cancelled ? XPORT_ERR_CANCELED : q->peer == NULL ? q->ended : XPORT_OK;
}

static int request_reply(struct xport_rpcs *r, struct svc_rpc_request *q, int status, const void *payload, size_t len)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_REPLY,
	                            .ran = XPORT_RPC_RAN_YES,
	                            .id = q->call,
	                            .status = status,
	                            .payload = payload,
	                            .len = len};
	struct svc_msgq_peer *to = q->peer == NULL ? NULL : q->peer->msgq;
	int state = request_state(q), sent = XPORT_OK;

	if (state != XPORT_OK) {
		m.status = state;
		m.len = 0;
	} else if ((q->flags & XPORT_RPC_ONE_WAY) != 0) {
		m.len = 0;
	} else if (len > q->peer->takes) {
		return svc_fail(XPORT_ERR_BOUNDS, "xport_rpc_reply",
		                "reply with less, or write to memory that the caller lends",
		                "the reply has %zu bytes; the caller takes %u", len, (unsigned)q->peer->takes);
	}
	if (to != NULL && !q->answered)
		sent = svc_rpc_send(to, &m, true);
	if (sent == XPORT_ERR_NO_MEMORY)
		return svc_fail(sent, "xport_rpc_reply", NULL, "out of memory");
	q->method->errors += status != XPORT_OK;
	svc_rpc_request_free(r, q);
	if (state == XPORT_OK && to != NULL) /* sending may have found that it has ended */
		state = ended_status(to->ended != XPORT_OK ? to->ended : to->refused);
	if (state != XPORT_OK)
		return svc_fail(state, "xport_rpc_reply", NULL, "%s",
		                state == XPORT_ERR_CANCELED ? "the caller no longer wants the reply"
		                                            : xport_strerror(state));
	return XPORT_OK;
}

int xport_rpc_reply(xport_rpcs *r, uint64_t id, int status, const void *payload, size_t len)
{
	struct svc_rpc_request *q;
	int result;

	if (r == NULL || (payload == NULL && len > 0))
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_reply", NULL, "%s",
		                r == NULL ? "rpcs is NULL" : "payload is NULL, and its length is not 0");
	if (status > XPORT_OK || status < XPORT_ERR_BUSY)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_reply", "put codes of your own into the payload",
		                "the status %d is not one of xport_status", status);
	pthread_mutex_lock(&r->engine.lock);
	q = svc_slot_find(&r->requests, id);
	result =
		q == NULL || !q->taken ? request_unknown("xport_rpc_reply") : request_reply(r, q, status, payload, len);
	pthread_mutex_unlock(&r->engine.lock);
	return result;
}

int xport_rpc_left(xport_rpcs *r, uint64_t id)
{
	struct svc_rpc_request *q;
	int64_t left;
	int state;

	if (r == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_left", NULL, "rpcs is NULL");
	pthread_mutex_lock(&r->engine.lock);
	q = svc_slot_find(&r->requests, id);
	if (q == NULL || !q->taken) {
		state = request_unknown("xport_rpc_left");
	} else {
		state = request_state(q);
		left = q->until - svc_now_ms();
		if (state != XPORT_OK)
			(void)svc_fail(state, "xport_rpc_left", NULL, "%s",
			               state == XPORT_ERR_CANCELED ? "the caller no longer wants the reply"
			                                           : xport_strerror(state));
		else
			state = left < 0 ? 0 : (int)left;
	}
	pthread_mutex_unlock(&r->engine.lock);
	return state;
}
