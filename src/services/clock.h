/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the monotonic clock, exact or cheap. */
#ifndef SVC_CLOCK_H
#define SVC_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC in milliseconds. */
static inline int64_t svc_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* By how much svc_coarse_ms may be behind: a tick of the kernel, of at most 10 ms. */
enum { SVC_COARSE_MS = 10 };

/* The same clock as of the last tick, in a twentieth of the time. */
static inline int64_t svc_coarse_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#endif
