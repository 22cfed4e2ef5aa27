/* SPDX-License-Identifier: BSD-3-Clause */
/* death.c - what the UCX back end does when the peer is killed, stopped, or not there. */
#include "side.h"

/*
 * The peer does not poll, and frames pile up here; then it is killed, or stopped, or just stays silent.  Quiesce ends
 * within a bound, done() does not come any more, and nothing touches the buffers: they are not even mapped.
 */
enum death { KILLED_SEEN, KILLED_UNSEEN, STOPPED };

static void fill_up(struct side *s, struct conn *c)
{
	uint64_t seq = 0;
	int quiet = 0;

	while (quiet < 100) {
		quiet = frame_send(s, c, seq++, 8000, 24, false) < 0 ? quiet + 1 : 0;
		poll_be(s);
	}
}

static void slots_unmap(struct side *s)
{
	struct slot *map = mmap(NULL, SLOTS * sizeof(*map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(map != MAP_FAILED);
	free(s->core.slots);
	s->core.slots = map;
}

static void poll_for(struct side *s, double seconds)
{
	for (double end = now() + seconds; now() < end;)
		poll_be(s);
}

/* Whether to go on: UCX's tcp must say that the peer is gone, its shared memory cannot (the core knows by a pidfd). */
static bool reported(struct side *s, struct conn *c, double start)
{
	bool tcp = strcmp(s->caps.provider, "tcp") == 0;

	if (c->core_ep.failed > 0)
		return true;
	CHECK(!tcp || now() - start < 20, "UCX does not report it");
	return !tcp && now() - start > 1;
}

static void test_death(struct side *s, const char *provider, bool a, enum death how)
{
	double start, t, idle;
	struct conn *c;
	bool mute;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	c = conn_new(s);
	if (!a)
		for (;;)
			pause();
	slots_unmap(s);
	fill_up(s, c);
	CHECK(s->core.pendings > s->core.done, "nothing is pending");
	CHECK(kill(s->peer, how == STOPPED ? SIGSTOP : SIGKILL) == 0);
	start = now();
	mute = how != KILLED_SEEN;
	while (!mute && !reported(s, c, start))
		poll_be(s);
	t = now() - start;
	say("    %lu pending, ", s->core.pendings - s->core.done);
	if (c->core_ep.failed > 0) {
		say("reported after %.0f ms, ", t * 1e3);
		CHECK(s->ops->am_send(s->be, c->ep, "12345678", 8, &s->core.slots[0].req) == XPORT_ERR_PEER_LOST);
	}
	t = conn_quiesce(s, c);
	s->core.hands_off = true;
	say("quiesce took %.1f ms\n", t * 1e3);
	munmap(s->core.slots, SLOTS * sizeof(struct slot));
	for (start = now(), idle = cpu(); now() - start < 0.7;) {
		struct pollfd p[2] = {{.events = POLLIN}, {.events = POLLIN}};
		int fds[2], nfds = s->ops->fds(s->be, fds, 2);

		p[0].fd = fds[0];
		p[1].fd = nfds > 1 ? fds[1] : -1;
		if (s->ops->arm(s->be) == XPORT_OK)
			poll(p, 2, 50);
		poll_be(s);
	}
	CHECK(cpu() - idle < 0.1, "%.0f ms of CPU in 0.7 idle seconds", (cpu() - idle) * 1e3);
	CHECK(c->core_ep.failed <= 1);
	s->ops->ep_destroy(s->be, c->ep);
	memset(c->ep, 0xee, s->caps.ep_size);
	for (start = now(); now() - start < 0.2;)
		poll_be(s);
	close_side(s);
}

void test_kill_seen(struct side *s, const char *p, bool a)
{
	test_death(s, p, a, KILLED_SEEN);
}
void test_kill_unseen(struct side *s, const char *p, bool a)
{
	test_death(s, p, a, KILLED_UNSEEN);
}
void test_stopped(struct side *s, const char *p, bool a)
{
	test_death(s, p, a, STOPPED);
}

/* An idle endpoint: nothing is under way when the peer is killed. */
void test_kill_idle(struct side *s, const char *provider, bool a)
{
	struct conn *c;
	double start;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	c = conn_new(s);
	if (!a)
		for (;;)
			pause();
	kill(s->peer, SIGKILL);
	start = now();
	while (!reported(s, c, start))
		poll_be(s);
	say("    %sreported after %.0f ms\n", c->core_ep.failed > 0 ? "" : "not ", (now() - start) * 1e3);
	conn_free(s, c);
	close_side(s);
}

/* An address that leads nowhere any more, and damaged ones. */
void test_bad_address(struct side *s, const char *provider, bool a)
{
	struct conn *c = malloc(sizeof(*c));
	double start;
	int rc;

	open_side(s, provider);
	s->core.on_frame = frame_check;
	conn_prepare(s, c);
	if (!a)
		raise(SIGKILL);
	for (size_t n = 0; n < c->len; n++)
		CHECK(s->ops->ep_connect(s->be, c->ep, XPI_ACTIVE, c->addr, n) == XPORT_ERR_PROTOCOL, "%zu bytes", n);
	usleep(200000);
	for (start = now(); (rc = s->ops->ep_connect(s->be, c->ep, XPI_ACTIVE, c->addr, c->len)) == XPORT_ERR_AGAIN;) {
		poll_be(s);
		if (now() - start > 3)
			break; /* the core has a time limit of its own */
	}
	CHECK(rc == XPORT_ERR_UNREACHABLE, "%d", rc);
	say("    %s after %.0f ms: %s\n", xpi_status_name(rc), (now() - start) * 1e3, s->err.text);
	conn_free(s, c);
	close_side(s);
}

/* The peer has connected to us, who have not yet to it, and is gone when we look at what it sent: not worth a warning. */
void test_dead_on_arrival(struct side *s, const char *provider, bool a)
{
	struct conn c;
	char go = 'g';

	open_side(s, provider);
	s->core.on_frame = frame_check;
	conn_prepare(s, &c);
	if (!a) {
		CHECK(s->ops->ep_connect(s->be, c.ep, XPI_ACTIVE, c.addr, c.len) == XPORT_ERR_AGAIN);
		poll_for(s, 0.1);
		put_msg(s, &go, 1);
		for (;;)
			pause();
	}
	CHECK(poll(&(struct pollfd){.fd = s->sock, .events = POLLIN}, 1, 5000) == 1);
	CHECK(kill(s->peer, SIGKILL) == 0);
	usleep(200000);
	poll_for(s, 0.3);
	s->ops->ep_destroy(s->be, c.ep);
	free(c.ep);
	close_side(s);
}

/* The newest descriptor that is a TCP connection's. */
static int newest_socket(void)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int found = -1;

	for (int fd = 0; fd < 1024; fd++, len = sizeof(peer))
		if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.ss_family != AF_UNIX)
			found = fd;
	return found;
}

