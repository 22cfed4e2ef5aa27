/* SPDX-License-Identifier: BSD-3-Clause */
/* observe.c - names for a terminal. */
#include "tools/cp/observe.h"

#include <stdio.h>

/* Bytes above 127 are left as they are: most are UTF-8. */
const char *cp_show(const char *name, char *to, unsigned long room)
{
	unsigned long n = 0;

	for (const unsigned char *p = (const unsigned char *)name; *p != '\0' && n + 5 < room; p++) {
		if (*p < ' ' || *p == 127 || *p == '\\')
			n += (unsigned long)snprintf(to + n, 5, "\\%03o", *p);
		else
			to[n++] = (char)*p;
	}
	to[n] = '\0';
	return to;
}
