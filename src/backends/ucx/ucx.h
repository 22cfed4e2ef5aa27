/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx.h - what the files of the UCX back end share.
 *
 * ASSUMPTIONS  The core's calls into one instance never overlap (backend.h), so nothing here is locked. Only the sinks
 *              of UCX's log have a mutex: they belong to the process, and UCX's own thread writes to them as well.
 * ERRORS       ucx_fail() describes a failure of UCX. ucx_status() alone maps UCX's codes.
 */
#ifndef UCX_H
#define UCX_H

#include <pthread.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "backends/backend.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/pool.h"
#include "base/shm.h"

#define ucx_likely(x) __builtin_expect(!!(x), 1)
#define ucx_unlikely(x) __builtin_expect(!!(x), 0)

enum {
	UCX_AM_ID = 0,
	UCX_WATCHDOG_ID = 1,         /* ucx_watchdog.c */
	UCX_GREETING_ID = 2,         /* ucx_ep.c, ucx_ep_match.c */
	UCX_FRAME_MAX = 8000,        /* one fragment of UCX's tcp and shared memory (8 KiB), less its headers */
	UCX_BULK_MAX = 64000,        /* the same for tcp's fragments of 64 KiB */
	UCX_CMA_MIN = 64 << 10,      /* for shorter data frames may be much faster: doc/records/performance.md */
	UCX_UNREGISTERED_MAX = 1024, /* UCX copies at least so much for an adapter instead of registering it */
	UCX_PENDING_MAX = 512,       /* requests of one endpoint that UCX may hold; beyond: AGAIN */
	UCX_KEY_MAX = 512,           /* packed native key */
	UCX_SAID = 160,              /* bytes kept of UCX's log */
	UCX_ADDRESS_MAX = 2032       /* UCX worker address: fits into the contract's limit together with the rest */
};

/* A provider: what may follow "ucx:". */
struct ucx_provider {
	const char *name;
	const char *tls; /* UCX_TLS; NULL: UCX's own choice */
	bool shm;        /* frames use UCX's shared memory only */
	bool rdma;       /* may access memory by a network adapter */
	bool sockets;    /* may use UCX's tcp */
	bool pairs;      /* each of its endpoints is connected to one other: ucx_ep_match.c */
};

/* Receiver of UCX's log lines. */
struct ucx_sink {
	struct xpi_list link;
	const struct xpi_log *log;
	bool probing; /* lines of `thread` explain a failure: kept, and logged at level debug only */
	pthread_t thread;
	char last[UCX_SAID]; /* the newest error seen while probing, or else the first warning */
	bool may_ignore;     /* UCX may ignore settings that belong to some transports only */
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
	size_t hdr_max; /* longest header that UCX accepts as a header */
	int fd;
	int timer;         /* only with `queues`, else -1: see ucx_poll.c */
	uint8_t aside;     /* enum ucx_aside: extra work of a poll; usually 0, so that it costs one test */
	unsigned npending; /* sum over all endpoints */
	unsigned quiet;    /* polls without an event since the last one */
	bool queues;       /* UCX's queues in shared memory are in use: see ucx_watchdog.c */
	bool reaches;      /* UCX maps or copies memory of processes named in peers' addresses: see ucx_user.c */
	bool maps;         /* peers on this host map memory of mr_alloc */
	bool rdma;         /* the context has an adapter */
	int traffic_class; /* of its packets: enum xport_traffic */
	char device[64], transports[96];
	struct ucx_sink sink;
	ucp_datatype_t packed;   /* ucx_am.c; 0: not needed */
	struct ucx_piece *piece; /* being passed to UCX */
	struct xpi_pool pieces;
	struct xpi_list eps;              /* struct ucx_ep that were created and not closed */
	struct xpi_list expected, strays; /* ucx_ep_match.c */
	int64_t ended_early_ms; /* CLOCK_MONOTONIC: when an endpoint that was not up, or had failed, was closed; 0: never */
	struct {
		int64_t since_ms; /* CLOCK_MONOTONIC: when the message was sent */
		unsigned polls;   /* consecutive polls since then in which UCX had nothing to do */
		bool again;       /* another endpoint was closed since: send again */
		bool stands;      /* the queue is blocked; final */
	} watchdog;               /* ucx_watchdog.c */
};

enum ucx_aside {
	UCX_ASIDE_NAPPING = 1, /* the timer is set */
	UCX_ASIDE_ASKED = 2    /* a message to our own queue is in flight */
};

enum ucx_ep_state { UCX_EP_NEW, UCX_EP_CONNECTING, UCX_EP_UP, UCX_EP_CLOSING, UCX_EP_CLOSED };

