/* SPDX-License-Identifier: BSD-3-Clause */
/* units.h - between units.c and units_test.cc. */
#ifndef SVC_TEST_UNITS_H
#define SVC_TEST_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "services/xport_services.h"

int svc_memlock_network_c(const struct xport_info *info);
int svc_memlock_check_c(uint64_t limit, uint64_t locked, int exempt, uint64_t more);
uint64_t svc_memlock_limit_c(void);
void *svc_addr_map_new_c(void);
void *svc_addr_map_enter_c(void *table, uintptr_t base, void *span);
void *svc_addr_map_find_c(void *table, uintptr_t address);
void svc_addr_map_remove_c(void *table, uintptr_t base);
void svc_addr_map_free_c(void *table);
int svc_index_wrong_c(void);
/* Adds so many leases, finds all, removes every second one. The longest chain before that; -1: a wrong lease was found. */
int svc_lease_table_longest_c(uint64_t n);
void svc_snapshot_make_c(void *snapshot, uint64_t version, size_t length);
int svc_snapshot_accepts_c(const void *snapshot, size_t length, uint64_t *version);

#endif
