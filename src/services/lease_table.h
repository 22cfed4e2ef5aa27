/* SPDX-License-Identifier: BSD-3-Clause */
/* lease_table.h - finds the leases of an instance that have not ended by their numbers. They are chained by number_next. */
#ifndef SVC_LEASE_TABLE_H
#define SVC_LEASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xport_lease;

/* Zeroed: an empty one. */
struct svc_lease_table {
	struct xport_lease **bucket;
	size_t buckets; /* a power of 2, or 0 */
	size_t count;
};

/* False: out of memory, and nothing has changed. */
bool svc_lease_table_add(struct svc_lease_table *t, struct xport_lease *lease);
void svc_lease_table_remove(struct svc_lease_table *t, struct xport_lease *lease);
/* NULL: none has this number. */
struct xport_lease *svc_lease_table_find(const struct svc_lease_table *t, uint64_t id);
/* Frees what an empty one still has. */
void svc_lease_table_free(struct svc_lease_table *t);

#endif
