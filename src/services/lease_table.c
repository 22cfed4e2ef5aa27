/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The numbers are this process's own, and consecutive. So the lower bits of a number choose its bucket, and no peer can make
 * chains long without as many leases as the instance has ever made.
 */
#include "services/lease_table.h"

#include <stdlib.h>

#include "services/lease.h"

enum { BUCKETS_MIN = 64 };

static struct xport_lease **bucket_of(const struct svc_lease_table *t, uint64_t id)
{
	return &t->bucket[(size_t)id & (t->buckets - 1)];
}

static void chain(struct svc_lease_table *t, struct xport_lease *lease)
{
	struct xport_lease **bucket = bucket_of(t, lease->id);

	lease->number_next = *bucket;
	*bucket = lease;
}

static bool table_grow(struct svc_lease_table *t)
{
	size_t buckets = t->buckets == 0 ? BUCKETS_MIN : 2 * t->buckets;
	struct svc_lease_table old = *t;
	struct xport_lease *next;

	t->bucket = calloc(buckets, sizeof(struct xport_lease *));
	if (t->bucket == NULL) {
		t->bucket = old.bucket;
		return old.bucket != NULL; /* chains become longer */
	}
	t->buckets = buckets;
	for (size_t i = 0; i < old.buckets; i++) {
		for (struct xport_lease *lease = old.bucket[i]; lease != NULL; lease = next) {
			next = lease->number_next;
			chain(t, lease);
		}
	}
	free(old.bucket);
	return true;
}

bool svc_lease_table_add(struct svc_lease_table *t, struct xport_lease *lease)
{
	if (t->count == t->buckets && !table_grow(t))
		return false;
	chain(t, lease);
	t->count++;
	return true;
}

void svc_lease_table_remove(struct svc_lease_table *t, struct xport_lease *lease)
{
	struct xport_lease **at = bucket_of(t, lease->id);

	while (*at != lease)
		at = &(*at)->number_next;
	*at = lease->number_next;
	t->count--;
}

struct xport_lease *svc_lease_table_find(const struct svc_lease_table *t, uint64_t id)
{
	struct xport_lease *lease = t->count == 0 ? NULL : *bucket_of(t, id);

	while (lease != NULL && lease->id != id)
		lease = lease->number_next;
	return lease;
}

void svc_lease_table_free(struct svc_lease_table *t)
{
	free(t->bucket);
}
