/* SPDX-License-Identifier: BSD-3-Clause */
/* expire.h - operations whose deadline is over (xport_opt.deadline_ms). */
#ifndef XPI_CORE_PROGRESS_EXPIRE_H
#define XPI_CORE_PROGRESS_EXPIRE_H

#include "core/object/instance.h"

/* xpi_expire - end the operations whose deadline is over, and their endpoints where that takes it. */
void xpi_expire(struct xport *x);

#endif
