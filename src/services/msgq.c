/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of a message queue, and the life of the queue. */
#include <string.h>
#include <sys/random.h>

#include "services/last_error.h"
#include "services/msgq_impl.h"

/* ---- messages ---- */

void svc_msg_free(struct svc_msgq_peer *p, struct svc_msg *msg)
{
	if (msg->reply) {
		p->msgq->replies--;
		p->msgq->replies_bytes -= sizeof(*msg) + msg->len;
	}
	if (msg->spare)
		p->spare = msg;
	else
		free(msg);
}

static void msgs_drop_all(struct svc_msgq_peer *p, struct svc_msg_list *l)
{
	while (l->first != NULL) {
		p->replies -= l->first->reply;
		p->msgq->waiting--;
		svc_msg_free(p, msgs_shift(l));
	}
}

void svc_msgq_drop_requests(struct svc_msgq_peer *p)
{
	msgs_drop_all(p, &p->requests);
}

void svc_msgq_drop(struct svc_msgq_peer *p)
{
	svc_msgq_drop_requests(p);
	msgs_drop_all(p, &p->answers);
}

void svc_msgq_drop_early(struct svc_msgq_peer *p)
{
	while (p->early.first != NULL)
		free(msgs_shift(&p->early));
	p->nearly = 0;
}

/* ---- peers ---- */

struct svc_msgq_peer **svc_msgq_bucket(const struct svc_msgq *m, const xport_ep *ep)
{
	uint64_t hash = (uint64_t)(uintptr_t)ep * 0x9e3779b97f4a7c15u >> 58;

	return (struct svc_msgq_peer **)(uintptr_t)&m->bucket[hash % SVC_MSGQ_BUCKETS];
}

struct svc_msgq_peer *svc_msgq_find(const struct svc_msgq *m, const xport_ep *ep)
{
	struct svc_msgq_peer *p = *svc_msgq_bucket(m, ep);

	while (p != NULL && (p->ep != ep || p->forgotten))
		p = p->next;
	return p;
}

/* Any number that the last one was not. */
void svc_msgq_epoch(struct svc_msgq_peer *p)
{
	uint32_t old = p->epoch, random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = old + 2;
	p->epoch_before = old;
	p->epoch = random | 1;
	if (p->epoch == old)
		p->epoch += 2;
	p->number = 0;
}

struct svc_msgq_peer *svc_msgq_peer(struct svc_msgq *m, xport_ep *ep)
{
	struct svc_msgq_peer *p = svc_msgq_find(m, ep);

	if (p != NULL || (p = calloc(1, sizeof(*p))) == NULL)
		return p;
	p->spare = malloc(sizeof(*p->spare) + SVC_MSGQ_HEAD + SVC_MSGQ_WORD);
	if (p->spare == NULL) {
		free(p);
		return NULL;
	}
	p->msgq = m;
	p->ep = ep;
	msgs_init(&p->requests);
	msgs_init(&p->answers);
	msgs_init(&p->flight);
	msgs_init(&p->early);
	svc_msgq_epoch(p);
	p->next = *svc_msgq_bucket(m, ep);
	*svc_msgq_bucket(m, ep) = p;
	return p;
}

void svc_msgq_peer_free(struct svc_msgq_peer *p)
{
	struct svc_msgq_peer **at = svc_msgq_bucket(p->msgq, p->ep);

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	svc_msgq_drop_early(p);
	free(p->spare);
	free(p);
}

void svc_msgq_peer_end(struct svc_msgq_peer *p, int status)
{
	struct svc_msgq *m = p->msgq;

	if (p->ended != XPORT_OK)
		return;
	p->ended = status;
	svc_msgq_drop(p);
	svc_msgq_drop_early(p);
	m->fns->ended(m->arg, p, status);
}

void svc_msgq_end(struct svc_msgq *m, const xport_ep *ep, int status)
{
	struct svc_msgq_peer *p = svc_msgq_find(m, ep);

	for (unsigned i = 0; i < m->receives; i++) {
		if (m->receive[i].from == ep)
			m->receive[i].from = NULL;
	}
	if (p == NULL)
		return;
	svc_msgq_peer_end(p, status);
	p->forgotten = true;
	if (p->flight.first == NULL)
		svc_msgq_peer_free(p);
}

void svc_msgq_forget_said(struct svc_msgq_peer *p)
{
	svc_msgq_drop(p);
	svc_msgq_drop_early(p);
	p->unanswered = 0;
	p->from_before = p->from;
	p->from = 0;
	p->from_number = 0;
}

void svc_msgq_anew(struct svc_msgq_peer *p)
{
	svc_msgq_forget_said(p);
	svc_msgq_epoch(p);
}

void svc_msgq_each(struct svc_msgq *m, void (*f)(void *arg, struct svc_msgq_peer *peer))
{
	for (int i = 0; i < SVC_MSGQ_BUCKETS; i++) {
		for (struct svc_msgq_peer *p = m->bucket[i], *next; p != NULL; p = next) {
			next = p->next;
			if (!p->forgotten)
				f(m->arg, p);
		}
	}
}
/* ---- life ---- */

int svc_msgq_open(struct svc_msgq *m, xport *x, uint64_t tag, size_t max, const struct svc_msgq_fns *fns, void *arg,
                  const char *operation)
{
	struct xport_info info = {.size = sizeof(info)};
	int r = xport_query(x, &info);

	if (r != XPORT_OK)
		return svc_pass(x, r, operation);
	memset(m, 0, sizeof(*m));
	m->x = x;
	m->tag = tag;
	m->max = SVC_MSGQ_HEAD + max;
	m->fns = fns;
	m->arg = arg;
	m->receives = info.queue_depth / 4 < SVC_MSGQ_RECEIVES ? (info.queue_depth + 3) / 4 : SVC_MSGQ_RECEIVES;
	m->buffers = malloc(m->receives * m->max);
	if (m->buffers == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, operation, NULL, "out of memory");
	for (unsigned i = 0; i < m->receives; i++)
		m->receive[i].bytes = m->buffers + (size_t)i * m->max;
	m->unposted = m->receives;
	r = svc_msgq_post_receives(m);
	if (m->unposted < m->receives)
		return XPORT_OK;
	free(m->buffers);
	return svc_pass(x, r, operation);
}

void svc_msgq_stop(struct svc_msgq *m)
{
	m->stopping = true;
	for (unsigned i = 0; i < m->receives; i++) {
		if (m->receive[i].posted)
			(void)xport_cancel(m->x, m->receive[i].id);
	}
}

bool svc_msgq_idle(const struct svc_msgq *m)
{
	return m->stopping && m->unposted == m->receives && m->flying == 0 && m->waiting == 0;
}

void svc_msgq_close(struct svc_msgq *m)
{
	for (int i = 0; i < SVC_MSGQ_BUCKETS; i++) {
		for (struct svc_msgq_peer *p = m->bucket[i], *next; p != NULL; p = next) {
			next = p->next;
			svc_msgq_drop_early(p);
			free(p->spare);
			free(p);
		}
	}
	free(m->buffers);
}
