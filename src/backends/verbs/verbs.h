/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.h - what the files of the verbs back end share.
 *
 * ASSUMPTIONS  The core's calls into one instance never overlap (backend.h), so nothing here is locked. Each instance
 *              has its own context, protection domain, completion queues and listening rdma_cm id. Only librdmacm's
 *              process-wide state is shared.
 * ERRORS       vrb_fail() describes a failed call. vrb_broke() reports once that an endpoint's connection is unusable.
 */
#ifndef VERBS_H
#define VERBS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "backends/backend.h"
#include "base/clock.h"
#include "base/list.h"
#include "verbs_dev.h"

#define vrb_likely(x) __builtin_expect(!!(x), 1)
#define vrb_unlikely(x) __builtin_expect(!!(x), 0)

enum {
	VRB_FRAME_MAX = 8192,
	VRB_CREDITS = 32,
	VRB_REPOST = 8,    /* receives are posted again in lists of this length */
	VRB_GREETINGS = 8, /* greetings sent at most before the peer answers one */
	VRB_RX = 2 * VRB_CREDITS + 8 + VRB_GREETINGS + VRB_REPOST, /* what the contract requires, and those */
	VRB_SQ = 128,         /* outstanding work requests of an endpoint; a power of two */
	VRB_RQ = 128,         /* requested: siw runs out of shallow queues (verbs-vm.md) */
	VRB_RING = 256 << 10, /* bytes of outstanding frames; a power of two */
	VRB_RING_ALIGN = 64,  /* unit of allocation in the ring */
	VRB_BUFFER = VRB_RING + VRB_RX * VRB_FRAME_MAX,
	VRB_CQ_SHARE = 256,   /* entries of an endpoint: all that it may have outstanding, so that no queue overruns */
	VRB_WC = 16,          /* completions taken at a time */
	VRB_RETRIES = 6,      /* the maximum, 7, means "for ever" to rxe (rxe_completer) */
	VRB_EVENTS = 96,      /* ... and in a poll, approximately */
	VRB_COPY_MAX = 1024,  /* puts up to this length are copied, which is cheaper than a completion */
	VRB_RESERVE = 8,      /* work requests reserved for frames */
	VRB_READS = 16,       /* outstanding READs of an endpoint, at most */
	VRB_BATCH = 32,       /* puts that share a doorbell, at most */
	VRB_BATCH_SHORT = 64, /* longer ones are copied to the ring while they wait */
	VRB_DEAD_LISTENERS = 16, /* listeners that the kernel may close before listening fails */
	VRB_PORTS = 16,          /* attempts to find a port that TCP has not given away */
	VRB_ROUTES = 4,          /* attempts to resolve a route, RESOLVE_MS each */
	VRB_COOKIE = 16,
	VRB_PROOF = 8, /* bytes read to prove that puts are placed */
	VRB_KEY = 16   /* packed native key */
};

/* A completion queue, and how many of its entries are not assigned to an endpoint. */
struct vrb_cq {
	struct xpi_list link; /* be->cqs */
	struct ibv_cq *cq;
	unsigned entries, room;
	bool broken; /* the device reported an error: no more completions */
};

/* An opened instance. */
struct xpi_be {
	/* the data path */
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	struct vrb_ep **table; /* by the upper 16 bits of wr_id */
	struct xpi_list cqs;
	struct xpi_list batched; /* struct vrb_ep: puts wait for a doorbell */
	unsigned polls;
	bool slept;             /* armed since the last poll: the completion channel may be readable */
	bool look;              /* ... and the other descriptors */
	unsigned attentive;     /* number of endpoints that wait for rdma_cm events */
	unsigned unlooked;      /* polls since the other descriptors, or at least the clock, were checked */
	struct timespec looked; /* the coarse clock then */
	int nstash;             /* completions read by arm, for the next poll */
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
	struct rdma_cm_id *dead_listeners[VRB_DEAD_LISTENERS]; /* earlier ones that the kernel closed */
	unsigned ndead_listeners;
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	char name[64]; /* of the device */
	uint8_t port;
	enum vrb_kind kind;
	union vrb_ip ip; /* where it listens, with the port */
	uint32_t inline_max, inline_batched, reads_max, rma_max;
	uint32_t get_min;    /* the core carries shorter gets */
	uint32_t lent_min;   /* longer sends stay in use by the stack unless they are signalled: see verbs_am.c */
	uint8_t ack_timeout; /* as ibv_qp_attr.timeout */
	int peer_timeout_ms;
	int port_timer;          /* runs while the port is down: when it expires, the peers are lost */
	struct ibv_mr *proof_mr; /* a page that peers read; NULL: a READ proves nothing here, see verbs_rma.c */
	void *proof;
	bool nic_atomic;       /* the device has atomics on 8 bytes */
	bool sink_needs_write; /* the target of a READ must grant REMOTE_WRITE, as iWARP says */
	bool target_bounds;    /* the device checks bounds and rights of peers' requests */
	int comp_vector;       /* the interrupt that wakes us */
	unsigned cq_entries;   /* of the first completion queue; each further one is twice as long */
	bool blocks;           /* siw: rdma_connect waits for an answer */
	bool strangers_close;  /* siw: anyone who can connect to its port can make the kernel close the listener */
	bool stops_first; /* iWARP except siw: disconnecting waits for the peer unless the queue pair is stopped first */
	bool no_sentinel;    /* siw: requests posted to a stopped queue pair do not complete; all earlier ones have */
	bool gone;           /* the device was removed */
	int64_t stranger_ms; /* when an unexpected connection was last logged */
	struct xpi_list eps; /* struct vrb_ep: all of them */
	uint32_t table_size;
	uint16_t generation;
};

