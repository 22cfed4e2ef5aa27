/* SPDX-License-Identifier: BSD-3-Clause */
/* lookup.h - looking up a host name while the instance goes on (getaddrinfo_a(3)). */
#ifndef XPI_CORE_CM_LOOKUP_H
#define XPI_CORE_CM_LOOKUP_H

#include "core/cm/addr.h"

struct xpi_lookup;

/* xpi_lookup_start - start to look up a name. A thread of the C library does it. NULL: *err says why. */
struct xpi_lookup *xpi_lookup_start(const struct xpi_name *name, struct xport_error *err);
/*
 * xpi_lookup_poll - whether the answer is there. Costs no system call while it is not.
 *
 * Returns 0: not yet; 1: *out has the addresses; or a status of xpi_addr_resolve, described in *err.
 */
int xpi_lookup_poll(struct xpi_lookup *l, struct xpi_addrs *out, struct xport_error *err);
/* xpi_lookup_drop - give it up, or free it. NULL is allowed. One that cannot be cancelled now is freed by a later call. */
void xpi_lookup_drop(struct xpi_lookup *l);

#endif
