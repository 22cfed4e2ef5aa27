/* SPDX-License-Identifier: BSD-3-Clause */
/* lookup.h - looking up a host name while the instance goes on. */
#ifndef XPI_CORE_CM_LOOKUP_H
#define XPI_CORE_CM_LOOKUP_H

#include "core/cm/addr.h"

struct xpi_lookup;

/* xpi_lookup_start - start to look up a name, in a thread of its own. NULL: *err says why. */
struct xpi_lookup *xpi_lookup_start(const struct xpi_name *name, struct xport_error *err);
/*
 * xpi_lookup_poll - whether the answer is there. Costs no system call.
 *
 * Returns 0: not yet; 1: *out has the addresses; or a status of xpi_addr_lookup, described in *err.
 */
int xpi_lookup_poll(struct xpi_lookup *l, struct xpi_addrs *out, struct xport_error *err);
/* xpi_lookup_drop - give it up, or free it. NULL is allowed. A thread that still waits for the answer frees it later. */
void xpi_lookup_drop(struct xpi_lookup *l);

#endif
