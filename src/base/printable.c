/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/printable.h"

#include <stdint.h>

/* How many bytes a character has that begins so, and what the first one adds to it; 0: none begins so. */
static size_t first_byte(unsigned char c, uint32_t *code)
{
	if (c < 0x80) {
		*code = c;
		return 1;
	}
	if (c >= 0xc2 && c < 0xe0) {
		*code = c & 0x1fu;
		return 2;
	}
	if (c >= 0xe0 && c < 0xf0) {
		*code = c & 0x0fu;
		return 3;
	}
	*code = c & 0x07u;
	return c >= 0xf0 && c < 0xf5 ? 4 : 0;
}

/* Its length, 0: it is no UTF-8. */
static size_t decode(const char *s, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = first_byte((unsigned char)*s, code);

	for (size_t i = 1; i < n; i++) {
		if (((unsigned char)s[i] & 0xc0) != 0x80) /* also at the end of the text */
			return 0;
		*code = *code << 6 | ((unsigned char)s[i] & 0x3fu);
	}
	return n > 0 && *code >= least[n] && *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff) ? n : 0;
}

static bool steers(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{0, 0x1f},        {0x7f, 0x9f},     /* C0, DEL, C1 */
		{0x61c, 0x61c},   {0x200e, 0x200f}, /* marks of direction */
		{0x202a, 0x202e}, {0x2066, 0x2069}, /* embeddings, overrides, isolates */
		{0x2028, 0x2029}, {0xfeff, 0xfeff}, /* ends of lines and paragraphs; the mark of byte order */
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		if (c >= ranges[i].first && c <= ranges[i].last)
			return true;
	return false;
}

size_t xpi_printable(const char *s)
{
	uint32_t code;
	size_t n = decode(s, &code);

	return n > 0 && !steers(code) ? n : 0;
}

bool xpi_text_printable(const char *s)
{
	size_t n;

	for (; *s != '\0'; s += n) {
		n = xpi_printable(s);
		if (n == 0)
			return false;
	}
	return true;
}

void xpi_text_clean(char *s, char with)
{
	while (*s != '\0') {
		uint32_t code;
		size_t n = decode(s, &code);
		bool keep = n > 0 && !steers(code);

		for (n += n == 0; n > 0; n--, s++)
			*s = keep ? *s : with;
	}
}
