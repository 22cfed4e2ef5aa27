/* SPDX-License-Identifier: BSD-3-Clause */
/* open.h - the beginning and the end of an instance. */
#ifndef XPI_CORE_OPEN_H
#define XPI_CORE_OPEN_H

#include "core/instance.h"

int xpi_open(const struct xport_attr *attr, struct xport_error *err, struct xport **x);
void xpi_close(struct xport *x);

/* Fails the endpoints of operations older than XPORT_OP_TIMEOUT. */
void xpi_op_timeouts(struct xport *x);

#endif
