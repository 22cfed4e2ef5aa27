/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_be_test.c - the libfabric back end alone: its ops between instances of one process, with a core of a few lines on
 * top.  What the conformance suite cannot see, because the core stands before it: strangers, order of endings, a peer
 * that died inside shared memory, what is left in /dev/shm.
 *
 *   ofi_be_test MODULE.so [PROVIDER]...
 *
 * Each test is a process of its own; libfabric is not touched before.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/ofi/ofi.h"

#define CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "  %s:%d: %s: ", __func__, __LINE__, #cond); \
			fprintf(stderr, " " __VA_ARGS__); \
			fputc('\n', stderr); \
			_exit(1); \
		} \
	} while (0)

enum { SLOTS = 400 };

struct slot {
	struct xpi_req req;
	bool busy;
	uint8_t bytes[OFI_BULK_MAX];
};

struct xpi_core_ep {
	int failed;
	unsigned long frames_then; /* of its instance, when it failed */
	struct side *side;
};

struct side {
	struct xpi_be *be;
	struct xpi_be_caps caps;
	unsigned long frames, done;
	bool hands_off; /* done() must not come any more */
	struct slot *slots;
};

struct end {
	struct side *side;
	void *ep;
	struct xpi_core_ep core_ep;
	uint8_t addr[2048];
	size_t len;
};

static const struct xpi_backend *ops;
static struct xport_error err = {.size = sizeof(err)};
static struct xpi_log quiet = {.level = 0, .fd = -1};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint8_t byte_of(uint64_t seq, size_t i)
{
	return (uint8_t)(seq * 131 + i * 7);
}

/* Frames are numbered by instance, in their first byte and by their contents. */
static void am_recv(struct xpi_core *core, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	struct side *s = (struct side *)core;
	const uint8_t *h = hdr, *d = data;

	for (size_t i = 0; i < hlen + dlen; i++)
		CHECK((i < hlen ? h[i] : d[i - hlen]) == byte_of(s->frames, i), "frame %lu of %zu differs at %zu",
		      s->frames, hlen + dlen, i);
	s->frames++;
}

static void on_done(struct xpi_core *core, struct xpi_req *req, int status)
{
	struct side *s = (struct side *)core;

	(void)status;
	CHECK(!s->hands_off && ((struct slot *)req)->busy);
	((struct slot *)req)->busy = false;
	s->done++;
}

static void on_failed(struct xpi_core *core, struct xpi_core_ep *ep, int64_t code, const char *why)
{
	CHECK(code != 0 && why[0] != '\0');
	ep->failed++;
	ep->frames_then = ((struct side *)core)->frames;
}

static const struct xpi_core_ops up = {am_recv, on_done, on_failed};

static int try_open(struct side *s, const char *provider)
{
	struct xpi_be_open_args args = {.provider = provider,
	                                .core = (struct xpi_core *)s,
	                                .up = &up,
	                                .log = &quiet,
	                                .err = &err,
	                                .peer_timeout_ms = 1000};

	memset(s, 0, sizeof(*s));
	s->slots = calloc(SLOTS, sizeof(struct slot));
	CHECK(s->slots != NULL);
	return ops->open(&args, &s->be);
}

static void open_side(struct side *s, const char *provider)
{
	int rc = try_open(s, provider);

	CHECK(rc == XPORT_OK, "%d %s", rc, err.text);
	ops->query(s->be, &s->caps);
	CHECK(strcmp(s->caps.provider, provider) == 0 && s->caps.am_max >= 4096);
}

static void prepare(struct end *e, struct side *s)
{
	memset(e, 0, sizeof(*e));
	e->side = s;
	e->ep = calloc(1, s->caps.ep_size);
	e->len = sizeof(e->addr);
	CHECK(e->ep != NULL && ops->address(s->be, e->ep, &e->core_ep, e->addr, &e->len) == XPORT_OK, "%s", err.text);
}

/* Polls both for so long. */
static void run_both(struct side *a, struct side *b, int ms)
{
	for (int64_t end = now_ms() + ms; now_ms() < end;) {
		CHECK(ops->poll(a->be) >= 0 && ops->poll(b->be) >= 0);
		usleep(100);
	}
}

