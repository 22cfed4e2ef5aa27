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

static size_t request_size(size_t len)
{
	return sizeof(struct svc_rpc_request) + SVC_RPC_ALIGN + len;
}

void svc_rpc_request_free(struct xport_rpcs *r, struct svc_rpc_request *q)
{
	svc_ring_remove(&q->node.link);
	svc_ring_remove(&q->of_peer);
	if (q->peer != NULL)
		q->peer->active--;
	svc_slot_give(&r->requests, q->id);
	r->request_bytes -= request_size(q->len) + q->reply_len;
	r->info.active--;
	svc_rpc_bulks_end(&q->bulks);
	free(q->reply);
	free(q);
}

static struct svc_rpc_request *request_add(struct xport_rpcs *r, struct svc_rpc_peer *p,
                                           const struct svc_rpc_message *m, struct svc_rpc_method *method)
{
	struct svc_rpc_request *q = malloc(request_size(m->len));
	uintptr_t skew;

	if (q == NULL)
		return NULL;
	*q = (struct svc_rpc_request){.peer = p,
	                              .ep = p->msgq->ep,
	                              .method = method,
	                              .id = svc_slot_take(&r->requests, q),
	                              .call = m->id,
	                              .until = svc_coarse_ms() + m->ms,
	                              .flags = m->flags,
	                              .nbulks = m->credits,
	                              .bulks.bytes = m->size,
	                              .len = m->len};
	memcpy(q->trace, m->trace, sizeof(q->trace));
	skew = ((uintptr_t)q->memory + q->bulks.bytes) % SVC_RPC_ALIGN;
	q->bytes = q->memory + (SVC_RPC_ALIGN - skew);
	if (m->len > 0)
		memcpy(q->bytes, m->payload, m->len);
	svc_ring_init(&q->node.link);
	svc_ring_init(&q->of_peer);
	svc_ring_push(&p->requests, &q->of_peer);
	svc_ring_push(method->fn != NULL ? &r->ready : &r->events, &q->node.link);
	atomic_store_explicit(method->fn != NULL ? &r->any_ready : &r->any_event, true, memory_order_relaxed);
	p->active++;
	r->request_bytes += request_size(q->len);
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
	/* It looks at no descriptors: their bytes are not its payload. */
	if ((m->flags & XPORT_RPC_ONE_WAY) == 0)
		a.len = svc_rpc_builtin(r, method, m->payload + m->size, m->len - m->size, r->scratch, p->takes);
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

/* Nobody waits for the reply of a request that the application has. */
static void request_abandoned(struct xport_rpcs *r, struct svc_rpc_request *q)
{
	if ((r->a.flags & XPORT_RPCS_TELL_ABANDONED) == 0 || (q->flags & XPORT_RPC_ONE_WAY) != 0 || q->reply != NULL)
		return;
	if (svc_ring_empty(&q->node.link))
		svc_ring_push(&r->events, &q->node.link);
	atomic_store_explicit(&r->any_event, true, memory_order_relaxed);
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
		if (!q->cancelled)
			request_abandoned(r, q);
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
		else if (!q->cancelled)
			request_abandoned(r, q);
	}
	p->active = 0;
	r->kept_again = true;
}

/* Returns XPORT_OK, or why nothing can be sent; INVALID is not among these. */
static int request_state(const struct svc_rpc_request *q)
{
	return q->cancelled ? XPORT_ERR_CANCELED : q->peer == NULL ? q->ended : XPORT_OK;
}

void svc_rpc_abandoned_event(struct svc_rpc_request *q, struct xport_rpc_event *event)
{
	svc_ring_remove(&q->node.link);
	event->type = XPORT_RPC_ABANDONED;
	event->id = q->id;
	event->context = q->method->arg;
	event->ep = q->ep;
	event->method = q->method->name;
	event->status = request_state(q);
}

static void request_event(const struct svc_rpc_request *q, int64_t now, struct xport_rpc_event *event)
{
	event->type = XPORT_RPC_REQUEST;
	event->id = q->id;
	event->context = q->method->arg;
	event->ep = q->ep;
	event->method = q->method->name;
	event->payload = q->bytes + q->bulks.bytes;
	event->len = q->len - q->bulks.bytes;
	event->bulks = q->bulks.bulk;
	event->nbulks = q->bulks.n;
	event->flags = q->flags;
	event->left_ms = q->until > now ? (uint32_t)(q->until - now) : 0;
	memcpy(event->trace, q->trace, sizeof(event->trace));
}

bool svc_rpc_request_take(struct xport_rpcs *r, struct svc_rpc_request *q, struct xport_rpc_event *event)
{
	int64_t now = svc_coarse_ms();

	struct svc_msgq_peer *to = q->peer->msgq;
	int status = q->until + SVC_COARSE_MS <= now ? XPORT_ERR_TIMEOUT : XPORT_OK;

	if (status == XPORT_OK && q->nbulks > 0)
		status = svc_rpc_bulks_unpack(&q->bulks, q->ep, q->nbulks, q->bytes);
	if (status != XPORT_OK) {
		answer_or_end(to, request_drop(r, q, status));
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

/* Whether the application has it, and has not replied. */
static bool request_with_app(const struct svc_rpc_request *q)
{
	return q != NULL && q->taken && q->reply == NULL;
}

/* After all calls that pass its descriptors on are over. */
static int reply_send(const struct svc_rpc_request *q, struct svc_msgq_peer *to, struct svc_rpc_message *m)
{
	m->flags = svc_rpc_bulks_doubtful(&q->bulks) ? SVC_RPC_DOUBTFUL : 0;
	return svc_rpc_send(to, m, true);
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
	if (to != NULL && svc_rpc_bulks_busy(&q->bulks))
		sent = svc_rpc_reply_keep(r, q, &m);
	else if (to != NULL && !q->answered)
		sent = reply_send(q, to, &m);
	if (sent == XPORT_ERR_NO_MEMORY)
		return svc_fail(sent, "xport_rpc_reply", NULL, "out of memory");
	q->method->errors += status != XPORT_OK;
	if (q->reply == NULL)
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
	result = request_with_app(q) ? request_reply(r, q, status, payload, len) : request_unknown("xport_rpc_reply");
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
	if (!request_with_app(q)) {
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
