/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - the links of an instance: internals that link.c (the links, events, the loop), link_open.c, link_connect.c (attempts, up and
 * down), link_keys.c and link_ops.c share.
 *
 * An endpoint of a link is `ep` while it connects or is open, and `old` from its end until it is destroyed. The link connects
 * again only when there is no `old`: so it has at most two endpoints, and `old` is the one whose unpacked keys exist.
 *
 * Events need no memory when they happen. Each link has one node for each type. Each is queued at most once: the link
 * connects again only after DOWN was taken, and UP is queued before DOWN. Each operation has a node for its DONE.
 *
 * Locks: `lock` of the links protects all of it. All functions here need it.
 */
#ifndef SVC_LINK_H
#define SVC_LINK_H

#include <pthread.h>
#include <stdbool.h>

#include "services/xport_services.h"

enum { SVC_LINK_BUCKETS = 256, SVC_LINK_WHY = 200 };

/* An event that waits for the application. */
struct svc_link_node {
	struct svc_link_node *next;
	struct xport_link *link;
	int type; /* enum xport_link_event_type; 0: not queued */
};

/* An endpoint of a link, in the index of the links. */
struct svc_link_ep {
	struct svc_link_ep *next;
	struct xport_link *link;
	xport_ep *ep; /* NULL: there is none */
	uint32_t ops; /* operations posted through the link that have not completed */
	bool taken;   /* of an old one: the application has called xport_links_next after its last event */
};

struct svc_link_address {
	char *name;
	int status; /* of the last attempt */
	char why[SVC_LINK_WHY];
};

enum svc_link_op_state { SVC_LINK_OP_FREE = 0, SVC_LINK_OP_POSTED, SVC_LINK_OP_KEPT, SVC_LINK_OP_DONE };

struct svc_link_op {
	struct svc_link_node node; /* first */
	struct svc_link_op *next;  /* free, or kept */
	struct svc_link_ep *on;    /* posted: where */
	int state;                 /* enum svc_link_op_state */
	int status;                /* of the last attempt; XPORT_OK: it was not posted, or succeeded */
	uint32_t type;             /* XPORT_OP_ */
	uint32_t flags;
	uint32_t attempts;
	uint64_t serial; /* in the order in which operations were posted first */
	uint64_t sets;   /* key->sets when it was posted last */
	uint64_t meant;  /* link.known at that time: the instance that it may go to; 0: the first one */
	void *buf;
	size_t len;
	struct xport_link_rkey *key;
	uint64_t offset; /* of a send: the tag */
	void *context;
	struct xport_opt opt; /* with this operation as context */
};

struct xport_link_rkey {
	struct xport_link_rkey *next, **at;
	struct xport_link *link;
	xport_rkey *rkey; /* unpacked on the link's endpoint, or on the old one; NULL: it is not */
	int status;       /* of the last attempt to unpack; XPORT_ERR_STALE_KEY, XPORT_ERR_BAD_KEY: the key is void */
	uint32_t users;   /* repeatable operations */
	uint64_t sets;    /* how often it got other bytes */
	size_t name_len, len;
	uint8_t name[XPORT_LINK_NAME_MAX];
	uint8_t bytes[XPORT_LINK_KEY_MAX];
};

struct xport_link {
	struct xport_links *links;
	struct xport_link *next, **at;
	int state;      /* enum xport_link_state */
	bool announced; /* OPEN: the application has taken UP or PEER_NEW */
	bool renewed;   /* OPEN: it is another instance than before */
	bool down;      /* WAITING: DOWN was not taken yet */
	bool cut;       /* ENDING was cut short: completions may have a stale endpoint */
	bool again;     /* STOPPED: begin again when GIVEN_UP is taken */
	struct svc_link_ep eps[2], *ep, *old;
	struct svc_link_node up, ended, given_up, closed;

	/* options */
	struct xport_conn_attr conn;
	char label[64];
	void *context;
	int first_ms, max_ms, give_up_ms;
	uint32_t rounds_max, repeats, flags;

	/* attempts */
	struct svc_link_address *addresses;
	unsigned naddresses, first, tried,
		at_address; /* first of a round; tried in it; the one that is tried or connected */
	uint64_t random;
	uint32_t rounds, failures; /* both also count an endpoint that was lost soon; xport_link_retry resets them */
	int delay_ms;
	int64_t due, deadline; /* of the next round; to give up, -1: none */
	int64_t since;         /* OPEN: when it came up */
	int64_t lost;          /* when it went down last */
	bool stayed;           /* it was up for long enough before that: the limits begin anew when DOWN is taken */

