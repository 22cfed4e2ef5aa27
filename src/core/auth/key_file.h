/* SPDX-License-Identifier: BSD-3-Clause */
/* key_file.h - the bytes of XPORT_AUTH_KEY_FILE, if the file is one that others cannot read or write. */
#ifndef XPI_CORE_AUTH_KEY_FILE_H
#define XPI_CORE_AUTH_KEY_FILE_H

#include "core/auth/auth.h"

/* The longest key, its line's end, and one byte more, by which a longer one is seen. */
enum { XPI_KEY_FILE_ROOM = XPI_SECRET_MAX + 2 };

/* Reads the file into buf, which has XPI_KEY_FILE_ROOM bytes, and which the caller wipes.  Never waits. */
int xpi_key_file(const char *path, uint8_t *buf, size_t *len, struct xport_error *err);

#endif