static void join(struct end *a, struct end *b)
{
	int ra = XPORT_ERR_AGAIN, rb = XPORT_ERR_AGAIN;

	for (int64_t end = now_ms() + 10000; ra == XPORT_ERR_AGAIN || rb == XPORT_ERR_AGAIN;) {
		if (rb == XPORT_ERR_AGAIN)
			rb = ops->ep_connect(b->side->be, b->ep, XPI_PASSIVE, a->addr, a->len);
		if (ra == XPORT_ERR_AGAIN)
			ra = ops->ep_connect(a->side->be, a->ep, XPI_ACTIVE, b->addr, b->len);
		run_both(a->side, b->side, 1);
		CHECK(now_ms() < end, "not connected");
	}
	CHECK(ra == XPORT_OK && rb == XPORT_OK, "%d %d %s", ra, rb, err.text);
}

static void leave(struct end *e)
{
	while (ops->ep_quiesce(e->side->be, e->ep) == XPORT_ERR_AGAIN)
		CHECK(ops->poll(e->side->be) >= 0);
	ops->ep_destroy(e->side->be, e->ep);
	memset(e->ep, 0xee, e->side->caps.ep_size);
	free(e->ep);
}

/* One attempt; the slot is busy while the back end has it. */
static int send_frame(struct end *e, uint64_t seq, size_t len, size_t cut)
{
	struct slot *slot = e->side->slots;
	int rc;

	while (slot < e->side->slots + SLOTS && slot->busy)
		slot++;
	if (slot == e->side->slots + SLOTS)
		return XPORT_ERR_AGAIN;
	for (size_t i = 0; i < len; i++)
		slot->bytes[i] = byte_of(seq, i);
	slot->busy = true;
	rc = cut < len
	             ? ops->am_send_two(e->side->be, e->ep, slot->bytes, cut, slot->bytes + cut, len - cut, &slot->req)
	             : ops->am_send(e->side->be, e->ep, slot->bytes, len, &slot->req);
	slot->busy = rc == XPI_PENDING;
	return rc;
}

static void must_send(struct end *from, struct end *to, uint64_t seq, size_t len, size_t cut)
{
	int rc;

	for (int64_t end = now_ms() + 10000; (rc = send_frame(from, seq, len, cut)) == XPORT_ERR_AGAIN;) {
		run_both(from->side, to->side, 1);
		CHECK(now_ms() < end, "AGAIN for ever");
	}
	CHECK(rc >= 0, "%d %s", rc, err.text);
}

static void await(struct end *from, struct end *to, unsigned long frames)
{
	for (int64_t end = now_ms() + 10000; to->side->frames < frames;) {
		run_both(from->side, to->side, 1);
		CHECK(now_ms() < end, "%lu of %lu frames came", to->side->frames, frames);
	}
}

/* ---- tests ---- */

static struct side A, B, C;
static struct end a, b, c, d;

static void open_pair(const char *provider)
{
	open_side(&A, provider);
	open_side(&B, provider);
	prepare(&a, &A);
	prepare(&b, &B);
	join(&a, &b);
}

/* Every size around the limits, in one piece and cut. */
static void test_sizes(const char *provider)
{
	uint64_t seq = 0;

	open_pair(provider);
	for (size_t len = 1; len <= A.caps.am_max; len = len < 300 ? len + 1 : len < 4000 ? len + 371 : 2 * len - 100)
		for (int k = 0; k < 3; k++, seq++) {
			must_send(&a, &b, seq, len, k == 0 ? len : k == 1 ? 1 : len / 2 + 1);
			await(&a, &b, seq + 1);
		}
	must_send(&a, &b, seq, A.caps.am_max, 24);
	await(&a, &b, seq + 1);
}

/* A peer that does not poll: am_send says AGAIN some time, and all that was accepted comes, in order. */
static void test_full(const char *provider)
{
	uint64_t seq = 0;

	open_pair(provider);
	while (seq < 200000 && send_frame(&a, seq, A.caps.am_max, 24) >= 0)
		seq++;
	CHECK(seq < 200000, "never full");
	await(&a, &b, seq);
	run_both(&A, &B, 20);
	CHECK(B.frames == seq);
	must_send(&a, &b, seq, 64, 24);
	await(&a, &b, seq + 1);
}

