/* SPDX-License-Identifier: BSD-3-Clause */
#include "live_shim.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/liveness/monitor.h"
#include "core/liveness/monitor_impl.h"

struct shim {
	struct xpi_live *live;
	atomic_uint attention;
	int wake;
};

struct shim_chan {
	struct shim *s;
	struct xpi_chan c;
};

struct shim_watch {
	struct shim *s;
	struct xpi_watch w;
};

struct shim *shim_new(bool thread)
{
	struct shim *s = calloc(1, sizeof(*s));

	if (s == NULL || xpi_live_get(thread, &s->live, NULL) != XPORT_OK)
		abort();
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s;
}

void shim_put(struct shim *s)
{
	xpi_live_put(s->live);
}

void shim_free(struct shim *s)
{
	xpi_live_put(s->live);
	close(s->wake);
	free(s);
}

int shim_step(struct shim *s)
{
	return xpi_live_step(s->live);
}

int shim_fd(struct shim *s)
{
	return xpi_live_fd(s->live);
}

int64_t shim_now(void)
{
	return xpi_now_ms();
}

uint64_t shim_process_start(int64_t pid)
{
	return xpi_process_start(pid);
}

bool shim_wait(struct shim *s, int timeout_ms)
{
	int64_t deadline = xpi_now_ms() + timeout_ms, left;
	struct pollfd pfd[2] = {{s->wake, POLLIN, 0}, {xpi_live_fd(s->live), POLLIN, 0}};
	uint64_t n;

	for (;;) {
		if (pfd[1].fd >= 0)
			(void)xpi_live_step(s->live);
		if (read(s->wake, &n, sizeof(n)) == sizeof(n))
			return atomic_exchange_explicit(&s->attention, 0, memory_order_acquire) != 0;
		left = deadline - xpi_now_ms();
		if (left <= 0)
			return false;
		(void)poll(pfd, 2, (int)left);
	}
}

struct shim_chan *shim_chan_start(struct shim *s, int fd, int timeout_ms, int64_t pid, uint64_t start_time)
{
	struct shim_chan *c = calloc(1, sizeof(*c));

	if (c == NULL)
		abort();
	c->s = s;
	c->c.wake_flag = (struct xpi_wake_flag){.attention = &s->attention, .wake_fd = s->wake};
	c->c.fd = fd;
	c->c.timeout_ms = timeout_ms;
	c->c.beat_ms = timeout_ms / 4;
	if (xpi_chan_start(s->live, &c->c, pid, start_time) == XPORT_OK)
		return c;
	free(c);
	return NULL;
}

unsigned shim_chan_found(struct shim_chan *c)
{
	return atomic_load_explicit(&c->c.found, memory_order_acquire);
}

uint32_t shim_chan_bye_ack(struct shim_chan *c, uint32_t before)
{
	return xpi_chan_bye_ack(&c->c, before);
}

const char *shim_chan_why(struct shim_chan *c)
{
	return c->c.why;
}

bool shim_chan_has_pidfd(struct shim_chan *c)
{
	return c->c.pidfd >= 0;
}

void shim_chan_bye(struct shim_chan *c, bool proper)
{
	if (proper)
		xpi_chan_bye(c->s->live, &c->c, 0xfedcba98);
	else
		xpi_chan_gone(c->s->live, &c->c);
}

void shim_chan_stop(struct shim_chan *c)
{
	xpi_chan_stop(c->s->live, &c->c);
	free(c);
}

struct shim_watch *shim_watch_add(struct shim *s, int fd, uint32_t events, int64_t deadline_ms)
{
	struct shim_watch *w = calloc(1, sizeof(*w));

	if (w == NULL)
		abort();
	w->s = s;
	w->w.wake_flag = (struct xpi_wake_flag){.attention = &s->attention, .wake_fd = s->wake};
	w->w.fd = fd;
	w->w.events = events;
	w->w.deadline_ms = deadline_ms;
	if (xpi_watch_add(s->live, &w->w) == XPORT_OK)
		return w;
	free(w);
	return NULL;
}

bool shim_watch_rang(struct shim_watch *w)
{
	return atomic_load(&w->w.rang);
}

void shim_watch_arm(struct shim_watch *w, uint32_t events, int64_t deadline_ms)
{
	if (xpi_watch_arm(w->s->live, &w->w, events, deadline_ms) != XPORT_OK)
		abort();
}

void shim_watch_remove(struct shim_watch *w)
{
	xpi_watch_remove(w->s->live, &w->w);
	free(w);
}
