/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sink.h - the side that writes: carries out the source's messages inside one directory.
 *
 * ASSUMPTIONS: the source may be hostile. ERRORS: a message that is not allowed is refused. A failure of this side is
 * answered with an errno and a sentence, and the next file follows.
 */
#ifndef CP_SINK_H
#define CP_SINK_H

#include "tools/cp/link.h"
#include "tools/cp/observe.h"
#include "tools/cp/part.h"

/* Where the sink's answers go, and the sentence after which it is to be answered no more. */
struct cp_sink_answers {
	void (*reply)(void *arg, const struct cp_msg *m);
	void (*refuse)(void *arg, const char *text);
	void *arg;
};

struct cp_sink {
	struct cp_link *link; /* whose slots the blocks are in; nothing else of it is used */
	struct cp_sink_answers answers;
	int root;
	const char *only; /* the name that was asked for, NULL: any */
	bool tree;        /* with what is below it; else a file */
	const struct cp_observer *see;
	struct cp_part part;
	struct cp_look look; /* that the file will have */
	struct cp_tally tally;
	uint64_t blocks; /* arrived */
};

/* `root` stays the caller's.  False: out of memory. */
bool cp_sink_init(struct cp_sink *s, struct cp_link *l, int root, bool sync, const struct cp_observer *see,
                  const struct cp_sink_answers *answers);
/* From now on nothing is taken but this name, and with `tree` what is below it; "" is all.  `only` stays the caller's. */
void cp_sink_expect(struct cp_sink *s, const char *only, bool tree);
/* What is not finished stays for a later copy. */
void cp_sink_fini(struct cp_sink *s);
void cp_sink_message(struct cp_sink *s, const struct cp_msg *m);
void cp_sink_block(struct cp_sink *s, unsigned slot);

#endif
