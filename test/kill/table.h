/* SPDX-License-Identifier: BSD-3-Clause */
/* table.h - the results, by provider and kind of end, as a table in Markdown. */
#ifndef TEST_KILL_TABLE_H
#define TEST_KILL_TABLE_H

#include <stdio.h>

#include "kill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Boards of the same provider follow each other. */
void table_write(FILE *f, struct kl_board *const *boards, int n);

#ifdef __cplusplus
}
#endif

#endif
