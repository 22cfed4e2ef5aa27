/* SPDX-License-Identifier: BSD-3-Clause */
/* observe.c - names for a terminal. */
#include "tools/cp/observe.h"

#include <stdio.h>
#include <string.h>

#include "tools/show.h"

const char *cp_show(const char *name, char *to, unsigned long room)
{
	unsigned long n = 0, len;

	for (const unsigned char *p = (const unsigned char *)name; *p != '\0' && n + 5 < room; p += len) {
		len = *p != '\\' ? tool_shown(p) : 0;
		if (len == 0) {
			n += (unsigned long)snprintf(to + n, 5, "\\%03o", *p);
			len = 1;
		} else {
			memcpy(to + n, p, len);
			n += len;
		}
	}
	to[n] = '\0';
	return to;
}
