/* SPDX-License-Identifier: BSD-3-Clause */
/* harness.c - checks, time, and messages between roles. */
#include "harness.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "shared.h"

/* ---- check ---- */

/* The first verdict counts; what follows from it is noise. */
static void verdict(struct h *h, int outcome, const char *text)
{
	int none = H_PASSED;

	if (atomic_compare_exchange_strong(&h->shared->verdict, &none, outcome))
		snprintf(h->shared->text, sizeof(h->shared->text), "%s", text);
	_exit(outcome == H_SKIPPED ? 0 : 1);
}

void h_fail(struct h *h, const char *file, int line, const char *what, const char *fmt, ...)
{
	char text[4096], why[3000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	snprintf(text, sizeof(text), "%s:%d: role %d: %s: %s", file, line, h->role, what, why);
	verdict(h, H_FAILED, text);
	__builtin_unreachable();
}

void h_check_status(struct h *h, const char *file, int line, const char *what, int expected, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == expected)
		return;
	if (xport_last_error(h->x, &e) != XPORT_OK)
		snprintf(e.text, sizeof(e.text), "no last error");
	h_fail(h, file, line, what, "expected %s, is %s (%d); last error: %s: %s: %s [%s] %s",
	       xport_status_name(expected), xport_status_name(status), status, e.operation, xport_status_name(e.status),
	       e.text, e.native, e.hint);
}

void h_check_equal(struct h *h, const char *file, int line, const char *what, uint64_t expected, uint64_t value)
{
	if (value != expected)
		h_fail(h, file, line, what, "expected %" PRIu64 " (0x%" PRIx64 "), is %" PRIu64 " (0x%" PRIx64 ")",
		       expected, expected, value, value);
}

void h_skip(struct h *h, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	verdict(h, H_SKIPPED, text);
	__builtin_unreachable();
}

void h_record(struct h *h, const char *name, uint64_t value)
{
	unsigned i = atomic_fetch_add(&h->shared->nfigures, 1);

	if (i >= sizeof(h->shared->figures) / sizeof(h->shared->figures[0]))
		return;
	snprintf(h->shared->figures[i].name, sizeof(h->shared->figures[i].name), "%s", name);
	h->shared->figures[i].value = value;
}

void h_expect_log(struct h *h, const char *text)
{
	struct h_role_shared *r = &h->shared->role[h->role];
	unsigned i = atomic_load(&r->nexpect);

	H_TRUE(i < sizeof(r->expect) / sizeof(r->expect[0]));
	snprintf(r->expect[i], sizeof(r->expect[i]), "%s", text);
	atomic_store(&r->nexpect, i + 1);
}

int h_count_log(struct h *h, const char *text)
{
	int n = 0;
	const char *p = h->shared->role[h->role].log;

	while ((p = strstr(p, text)) != NULL) {
		n++;
		p += strlen(text);
	}
	return n;
}

/* ---- time ---- */

enum { STALL_US = 1000000 };

static struct h_shared *clock_of;

static int64_t monotonic_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void h_clock_of(struct h_shared *sh)
{
	if (sh != NULL)
		atomic_store(&sh->tick_us, monotonic_us());
	clock_of = sh;
}

void h_tick(struct h_shared *sh)
{
	int64_t now = monotonic_us(), gap = now - atomic_load(&sh->tick_us);

	if (gap > STALL_US)
		atomic_fetch_add(&sh->stalled_us, gap - STALL_US);
	atomic_store(&sh->tick_us, now); /* second: who sees it has the sum as well */
}

int64_t h_now_us(void)
{
	int64_t now = monotonic_us(), most;

	if (clock_of == NULL)
		return now;
	most = atomic_load(&clock_of->tick_us) + STALL_US;
	return (now < most ? now : most) - atomic_load(&clock_of->stalled_us);
}

int h_scale(void)
{
	const char *s = getenv("H_TIMEOUT_SCALE");
	int n = s ? atoi(s) : 1;

	return n < 1 ? 1 : n;
}

int h_ms(int ms)
{
	return ms * h_scale();
}

bool h_instrumented(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "vgpreload");
#endif
}

void h_run_for(struct h *h, int ms)
{
	int64_t end = h_now_us() + (int64_t)ms * 1000;

	while (h_now_us() < end)
		h_breathe(h);
}

/* ---- other roles ---- */

enum { MSG_DATA = 1, MSG_SYNC = 2 };

struct head {
	uint32_t kind, len;
};

static void put_all(struct h *h, int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		H_CHECK(n > 0, "channel: %s", strerror(errno));
		p += n;
		len -= (size_t)n;
	}
}

