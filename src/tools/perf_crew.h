/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_crew.h - the threads of a side, a lane each; when one fails, the others stop. */
#ifndef XPORT_TOOLS_PERF_CREW_H
#define XPORT_TOOLS_PERF_CREW_H

#include <pthread.h>

#include "tools/perf_lane.h"

struct perf_crew;

struct perf_member {
	struct perf_crew *crew;
	struct perf_lane lane;
	pthread_t thread;
	struct perf_result part; /* of the case at hand */
	uint64_t from, to;       /* of its timed run */
};

struct perf_crew {
	const struct perf_options *options;
	struct perf_member *members; /* the first is the calling thread's */
	int n;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t gate;
	int waiting;
	unsigned opened;
};

bool perf_crew_init(struct perf_crew *crew, const struct perf_options *o, int n);
/* Runs work(member) for each, the first in this thread; false if one failed, whose text is printed. */
bool perf_crew_run(struct perf_crew *crew, bool (*work)(struct perf_member *m));
/* Waits for all others; false if one has failed. */
bool perf_crew_meet(struct perf_crew *crew);
void perf_crew_free(struct perf_crew *crew);

#endif
