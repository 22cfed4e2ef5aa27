/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi.h - what the files of the libfabric back end share.
 *
 * ASSUMPTIONS  The core's calls into one instance never overlap (backend.h), so nothing here is locked.
 * ERRORS       ofi_fail() describes a failure of libfabric; ofi_status() is the one place that maps its codes.  Both
 *              take them as libfabric returns them, negative.
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
#include "base/env.h"
#include "base/list.h"
#include "base/pool.h"
#include "base/shm.h"
#include "base/signals.h"

#define ofi_likely(x) __builtin_expect(!!(x), 1)
#define ofi_unlikely(x) __builtin_expect(!!(x), 0)

enum {
	OFI_API = FI_VERSION(1, 17),
	OFI_CREDITS = 128,
	OFI_BULK_MAX = 64000,       /* a frame, where it goes through a socket by itself */
	OFI_FRAME_MAX = 8192,       /* elsewhere; those above 16 KiB overtake one another in rxm (1.17) */
	OFI_SHM_CMA_MIN = 32 << 10, /* below it frames may be faster: doc/performance.md */
	OFI_INJECT_MAX = 4096,
	OFI_PENDING_MAX = 256, /* sends of one endpoint that the provider may hold; beyond: AGAIN */
	OFI_RECEIVES = 16,     /* posted where the provider itself holds back a sender that has no receive */
	OFI_COOKIE = 16,
	OFI_GREETING = 4 + OFI_COOKIE, /* the first frame of unconnected endpoints */
	OFI_HOST = 24,
	OFI_ADDRS = 8,  /* addresses that an instance is known by */
	OFI_BATCH = 32, /* completions read at a time */
	OFI_CQ_SIZE = 16384
};

/* What has to be known by name; see ofi_prov.c. */
struct ofi_quirk {
	const char *name;
	bool manual;       /* its own progress thread is not wanted */
	bool no_fd;        /* it has no descriptor that can be relied on */
	bool wakes_itself; /* by a byte for each completion, see ofi_comp.c */
	unsigned threads;  /* that it starts for each instance */
	unsigned sends;    /* that it should hold of an endpoint at most; 0: any */
	unsigned
		entries; /* it has for the sends of all endpoints, and loses those of one that ends meanwhile; 0: it does not */
	unsigned credits;             /* and frames that may be under way at all; 0: OFI_CREDITS */
	size_t frame;                 /* the longest; 0: as long as it takes */
	size_t cq;                    /* entries of its completion queue; 0: OFI_CQ_SIZE */
	bool unready;                 /* it does not hold back a sender that has no receive, although it says so */
	const char *env;              /* "NAME=value" that it is to find in the environment when its fabric is opened */
	bool inject_only;             /* no frame is longer than what it takes at once */
	/* It is memory of this host, in files of /dev/shm that are called as its addresses, but for this. */
	const char *shm_prefix;
	bool blocks;         /* its fi_connect waits for an answer */
	bool ends_request;   /* with the endpoint that was made for it, as rejecting would */
	bool tells;          /* failures of its own, by an event queue of each endpoint: else it ends the process */
	bool remote_only;    /* it is not to do otherwise between processes of this host */
	bool walled;         /* what a stranger sends it must not see, see ofi_wall.c */
	bool waits;          /* for all of a request, when a part of it came: see ofi_wall.c */
	const char *caution; /* what its users have to know, because nothing can be done about it */
	const char *refused; /* why it cannot be used */
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
	struct fi_info *pep_info; /* some providers go on looking at what they were given */
	bool rdm;                 /* unconnected endpoints: neither eq nor pep */
	bool no_wait;             /* it opens no queue that can be slept on */
	int fd[2];                /* of cq and eq; -1: there is none */
	int timer;                /* instead of them, or -1; see ofi_comp.c */
	bool idle;                /* since idle_ms, as far as one knows who sleeps */
	int64_t idle_ms;
	size_t inject, frame_max;
	unsigned credits, nrecv, nsend;
	bool local_mr;   /* what is sent and received must lie in registered memory */
	bool copies;     /* what is sent is copied into buffers of the endpoint */
	bool mixes;      /* receives may complete in another order than they were filled in */
	bool cq_counts;  /* the provider does not see to it that the completion queue does not overflow */
	size_t cq_left;  /* completions that it still has room for, if so */
	uint64_t key;    /* of memory that is registered next, where we choose it */
	char device[64]; /* interfaces, or an adapter */
	/* addresses, ofi_addr.c */
	struct ofi_addr addr[OFI_ADDRS];
	int naddrs;
	uint8_t host[OFI_HOST]; /* equal for processes that reach each other by loopback */
	/* endpoints, ofi_ep.c */
	struct xpi_list eps;
	unsigned nconnecting;
	unsigned nentries_lost; /* see ofi_quirk.entries */
	bool spent;             /* too many of them: no endpoint works any more */
	struct xpi_list hungry; /* struct ofi_ep: have receives to post again */
	/* completions, ofi_comp.c */
	struct xpi_pool recs;
	struct xpi_list zombies; /* struct ofi_rec of closed endpoints */
	unsigned ngone;          /* endpoints whose end is to be told */
	unsigned gone_polls;     /* since then, without anything from them */
	int calm;                /* polls that need not look beyond an empty queue; 0 as soon as there is a reason to */
	bool look;               /* at it, at the next poll */
	bool one_read;           /* of one queue is what a poll takes now, */
	bool may_one_read;       /* and usually does */
	unsigned calm_looks;     /* since something was connecting, or the like */
	unsigned guarded_polls;
	struct fi_cq_msg_entry batch[OFI_BATCH]; /* what it gave; only a poll looks at it */
};

