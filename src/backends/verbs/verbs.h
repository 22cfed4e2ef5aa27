/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.h - what the files of the verbs back end share.
 *
 * ASSUMPTIONS  The core's calls into one instance never overlap (backend.h), so nothing here is locked.  Each instance
 *              has a context, a protection domain, completion queues and a listening rdma_cm id of its own; only what
 *              librdmacm keeps for the process is shared.
 * ERRORS       vrb_fail() describes a failed call; vrb_broke() says once that an endpoint's connection is unusable.
 */
#ifndef VERBS_H
#define VERBS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "backends/backend.h"
#include "base/list.h"
#include "verbs_dev.h"

#define vrb_likely(x) __builtin_expect(!!(x), 1)
#define vrb_unlikely(x) __builtin_expect(!!(x), 0)

enum {
	VRB_FRAME_MAX = 8192,
	VRB_CREDITS = 32,
	VRB_REPOST = 8,                                            /* receives are posted again in lists of so many */
	VRB_GREETINGS = 8,                                         /* at most so many before the peer answers one */
	VRB_RX = 2 * VRB_CREDITS + 8 + VRB_GREETINGS + VRB_REPOST, /* what the contract asks for, and these */
	VRB_SQ = 128,         /* work requests of an endpoint under way; a power of two */
	VRB_RQ = 128,         /* asked for: siw runs out of shallow queues (verbs-vm.md) */
	VRB_RING = 256 << 10, /* bytes of frames under way; a power of two */
	VRB_RING_ALIGN = 64,  /* what is taken of it */
	VRB_BUFFER = VRB_RING + VRB_RX * VRB_FRAME_MAX,
	VRB_CQ_SHARE = 256,   /* entries of an endpoint: all it may have under way, so that no queue overruns */
	VRB_WC = 16,          /* completions taken at a time */
	VRB_RETRIES = 6,      /* rxe takes 7, the most there is, for "for ever" (rxe_completer) */
	VRB_EVENTS = 96,      /* ... and in a poll, about */
	VRB_COPY_MAX = 1024,  /* puts up to here are copied, which is cheaper than a completion */
	VRB_RESERVE = 8,      /* work requests that puts and gets leave to frames */
	VRB_READS = 16,       /* READs of an endpoint under way, at most */
	VRB_CHAIN = 32,       /* puts that share a doorbell, at most */
	VRB_CHAIN_SHORT = 64, /* longer ones are copied to the ring if they wait for it */
	VRB_DEAF = 16,        /* listeners that may be lost */
	VRB_PORTS = 16,       /* that rdma_cm may choose, should TCP have given them away */
	VRB_ROUTES = 4,       /* times that a route is asked for, each for RESOLVE_MS */
	VRB_COOKIE = 16,
	VRB_PROOF = 8, /* bytes that are read to prove puts */
	VRB_KEY = 16   /* packed native key */
};

/* A completion queue and how many more entries may be given out. */
struct vrb_cq {
	struct xpi_list link; /* be->cqs */
	struct ibv_cq *cq;
	unsigned entries, room;
	bool broken; /* the device says so: nothing comes of it any more */
};

