/* SPDX-License-Identifier: BSD-3-Clause */
/* The remote procedure calls of an instance: their life, their events, and the loop that drives them. */
#include "services/rpc.h"

#include <stdlib.h>
#include <string.h>

#include "services/grow.h"
#include "services/last_error.h"

static const uint64_t TAG = UINT64_C(0x78706f7272706300);
/* PAYLOAD: with all heads it fits the shortest frame of a back end, 4096 bytes. */
enum { PAYLOAD = 3900, SLOTS = 1024, RETRY_MS = 10, OVERHEAD = SVC_MSGQ_HEAD + SVC_RPC_HEAD };

/* ---- peers ---- */

struct svc_rpc_peer *svc_rpc_peer_of(struct xport_rpcs *r, struct svc_msgq_peer *msgq)
{
	struct svc_rpc_peer *p = msgq->user;

	if (p != NULL || (p = calloc(1, sizeof(*p))) == NULL)
		return p;
	p->msgq = msgq;
	svc_ring_init(&p->queue);
	svc_ring_init(&p->sent);
	svc_ring_init(&p->stalled);
	svc_ring_init(&p->requests);
	msgq->user = p;
	r->peers++;
	return p;
}

int svc_rpc_send(struct svc_msgq_peer *to, const struct svc_rpc_message *m, bool reply)
{
	uint8_t head[SVC_RPC_HEAD];

	svc_rpc_encode(m, head);
	return svc_msgq_send(to, head, sizeof(head), m->payload, m->len, reply);
}

int svc_rpc_post(struct svc_msgq_peer *to, const struct svc_rpc_message *m)
{
	uint8_t head[SVC_RPC_HEAD];

	svc_rpc_encode(m, head);
	return svc_msgq_request_now(to, head, sizeof(head), m->payload, m->len);
}

static void rpc_peer_ended(void *service, struct svc_msgq_peer *from, int status)
{
	struct xport_rpcs *r = service;
	struct svc_rpc_peer *p = from->user;

	if (p == NULL)
		return;
	svc_rpc_calls_end(r, p, status);
	svc_rpc_requests_end(r, p, status);
	from->user = NULL;
	r->peers--;
	free(p);
}

/* ---- messages ---- */

static int rpc_message(void *service, struct svc_msgq_peer *from, const uint8_t *bytes, size_t len)
{
	struct xport_rpcs *r = service;
	struct svc_rpc_message m;
	struct svc_received in;

	if (!svc_rpc_decode(bytes, len, &m))
		return XPORT_ERR_PROTOCOL;
	/* The id of CANCEL is not that of a request in flight. */
	in = svc_engine_receive(&r->engine, from, m.type, m.type == SVC_RPC_CANCEL ? 0 : m.id);
	if (m.type == SVC_RPC_BYE)
		return XPORT_OK;
	if (svc_rpc_peer_of(r, from) == NULL)
		return XPORT_ERR_NO_MEMORY;
	switch (m.type) {
	case SVC_RPC_HELLO:
		return svc_rpc_hello(r, from, &m);
	case SVC_RPC_WELCOME:
		return svc_rpc_welcome(r, from, &m);
	case SVC_RPC_CALL:
		return svc_rpc_request(r, from, &m);
	case SVC_RPC_REPLY:
		return svc_rpc_answer(r, from, &m, in.answered);
	default:
		return svc_rpc_cancelled(r, from, &m);
	}
}

static size_t rpc_bye(uint8_t *bytes)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION, .type = SVC_RPC_BYE};

	svc_rpc_encode(&m, bytes);
	return SVC_RPC_HEAD;
}

static void rpc_work(void *service)
{
	struct xport_rpcs *r = service;

	if (r->engine.destroying)
		return;
	if (!svc_ring_empty(&r->kept))
		svc_rpc_kept_work(r);
	svc_rpc_calls_work(r);
}

static int rpc_work_timeout(void *service)
{
	struct xport_rpcs *r = service;
	int ms, kept;

	if (r->engine.destroying) /* no more work: an expired deadline would make xport_rpcs_destroy spin */
		return -1;
	if (!svc_ring_empty(&r->ready))
		return 0;
	ms = svc_rpc_calls_timeout(r);
	kept = svc_rpc_kept_timeout(r);
	return kept < 0 || (ms >= 0 && ms < kept) ? ms : kept;
}

