/* SPDX-License-Identifier: BSD-3-Clause */
/* exit.h - included first in a build for contrib/coverage: a process that ends by _exit has its counts written, too. */
#ifndef COVERAGE_EXIT_H
#define COVERAGE_EXIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <unistd.h>

#ifdef __cplusplus
extern "C" void __gcov_dump(void);
#else
void __gcov_dump(void);
#endif

static inline __attribute__((noreturn, unused)) void coverage_exit(int status)
{
	__gcov_dump();
	_exit(status);
}
#define _exit(status) coverage_exit(status)

#endif
