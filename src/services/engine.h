/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.h - the request/reply engine below the leases and the directory.
 *
 * The engine owns the lock of the service, its message queue (msgq.h), and the loop that moves them. A service describes
 * itself by struct svc_engine_ops. The engine does for all services alike:
 *
 * - Credits: a peer may have SVC_MSGQ_WINDOW requests unanswered. Each request takes a credit, its reply gives it back.
 *   Further requests wait at their sender.
 * - Ids: each reply names the id of its request. The engine finds the request that the reply belongs to.
 * - Outcome: each request ends once, by its reply or by the end of its peer.
 * - BYE: the last message of a service to a peer. It ends all requests of the peer; a new service may follow on the
 *   same endpoint.
 * - The loop: step, timeout, wait and destroy.
 *
 * A new service writes its messages (type and id, as struct svc_lease_message), a table of their kinds, and the ops.
 *
 * Locks: `lock` guards the engine and the service. All functions need it, except those that say that they take it.
 */
#ifndef SVC_ENGINE_H
#define SVC_ENGINE_H

#include <pthread.h>

#include "services/clock.h"
#include "services/msgq.h"

enum svc_message_kind {
	SVC_REQUEST = 1, /* needs a reply */
	SVC_REPLY = 2,   /* answers the request that it names; the id 0 names none */
	SVC_BYE = 3      /* the sender's service ends */
};

/* A request in flight, embedded in the service's own struct. */
struct svc_request {
	struct svc_request *next;
	struct svc_msgq_peer *peer;
	uint64_t id;
	int reply; /* the type of the message that answers it */
};

struct svc_engine;

struct svc_engine_ops {
	const uint8_t *kinds; /* enum svc_message_kind of each type */

	/*
	 * A message arrived. It is checked and decoded here, then given to svc_engine_receive. Returns XPORT_OK,
	 * XPORT_ERR_NO_MEMORY if it cannot be answered (the talk with the peer starts again, after BYE), or
	 * XPORT_ERR_PROTOCOL to mute the peer.
	 */
	int (*message)(void *service, struct svc_msgq_peer *from, const uint8_t *bytes, size_t len);
	/* Encodes BYE into at most SVC_MSGQ_WORD bytes, and returns how many. */
	size_t (*bye)(uint8_t *bytes);
	/* A request ended without a reply. Optional, for services that use svc_engine_ask. */
	void (*unanswered)(void *service, struct svc_request *request, int status);
	/* All that the service has with the peer is void. The peer goes away unless peer->ended is XPORT_OK. */
	void (*ended)(void *service, struct svc_msgq_peer *peer, int status);
	/* The service is being destroyed, and BYE is sent next. Optional. */
	void (*closing)(void *service, struct svc_msgq_peer *peer);
	/* Work of the service's own, after each step. */
	void (*work)(void *service);
	/* Milliseconds until `work` must run; -1: no need. */
	int (*work_timeout)(void *service);
};

struct svc_engine {
	pthread_mutex_t lock;
	xport *x;
	struct svc_msgq msgq;
	const struct svc_engine_ops *ops;
	void *service;
	struct svc_request *requests;
	uint64_t last_id;
	bool destroying;
};

/* What svc_engine_receive found about a message. */
struct svc_received {
	int kind;
	bool answered;               /* a reply: a request was unanswered */
	struct svc_request *request; /* a reply: its request, if svc_engine_ask sent it; the service owns it again */
};

/* ---- life ---- */

/* Starts to receive messages of at most `max` bytes under `tag`. After an error nothing is left, and it is described. */
int svc_engine_open(struct svc_engine *e, xport *x, uint64_t tag, size_t max, const struct svc_engine_ops *ops,
                    void *service, const char *operation);
/*
 * Says BYE to all peers and waits until no operation is in flight. Takes the lock. Returns XPORT_OK, or an error that is
 * described; then call it again.
 */
int svc_engine_shut(struct svc_engine *e, xport_completion_fn other, void *arg, int timeout_ms, const char *operation);
/* After svc_engine_shut: ends the peers that are left, and frees the queue. The service is freed after it. */
void svc_engine_close(struct svc_engine *e);

/* ---- the loop; these take the lock ---- */

/* Takes a completion, or NULL. Returns whether it was the engine's own. */
bool svc_engine_step(struct svc_engine *e, const struct xport_completion *c);
/* Milliseconds until svc_engine_step must be called without a completion; -1: no need. */
int svc_engine_timeout(struct svc_engine *e);
/*
 * Moves the engine until `ready` returns 1, or an error (which it has described). Completions that are not the
 * engine's go to `other`. Returns XPORT_OK, that error, or its own, described: `timeout_ms` passed, or xport_wait failed.
 */
int svc_engine_wait(struct svc_engine *e, int (*ready)(void *ready_arg), void *ready_arg, xport_completion_fn other,
                    void *arg, int timeout_ms, const char *operation);
/* The endpoint was closed here: no event will tell. */
void svc_engine_forget(struct svc_engine *e, const xport_ep *ep);

/* ---- peers and messages ---- */

/* The peer of an open endpoint. Returns XPORT_OK, or an error that is described. */
int svc_engine_peer(struct svc_engine *e, xport_ep *ep, const char *operation, struct svc_msgq_peer **peer);
/* The same, but a peer whose end was not reported yet is not looked at again: that costs as much as a message. */
int svc_engine_peer_known(struct svc_engine *e, xport_ep *ep, const char *operation, struct svc_msgq_peer **peer);
/*
 * To be called once for each message that ops->message has decoded: gives the credit of a reply back, takes its request
 * out of those in flight, and handles BYE.
 */
struct svc_received svc_engine_receive(struct svc_engine *e, struct svc_msgq_peer *from, int type, uint64_t id);
/* Another id, unique for ever. */
static inline uint64_t svc_engine_id(struct svc_engine *e)
{
	return ++e->last_id;
}
/*
 * Sends a request. The service has set `id` and `reply`, and `bytes` have the id. Its outcome comes by svc_engine_receive or ops->unanswered. After
 * an error, which is not described, there will be none.
 */
int svc_engine_ask(struct svc_engine *e, struct svc_msgq_peer *peer, struct svc_request *request, const void *bytes,
                   size_t len);

#endif
