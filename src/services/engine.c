/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/engine.h"

#include "services/last_error.h"

enum { SLICE_MS = 20 }; /* the longest sleep: another thread may do what is waited for */

/* ---- requests ---- */

/* Takes out a request of the peer: the one with this id and type of reply, or any if the id is 0. NULL: there is none. */
static struct svc_request *request_take(struct svc_engine *e, const struct svc_msgq_peer *peer, uint64_t id, int reply)
{
	for (struct svc_request **at = &e->requests; *at != NULL; at = &(*at)->next) {
		struct svc_request *q = *at;

		if (q->peer != peer || (id != 0 && (q->id != id || q->reply != reply)))
			continue;
		*at = q->next;
		return q;
	}
	return NULL;
}

static void peer_void(struct svc_engine *e, struct svc_msgq_peer *peer, int status)
{
	struct svc_request *q;

	while ((q = request_take(e, peer, 0, 0)) != NULL)
		e->ops->unanswered(e->service, q, status);
	e->ops->ended(e->service, peer, status);
}

int svc_engine_ask(struct svc_engine *e, struct svc_msgq_peer *peer, struct svc_request *request, const void *bytes,
                   size_t len)
{
	int r;

	request->peer = peer;
	request->next = e->requests;
	e->requests = request; /* before it is sent: sending may find that the endpoint has ended */
	r = svc_msgq_request(peer, bytes, len);
	if (r != XPORT_OK)
		(void)request_take(e, peer, request->id, request->reply);
	return r;
}

struct svc_received svc_engine_receive(struct svc_engine *e, struct svc_msgq_peer *from, int type, uint64_t id)
{
	struct svc_received in = {.kind = e->ops->kinds[type]};

	if (in.kind == SVC_BYE) {
		svc_msgq_anew(from);
		peer_void(e, from, XPORT_ERR_PEER_CLOSED);
	} else if (in.kind == SVC_REPLY && id != 0) {
		in.answered = svc_msgq_answered(from);
		in.request = request_take(e, from, id, type);
	}
	return in;
}

/* ---- what the message queue reports ---- */

static void engine_talk_over(void *arg, struct svc_msgq_peer *peer)
{
	struct svc_engine *e = arg;
	uint8_t bytes[SVC_MSGQ_WORD];

	peer_void(e, peer, XPORT_ERR_NO_MEMORY);
	svc_msgq_over(peer, bytes, e->ops->bye(bytes));
}

static void engine_peer_anew(void *arg, struct svc_msgq_peer *peer)
{
	peer_void(arg, peer, XPORT_ERR_PEER_CLOSED);
}

static void engine_peer_ended(void *arg, struct svc_msgq_peer *peer, int status)
{
	peer_void(arg, peer, status);
}

static int engine_message(void *arg, struct svc_msgq_peer *from, const uint8_t *bytes, size_t len)
{
	struct svc_engine *e = arg;

	return e->ops->message(e->service, from, bytes, len);
}

static const struct svc_msgq_fns queue_fns = {
	.message = engine_message, .anew = engine_peer_anew, .over = engine_talk_over, .ended = engine_peer_ended};

/* ---- peers ---- */

int svc_engine_peer(struct svc_engine *e, xport_ep *ep, const char *operation, struct svc_msgq_peer **peer)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct svc_msgq_peer *p;
	int r;

	if (e->destroying)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "the service is being destroyed");
	if (xport_ep_query(ep, &info) != XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "ep is not an endpoint");
	if (info.state == XPORT_EP_CONNECTING)
		return svc_fail(XPORT_ERR_INVALID, operation, "wait for XPORT_EVENT_CONNECTED",
		                "the endpoint is not connected yet");
	if (info.state != XPORT_EP_OPEN) {
		r = info.reason != XPORT_OK ? info.reason : XPORT_ERR_CLOSED;
		return svc_fail(r, operation, NULL, "the endpoint is not open: %s", xport_strerror(r));
	}
	p = svc_msgq_peer(&e->msgq, ep);
	r = p == NULL ? XPORT_ERR_NO_MEMORY : p->ended;
	if (r == XPORT_ERR_PROTOCOL)
		return svc_fail(r, operation, "connect to the peer again",
		                "the peer violated the protocol, and is ignored");
	if (r != XPORT_OK)
		return svc_fail(r, operation, NULL, "%s", xport_strerror(r));
	*peer = p;
	return XPORT_OK;
}

int svc_engine_peer_known(struct svc_engine *e, xport_ep *ep, const char *operation, struct svc_msgq_peer **peer)
{
	struct svc_msgq_peer *p = e->destroying ? NULL : svc_msgq_find(&e->msgq, ep);

	if (p == NULL || p->ended != XPORT_OK)
		return svc_engine_peer(e, ep, operation, peer);
	*peer = p;
	return XPORT_OK;
}

