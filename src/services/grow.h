/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grow.h - structs of xport_services.h that begin with `size`, from an older or newer program than this library.
 * doc/abi.md has the rule. This is not base/grow.h: like an application, the services use only xport.h.
 */
#ifndef SVC_GROW_H
#define SVC_GROW_H

#include <stdbool.h>
#include <stddef.h>

#include "services/xport_services.h"

enum { SVC_GROW_MAX = 4096 }; /* more than any of them will ever have: what is beyond it is no size */

/* The size of a struct whose last member was `last`, without what was padded behind. */
#define SVC_SIZE_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* The last member of each in its first version.  What others hold, xport_directory_entry, does not grow. */
enum {
	SVC_FIRST_ERROR = SVC_SIZE_UP_TO(struct xport_error, hint),
	SVC_FIRST_POOL_ATTR = SVC_SIZE_UP_TO(struct xport_pool_attr, node),
	SVC_FIRST_POOL_INFO = SVC_SIZE_UP_TO(struct xport_pool_info, placement),
	SVC_FIRST_CACHE_ATTR = SVC_SIZE_UP_TO(struct xport_cache_attr, max_bytes),
	SVC_FIRST_CACHE_INFO = SVC_SIZE_UP_TO(struct xport_cache_info, invalidations),
	SVC_FIRST_VERSIONED_ATTR = SVC_SIZE_UP_TO(struct xport_versioned_attr, tries),
	SVC_FIRST_LEASES_ATTR = SVC_SIZE_UP_TO(struct xport_leases_attr, arg),
	SVC_FIRST_LEASES_INFO = SVC_SIZE_UP_TO(struct xport_leases_info, muted),
	SVC_FIRST_LEASE_EVENT = SVC_SIZE_UP_TO(struct xport_lease_event, context),
	SVC_FIRST_LEASE_INFO = SVC_SIZE_UP_TO(struct xport_lease_info, context),
	SVC_FIRST_DIRECTORY_ATTR = SVC_SIZE_UP_TO(struct xport_directory_attr, peer_names),
	SVC_FIRST_DIRECTORY_EVENT = SVC_SIZE_UP_TO(struct xport_directory_event, entry),
	SVC_FIRST_DIRECTORY_INFO = SVC_SIZE_UP_TO(struct xport_directory_info, hits),
	SVC_FIRST_CONN_ATTR = SVC_SIZE_UP_TO(struct xport_conn_attr, backlog),
	SVC_FIRST_PREPARED_INFO = SVC_SIZE_UP_TO(struct xport_prepared_info, lists),
	SVC_FIRST_OPT = SVC_SIZE_UP_TO(struct xport_opt, id),
	SVC_FIRST_LINK_ATTR = SVC_SIZE_UP_TO(struct xport_link_attr, seed),
	SVC_FIRST_LINK_EVENT = SVC_SIZE_UP_TO(struct xport_link_event, length),
	SVC_FIRST_LINK_INFO = SVC_SIZE_UP_TO(struct xport_link_info, void_keys),
	SVC_FIRST_RPCS_ATTR = SVC_SIZE_UP_TO(struct xport_rpcs_attr, retry_after_ms),
	SVC_FIRST_RPCS_INFO = SVC_SIZE_UP_TO(struct xport_rpcs_info, memory_max),
	SVC_FIRST_RPC_EVENT = SVC_SIZE_UP_TO(struct xport_rpc_event, trace),
	SVC_FIRST_RPC_ARGS = SVC_SIZE_UP_TO(struct xport_rpc_args, id),
	SVC_FIRST_BULK_ATTR = SVC_SIZE_UP_TO(struct xport_bulk_attr, owner),
	SVC_FIRST_BULK_INFO = SVC_SIZE_UP_TO(struct xport_bulk_info, owner),
	SVC_FIRST_BULK_EVENT = SVC_SIZE_UP_TO(struct xport_bulk_event, sum),
	SVC_FIRST_BULK_ARGS = SVC_SIZE_UP_TO(struct xport_bulk_args, id),
	SVC_FIRST_BULKS_ATTR = SVC_SIZE_UP_TO(struct xport_bulks_attr, max_transfers),
	SVC_FIRST_BULKS_INFO = SVC_SIZE_UP_TO(struct xport_bulks_info, waiting),
	SVC_FIRST_FAR_ATTR = SVC_SIZE_UP_TO(struct xport_far_attr, pool),
	SVC_FIRST_FAR_ARGS = SVC_SIZE_UP_TO(struct xport_far_args, context),
	SVC_FIRST_FAR_EVENT = SVC_SIZE_UP_TO(struct xport_far_event, context),
	SVC_FIRST_FAR_PLACE = SVC_SIZE_UP_TO(struct xport_far_place, length),
	SVC_FIRST_FAR_INFO = SVC_SIZE_UP_TO(struct xport_far_info, lent),
	SVC_FIRST_FAR_LENDER_INFO = SVC_SIZE_UP_TO(struct xport_far_lender_info, context),
	SVC_FIRST_FAR_BLOCK_INFO = SVC_SIZE_UP_TO(struct xport_far_block_info, context),
	SVC_FIRST_METRICS_ATTR = SVC_SIZE_UP_TO(struct xport_metrics_attr, interval_ms),
	SVC_FIRST_GROUP_ATTR = SVC_SIZE_UP_TO(struct xport_group_attr, arg),
	SVC_FIRST_GROUP_INFO = SVC_SIZE_UP_TO(struct xport_group_info, why)
};

/* Whether a struct of a program may have this size. */
static inline bool svc_grow_size(size_t size, size_t first)
{
	return size >= first && size <= SVC_GROW_MAX;
}

/*
 * Reads the program's struct into one of this library's, of `known` bytes, whose size it sets; NULL: all defaults.  INVALID:
 * it has a wrong size; NOT_SUPPORTED: it asks for what this library does not know.  `name` is the struct's.
 */
int svc_grow_in(void *to, size_t known, size_t first, const void *from, const char *operation, const char *name);

/* Writes one of this library's into the program's, as much as goes in; its size stays. */
void svc_grow_out(void *to, const void *from, size_t known);

#endif