/* An opened instance. */
struct xpi_be {
	/* the data path */
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	struct vrb_ep **table; /* by the upper 16 bits of wr_id */
	struct xpi_list cqs;
	struct xpi_list chained; /* struct vrb_ep: puts wait for a doorbell */
	unsigned polls;
	bool slept;             /* armed since the last poll: the completion channel may have something */
	bool look;              /* ... and the other descriptors */
	unsigned attentive;     /* endpoints that wait for events of rdma_cm */
	unsigned unlooked;      /* polls since the other descriptors, or the clock at least, were looked at */
	struct timespec looked; /* the coarse clock then */
	int nstash;             /* completions that arm took: the next poll's */
	struct ibv_wc stash[VRB_WC];
	struct ibv_wc wc[VRB_WC]; /* the poll's own */
	/* life */
	const struct xpi_log *log;
	struct xport_error *err;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp;
	struct rdma_event_channel *cm;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *deaf[VRB_DEAF]; /* earlier ones that the kernel closed */
	unsigned ndeaf;
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	char name[64]; /* of the device */
	uint8_t port;
	enum vrb_kind kind;
	union vrb_ip ip; /* where it listens, with the port */
	uint32_t inline_max, inline_chained, reads_max, rma_max;
	uint32_t get_min;  /* shorter gets are the core's */
	uint32_t lent_min; /* sends from here on stay in the stack's hands unless they are signalled; see verbs_am.c */
	uint8_t ack_timeout; /* as ibv_qp_attr.timeout */
	int peer_timeout_ms;
	int port_timer;          /* runs while the port is down: when it expires, the peers are lost */
	struct ibv_mr *proof_mr; /* a page that peers read; or NULL: that proves nothing here, see verbs_rma.c */
	void *proof;
	bool nic_atomic;       /* the device has atomics on 8 bytes */
	bool sink_needs_write; /* the target of a READ must grant REMOTE_WRITE, as iWARP says */
	bool target_bounds;    /* the device checks bounds and rights of what peers ask for */
	int comp_vector;       /* the interrupt that wakes us */
	unsigned cq_entries;   /* of the first completion queue; each further one is twice as long */
	bool blocks;           /* siw: rdma_connect waits for an answer */
	bool strangers_close;  /* siw: who may send to its port can make the kernel close the listener */
	bool stops_first; /* iWARP but siw: an adapter that disconnects waits for its peer, unless it is stopped before */
	bool no_sentinel;     /* siw: what a stopped queue pair is given does not come back, all before has */
	bool gone;            /* the device was removed */
	uint64_t stranger_ms; /* when the last connection that nobody waits for was told of */
	struct xpi_list eps;  /* struct vrb_ep: all of them */
	uint32_t table_size;
	uint16_t generation;
};

enum vrb_state {
	VRB_NEW,       /* may be called by its peer */
	VRB_ADDRESS,   /* active: resolving the address */
	VRB_ROUTE,     /* active: resolving the route */
	VRB_KNOCKING,  /* active: asking whether the address answers at all */
	VRB_CALLING,   /* active: asked the peer */
	VRB_ACCEPTING, /* passive: accepted; the peer's greeting is waited for */
	VRB_GREETING,  /* active: connected; the answer to the greeting is waited for */
	VRB_UP,
	VRB_CLOSING, /* the queue pair is in error and drains */
	VRB_CLOSED
};

/* In the lower half of a wr_id: what it is, and in the last 16 bits which. */
enum { VRB_ID_RX = 1 << 30, VRB_ID_SENTINEL = 1 << 29 };

/* A work request under way. */
struct vrb_sent {
	struct xpi_req *req; /* NULL: nobody waits */
	uint32_t ring_end;   /* everything before it in the ring is free once this is done */
	bool signalled;      /* its own completion comes */
	bool get, done;
	bool atomic; /* a get as well: its old value lies at the end of what it has of the ring */
};

/* Puts that wait for a doorbell, see verbs_chain.c. */
struct vrb_chain {
	unsigned end; /* the last ep->waiting before it */
	struct ibv_send_wr wr[VRB_CHAIN];
	struct ibv_sge sge[VRB_CHAIN];
	uint8_t data[VRB_CHAIN][VRB_CHAIN_SHORT];
};

/* What an endpoint needs per work request; allocated with it. */
struct vrb_queues {
	struct vrb_chain chain;
	struct vrb_sent sent[VRB_SQ];
	struct ibv_recv_wr rx_wr[VRB_RX];
	struct ibv_sge rx_sge[VRB_RX];
};

struct vrb_rkey {
	uint64_t base;
	uint32_t rkey;
};