enum vrb_state {
	VRB_NEW,        /* passive: the peer may connect */
	VRB_ADDRESS,    /* active: resolving the address */
	VRB_ROUTE,      /* active: resolving the route */
	VRB_PROBING,    /* active: checking that the address answers at all */
	VRB_CONNECTING, /* active: connection requested */
	VRB_ACCEPTING,  /* passive: accepted, waiting for the peer's greeting */
	VRB_GREETING,   /* active: connected, waiting for the answer to the greeting */
	VRB_UP,
	VRB_CLOSING, /* the queue pair is in error and drains */
	VRB_CLOSED
};

/* The lower half of a wr_id: its kind, and its index in the last 16 bits. */
enum { VRB_ID_RX = 1 << 30, VRB_ID_SENTINEL = 1 << 29 };

/* An outstanding work request. */
struct vrb_sent {
	struct xpi_req *req; /* NULL: no completion to report */
	uint32_t ring_end;   /* the ring up to here is free once this is done */
	bool signalled;      /* it has a completion of its own */
	bool get, done;
	bool atomic; /* get is set as well; the old value is at the end of its part of the ring */
};

/* Puts that wait for a doorbell, see verbs_batch.c. */
struct vrb_batch {
	unsigned end; /* the last ep->waiting before it */
	struct ibv_send_wr wr[VRB_BATCH];
	struct ibv_sge sge[VRB_BATCH];
	uint8_t data[VRB_BATCH][VRB_BATCH_SHORT];
};

/* What an endpoint needs per work request; allocated with it. */
struct vrb_queues {
	struct vrb_batch batch;
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
	unsigned room; /* work requests that may still be posted; also 0 if the endpoint must not be used: one test */
	uint32_t lkey; /* of the buffer */
	uint64_t key;  /* upper half of its wr_ids */
	uint8_t *ring, *rx;
	uint32_t ring_head, ring_tail, ring_signalled;
	uint32_t sq_head, sq_tail; /* sent[], modulo VRB_SQ */
	uint32_t sq_swept;         /* unsignalled requests before this one are done */
	uint32_t unsignalled;
	unsigned waiting;        /* how many of the last requests in sent[] wait in q->batch */
	unsigned put_at;         /* be->polls at the last short put */
	struct xpi_list batched; /* be->batched, while some wait */
	uint32_t gets, gets_max;
	struct vrb_rkey proof; /* of the peer's page */
	struct vrb_queues *q;
	struct ibv_recv_wr *repost, **repost_end; /* receives to post again */
	unsigned nrepost;
	unsigned rx_posted;
	struct xpi_be *be;
	struct xpi_core_ep *core_ep;
	/* life */
	struct xpi_list link; /* be->eps */
	enum vrb_state state;
	bool active;       /* the caller */
	bool waits;        /* is counted in be->attentive */
	bool listed;       /* in be->eps and be->table */
	bool greeted;      /* by the peer */
	uint8_t greetings; /* sent */
	uint8_t routes;    /* attempts to resolve the route */
	uint8_t ports;     /* ports tried that TCP had given away */
	uint8_t tos;       /* of its packets, if marked */
	bool marked;
	bool connected;    /* rdma_cm reported it, or is about to */
	bool awaited;      /* iWARP: rdma_cm has not yet reported how connecting ended */
	bool broken, told; /* unusable; the core was notified */
	bool drained;      /* all posted sends have completed */
	struct rdma_cm_id *id;
	int probe;                     /* TCP connection that checks the address, see verbs_ep.c; or -1 */
	enum rdma_cm_event_type event; /* the last event about connecting */
	int event_status;
	bool event_new;
	char failure[128]; /* why rdma_cm gave up; or "" */
	struct vrb_cq *cq;
	struct ibv_mr *buffer_mr;
	uint8_t *buffer;
	int64_t due_ms; /* CLOCK_MONOTONIC: of the next greeting; awaited, closing: when not to wait longer */
	uint8_t cookie[VRB_COOKIE];
};

struct vrb_mr {
	struct ibv_mr *mr; /* NULL: too long for the device; the core emulates access */
	void *base;
	bool sink; /* a READ may write there */
};

