/* SPDX-License-Identifier: BSD-3-Clause */
/* shared.h - memory that roles and runner share; internal to the harness. */
#ifndef CONFORM_SHARED_H
#define CONFORM_SHARED_H

#include <stdatomic.h>

#include "scenario.h"

enum h_state { H_NEVER, H_RUNNING, H_ENDED, H_GONE };

/* A role is there, was killed or ended on purpose, or may be killed at any time; for one that is not there nobody waits. */
enum { H_IS_THERE, H_IS_GONE, H_MAY_GO };

struct h_role_shared {
	atomic_int pid;
	atomic_int state;
	atomic_int gone; /* H_IS_THERE and so on */
	int incarnation;
	int out_fd, err_fd; /* what it wrote, kept by the runner */
	atomic_uint nlog;
	char log[64 * 1024];
	atomic_uint nlate;
	char late[8 * 1024]; /* warnings and errors that had no room in it */
	atomic_uint nexpect;
	char expect[16][64];
};

struct h_shared {
	struct h_role_shared role[H_ROLES];
	atomic_int verdict; /* enum h_outcome of the first who spoke */
	char text[8 * 1024];
	atomic_uint nfigures;
	struct h_figure figures[32];
	_Atomic uint64_t words[64];
	atomic_uint restarts; /* answered restarts */
	_Atomic int64_t tick_us, stalled_us; /* see h_tick */
	atomic_bool stuck;    /* a role waits in vain: the others say where they are, too */
};

/* Runner to watch thread, and what a role asks the runner to do. */
struct h_command {
	int kind, role;
};
enum { H_DO_RESTART = 1 };

int h_scale(void);
/*
 * A virtual machine may stand still for seconds: whatever was to be done in that time is late, and is nobody's fault.  So the clock
 * of the harness does not go on for more than a moment after the runner's last tick; what it missed is left out for good.
 * From here on in this process and those it starts, until NULL.
 */
void h_clock_of(struct h_shared *sh);
/* Often, by the runner. */
void h_tick(struct h_shared *sh);

#endif
