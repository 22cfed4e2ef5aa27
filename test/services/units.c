/* SPDX-License-Identifier: BSD-3-Clause */
/* units.c - for units_test.cc: inline functions, and functions with C11 atomics, which C++ cannot read. */
#include <stdlib.h>

#include "services/lease.h"
#include "services/memlock.h"
#include "services/pool_core.h"
#include "services/snapshot.h"
#include "services/units.h"

void svc_snapshot_make_c(void *snapshot, uint64_t version, size_t length)
{
	struct svc_mark m =
		length == 0 ? svc_mark_alone(version) : svc_mark_over(version, (char *)snapshot + sizeof(m), length);

	memcpy(snapshot, &m, sizeof(m));
}

int svc_snapshot_accepts_c(const void *snapshot, size_t length, uint64_t *version)
{
	const void *bytes = (const char *)snapshot + sizeof(struct svc_mark);

	return length == 0 ? svc_mark_read_alone(snapshot, version)
	                   : svc_mark_read_over(snapshot, bytes, length, version);
}

int svc_memlock_network_c(const struct xport_info *info)
{
	return svc_memlock_network(info);
}

int svc_memlock_check_c(uint64_t limit, uint64_t locked, int exempt, uint64_t more)
{
	struct svc_memlock m = {.limit = limit, .locked = locked, .exempt = exempt != 0};

	return svc_memlock_check(&m, more, "test");
}

uint64_t svc_memlock_limit_c(void)
{
	struct svc_memlock m;

	svc_memlock_now(&m);
	return m.limit;
}

void *svc_addr_map_new_c(void)
{
	return svc_addr_map_new();
}

void *svc_addr_map_enter_c(void *table, uintptr_t base, void *span)
{
	struct svc_addr_map *t = svc_addr_map_room(table, 1);

	svc_addr_map_enter(t, base, span);
	return t;
}

void *svc_addr_map_find_c(void *table, uintptr_t address)
{
	return svc_addr_map_find(table, (void *)address);
}

void svc_addr_map_remove_c(void *table, uintptr_t base)
{
	svc_addr_map_remove(table, base);
}

void svc_addr_map_free_c(void *table)
{
	svc_addr_map_free(table);
}

int svc_index_wrong_c(void)
{
	struct svc_slab *slab = calloc(1, sizeof(*slab) + sizeof(slab->span[0]));
	struct svc_span *span = &slab->span[0];
	int wrong = -1;

	span->slab = slab;
	span->head = span;
	span->base = SVC_SPAN;
	for (unsigned class = 0; class < SVC_CLASSES; class ++) {
		slab->nfree = 1;
		if (!svc_span_cut(span, svc_class_size[class], class, false))
			abort();
		for (uint32_t at = 0; at < SVC_SPAN; at++) {
			if (svc_span_index(span, (void *)(span->base + at)) != at / svc_class_size[class])
				wrong = (int)class;
		}
		svc_span_uncut(span);
	}
	free(slab);
	return wrong;
}

static int longest_chain(const struct svc_lease_table *t)
{
	int longest = 0;

	for (size_t i = 0; i < t->buckets; i++) {
		int n = 0;

		for (const struct xport_lease *lease = t->bucket[i]; lease != NULL; lease = lease->number_next)
			n++;
		longest = n > longest ? n : longest;
	}
	return longest;
}

int svc_lease_table_longest_c(uint64_t n)
{
	struct xport_lease *lease = calloc(n + 1, sizeof(*lease));
	struct svc_lease_table t = {0};
	int longest;

	for (uint64_t i = 1; i <= n; i++) {
		lease[i].id = i;
		if (!svc_lease_table_add(&t, &lease[i]))
			abort();
	}
	longest = longest_chain(&t);
	for (uint64_t i = 0; i <= n + 1; i++)
		if (svc_lease_table_find(&t, i) != (i == 0 || i > n ? NULL : &lease[i]))
			longest = -1;
	for (uint64_t i = 1; i <= n; i += 2)
		svc_lease_table_remove(&t, &lease[i]);
	for (uint64_t i = 1; i <= n; i++)
		if (svc_lease_table_find(&t, i) != (i % 2 != 0 ? NULL : &lease[i]))
			longest = -1;
	svc_lease_table_free(&t);
	free(lease);
	return longest;
}
