/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the monotonic clock, and when a process started. */
#ifndef XPI_BASE_CLOCK_H
#define XPI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC in milliseconds. */
int64_t xpi_now_ms(void);

/* Start time of a process of this PID namespace, in clock ticks since boot (proc_pid_stat(5), field 22); pid 0: this
 * process.  0: unknown. */
uint64_t xpi_process_start(int64_t pid);

/*
 * xpi_ticks - a fast counter for short distances: XPI_TICKS_SHORT of them are 60 to 200 us.
 *
 * It may jump, also back. Compare differences as unsigned numbers, so that a jump counts as a long time.
 */
#if defined(__x86_64__)
enum { XPI_TICKS_SHORT = 1 << 18 };
static inline uint64_t xpi_ticks(void)
{
	return __builtin_ia32_rdtsc();
}
#else
enum { XPI_TICKS_SHORT = 100000 };
static inline uint64_t xpi_ticks(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

#endif
