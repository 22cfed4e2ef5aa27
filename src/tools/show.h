/* SPDX-License-Identifier: BSD-3-Clause */
/* show.h - which characters of a peer's text may be printed to a terminal. */
#ifndef TOOLS_SHOW_H
#define TOOLS_SHOW_H

#include <string.h>

/* Continuation bytes of UTF-8 behind a byte that begins a character; -1: none begins so. */
static inline int tool_rest(unsigned char c)
{
	return c < 0x80 ? 0 : c < 0xc2 ? -1 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : -1;
}

/*
 * How many bytes the character has, or 0 if it is to be shown by its bytes: control characters (C1, too), what changes the
 * direction of writing or ends a line, and what is no UTF-8.
 */
static inline unsigned long tool_shown(const unsigned char *p)
{
	static const char *const steering[] = {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029",
	                                       "\u202a", "\u202b", "\u202c", "\u202d", "\u202e",
	                                       "\u2066", "\u2067", "\u2068", "\u2069", "\ufeff"};
	int n = tool_rest(*p);

	if (*p < ' ' || *p == 127 || n < 0)
		return 0;
	for (int i = 1; i <= n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((*p == 0xc2 && p[1] < 0xa0) || (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] >= 0xa0) ||
	    (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] >= 0x90))
		return 0;
	for (unsigned i = 0; i < sizeof(steering) / sizeof(steering[0]); i++)
		if (strncmp((const char *)p, steering[i], strlen(steering[i])) == 0)
			return 0;
	return (unsigned long)n + 1;
}

/* Puts a question mark in the place of each byte that may not be shown. */
static inline void tool_clean(char *s)
{
	while (*s != '\0') {
		unsigned long n = tool_shown((const unsigned char *)s);

		if (n == 0)
			*s = '?';
		s += n > 0 ? n : 1;
	}
}

#endif
