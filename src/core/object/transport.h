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

struct xpi_transport {
	struct xport *x;
	/* the data path */
	struct xpi_be *be;
	int (*am_send)(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req); /* of ops */
	const struct xpi_backend *ops;
	struct xpi_be_caps caps;
	struct xpi_pool frame_pool; /* frames of many records, with room for the longest that this back end sends */
	unsigned index;             /* among those of the instance, see xport_mr.on */
	/* life */
	struct xpi_list link; /* in x->transports */
};

/* xpi_transport_of - the transport that a back end's callback names. */
static inline struct xpi_transport *xpi_transport_of(struct xpi_core *core)
{
	return (struct xpi_transport *)core;
}

/*
 * xpi_transport_open - open the first usable back end of the instance's settings.
 *
 * up          the callbacks that the back end gets
 * frame_head  bytes that each frame of frame_pool has before the back end's am_max
 *
 * Returns XPORT_OK, or an error of xpi_select described in x->err, or
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_INCOMPATIBLE  the capabilities of the back end contradict its slots
 */
int xpi_transport_open(struct xport *x, const struct xpi_core_ops *up, size_t frame_head);

/* xpi_transport_close - close the back end and free the transport. Its endpoints, regions and keys are gone. */
void xpi_transport_close(struct xpi_transport *tp);

#endif