/* The back end's part of an endpoint. */
struct vrb_ep {
	/* the data path */
	struct ibv_qp *qp;
	unsigned room; /* work requests that may still be posted; 0 as well when it must not be used: one test */
	uint32_t lkey; /* of the buffer */
	uint64_t key;  /* upper half of its wr_ids */
	uint8_t *ring, *rx;
	uint32_t ring_head, ring_tail, ring_signalled;
	uint32_t sq_head, sq_tail; /* sent[], modulo VRB_SQ */
	uint32_t sq_swept;         /* what lies before and is not signalled is done */
	uint32_t unsignalled;
	unsigned waiting;        /* of those in sent[], the last so many wait in q->chain */
	unsigned put_at;         /* be->polls at the last short put */
	struct xpi_list chained; /* be->chained, while some wait */
	uint32_t gets, gets_max;
	struct vrb_rkey proof; /* of the peer's page */
	struct vrb_queues *q;
	struct ibv_recv_wr *repost, **repost_end; /* receives to be posted again */
	unsigned nrepost;
	unsigned rx_posted;
	struct xpi_be *be;
	struct xpi_core_ep *core_ep;
	/* life */
	struct xpi_list link; /* be->eps */
	enum vrb_state state;
	bool active;       /* the caller */
	bool waits;        /* counted in be->attentive */
	bool listed;       /* in be->eps and be->table */
	bool greeted;      /* by the peer */
	uint8_t greetings; /* sent */
	uint8_t routes;    /* times that the route was asked for */
	uint8_t ports;     /* that rdma_cm chose, and TCP had given away */
	bool connected;    /* rdma_cm says so, or is about to */
	bool awaited;      /* on iWARP: rdma_cm has to say how connecting ended */
	bool broken, told; /* unusable; the core knows */
	bool drained;      /* what was posted for sending has ended */
	struct rdma_cm_id *id;
	int knock;                     /* a connection beside it, see verbs_ep.c, or -1 */
	enum rdma_cm_event_type event; /* the last that concerns connecting */
	int event_status;
	bool event_new;
	char failure[128]; /* why rdma_cm gave up; or "" */
	struct vrb_cq *cq;
	struct ibv_mr *buffer_mr;
	uint8_t *buffer;
	uint64_t due_ms; /* CLOCK_MONOTONIC: of the next greeting; awaited, closing: when not to wait longer */
	uint8_t cookie[VRB_COOKIE];
};

struct vrb_mr {
	struct ibv_mr *mr; /* NULL: too long for the device; the core carries it */
	void *base;
	bool sink; /* a READ may write there */
};

/* verbs_status.c */
/* Describes a failed call of the stack, whose errno is `error`. */
int vrb_fail(struct xpi_be *be, int status, int error, const char *hint, const char *what);
/* The same for memory that could not be registered: says what the limit is. */
int vrb_fail_locked(struct xpi_be *be, int error, size_t length);
void vrb_broke(struct vrb_ep *ep, int64_t code, const char *why) __attribute__((cold));
void vrb_all_broke(struct xpi_be *be, int64_t code, const char *why) __attribute__((cold));
uint64_t vrb_now_ms(void);

/* verbs_cm.c */
/* What a call begins with. */
#define VRB_MAGIC "xpv1"
int vrb_cm_open(struct xpi_be *be);
void vrb_cm_close(struct xpi_be *be);
/* Listens anew if the kernel closed the listener: the port of be->ip is another one then. */
void vrb_cm_hear(struct xpi_be *be);
int vrb_cm_poll(struct xpi_be *be);
/* The peer's first frame may overtake rdma_cm's last word. */
void vrb_cm_overtaken(struct vrb_ep *ep);

/* verbs_qp.c */
/* Finds the device's limits by trying. */
int vrb_qp_probe(struct xpi_be *be);
int vrb_qp_new(struct vrb_ep *ep);
/* INIT, with receives posted. */
int vrb_qp_init(struct vrb_ep *ep);
/* To where it may send; rdma_cm knows the peer by now. */
int vrb_qp_connect(struct vrb_ep *ep);
void vrb_qp_stop(struct vrb_ep *ep);
void vrb_qp_free(struct vrb_ep *ep);
void vrb_cqs_free(struct xpi_be *be);
int vrb_repost(struct vrb_ep *ep);

/* verbs_ep.c */
int vrb_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int vrb_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int vrb_ep_quiesce(struct xpi_be *be, void *ep);
void vrb_ep_destroy(struct xpi_be *be, void *ep);
/* Whether rdma_cm's events are looked for at every poll because of it. */
void vrb_ep_waits(struct vrb_ep *ep, bool waits);

/* verbs_chain.c */
/* Remembers a put, which is inline and short or lies in the ring, and lets it wait for the next doorbell. */
int vrb_chain_add(struct vrb_ep *ep, const struct ibv_send_wr *wr);
/* Hands over what waits, and `last` behind it, if that is not NULL.  What ibv_post_send answered: then, what was not taken waits
 * still, or is `last`. */
