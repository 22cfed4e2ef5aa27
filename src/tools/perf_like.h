/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_like.h - --like: a command line of perftest, and its columns. */
#ifndef XPORT_TOOLS_PERF_LIKE_H
#define XPORT_TOOLS_PERF_LIKE_H

#include "tools/perf.h"

/* A command of perftest, and the test that does the same. */
struct perf_like {
	const char *name, *test, *title;
	enum perf_measure measure;
	uint64_t count; /* operations, if neither -n nor -D is given */
	bool lone;      /* no -s and no -a: an atomic has 8 bytes */
};

/* "ib_write_bw"; NULL if argv[1] is not --like.  Ends the program if the command or a flag is unknown. */
const struct perf_like *perf_like_of(int argc, char **argv);
/*
 * The command line of xport_perf that does what argv asks for, ended by NULL; *argc is its length.  `open`: a server
 * listens at all addresses.  Ends the program if a flag is unknown, or has a wrong value.
 */
char **perf_like_translate(const struct perf_like *like, int *argc, char **argv, bool open);

/* The lines of perftest: above the results, and one for each. */
void perf_like_begin(const struct perf_options *o);
void perf_like_row(const struct perf_options *o, const struct perf_result *r);

#endif
