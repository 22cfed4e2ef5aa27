/* SPDX-License-Identifier: BSD-3-Clause */
/* publishers.h - the files of a directory, each with the text of one instance of a process. */
#ifndef EXPORTER_PUBLISHERS_H
#define EXPORTER_PUBLISHERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/exporter/text.h"

/* Limits against a publisher that means harm. */
enum {
	EX_NAMES = 1 << 16,      /* entries of the directory that are looked at */
	EX_PUBLISHERS = 1024,
	EX_FILE_MAX = 16 << 20,  /* bytes of a text */
	EX_TOTAL_MAX = 64 << 20, /* bytes of all texts, with the labels that are added */
	EX_READ_MAX = 64 << 20,  /* bytes that are read for a page, accepted or not */
	EX_LABEL_MAX = 160       /* bytes of the labels that are added to a sample */
};

/* Why a file is left out. */
enum ex_reason { EX_ENDED, EX_STALE, EX_MALFORMED, EX_TOO_LARGE, EX_UNREADABLE, EX_TOO_MANY, EX_REASONS };

struct ex_publisher {
	char labels[EX_LABEL_MAX]; /* program="...",program_pid="...",program_instance="..." */
	int64_t age_ms;            /* since the text was written */
	char *bytes;
	struct ex_text text;
};

struct ex_publishers {
	struct ex_publisher **list;
	int n;
	unsigned left_out[EX_REASONS];
	const struct ex_family *kind[EX_KINDS]; /* the first one seen of each kind; NULL: none */
};

extern const char *const ex_reason_names[EX_REASONS];

/*
 * Reads all files of the directory, and removes those of processes that have ended.  Texts older than stale_s are left out.  With
 * `explain` a line on standard error says why a file is left out.  Returns 0, or -1 with errno: the directory cannot be read.
 * Free the result in both cases.
 */
int ex_publishers_read(struct ex_publishers *p, const char *dir, int stale_s, bool explain);
void ex_publishers_free(struct ex_publishers *p);

#endif