static const uint8_t rpc_kinds[] = {
	[SVC_RPC_HELLO] = SVC_REQUEST, [SVC_RPC_WELCOME] = SVC_REPLY, [SVC_RPC_CALL] = SVC_REQUEST,
	[SVC_RPC_REPLY] = SVC_REPLY,   [SVC_RPC_CANCEL] = SVC_REPLY,  [SVC_RPC_BYE] = SVC_BYE};
static const struct svc_engine_ops rpc_ops = {.kinds = rpc_kinds,
                                              .message = rpc_message,
                                              .bye = rpc_bye,
                                              .ended = rpc_peer_ended,
                                              .closing = svc_rpc_kept_end,
                                              .work = rpc_work,
                                              .work_timeout = rpc_work_timeout};

/* ---- the loop ---- */

int xport_rpcs_step(xport_rpcs *r, const struct xport_completion *c)
{
	bool own;

	if (r == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_step", NULL, "rpcs is NULL");
	own = svc_engine_step(&r->engine, c);
	svc_rpc_dispatch(r);
	return own;
}

int xport_rpcs_timeout(xport_rpcs *r)
{
	return svc_engine_timeout(&r->engine);
}

void xport_rpcs_forget(xport_rpcs *r, xport_ep *ep)
{
	if (r != NULL && ep != NULL)
		svc_engine_forget(&r->engine, ep);
}

/* ---- events ---- */

static int rpc_next_event(struct xport_rpcs *r, struct xport_rpc_event *event)
{
	struct svc_rpc_request *q;
	struct svc_rpc_node *node;

	while (!svc_ring_empty(&r->events)) {
		node = SVC_OF(r->events.next, struct svc_rpc_node, link);
		if (node->call) {
			svc_rpc_call_event(r, (struct svc_rpc_call *)node, event);
			return 1;
		}
		q = (struct svc_rpc_request *)node;
		if (q->taken) {
			svc_rpc_abandoned_event(q, event);
			return 1;
		}
		if (svc_rpc_request_take(r, q, event))
			return 1;
	}
	return 0;
}

static int rpc_take_event(struct xport_rpcs *r, struct xport_rpc_event *event)
{
	struct xport_rpc_event e = {.size = sizeof(e), .why = ""};
	int n;

	pthread_mutex_lock(&r->engine.lock);
	n = rpc_next_event(r, &e);
	atomic_store_explicit(&r->any_event, !svc_ring_empty(&r->events), memory_order_relaxed);
	pthread_mutex_unlock(&r->engine.lock);
	if (n == 1)
		svc_grow_out(event, &e, sizeof(e));
	return n;
}

int xport_rpcs_next(xport_rpcs *r, struct xport_rpc_event *event)
{
	if (r == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_RPC_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_next", NULL,
		                "an argument is NULL, or xport_rpc_event.size is not the size of the struct");
	if (!atomic_load_explicit(&r->any_event, memory_order_relaxed))
		return 0;
	return rpc_take_event(r, event);
}

/* What xport_rpcs_wait waits for. */
struct next_rpc_event {
	struct xport_rpcs *rpcs;
	struct xport_rpc_event *event;
	xport_completion_fn other;
	void *arg;
};

static int next_rpc_event(void *arg)
{
	struct next_rpc_event *next = arg;
	struct xport_rpc_event e = {.size = sizeof(e), .type = XPORT_RPC_PEER_ENDED, .why = ""};
	struct xport_rpcs *r = next->rpcs;
	int n;

	svc_rpc_dispatch(r);
	n = xport_rpcs_next(r, next->event);
	if (n != 0 || (r->a.flags & XPORT_RPCS_TELL_ENDED) == 0)
		return n;
	pthread_mutex_lock(&r->engine.lock);
	e.ep = r->ended.ep;
	e.status = r->ended.status;
	r->ended.ep = NULL;
	pthread_mutex_unlock(&r->engine.lock);
	if (e.ep == NULL)
		return 0;
	svc_grow_out(next->event, &e, sizeof(e));
	return 1;
}

/* An endpoint that only answers calls has no other event at its end. */
static void other_or_end(void *arg, const struct xport_completion *c)
{
	struct next_rpc_event *next = arg;

	if (c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST) {
		pthread_mutex_lock(&next->rpcs->engine.lock);
		next->rpcs->ended.ep = c->ep;
		next->rpcs->ended.status = c->status;
		pthread_mutex_unlock(&next->rpcs->engine.lock);
	}
	if (next->other != NULL)
		next->other(next->arg, c);
}

int xport_rpcs_wait(xport_rpcs *r, struct xport_rpc_event *event, xport_completion_fn other, void *arg, int timeout_ms)
{
	struct next_rpc_event next = {.rpcs = r, .event = event, .other = other, .arg = arg};

	if (r == NULL)
		return xport_rpcs_next(r, event); /* which describes it */
	return svc_engine_wait(&r->engine, next_rpc_event, &next, other_or_end, &next, timeout_ms, "xport_rpcs_wait");
}

/* ---- methods ---- */

int svc_rpc_register(struct xport_rpcs *r, const struct svc_rpc_method *like)
{
	struct svc_rpc_method *m, *other;
	int status;

	if (r->engine.destroying)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_register", NULL, "the calls are being destroyed");
	other = svc_rpc_methods_find(&r->methods, like->hash);
	if (other != NULL)
		return svc_fail(XPORT_ERR_BUSY, "xport_rpc_register", "choose another name",
		                strcmp(other->name, like->name) == 0 ? "the method '%s' is registered already"
		                                                     : "the method '%s' has the same hash as '%s'",
		                like->name, other->name);
	m = malloc(sizeof(*m));
	if (m == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_rpc_register", NULL, "out of memory");
	*m = *like;
	status = svc_rpc_methods_add(&r->methods, m);
	if (status == XPORT_OK)
		return XPORT_OK;
	free(m);
	return svc_fail(status, "xport_rpc_register", NULL, "out of memory");
}

int xport_rpc_register(xport_rpcs *r, const char *name, xport_rpc_fn fn, void *arg)
{
	struct svc_rpc_method like = {.fn = fn, .arg = arg};
	int status;

	if (r == NULL || name == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_register", NULL, "an argument is NULL");
	like.hash = svc_rpc_hash(name);
	if (like.hash == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_register", NULL,
		                "a name has 1 to %d characters from [A-Za-z0-9._/-]; '%.80s' does not",
		                XPORT_RPC_NAME_MAX, name);
	if (strncmp(name, "xport.", 6) == 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpc_register", "choose another name",
		                "names that begin with 'xport.' are reserved");
	memcpy(like.name, name, strlen(name));
	pthread_mutex_lock(&r->engine.lock);
	status = svc_rpc_register(r, &like);
	pthread_mutex_unlock(&r->engine.lock);
	return status;
}

/* ---- query ---- */

/* What a request, or its reply, occupies at most; and the answers of a peer that have no request behind them. */
uint64_t svc_rpc_memory_max(const struct xport_rpcs *r)
{
	uint64_t request = sizeof(struct svc_rpc_request) + SVC_RPC_ALIGN + r->a.max_payload;
	uint64_t reply = svc_msgq_cost(SVC_RPC_HEAD + r->a.max_payload);
	uint64_t most = request > reply ? request : reply;

	return r->a.max_active * most + r->peers * (2 * SVC_MSGQ_REPLIES + 2) * svc_msgq_cost(SVC_RPC_HEAD);
}

int xport_rpcs_query(xport_rpcs *r, struct xport_rpcs_info *info)
{
	struct xport_rpcs_info i;

	if (r == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_RPCS_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_query", NULL,
		                "an argument is NULL, or xport_rpcs_info.size is not the size of the struct");
	pthread_mutex_lock(&r->engine.lock);
	i = r->info;
	i.max_payload = r->a.max_payload;
	i.calls = r->calls.size - r->calls.nfree;
	i.muted = r->engine.msgq.muted;
	i.memory = r->request_bytes + r->engine.msgq.replies_bytes;
	i.memory_max = svc_rpc_memory_max(r);
	pthread_mutex_unlock(&r->engine.lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

/* ---- life ---- */

/* Sets the defaults, or describes what is wrong. */
static int rpc_attr_complete(xport *x, struct xport_rpcs_attr *a)
{
	struct xport_info info = {.size = sizeof(info)};
	uint64_t most;
	int r = xport_query(x, &info);

	if (r != XPORT_OK)
		return svc_pass(x, r, "xport_rpcs_create");
	most = info.eager_max > OVERHEAD ? info.eager_max - OVERHEAD : 0;
	most = most > UINT32_MAX ? UINT32_MAX : most;
	if (a->max_payload > most)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_create", "pass long data as XPORT_RPC_LENT describes",
		                "xport_rpcs_attr.max_payload is %u; this network allows %u", (unsigned)a->max_payload,
		                (unsigned)most);
	if (a->max_calls > SVC_SLOTS_MAX || a->max_active > SVC_SLOTS_MAX)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_create", NULL,
		                "xport_rpcs_attr.max_calls or max_active is above %d", SVC_SLOTS_MAX);
	if (a->credits > XPORT_RPC_CREDITS_MAX)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_create", NULL, "xport_rpcs_attr.credits is %u, above %d",
		                (unsigned)a->credits, XPORT_RPC_CREDITS_MAX);
	if ((a->flags & ~(uint64_t)(XPORT_RPCS_TELL_ABANDONED | XPORT_RPCS_TELL_ENDED)) != 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_create", NULL,
		                "xport_rpcs_attr.flags has unknown bits: 0x%llx", (unsigned long long)a->flags);
	a->tag = a->tag == 0 ? TAG : a->tag;
	a->max_payload = a->max_payload != 0 ? a->max_payload : most < PAYLOAD ? (uint32_t)most : PAYLOAD;
	a->max_calls = a->max_calls == 0 ? SLOTS : a->max_calls;
	a->max_active = a->max_active == 0 ? SLOTS : a->max_active;
	a->credits = a->credits == 0 ? XPORT_RPC_CREDITS_MAX : a->credits;
	a->retry_after_ms = a->retry_after_ms == 0 ? RETRY_MS : a->retry_after_ms;
	return XPORT_OK;
}

static void rpcs_free(struct xport_rpcs *r)
{
	svc_rpc_methods_fini(&r->methods);
	svc_slots_fini(&r->calls);
	svc_slots_fini(&r->requests);
	free(r->call);
	free(r->scratch);
	free(r);
}

static struct xport_rpcs *rpcs_new(const struct xport_rpcs_attr *a)
{
	struct xport_rpcs *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->a = *a;
	r->next_deadline = INT64_MAX;
	svc_ring_init(&r->open);
	svc_ring_init(&r->stalled);
	svc_ring_init(&r->events);
	svc_ring_init(&r->ready);
	svc_ring_init(&r->kept);
	r->call = calloc(a->max_calls, sizeof(*r->call));
	r->scratch = malloc(a->max_payload + 1);
	if (r->call != NULL && r->scratch != NULL && svc_slots_init(&r->calls, a->max_calls) == XPORT_OK &&
	    svc_slots_init(&r->requests, a->max_active) == XPORT_OK && svc_rpc_builtins_add(&r->methods) == XPORT_OK)
		return r;
	rpcs_free(r);
	return NULL;
}

int xport_rpcs_create(xport *x, const struct xport_rpcs_attr *attr, xport_rpcs **rpcs)
{
	struct xport_rpcs_attr a;
	struct xport_rpcs *r;
	int status = svc_grow_in(&a, sizeof(a), SVC_FIRST_RPCS_ATTR, attr, "xport_rpcs_create", "xport_rpcs_attr");

	if (status != XPORT_OK)
		return status;
	if (x == NULL || rpcs == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_rpcs_create", NULL, "an argument is NULL");
	status = rpc_attr_complete(x, &a);
	if (status != XPORT_OK)
		return status;
	r = rpcs_new(&a);
	if (r == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_rpcs_create", NULL, "out of memory");
	status = svc_engine_open(&r->engine, x, a.tag, SVC_RPC_HEAD + a.max_payload, &rpc_ops, r, "xport_rpcs_create");
	if (status != XPORT_OK) {
		rpcs_free(r);
		return status;
	}
	*rpcs = r;
	return XPORT_OK;
}

/* Requests that the application has are in no list: their slots have them. */
static void requests_free(struct xport_rpcs *r)
{
	for (uint32_t i = 0; i < r->requests.size; i++) {
		if (r->requests.slot[i].id != 0)
			svc_rpc_request_free(r, r->requests.slot[i].thing);
	}
}

int xport_rpcs_destroy(xport_rpcs *r, xport_completion_fn other, void *arg, int timeout_ms)
{
	int status;

	if (r == NULL)
		return XPORT_OK;
	status = svc_engine_shut(&r->engine, other, arg, timeout_ms, "xport_rpcs_destroy");
	if (status != XPORT_OK)
		return status;
	svc_engine_close(&r->engine);
	requests_free(r);
	for (uint32_t i = 0; i < r->calls.size; i++) {
		free(r->call[i].payload);
		svc_rpc_bulks_end(&r->call[i].bulks);
	}
	rpcs_free(r);
	return XPORT_OK;
}
