/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.h - the states of the back end `loop`, see loop.c. */
#ifndef LOOP_H
#define LOOP_H

#include <pthread.h>
#include <stdlib.h>

#include "backends/backend.h"
#include "base/list.h"

enum { LOOP_PUT_SHORT = 256 };

/* A frame on its way, or a put, get or drain that waits for its poll. */
struct loop_item {
	struct xpi_list link;
	enum { LOOP_FRAME, LOOP_KEPT, LOOP_PUT, LOOP_GET, LOOP_ATOMIC, LOOP_DRAIN } kind;
	struct loop_ep *ep; /* of the sender; not for frames */
	uint64_t to;        /* frames: the endpoint of the receiver by whose channel they come */
	struct xpi_req *req;
	void *buf;        /* kept frames: where it still lies */
	const void *rest; /* and what follows there */
	size_t rest_len;
	struct loop_item *room; /* for the copy */
	uint64_t peer, region, offset;
	struct xport_atomic_args args; /* atomics */
	size_t len;
	uint8_t data[]; /* frames: a copy */
};

static inline void loop_item_free(struct loop_item *it)
{
	free(it->room);
	free(it);
}

struct loop_address {
	uint64_t instance, ep;
};

struct loop_mr {
	struct xpi_list link;
	uint64_t serial;
	uint8_t *base;
	size_t length;
};

struct loop_rkey {
	uint64_t peer, region;
};

/* What is kept of an unpacked one. */
struct loop_rkey_state {
	struct loop_rkey key;
	uint64_t start;
};

struct loop_ep {
	struct xpi_core_ep *core_ep;
	struct xpi_list link; /* in its instance's eps, until it is quiesced */
	uint64_t serial;
	uint64_t peer, peer_ep; /* id of the other instance, 0: not connected; serial of the endpoint there */
	unsigned before;        /* what waits for the next poll and may not be overtaken by a frame */
};

struct xpi_be {
	struct xpi_list link; /* in the table of all instances */
	uint64_t id;
	bool native, ordered; /* loop:native and loop:rdma; loop:rdma */
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	struct xport_error *err;
	int fd; /* eventfd: something waits for poll */
	struct xpi_list inbox, own, regions, eps;
};

/* For tests: how it behaves; am_send the next so many times. */
extern struct loop_manners {
	bool wrong_caps; /* says what contradicts the contract */
	bool am_cheap;   /* says so */
	size_t cma_min; /* says that peers are of this host, which they are: data so long is read out of their memory */
	bool broken;    /* poll says so */
	bool busy;      /* each poll finds something; set as stall is */
	bool holds;     /* what is to quiesce does not yet */
	bool stall;     /* puts, gets and drains stay where they are; set by one thread, seen by another: __atomic */
	unsigned refuse;    /* AGAIN */
	unsigned keep;      /* PENDING, done in the sender's next poll, when the frame leaves */
	unsigned keep_two;  /* am_send_two: the same */
	unsigned most;      /* what a poll does, if that is not 0 */
	int drain, drained; /* what drain returns, and is done with, if that is not 0 */
	int kept;           /* what kept frames end with, if that is not 0 */
	int keys;           /* what rkey_pack returns, if that is not 0; n > 0: OK, and a key of n - 1 wrong bytes */
	/* providers, by name, NULL: none */
	const char *absent; /* cannot be opened, */
	int absent_status;  /* with this status; 0: NO_BACKEND, */
	unsigned present;   /* but for the first so many times */
	const char *cut;    /* does not connect, */
	int cut_role;       /* at this side, an enum xpi_role; -1: at both */
	const char *mute;   /* never ends to connect */
	const char *breaks; /* poll says that it is broken */
	const char *lost;   /* has no address any more */
	const char *brief;  /* its frames are as short as they may be */
	unsigned opened;    /* how many were opened */
	void *mapped;       /* memory beyond any key is mapped there, if that is not NULL */
} loop_manners;

/* Guards the table and everything another instance may touch: inbox, regions. */
extern pthread_mutex_t loop_lock;

/* The instance of that id, or NULL.  Caller holds loop_lock. */
struct xpi_be *loop_find(uint64_t id);

/* Hands a frame to the peer.  Status as of am_send.
 * `room`: what it is copied to, which is taken in any case; NULL: some is allocated. */
int loop_deliver(struct xpi_be *be, struct loop_ep *ep, struct loop_item *room, const void *hdr, size_t hlen,
                 const void *data, size_t dlen);

/* loop_mr.c */
int loop_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
void loop_mr_dereg(struct xpi_be *be, void *mr);
int loop_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len);
int loop_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                     uint64_t length, uint32_t rights, void **direct);
void loop_rkey_destroy(struct xpi_be *be, void *rkey);
int loop_put(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
             struct xpi_req *req);
int loop_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
             struct xpi_req *req);
int loop_atomic(struct xpi_be *be, void *ep, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
                struct xpi_req *req);
int loop_drain(struct xpi_be *be, void *ep, struct xpi_req *req);
/* Carries out what put, get and drain left; returns how many. */
int loop_rma_poll(struct xpi_be *be);

#endif
