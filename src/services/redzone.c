/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/redzone.h"

#include <string.h>

enum { END = 0xca, FREED = 0xdb };

static bool all(const unsigned char *p, int value, size_t from, size_t to, size_t *at)
{
	for (size_t i = from; i < to; i++) {
		if (p[i] != value) {
			*at = i;
			return false;
		}
	}
	return true;
}

void svc_redzone_end(void *block, size_t asked, size_t length)
{
	memset((char *)block + asked, END, length - asked);
}

bool svc_redzone_end_whole(const void *block, size_t asked, size_t length, size_t *at)
{
	return all(block, END, asked, length, at);
}

void svc_redzone_freed(void *block, size_t length)
{
	memset(block, FREED, length);
}

bool svc_redzone_freed_whole(const void *block, size_t length, size_t *at)
{
	return all(block, FREED, 0, length, at);
}
