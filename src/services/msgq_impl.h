/* SPDX-License-Identifier: BSD-3-Clause */
/* msgq_impl.h - internals that the files of the message queue share: msgq.c (peers, life), msgq_send.c, msgq_recv.c. */
#ifndef SVC_MSGQ_IMPL_H
#define SVC_MSGQ_IMPL_H

#include <stdlib.h>

#include "services/msgq.h"

struct svc_msg {
	struct svc_msg *next;
	size_t len;
	bool reply;
	bool spare;      /* its peer's */
	uint32_t number; /* of one that came early */
	uint8_t bytes[];
};

/* ---- lists of messages ---- */

static inline void msgs_init(struct svc_msg_list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static inline void msgs_push(struct svc_msg_list *l, struct svc_msg *msg)
{
	msg->next = NULL;
	*l->end = msg;
	l->end = &msg->next;
}

static inline struct svc_msg *msgs_shift(struct svc_msg_list *l)
{
	struct svc_msg *msg = l->first;

	l->first = msg->next;
	if (l->first == NULL)
		l->end = &l->first;
	return msg;
}

/* Takes this one out; false: it is not there. */
static inline bool msgs_take(struct svc_msg_list *l, const void *msg)
{
	for (struct svc_msg **at = &l->first; *at != NULL; at = &(*at)->next) {
		if ((const void *)*at != msg)
			continue;
		if (l->end == &(*at)->next)
			l->end = at;
		*at = (*at)->next;
		return true;
	}
	return false;
}

/* ---- msgq.c ---- */

/* The head of the list of peers that `ep` is in. */
struct svc_msgq_peer **svc_msgq_bucket(const struct svc_msgq *m, const xport_ep *ep);
/* Begins another epoch of what is sent to the peer. */
void svc_msgq_epoch(struct svc_msgq_peer *p);
/* Frees a message, or keeps it as the peer's spare one. */
void svc_msg_free(struct svc_msgq_peer *p, struct svc_msg *msg);
/* Drops what waits for this peer. */
void svc_msgq_drop(struct svc_msgq_peer *p);
/* Drops the messages that arrived ahead of their turn. */
void svc_msgq_drop_early(struct svc_msgq_peer *p);
/* Drops what was queued for the peer and by it, and the epoch of its messages. */
void svc_msgq_forget_said(struct svc_msgq_peer *p);
/* Ends the peer with this status; it stays until svc_msgq_end. */
void svc_msgq_peer_end(struct svc_msgq_peer *p, int status);
void svc_msgq_peer_free(struct svc_msgq_peer *p);

/* ---- msgq_send.c ---- */

/* Sends what is queued for the peer, as far as its credits reach.  For svc_msgq_each. */
void svc_msgq_send_queued(void *arg, struct svc_msgq_peer *p);
/* Takes the completion of a message that was sent.  Returns false if it belongs to none. */
bool svc_msgq_sent(struct svc_msgq *m, const struct xport_completion *c);

/* ---- msgq_recv.c ---- */

/* Posts the receives that are not posted. */
int svc_msgq_post_receives(struct svc_msgq *m);

#endif
