/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * walk.h - the files to copy: a file, or a tree. It returns names in order, and a directory before and after its
 * content.
 *
 * Nothing outside the root is accessed, whatever links exist or are made meanwhile. A directory's names are read at
 * once, so only one is open at a time. Unfinished files of xport_cp (.NAME.xport-part) are left out.
 */
#ifndef CP_WALK_H
#define CP_WALK_H

#include <stdbool.h>
#include <sys/stat.h>

#include "tools/cp/wire.h"

enum cp_item_kind { CP_ITEM_FILE, CP_ITEM_DIR, CP_ITEM_DIREND, CP_ITEM_LINK, CP_ITEM_BAD };

struct cp_item {
	enum cp_item_kind kind;
	const char *path; /* beneath the root */
	const char *as;   /* what it is called at the sink */
	struct stat st;
	char text[CP_PATH]; /* where a link leads; of CP_ITEM_BAD: why it is not copied */
};

struct cp_level; /* a directory on the way */

struct cp_walk {
	int root;
	bool recursive, begun;
	char path[CP_PATH], as[CP_PATH];
	struct cp_level *levels;
	size_t depth;
};

/* `root` stays the caller's; `path` and `as` may be "". */
bool cp_walk_begin(struct cp_walk *w, int root, const char *path, const char *as, bool recursive);
/* False: that was all. */
bool cp_walk_next(struct cp_walk *w, struct cp_item *item);
void cp_walk_end(struct cp_walk *w);

#endif
