/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_parts.h - what the files of the fake device share. */
#ifndef TEST_VERBS_FAKE_PARTS_H
#define TEST_VERBS_FAKE_PARTS_H

#include "fake.h"

extern struct ibv_device fake_device, fake_other_device;

/* Objects that are counted. */
void *fake_made(int *count, size_t size);
int fake_unmade(int *count, void *p);
/* A new completion. */
struct ibv_wc *fake_wc(uint64_t id, enum ibv_wc_status status);

#endif