enum ofi_ep_state { OFI_EP_NEW, OFI_EP_CONNECTING, OFI_EP_UP, OFI_EP_CLOSED };

/* The back end's part of an endpoint. */
struct ofi_ep {
	struct fid_ep *fid;
	struct fi_info *info; /* of fid, if it is not xpi_be.info */
	fi_addr_t to;         /* in av */
	size_t quick;         /* frames up to here need no more than fi_inject: one test; set by ofi_am_room */
	unsigned room;        /* sends that may still be given to the provider; 0 as well when it must not be used */
	enum ofi_ep_state state;
	struct xpi_be *be;
	struct xpi_core_ep *core_ep;
	struct xpi_list link;    /* xpi_be.eps */
	struct xpi_list posted;  /* struct ofi_rec that the provider holds */
	struct xpi_list idle;    /* struct ofi_rec of receives to be posted */
	struct xpi_list early;   /* struct ofi_rec of receives that completed before those that were posted earlier */
	uint32_t nposted, ndone; /* receives, if they do not complete in order */
	struct xpi_list hungry;  /* xpi_be.hungry */
	struct xpi_list bounces; /* struct ofi_rec of free send buffers, with local_mr */
	int why;                 /* what libfabric reported first, negative; 0: it lives */
	bool told;               /* the core knows about it */
	unsigned lingered;       /* polls since it was to be quiesced */
	int64_t linger_until_ms;
	bool beside;             /* the peer is in this process */
	int64_t bar_until_ms;    /* since then a peer is waited for that is inside `ours` */
	bool gone;               /* to be told when what came before is */
	bool greeted, greeting;  /* unconnected endpoints: the peer's greeting came, ours was sent */
	uint8_t hello[OFI_GREETING]; /* ours, where it is sent from where it lies */
	struct fid_av *av;
	struct fid_eq *eq; /* of a provider that tells */
	struct ofi_addr name;
	int socket; /* libfabric's, behind ofi_wall.c */
	/* where a peer shares memory with us, see ofi_guard.c; else NULL, and the instance's queue is used */
	struct fid_cq *cq;
	struct ofi_page *ours, *theirs;
	uint32_t taken;      /* of what was sent through ours */
	struct xpi_shm page; /* ours */
	uint8_t cookie[OFI_COOKIE];
	/* buffers */
	uint8_t *slab;
	size_t slab_len, cq_share;
	struct fid_mr *slab_mr;
	void *desc;
	/* where to, and which of them were tried */
	struct ofi_addr peer[OFI_ADDRS];
	uint8_t peer_cookie[OFI_COOKIE];
	int npeer, tried;
	int64_t give_up_ms; /* this attempt, where others are left */
	bool probing;       /* by `probe`, whether the address answers at all */
	int probe;
};

