/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - the progress line on the terminal: file, amount, rate, remaining time; and the notes above it. */
#ifndef CP_PROGRESS_H
#define CP_PROGRESS_H

#include <stdbool.h>

#include "tools/cp/observe.h"

struct cp_progress {
	struct cp_observer see; /* hand this to a side */
	bool shown;             /* at all */
	bool standing;          /* a line is on the terminal now */
	uint64_t total;         /* bytes of everything; 0: not known, then those of the file */
	uint64_t done, file_done, file_size;
	uint64_t began_ns, drawn_ns;
	uint64_t then_ns, then_done; /* a while ago, for the rate */
	double rate;                 /* bytes a second */
	char name[256];
};

void cp_progress_init(struct cp_progress *p, bool shown);
/* Takes the line away. */
void cp_progress_clear(struct cp_progress *p);
double cp_progress_seconds(const struct cp_progress *p);
/* "1.5 GiB" */
const char *cp_size(uint64_t bytes, char to[32]);

#endif
