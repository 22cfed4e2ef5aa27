/* SPDX-License-Identifier: BSD-3-Clause */
/* xport_demo.h - what the two files of xport_demo share. */
#ifndef XPORT_DEMO_H
#define XPORT_DEMO_H

#include <stdint.h>
#include <xport.h>

enum { ROUNDS = 1000, PATIENCE_S = 60 };

extern xport *x;        /* the instance of this process */
extern const char *who; /* its role, for messages */

/* must - end the process unless `bad` is 0: with the step, and what the library says of a status. */
void must(const char *step, int bad);

/*
 * finish - take what a posting function returned, and reap until `n` operations have completed, but once at least.
 *
 * Two fit into any queue, so XPORT_ERR_AGAIN is a failure, too. SIGALRM ends a wait without end.
 */
void finish(const char *step, int status, int n);

/* now - the time in seconds. */
double now(void);

/*
 * mixed_of, mixed_all - move the file over several providers at the same time: those of a set "A+B", and those of a list
 * that are ready. Prints a line for each. Returns the exit status.
 */
int mixed_of(const char *set, int fd, uint64_t size);
int mixed_all(const struct xport_candidate *list, int max, int fd, uint64_t size);

#endif
