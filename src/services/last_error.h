/* SPDX-License-Identifier: BSD-3-Clause */
/* last_error.h - the calling thread's last failure, for xport_services_last_error. */
#ifndef SVC_LAST_ERROR_H
#define SVC_LAST_ERROR_H

#include "services/xport_services.h"

/* Remembers the failure and returns its status.  `hint` may be NULL. */
int svc_fail(int status, const char *operation, const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));
/* XPORT_OK, or the failure of a call whose time limit is below -1. */
int svc_time_valid(int timeout_ms, const char *operation);
/* Remembers what libxport says of its own failure, with our operation's name before it; returns the status. */
int svc_pass(xport *x, int status, const char *operation) __attribute__((cold));

/* A copy of the last failure, if it has this status; malloc'ed.  NULL: it has not, or out of memory. */
struct xport_error *svc_error_copy(int status);
/* Makes it the calling thread's last failure. */
void svc_error_set(const struct xport_error *error);

#endif
