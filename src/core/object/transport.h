/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h - one back end that an instance has open.
 *
 * Endpoints, regions and keys belong to a transport: its back end keeps their native state. To the back end the
 * transport is the struct xpi_core of every callback.
 */
#ifndef XPI_CORE_OBJECT_TRANSPORT_H
#define XPI_CORE_OBJECT_TRANSPORT_H

#include "backends/backend.h"
#include "base/list.h"
#include "base/pool.h"
#include "core/object/instance.h"

enum { XPI_TRANSPORTS_MAX = 16 }; /* of an instance */
enum { XPI_TRANSPORT_HOT = 1000 };

struct xpi_transport {
	struct xport *x;
	/* the data path */
	struct xpi_be *be;
	int (*am_send)(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req); /* of ops */
	const struct xpi_backend *ops;
	struct xpi_be_caps caps;
	unsigned credits; /* caps.am_credits before XPORT_FLIGHT raised it */
	struct xpi_pool frame_pool; /* frames of many records, with room for the longest that this back end sends */
	unsigned index;             /* its candidate's place in the set; see xport_mr.on */
	/* with several transports, see poll_all.c */
	uint32_t hot; /* it is in use: polls that it stays so without another event; 0: idle */
	uint32_t *
		stir; /* the counter to clear when it gets work: xpi_set.alone; `aside` for the one that is polled alone */
	uint32_t aside;
	uint32_t cools; /* what a poll without an event takes off it; 0: polling costs no system call */
	uint32_t neps;  /* endpoints over it that are not drained */
	int broke;      /* what poll returned, once it failed for good; else XPORT_OK */
	bool broke_told;
	/* life */
	struct xpi_list link; /* in x->transports */
};

/* xpi_transport_of - the transport that a back end's callback names. */
static inline struct xpi_transport *xpi_transport_of(struct xpi_core *core)
{
	return (struct xpi_transport *)core;
}

/* xpi_transport_used - note that the transport got something to do, so that polling soon finds something. */
static inline void xpi_transport_used(struct xpi_transport *tp)
{
	tp->hot = XPI_TRANSPORT_HOT;
	*tp->stir = 0;
}

/*
 * xpi_transport_open - open the first usable back end of the instance's settings, and create x->set.
 *
 * With several candidates also the first that shares memory, so that memory of xport_mr_alloc can be mapped by peers.
 *
 * up          the callbacks that the back ends get
 * frame_head  bytes that each frame of frame_pool has before the back end's am_max
 *
 * Returns XPORT_OK, or an error of xpi_select described in x->err, or
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_INCOMPATIBLE  the capabilities of the back end contradict its slots
 */
int xpi_transport_open(struct xport *x, const struct xpi_core_ops *up, size_t frame_head);

/*
 * xpi_transports_forgive - let transports be opened again that failed with XPORT_ERR_SYSTEM some seconds ago: for example, the
 * process had no descriptor left.
 */
void xpi_transports_forgive(struct xport *x);

/*
 * xpi_transport_get - the transport of a candidate, which is opened if it is not open. May block while it opens.
 *
 * Regions that exist are registered on it. One that it refuses is reached by messages.
 *
 * Returns NULL if it cannot be used; x->err says why.
 */
struct xpi_transport *xpi_transport_get(struct xport *x, unsigned candidate);

/*
 * xpi_transport_broke - note that poll of the transport failed for good. From then on the others are polled.
 *
 * Returns false if the instance has no others.
 */
bool xpi_transport_broke(struct xpi_transport *tp, int status);

/* xpi_transport_join, xpi_transport_quit - count an endpoint that goes over the transport, until it is drained. */
void xpi_transport_join(struct xpi_transport *tp);
void xpi_transport_quit(struct xpi_transport *tp);

/* xpi_transport_close - close the back end and free the transport. Its endpoints, regions and keys are gone. */
void xpi_transport_close(struct xpi_transport *tp);

#endif
