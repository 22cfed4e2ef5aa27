/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crew.h - the processes that go through the cells of one provider: a conductor, forked from the test program, and
 * below it a victim, a survivor and a third peer. Each of these is a role of one long scenario.
 *
 * When a cell fails, the crew ends, and another crew continues after it.
 */
#ifndef TEST_KILL_CREW_H
#define TEST_KILL_CREW_H

#include <sys/types.h>

#include "kill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A board with the cells of a crew, none of them asked for yet; NULL: out of memory. */
struct kl_board *crew_board(const char *backend, bool silent);
/* Starts the conductor; -1: it cannot be. */
pid_t crew_start(struct kl_board *b);
/* Waits until the cell is judged; returns its state. */
enum kl_state crew_wait(struct kl_cell *cell, pid_t conductor);
/* Waits for the conductor; false: something failed that no cell could be blamed for. */
bool crew_end(pid_t conductor);

struct kl_cell *crew_cells(struct kl_board *b, int *n);
/* Before it starts: where its random moments come from; at one end in so many the third peer is measured (0: never), for so
 * long before and after. */
void crew_set(struct kl_board *b, uint64_t seed, int measure_every, int window_ms);

/* What a survivor had more when it was through. */
struct crew_left {
	unsigned ends; /* in the second half of its life, */
	long heap;     /* during which it took so many bytes more, in small blocks */
	long large;    /* and in large ones */
	int fds;
	int files;      /* in /dev/shm */
	bool own_files; /* nobody else has any there */
	double third_rate;  /* after an end, of that before, by the median; 1: seldom measured */
	unsigned late_ways; /* whose ends were seen later than promised, by the median */
};
struct crew_left crew_what_is_left(struct kl_board *b);

#ifdef __cplusplus
}
#endif

#endif
