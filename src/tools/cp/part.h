/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * part.h - a file that is being written, under another name in the same directory, until all of it was verified.
 *
 * If an interrupted copy left a file under that name, the next copy continues it. Its content is not trusted: the
 * checksum of each block is compared with the source. The checksums are those of the bytes that can be read back from
 * the file.
 *
 * ERRORS: false, with the errno in part->error and a sentence in part->text. After that only cp_part_drop may be
 * called.
 */
#ifndef CP_PART_H
#define CP_PART_H

#include <stdbool.h>
#include <sys/stat.h>

#include "tools/cp/sum.h"
#include "tools/cp/wire.h"

enum { CP_TEMP = 256 };

struct cp_part {
	int dir, fd;       /* -1: not open */
	uint64_t size;     /* that the file will have */
	uint64_t have;     /* bytes that were there before; what lies behind them is new */
	uint64_t covered;  /* bytes of blocks and holes so far */
	uint64_t sum[2];   /* of them */
	bool sync;
	bool alone;        /* where nothing can be locked: its temporary name is no other copy's, and goes with it */
	bool unreserved;   /* whether there is room for it nobody knows before it is on its way to the disk */
	int error;
	char name[256], temp[CP_TEMP]; /* in dir */
	char text[CP_TEXT];
	uint8_t *buf;
	struct cp_sum *summing;
};

/* Times and mode of a file or directory. */
struct cp_look {
	uint32_t mode;
	struct timespec times[2]; /* access, modification */
};

bool cp_part_init(struct cp_part *p);
void cp_part_fini(struct cp_part *p);

/* Opens it beneath `root`.  Error CP_BUSY: another copy to this name is under way. */
bool cp_part_open(struct cp_part *p, int root, const char *path, uint64_t size, bool sparse);
bool cp_part_is_open(const struct cp_part *p);
/* Stores a block, and reads it back; false also if that is not what `sum` is of. */
bool cp_part_block(struct cp_part *p, const struct cp_head *h, const void *data);
/* *same: the block is there already. */
bool cp_part_check(struct cp_part *p, const struct cp_head *h, bool *same);
bool cp_part_hole(struct cp_part *p, uint64_t offset, uint64_t length);
/* Compares with what the source has counted, and gives the file its name. */
bool cp_part_finish(struct cp_part *p, const uint64_t sum[2], const struct cp_look *look);
/* A temporary name that no other copy has; false: errno. */
bool cp_part_own_temp(char temp[CP_TEMP], const char *name);
/* Has on the disk which names are in a directory; false: errno. */
bool cp_sync_dir(int dir);
/* Closes it; `remove`: nothing is left of it. */
void cp_part_drop(struct cp_part *p, bool remove);

#endif
