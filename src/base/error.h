/* SPDX-License-Identifier: BSD-3-Clause */
/* error.h - describes a failure once, where it is detected. */
#ifndef XPI_BASE_ERROR_H
#define XPI_BASE_ERROR_H

#include <stdint.h>

#include "xport.h"

/*
 * Fills *err (NULL: nothing to fill) with a status, the native code and its name (0 and NULL: none), a hint (NULL:
 * none) and a printf-formatted sentence; keeps err->operation and err->peer.  Preserves errno.  Returns `status`, so
 * that `return xpi_fail(...)` is the way to leave.
 */
int xpi_fail(struct xport_error *err, int status, int64_t native_code, const char *native_name, const char *hint,
             const char *fmt, ...) __attribute__((format(printf, 6, 7), cold));

/*
 * The same for a system call that just failed: native code and name are errno's, and its text ends the sentence.  Without a
 * hint it has the one of xpi_errno_hint.
 */
int xpi_fail_errno(struct xport_error *err, int status, const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));

/* What to do about an errno that has one cause alone, whatever call it came from; else NULL. */
const char *xpi_errno_hint(int error);

#endif
