/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the command line. */
#ifndef PS_OPTIONS_H
#define PS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"

enum ps_mode { PS_SERVER, PS_WORKER, PS_ALONE };

/* Workers for the tests: its last gradient is dropped; it dies, or stops, in the middle of pushing one; it dies after
 * pushing one; it pushes for an order that it does not have; it is a stranger, who says something else when it connects. */
enum ps_plant {
	PS_PLANT_NONE,
	PS_PLANT_DROP,
	PS_PLANT_DIE,
	PS_PLANT_STOP,
	PS_PLANT_AFTER,
	PS_PLANT_WRONG,
	PS_PLANT_STRANGER
};

struct ps_options {
	enum ps_mode mode;
	const char *backend; /* NULL: as XPORT_BACKEND says */
	const char *address; /* server: to listen at; worker: to connect to */
	uint64_t workers, load_s;
	uint64_t patience_s; /* server: for workers to come, and to push; worker: to connect */
	bool broadcast; /* parameters go to the workers by put in each step */
	bool fixed;     /* alone: integer sums */
	enum ps_plant plant;
	struct ps_plan plan;
};

/* Ends the process where the options are wrong. */
void ps_options_read(struct ps_options *o, int argc, char **argv);

#endif
