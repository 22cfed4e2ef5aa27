/* SPDX-License-Identifier: BSD-3-Clause */
/* services.h - the tables of scenarios of the services, and their shared functions. */
#ifndef TEST_SERVICES_H
#define TEST_SERVICES_H

#include "conform/scenario.h"
#include "services/xport_services.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct h_scenario svc_cases_pool[], svc_cases_pool_threads[], svc_cases_pool_peer[], svc_cases_cache[],
	svc_cases_batch[], svc_cases_bulk[], svc_cases_bulk_end[], svc_cases_bulk_refused[], svc_cases_bulk_stuck[],
	svc_cases_bulk_wrong[], svc_cases_versioned[], svc_cases_versioned_alone[], svc_cases_versioned_cost[],
	svc_cases_versioned_torn[], svc_cases_lease[], svc_cases_lease_end[], svc_cases_lease_hand[],
	svc_cases_lease_hostile[], svc_cases_lease_slow[], svc_cases_lease_wrong[], svc_cases_directory[],
	svc_cases_directory_hostile[], svc_cases_far[], svc_cases_far_end[], svc_cases_far_wrong[], svc_cases_grow[],
	svc_cases_limits[], svc_cases_pool_debug[], svc_cases_pool_node[], svc_cases_rpc[], svc_cases_rpc_bulk[],
	svc_cases_rpc_bulk_wrong[], svc_cases_rpc_end[], svc_cases_rpc_hostile[], svc_cases_rpc_kept[],
	svc_cases_rpc_queue[], svc_cases_rpc_wrong[], svc_cases_link[], svc_cases_link_end[], svc_cases_link_wrong[],
	svc_cases_prepared[], svc_cases_metrics[];

struct h_mem;
struct xport_versioned_attr;
/* Registered memory for a versioned object of the role's, as peers see it. */
struct h_mem svc_object_memory(struct h *h, const struct xport_versioned_attr *a);

/* A pool of 1 MiB slabs of the role's, with XPORT_REMOTE_READ, and what xport_pool_query reports about a pool. */
xport_pool *svc_pool_make(struct h *h, uint32_t flags, size_t max_bytes);
struct xport_pool_info svc_pool_ask(struct h *h, xport_pool *p);

/* The calling thread's last failure in the library has this status, function, and words in its text or hint. */
void svc_expect_error(struct h *h, const char *file, int line, int status, const char *operation, const char *words);
#define SVC_ERROR(status, operation, words) svc_expect_error(h, __FILE__, __LINE__, status, operation, words)

#ifdef __cplusplus
}
#endif

#endif