/*
 * The peer acknowledges the socket, and what A sends next on it fails: as when the peer died in between.  An error, and
 * no more than that.  B never makes an endpoint, so that the socket is A's.
 */
void test_gone_when_acknowledged(struct side *s, const char *provider, bool a)
{
	struct pollfd p = {.events = POLLIN};
	struct conn c;
	double end;
	char go = 'g';
	int rc;

	if (strcmp(provider, "tcp") != 0)
		return; /* others have no socket */
	open_side(s, provider);
	conn_prepare(s, &c);
	if (!a) {
		CHECK(poll(&(struct pollfd){.fd = s->sock, .events = POLLIN}, 1, 5000) == 1);
		for (;;)
			poll_be(s);
	}
	rc = s->ops->ep_connect(s->be, c.ep, XPI_ACTIVE, c.addr, c.len);
	CHECK(rc == XPORT_ERR_AGAIN, "%d", rc);
	for (end = now() + 0.1; now() < end;)
		poll_be(s);
	p.fd = newest_socket();
	CHECK(p.fd >= 0 && poll(&p, 1, 0) == 0);
	put_msg(s, &go, 1);
	CHECK(poll(&p, 1, 5000) == 1, "no acknowledgement");
	CHECK(shutdown(p.fd, SHUT_WR) == 0);
	for (end = now() + 5; rc == XPORT_ERR_AGAIN && now() < end;) {
		poll_be(s);
		rc = s->ops->ep_connect(s->be, c.ep, XPI_ACTIVE, c.addr, c.len);
	}
	CHECK(rc == XPORT_OK || rc == XPORT_ERR_UNREACHABLE, "%d %s", rc, s->err.text);
	while (rc == XPORT_OK && c.core_ep.failed == 0) {
		frame_send(s, &c, 0, 64, 8, false);
		poll_be(s);
		CHECK(now() < end, "UCX does not report it");
	}
	conn_quiesce(s, &c);
	s->ops->ep_destroy(s->be, c.ep);
	free(c.ep);
}

