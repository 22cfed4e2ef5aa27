/* SPDX-License-Identifier: BSD-3-Clause */
/* stats_label.h - labels of the counters of xport_stats_text. */
#ifndef SVC_STATS_LABEL_H
#define SVC_STATS_LABEL_H

#include <stddef.h>

/*
 * Adds NAME="VALUE", and a comma before it, to the labels, of which `size` bytes may be used.  Backslash, quote and newline are
 * escaped.  Other bytes than those of ASCII that can be printed become question marks: the format has UTF-8 only.  The end of a
 * value that does not fit is left out; the label, if not even an empty value fits.
 */
void svc_label_add(char *labels, size_t size, const char *name, const char *value);

#endif
