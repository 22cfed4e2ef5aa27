/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: messages are delivered in the order in which they were sent. */
#include <string.h>

#include "services/msgq_impl.h"

static int receive_post(struct svc_msgq *m, struct svc_msgq_receive *r)
{
	struct xport_opt o = {.size = sizeof(o), .flags = XPORT_EAGER, .context = r, .id = &r->id};
	int status;

	if (r->posted || r->from != NULL)
		return XPORT_OK;
	status = xport_recv(m->x, r->bytes, m->max, m->tag, UINT64_MAX, &o);
	if (status != XPORT_OK)
		return status;
	r->posted = true;
	m->unposted--;
	return XPORT_OK;
}

int svc_msgq_post_receives(struct svc_msgq *m)
{
	int status = XPORT_OK;

	for (unsigned i = 0; status == XPORT_OK && i < m->receives && m->unposted > 0 && !m->stopping; i++)
		status = receive_post(m, &m->receive[i]);
	return status;
}

static void msgq_peer_mute(struct svc_msgq_peer *p)
{
	p->msgq->muted += p->ended == XPORT_OK;
	svc_msgq_peer_end(p, XPORT_ERR_PROTOCOL);
}

void svc_msgq_talk_over(struct svc_msgq_peer *p)
{
	if (p->ended != XPORT_OK)
		return;
	svc_msgq_forget_said(p);
	p->msgq->fns->over(p->msgq->arg, p);
}

static void msg_deliver(struct svc_msgq_peer *p, const uint8_t *bytes, size_t len)
{
	int r;

	p->from_number++;
	r = p->replies > SVC_MSGQ_REPLIES ? XPORT_ERR_PROTOCOL : p->msgq->fns->message(p->msgq->arg, p, bytes, len);
	if (r == XPORT_ERR_NO_MEMORY)
		svc_msgq_talk_over(p);
	else if (r != XPORT_OK)
		msgq_peer_mute(p);
}

/* One that was waiting for what has just been delivered; NULL: there is none. */
static struct svc_msg *msg_early_next(struct svc_msgq_peer *p)
{
	for (struct svc_msg *msg = p->early.first; msg != NULL; msg = msg->next) {
		if (msg->number == p->from_number) {
			msgs_take(&p->early, msg);
			p->nearly--;
			return msg;
		}
	}
	return NULL;
}

/*
 * What lies before it other threads have reaped, and not brought yet.  One late message is enough for all to come early that a
 * peer may have sent: their receives are posted again.
 */
static void msg_early_keep(struct svc_msgq_peer *p, uint32_t number, const uint8_t *bytes, size_t len)
{
	struct svc_msg *msg;

	if (number - p->from_number > SVC_MSGQ_EARLY || p->nearly >= SVC_MSGQ_EARLY) {
		msgq_peer_mute(p);
		return;
	}
	msg = malloc(sizeof(*msg) + len);
	if (msg == NULL) {
		svc_msgq_talk_over(p);
		return;
	}
	msg->number = number;
	msg->len = len;
	memcpy(msg->bytes, bytes, len);
	msgs_push(&p->early, msg);
	p->nearly++;
}

/*
 * False: what is said in this epoch, by one that has heard our epoch `to`, is not for us: the end of an epoch is no news, and
 * what was said to another, or begins in the middle, was meant for the one before us.
 */
static bool msg_epoch_valid(struct svc_msgq_peer *p, uint32_t epoch, uint32_t number, uint32_t to)
{
	if (epoch == p->from)
		return true;
	if (epoch == 0 || epoch == p->from_before || number >= SVC_MSGQ_RECEIVES ||
	    (to != 0 && to != p->epoch && to != p->epoch_before))
		return false;
	if (p->from_number > 0) {
		svc_msgq_forget_said(p);
		if (to != p->epoch) /* it has not heard what we said so far, and cannot go on there */
			svc_msgq_epoch(p);
		p->msgq->fns->anew(p->msgq->arg, p);
	} else if (p->from != 0) { /* of which nothing was handed on */
		svc_msgq_drop_early(p);
		p->from_before = p->from;
	}
	p->from = epoch;
	p->from_number = 0;
	return p->ended == XPORT_OK;
}

