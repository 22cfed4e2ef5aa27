/* SPDX-License-Identifier: BSD-3-Clause */
/* live_impl.h - between live.c and chan.c only.  All functions: the caller holds live->lock. */
#ifndef XPI_CORE_LIVE_IMPL_H
#define XPI_CORE_LIVE_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "core/live.h"

struct xpi_live {
	pthread_mutex_t lock;
	int epfd;       /* all descriptors, and: */
	int timer;      /* a timerfd set to due_ms, so that the set is readable when something is due as well */
	int64_t due_ms; /* when the next deadline passes, or before; INT64_MAX: none */
	struct xpi_list watches, chans;
	unsigned nchans, refs;
	pid_t pid;
	bool threaded, stop;
	pthread_t thread;
};

/* What an epoll event is about: in the low bits of the pointer. */
enum xpi_live_source { XPI_LIVE_WATCH, XPI_LIVE_SOCKET, XPI_LIVE_PIDFD, XPI_LIVE_SOURCES };

/* epoll_ctl with a tagged pointer (NULL: the timer).  XPORT_OK or XPORT_ERR_SYSTEM, errno is kept. */
int xpi_live_ctl(struct xpi_live *live, int op, int fd, uint32_t events, void *object, enum xpi_live_source source);
/* Makes sure that the deadlines are looked at by then. */
void xpi_live_due(struct xpi_live *live, int64_t when_ms);
void xpi_live_ring(struct xpi_bell *bell);

/* A descriptor of the channel is ready. */
void xpi_chan_event(struct xpi_live *live, struct xpi_chan *c, enum xpi_live_source source, int64_t now);
/* Beats, and judges silence; `late_ms` is how much later than asked for this happens.  Returns when to come again. */
int64_t xpi_chan_due(struct xpi_live *live, struct xpi_chan *c, int64_t now, int64_t late_ms);

#endif
