/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/last_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/grow.h"

static _Thread_local struct xport_error last;

static void error_begin(int status, const char *operation, const char *hint)
{
	memset(&last, 0, sizeof(last));
	last.size = sizeof(last);
	last.status = status;
	snprintf(last.operation, sizeof(last.operation), "%s", operation);
	snprintf(last.hint, sizeof(last.hint), "%s", hint == NULL ? "" : hint);
}

int svc_fail(int status, const char *operation, const char *hint, const char *fmt, ...)
{
	va_list ap;

	error_begin(status, operation, hint);
	va_start(ap, fmt);
	vsnprintf(last.text, sizeof(last.text), fmt, ap);
	va_end(ap);
	return status;
}

int svc_time_valid(int timeout_ms, const char *operation)
{
	if (timeout_ms >= -1)
		return XPORT_OK;
	return svc_fail(XPORT_ERR_INVALID, operation, NULL, "a time limit of %d ms is below -1", timeout_ms);
}

int svc_pass(xport *x, int status, const char *operation)
{
	struct xport_error e = {.size = sizeof(e)};

	error_begin(status, operation, NULL);
	/* Another thread's failure may have come in between: its text would be wrong here. */
	if (xport_last_error(x, &e) == XPORT_OK && e.status == status) {
		last.native_code = e.native_code;
		memcpy(last.peer, e.peer, sizeof(last.peer));
		memcpy(last.native, e.native, sizeof(last.native));
		memcpy(last.hint, e.hint, sizeof(last.hint));
		snprintf(last.text, sizeof(last.text), "%.32s: %.470s", e.operation, e.text);
	} else {
		snprintf(last.text, sizeof(last.text), "%s", xport_strerror(status));
	}
	return status;
}

int xport_services_last_error(struct xport_error *error)
{
	if (error == NULL || !svc_grow_size(error->size, SVC_FIRST_ERROR))
		return XPORT_ERR_INVALID;
	svc_grow_out(error, &last, sizeof(last));
	return XPORT_OK;
}

struct xport_error *svc_error_copy(int status)
{
	struct xport_error *e = last.status == status ? malloc(sizeof(*e)) : NULL;

	if (e != NULL)
		*e = last;
	return e;
}

void svc_error_set(const struct xport_error *error)
{
	last = *error;
}