/* Who does not know the cookie is not connected, and does not stand in the way of who does. */
static void test_stranger(const char *provider)
{
	uint8_t forged[2048];
	int rc = XPORT_ERR_AGAIN;

	open_side(&A, provider);
	open_side(&B, provider);
	open_side(&C, provider);
	prepare(&a, &A);
	prepare(&b, &B);
	prepare(&c, &C);
	memcpy(forged, b.addr, b.len);
	forged[OFI_HOST] ^= 1;
	for (int64_t end = now_ms() + 1500; now_ms() < end && rc == XPORT_ERR_AGAIN;) {
		rc = ops->ep_connect(C.be, c.ep, XPI_ACTIVE, forged, b.len);
		run_both(&C, &B, 1);
		CHECK(ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len) == XPORT_ERR_AGAIN,
		      "connected to a stranger");
	}
	CHECK(rc != XPORT_OK, "a stranger was let in");
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
}

/* The first address of a packed one, if it is one of IP. */
static bool where(const struct end *e, struct sockaddr_storage *sa, socklen_t *len)
{
	*len = e->addr[OFI_HOST + OFI_COOKIE + 1];
	memcpy(sa, e->addr + OFI_HOST + OFI_COOKIE + 2, *len < sizeof(*sa) ? *len : 0);
	return sa->ss_family == AF_INET || sa->ss_family == AF_INET6;
}

/* A connection, or a datagram, that does not speak libfabric: so many bytes of rubbish, and then silence. */
static int rubbish(const struct end *to, size_t n, uint8_t first)
{
	struct sockaddr_storage sa;
	uint8_t bytes[512];
	socklen_t len;
	int fd;

	if (!where(to, &sa, &len))
		return -1;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i == 0 ? first : byte_of(first, i);
	fd = socket(sa.ss_family,
	            (strstr(to->side->caps.provider, "udp") != NULL ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&sa, len) == 0, "%s", strerror(errno));
	CHECK(n == 0 || send(fd, bytes, n, MSG_NOSIGNAL) >= 0, "%s", strerror(errno));
	return fd;
}

static void find_caution(void *arg, const struct xport_candidate *cand)
{
	if (strcmp(strchr(cand->name, ':') + 1, arg) == 0)
		CHECK(strstr(cand->reason, "stranger") != NULL, "%s", cand->reason);
}

static void take_line(void *arg, int level, const char *id, const char *text);
static char line[512];

/* With sockets (1.17) such a one ends the process.  That is told by the list and when it is opened. */
static void test_rubbish_told(void)
{
	quiet.level = XPORT_LOG_INFO;
	quiet.fn = take_line;
	quiet.arg = "3015";
	open_side(&A, "sockets");
	CHECK(strstr(line, "sockets") != NULL && strstr(line, "stranger") != NULL, "%s", line);
	CHECK(ops->list(&quiet, find_caution, "sockets") == XPORT_OK);
}

/* Who connects and sends rubbish, or a part of something and then nothing, does not stand in the way either. */
static void test_rubbish(const char *provider)
{
	int fd[8];

	if (strcmp(provider, "sockets") == 0) {
		test_rubbish_told();
		return;
	}
	open_side(&A, provider);
	open_side(&B, provider);
	prepare(&a, &A);
	prepare(&b, &B);
	for (unsigned k = 0; k < 8; k++) {
		fd[k] = rubbish(&b, k < 4 ? k : 20 * k * k % 512, (uint8_t)k);
		run_both(&A, &B, 5);
	}
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	for (int k = 0; k < 8; k++)
		if (fd[k] >= 0)
			close(fd[k]);
	run_both(&A, &B, 5);
	must_send(&b, &a, 0, 100, 24);
	await(&b, &a, 1);
	leave(&a);
	leave(&b);
	ops->close(A.be);
	ops->close(B.be);
}

