/* SPDX-License-Identifier: BSD-3-Clause */
/* keepalive.c - the control channel of a connected endpoint: its beats, its end, and the end of the peer's process. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/auth/auth.h"
#include "core/liveness/flow.h"
#include "core/liveness/monitor.h"
#include "core/liveness/monitor_impl.h"

enum { FRAME = XPI_CHAN_FRAME };
enum { BEAT = 1, BYE = 2, GONE = 3 };

/* Why a peer aborts, in GONE. */
enum { GONE_FAILED = 0, GONE_STANDS = 1 };

/* A peer may be given more time so often before it must have been heard, because this process was late itself. */
enum { GRACE_MAX = 3 };

/* How long a frame is on this channel. */
static unsigned frame_len(const struct xpi_chan *c)
{
	return FRAME + (c->session != NULL ? XPI_SEAL_LEN : 0);
}

static bool has(const struct xpi_chan *c, unsigned what)
{
	return (atomic_load_explicit(&c->found, memory_order_relaxed) & what) != 0;
}

static bool chan_ended(const struct xpi_chan *c)
{
	return c->over || has(c, XPI_CHAN_LOST);
}

/* Nothing more is to be learnt: out of the epoll set. */
static void unwatch(struct xpi_live *live, struct xpi_chan *c)
{
	(void)xpi_live_ctl(live, EPOLL_CTL_DEL, c->fd, 0, c, XPI_LIVE_SOCKET);
	if (c->pidfd >= 0)
		(void)xpi_live_ctl(live, EPOLL_CTL_DEL, c->pidfd, 0, c, XPI_LIVE_PIDFD);
}

static void found(struct xpi_chan *c, unsigned what)
{
	atomic_fetch_or_explicit(&c->found, what, memory_order_release);
	xpi_live_raise(&c->wake_flag);
}

static void chan_lost(struct xpi_live *live, struct xpi_chan *c, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

static void chan_lost(struct xpi_live *live, struct xpi_chan *c, const char *fmt, ...)
{
	va_list ap;

	if (chan_ended(c))
		return;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	unwatch(live, c);
	found(c, XPI_CHAN_LOST);
}

static void damaged(struct xpi_live *live, struct xpi_chan *c, const uint8_t *f)
{
	chan_lost(live, c, "damaged: the peer sent %02x %02x %02x %02x %02x %02x %02x %02x on the control channel",
	          f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]);
}

void xpi_chan_closed(struct xpi_chan *c)
{
	c->fd = c->pidfd = -1;
	if (chan_ended(c))
		return;
	snprintf(c->why, sizeof(c->why), "the application closed the descriptors of the library");
	/* Its eventfd is closed as well: the owner finds this when it polls. */
	atomic_fetch_or_explicit(&c->found, XPI_CHAN_LOST, memory_order_release);
	atomic_fetch_or_explicit(c->wake_flag.attention, XPI_ATTEND_ALL, memory_order_release);
}

/* The end of the connection: as it should be after a BYE, else a loss. */
static void finished(struct xpi_live *live, struct xpi_chan *c, int error)
{
	char buf[64];

	if (has(c, XPI_CHAN_BYE)) {
		c->over = true;
		unwatch(live, c);
	} else if (error == 0) {
		chan_lost(live, c, "the peer's side of the connection was closed without a goodbye");
	} else {
		chan_lost(live, c, "the connection to the peer broke: %s", strerror_r(error, buf, sizeof(buf)));
	}
}

static void beat(struct xpi_live *live, struct xpi_chan *c, const uint8_t *f, int64_t now)
{
	int timeout_ms = c->timeout_ms < 4 * c->beat_ms ? c->timeout_ms : 4 * c->beat_ms;

	switch (xpi_flow_heard(&c->flow, f + 1, now, timeout_ms)) {
	case XPI_FLOW_DAMAGED:
		damaged(live, c, f);
		break;
	case XPI_FLOW_STANDS:
		c->stands = true;
		chan_lost(live, c,
		          "the data path is stuck: nothing sent has reached the peer for %lld ms, although both sides "
		          "poll",
		          (long long)(now - c->flow.since_ms));
		break;
	case XPI_FLOW_ASK:
		xpi_live_raise(&c->wake_flag);
		break;
	case XPI_FLOW_MOVES:
		break;
	}
}

static void gone(struct xpi_live *live, struct xpi_chan *c, uint32_t why)
{
	if (why == GONE_STANDS)
		chan_lost(live, c, "the data path is stuck: the peer reports that nothing it sent has arrived here");
	else
		chan_lost(live, c, "the peer aborted the connection");
}

