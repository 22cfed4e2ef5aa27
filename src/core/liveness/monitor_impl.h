/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * monitor_impl.h - private to monitor.c, keepalive.c and monitor_set.c.  Calls run one way: monitor.c calls keepalive.c, and both
 * call monitor_set.c.  For all functions the caller holds live->lock.
 */
#ifndef XPI_CORE_LIVENESS_MONITOR_IMPL_H
#define XPI_CORE_LIVENESS_MONITOR_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "core/liveness/monitor.h"

struct xpi_live {
	pthread_mutex_t lock;
	int epfd;       /* all descriptors, and: */
	int timer;      /* a timerfd set to due_ms, so that the set is readable when something is due as well */
	int64_t due_ms; /* when the next deadline passes, or before; INT64_MAX: none */
	int64_t chans_due_ms; /* the same of the channels alone: handshakes ask often, and must not walk all channels */
	struct xpi_list watches, chans;
	unsigned nchans, refs;
	pid_t pid;
	bool threaded, stop;
	bool failed; /* the last epoll_wait did */
	bool closed; /* the application has closed the set: nothing is watched any more */
	pthread_t thread;
};

/* What an epoll event is about: in the low bits of the pointer. */
enum xpi_live_source { XPI_LIVE_WATCH, XPI_LIVE_SOCKET, XPI_LIVE_PIDFD, XPI_LIVE_SOURCES };

/* monitor_set.c */
/* epoll_ctl with a tagged pointer (NULL: the timer).  XPORT_OK or XPORT_ERR_SYSTEM, errno is kept. */
int xpi_live_ctl(struct xpi_live *live, int op, int fd, uint32_t events, void *object, enum xpi_live_source source);
/* Makes sure that the deadlines are looked at by then. */
void xpi_live_due(struct xpi_live *live, int64_t when_ms);
/* Sets the timer to due_ms. */
void xpi_live_set_timer(struct xpi_live *live);
void xpi_live_raise(struct xpi_wake_flag *flag);

/* keepalive.c */
/* A descriptor of the channel is ready. */
void xpi_chan_event(struct xpi_live *live, struct xpi_chan *c, enum xpi_live_source source, int64_t now);
/* Beats, and judges silence; `late_ms` is how much later than asked for this happens.  Returns when to come again. */
int64_t xpi_chan_due(struct xpi_live *live, struct xpi_chan *c, int64_t now, int64_t late_ms);

/* The application has closed the library's descriptors: the peer is lost, and nothing of the channel is closed again. */
void xpi_chan_closed(struct xpi_chan *c);

#endif
