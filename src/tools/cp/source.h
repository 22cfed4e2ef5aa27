/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * source.h - the side that reads: walks the files to copy, and transfers them block by block, as many blocks at a time
 * as there are slots. It never waits. cp_source_step does what can be done now. Call it again after messages and
 * completions have been passed to cp_source_message and cp_source_sent.
 *
 * A block is read into a slot (pread), not mapped. That is faster: the source takes 0.31 of the time of a mapping, most of
 * which are page faults (test/mapped, doc/records/performance.md). And if a file becomes shorter meanwhile, that is an error of
 * this file. The pages of a mapping would disappear in the middle of the library's work.
 */
#ifndef CP_SOURCE_H
#define CP_SOURCE_H

#include "tools/cp/link.h"
#include "tools/cp/observe.h"
#include "tools/cp/walk.h"

enum cp_source_state {
	CP_SOURCE_IDLE,    /* looks for the next item */
	CP_SOURCE_ASKED,   /* FILE was sent */
	CP_SOURCE_BUSY,    /* the sink is busy with another copy of it: FILE is sent again in a moment */
	CP_SOURCE_SENDING, /* blocks */
	CP_SOURCE_TOLD,    /* FINISH, DIR, DIREND or LINK was sent */
	CP_SOURCE_LEAVING, /* BYE was sent */
	CP_SOURCE_ENDED
};

struct cp_source {
	struct cp_link *link;
	const struct cp_observer *see;
	uint32_t flags; /* enum cp_flags */
	enum cp_source_state state;
	struct cp_walk walk;
	struct cp_item item;
	bool walking, more; /* more: cp_source_begin will be called again */
	int fd;
	uint64_t offset, data_end; /* what comes next; where the extent of data ends */
	uint64_t have;             /* the sink may have so much already */
	uint64_t covered, sum[2];  /* blocks and holes so far */
	int error;                 /* this file is given up */
	char text[CP_TEXT];
	struct {
		bool waits_put, waits_ack, ready; /* ready: to be put */
		struct cp_head head;
	} slots[CP_SLOTS];
	bool pause;
	unsigned open;  /* slots that are not free */
	unsigned notes; /* sent by who has `see`, and not acknowledged */
	uint64_t again_at, give_up_at; /* milliseconds */
	struct cp_tally tally;
};

bool cp_source_init(struct cp_source *s, struct cp_link *l, uint32_t flags, const struct cp_observer *see);
void cp_source_fini(struct cp_source *s);
/* Sets out to copy `path` beneath `root`, to be called `as`.  ASSUMPTIONS: cp_source_resting. */
bool cp_source_begin(struct cp_source *s, int root, const char *path, const char *as);
/* Everything of what was begun is done; the next may begin, or the end may be told. */
bool cp_source_resting(const struct cp_source *s);
void cp_source_bye(struct cp_source *s);
/* Does what can be done now; true: there may be more at once. */
bool cp_source_step(struct cp_source *s);
void cp_source_message(struct cp_source *s, const struct cp_msg *m);
void cp_source_sent(struct cp_source *s, unsigned slot);

#endif