static void frame(struct xpi_live *live, struct xpi_chan *c, const uint8_t *f, int64_t now)
{
	uint32_t with = f[1] | (uint32_t)f[2] << 8 | (uint32_t)f[3] << 16;
	uint32_t rest = f[4] | (uint32_t)f[5] << 8 | (uint32_t)f[6] << 16 | (uint32_t)f[7] << 24;

	if (c->session != NULL && !xpi_session_open(c->session, XPI_SEAL_LATER, f, FRAME, f + FRAME)) {
		chan_lost(live, c,
		          "damaged: a message on the control channel is not authenticated with the key of this "
		          "connection");
		return;
	}
	if (f[0] < BEAT || f[0] > GONE || (f[0] != BEAT && rest != 0) || (f[0] == GONE && with > GONE_STANDS)) {
		damaged(live, c, f);
		return;
	}
	c->last_heard_ms = now;
	c->grace = 0;
	if (f[0] == BEAT) {
		beat(live, c, f, now);
	} else if (f[0] == GONE) {
		gone(live, c, with);
	} else if (!has(c, XPI_CHAN_BYE)) {
		c->bye_ack = with;
		found(c, XPI_CHAN_BYE);
	}
}

/* One byte of the peer's. */
static void chan_take(struct xpi_live *live, struct xpi_chan *c, uint8_t byte, int64_t now)
{
	if (c->in_len == 0 && byte == XPI_HANDSHAKE_FAILED) { /* sealed or not, it says that no more is to come */
		chan_lost(live, c, "the peer gave up before the connection was ready");
		return;
	}
	c->in[c->in_len++] = byte;
	if (c->in_len < frame_len(c))
		return;
	c->in_len = 0;
	frame(live, c, c->in, now);
}

/* Reads what is there; not without end, because a peer may write faster than this reads.  True: drained, or ended. */
static bool read_frames(struct xpi_live *live, struct xpi_chan *c, int64_t now)
{
	uint8_t buf[256];

	for (int turns = 0; turns < 16 && !chan_ended(c); turns++) {
		ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (n <= 0) {
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
				return true;
			finished(live, c, n == 0 ? 0 : errno);
			return true;
		}
		for (ssize_t i = 0; i < n && !chan_ended(c); i++)
			chan_take(live, c, buf[i], now);
	}
	return chan_ended(c);
}

void xpi_chan_event(struct xpi_live *live, struct xpi_chan *c, enum xpi_live_source source, int64_t now)
{
	bool drained;

	/* Its other descriptor's event, earlier in the same batch, may have ended it. */
	if (chan_ended(c))
		return;
	drained = read_frames(live, c, now);
	if (source != XPI_LIVE_PIDFD || !drained || chan_ended(c))
		return;
	if (has(c, XPI_CHAN_BYE))
		finished(live, c, 0);
	else
		chan_lost(live, c, "the peer's process on this host ended");
}

