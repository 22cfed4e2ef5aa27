/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.h - copying a few bytes without a call. */
#ifndef XPI_BASE_COPY_H
#define XPI_BASE_COPY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { XPI_COPY_MAX = 64 };

/* The first and the last `size` bytes, a constant: all of size to 2 * size bytes. */
#define XPI_COPY_ENDS(size) \
	do { \
		memcpy(to, from, size); \
		memcpy((char *)to + len - (size), (const char *)from + len - (size), size); \
	} while (0)

/* Up to XPI_COPY_MAX bytes.  Eight go in one store: nobody who looks meanwhile sees half of an aligned word. */
static inline __attribute__((always_inline)) void xpi_copy_few(void *to, const void *from, size_t len)
{
	if (__builtin_expect(len == 8, 1)) {
		memcpy(to, from, 8);
	} else if (len > 32) {
		memcpy((char *)to + 16, (const char *)from + 16, 16);
		memcpy((char *)to + len - 32, (const char *)from + len - 32, 16);
		XPI_COPY_ENDS(16);
	} else if (len >= 16) {
		XPI_COPY_ENDS(16);
	} else if (len > 8) {
		XPI_COPY_ENDS(8);
	} else if (len >= 4) {
		XPI_COPY_ENDS(4);
	} else if (len >= 2) {
		XPI_COPY_ENDS(2);
	} else if (len == 1) {
		*(char *)to = *(const char *)from;
	}
}

/* Any number: few without a call. */
static inline void xpi_copy(void *to, const void *from, size_t len)
{
	if (len <= XPI_COPY_MAX)
		xpi_copy_few(to, from, len);
	else
		memcpy(to, from, len);
}

/* To where others look: what was put there before is seen before it, by whichever thread or process looks. */
static inline void xpi_copy_out(void *to, const void *from, size_t len)
{
	atomic_thread_fence(memory_order_release);
	xpi_copy(to, from, len);
}

/* From where others write: what is read there later was there later. */
static inline void xpi_copy_in(void *to, const void *from, size_t len)
{
	xpi_copy(to, from, len);
	atomic_thread_fence(memory_order_acquire);
}

#endif