void svc_engine_forget(struct svc_engine *e, const xport_ep *ep)
{
	pthread_mutex_lock(&e->lock);
	svc_msgq_end(&e->msgq, ep, XPORT_ERR_CLOSED);
	if (!e->destroying)
		e->ops->work(e->service);
	pthread_mutex_unlock(&e->lock);
}

/* ---- the loop ---- */

bool svc_engine_step(struct svc_engine *e, const struct xport_completion *c)
{
	bool own;

	pthread_mutex_lock(&e->lock);
	own = svc_msgq_step(&e->msgq, c);
	e->ops->work(e->service);
	pthread_mutex_unlock(&e->lock);
	return own;
}

int svc_engine_timeout(struct svc_engine *e)
{
	int ms;

	pthread_mutex_lock(&e->lock);
	ms = e->ops->work_timeout(e->service);
	if (svc_msgq_waits(&e->msgq) && (ms < 0 || ms > 1))
		ms = 1;
	pthread_mutex_unlock(&e->lock);
	return ms;
}

/* One poll, or a sleep until `until` at most; below 0: no limit. */
static int engine_poll(struct svc_engine *e, int64_t until, xport_completion_fn other, void *arg)
{
	int64_t left = until < 0 ? SLICE_MS : until - svc_now_ms();
	struct xport_completion c;
	int ms = svc_engine_timeout(e), n;

	left = left > SLICE_MS ? SLICE_MS : left < 0 ? 0 : left;
	if (ms >= 0 && ms < left)
		left = ms;
	n = xport_wait(e->x, &c, 1, (int)left);
	if (n < 0)
		return n;
	if (!svc_engine_step(e, n > 0 ? &c : NULL) && n > 0 && other != NULL)
		other(arg, &c);
	return XPORT_OK;
}

int svc_engine_wait(struct svc_engine *e, int (*ready)(void *ready_arg), void *ready_arg, xport_completion_fn other,
                    void *arg, int timeout_ms, const char *operation)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	bool late = false;
	int r = svc_time_valid(timeout_ms, operation);

	if (r != XPORT_OK)
		return r;
	while ((r = ready(ready_arg)) == 0) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, operation, NULL, "the time limit of %d ms expired",
			                timeout_ms);
		r = engine_poll(e, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(e->x, r, operation);
		/* Checked after a poll, not before it: a caller that repeats a call with the limit 0 makes progress. */
		late = until >= 0 && svc_now_ms() >= until;
	}
	return r < 0 ? r : XPORT_OK;
}

/* ---- life ---- */

int svc_engine_open(struct svc_engine *e, xport *x, uint64_t tag, size_t max, const struct svc_engine_ops *ops,
                    void *service, const char *operation)
{
	int r;

	e->x = x;
	e->ops = ops;
	e->service = service;
	r = svc_msgq_open(&e->msgq, x, tag, max, &queue_fns, e, operation);
	if (r == XPORT_OK)
		pthread_mutex_init(&e->lock, NULL);
	return r;
}

static void say_bye(void *arg, struct svc_msgq_peer *p)
{
	struct svc_engine *e = arg;
	uint8_t bytes[SVC_MSGQ_WORD];

	svc_msgq_drop_requests(p); /* replies were promised: BYE goes behind them */
	if (e->ops->closing != NULL)
		e->ops->closing(e->service, p);
	svc_msgq_bye(p, bytes, e->ops->bye(bytes));
}

static int engine_idle(void *arg)
{
	struct svc_engine *e = arg;

	return svc_msgq_idle(&e->msgq);
}

int svc_engine_shut(struct svc_engine *e, xport_completion_fn other, void *arg, int timeout_ms, const char *operation)
{
	int r = svc_time_valid(timeout_ms, operation);

	if (r != XPORT_OK)
		return r;
	pthread_mutex_lock(&e->lock);
	if (!e->destroying) {
		e->destroying = true;
		svc_msgq_each(&e->msgq, say_bye);
		svc_msgq_stop(&e->msgq);
	}
	pthread_mutex_unlock(&e->lock);
	return svc_engine_wait(e, engine_idle, e, other, arg, timeout_ms, operation);
}

static void end_left(void *arg, struct svc_msgq_peer *p)
{
	if (p->ended == XPORT_OK)
		p->ended = XPORT_ERR_CLOSED;
	peer_void(arg, p, XPORT_ERR_CLOSED);
}

void svc_engine_close(struct svc_engine *e)
{
	svc_msgq_each(&e->msgq, end_left);
	svc_msgq_close(&e->msgq);
	pthread_mutex_destroy(&e->lock);
}