/* Sends what is left of the last frames; a socket that takes nothing more is tried again at the next beat. */
static void flush_out(struct xpi_chan *c)
{
	ssize_t n;

	if (c->out_len == 0)
		return;
	do
		n = send(c->fd, c->out, c->out_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	/* Errors show when reading. */
	if (n <= 0)
		return;
	c->out_len -= (unsigned)n;
	memmove(c->out, c->out + n, c->out_len);
}

static void send_frame(struct xpi_chan *c, uint8_t type, uint32_t with)
{
	unsigned len = frame_len(c);
	uint8_t *f;

	flush_out(c);
	/* Beats are not worth queueing; a BYE or GONE finds room behind the rest of one frame. */
	if (c->out_len + len > sizeof(c->out) || (type == BEAT && c->out_len > 0))
		return;
	f = c->out + c->out_len;
	memset(f, 0, FRAME);
	f[0] = type;
	if (type == BEAT) {
		xpi_flow_say(&c->flow, f + 1, xpi_now_ms());
	} else {
		f[1] = (uint8_t)with;
		f[2] = (uint8_t)(with >> 8);
		f[3] = (uint8_t)(with >> 16);
	}
	if (c->session != NULL)
		xpi_session_seal(c->session, XPI_SEAL_LATER, f, FRAME, f + FRAME);
	c->out_len += len;
	flush_out(c);
	/* A beat of which nothing left is forgotten, one that left in part must be finished. */
	if (type == BEAT && c->out_len == len) {
		c->out_len = 0;
		if (c->session != NULL)
			xpi_session_unseal(c->session);
	}
}

int64_t xpi_chan_due(struct xpi_live *live, struct xpi_chan *c, int64_t now, int64_t late_ms)
{
	int64_t deadline;

	if (chan_ended(c))
		return INT64_MAX;
	if (late_ms > c->beat_ms + c->timeout_ms / 4 && c->grace < GRACE_MAX) {
		/* This process was stopped or starved; perhaps the whole host was, and the peer needs time as well. */
		int64_t granted = now - c->timeout_ms + 2 * c->beat_ms;

		if (granted > c->last_heard_ms) {
			c->last_heard_ms = granted;
			c->grace++;
		}
	}
	deadline = c->last_heard_ms + c->timeout_ms;
	if (now >= deadline) {
		chan_lost(live, c, "no sign of life for %d ms", c->timeout_ms);
		return INT64_MAX;
	}
	/* A little early is as good: so the beats of many channels come to go out together. */
	if (now >= c->next_beat_ms - c->beat_ms / 4) {
		send_frame(c, BEAT, 0);
		c->next_beat_ms = now + c->beat_ms;
	}
	return deadline < c->next_beat_ms ? deadline : c->next_beat_ms;
}

/*
 * A descriptor that becomes readable when the process ends; -1: cannot be had, or it is not the one meant.  *gone: there
 * is no process of that number any more.  One that has another beginning proves nothing: in a time namespace of its own a
 * process sees all beginnings shifted.
 */
static int open_process(int64_t pid, uint64_t start_time, bool *gone)
{
	int fd;

	*gone = false;
	if (pid <= 0 || pid > INT32_MAX || start_time == 0)
		return -1;
	fd = xpi_fd_up((int)syscall(SYS_pidfd_open, (pid_t)pid, 0));
	/* After opening, so that the number cannot have passed to another process in between. */
	if (fd >= 0 && xpi_process_start(pid) != start_time) {
		close(fd);
		fd = -1;
	}
	*gone = fd < 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
	return fd;
}

int xpi_chan_start(struct xpi_live *live, struct xpi_chan *c, int64_t pid, uint64_t start_time)
{
	unsigned user_timeout = (unsigned)c->timeout_ms;
	int64_t now = xpi_now_ms();
	bool gone;
	int rc;

	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(user_timeout));
	c->pidfd = open_process(pid, start_time, &gone);
	c->last_heard_ms = now;
	c->next_beat_ms = now + c->beat_ms;
	c->in_len = c->out_len = 0;
	c->over = false;
	c->grace = 0;
	atomic_store(&c->found, 0);
	c->stands = false;
	xpi_flow_start(&c->flow);
	pthread_mutex_lock(&live->lock);
	rc = xpi_live_ctl(live, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLRDHUP, c, XPI_LIVE_SOCKET);
	if (rc == XPORT_OK && c->pidfd >= 0 &&
	    xpi_live_ctl(live, EPOLL_CTL_ADD, c->pidfd, EPOLLIN, c, XPI_LIVE_PIDFD) != XPORT_OK) {
		/* It goes without. */
		close(c->pidfd);
		c->pidfd = -1;
	}
	if (rc == XPORT_OK) {
		xpi_list_push(&live->chans, &c->link);
		live->nchans++;
		c->started = true;
		send_frame(c, BEAT, 0);
		if (c->next_beat_ms < live->chans_due_ms)
			live->chans_due_ms = c->next_beat_ms;
		xpi_live_due(live, c->next_beat_ms);
		/* It died while the connection was made; a child of it may hold the other end open. */
		if (gone)
			xpi_chan_event(live, c, XPI_LIVE_PIDFD, now);
	}
	pthread_mutex_unlock(&live->lock);
	if (rc != XPORT_OK && c->pidfd >= 0) {
		close(c->pidfd);
		c->pidfd = -1;
	}
	return rc;
}

static void chan_log(struct xpi_live *live, struct xpi_chan *c, uint8_t type, uint32_t with)
{
	if (!c->started || live->pid != getpid())
		return;
	pthread_mutex_lock(&live->lock);
	send_frame(c, type, with);
	pthread_mutex_unlock(&live->lock);
}

void xpi_chan_bye(struct xpi_live *live, struct xpi_chan *c, uint32_t ack)
{
	chan_log(live, c, BYE, ack);
}

void xpi_chan_gone(struct xpi_live *live, struct xpi_chan *c)
{
	chan_log(live, c, GONE, c->stands ? GONE_STANDS : GONE_FAILED);
}

uint32_t xpi_chan_bye_ack(const struct xpi_chan *c, uint32_t before)
{
	return before + ((c->bye_ack - before) & 0xffffff);
}

int xpi_chan_take_process(struct xpi_live *live, struct xpi_chan *c)
{
	int fd;

	if (!c->started)
		return -1;
	pthread_mutex_lock(&live->lock);
	fd = c->pidfd;
	if (fd >= 0 && !chan_ended(c))
		(void)xpi_live_ctl(live, EPOLL_CTL_DEL, fd, 0, c, XPI_LIVE_PIDFD);
	c->pidfd = -1;
	pthread_mutex_unlock(&live->lock);
	return fd;
}

void xpi_chan_stop(struct xpi_live *live, struct xpi_chan *c)
{
	uint8_t buf[256];

	if (!c->started)
		return;
	c->started = false;
	if (live->pid == getpid()) {
		pthread_mutex_lock(&live->lock);
		if (!chan_ended(c))
			unwatch(live, c);
		xpi_list_del(&c->link);
		live->nchans--;
		pthread_mutex_unlock(&live->lock);
		/* Closing with something unread would reset the connection, and a BYE on its way might be lost. */
		for (int turns = 0; turns < 16 && recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT) > 0; turns++)
			;
	}
	xpi_session_free(c->session);
	c->session = NULL;
	close(c->fd);
	c->fd = -1;
	if (c->pidfd >= 0)
		close(c->pidfd);
	c->pidfd = -1;
}
