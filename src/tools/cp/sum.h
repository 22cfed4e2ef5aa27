/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum.h - checksums (XXH3, 128 bits): of a block, dependent on its offset; and of a file, from all of its blocks and
 * holes, in any order.
 */
#ifndef CP_SUM_H
#define CP_SUM_H

#include <stddef.h>
#include <stdint.h>

/* A checksum of a block in pieces. */
struct cp_sum;
struct cp_sum *cp_sum_new(void);
void cp_sum_free(struct cp_sum *s);
void cp_sum_begin(struct cp_sum *s, uint64_t offset);
void cp_sum_more(struct cp_sum *s, const void *data, size_t len);
void cp_sum_end(struct cp_sum *s, uint64_t sum[2]);

/* The same of a block that is there whole; of a hole; and what they come to. */
void cp_sum_block(const void *data, size_t len, uint64_t offset, uint64_t sum[2]);
void cp_sum_hole(uint64_t offset, uint64_t length, uint64_t sum[2]);
void cp_sum_add(uint64_t all[2], const uint64_t sum[2]);

#endif
