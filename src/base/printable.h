/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * printable.h - cleans a peer's text for a terminal or a log, so that it cannot control the terminal or look like other
 * output.
 */
#ifndef XPI_BASE_PRINTABLE_H
#define XPI_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Returns how many bytes the character at s has, or 0 if it may not be printed: a control character (C0, DEL, C1), one that
 * changes the direction of writing or ends a line, or bytes that are no UTF-8.
 */
size_t xpi_printable(const char *s);

/* Whether all of it may be printed. */
bool xpi_text_printable(const char *s);

/* Puts `with` in the place of each byte that may not be printed. */
void xpi_text_clean(char *s, char with);

#endif
