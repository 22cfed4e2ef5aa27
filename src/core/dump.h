/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef XPI_CORE_DUMP_H
#define XPI_CORE_DUMP_H

#include "core/instance.h"

/* Writes endpoints and operations in flight to the log, as errors, so that they are seen. */
void xpi_dump(struct xport *x);

#endif
