/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group.h - the group of an instance.
 *
 * A member, as this process sees it:
 *
 *	ABSENT --> CONNECTING --> OPEN --> GONE        this process connects, and has the lower rank
 *	ABSENT --> CONNECTING --> ASKING --> OPEN      it has the higher rank: the other one confirms
 *	ABSENT --> OPEN                                the member connected to this process
 *
 * Two members may connect to each other at the same time. Then the connection that the lower rank began counts: the higher
 * rank takes it and drops its own, and the lower rank drops that of the higher one. That is why the lower rank confirms
 * connections, and the higher one does not use its own before.
 *
 * Messages have a tag: the upper half is the group's; then 24 bits of the number of the collective operation, and 8 bits of
 * its kind. On each open endpoint a receive waits for NEWS: that a member has failed, or what the other member calls. It ends
 * with the endpoint, which is how a death is noticed.
 *
 * Files: group.c (life), group_ep.c (members), group_wait.c (progress, failure), group_coll.c (collective operations),
 * group_call.c (their comparison), group_reduce.c (arithmetic), group_kv.c (values), group_source.h (what a launcher gives).
 */
#ifndef SVC_GROUP_H
#define SVC_GROUP_H

#include <pthread.h>
#include <stdbool.h>

#include "services/group_source.h"

enum {
	SVC_GROUP_OPS = 64, /* operations of a collective operation at a time */
	SVC_GROUP_BATCH = 16,
	SVC_GROUP_SPINS = 4000,
	SVC_GROUP_NEWS_BYTES = 12,
	SVC_GROUP_CALL_BYTES = 20,
	SVC_GROUP_CALLS = 64, /* calls that are remembered */
	SVC_GROUP_PRIVATE_BYTES = 24, /* of a connection */
	SVC_GROUP_SLICE_MS = 100, /* the longest sleep: another thread may have polled what is waited for */
	SVC_GROUP_CONNECT_MS = 30000,
	SVC_GROUP_PROBE_MS = 1000, /* after it xport_group_create connects to lower ranks, too */
	SVC_GROUP_HEAR_MS = 20,    /* for the reason why a member has ended */
	SVC_GROUP_GRACE_MS = 500, /* for operations in progress when the group fails */
};

/* The last 8 bits of a tag. */
enum svc_group_kind {
	SVC_GROUP_BARRIER = 1,
	SVC_GROUP_BROADCAST = 2,
	SVC_GROUP_ALLGATHER = 3,
	SVC_GROUP_ALLREDUCE = 4,
	SVC_GROUP_FENCE = 5,
	SVC_GROUP_CONFIRM = 254,
	SVC_GROUP_NEWS = 255,
};

enum svc_member_state {
	SVC_MEMBER_ABSENT = 0,
	SVC_MEMBER_CONNECTING = 1,
	SVC_MEMBER_ASKING = 2,
	SVC_MEMBER_OPEN = 3,
	SVC_MEMBER_GONE = 4,
};

/* A collective operation as a member called it. It is the same at all members. */
struct svc_group_call {
	uint32_t number; /* 0: none */
	int kind;
	uint32_t detail; /* broadcast: the root; allreduce: type and operation */
	uint64_t length; /* bytes of one member's buffer; a fence has none */
};

/* An operation of the group; the context of its completion. */
struct svc_group_op {
	bool busy; /* its completion has not come */
	bool recv;
	bool asked; /* the other member was sent what this one calls */
	int rank, status;
	uint64_t id, tag, length, expected;
};

struct svc_member {
	int state, status; /* GONE: why; ABSENT: why the last connection ended, or OK */
	bool refused;      /* the member dropped the connection that this process began, because it has begun one itself */
	bool told;         /* that the group has failed */
	bool confirms;     /* it is to be sent a confirmation, which the queue did not take yet */
	bool closing;      /* its event that ends xport_ep_close_start has not come */
	xport_ep *ep;
	struct svc_group_op news, confirm, news_out, confirm_out, call_out;
	struct svc_group_call asked; /* a call that the member has made, and this one has not */
	uint8_t news_in[SVC_GROUP_CALL_BYTES], out[SVC_GROUP_NEWS_BYTES], call[SVC_GROUP_CALL_BYTES], word[1];
};

/* A value of xport_group_put. */
struct svc_group_value {
	struct svc_group_value *next;
	size_t len;
	char key[XPORT_GROUP_KEY_MAX + 1];
	uint8_t bytes[];
};

enum { SVC_GROUP_BUCKETS = 256 };

