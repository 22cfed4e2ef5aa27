/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the monotonic clock, and when a process started. */
#ifndef XPI_BASE_CLOCK_H
#define XPI_BASE_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in milliseconds. */
int64_t xpi_now_ms(void);

/* Start time of a process of this PID namespace, in clock ticks since boot (proc_pid_stat(5), field 22); pid 0: this
 * process.  0: unknown. */
uint64_t xpi_process_start(int64_t pid);

#endif
