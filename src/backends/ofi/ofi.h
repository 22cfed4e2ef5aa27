/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi.h - what the files of the libfabric back end share.
 *
 * ASSUMPTIONS  The core's calls into one instance never overlap (backend.h), so nothing here is locked.
 * ERRORS       ofi_fail() describes a failure of libfabric. ofi_status() alone maps libfabric's codes. Both take them
 *              as libfabric returns them, negative.
 */
#ifndef OFI_H
#define OFI_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include "backends/backend.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/list.h"
#include "base/pool.h"
#include "base/shm_mr.h"
#include "base/signals.h"

#define ofi_likely(x) __builtin_expect(!!(x), 1)
#define ofi_unlikely(x) __builtin_expect(!!(x), 0)

enum {
	OFI_API = FI_VERSION(1, 17),
	OFI_CREDITS = 128,
	OFI_BULK_MAX = 64000,       /* longest frame, if each frame is one write to a socket */
	OFI_FRAME_MAX = 8192,       /* otherwise; messages above 16 KiB overtake one another in rxm (1.17) */
	OFI_SHM_CMA_MIN = 32 << 10, /* for shorter data frames may be faster: doc/records/performance.md */
	OFI_INJECT_MAX = 4096,
	OFI_PENDING_MAX = 256, /* sends of one endpoint that the provider may hold; then AGAIN */
	OFI_RECEIVES = 16,     /* posted if the provider itself holds back a sender without a receive */
	OFI_COOKIE = 16,
	OFI_GREETING = 4 + OFI_COOKIE, /* the first frame of unconnected endpoints */
	OFI_HOST = 24,
	OFI_ADDRS = 8,  /* addresses of an instance, at most */
	OFI_BATCH = 32, /* completions read at a time */
	OFI_CQ_SIZE = 16384,
	OFI_HOT = 16,    /* with many endpoints in shared memory: those that every poll checks */
	OFI_IN_TURN = 64 /* and how many more it checks in turn */
};

/* Quirks of a provider, known by its name: see ofi_providers.c. */
struct ofi_quirk {
	const char *name;
	bool manual;       /* do not use its own progress thread */
	bool no_fd;        /* its descriptors are unreliable */
	bool wakes_itself; /* writes itself a byte for each completion, see ofi_cq.c */
	unsigned threads;  /* threads that it starts for each instance */
	unsigned sends;    /* sends of an endpoint that it should hold at most; 0: no limit */
	unsigned entries;  /* entries for sends, if those of an endpoint that ends are lost; 0: they are not */
	unsigned credits;  /* outstanding frames at most; 0: OFI_CREDITS */
	size_t frame;      /* longest frame; 0: the provider's limit */
	size_t rx, tx;     /* receives and sends that it has entries for; 0: what it offers */
	size_t cq;         /* entries of its completion queue; 0: OFI_CQ_SIZE */
	bool unready;      /* it does not hold back a sender without a receive, although it says so */
	const char *env;   /* "NAME=value" for the environment while its fabric is opened */
	bool inject_only;  /* no frame may be longer than its inject size */
	/* Set: it is shared memory of this host. Its files in /dev/shm have the names of its addresses without this prefix. */
	const char *shm_prefix;
	bool blocks;       /* fi_connect waits for an answer */
	bool ends_request; /* closing the endpoint made for a request rejects the request */
	bool tells;        /* reports its failures to an event queue of the endpoint; without one it ends the process */
	bool remote_only;  /* must not use another way between processes of this host */
	bool filtered;     /* must not see foreign datagrams, see ofi_filter.c */
	bool waits;        /* blocks on a request that arrived in part, see ofi_filter.c */
	const char *caution; /* what users must know, because it cannot be fixed here */
	const char *refused; /* why it is not used; NULL: it is */
};

/* A native address: a sockaddr, or whatever the provider's address format is. */
struct ofi_addr {
	size_t len;
	union {
		struct sockaddr sa;
		struct sockaddr_storage storage;
		uint8_t bytes[128];
	};
};

