/* SPDX-License-Identifier: BSD-3-Clause */
/* used.h - the descriptors and the memory that this process uses. A file of proc that cannot be read ends the process. */
#ifndef FIGURES_USED_H
#define FIGURES_USED_H

struct used {
	double descriptors, kib; /* kib: resident */
};

struct used used_now(void);

/* The number behind `word` in the line of a file that begins with it. */
double used_number(const char *path, const char *word);

#endif
