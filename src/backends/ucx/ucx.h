/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx.h - what the files of the UCX back end share.
 *
 * ASSUMPTIONS  The core's calls into one instance never overlap (backend.h), so nothing here is locked; only the sinks
 *              of UCX's log, which belong to the process and are fed by UCX's own thread as well, have a mutex.
 * ERRORS       ucx_fail() describes a failure of UCX; ucx_status() is the one place that maps its codes.
 */
#ifndef UCX_H
#define UCX_H

#include <pthread.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "backends/backend.h"
#include "base/list.h"
#include "base/pool.h"
#include "base/shm.h"

#define ucx_likely(x) __builtin_expect(!!(x), 1)
#define ucx_unlikely(x) __builtin_expect(!!(x), 0)

enum {
	UCX_AM_ID = 0,
	UCX_QUEUE_ID = 1,    /* ucx_queue.c */
	UCX_GREETING_ID = 2, /* ucx_ep.c, ucx_pair.c */
	UCX_FRAME_MAX = 8000,  /* with UCX's own headers one fragment of its tcp and shared memory (8 KiB) */
	UCX_BULK_MAX = 64000,  /* the same with tcp's fragments of 64 KiB */
	UCX_CMA_MIN = 64 << 10, /* below it frames may be much faster: doc/performance.md */
	UCX_UNREGISTERED_MAX = 1024, /* what UCX copies for an adapter rather than register it, at the least */
	UCX_PENDING_MAX = 512, /* requests of one endpoint that UCX may hold; beyond: AGAIN */
	UCX_KEY_MAX = 512,     /* packed native key */
	UCX_SAID = 160,        /* what is kept of UCX's log */
	UCX_ADDRESS_MAX = 2032 /* UCX worker address, so that all fits in what the contract gives */
};

/* One of the things that may stand after "ucx:". */
struct ucx_provider {
	const char *name;
	const char *tls; /* UCX_TLS; NULL: UCX's own choice */
	bool shm, rdma;  /* may reach memory by mapping it, by a network adapter */
	bool sockets;    /* may use UCX's tcp */
	bool pairs;      /* each of its endpoints is connected to one other: ucx_pair.c */
};

/* Where lines of UCX's log go. */
struct ucx_sink {
	struct xpi_list link;
	const struct xpi_log *log;
	bool probing; /* lines of `thread` are the reason of what fails now: kept, logged for debugging only */
	pthread_t thread;
	char last[UCX_SAID]; /* the newest error seen while probing, or else the first warning */
	bool may_ignore;     /* it may have no use for settings that belong to some transports only */
};

/* An opened instance. */
struct xpi_be {
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	const struct xpi_log *log;
	struct xport_error *err;
	const struct ucx_provider *provider;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h self; /* see open_self() */
	ucp_address_t *address;
	size_t address_len;
	size_t hdr_max; /* longest header that UCX takes as such */
	int fd;
	int timer;         /* only where there is shared memory, else -1: see ucx_comp.c */
	uint8_t aside;     /* enum ucx_aside: what a poll has to do besides; in the end nothing, so that it is one test */
	unsigned npending; /* of all endpoints */
	unsigned quiet;    /* polls without an event since the last one */
	bool shm, rdma;    /* what the context really has */
	char device[64], transports[96];
	struct ucx_sink sink;
	ucp_datatype_t packed;  /* ucx_am.c; 0: not needed */
	struct ucx_piece *piece; /* that UCX is being handed */
	struct xpi_pool pieces;
	struct xpi_list eps; /* struct ucx_ep that were created and not closed */
	struct xpi_list expected, strays; /* ucx_pair.c */
	struct {
		uint64_t since_ms; /* CLOCK_MONOTONIC: when it was asked */
		unsigned polls;    /* in a row, since then, in which UCX had nothing to do */
		bool again;        /* another endpoint was closed meanwhile */
		bool stands;       /* and that is final */
	} queue;                   /* ucx_queue.c */
};

enum ucx_aside {
	UCX_ASIDE_NAPPING = 1, /* the timer is set */
	UCX_ASIDE_ASKED = 2    /* a message to ourselves is under way */
};

enum ucx_ep_state { UCX_EP_NEW, UCX_EP_CONNECTING, UCX_EP_UP, UCX_EP_CLOSING, UCX_EP_CLOSED };

/* The back end's part of an endpoint. */
struct ucx_ep {
	struct xpi_list link; /* xpi_be.eps */
	ucp_ep_h ucp;
	unsigned room; /* requests that may still be given to UCX; 0 as well when it must not be used: one test */
	struct xpi_req *sending; /* of the frame being handed to UCX */
	enum ucx_ep_state state;
	struct xpi_be *be;
	struct xpi_core_ep *core_ep;
	struct xpi_list pending; /* struct ucx_rec */
	unsigned npending;
	ucs_status_t why;    /* what UCX reported first; UCS_OK: it lives */
	bool told;           /* the core knows about it */
	uint64_t give_up_ms; /* CLOCK_MONOTONIC: when to close although the peer did not answer; 0: not asked for */
	bool flushing;       /* the flush that proves the way has begun */
	bool greets;         /* the message that has UCX know the peer's endpoint is to be sent */
	bool greeted;        /* ... and has begun */
	bool emptying;       /* the flush before closing has */
	unsigned left;       /* ... npending, when it was last looked at */
	bool settled;        /* ... the last of them that has begun has ended */
	struct xpi_list expecting; /* xpi_be.expected: its peer has not greeted yet */
	uint64_t token;            /* which the greeting says */
	ucp_ep_h greeter;          /* UCX's endpoint over which it came; only to be compared with */
};