/* verbs_status.c */
/* Describes a failed call of the stack, whose errno is `error`. */
int vrb_fail(struct xpi_be *be, int status, int error, const char *hint, const char *what);
/* The same for memory that could not be registered; the text names the limit. */
int vrb_fail_locked(struct xpi_be *be, int error, size_t length);
void vrb_broke(struct vrb_ep *ep, int64_t code, const char *why) __attribute__((cold));
void vrb_all_broke(struct xpi_be *be, int64_t code, const char *why) __attribute__((cold));

/* verbs_cm.c */
/* The first bytes of a connection request's private data. */
#define VRB_MAGIC "xpv1"
int vrb_cm_open(struct xpi_be *be);
void vrb_cm_close(struct xpi_be *be);
/* Listens again if the kernel closed the listener. The port in be->ip changes then. */
void vrb_cm_hear(struct xpi_be *be);
int vrb_cm_poll(struct xpi_be *be);
/* Called when the peer's first frame arrived before rdma_cm's last event. */
void vrb_cm_overtaken(struct vrb_ep *ep);

/* verbs_qp.c */
/* Finds the device's limits by trial. */
int vrb_qp_probe(struct xpi_be *be);
int vrb_qp_new(struct vrb_ep *ep);
/* Moves the queue pair to INIT and posts receives. */
int vrb_qp_init(struct vrb_ep *ep);
/* Moves the queue pair to RTS. rdma_cm must know the peer. */
int vrb_qp_connect(struct vrb_ep *ep);
void vrb_qp_stop(struct vrb_ep *ep);
void vrb_qp_free(struct vrb_ep *ep);
void vrb_cqs_free(struct xpi_be *be);
int vrb_repost(struct vrb_ep *ep);

/* verbs_ep.c */
int vrb_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int vrb_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int vrb_ep_mark(struct xpi_be *be, void *ep, int traffic_class);
int vrb_ep_quiesce(struct xpi_be *be, void *ep);
void vrb_ep_destroy(struct xpi_be *be, void *ep);
/* Sets whether every poll must check for rdma_cm events because of this endpoint. */
void vrb_ep_waits(struct vrb_ep *ep, bool waits);

/* verbs_batch.c */
/* Adds a put to the batch. Its data is inline and short, or in the ring. */
int vrb_batch_add(struct vrb_ep *ep, const struct ibv_send_wr *wr);
/* Posts the batch, followed by `last` if that is not NULL. Returns the result of ibv_post_send. After a failure the requests that
 * were not accepted stay in the batch, or only `last` was not accepted. */
int vrb_batch_post(struct vrb_ep *ep, struct ibv_send_wr *last);
/* Whether this errno means only that the queue is full. */
bool vrb_post_again(const struct vrb_ep *ep, int error);
/* Turns this errno of a refused request into AGAIN or PEER_LOST. */
int vrb_post_failed(struct vrb_ep *ep, int error) __attribute__((noinline, cold));
/* Posts the batches of all endpoints. One that fails is reported as broken. */
void vrb_batch_post_all(struct xpi_be *be);
/* Drops the batch. */
void vrb_batch_forget(struct vrb_ep *ep);

/* verbs_am.c */
int vrb_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
int vrb_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req);
/* Sends an empty frame, which the back end handles itself. */
int vrb_greet(struct vrb_ep *ep);
/* Allocates `len` bytes in the ring, or returns NULL. */
uint8_t *vrb_ring_take(struct vrb_ep *ep, size_t len);
/* Whether the next work request must be signalled, to learn that earlier ones are done. */
static inline bool vrb_signal_due(const struct vrb_ep *ep)
{
	return ep->unsignalled >= VRB_SQ / 4 || ep->ring_head - ep->ring_signalled >= VRB_RING / 4;
}
/* Records a work request as the next in the queue. */
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
/* ibv_post_send. If the doorbell failed after requests were accepted, *bad is NULL: they must not be posted again. */
static inline int vrb_hand_over(struct vrb_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc;

	*bad = NULL;
	rc = ibv_post_send(ep->qp, wr, bad);
	return vrb_unlikely(rc != 0) && *bad == NULL ? EIO : rc;
}
/* Posts a work request, after the batch if there is one, and records it. Returns XPORT_OK, AGAIN or PEER_LOST. */
static inline __attribute__((always_inline)) int vrb_post(struct vrb_ep *ep, struct ibv_send_wr *wr,
                                                          struct xpi_req *req)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->wr_id = ep->key | (ep->sq_tail & 0xffff);
	if (vrb_likely(ep->waiting == 0))
		rc = vrb_hand_over(ep, wr, &bad);
	else
		rc = vrb_batch_post(ep, wr);
	if (vrb_unlikely(rc != 0))
		return vrb_post_failed(ep, rc);
	vrb_note(ep, wr, req);
	return XPORT_OK;
}

/* verbs_mr.c */
int vrb_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
void vrb_mr_dereg(struct xpi_be *be, void *mr);
int vrb_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len);
int vrb_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct);

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