/* ---- a writer that dies in the middle ---- */

enum { QUEUES = 64 };

/* Where UCX's segments of shared memory begin in this process.  Each queue begins with the count of entries ever taken. */
static int shm_segments(volatile uint64_t **at)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long from;
	int n = 0;

	CHECK(f != NULL);
	while (n < QUEUES && fgets(line, sizeof(line), f) != NULL)
		if (strstr(line, "/ucx_shm_posix_") != NULL && sscanf(line, "%lx-", &from) == 1)
			at[n++] = (volatile uint64_t *)from;
	fclose(f);
	return n;
}

/* The count of our own queue: the one that grew by what arrived meanwhile. */
static volatile uint64_t *own_queue(struct side *s, struct conn *c, bool a)
{
	volatile uint64_t *at[QUEUES], *found = NULL;
	uint64_t before[QUEUES];
	int n = shm_segments(at);

	barrier(s);
	for (int i = 0; i < n; i++)
		before[i] = *at[i];
	barrier(s);
	if (!a) {
		for (uint64_t i = 0; i < 10; i++)
			CHECK(frame_send(s, c, i, 64, 8, true) >= 0);
		return NULL;
	}
	await_frames(s, 10);
	for (int i = 0; i < n; i++)
		if (*at[i] == before[i] + 10)
			found = at[i]; /* there twice: the endpoint to ourselves maps it, too */
	CHECK(found != NULL, "none of %d", n);
	return found;
}

/*
 * An entry of A's queue is taken and never filled, which is what a peer leaves that is killed between the two.  When an
 * endpoint is closed next, the other one is failed within two seconds, and a new one is refused.  Before that, closing
 * fails nothing.
 */
void test_queue_stands(struct side *s, const char *provider, bool a)
{
	struct conn *c[3], again = {0};
	volatile uint64_t *taken;
	size_t len = sizeof(again.addr);
	double start;

	if (strcmp(provider, "shm") != 0)
		return; /* others have such a queue among other ways */
	open_side(s, provider);
	s->core.on_frame = frame_check;
	for (int i = 0; i < 3; i++)
		c[i] = conn_new(s);
	taken = own_queue(s, c[2], a);
	if (!a)
		for (;;)
			poll_be(s);
	conn_free(s, c[0]);
	poll_for(s, 1.5);
	CHECK(c[1]->core_ep.failed == 0 && c[2]->core_ep.failed == 0 && s->warnings == 0);
	++*taken;
	start = now();
	conn_free(s, c[1]);
	while (c[2]->core_ep.failed == 0 && now() - start < 3)
		poll_be(s);
	CHECK(c[2]->core_ep.failed == 1, "%d times", c[2]->core_ep.failed);
	CHECK(now() - start < 2, "after %.1f s", now() - start);
	CHECK(s->warnings == 1, "%lu lines", s->warnings);
	again.ep = calloc(1, s->caps.ep_size);
	CHECK(s->ops->address(s->be, again.ep, &again.core_ep, again.addr, &len) == XPORT_ERR_SYSTEM);
	CHECK(strstr(s->err.text, "is stuck") != NULL, "%s", s->err.text);
	free(again.ep);
	conn_free(s, c[2]);
}