/* What UCX keeps for us in each of its requests. */
struct ucx_rec {
	struct xpi_list link; /* ucx_ep.pending */
	struct ucx_ep *ep;
	struct xpi_req *req; /* NULL: nobody to tell */
	void *copy;          /* freed with it */
};

struct ucx_mr {
	ucp_mem_h mem;      /* NULL: no adapter reaches it */
	struct xpi_shm shm; /* base NULL: not of mr_alloc */
	bool writable;      /* by peers that map it */
	void *base;
};

struct ucx_rkey {
	void *map; /* the region, mapped here; or NULL */
	size_t map_len;
	ucp_rkey_h rkey; /* for an adapter; or NULL */
	uint64_t base;   /* the region's address in the process that owns it */
};

/* ucx.c */
uint64_t ucx_now_ms(void); /* CLOCK_MONOTONIC */

/*
 * Whether a transport, as UCX calls it ("rc_mlx5"), is an adapter's that carries puts and gets by itself, and no more once its
 * endpoint is closed.  dc is not: a peer reaches the instance's target, whose end is the instance's.
 */
static inline bool ucx_is_adapter(const char *tl)
{
	return strncmp(tl, "rc", 2) == 0;
}

/* ucx_room.c */
/* Whether descriptors are left for `what`: UCX 1.13 aborts if it gets some but not all it wants. */
int ucx_descriptors(struct xport_error *err, const char *what);
/* Whether shared memory, adapters can be used; if not, `why` says it. */
bool ucx_shm_usable(char *why, size_t size);
bool ucx_rdma_usable(char *why, size_t size);
/* Whether a forked child gets copies of the pages that an adapter uses, as from Linux 5.12 on (ibv_is_fork_initialized(3)). */
bool ucx_fork_copies(void);

/* ucx_status.c */
int ucx_status(ucs_status_t status);
const char *ucx_status_name(ucs_status_t status);
int ucx_fail(struct xpi_be *be, ucs_status_t status, const char *hint, const char *what);
void ucx_sink_add(struct ucx_sink *sink, const struct xpi_log *log);
void ucx_sink_probe(struct ucx_sink *sink, bool probing);
void ucx_sink_said(struct ucx_sink *sink, char said[UCX_SAID]);
void ucx_sink_del(struct ucx_sink *sink);

/* ucx_ep.c */
int ucx_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int ucx_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int ucx_ep_quiesce(struct xpi_be *be, void *ep);
void ucx_ep_destroy(struct xpi_be *be, void *ep);
/* Its peer is gone or cannot be reached, and the core is told. */
void ucx_ep_lost(struct ucx_ep *ep, ucs_status_t status, const char *why);
/* Whose endpoint it is; NULL: nobody's. */
struct ucx_ep *ucx_ep_of(struct xpi_be *be, ucp_ep_h ucp);
/* Closes one that is nobody's. */
void ucx_ep_drop(ucp_ep_h ucp);

/* ucx_pair.c */
/* Whether this side has no endpoint of UCX's before the peer has greeted. */
bool ucx_pair_waits(const struct ucx_ep *ep, enum xpi_role role);
int ucx_pair_expect(struct ucx_ep *ep);
void ucx_pair_forget(struct ucx_ep *ep);
/* UCX's callback for the greeting. */
ucs_status_t ucx_pair_greeted(void *be, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param);
/* As ucp_ep_create; on the passive side what comes out is the one that was greeted over. */
ucs_status_t ucx_pair_create(struct ucx_ep *ep, const ucp_ep_params_t *params);
void ucx_pair_close(struct xpi_be *be);

/* ucx_queue.c */
/* UCX's callback for the message to ourselves. */
ucs_status_t ucx_queue_arrived(void *be, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param);
/* After a peer has gone, however it went: looks whether the queue is read still. */
void ucx_queue_ask(struct xpi_be *be);
/* From a poll in which UCX had `n` things to do, while UCX_ASIDE_ASKED is set. */
void ucx_queue_look(struct xpi_be *be, int n);
/* Describes why there are no more connections once queue.stands; returns the status. */
int ucx_queue_fail(struct xpi_be *be);

/* ucx_am.c */
int ucx_am_open(struct xpi_be *be);
/* For adapters: what is to be copied, see there. */
int ucx_am_pack(struct xpi_be *be);
void ucx_am_close(struct xpi_be *be);
int ucx_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
int ucx_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req);

/* ucx_mr.c */
int ucx_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
int ucx_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
void ucx_mr_dereg(struct xpi_be *be, void *mr);
int ucx_rkey_pack(struct xpi_be *be, const void *mr, void *buf, size_t *len);
int ucx_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t length,
                    uint32_t rights, void **direct);
void ucx_rkey_destroy(struct xpi_be *be, void *rkey);

/* ucx_rma.c */
int ucx_put(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
            struct xpi_req *req);
int ucx_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
            struct xpi_req *req);
int ucx_drain(struct xpi_be *be, void *ep, struct xpi_req *req);

/* ucx_comp.c */
int ucx_posted(struct ucx_ep *ep, ucs_status_ptr_t result, struct xpi_req *req, void *copy, const char *what);
void ucx_ended(void *request, ucs_status_t status, void *arg);
int ucx_poll(struct xpi_be *be);
int ucx_fds(struct xpi_be *be, int *fds, int max);
int ucx_arm(struct xpi_be *be);

#endif
