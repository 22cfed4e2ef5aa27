/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * meter.h - what a process holds while it runs: memory, descriptors, allocations. It writes a line of JSON from time to
 * time, and reports at the end whether this grew.
 */
#ifndef SOAK_METER_H
#define SOAK_METER_H

#include <stdbool.h>
#include <stdint.h>

struct soak_sample {
	uint64_t private_kib; /* resident, of its own or of files */
	uint64_t shared_kib;  /* mapped together with others, resident or not */
	uint64_t pss_kib, fds;
	uint64_t heap;        /* bytes that malloc has given out */
};

enum { SOAK_STEPS_KEPT = 65536 };

struct soak_meter {
	struct soak_sample warm, last;
	bool warmed;
	uint64_t warm_connections;
	/* Descriptors seen since soak_meter_watch began.  UCX's connections come and go a moment after ours. */
	uint64_t fds_least, fds_most;
	/* By how much what malloc had given out was more than after the connection before. */
	int64_t step[SOAK_STEPS_KEPT];
	uint64_t nsteps, heap_before;
	double began, next;
};

struct soak_now {
	const char *side, *backend;
	uint64_t seed, round, ops, all, connections, retries, in_flight, unmatched;
	int interval_s;
};

double soak_seconds(void);
void soak_meter_begin(struct soak_meter *m);
/* Whether the next fresh look is the one that the end is compared with. */
bool soak_meter_warms(const struct soak_meter *m, const struct soak_now *now);
/* Before that look and the end: counts the descriptors, again and again; `begin`: for the first time. */
void soak_meter_watch(struct soak_meter *m, bool begin);
/* At a moment at which nothing is in flight; `fresh`: right after a connection was made anew. */
void soak_meter_look(struct soak_meter *m, const struct soak_now *now, bool fresh);
/* There were, while they were watched, once no more descriptors than there were when it was warm. */
bool soak_meter_settled(const struct soak_meter *m);
/* The last line.  False: it grew, and `why` says what. */
bool soak_meter_end(struct soak_meter *m, const struct soak_now *now, uint64_t limit_kib, char *why, int len);

#endif