struct xport_group {
	xport *x;
	pthread_mutex_t lock;
	bool joining; /* this member has the cards, but others may still ask the source */
	bool calling; /* a thread is in a function that waits */
	int rank, members;
	int spins; /* polls before a sleep; 0: there are more members than CPUs */
	uint64_t id, tag;
	xport_completion_fn other;
	void *arg;
	struct svc_group_source *source;
	xport_listener *listener;
	struct svc_group_card card; /* of this member */
	struct svc_member *member;
	int connect_rank; /* whose connection could not be made last, and why */
	char connect_why[160];
	int confirms; /* members whose `confirms` is set */
	bool late; /* an endpoint could not be flushed in time */
	/* failure */
	int failed, status;
	char why[256];
	/* collective operations */
	uint32_t number;
	int kind;
	struct svc_group_call call[SVC_GROUP_CALLS]; /* the last ones, by number */
	int asked;                                   /* members whose `asked` is set */
	bool certain; /* who is waited for has nothing to wait for itself */
	struct svc_group_op op[SVC_GROUP_OPS];
	uint8_t *scratch;
	size_t scratch_size;
	/* values */
	struct svc_group_value *value[SVC_GROUP_BUCKETS];
	struct svc_group_value *put, **put_end; /* since the last fence */
	uint64_t put_bytes;
};

/* ---- group_wait.c ---- */

/* Begins a function that waits, with the lock held; BUSY: there is another one. */
int svc_group_enter(struct xport_group *g, const char *operation);
void svc_group_leave(struct xport_group *g);
/* Polls once, for up to `ms`, without the lock meanwhile. */
int svc_group_turn(struct xport_group *g, int ms, const char *operation);
/* Takes a completion; false: it is not the group's. */
bool svc_group_take(struct xport_group *g, const struct xport_completion *c);
/* The group fails, if it has not failed: remembers who and why, and notifies the others. */
void svc_group_fail(struct xport_group *g, int rank, int status, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));
/* Whether a group can have failed so. The other errors say that a call did not begin, or is to be repeated. */
static inline bool svc_group_status_valid(int status)
{
	return status != XPORT_OK && status != XPORT_ERR_BUSY && status != XPORT_ERR_AGAIN;
}
/* The status of a failed group, described for `operation`. */
int svc_group_error(struct xport_group *g, const char *operation);
/* Sends what the queues did not take: confirmations, and that the group has failed. */
void svc_group_spread(struct xport_group *g);
/* A member has ended. It may have said why before: that is awaited for a moment. */
void svc_group_hear(struct xport_group *g, const char *operation);
/* Milliseconds left until `until`, at most `most`. */
int svc_group_left(int64_t until, int most);

/* ---- group_ep.c ---- */

/* Starts to connect to a member, whose card is known. */
int svc_member_connect(struct xport_group *g, int rank, const struct svc_group_card *card, const char *operation);
/* Takes the connections that wait. */
void svc_group_accept(struct xport_group *g);
/* An endpoint is open: XPORT_EVENT_CONNECTED. */
void svc_member_connected(struct xport_group *g, int rank);
/* The member's endpoint has ended. */
void svc_member_ended(struct xport_group *g, int rank, int status);
/* The rank of an endpoint; -1: none. */
int svc_member_find(const struct xport_group *g, const xport_ep *ep);
/* The completion of a receive or send of the member's own. */
void svc_member_done(struct xport_group *g, int rank, struct svc_group_op *op);
/* Whether the members at this distance from each other need an endpoint for collective operations. */
bool svc_group_neighbours(const struct xport_group *g, int rank);
/* Confirms a connection that the member of higher rank began. */
void svc_member_confirm(struct xport_group *g, int rank);
/* Posts on a member's endpoint. */
int svc_group_post(struct xport_group *g, struct svc_group_op *op, int rank, bool recv, void *buf, size_t len,
                   uint64_t tag, uint64_t mask);

/* ---- group_coll.c ---- */

/* Begins a collective operation; svc_group_enter was called. Returns why the group has failed, or XPORT_OK. */
int svc_coll_begin(struct xport_group *g, int kind, uint32_t detail, uint64_t length);
/* Ends it. After a failure it ends the messages in progress, and describes the failure. */
int svc_coll_end(struct xport_group *g, int status, const char *operation);
int svc_coll_barrier(struct xport_group *g, int64_t until, const char *operation);
int svc_coll_allgather(struct xport_group *g, size_t len, uint8_t *all, int64_t until, const char *operation);
/* The blocks of all members, each of its own length, are passed around the ring. offset[members] is the end. */
int svc_coll_ring(struct xport_group *g, uint8_t *all, const size_t *offset, int64_t until, const char *operation);
/* Memory for this call; NULL: out of memory, and the group has failed. */
uint8_t *svc_coll_scratch(struct xport_group *g, size_t len);

/* ---- group_call.c ---- */

/* The next collective operation is this one. */
void svc_call_begin(struct xport_group *g, int kind, uint32_t detail, uint64_t length);
/* Sends the current call to a member, which compares. False: try again later. */
bool svc_call_ask(struct xport_group *g, int rank);
/* A member has sent its call; false: the bytes are none. */
bool svc_call_asked(struct xport_group *g, int from, const uint8_t *bytes, size_t len);

/* ---- group_reduce.c ---- */

/* Bytes of an element; 0: unknown type. */
size_t svc_reduce_size(int type);
/* to[i] = op(low[i], high[i]); `to` may be either. */
void svc_reduce(int type, int op, void *to, const void *low, const void *high, size_t count);

/* ---- group_kv.c ---- */

void svc_values_free(struct xport_group *g);

#endif