static void msg_open(struct svc_msgq_peer *p, const uint8_t *bytes, size_t len)
{
	struct xpi_rd r = xpi_rd(bytes, len);
	uint32_t epoch = xpi_rd_u32(&r), number = xpi_rd_u32(&r);
	uint32_t to = xpi_rd_u32(&r);
	struct svc_msg *msg;

	if (r.bad) {
		msgq_peer_mute(p);
		return;
	}
	if (!msg_epoch_valid(p, epoch, number, to))
		return;
	if (number != p->from_number) {
		msg_early_keep(p, number, r.p, r.left);
		return;
	}
	msg_deliver(p, r.p, r.left);
	while (p->ended == XPORT_OK && p->from == epoch && (msg = msg_early_next(p)) != NULL) {
		msg_deliver(p, msg->bytes, msg->len);
		free(msg);
	}
}

/* Not part of receive_take, which has no need of its struct mostly. */
static __attribute__((noinline)) bool endpoint_alive(const xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	return xport_ep_query(ep, &info) == XPORT_OK &&
	       (info.state == XPORT_EP_OPEN || info.state == XPORT_EP_CONNECTING);
}

/* What has come in `r`; without memory for its peer it stays there. */
static void receive_take(struct svc_msgq *m, struct svc_msgq_receive *r)
{
	xport_ep *ep = r->from;
	struct svc_msgq_peer *p;

	r->from = NULL;
	if (m->stopping || ep == NULL || (r->status != XPORT_OK && r->status != XPORT_ERR_TRUNCATED))
		return;
	p = svc_msgq_find(m, ep);
	/* Of an endpoint that has ended nobody would tell us again.  One that is not open yet will be, or an event tells. */
	if (p == NULL && !endpoint_alive(ep))
		return;
	if (p == NULL && (p = svc_msgq_peer(m, ep)) == NULL) {
		r->from = ep;
		return;
	}
	if (p->ended != XPORT_OK)
		return;
	if (r->status == XPORT_ERR_TRUNCATED)
		msgq_peer_mute(p);
	else
		msg_open(p, r->bytes, r->len);
}

static void receive_take_waiting(struct svc_msgq *m)
{
	for (unsigned i = 0; i < m->receives; i++) {
		if (m->receive[i].from != NULL)
			receive_take(m, &m->receive[i]);
	}
}

bool svc_msgq_step(struct svc_msgq *m, const struct xport_completion *c)
{
	struct svc_msgq_receive *r = c == NULL ? NULL : c->context;
	bool own = false;

	if (m->unposted > 0)
		receive_take_waiting(m);
	if (c != NULL && c->type == XPORT_OP_RECV && r >= m->receive && r < m->receive + SVC_MSGQ_RECEIVES) {
		own = true;
		r->posted = false;
		m->unposted++;
		r->from = c->ep;
		r->status = c->status;
		r->len = c->length;
		receive_take(m, r);
	} else if (c != NULL && c->type == XPORT_OP_SEND) {
		own = svc_msgq_sent(m, c);
	} else if (c != NULL && (c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST)) {
		svc_msgq_end(m, c->ep, c->status != XPORT_OK ? c->status : XPORT_ERR_PEER_CLOSED);
	}
	/* Mostly it is the one that has completed. */
	if (own && c->type == XPORT_OP_RECV && !m->stopping)
		(void)receive_post(m, r);
	if (m->unposted > 0)
		(void)svc_msgq_post_receives(m);
	m->stuck = false;
	if (m->waiting > 0)
		svc_msgq_each(m, svc_msgq_send_queued);
	return own;
}