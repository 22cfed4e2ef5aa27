/* SPDX-License-Identifier: BSD-3-Clause */
/* open.h - opening and closing an instance. */
#ifndef XPI_CORE_PROGRESS_OPEN_H
#define XPI_CORE_PROGRESS_OPEN_H

#include "core/object/instance.h"

int xpi_open(const struct xport_attr *attr, struct xport_error *err, struct xport **x);
void xpi_close(struct xport *x);

#endif
