/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the command line of xport_cp. */
#ifndef CP_OPTIONS_H
#define CP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/cp/wire.h"

/* Exit statuses. */
enum { CP_EXIT_DONE = 0, CP_EXIT_SOME_FAILED = 1, CP_EXIT_USAGE = 2, CP_EXIT_LOST = 3 };

struct cp_options {
	const char *serve; /* the directory; NULL: a client */
	char listen[256];
	const char *backend; /* NULL: as XPORT_BACKEND says */
	uint32_t flags;      /* enum cp_flags */
	bool quiet, json, progress, read_only;
	bool fetch;     /* the sources are remote, the target is here */
	char **sources; /* nsources of them, then the target */
	int nsources;
	const char *target;
};

/* HOST:PORT:PATH in two; false: this names something here. */
bool cp_remote(const char *name, char address[256], const char **path);
/* Ends the process where the options are wrong. */
void cp_options_read(struct cp_options *o, int argc, char **argv);

#endif