/* An opened instance. */
struct xpi_be {
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	const struct xpi_log *log;
	struct xport_error *err;
	const struct ofi_quirk *quirk;
	struct fi_info *info; /* what was chosen */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep;
	struct fi_info *pep_info; /* some providers keep using the info that they were given */
	bool rdm;                 /* unconnected endpoints: neither eq nor pep */
	bool no_wait;             /* its queues have no descriptor to wait on */
	int fd[2];                /* of cq and eq; -1: none */
	int timer;                /* instead of them, or -1; see ofi_cq.c */
	bool idle;                /* nothing has happened since idle_ms */
	int64_t idle_ms;
	size_t inject, frame_max;
	unsigned credits, nrecv, nsend;
	bool local_mr;   /* buffers to send and receive must be registered */
	bool copies;     /* sends are copied into buffers of the endpoint */
	bool mixes;      /* receives may complete out of order */
	bool cq_counts;  /* the provider does not prevent an overflow of the completion queue */
	size_t cq_left;  /* free entries of the completion queue, if cq_counts */
	uint64_t key;    /* key of the next registration, if this side chooses it */
	char device[64]; /* interfaces, or an adapter */
	/* addresses, ofi_addr.c */
	struct ofi_addr addr[OFI_ADDRS];
	int naddrs;
	uint8_t host[OFI_HOST]; /* equal for processes that can connect by loopback */
	/* endpoints, ofi_ep.c */
	struct xpi_list eps;
	unsigned neps, nconnecting;
	int last_socket;        /* that ofi_filter_connected found */
	unsigned nentries_lost; /* see ofi_quirk.entries */
	bool spent;             /* too many were lost: no endpoint works any more */
	struct xpi_list hungry; /* struct ofi_ep with receives to post again */
	/* completions, ofi_comp.c */
	struct xpi_pool recs;
	struct xpi_list zombies; /* struct ofi_rec of closed endpoints */
	unsigned ngone;          /* endpoints whose loss must still be reported */
	unsigned gone_polls;     /* polls since then without a completion */
	int calm;                /* polls that need not check more than the queue; 0 as soon as there is a reason to */
	bool look;               /* the next poll must check everything */
	bool one_read;           /* a poll reads one queue only */
	bool may_one_read;       /* one_read is allowed for this provider */
	unsigned calm_looks;     /* full checks since something was connecting, or similar */
	unsigned guarded_polls;
	struct ofi_ep *hot[OFI_HOT]; /* of many endpoints, those with the latest messages (read_many); NULL: none */
	unsigned hot_next, hot_first;
	struct fi_cq_msg_entry batch[OFI_BATCH]; /* entries read; used only within a poll */
};

enum ofi_ep_state { OFI_EP_NEW, OFI_EP_CONNECTING, OFI_EP_UP, OFI_EP_CLOSED };

/* The back end's part of an endpoint. */
struct ofi_ep {
	struct fid_ep *fid;
	struct fi_info *info; /* of fid, if it is not xpi_be.info */
	fi_addr_t to;         /* in av */
	size_t quick;         /* frames up to this length use fi_inject: one test; set by ofi_am_room */
	unsigned room;        /* sends that the provider may still get; also 0 if the endpoint must not be used */
	enum ofi_ep_state state;
	struct xpi_be *be;
	struct xpi_core_ep *core_ep;
	struct xpi_core_ep *from; /* sender of its frames: core_ep; NULL: anyone can send to it (rdm) */
	struct xpi_list link;     /* xpi_be.eps */
	struct xpi_list posted;   /* struct ofi_rec that the provider holds */
	struct xpi_list idle;     /* struct ofi_rec of receives to post */
	struct xpi_list early;    /* struct ofi_rec of receives that completed before earlier ones */
	uint32_t nposted, ndone;  /* counts of receives, if they complete out of order */
	struct xpi_list hungry;   /* xpi_be.hungry */
	struct xpi_list bounces;  /* struct ofi_rec of free send buffers, with local_mr */
	int why;                  /* first failure that libfabric reported, negative; 0: none */
	bool told;                /* the core was notified */
	unsigned lingered;        /* calls of ep_quiesce so far */
	int64_t linger_until_ms;
	bool beside;                 /* the peer is in this process */
	bool hot;                    /* it is in xpi_be.hot */
	int64_t bar_until_ms;        /* until then ep_quiesce waits for a peer that has locked `ours` */
	bool gone;                   /* lost; to be reported after all earlier messages */
	bool greeted, greeting;      /* unconnected endpoints: the peer's greeting arrived; ours was sent */
	uint8_t hello[OFI_GREETING]; /* our greeting; it is sent from here */
	struct fid_av *av;
	struct fid_eq *eq; /* if quirk.tells */
	struct ofi_addr name;
	int socket; /* libfabric's socket, found by ofi_filter.c */
	/* for shared memory, see ofi_shm_lock.c; else NULL, and the instance's queue is used */
	struct fid_cq *cq;
	struct ofi_page *ours, *theirs;
	uint32_t taken;      /* messages read of those sent through `ours` */
	struct xpi_shm page; /* ours */
	uint8_t cookie[OFI_COOKIE];
	/* buffers */
	uint8_t *slab;
	size_t slab_len, cq_share;
	struct fid_mr *slab_mr;
	void *desc;
	/* addresses of the peer, and how many were tried */
	struct ofi_addr peer[OFI_ADDRS];
	uint8_t peer_cookie[OFI_COOKIE];
	int npeer, tried;
	int64_t give_up_ms; /* when to give up this attempt, if other addresses are left */
	bool probing;       /* `probe` is checking whether the address answers at all */
	int probe;
};

