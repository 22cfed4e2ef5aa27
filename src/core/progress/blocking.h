/* SPDX-License-Identifier: BSD-3-Clause */
/* blocking.h - the calls that wait.  Each makes progress meanwhile; the caller holds the lock. */
#ifndef XPI_CORE_PROGRESS_BLOCKING_H
#define XPI_CORE_PROGRESS_BLOCKING_H

#include "core/object/ep.h"
#include "core/object/mr.h"

/* attr  of xport_accept_with; NULL: xport_accept */
int xpi_listener_accept(struct xport_listener *listener, const struct xport_conn_attr *attr, int timeout_ms,
                        struct xport_ep **ep);

int xpi_connect(struct xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms,
                struct xport_ep **ep);

int xpi_mr_dereg(struct xport_mr *mr);

#endif