/* Memory that peers map, where they share this host's. */
struct ofi_mr {
	struct xpi_shm shm;
	bool writable; /* by peers */
};

struct ofi_rkey {
	void *map;
	size_t length;
};

/* What the provider holds of us: a send or a receive. */
struct ofi_rec {
	struct fi_context2 context; /* first: what libfabric gives back is this */
	struct xpi_list link;       /* ofi_ep.posted, idle or bounces, or xpi_be.zombies */
	struct ofi_ep *ep;          /* NULL: it is closed */
	struct xpi_req *req;        /* of a send; NULL: nobody to tell */
	uint8_t *buf;               /* of a receive, or of a send that was copied */
	bool recv;
	/* of a receive, if they do not complete in order */
	uint32_t nth;
	int err;
	size_t len;
};

/* ofi_prov.c */
/* The quirks of a provider; never NULL. */
const struct ofi_quirk *ofi_quirk(const char *name);
/* The candidates in order of preference, each name once, those that are not there as well; returns how many. */
enum { OFI_NAMES = 20, OFI_NAME_LEN = 48 };
int ofi_names(char names[OFI_NAMES][OFI_NAME_LEN]);
/* What libfabric has under exactly this name; *out is to be freed.  Says why not. */
int ofi_find(const char *name, struct xport_error *err, struct fi_info **out);

/* ofi_addr.c */
void ofi_host(uint8_t host[OFI_HOST]);
/* Learns, from what fi_getinfo offers, the addresses by which peers may reach us; returns the offer to open. */
struct fi_info *ofi_addr_collect(struct xpi_be *be, struct fi_info *offers);
void ofi_addr_bind(const struct xpi_be *be, struct fi_info *info);
int ofi_addr_listening(struct xpi_be *be, struct fid *fid);
int ofi_addr_pack(const struct xpi_be *be, const struct ofi_ep *ep, void *buf, size_t *len);
/* Fills ep->peer, the best first. */
int ofi_addr_unpack(struct ofi_ep *ep, const void *buf, size_t len);
/* The source address of the route to there: 0, or why there is none, as libfabric has its codes. */
int ofi_addr_source(const struct ofi_addr *to, struct ofi_addr *from);
bool ofi_addr_loopback(const struct ofi_addr *a);
/* Whether nobody but this host reaches us. */
bool ofi_addr_local(const struct xpi_be *be);
void ofi_addr_text(const struct ofi_addr *a, char *text, size_t size);

/* ofi_cm.c */
int ofi_cm_open(struct xpi_be *be);
void ofi_cm_close(struct xpi_be *be);
int ofi_cm_connect(struct ofi_ep *ep);
/* Asks, by a connection of our own, whether anybody is at the address. */
int ofi_cm_probe_begin(struct ofi_ep *ep);
/* The next step of one that is being probed. */
void ofi_cm_probe(struct ofi_ep *ep);
void ofi_cm_probe_end(struct ofi_ep *ep);
int ofi_cm_poll(struct xpi_be *be);

/* ofi_rdm.c */
int ofi_rdm_open(struct xpi_be *be);
int ofi_rdm_prepare(struct ofi_ep *ep);
int ofi_rdm_connect(struct ofi_ep *ep, const void *addr, size_t len);
/* The first frame that comes. */
void ofi_rdm_greeted(struct ofi_ep *ep, const void *buf, size_t len);
void ofi_rdm_close(struct ofi_ep *ep);
/* What a provider tells of its own failures. */
void ofi_rdm_poll(struct xpi_be *be);

