/* SPDX-License-Identifier: BSD-3-Clause */
/* shm.h - the states of the back end `shm`, see shm.c. */
#ifndef SHM_H
#define SHM_H

#include "backends/backend.h"
#include "base/lent.h"
#include "base/meet.h"
#include "base/shm_mr.h"
#include "shm_ring.h"

enum {
	SHM_CREDITS = 12,
	SHM_CMA_MIN = 4 << 20, /* for shorter data frames are faster, if both processes run */
	SHM_CONTROL =
		(XPI_CONTROL_MAX + SHM_HEAD + SHM_SLOT - 1) / SHM_SLOT, /* slots of a frame without credit, at most */
	/* The reader gives a frame back when the core has handled it; the core may acknowledge it a little earlier. */
	SHM_UNREAD = (SHM_CREDITS + 1) * SHM_AM_SLOTS + (SHM_CREDITS + 8) * SHM_CONTROL,
	SHM_HOT = 16, /* endpoints checked by every poll */
	SHM_COLD = 4  /* other endpoints checked by a poll */
};

/* All that may be sent to a peer that does not read fits: a sender whose frame does not fit cannot sleep. */
_Static_assert(SHM_UNREAD + SHM_LOST <= SHM_SLOTS, "the ring has space for all that may be unread");
_Static_assert(SHM_LONG >= XPI_SECOND_CHANGES, "what the core interprets is copied");

/* How endpoints find each other: the name of the peer's socket. */
struct shm_address {
	uint64_t magic;
	uint64_t name[2];
};

struct shm_ep {
	struct shm_rx rx;
	struct shm_tx tx;
	struct xpi_core_ep *core_ep;
	uint32_t index;   /* in be->eps; UINT32_MAX: not there */
	uint32_t rung;    /* the value of the peer's `sleep` for which its bell rang */
	bool bell_due;    /* the bell could not be rung: poll tries again */
	bool broken;      /* the peer broke the rules: it is neither read nor written, see `why` */
	bool sent, ready; /* our file is sent; theirs is mapped */
	bool watched;     /* sock is in be->epoll */
	int sock;         /* bound to our name, connected to the peer's: files at first, then the bell */
	int seals;        /* of our file; the peer's has them, too */
	struct shm_address to;
	struct xpi_shm file;
	const struct shm_file *peer; /* mapped */
	struct xpi_lent *lent;       /* descriptors of the peer's regions; NULL: there were none */
	struct {
		uint32_t sent;   /* descriptors of our regions, ever; modulo 2^32 */
		uint32_t ahead;  /* of these, before their keys */
		uint32_t filled; /* tx.filled at the last one */
		uint32_t taken;  /* by the peer, when we last looked */
		int64_t full_ms; /* since when it takes none of XPI_LENT_AHEAD; 0: it does */
	} lending;
	char why[128];
};

struct xpi_be {
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	struct xport_error *err;
	const struct xpi_log *log;
	struct shm_ep **eps; /* the connected ones; the first nhot were used last */
	uint32_t neps, nhot, capacity;
	uint32_t turn;      /* which of these was checked last, */
	uint32_t cold;      /* and which of the others */
	uint32_t coolest;   /* which of the hot ones is to make way next */
	uint32_t bells_due; /* endpoints with bell_due */
	int epoll;          /* the sockets of the endpoints */
	struct xpi_meet meet;
	alignas(16) uint8_t frame[SHM_AM_MAX]; /* the frame that the core reads */
};

/* shm_ep.c */
int shm_probe(struct xport_error *err);
int shm_address(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
int shm_ep_connect(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
int shm_ep_quiesce(struct xpi_be *be, void *ep);
void shm_ep_destroy(struct xpi_be *be, void *ep);

/* shm_link.c: the socket of an endpoint. */

/* shm_link_open - create the socket with our name. */
int shm_link_open(struct xpi_be *be, struct shm_ep *ep);
/* shm_link_connect - connect the socket to the peer's. From then on only the peer can send to it. */
int shm_link_connect(struct xpi_be *be, struct shm_ep *ep);
/* shm_link_send - send our file. XPORT_ERR_AGAIN: not now. */
int shm_link_send(struct xpi_be *be, struct shm_ep *ep);
/* shm_link_recv - receive the peer's file. XPORT_ERR_AGAIN: it has not come yet. Else *fd is the caller's. */
int shm_link_recv(struct xpi_be *be, struct shm_ep *ep, int *fd);
/* shm_bell_ring - wake the peer, whose `sleep` is odd. */
void shm_bell_ring(struct xpi_be *be, struct shm_ep *ep, uint32_t asleep);
/*
 * shm_bell_take - take the peer's bells and regions out of the socket.
 *
 * With a key only until *fd, the descriptor of its region, has come. It is the caller's; -1: it has not come.
 *
 * Returns false if there are too many bells, or something else.
 */
bool shm_bell_take(struct xpi_be *be, struct shm_ep *ep, const uint8_t *key, int *fd);

/* Whether descriptors of regions are passed: peers may be in other containers. */
static inline bool shm_lends(const struct xpi_be *be)
{
	return be->meet.dir != 0;
}

/* shm_mr.c */
int shm_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
void shm_mr_dereg(struct xpi_be *be, void *mr);
int shm_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len);
int shm_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                    uint64_t length, uint32_t rights, void **direct);
void shm_rkey_destroy(struct xpi_be *be, void *rkey);

/* shm_poll.c */
int shm_poll(struct xpi_be *be);
int shm_fds(struct xpi_be *be, int *fds, int max);
int shm_arm(struct xpi_be *be);
/* shm_poll_wake - note that we are awake: the peer need not ring. */
void shm_poll_wake(struct shm_ep *ep);
/* shm_poll_add - take a connected endpoint into be->eps, which has space. */
void shm_poll_add(struct xpi_be *be, struct shm_ep *ep);
void shm_poll_remove(struct xpi_be *be, struct shm_ep *ep);
/* shm_break - read and write this endpoint no more. Sends report why. */
__attribute__((format(printf, 2, 3))) void shm_break(struct shm_ep *ep, const char *fmt, ...);

#endif
