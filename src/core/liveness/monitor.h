/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * monitor.h - liveness: one small helper thread a process that watches the control channels.
 *
 * It answers for this process while the application computes (heartbeats), and notices peers that are gone: silence,
 * end of the connection, end of the process on the same host (pidfd).  It touches no core object but the two structs
 * below; what it finds it writes there, then sets `attention` of the instance and writes its eventfd.  The owner of the
 * instance acts on it in its next poll.  With XPORT_LIVENESS=poll there is no thread and xpi_live_step does the work.
 *
 * Locks: one mutex a struct xpi_live, never held while calling out.
 */
#ifndef XPI_CORE_LIVENESS_MONITOR_H
#define XPI_CORE_LIVENESS_MONITOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "core/auth/auth.h"
#include "core/liveness/flow.h"
#include "xport.h"

struct xpi_live;

/* What the owner is to look at: a handshake does not make it walk all its endpoints. */
enum { XPI_ATTEND_ALL = 1, XPI_ATTEND_CONNS = 2 /* handshakes and listeners alone */ };

/* How to call the owner: a bit of attention is set (release), then `wake_fd`, an eventfd, is written. */
struct xpi_wake_flag {
	atomic_uint *attention;
	int wake_fd;
	bool conns; /* XPI_ATTEND_CONNS, else XPI_ATTEND_ALL */
};

/* The process-wide one (thread) or one of one's own (poll); reference-counted.  The thread blocks all signals, has a
 * small stack, and ends with the last reference.  After fork the child must not use it (see XPORT_ERR_FORK). */
int xpi_live_get(bool thread, struct xpi_live **live, struct xport_error *err);
void xpi_live_put(struct xpi_live *live);
/* Without a thread: does what is due, never blocks.  Returns the milliseconds until it should be called again. */
int xpi_live_step(struct xpi_live *live);
/* Without a thread: readable when xpi_live_step should be called.  With one: -1. */
int xpi_live_fd(struct xpi_live *live);

/*
 * One descriptor of a handshake or listener.  Raises the wake flag once when it is ready (events: EPOLLIN, EPOLLOUT) or when
 * `deadline_ms` (CLOCK_MONOTONIC, -1: none) passes; xpi_watch_arm makes it ready to ring again.  While it is added its fields are
 * the helper's, but for `rang`.  fd -1: the deadline alone.
 */
struct xpi_watch {
	struct xpi_list link;
	struct xpi_wake_flag wake_flag;
	int fd;
	uint32_t events;
	int64_t deadline_ms;
	atomic_bool rang;
	bool added;
};

int xpi_watch_add(struct xpi_live *live, struct xpi_watch *w);
int xpi_watch_arm(struct xpi_live *live, struct xpi_watch *w, uint32_t events, int64_t deadline_ms);
/* After it returned the helper does not touch *w any more.  Does not close the fd.  Harmless if not added. */
void xpi_watch_remove(struct xpi_live *live, struct xpi_watch *w);
/* The same, and closes the fd, unless the application has closed the library's descriptors: the number may be its own now. */
void xpi_watch_close(struct xpi_live *live, struct xpi_watch *w);

/* What the helper found out about the peer of a channel.  LOST is final; BYE may be followed by LOST. */
enum { XPI_CHAN_BYE = 1, XPI_CHAN_LOST = 2 };

/*
 * The control channel of a connected endpoint.  A frame on it is 8 bytes, a type and 7 more, and a seal behind them if
 * the peers have a key (auth.h).
 *   BEAT  each min(own, peer's timeout) / 4: what flow.h says
 *   BYE   the peer closes properly (everything it sends by the data path it has sent): the low 24 bits, little-endian, of
 *         its last acknowledgement, since one that it sends by the data path may not get through; 4 zeros
 *   GONE  the peer aborts, and this end is lost at once: 1 if its frames do not arrive here, else 0; 6 zeros
 */
enum { XPI_CHAN_FRAME = 1 + XPI_FLOW_LEN };
enum { XPI_HANDSHAKE_FAILED = 'F' }; /* what may come instead of the first, of a peer that gave up (handshake.c) */

struct xpi_chan {
	struct xpi_list link;
	struct xpi_wake_flag wake_flag;
	int fd;    /* owned; closed by xpi_chan_stop */
	int pidfd; /* -1: not on this host */
	int timeout_ms, beat_ms;
	int64_t last_heard_ms, next_beat_ms;
	atomic_uint found;           /* XPI_CHAN_* */
	uint32_t bye_ack;            /* what came with the BYE; valid once that is set */
	char why[128];               /* valid once LOST is set */
	struct xpi_session *session; /* owned; freed by xpi_chan_stop; NULL: frames are not sealed */
	struct xpi_flow flow;
	uint8_t in[XPI_CHAN_FRAME + XPI_SEAL_LEN];
	unsigned in_len;
	bool started;
	bool stands;   /* lost because the path does not move */
	bool over;     /* the peer closed after its BYE: nothing more is to be judged */
	uint8_t grace; /* times that it was given more time since it was last heard */
	uint8_t out[2 * (XPI_CHAN_FRAME +
	                 XPI_SEAL_LEN)]; /* of a frame that the socket took only in part, and a BYE behind it */
	unsigned out_len;
};

/* Starts watching an established, non-blocking, close-on-exec socket.  `pid`, `start_time`: the peer's, if it runs on this
 * host (the caller compared boot id and pid namespace), else pid 0. */
int xpi_chan_start(struct xpi_live *live, struct xpi_chan *c, int64_t pid, uint64_t start_time);
/* Tells the peer, without blocking: BYE, `ack` being the last frame of the peer's that has been taken; or GONE. */
void xpi_chan_bye(struct xpi_live *live, struct xpi_chan *c, uint32_t ack);
void xpi_chan_gone(struct xpi_live *live, struct xpi_chan *c);
/* After BYE: that acknowledgement in full, of a peer that has acknowledged `before`. */
uint32_t xpi_chan_bye_ack(const struct xpi_chan *c, uint32_t before);
/* Takes over the descriptor that becomes readable when the peer's process ends, before xpi_chan_stop. Returns -1 if it has none. */
int xpi_chan_take_process(struct xpi_live *live, struct xpi_chan *c);
/* Stops watching and closes.  Afterwards the helper does not touch *c any more.  Harmless if not started. */
void xpi_chan_stop(struct xpi_live *live, struct xpi_chan *c);

#endif