/* ofi_guard.c */
struct ofi_page;
/* False: the other one is in it; never waits. */
bool ofi_guard_enter(struct ofi_page *page);
/* sent: something was put into the queue behind it. */
void ofi_guard_leave(struct ofi_page *page, bool sent);
/* How often, in 31 bits. */
uint32_t ofi_guard_sent(const struct ofi_page *page);
int ofi_guard_open(struct ofi_ep *ep);
int ofi_guard_map(struct ofi_ep *ep, const uint8_t *key);
void ofi_guard_close(struct ofi_ep *ep);

/* ofi_wall.c */
int ofi_wall_build(struct ofi_ep *ep);
int ofi_wall_open(struct ofi_ep *ep);
/* Once it listens. */
void ofi_wall_listener(const struct xpi_be *be);

/* ofi_ep.c */
int ofi_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int ofi_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int ofi_ep_quiesce(struct xpi_be *be, void *ep);
void ofi_ep_destroy(struct xpi_be *be, void *ep);
/* Makes libfabric's endpoint, with its receives posted.  Takes `info`, also if it fails; NULL: xpi_be.info. */
int ofi_ep_open(struct ofi_ep *ep, struct fi_info *info);
void ofi_ep_shut(struct ofi_ep *ep);
void ofi_ep_connected(struct ofi_ep *ep);
/* libfabric says that it is gone. */
void ofi_ep_lost(struct ofi_ep *ep, int why);
/* The same by the event queue, which may be ahead of what came by the endpoint; told by ofi_ep_tell_gone. */
void ofi_ep_gone(struct ofi_ep *ep, int why);
void ofi_ep_tell_gone(struct xpi_be *be);

/* ofi_mr.c */
int ofi_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
void ofi_mr_dereg(struct xpi_be *be, void *mr);
int ofi_rkey_pack(struct xpi_be *be, const void *mr, void *buf, size_t *len);
int ofi_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t length,
                    uint32_t rights, void **direct);
void ofi_rkey_destroy(struct xpi_be *be, void *rkey);

/* ofi_am.c */
static inline void ofi_am_room(struct ofi_ep *ep, unsigned room)
{
	ep->room = room;
	ep->quick = room > 0 && ep->theirs == NULL ? ep->be->inject : 0;
}

int ofi_am_open(struct ofi_ep *ep);
void ofi_am_close(struct ofi_ep *ep);
/* Posts what receives there are to post; an error ends the endpoint. */
int ofi_am_feed(struct ofi_ep *ep);
/* Sends ep->hello, before anything else is sent; as libfabric returns it. */
ssize_t ofi_am_greet(struct ofi_ep *ep);
/* Whether the provider still has it. */
bool ofi_am_greeting(const struct ofi_ep *ep);
int ofi_am_send(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
int ofi_am_send_two(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req);

/* ofi_comp.c */
int ofi_comp_open(struct xpi_be *be);
int ofi_comp_queue(struct xpi_be *be, struct fid_cq **cq);
int ofi_comp_fds(struct xpi_be *be);
void ofi_comp_close(struct xpi_be *be);
int ofi_poll(struct xpi_be *be);
int ofi_fds(struct xpi_be *be, int *fds, int max);
int ofi_arm(struct xpi_be *be);

/* ofi_room.c */
/* XPORT_OK, or the interface that the provider's own variable names is not there: libfabric would take another. */
int ofi_interface(const char *name, struct xport_error *err);
/* XPORT_OK, or /dev/shm has no room for another endpoint. */
int ofi_room(const struct ofi_quirk *quirk, struct xport_error *err);
/* After a failure to open: adds what is short here, if anything is. */
void ofi_explain(const struct ofi_quirk *quirk, struct xport_error *err);

/* ofi_status.c */
int ofi_status(int64_t code);
/* What helps against a lack of something that is no network's; NULL: it is none. */
const char *ofi_lack(int64_t code);
int ofi_fail(struct xport_error *err, int64_t code, const char *hint, const char *what);
/* Signals before and after something of the stack that may change their actions, or start threads that take them. */
struct ofi_signals {
	struct xpi_signals actions;
	sigset_t mask;
};
void ofi_signals_save(struct ofi_signals *s);
void ofi_signals_restore(const struct ofi_signals *s, const struct xpi_log *log);
int64_t ofi_now_ms(void);

#endif
