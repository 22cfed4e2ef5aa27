/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strerrorname_np, strerrordesc_np */
#endif
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from != NULL ? from : "");
}

/* The sentence goes through a buffer of its own: its arguments may lie in *err. */
static void fill(struct xport_error *err, int status, int64_t code, const char *name, const char *hint,
                 const char *sentence)
{
	char native[sizeof(err->native)], advice[sizeof(err->hint)];

	copy(native, sizeof(native), name);
	copy(advice, sizeof(advice), hint);
	err->status = status;
	err->native_code = code;
	copy(err->native, sizeof(err->native), native);
	copy(err->hint, sizeof(err->hint), advice);
	copy(err->text, sizeof(err->text), sentence);
}

int xpi_fail(struct xport_error *err, int status, int64_t native_code, const char *native_name, const char *hint,
             const char *fmt, ...)
{
	int saved = errno;
	char sentence[sizeof(err->text)];
	va_list args;

	if (err == NULL)
		return status;
	va_start(args, fmt);
	if (vsnprintf(sentence, sizeof(sentence), fmt, args) < 0)
		sentence[0] = '\0';
	va_end(args);
	fill(err, status, native_code, native_name, hint, sentence);
	errno = saved;
	return status;
}

const char *xpi_errno_hint(int error)
{
	switch (error) {
	case EMFILE:
		return "the process has reached its limit of open files: raise `ulimit -n`, or close some";
	case ENFILE:
		return "the machine has reached its limit of open files: raise fs.file-max, or end programs that hold "
		       "many";
	case EINTR:
		return "a signal handler interrupted the call: try again";
	case EBUSY:
		return "another program uses it: try again later";
	default:
		return NULL;
	}
}

int xpi_fail_errno(struct xport_error *err, int status, const char *hint, const char *fmt, ...)
{
	int saved = errno;
	const char *text = strerrordesc_np(saved);
	char sentence[sizeof(err->text)];
	va_list args;
	int n;

	if (err == NULL)
		return status;
	va_start(args, fmt);
	n = vsnprintf(sentence, sizeof(sentence), fmt, args);
	va_end(args);
	if (n < 0)
		n = 0;
	if ((size_t)n < sizeof(sentence))
		snprintf(sentence + n, sizeof(sentence) - (size_t)n, ": %s", text != NULL ? text : "unknown error");
	fill(err, status, saved, strerrorname_np(saved), hint != NULL ? hint : xpi_errno_hint(saved), sentence);
	errno = saved;
	return status;
}