int vrb_chain_leave(struct vrb_ep *ep, struct ibv_send_wr *last);
/* Whether that errno only says that the queue is full. */
bool vrb_post_again(const struct vrb_ep *ep, int error);
/* The same for all endpoints; who cannot is told to be broken. */
void vrb_chains_leave(struct xpi_be *be);
/* What waits will never leave. */
void vrb_chain_forget(struct vrb_ep *ep);

/* verbs_am.c */
int vrb_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
int vrb_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req);
/* An empty frame, which is nobody's but the back end's. */
int vrb_greet(struct vrb_ep *ep);
/* Room in the ring for `len` bytes, or NULL. */
uint8_t *vrb_ring_take(struct vrb_ep *ep, size_t len);
/* What the stack's refusal with this errno means: AGAIN or PEER_LOST. */
int vrb_post_failed(struct vrb_ep *ep, int error) __attribute__((noinline, cold));
/* Whether the next work request must be signalled so that its predecessors are known to be done. */
static inline bool vrb_signal_due(const struct vrb_ep *ep)
{
	return ep->unsignalled >= VRB_SQ / 4 || ep->ring_head - ep->ring_signalled >= VRB_RING / 4;
}
/* Remembers a work request that is the next in the queue. */
static inline __attribute__((always_inline)) void vrb_note(struct vrb_ep *ep, const struct ibv_send_wr *wr,
                                                           struct xpi_req *req)
{
	bool signalled = (wr->send_flags & IBV_SEND_SIGNALED) != 0;

	ep->q->sent[ep->sq_tail & (VRB_SQ - 1)] = (struct vrb_sent){
		.req = req, .ring_end = ep->ring_head, .signalled = signalled, .get = wr->opcode == IBV_WR_RDMA_READ};
	if (signalled)
		ep->ring_signalled = ep->ring_head;
	ep->unsignalled = signalled ? 0 : ep->unsignalled + 1;
	ep->sq_tail++;
	ep->room--;
}
/* ibv_post_send.  Where the doorbell failed behind requests that were taken none is named: they must not be posted again. */
static inline int vrb_hand_over(struct vrb_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc;

	*bad = NULL;
	rc = ibv_post_send(ep->qp, wr, bad);
	return vrb_unlikely(rc != 0) && *bad == NULL ? EIO : rc;
}
/* Hands a work request over, behind those that wait, and remembers it.  XPORT_OK, AGAIN or PEER_LOST. */
static inline __attribute__((always_inline)) int vrb_post(struct vrb_ep *ep, struct ibv_send_wr *wr,
                                                          struct xpi_req *req)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->wr_id = ep->key | (ep->sq_tail & 0xffff);
	if (vrb_likely(ep->waiting == 0))
		rc = vrb_hand_over(ep, wr, &bad);
	else
		rc = vrb_chain_leave(ep, wr);
	if (vrb_unlikely(rc != 0))
		return vrb_post_failed(ep, rc);
	vrb_note(ep, wr, req);
	return XPORT_OK;
}

/* verbs_mr.c */
int vrb_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
void vrb_mr_dereg(struct xpi_be *be, void *mr);
int vrb_rkey_pack(struct xpi_be *be, const void *mr, void *buf, size_t *len);
int vrb_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t length,
                    uint32_t rights, void **direct);

int vrb_proof_new(struct xpi_be *be);
void vrb_proof_free(struct xpi_be *be);

/* verbs_rma.c */
int vrb_drain(struct xpi_be *be, void *ep, struct xpi_req *req);
int vrb_put(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
            struct xpi_req *req);
int vrb_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
            struct xpi_req *req);
int vrb_atomic(struct xpi_be *be, void *ep, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
               struct xpi_req *req);
/* Where the old value of an atomic lies that has come back. */
const void *vrb_atomic_old(const struct vrb_ep *ep, const struct vrb_sent *s);

/* verbs_comp.c */
int vrb_poll(struct xpi_be *be);
int vrb_fds(struct xpi_be *be, int *fds, int max);
int vrb_arm(struct xpi_be *be);

#endif
