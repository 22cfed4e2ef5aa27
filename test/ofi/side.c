/* SPDX-License-Identifier: BSD-3-Clause */
#include "side.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <time.h>

const struct xpi_backend *ops;
struct xport_error err = {.size = sizeof(err)};
struct xpi_log quiet = {.level = 0, .fd = -1};
struct side A, B, C;
struct end a, b, c, d;
char line[512];

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

uint8_t byte_of(uint64_t seq, size_t i)
{
	return (uint8_t)(seq * 131 + i * 7);
}

/* Frames are numbered by instance, in their first byte and by their contents. */
static void am_recv(struct xpi_core *core, struct xpi_core_ep *from, const void *hdr, size_t hlen, const void *data,
                    size_t dlen)
{
	struct side *s = (struct side *)core;
	const uint8_t *head = hdr, *rest = data;

	for (size_t i = 0; i < hlen + dlen; i++)
		CHECK((i < hlen ? head[i] : rest[i - hlen]) == byte_of(s->frames, i), "frame %lu of %zu differs at %zu",
		      s->frames, hlen + dlen, i);
	s->frames++;
	if (from != NULL)
		from->frames++;
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

static int same_user(struct xpi_core *core, struct xpi_core_ep *ep)
{
	(void)core;
	(void)ep;
	return XPORT_OK; /* both sides are of this process */
}

static const struct xpi_core_ops up = {
	.am_recv = am_recv, .done = on_done, .ep_failed = on_failed, .same_user = same_user};

int try_open(struct side *s, const char *provider)
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

void open_side(struct side *s, const char *provider)
{
	int rc = try_open(s, provider);

	CHECK(rc == XPORT_OK, "%d %s", rc, err.text);
	ops->query(s->be, &s->caps);
	CHECK(strcmp(s->caps.provider, provider) == 0 && s->caps.am_max >= 4096);
}

void prepare(struct end *e, struct side *s)
{
	memset(e, 0, sizeof(*e));
	e->side = s;
	e->ep = calloc(1, s->caps.ep_size);
	e->len = sizeof(e->addr);
	CHECK(e->ep != NULL && ops->address(s->be, e->ep, &e->core_ep, e->addr, &e->len) == XPORT_OK, "%s", err.text);
}

void run_both(struct side *one, struct side *other, int ms)
{
	for (int64_t end = now_ms() + ms; now_ms() < end;) {
		CHECK(ops->poll(one->be) >= 0 && ops->poll(other->be) >= 0);
		usleep(100);
	}
}

void join(struct end *from, struct end *to)
{
	int ra = XPORT_ERR_AGAIN, rb = XPORT_ERR_AGAIN;

	for (int64_t end = now_ms() + 10000; ra == XPORT_ERR_AGAIN || rb == XPORT_ERR_AGAIN;) {
		if (rb == XPORT_ERR_AGAIN)
			rb = ops->ep_connect(to->side->be, to->ep, XPI_PASSIVE, from->addr, from->len);
		if (ra == XPORT_ERR_AGAIN)
			ra = ops->ep_connect(from->side->be, from->ep, XPI_ACTIVE, to->addr, to->len);
		run_both(from->side, to->side, 1);
		CHECK(now_ms() < end, "not connected");
	}
	CHECK(ra == XPORT_OK && rb == XPORT_OK, "%d %d %s", ra, rb, err.text);
}

void leave(struct end *e)
{
	while (ops->ep_quiesce(e->side->be, e->ep) == XPORT_ERR_AGAIN)
		CHECK(ops->poll(e->side->be) >= 0);
	ops->ep_destroy(e->side->be, e->ep);
	memset(e->ep, 0xee, e->side->caps.ep_size);
	free(e->ep);
}

int send_frame(struct end *e, uint64_t seq, size_t len, size_t cut)
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
	if (rc == XPORT_OK)
		memset(slot->bytes, 0xee, len); /* they are ours again */
	return rc;
}

bool busy(const struct side *s)
{
	for (int i = 0; i < SLOTS; i++) {
		if (s->slots[i].busy)
			return true;
	}
	return false;
}

void must_send(struct end *from, struct end *to, uint64_t seq, size_t len, size_t cut)
{
	int rc;

	for (int64_t end = now_ms() + 10000; (rc = send_frame(from, seq, len, cut)) == XPORT_ERR_AGAIN;) {
		run_both(from->side, to->side, 1);
		CHECK(now_ms() < end, "AGAIN for ever");
	}
	CHECK(rc >= 0, "%d %s", rc, err.text);
}

void await(struct end *from, struct end *to, unsigned long frames)
{
	for (int64_t end = now_ms() + 10000; to->side->frames < frames;) {
		run_both(from->side, to->side, 1);
		CHECK(now_ms() < end, "%lu of %lu frames came", to->side->frames, frames);
	}
}

void open_ends(const char *provider)
{
	open_side(&A, provider);
	open_side(&B, provider);
	prepare(&a, &A);
	prepare(&b, &B);
}

void open_pair(const char *provider)
{
	open_ends(provider);
	join(&a, &b);
}

void close_ends(void)
{
	leave(&a);
	leave(&b);
	ops->close(A.be);
	ops->close(B.be);
}

static void take_line(void *arg, int level, const char *id, const char *text)
{
	(void)level;
	if (strstr(id, arg) != NULL)
		snprintf(line, sizeof(line), "%s", text);
}

void listen_for(const char *id)
{
	quiet.level = XPORT_LOG_INFO;
	quiet.fn = take_line;
	quiet.arg = (void *)(uintptr_t)id;
}

bool where(const struct end *e, struct sockaddr_storage *sa, socklen_t *len)
{
	*len = e->addr[OFI_HOST + OFI_COOKIE + 1];
	memcpy(sa, e->addr + OFI_HOST + OFI_COOKIE + 2, *len < sizeof(*sa) ? *len : 0);
	return sa->ss_family == AF_INET || sa->ss_family == AF_INET6;
}

bool own_dev_shm(const char *options)
{
	return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", "/dev/shm", "tmpfs", 0, options) == 0;
}

int count_names(const char *beginning)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *e;
	int n = 0;

	CHECK(dir != NULL);
	while ((e = readdir(dir)) != NULL)
		n += strncmp(e->d_name, beginning, strlen(beginning)) == 0;
	closedir(dir);
	return n;
}
