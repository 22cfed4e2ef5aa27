/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_threads.h - the threads of a side, one stream each; if one fails, the others stop. */
#ifndef XPORT_TOOLS_PERF_THREADS_H
#define XPORT_TOOLS_PERF_THREADS_H

#include <pthread.h>

#include "tools/perf_stream.h"

struct perf_threads;

struct perf_member {
	struct perf_threads *threads;
	struct perf_stream stream;
	pthread_t thread;
	struct perf_result part; /* of the case at hand */
	uint64_t from, to;       /* of its timed run */
};

struct perf_threads {
	const struct perf_options *options;
	struct perf_member *members; /* the first is the calling thread's */
	int n;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t gate;
	int waiting;
	unsigned opened;
};

bool perf_threads_init(struct perf_threads *threads, const struct perf_options *o, int n);
/* Runs work(member) for each, the first in this thread; false if one failed, whose text is printed. */
bool perf_threads_run(struct perf_threads *threads, bool (*work)(struct perf_member *m));
/* Waits for all others; false if one has failed. */
bool perf_threads_meet(struct perf_threads *threads);
void perf_threads_free(struct perf_threads *threads);

#endif
