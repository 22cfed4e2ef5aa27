/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * text.h - the text of one publisher, which is checked before any of it goes into the page.
 *
 * A single bad line would make Prometheus refuse the whole page.  So a text is accepted as a whole or not at all.  Accepted is
 * what xport_stats_text writes, in the subset of OpenMetrics that it uses:
 *
 *	# TYPE NAME counter|gauge|histogram
 *	# UNIT NAME WORD
 *	# HELP NAME WORDS
 *	SAMPLE{LABEL="VALUE",...} DIGITS[.DIGITS]
 *	# EOF
 *
 * A number has at most 20 digits before the point, and 20 after it. The metrics of xport_stats_text have the types that it writes.
 */
#ifndef EXPORTER_TEXT_H
#define EXPORTER_TEXT_H

#include <stddef.h>

enum { EX_FAMILIES = 64, EX_LABELS = 16, EX_LINE = 4096, EX_DIGITS = 20, EX_KINDS = 30 };

struct ex_span {
	const char *at;
	size_t len;
};

struct ex_family {
	struct ex_span name, type;
	int kind; /* below EX_KINDS: the same for the same metric; -1: libxport has no such metric */
	struct ex_span head;    /* the lines that begin with # */
	struct ex_span samples; /* the other lines */
};

struct ex_text {
	struct ex_family family[EX_FAMILIES];
	int families;
	size_t samples; /* lines, in all */
	int line;       /* where it ended */
};

/* Divides a text into families, which point into it.  Returns NULL, or what is wrong with line `line`. */
const char *ex_text_parse(struct ex_text *t, const char *text, size_t len);

#endif