bool h_heard(struct h *h, int role)
{
	struct pollfd p = {.fd = h->channel[role], .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* Waits on the channel; makes progress meanwhile unless the role plays idle. */
static void await(struct h *h, int role)
{
	struct pollfd p[2] = {{.fd = h->channel[role], .events = POLLIN}, {.fd = -1, .events = POLLIN}};
	int idle_rounds = 0;

	while (poll(p, 1, 0) == 0) {
		if (h->idle || !h->x) {
			poll(p, 1, 100);
			continue;
		}
		if (h_progress(h) > 0 || ++idle_rounds < 64) {
			continue;
		}
		p[1].fd = xport_fd(h->x);
		poll(p, 2, 2);
	}
}

static void get_all(struct h *h, int role, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = recv(h->channel[role], p, len, MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			await(h, role);
			continue;
		}
		H_CHECK(n > 0, "channel: %s", n ? strerror(errno) : "end");
		p += n;
		len -= (size_t)n;
	}
}

static void tell(struct h *h, int role, uint32_t kind, const void *buf, size_t len)
{
	struct head head = {kind, (uint32_t)len};

	put_all(h, h->channel[role], &head, sizeof(head));
	put_all(h, h->channel[role], buf, len);
}

static size_t hear(struct h *h, int role, uint32_t kind, void *buf, size_t max)
{
	struct head head;

	get_all(h, role, &head, sizeof(head));
	H_CHECK(head.kind == kind, "the roles are out of step: heard %u from role %d, expected %u", head.kind, role,
	        kind);
	H_CHECK(head.len <= max, "message of %u bytes, room for %zu", head.len, max);
	get_all(h, role, buf, head.len);
	return head.len;
}

void h_tell(struct h *h, int role, const void *buf, size_t len)
{
	tell(h, role, MSG_DATA, buf, len);
}

size_t h_hear(struct h *h, int role, void *buf, size_t max)
{
	return hear(h, role, MSG_DATA, buf, max);
}

void h_tell_u64(struct h *h, int role, uint64_t value)
{
	h_tell(h, role, &value, sizeof(value));
}

uint64_t h_hear_u64(struct h *h, int role)
{
	uint64_t value = 0;

	H_EQ(sizeof(value), h_hear(h, role, &value, sizeof(value)));
	return value;
}

void h_sync_with(struct h *h, int role)
{
	tell(h, role, MSG_SYNC, NULL, 0);
	hear(h, role, MSG_SYNC, NULL, 0);
}

/* Waits until there is something to hear; false if the role is gone instead. */
static bool alive_and_heard(struct h *h, int role)
{
	while (!atomic_load(&h->shared->role[role].gone)) {
		if (h_heard(h, role))
			return true;
		if (h->idle || !h->x)
			usleep(1000);
		else
			h_breathe(h);
	}
	return false;
}

void h_sync(struct h *h)
{
	for (int i = 0; i < h->nroles; i++)
		if (i != h->role && !atomic_load(&h->shared->role[i].gone))
			tell(h, i, MSG_SYNC, NULL, 0);
	for (int i = 0; i < h->nroles; i++)
		if (i != h->role && alive_and_heard(h, i))
			hear(h, i, MSG_SYNC, NULL, 0);
}

_Atomic uint64_t *h_word(struct h *h, int i)
{
	return &h->shared->words[i];
}

int h_pid(struct h *h, int role)
{
	return atomic_load(&h->shared->role[role].pid);
}

void h_kill(struct h *h, int role, int sig)
{
	atomic_store(&h->shared->role[role].gone, 1);
	H_TRUE(kill(h_pid(h, role), sig) == 0);
}

/* Returns when the process really stands still, so that times can be measured from here. */
void h_stop(struct h *h, int role)
{
	char path[64], line[512], *p;
	FILE *f;

	H_TRUE(kill(h_pid(h, role), SIGSTOP) == 0);
	snprintf(path, sizeof(path), "/proc/%d/stat", h_pid(h, role));
	for (;;) { /* the limit of the scenario ends it */
		f = fopen(path, "r");
		H_TRUE(f != NULL);
		p = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
		fclose(f);
		if (p && (p[2] == 'T' || p[2] == 't'))
			return;
		usleep(1000);
	}
}

void h_cont(struct h *h, int role)
{
	H_TRUE(kill(h_pid(h, role), SIGCONT) == 0);
}

void h_restart(struct h *h, int role)
{
	struct h_command c = {H_DO_RESTART, role};
	unsigned before = atomic_load(&h->shared->restarts);

	H_TRUE(send(h->command, &c, sizeof(c), MSG_NOSIGNAL) == sizeof(c));
	while (atomic_load(&h->shared->restarts) == before)
		usleep(1000);
}

void h_exit(struct h *h, bool abnormal)
{
	atomic_store(&h->shared->role[h->role].gone, 1);
	if (abnormal) {
		prctl(PR_SET_DUMPABLE, 0); /* to write a core takes time, in which it has not ended */
		abort();
	}
	_exit(0);
}
