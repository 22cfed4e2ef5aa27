/* SPDX-License-Identifier: BSD-3-Clause */
/* net.h - what server and worker both do with the library.  What fails is said on standard error. */
#ifndef PS_NET_H
#define PS_NET_H

#include <stdbool.h>
#include <xport.h>
#include <xport_services.h>

#include "wire.h"

/* Exit statuses. */
enum { PS_EXIT_DONE = 0, PS_EXIT_FAILED = 1, PS_EXIT_USAGE = 2, PS_EXIT_LOST = 3 };

enum { PS_CLOSE_MS = 1000 };

/* A clock, in seconds. */
double ps_now_s(void);

/* Both print what failed, why, and what to do; both return false. */
bool ps_failed(const xport *x, const char *what, int status);
bool ps_service_failed(const char *what, int status);

/* Opens what XPORT_BACKEND names, or `backend` if that is not NULL. */
bool ps_open(const char *backend, xport **x, xport_rpcs **rpcs);

/* Registered memory, and its key, which may be NULL. */
struct ps_region {
	xport_mr *mr;
	void *base;
};
bool ps_region_make(xport *x, struct ps_region *region, size_t bytes, uint32_t rights, struct ps_key *key);
/* The same over memory of the caller's. */
bool ps_region_over(xport *x, struct ps_region *region, void *base, size_t bytes, uint32_t rights, struct ps_key *key);

/* A key that came from outside; the region must have at least so many bytes, and the rights. */
bool ps_key_use(const xport *x, xport_ep *ep, const struct ps_key *key, size_t bytes, uint32_t rights,
                xport_rkey **rkey);

/* The parameters as an object that is read whole.  Server and workers have the same. */
struct xport_versioned_attr ps_versioned(const struct ps_plan *p);

#endif
