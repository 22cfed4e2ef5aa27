/* SPDX-License-Identifier: BSD-3-Clause */
/* side.c - what the tests of the UCX back end stand on. */
#include "side.h"

/* ---- reporting ---- */

int report_fd; /* the real standard output; descriptor 1 is a file that must stay empty */
const char *module_path;

void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vdprintf(report_fd, fmt, ap);
	va_end(ap);
}

void broken(const char *fn, int line, const char *cond, const char *fmt, ...)
{
	char text[800];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	say("  %s:%d: not %s:%s\n", fn, line, cond, text);
	_exit(1);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double cpu(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

/* ---- the core ---- */

static void core_am_recv(struct xpi_core *c, struct xpi_core_ep *from, const void *hdr, size_t hlen, const void *data,
                         size_t dlen)
{
	CHECK(from == NULL, "UCX does not tell who sent a frame");
	c->frames++;
	c->on_frame(c, hdr, hlen, data, dlen);
}

static void core_done(struct xpi_core *c, struct xpi_req *req, int status)
{
	CHECK(!c->hands_off, "done() after quiesce");
	CHECK(status <= 0, "done with %d", status);
	c->done++;
	c->done_bad += status != XPORT_OK;
	((struct slot *)req)->busy = false;
}

static void core_ep_failed(struct xpi_core *c, struct xpi_core_ep *ep, int64_t native_code, const char *why)
{
	(void)c;
	CHECK(native_code != 0 && why != NULL && why[0] != '\0');
	ep->failed++;
}

static int core_same_user(struct xpi_core *core, struct xpi_core_ep *ep)
{
	(void)core;
	(void)ep;
	return XPORT_OK; /* both sides are of this process */
}

const struct xpi_core_ops core_ops = {
	.am_recv = core_am_recv, .done = core_done, .ep_failed = core_ep_failed, .same_user = core_same_user};

static void on_log(void *arg, int level, const char *id, const char *line)
{
	struct side *s = arg;

	if (level <= XPORT_LOG_WARN) {
		s->warnings++;
		say("  [%s] %s\n", id, line);
	} else if (getenv("BE_TEST_VERBOSE") != NULL) {
		say("  (%s) %s\n", id, line);
	}
}

void load(struct side *s)
{
	void *handle = dlopen(module_path, RTLD_NOW | RTLD_LOCAL);

	CHECK(handle != NULL, "%s", dlerror());
	s->ops = dlsym(handle, "xpi_backend");
	CHECK(s->ops != NULL && s->ops->abi == XPI_BACKEND_ABI);
	s->log = (struct xpi_log){.level = XPORT_LOG_DEBUG, .fn = on_log, .arg = s, .fd = -1};
	s->err.size = sizeof(s->err);
	s->core.slots = calloc(SLOTS, sizeof(struct slot));
	CHECK(s->core.slots != NULL);
}

void open_side(struct side *s, const char *provider)
{
	struct xpi_be_open_args args = {.provider = strcmp(provider, "default") == 0 ? NULL : provider,
	                                .core = &s->core,
	                                .up = &core_ops,
	                                .log = &s->log,
	                                .err = &s->err,
	                                .peer_timeout_ms = PEER_TIMEOUT_MS};
	int rc;

	load(s);
	rc = s->ops->open(&args, &s->be);
	CHECK(rc == XPORT_OK, "%d %s", rc, s->err.text);
	s->ops->query(s->be, &s->caps);
	CHECK(strcmp(s->caps.provider, provider) == 0 && s->caps.am_max >= 4096 && s->caps.poll_ms == 0);
}

int poll_be(struct side *s)
{
	int n = s->ops->poll(s->be);

	CHECK(n >= 0);
	return n;
}

/* ---- the control channel ---- */

void put_msg(struct side *s, const void *buf, size_t len)
{
	CHECK(send(s->sock, buf, len, MSG_NOSIGNAL) == (ssize_t)len, "%m");
}

/* Waits for a message of the peer, polling the back end meanwhile. */
size_t get_msg(struct side *s, void *buf, size_t size)
{
	double end = now() + 20;
	ssize_t n;

	for (;;) {
		n = recv(s->sock, buf, size, MSG_DONTWAIT);
		if (n > 0)
			return (size_t)n;
		CHECK(n < 0 && errno == EAGAIN, "peer is gone");
		CHECK(now() < end, "no message from the peer");
		if (s->be == NULL || poll_be(s) == 0)
			usleep(100);
	}
}

void barrier(struct side *s)
{
	char c = 'b';

	put_msg(s, &c, 1);
	CHECK(get_msg(s, &c, 1) == 1);
}

/* ---- endpoints ---- */

void conn_prepare(struct side *s, struct conn *c)
{
	size_t len = sizeof(c->addr);

	memset(c, 0, sizeof(*c));
	c->ep = calloc(1, s->caps.ep_size);
	CHECK(c->ep != NULL);
	CHECK(s->ops->address(s->be, c->ep, &c->core_ep, c->addr, &len) == XPORT_OK && len > 2 && len <= 2048);
	put_msg(s, c->addr, len);
	c->len = get_msg(s, c->addr, sizeof(c->addr));
}

void conn_finish(struct side *s, struct conn *c)
{
	double end = now() + 10;
	int rc;

	while ((rc = s->ops->ep_connect(s->be, c->ep, s->role, c->addr, c->len)) == XPORT_ERR_AGAIN) {
		poll_be(s);
		CHECK(now() < end, "ep_connect does not end");
	}
	CHECK(rc == XPORT_OK, "%d %s", rc, s->err.text);
}

struct conn *conn_new(struct side *s)
{
	struct conn *c = malloc(sizeof(*c));

	CHECK(c != NULL);
	conn_prepare(s, c);
	conn_finish(s, c);
	barrier(s);
	return c;
}

/* Returns the seconds it took. */
double conn_quiesce(struct side *s, struct conn *c)
{
	double start = now();
	int rc;

	while ((rc = s->ops->ep_quiesce(s->be, c->ep)) == XPORT_ERR_AGAIN) {
		poll_be(s);
		CHECK(now() - start < 3, "quiesce does not end");
	}
	CHECK(rc == XPORT_OK);
	return now() - start;
}

void conn_free(struct side *s, struct conn *c)
{
	conn_quiesce(s, c);
	s->ops->ep_destroy(s->be, c->ep);
	free(c->ep);
	free(c);
}

void close_side(struct side *s)
{
	s->ops->close(s->be);
	s->be = NULL;
	CHECK(s->warnings == 0, "%lu warnings", s->warnings);
}

/* ---- frames: u64 sequence number, then bytes that follow from it ---- */

unsigned char byte_of(uint64_t seq, size_t i)
{
	return (unsigned char)(seq * 131 + i * 7);
}

void frame_fill(unsigned char *p, size_t len, uint64_t seq)
{
	for (size_t i = 0; i < len; i++)
		p[i] = i < 8 ? (unsigned char)(seq >> (8 * i)) : byte_of(seq, i);
}

void frame_check(struct xpi_core *c, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	const unsigned char *h = hdr, *d = data;
	size_t len = hlen + dlen;

	for (size_t i = 0; i < len; i++) {
		unsigned char b = i < hlen ? h[i] : d[i - hlen];

		CHECK(b == (i < 8 ? (unsigned char)(c->next >> (8 * i)) : byte_of(c->next, i)),
		      "frame %lu of %zu bytes differs at %zu", (unsigned long)c->next, len, i);
	}
	c->next++;
	c->last_len = len;
}

struct slot *slot_get(struct side *s, bool wait)
{
	double end = now() + 20;

	for (;;) {
		for (int i = 0; i < SLOTS; i++)
			if (!s->core.slots[i].busy)
				return &s->core.slots[i];
		if (!wait)
			return NULL;
		poll_be(s);
		CHECK(now() < end, "no request ends");
	}
}

/* Sends one frame cut at `hlen`; waits while AGAIN, if `wait`.  Returns the last status. */
int frame_send(struct side *s, struct conn *c, uint64_t seq, size_t len, size_t hlen, bool wait)
{
	struct slot *slot = slot_get(s, wait);
	double end = now() + 20;
	int rc;

	if (slot == NULL)
		return XPORT_ERR_AGAIN;
	frame_fill(slot->bytes, len, seq);
	slot->busy = true;
	for (;;) {
		rc = hlen < len ? s->ops->am_send_two(s->be, c->ep, slot->bytes, hlen, slot->bytes + hlen, len - hlen,
		                                      &slot->req)
		                : s->ops->am_send(s->be, c->ep, slot->bytes, len, &slot->req);
		if (rc != XPORT_ERR_AGAIN)
			break;
		s->core.agains++;
		if (!wait)
			break;
		poll_be(s);
		CHECK(now() < end, "AGAIN for ever");
	}
	s->core.pendings += rc == XPI_PENDING;
	if (rc != XPI_PENDING)
		slot->busy = false;
	return rc;
}

/* 20 s without a single one are a failure, however long all of them take on a busy machine. */
void await_frames(struct side *s, unsigned long n)
{
	unsigned long seen = s->core.frames;
	double end = now() + 20;

	while (s->core.frames < n) {
		poll_be(s);
		if (s->core.frames != seen)
			end = now() + 20;
		seen = s->core.frames;
		CHECK(now() < end, "only %lu of %lu frames came", s->core.frames, n);
	}
}

void *side_ucp(const char *name)
{
	void *handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	void *fn = handle != NULL ? dlsym(handle, name) : NULL;

	CHECK(fn != NULL, "%s", name);
	return fn;
}
