/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending: the queues of each peer, its credits, and the completions of sends. */
#include <string.h>

#include "services/msgq_impl.h"

/* Returns XPORT_OK if it left; AGAIN: it stays. */
static int msg_post(struct svc_msgq_peer *p, struct svc_msg_list *from)
{
	struct svc_msg *msg = from->first;
	struct xport_opt o = {.size = sizeof(o), .context = msg};
	int r;

	svc_msgq_head(msg->bytes, p->epoch, p->number, p->from_number > 0 ? p->from : 0);
	r = xport_send(p->ep, msg->bytes, msg->len, p->msgq->tag, &o);
	if (r != XPORT_OK)
		return r;
	p->number++;
	p->replies -= msg->reply;
	p->under_way += msg->reply;
	msgs_push(&p->flight, msgs_shift(from));
	p->msgq->waiting--;
	p->msgq->flying++;
	if (msg->spare)
		svc_msgq_epoch(p);
	return XPORT_OK;
}

/* A post was refused with this status. */
static void msg_refused(struct svc_msgq_peer *p, int status)
{
	/* INVALID: its handshake is not over yet */
	if (status == XPORT_ERR_AGAIN || status == XPORT_ERR_INVALID || status == XPORT_ERR_NO_MEMORY) {
		p->msgq->stuck = true;
	} else if (status == XPORT_ERR_CLOSED) {
		svc_msgq_peer_end(p, status);
	} else {
		p->refused = status;
		svc_msgq_drop(p);
	}
}

void svc_msgq_send_queued(void *arg, struct svc_msgq_peer *p)
{
	int r = XPORT_OK;

	(void)arg;
	if (p->refused != XPORT_OK)
		svc_msgq_drop(p);
	while (r == XPORT_OK && p->ended == XPORT_OK) {
		if (p->answers.first != NULL) {
			if (p->under_way >= SVC_MSGQ_REPLIES)
				return;
			r = msg_post(p, &p->answers);
		} else if (p->requests.first != NULL && p->unanswered < SVC_MSGQ_WINDOW) {
			r = msg_post(p, &p->requests);
			p->unanswered += r == XPORT_OK;
		} else {
			return;
		}
	}
	if (r != XPORT_OK)
		msg_refused(p, r);
}

/* The bytes are in it. */
static void msg_queue(struct svc_msgq_peer *p, struct svc_msg *msg, size_t len, bool reply)
{
	msg->len = SVC_MSGQ_HEAD + len;
	msg->reply = reply;
	if (reply) {
		p->msgq->replies++;
		p->msgq->replies_bytes += sizeof(*msg) + msg->len;
	}
	msgs_push(reply ? &p->answers : &p->requests, msg);
	p->replies += reply;
	p->msgq->waiting++;
	svc_msgq_send_queued(NULL, p);
}

struct svc_msg *svc_msgq_reserve(size_t len)
{
	struct svc_msg *msg = malloc(sizeof(*msg) + SVC_MSGQ_HEAD + len);

	if (msg != NULL)
		msg->spare = false;
	return msg;
}

size_t svc_msgq_cost(size_t len)
{
	return sizeof(struct svc_msg) + SVC_MSGQ_HEAD + len;
}

int svc_msgq_send(struct svc_msgq_peer *p, const void *head, size_t head_len, const void *body, size_t body_len,
                  bool reply)
{
	struct svc_msg *msg;

	if (p->ended != XPORT_OK)
		return p->ended;
	msg = svc_msgq_reserve(head_len + body_len);
	if (msg == NULL)
		return XPORT_ERR_NO_MEMORY;
	memcpy(msg->bytes + SVC_MSGQ_HEAD, head, head_len);
	if (body_len > 0)
		memcpy(msg->bytes + SVC_MSGQ_HEAD + head_len, body, body_len);
	msg_queue(p, msg, head_len + body_len, reply);
	return XPORT_OK;
}

int svc_msgq_request_now(struct svc_msgq_peer *p, const void *head, size_t head_len, const void *body, size_t body_len)
{
	int r;

	if (p->answers.first != NULL)
		svc_msgq_send_queued(NULL, p);
	if (p->ended != XPORT_OK || p->refused != XPORT_OK)
		return p->ended != XPORT_OK ? p->ended : p->refused;
	if (p->answers.first != NULL || p->requests.first != NULL || p->unanswered >= SVC_MSGQ_WINDOW)
		return XPORT_ERR_AGAIN;
	r = svc_msgq_send(p, head, head_len, body, body_len, false);
	if (r == XPORT_OK && p->ended == XPORT_OK && p->refused == XPORT_OK && p->requests.first == NULL)
		return XPORT_OK;
	if (p->requests.first != NULL) { /* this one: no other waits */
		svc_msgq_drop_requests(p);
		r = XPORT_ERR_AGAIN;
	}
	return p->ended != XPORT_OK ? p->ended : p->refused != XPORT_OK ? p->refused : r;
}

void svc_msgq_over(struct svc_msgq_peer *p, const void *bytes, size_t len)
{
	struct svc_msg *msg = p->spare;

	if (msg == NULL) { /* the last time's is on its way still: what is said next tells, in another epoch */
		svc_msgq_epoch(p);
		return;
	}
	p->spare = NULL;
	msg->spare = true;
	memcpy(msg->bytes + SVC_MSGQ_HEAD, bytes, len);
	msg_queue(p, msg, len, true);
}

int svc_msgq_request(struct svc_msgq_peer *p, const void *bytes, size_t len)
{
	return svc_msgq_send(p, bytes, len, NULL, 0, false);
}

void svc_msgq_request_in(struct svc_msgq_peer *p, struct svc_msg *msg, const void *bytes, size_t len)
{
	if (p->ended != XPORT_OK) {
		free(msg);
		return;
	}
	memcpy(msg->bytes + SVC_MSGQ_HEAD, bytes, len);
	msg_queue(p, msg, len, false);
}

int svc_msgq_reply(struct svc_msgq_peer *p, const void *bytes, size_t len)
{
	return svc_msgq_send(p, bytes, len, NULL, 0, true);
}

void svc_msgq_bye(struct svc_msgq_peer *p, const void *bytes, size_t len)
{
	if (p->number > 0 || p->from_number > 0)
		(void)svc_msgq_reply(p, bytes, len);
}

bool svc_msgq_answered(struct svc_msgq_peer *p)
{
	if (p->unanswered == 0)
		return false;
	p->unanswered--;
	return true;
}

static bool msg_sent(struct svc_msgq *m, struct svc_msgq_peer *p, void *context)
{
	struct svc_msg *msg = context;

	if (!msgs_take(&p->flight, msg))
		return false;
	p->under_way -= msg->reply;
	m->flying--;
	svc_msg_free(p, msg);
	if (p->forgotten && p->flight.first == NULL)
		svc_msgq_peer_free(p);
	return true;
}

bool svc_msgq_sent(struct svc_msgq *m, const struct xport_completion *c)
{
	struct svc_msgq_peer *next;

	if (m->flying == 0)
		return false;
	for (struct svc_msgq_peer *p = *svc_msgq_bucket(m, c->ep); p != NULL; p = next) {
		next = p->next;
		if (msg_sent(m, p, c->context))
			return true;
	}
	return false;
}