/* Damaged addresses: refused or unreachable, never taken, never a crash. */
static void test_bad_address(const char *provider)
{
	uint8_t bad[2048];
	int rc;

	open_side(&A, provider);
	open_side(&B, provider);
	prepare(&b, &B);
	for (size_t i = 0; i < b.len; i++) {
		prepare(&a, &A);
		rc = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, b.addr, i);
		CHECK(rc == XPORT_ERR_PROTOCOL, "%zu of %zu bytes: %d", i, b.len, rc);
		leave(&a);
	}
	for (size_t i = OFI_HOST + OFI_COOKIE; i < OFI_HOST + OFI_COOKIE + 5; i++)
		for (int bit = 0; bit < 8; bit++) {
			prepare(&a, &A);
			memcpy(bad, b.addr, b.len);
			bad[i] ^= (uint8_t)(1 << bit);
			rc = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, bad, b.len);
			CHECK(rc != XPORT_OK, "byte %zu bit %d", i, bit);
			leave(&a);
		}
}

/* Closing one endpoint with frames under way: nothing comes of it any more, and the other one goes on. */
static void test_quiesce(const char *provider)
{
	uint64_t seq = 0;
	unsigned long came;

	open_pair(provider);
	prepare(&c, &A);
	prepare(&d, &B);
	join(&c, &d);
	while (seq < 100000 && send_frame(&a, seq, A.caps.am_max, 24) >= 0)
		seq++;
	leave(&a);
	A.hands_off = true;
	do { /* what had left still comes */
		came = B.frames;
		run_both(&A, &B, 100);
	} while (B.frames != came);
	A.hands_off = false;
	CHECK(c.core_ep.failed == 0 && d.core_ep.failed == 0, "the other endpoint failed as well");
	leave(&b);
	for (int i = 0; i < SLOTS; i++)
		A.slots[i].busy = false;
	seq = B.frames;
	must_send(&c, &d, seq, 100, 24);
	await(&c, &d, seq + 1);
	leave(&c);
	leave(&d);
	ops->close(A.be);
	ops->close(B.be);
}

/* What a peer sent before it closed comes before the news of its end. */
static void test_last_words(const char *provider)
{
	open_side(&A, provider);
	open_side(&B, provider);
	for (int round = 0; round < 50; round++) {
		unsigned long before = B.frames;

		prepare(&a, &A);
		prepare(&b, &B);
		join(&a, &b);
		for (uint64_t i = 0; i < 5; i++)
			must_send(&a, &b, before + i, 64, 24);
		for (int i = 0; i < 100 && A.done > 0; i++)
			ops->poll(A.be);
		leave(&a);
		for (int i = 0; i < 3000 && b.core_ep.failed == 0; i++) {
			CHECK(ops->poll(B.be) >= 0);
			usleep(20);
		}
		if (b.core_ep.failed > 0)
			CHECK(b.core_ep.frames_then == before + 5, "%lu of 5", b.core_ep.frames_then - before);
		CHECK(b.core_ep.failed <= 1 && B.frames == before + 5, "%lu of 5", B.frames - before);
		leave(&b);
	}
}

/* One that was killed inside the shared memory leaves its lock taken: polling goes on, others go on, closing works. */
static void test_dead_inside(const char *provider)
{
	if (strcmp(provider, "shm") != 0)
		return;
	open_pair(provider);
	prepare(&c, &A);
	prepare(&d, &B);
	join(&c, &d);
	*(volatile uint32_t *)((struct ofi_ep *)b.ep)->page.base = 1;
	CHECK(send_frame(&a, 0, 64, 24) == XPORT_ERR_AGAIN, "entered where another one is");
	must_send(&c, &d, 0, 64, 24);
	await(&c, &d, 1);
	leave(&b);
	leave(&a);
}

/* A name in /dev/shm is gone once connected; that of a dead process is taken away. */
static void test_leftovers(const char *provider)
{
	static const struct timespec old[2] = {{1, 0}, {1, 0}};
	char mine[64], dead[64];
	pid_t pid = fork();
	int fd;

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	if (strcmp(provider, "shm") != 0)
		return;
	snprintf(dead, sizeof(dead), "/dev/shm/%d:%d:0", (int)pid, (int)getuid());
	fd = open(dead, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && futimens(fd, old) == 0, "%s: %s", dead, strerror(errno));
	close(fd);
	open_pair(provider);
	CHECK(access(dead, F_OK) != 0, "%s is still there", dead);
	for (int i = 0; i < 10; i++) {
		snprintf(mine, sizeof(mine), "/dev/shm/%d:%d:%d", (int)getpid(), (int)getuid(), i);
		CHECK(access(mine, F_OK) != 0, "%s would be left by a kill", mine);
	}
}