/* The back end's part of an endpoint. */
struct ucx_ep {
	struct xpi_list link; /* xpi_be.eps */
	ucp_ep_h ucp;
	unsigned room; /* requests that UCX may still get; also 0 if the endpoint must not be used: one test */
	struct xpi_req *sending; /* request of the frame being passed to UCX */
	enum ucx_ep_state state;
	struct xpi_be *be;
	struct xpi_core_ep *core_ep;
	struct xpi_list pending; /* struct ucx_rec */
	unsigned npending;
	ucs_status_t why;          /* first failure that UCX reported; UCS_OK: none */
	bool told;                 /* the core was notified */
	int64_t give_up_ms;        /* CLOCK_MONOTONIC: when to close without the peer's answer; 0: not set */
	bool flushing;             /* the flush that proves the connection has begun */
	bool greets;               /* must send the greeting, by which UCX learns the peer's endpoint */
	bool greeted;              /* ... and has started to */
	bool emptying;             /* the flush before closing has begun */
	unsigned left;             /* ... npending at the last check */
	bool settled;              /* ... the last flush or greeting that was begun has completed */
	struct xpi_list expecting; /* xpi_be.expected: no greeting has arrived yet */
	uint64_t token;            /* carried by the greeting */
	ucp_ep_h greeter;          /* UCX endpoint that the greeting came over; only for comparison */
};

/* What UCX keeps for us in each of its requests. */
struct ucx_rec {
	struct xpi_list link; /* ucx_ep.pending */
	struct ucx_ep *ep;
	struct xpi_req *req; /* NULL: no completion to report */
	void *copy;          /* freed with it */
};

struct ucx_mr {
	ucp_mem_h mem;      /* NULL: not registered with an adapter */
	struct xpi_shm shm; /* base NULL: not allocated by mr_alloc */
	bool writable;      /* by peers that map it */
	void *base;
};

struct ucx_rkey {
	void *map; /* the region, mapped here; or NULL */
	size_t map_len;
	ucp_rkey_h rkey; /* for an adapter; or NULL */
	uint64_t base;   /* the region's address in the process that owns it */
};

/*
 * Whether UCX's transport of this name ("rc_mlx5") belongs to an adapter that executes puts and gets itself, and stops when the
 * endpoint is closed. dc does not stop: peers use the target of the instance, which lasts as long as the instance.
 */
static inline bool ucx_is_adapter(const char *tl)
{
	return strncmp(tl, "rc", 2) == 0;
}

/* ucx_limits.c */
enum { UCX_FILE_MAX = 16 << 20 }; /* longest file of UCX's shared memory, which grows by files of 4 MiB (1.13) */
/* Whether enough descriptors are left for `what`. UCX 1.13 aborts if it gets only some of those it needs. */
int ucx_descriptors(struct xport_error *err, const char *what);
/* Whether shared memory or adapters can be used. If not, `why` gets the reason. */
bool ucx_shm_usable(char *why, size_t size);
bool ucx_rdma_usable(char *why, size_t size);
/* Whether a forked child gets copies of the pages that an adapter uses: Linux 5.12 and later (ibv_is_fork_initialized(3)). */
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

/* ucx_ep_state.c */
/* Marks the endpoint as lost and notifies the core. */
void ucx_ep_lost(struct ucx_ep *ep, ucs_status_t status, const char *why);
/* The endpoint that owns this UCX endpoint, or NULL. */
struct ucx_ep *ucx_ep_of(struct xpi_be *be, ucp_ep_h ucp);
/* Closes a UCX endpoint without an owner. */
void ucx_ep_drop(ucp_ep_h ucp);

/* ucx_ep_match.c */
/* Whether this side must wait for the peer's greeting before it creates a UCX endpoint. */
bool ucx_match_waits(const struct ucx_ep *ep, enum xpi_role role);
int ucx_match_expect(struct ucx_ep *ep);
void ucx_match_forget(struct ucx_ep *ep);
/* UCX's callback for the greeting. */
ucs_status_t ucx_match_greeted(void *be, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param);
/* As ucp_ep_create. On the passive side the result is the endpoint that the greeting came over. */
ucs_status_t ucx_match_create(struct ucx_ep *ep, const ucp_ep_params_t *params);
void ucx_match_close(struct xpi_be *be);

/* ucx_user.c */
/* XPORT_OK: UCX may use this peer's address, since it maps no memory of another user. Otherwise the error is described. */
int ucx_may_map(struct ucx_ep *ep, const uint8_t *address, size_t len);

/* ucx_watchdog.c */
/* UCX's callback for the message to our own queue. */
ucs_status_t ucx_watchdog_arrived(void *be, const void *header, size_t header_length, void *data, size_t length,
                                  const ucp_am_recv_param_t *param);
/* Checks whether the queue is still read. Called after an endpoint was closed, for whatever reason. */
void ucx_watchdog_ask(struct xpi_be *be);
/* Called by a poll with UCX's number of events, while UCX_ASIDE_ASKED is set. */
void ucx_watchdog_look(struct xpi_be *be, int n);
/* Describes why no more connections are possible once watchdog.stands is set. Returns the status. */
int ucx_watchdog_fail(struct xpi_be *be);

/* ucx_am.c */
int ucx_am_open(struct xpi_be *be);
/* Creates the datatype that makes UCX copy, for adapters: see ucx_am.c. */
int ucx_am_pack(struct xpi_be *be);
void ucx_am_close(struct xpi_be *be);
int ucx_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
int ucx_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req);

/* ucx_mr.c */
int ucx_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
int ucx_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
void ucx_mr_dereg(struct xpi_be *be, void *mr);
int ucx_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len);
int ucx_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct);
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

/* ucx_poll.c */
int ucx_poll(struct xpi_be *be);
int ucx_fds(struct xpi_be *be, int *fds, int max);
int ucx_arm(struct xpi_be *be);

#endif
