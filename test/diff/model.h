/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h - the result that a phase of a program must have: the same steps, one after another in plain memory, without
 * libxport.
 */
#ifndef DIFF_MODEL_H
#define DIFF_MODEL_H

#include "diff/program.h"

struct diff_received {
	int status;
	uint64_t tag, len;
};

struct diff_notified {
	uint64_t value, offset, len;
	int region;
};

/* Of one side after a phase. */
struct diff_outcome {
	uint8_t *region[DIFF_REGIONS]; /* these live from phase to phase */
	uint8_t *local, *results, *messages;
	struct diff_received received[DIFF_STEPS]; /* as its receives */
	struct diff_notified notified[DIFF_STEPS];
	int nnotified;
};

struct diff_model {
	struct diff_outcome side[2];
};

/* Carries out the phase.  False: out of memory. */
bool diff_model_run(struct diff_model *m, const struct diff_phase *phase);
void diff_model_fini(struct diff_model *m);

#endif