static void ignore(void *arg, const struct xport_candidate *cand)
{
	CHECK(cand->reason[0] != '\0' && (cand->state == XPORT_READY || cand->hint[0] != '\0'), "%s", cand->name);
	*(int *)arg += cand->state == XPORT_READY;
}

/* Signals are as before, and no thread of the stack takes one. */
static void test_signals(const char *provider)
{
	struct sigaction before[65], after;
	sigset_t mask, now;
	int ready = 0;

	for (int i = 1; i < 65; i++)
		sigaction(i, NULL, &before[i]);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	CHECK(ops->list(&quiet, ignore, &ready) == XPORT_OK && ready > 0);
	open_pair(provider);
	for (int i = 1; i < 65; i++)
		CHECK(sigaction(i, NULL, &after) != 0 || before[i].sa_handler == after.sa_handler, "signal %d", i);
	sigprocmask(SIG_SETMASK, NULL, &now);
	for (int i = 1; i < 65; i++)
		CHECK(sigismember(&mask, i) == sigismember(&now, i), "signal %d", i);
}

/* A listener that answers nobody any more: its queue is full. */
static void deaf(struct sockaddr_storage *sa, socklen_t *len)
{
	int l = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sa->ss_family == AF_INET)
		((struct sockaddr_in *)sa)->sin_port = 0;
	else
		((struct sockaddr_in6 *)sa)->sin6_port = 0;
	CHECK(l >= 0 && bind(l, (struct sockaddr *)sa, *len) == 0 && listen(l, 0) == 0 &&
	              getsockname(l, (struct sockaddr *)sa, len) == 0,
	      "%s", strerror(errno));
	for (int i = 0; i < 8; i++) {
		int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		CHECK(fd >= 0 && (connect(fd, (struct sockaddr *)sa, *len) == 0 || errno == EINPROGRESS));
		usleep(2000);
	}
}

/* An address of the peer that does not answer: no call waits for it, and the next one is taken. */
static void test_deaf(const char *provider)
{
	const size_t at = OFI_HOST + OFI_COOKIE;
	struct sockaddr_storage sa;
	int64_t end, longest = 0;
	int rc = XPORT_ERR_AGAIN;
	uint8_t both[2048];
	socklen_t len;

	open_side(&A, provider);
	open_side(&B, provider);
	prepare(&a, &A);
	prepare(&b, &B);
	if (!where(&b, &sa, &len) || strchr(provider, ';') != NULL)
		return; /* not one that listens */
	deaf(&sa, &len);
	memcpy(both, b.addr, at);
	both[at] = 2;
	both[at + 1] = (uint8_t)len;
	memcpy(both + at + 2, &sa, len);
	memcpy(both + at + 2 + len, b.addr + at + 1, 1 + len);
	for (end = now_ms() + 20000; rc == XPORT_ERR_AGAIN && now_ms() < end;) {
		int64_t t = now_ms();

		rc = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, both, at + 3 + 2 * len);
		t = now_ms() - t;
		longest = t > longest ? t : longest;
		CHECK(ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len) != XPORT_ERR_UNREACHABLE);
		run_both(&A, &B, 1);
	}
	CHECK(rc == XPORT_OK, "%d %s", rc, err.text);
	CHECK(longest < 500, "a call took %d ms", (int)longest);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	leave(&a);
	leave(&b);
	ops->close(A.be);
	ops->close(B.be);
}

/* Where the clock wakes it is soon after something happened, and how often it was armed meanwhile does not matter. */
static void test_naps(const char *provider)
{
	int64_t best = INT64_MAX;
	struct pollfd p = {.events = POLLIN};

	open_pair(provider);
	if (B.be->timer < 0)
		return;
	CHECK(ops->fds(B.be, &p.fd, 1) == 1);
	for (uint64_t i = 0; i < 20; i++) {
		int64_t t;

		must_send(&a, &b, i, 64, 24);
		await(&a, &b, i + 1);
		for (int k = 0; k < 300; k++)
			CHECK(ops->poll(B.be) >= 0 && ops->arm(B.be) == XPORT_OK);
		t = now_ms();
		CHECK(poll(&p, 1, 1000) == 1);
		t = now_ms() - t;
		best = t < best ? t : best;
	}
	CHECK(best <= 3, "%d ms", (int)best);
}

