/* SPDX-License-Identifier: BSD-3-Clause */
/* word.h - changes one word atomically, also against C11 atomics of other programs on this host. */
#ifndef XPI_BASE_WORD_H
#define XPI_BASE_WORD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "xport.h"

#define XPI_WORD_CHANGE(type) \
	({ \
		type *w_ = word; \
		type v_ = (type)operand, old_ = (type)compare; \
		switch (op) { \
		case XPORT_ATOMIC_ADD: \
			old_ = __atomic_fetch_add(w_, v_, __ATOMIC_SEQ_CST); \
			break; \
		case XPORT_ATOMIC_AND: \
			old_ = __atomic_fetch_and(w_, v_, __ATOMIC_SEQ_CST); \
			break; \
		case XPORT_ATOMIC_OR: \
			old_ = __atomic_fetch_or(w_, v_, __ATOMIC_SEQ_CST); \
			break; \
		case XPORT_ATOMIC_XOR: \
			old_ = __atomic_fetch_xor(w_, v_, __ATOMIC_SEQ_CST); \
			break; \
		case XPORT_ATOMIC_SWAP: \
			old_ = __atomic_exchange_n(w_, v_, __ATOMIC_SEQ_CST); \
			break; \
		default: \
			__atomic_compare_exchange_n(w_, &old_, v_, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		} \
		(uint64_t) old_; \
	})

/* `op` is of enum xport_atomic_op, `width` 4 or 8 bytes, to which `word` is aligned.  Returns what was there before. */
static inline uint64_t xpi_word_change(void *word, unsigned width, unsigned op, uint64_t operand, uint64_t compare)
{
	return width == 8 ? XPI_WORD_CHANGE(uint64_t) : XPI_WORD_CHANGE(uint32_t);
}

/* Writes the old value to where the caller wants it. */
static inline void xpi_word_give(void *result, unsigned width, uint64_t old)
{
	uint32_t half = (uint32_t)old;

	if (width == 8)
		memcpy(result, &old, 8);
	else
		memcpy(result, &half, 4);
}

#endif
