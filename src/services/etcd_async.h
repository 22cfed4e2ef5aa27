/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * etcd_async.h - requests to an etcd cluster that do not wait: one at a time, and a watch beside it.
 *
 * Nothing here blocks, except for what libcurl does: it resolves names in a thread of its own.
 */
#ifndef SVC_ETCD_ASYNC_H
#define SVC_ETCD_ASYNC_H

#include "services/etcd_client.h"

enum { SVC_ETCD_WAIT = 1 }; /* not yet */

struct svc_etcd_async;

int svc_etcd_async_open(struct svc_etcd *e, struct svc_etcd_async **async, const char *operation);
/* Ends what is in flight. NULL: nothing. */
void svc_etcd_async_close(struct svc_etcd_async *a);
/* Moves what is in flight. */
void svc_etcd_async_run(struct svc_etcd_async *a);

/*
 * Starts a request, of which none may be in flight.  `body` is malloc'ed and belongs to it from now on, also after an error.
 * A request that needs a token gets one first.  XPORT_OK, or NO_MEMORY, described.
 */
int svc_etcd_start(struct svc_etcd_async *a, const char *path, char *body, int timeout_ms);
bool svc_etcd_in_flight(const struct svc_etcd_async *a);
/* SVC_ETCD_WAIT, or its outcome, as of the calls in etcd_client.h; OK: *answer is to be freed. */
int svc_etcd_outcome(struct svc_etcd_async *a, struct svc_json **answer);
void svc_etcd_cancel(struct svc_etcd_async *a);

/* Starts a watch.  `body` as above. */
int svc_etcd_watch(struct svc_etcd_async *a, char *body, int timeout_ms);
/*
 * The next message of the watch.  OK: *answer is to be freed, and may describe that the watch was cancelled.  SVC_ETCD_WAIT: none
 * has come.  Otherwise the watch has ended, as a call.
 */
int svc_etcd_watch_next(struct svc_etcd_async *a, struct svc_json **answer);
/* Whether there is a watch. */
bool svc_etcd_watching(const struct svc_etcd_async *a);
/* Whether requests go to another member than the one that the watch is at: that one did not answer. */
bool svc_etcd_watch_astray(const struct svc_etcd_async *a);
void svc_etcd_watch_hold(struct svc_etcd_async *a, bool hold);
/* Whether something of the watch has come that was not taken, since it is, or was, held. */
bool svc_etcd_watch_held(const struct svc_etcd_async *a);
void svc_etcd_watch_end(struct svc_etcd_async *a);

#endif