/* Memory that peers on this host map. */
/* A send or a receive that the provider holds. */
struct ofi_rec {
	struct fi_context2 context; /* must be first: libfabric returns its address */
	struct xpi_list link;       /* ofi_ep.posted, idle or bounces, or xpi_be.zombies */
	struct ofi_ep *ep;          /* NULL: the endpoint is closed */
	struct xpi_req *req;        /* of a send; NULL: no completion to report */
	uint8_t *buf;               /* of a receive, or of a send that was copied */
	bool recv;
	/* of a receive, if receives complete out of order */
	uint32_t nth;
	int err;
	size_t len;
};

/* ofi_providers.c */
/* The quirks of a provider; never NULL. */
const struct ofi_quirk *ofi_quirk(const char *name);
/* The candidates in order of preference, each name once, including missing ones. Returns how many. */
enum { OFI_NAMES = 20, OFI_NAME_LEN = 48 };
int ofi_names(char names[OFI_NAMES][OFI_NAME_LEN]);
/* Looks up libfabric's offers for exactly this name. The caller frees *out. Describes why there is none. */
int ofi_find(const char *name, struct xport_error *err, struct fi_info **out);

/* ofi_addr.c */
void ofi_host(uint8_t host[OFI_HOST]);
/* Collects this side's addresses from the offers of fi_getinfo. Returns the offer to open. */
struct fi_info *ofi_addr_collect(struct xpi_be *be, struct fi_info *offers);
void ofi_addr_bind(const struct xpi_be *be, struct fi_info *info);
int ofi_addr_listening(struct xpi_be *be, struct fid *fid);
int ofi_addr_pack(const struct xpi_be *be, const struct ofi_ep *ep, void *buf, size_t *len);
/* Fills ep->peer, the best first. */
int ofi_addr_unpack(struct ofi_ep *ep, const void *buf, size_t len);
/* Gets the source address of the route to `to`. Returns 0, or libfabric's code for the reason why there is none. */
int ofi_addr_source(const struct ofi_addr *to, struct ofi_addr *from);
bool ofi_addr_loopback(const struct ofi_addr *a);
/* Whether only this host can connect. */
bool ofi_addr_local(const struct xpi_be *be);
void ofi_addr_text(const struct ofi_addr *a, char *text, size_t size);

/* ofi_cm.c */
int ofi_cm_open(struct xpi_be *be);
void ofi_cm_close(struct xpi_be *be);
int ofi_cm_connect(struct ofi_ep *ep);
/* Starts a TCP connection that checks whether the address answers. */
int ofi_cm_probe_begin(struct ofi_ep *ep);
/* Continues that check. */
void ofi_cm_probe(struct ofi_ep *ep);
int ofi_cm_poll(struct xpi_be *be);

/* ofi_rdm.c */
int ofi_rdm_open(struct xpi_be *be);
int ofi_rdm_prepare(struct ofi_ep *ep);
int ofi_rdm_connect(struct ofi_ep *ep, const void *addr, size_t len);
/* Called with frames that arrive before the peer's greeting. */
void ofi_rdm_greeted(struct ofi_ep *ep, const void *buf, size_t len);
/* Reads the failures that the provider reports. */
void ofi_rdm_poll(struct xpi_be *be);

/* ofi_shm.c */
/* Removes files in /dev/shm of this user's processes that were killed before they were connected. */
void ofi_shm_sweep(const struct xpi_be *be);
/* Gives the endpoint a unique name, before it is enabled. Returns as libfabric does. */
int ofi_shm_name(const struct ofi_ep *ep);
/* Allocates the space in /dev/shm that the enabled endpoint may need. Returns as libfabric does. */
int ofi_shm_reserve(const struct ofi_ep *ep);
/* Whether libfabric may use the peer's name. Returns as libfabric does. */
int ofi_shm_mappable(const struct ofi_ep *ep);
/* Unlinks our file once both sides have mapped each other, so that a killed process leaves no file. */
void ofi_shm_forget_name(const struct ofi_ep *ep);

