/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_metrics.h - counters as text, for Prometheus and other readers of OpenMetrics.  Included by xport_services.h.
 *
 * There are two ways to a Prometheus:
 *
 * - An xport_metrics object writes the text into a directory from time to time.  The program xport_exporter serves the texts
 *   of all processes there by HTTP.
 * - The application has an HTTP server.  It answers a GET with the text of xport_stats_text, and with the header
 *   "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8".  examples/metrics.c does that.
 */
#ifndef XPORT_METRICS_H
#define XPORT_METRICS_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * xport_stats_text - write the counters of an instance and of endpoints in OpenMetrics format 1.0.
 *
 * The metrics xport_* are those of the instance, with all endpoints that it has had.  The metrics xport_ep_* are those of
 * the `n` endpoints in `eps`, each with the labels local, peer, host, pid, backend and provider.  An endpoint that is still
 * connecting or has ended is left out: its counts remain in the instance's metrics.  No two endpoints have the same
 * labels.  `eps` may be NULL if n is 0.
 *
 * *len is the size of `text` before the call, and the length of the text without its NUL after it.  If `text` is too small
 * it is left unchanged, and *len is the size that is needed now, with the NUL.  A later call may need more.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS     `text` is too small: *len is set
 *   XPORT_ERR_INVALID    x, len, or an endpoint is NULL; eps is NULL and n is not 0; text is NULL and *len is not 0; an
 *                        endpoint belongs to another instance
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_stats_text(xport *x, xport_ep *const *eps, size_t n, char *text, size_t *len) XPORT_CHECK;

/* The counters of an instance in a directory, where xport_exporter finds them. */
typedef struct xport_metrics xport_metrics;

/* Options of xport_metrics_create.  A field that is 0 has its default. */
struct xport_metrics_attr {
	size_t size;      /* sizeof(struct xport_metrics_attr) */
	const char *dir;  /* an existing directory, looked up once; default: XPORT_METRICS_DIR */
	const char *name; /* label program: 1 to 63 of A-Z a-z 0-9 . _ -, no dot first; default: the program's name */
	int interval_ms;  /* 100 to 3600000: the least time between two texts; default: 1000 */
};

/*
 * xport_metrics_create - publish the counters of an instance in a directory.
 *
 * The object writes a file DIR/NAME-PID-INCARNATION.xport, readable by all users who can reach the directory.  The file is
 * replaced as a whole and is locked while the process lives.  So readers see complete texts, and notice a process that was
 * killed.  The first text has the counters of the instance alone.  Make one object for each instance.
 *
 * If attr->dir is not set and XPORT_METRICS_DIR is unset or empty, *metrics is NULL.  The other functions accept NULL and
 * do nothing, so a program can contain the calls in any case.  `attr` may be NULL: all defaults.
 *
 * Thread rule.  That of the instance.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        x or metrics is NULL; a wrong attr->size, name or interval_ms
 *   XPORT_ERR_NOT_SUPPORTED  attr sets a field that this version does not know
 *   XPORT_ERR_CONFIG         the directory does not exist, is no directory, or its path is too long
 *   XPORT_ERR_SYSTEM         a file cannot be written or locked there
 *   XPORT_ERR_NO_MEMORY      out of memory
 */
int xport_metrics_create(xport *x, const struct xport_metrics_attr *attr, xport_metrics **metrics) XPORT_CHECK;

/*
 * xport_metrics_publish - write the counters again, if the interval has passed.
 *
 * Call it in the loop that makes progress.  Within the interval it reads a clock and returns.  Otherwise it writes what
 * xport_stats_text writes for `eps`.  If that text is longer than 16 MiB, the endpoints are left out of 60 texts, unless there are fewer.  After a failure the
 * file is as before, and the next attempt follows an interval later: a program need not end because of it.
 *
 * Thread rule.  That of the instance.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_SYSTEM  a file cannot be written or locked
 *   another error of xport_stats_text
 */
int xport_metrics_publish(xport_metrics *metrics, xport_ep *const *eps, size_t n);

/*
 * xport_metrics_destroy - remove the file, and end.  `metrics` may be NULL.
 *
 * Thread rule.  That of the instance.
 */
void xport_metrics_destroy(xport_metrics *metrics);

#ifdef __cplusplus
}
#endif

#endif
