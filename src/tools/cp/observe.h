/* SPDX-License-Identifier: BSD-3-Clause */
/* observe.h - what a side reports about its work, to the code that prints it; any callback may be NULL. */
#ifndef CP_OBSERVE_H
#define CP_OBSERVE_H

#include <stdint.h>

struct cp_observer {
	void (*note)(void *arg, const char *text);                      /* something was not copied: a sentence */
	void (*began)(void *arg, const char *path, uint64_t size);      /* a file */
	void (*moved)(void *arg, uint64_t bytes);                       /* bytes of it, holes included */
	void *arg;
};

/* What became of files, directories and links. */
struct cp_tally {
	uint64_t files, bytes;   /* copied, whole */
	uint64_t same;           /* left as they were, with --update */
	uint64_t resumed_bytes;  /* of bytes, that were there from an earlier copy */
	uint64_t failed;         /* not copied, each with a note */
};

/* A name as it may be shown: what is not printable is written \ooo.  Returns `to`. */
const char *cp_show(const char *name, char *to, unsigned long room);

#endif