static char chosen[64];

static void take_chosen(void *arg, const struct xport_candidate *cand)
{
	(void)arg;
	if (strstr(cand->reason, "what ofi alone takes") != NULL) {
		CHECK(chosen[0] == '\0' && cand->state == XPORT_READY, "%s and %s", chosen, cand->name);
		snprintf(chosen, sizeof(chosen), "%s", strchr(cand->name, ':') + 1);
	}
}

static void take_line(void *arg, int level, const char *id, const char *text)
{
	(void)level;
	if (strstr(id, arg) != NULL)
		snprintf(line, sizeof(line), "%s", text);
}

/* Without a provider: the one that the list says, and the log tells which and why not those before it. */
static void test_choice(const char *provider)
{
	char took[96];

	(void)provider;
	quiet.level = XPORT_LOG_INFO;
	quiet.fn = take_line;
	quiet.arg = "3014";
	CHECK(ops->list(&quiet, take_chosen, NULL) == XPORT_OK && chosen[0] != '\0');
	CHECK(try_open(&A, NULL) == XPORT_OK, "%s", err.text);
	ops->query(A.be, &A.caps);
	CHECK(strcmp(A.caps.provider, chosen) == 0, "%s, listed was %s", A.caps.provider, chosen);
	snprintf(took, sizeof(took), "took %s,", chosen);
	CHECK(strstr(line, took) != NULL, "%s", line);
	CHECK(strcmp(chosen, "verbs") == 0 || strstr(line, "; not verbs: ") != NULL, "%s", line);
}

/* FI_PROVIDER of the environment that leaves it out is named. */
static void test_filtered(const char *provider)
{
	setenv("FI_PROVIDER", "perf", 1);
	CHECK(try_open(&A, provider) == XPORT_ERR_NO_BACKEND);
	CHECK(strstr(err.text, "FI_PROVIDER=perf") != NULL, "%s", err.text);
}

/* ---- running ---- */

static const struct {
	const char *name;
	void (*fn)(const char *provider);
} tests[] = {
	{"sizes", test_sizes},         {"full", test_full},
	{"stranger", test_stranger},   {"bad_address", test_bad_address},
	{"quiesce", test_quiesce},     {"last_words", test_last_words},
	{"signals", test_signals},     {"filtered", test_filtered},
	{"leftovers", test_leftovers}, {"dead_inside", test_dead_inside},
	{"choice", test_choice},       {"rubbish", test_rubbish},
	{"deaf", test_deaf},           {"naps", test_naps},
};

static bool run(const char *module, const char *provider, int i)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		void *handle;

		alarm(60);
		handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);
		if (handle == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			_exit(2);
		}
		ops = dlsym(handle, "xpi_backend");
		CHECK(ops != NULL && ops->abi == XPI_BACKEND_ABI, "no back end");
		tests[i].fn(provider);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	printf("%s %s %s\n", status == 0 ? "ok" : "FAILED", provider, tests[i].name);
	if (WIFSIGNALED(status))
		printf("  signal %d\n", WTERMSIG(status));
	return status == 0;
}

int main(int argc, char **argv)
{
	static const char *const all[] = {"tcp", "net", "sockets", "shm", "udp;ofi_rxd"};
	const char *only = getenv("BE_TEST_ONLY");
	int bad = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: ofi_be_test MODULE.so [PROVIDER]...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	for (int p = 0; p < (argc > 2 ? argc - 2 : 5); p++)
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			if (only == NULL || strcmp(only, tests[i].name) == 0)
				bad += !run(argv[1], argc > 2 ? argv[2 + p] : all[p], (int)i);
	printf("%s: %d failed\n", bad == 0 ? "ok" : "FAILED", bad);
	return bad != 0;
}