/* ofi_shm_lock.c */
struct ofi_page;
/* Takes the lock. Never waits: false if the other side has it. */
bool ofi_lock_try(struct ofi_page *page);
/* sent: a message was put into the queue. */
void ofi_lock_release(struct ofi_page *page, bool sent);
/* The number of messages sent, in 31 bits. */
uint32_t ofi_lock_sent(const struct ofi_page *page);
int ofi_lock_open(struct ofi_ep *ep);
int ofi_lock_map(struct ofi_ep *ep, const uint8_t *key);
void ofi_lock_close(struct ofi_ep *ep);

/* ofi_filter.c */
int ofi_filter_build(struct ofi_ep *ep);
int ofi_filter_open(struct ofi_ep *ep);
/* Called once the instance listens. */
void ofi_filter_listener(const struct xpi_be *be);
/* The TCP socket of a connected endpoint, or -1. */
int ofi_filter_connected(struct ofi_ep *ep);

/* ofi_ep.c */
int ofi_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int ofi_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int ofi_ep_mark(struct xpi_be *be, void *ep, int traffic_class);
int ofi_ep_quiesce(struct xpi_be *be, void *ep);
void ofi_ep_destroy(struct xpi_be *be, void *ep);

/* ofi_ep_state.c */
/* Makes libfabric's endpoint, with its receives posted.  Takes `info`, also if it fails; NULL: xpi_be.info. */
int ofi_ep_open(struct ofi_ep *ep, struct fi_info *info);
void ofi_ep_shut(struct ofi_ep *ep);
/* Ends what ofi_cm_probe_begin began. */
void ofi_ep_probe_end(struct ofi_ep *ep);
void ofi_ep_connected(struct ofi_ep *ep);
/* Marks the endpoint as lost and notifies the core. */
void ofi_ep_lost(struct ofi_ep *ep, int why);
void ofi_ep_lost_with(struct ofi_ep *ep, int why, const char *text);
/* The same after an event, which may be ahead of received messages: ofi_ep_tell_gone notifies the core later. */
void ofi_ep_gone(struct ofi_ep *ep, int why);
void ofi_ep_tell_gone(struct xpi_be *be);
/* Cancels that notification. */
void ofi_ep_not_gone(struct ofi_ep *ep);

/* ofi_mr.c */
int ofi_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
void ofi_mr_dereg(struct xpi_be *be, void *mr);
int ofi_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len);
int ofi_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct);
void ofi_rkey_destroy(struct xpi_be *be, void *rkey);

/* ofi_am.c */
static inline void ofi_am_room(struct ofi_ep *ep, unsigned room)
{
	ep->room = room;
	ep->quick = room > 0 && ep->theirs == NULL ? ep->be->inject : 0;
}

int ofi_am_open(struct ofi_ep *ep);
void ofi_am_close(struct ofi_ep *ep);
/* Posts the idle receives. An error ends the endpoint. */
int ofi_am_feed(struct ofi_ep *ep);
/* Sends ep->hello as the first message. Returns as libfabric does. */
ssize_t ofi_am_greet(struct ofi_ep *ep);
/* Whether the provider still holds the greeting. */
bool ofi_am_greeting(const struct ofi_ep *ep);
int ofi_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
int ofi_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req);

/* ofi_cq.c */
int ofi_cq_new(struct xpi_be *be, struct fid_cq **cq);
int ofi_cq_open(struct xpi_be *be);
int ofi_cq_fds(struct xpi_be *be);
void ofi_cq_close(struct xpi_be *be);
int ofi_fds(struct xpi_be *be, int *fds, int max);
int ofi_arm(struct xpi_be *be);

/* ofi_comp.c */
int ofi_poll(struct xpi_be *be);

/* ofi_limits.c */
/* XPORT_OK, or an error if the interface in the provider's own variable does not exist: libfabric would use another. */
int ofi_interface(const char *name, struct xport_error *err);
/* XPORT_OK, or an error if /dev/shm has no space for another endpoint. */
int ofi_limits_check(const struct ofi_quirk *quirk, struct xport_error *err);
/* Whether the process has too few descriptors left for an instance or endpoint. */
bool ofi_descriptors_short(void);
/* After a failure to open: adds to the error which resource ran out, if one did. */
void ofi_explain(const struct ofi_quirk *quirk, struct xport_error *err);

/* ofi_status.c */
int ofi_status(int64_t code);
/* A hint for a missing local resource; NULL: the code means something else. */
const char *ofi_lack(int64_t code);
int ofi_fail(struct xport_error *err, int64_t code, const char *hint, const char *what);
/* Signal state, saved around calls of the stack that may change signal actions or start threads that receive signals. */
struct ofi_signals {
	struct xpi_signals actions;
	sigset_t mask;
};
void ofi_signals_save(struct ofi_signals *s);
void ofi_signals_restore(const struct ofi_signals *s, const struct xpi_log *log);

#endif
