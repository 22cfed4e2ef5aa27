/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the monotonic clock. */
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

#endif