	/* the peer */
	uint64_t incarnation, ups;
	uint64_t known; /* the instance of the last UP or PEER_NEW that the application has taken; 0: none */
	int status; /* the last error since it was up */
	char why[SVC_LINK_WHY], transport[72];
	int down_status; /* of the last DOWN */
	char down_why[SVC_LINK_WHY];
	char *round_text; /* of GIVEN_UP */
	size_t round_len;
	int closed_status;

	struct xport_link_rkey *keys;
	uint32_t nkeys;
	struct svc_link_op *ops, *free_ops, *kept, *kept_last; /* kept: in the order of serials */
	uint32_t nops, used_ops, nkept;
	uint64_t serial;
};

struct xport_links {
	pthread_mutex_t lock;
	xport *x;
	struct xport_link *list;
	struct svc_link_ep *index[SVC_LINK_BUCKETS];
	struct svc_link_node *first, **last;
	struct xport_link *told; /* the link whose old endpoint becomes free by the next call of xport_links_next */
	bool stirred;            /* look at all links in this step */
	bool destroying;
	uint32_t cut; /* links whose endpoint was destroyed while it was closing */
	int64_t due; /* when to look at all links; -1: not by time */
};

/* ---- link.c ---- */

/* Enters and removes an endpoint of a link. */
void svc_link_index(struct svc_link_ep *e);
void svc_link_unindex(struct svc_link_ep *e);
/* Queues an event. */
void svc_link_event(struct xport_link *link, struct svc_link_node *node, int type);
/* Goes on with all links, if something has happened or is due. */
void svc_links_move(struct xport_links *links);

/* ---- link_open.c ---- */

/* Frees what a link has, except its keys. */
void svc_link_free_memory(struct xport_link *link);

/* ---- link_connect.c ---- */

/* The wait after `failures` + 1 failures: doubled up to max_ms, and then between half of that and all of it. */
int svc_link_wait_ms(uint64_t *random, int first_ms, int max_ms, uint32_t failures);
/* Whether an open link has been up for longer than its last wait, and longer than the first one. */
bool svc_link_stays(const struct xport_link *link, int64_t now);
/* Describes why a link is not up, and returns that. */
int svc_link_not_up(const struct xport_link *link, const char *operation);
/* Takes XPORT_EVENT_CONNECTED, XPORT_EVENT_LOST or XPORT_EVENT_CLOSED of an endpoint of a link. */
void svc_link_ep_event(struct svc_link_ep *e, const struct xport_completion *c);
/* The application has taken DOWN. */
void svc_link_down_taken(struct xport_link *link);
/* Goes on with what is due. Returns when to call it again; -1: not by time. */
int64_t svc_link_move(struct xport_link *link, int64_t now);
int svc_link_retry_now(struct xport_link *link);
/* The application has taken GIVEN_UP. */
void svc_link_given_up_taken(struct xport_link *link);
int svc_link_close_start(struct xport_link *link, int timeout_ms);
/* Cuts a close short that waits for the peer. */
void svc_link_close_cut(struct xport_link *link);
/* Destroys the old endpoint if nothing needs it. Returns whether there is none. */
bool svc_link_reap(struct xport_link *link);

/* ---- link_keys.c ---- */

/* Unpacks the keys on the new endpoint; those that are stale or damaged become void. */
void svc_link_keys_unpack(struct xport_link *link);
/* Unpacks a key of an open link, if it is not. Returns XPORT_ERR_STALE_KEY if it is void; or why unpacking failed for now. */
int svc_link_key_unpack(struct xport_link_rkey *k);
/* The same, and describes the error. */
int svc_link_key_check(struct xport_link_rkey *k, const char *operation);
/* Frees what was unpacked on the old endpoint. */
void svc_link_keys_forget(struct xport_link *link);
uint32_t svc_link_keys_void(const struct xport_link *link);
void svc_link_keys_free(struct xport_link *link);

/* ---- link_ops.c ---- */

/* Makes the operations of a link. Returns XPORT_OK or XPORT_ERR_NO_MEMORY. */
int svc_link_ops_make(struct xport_link *link, uint32_t n);
/* The operation of the link that has this context; NULL: none. */
struct svc_link_op *svc_link_op_of(const struct xport_link *link, const void *context);
void svc_link_op_completed(struct svc_link_op *op, const struct xport_completion *c);
/* Posts kept operations, until the endpoint takes no more. */
void svc_link_ops_post(struct xport_link *link);
/* Ends all kept operations: those that were never posted with `status`, the others with their own. */
void svc_link_ops_end(struct xport_link *link, int status);
/* Ends the kept operations that were meant for another instance than the link's last one. */
void svc_link_ops_end_strange(struct xport_link *link);
/* The application has taken DONE. */
void svc_link_op_free(struct svc_link_op *op);

#endif
