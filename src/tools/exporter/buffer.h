/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.h - text that grows. */
#ifndef EXPORTER_BUFFER_H
#define EXPORTER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct ex_buffer {
	char *text;
	size_t len, size;
	bool failed; /* out of memory: what follows is lost */
};

void ex_buffer_add(struct ex_buffer *b, const char *text, size_t len);
void ex_buffer_print(struct ex_buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ex_buffer_free(struct ex_buffer *b);

#endif
