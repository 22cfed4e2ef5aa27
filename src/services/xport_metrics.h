/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_metrics.h - counters as text, for Prometheus and other readers of OpenMetrics.  Included by xport_services.h.
 *
 * HTTP is the application's: it answers a GET with the text, and with the header
 *
 *   Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8
 *
 * examples/metrics.c does that.
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

#ifdef __cplusplus
}
#endif

#endif
