/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef XPI_CORE_PROGRESS_DUMP_H
#define XPI_CORE_PROGRESS_DUMP_H

#include "core/object/instance.h"

/* Writes endpoints and operations in flight to the log, as errors, so that they are seen. */
void xpi_dump(struct xport *x);

/* Fails the endpoints of operations older than XPORT_OP_TIMEOUT. */
void xpi_op_timeouts(struct xport *x);

#endif
