/* SPDX-License-Identifier: BSD-3-Clause */
/* wrap.h - makes calls of the services fail, in the calling thread (the linker's --wrap). */
#ifndef SVC_TEST_WRAP_H
#define SVC_TEST_WRAP_H

#include <stdbool.h>
#include <stddef.h>

/* As many registrations say NO_MEMORY; and as many calls of xport_mr_alloc, and of xport_get. */
void svc_wrap_reg(int refused);
void svc_wrap_alloc(int refused);
void svc_wrap_get(int refused);
/* The next get is not posted, but kept. Then it is posted; returns what xport_get returned. */
void svc_wrap_get_keep(void);
int svc_wrap_get_post(void);
/* Keys that this thread has destroyed. */
int svc_wrap_keys_destroyed(void);
/* Huge pages of 2 MiB are there to be mapped, and to populate them ends with this errno; -1: as the system has it. */
void svc_wrap_huge(int error);
/* Bytes of them that are mapped. */
size_t svc_wrap_huge_mapped(void);
/* No NUMA node has memory. */
void svc_wrap_nodes_empty(bool empty);

#endif
