/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/exporter/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ex_buffer_add(struct ex_buffer *b, const char *text, size_t len)
{
	if (b->failed || len == 0)
		return;
	if (b->size - b->len < len) {
		size_t size = 2 * (b->len + len);
		char *more = realloc(b->text, size);

		if (more == NULL) {
			b->failed = true;
			return;
		}
		b->text = more;
		b->size = size;
	}
	memcpy(b->text + b->len, text, len);
	b->len += len;
}

void ex_buffer_print(struct ex_buffer *b, const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(line))
		b->failed = true;
	else
		ex_buffer_add(b, line, (size_t)n);
}

void ex_buffer_free(struct ex_buffer *b)
{
	free(b->text);
	*b = (struct ex_buffer){.text = NULL};
}
