/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_metrics.c - counters as text. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { PAGE = 1 << 16 };

static void target(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	h_sync(h);
}

/* The number of lines that begin with `begin` and have `has`. */
static int lines(const char *page, const char *begin, const char *has)
{
	int n = 0;

	for (const char *at = page; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL) {
		const char *end = strchr(at, '\n'), *found = strstr(at, has);

		n += strncmp(at, begin, strlen(begin)) == 0 && found != NULL && found < end;
	}
	return n;
}

/* Each line is a comment, or NAME{LABELS} NUMBER; the last one is the end. */
static void well_formed(struct h *h, const char *page)
{
	size_t len = strlen(page);

	H_TRUE(len > 6 && strcmp(page + len - 6, "# EOF\n") == 0);
	for (const char *at = page; *at != '\0'; at = strchr(at, '\n') + 1) {
		const char *end = strchr(at, '\n'), *space = end;

		H_TRUE(end != NULL);
		if (*at == '#')
			continue;
		while (space > at && *space != ' ')
			space--;
		H_TRUE(strncmp(at, "xport_", 6) == 0);
		H_TRUE(space > at && strspn(space + 1, "0123456789") == (size_t)(end - space - 1));
		H_TRUE(memchr(at, '{', (size_t)(end - at)) == NULL || space[-1] == '}');
	}
}

static void user(struct h *h)
{
	char *page = h_buf(h, PAGE);
	xport_ep *twice[2];
	size_t len = PAGE, needed = 0;

	h_mesh(h, NULL);
	H_OK(xport_flush(h->ep[0], NULL));
	H_STATUS(XPORT_OK, H_EVENT(XPORT_OP_FLUSH).status);
	twice[0] = twice[1] = h->ep[0];
	H_OK(xport_stats_text(h->x, twice, 2, page, &len));
	H_EQ(strlen(page), len);
	well_formed(h, page);
	H_EQ(1, lines(page, "xport_operations_total{op=\"flush\"} 1", ""));
	H_EQ(1, lines(page, "xport_ep_operations_total{local=\"", "op=\"flush\"} 1\n"));
	H_EQ(1, lines(page, "# TYPE xport_ep_in_flight gauge", ""));

	/* None, too small, exactly enough. */
	H_STATUS(XPORT_ERR_BOUNDS, xport_stats_text(h->x, h->ep, 1, NULL, &needed));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_stats_text", "the buffer 0");
	memset(page, 'x', PAGE);
	len = needed - 1;
	H_STATUS(XPORT_ERR_BOUNDS, xport_stats_text(h->x, h->ep, 1, page, &len));
	H_EQ(needed, len);
	H_EQ('x', page[0]);
	H_OK(xport_stats_text(h->x, h->ep, 1, page, &len));
	H_EQ(needed, len + 1);
	H_EQ('x', page[needed]);
	len = PAGE;
	H_OK(xport_stats_text(h->x, NULL, 0, page, &len));
	H_EQ(0, lines(page, "xport_ep_", ""));

	/* Wrong arguments. */
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(NULL, NULL, 0, page, &len));
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, NULL, 1, page, &len));
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, NULL, 0, page, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, NULL, 0, NULL, &len));
	twice[1] = NULL;
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, twice, 2, page, &len));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_stats_text", "endpoint 1 is NULL");

	/* The peer ends: what it counted is left in the instance's. */
	h_sync(h);
	H_OK(xport_ep_close(h->ep[0], 5000));
	len = PAGE;
	H_OK(xport_stats_text(h->x, h->ep, 1, page, &len));
	H_EQ(0, lines(page, "xport_ep_", ""));
	H_EQ(1, lines(page, "xport_operations_total{op=\"flush\"} 1", ""));
	h_sync(h);
}

/* ---- latencies ---- */

enum { TIMES = 20, LONG = 1 << 20 };

static void timed_target(struct h *h)
{
	struct h_mem m;

	setenv("XPORT_LATENCY", "1", 1);
	h_mesh(h, NULL);
	m = h_mem_target(h, 4096, 0, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE);
	h_share(h, 1, &m);
	for (int i = 0; i < TIMES; i++) {
		struct xport_completion c;

		H_OK(xport_recv(h->x, h_buf(h, LONG), LONG, 1, UINT64_MAX, NULL));
		H_EQ(1, xport_wait(h->x, &c, 1, h_ms(10000)));
		H_OK(c.status);
	}
	h_sync(h);
}

/* The same xport_poll completes them, by the frames that waited, and gives them to the application. */
static void timed_sends(struct h *h)
{
	struct xport_counters n = {.size = sizeof(n)};
	uint8_t *buf = h_buf(h, LONG);
	uint64_t all = 0;

	for (int i = 0; i < TIMES; i++) {
		struct xport_completion c;
		int64_t end = h_now_us() + 1000 * h_ms(10000);
		int got = 0;

		H_OK(xport_send(h->ep[0], buf, LONG, 1, NULL));
		while (got == 0 && h_now_us() < end)
			got = xport_poll(h->x, &c, 1);
		H_EQ(1, got);
		H_OK(c.status);
	}
	H_OK(xport_stats(h->x, h->ep[0], &n));
	for (int i = 0; i < 24; i++)
		all += n.latency[XPORT_OP_SEND][i];
	H_EQ(TIMES, all);
}

/* The value of the line that begins so; -1: there is none. */
static double value_of(const char *page, const char *begin)
{
	const char *at = strstr(page, begin);

	return at == NULL ? -1 : atof(at + strlen(begin));
}

static void timed_user(struct h *h)
{
	struct xport_counters n = {.size = sizeof(n)};
	char *page = h_buf(h, PAGE), line[120];
	uint8_t *buf = h_buf(h, 4096);
	struct xport_completion c;
	uint64_t before = 0, all = 0;
	int64_t began, took;
	size_t len = PAGE;
	struct h_rkey key;

	setenv("XPORT_LATENCY", "1", 1);
	h_mesh(h, NULL);
	key = h_import(h, 0);
	began = h_now_us();
	for (int i = 0; i < TIMES; i++) {
		H_OK(xport_put(h->ep[0], buf, 4096, key.k, key.offset, NULL));
		H_OK(xport_get(h->ep[0], buf, 8, key.k, key.offset, NULL));
		H_OK(xport_flush(h->ep[0], NULL));
		for (int done = 0; done < 3; done++) {
			H_EQ(1, xport_wait(h->x, &c, 1, h_ms(10000)));
			H_OK(c.status);
		}
	}
	took = h_now_us() - began;
	H_OK(xport_stats(h->x, h->ep[0], &n));
	for (int i = 0; i < 24; i++)
		all += n.latency[XPORT_OP_PUT][i];
	H_EQ(TIMES, all);
	H_TRUE(n.latency_ns[XPORT_OP_FLUSH] > 0 && n.latency_ns[XPORT_OP_FLUSH] / 1000 <= (uint64_t)took);
	H_OK(xport_stats_text(h->x, h->ep, 1, page, &len));
	H_EQ(1, lines(page, "# TYPE xport_latency_seconds histogram", ""));
	H_EQ(1, lines(page, "# TYPE xport_ep_latency_seconds histogram", ""));
	H_EQ(24, lines(page, "xport_latency_seconds_bucket{op=\"put\",le=\"", ""));
	H_EQ(24, lines(page, "xport_ep_latency_seconds_bucket{local=\"", "op=\"get\",le=\""));
	H_EQ(0, lines(page, "xport_latency_seconds_bucket{op=\"atomic", ""));
	H_EQ(TIMES, (uint64_t)value_of(page, "xport_latency_seconds_bucket{op=\"put\",le=\"+Inf\"} "));
	H_EQ(TIMES, (uint64_t)value_of(page, "xport_latency_seconds_count{op=\"get\"} "));
	H_TRUE(value_of(page, "xport_latency_seconds_sum{op=\"flush\"} ") > 0);
	for (int i = 0; i < 23; i++) { /* each bucket has those before it */
		double v;

		snprintf(line, sizeof(line), "xport_latency_seconds_bucket{op=\"flush\",le=\"%d.%09d\"} ",
		         (int)(((int64_t)256 << i) / 1000000000), (int)(((int64_t)256 << i) % 1000000000));
		v = value_of(page, line);
		H_TRUE(v >= (double)before && v <= TIMES);
		before = (uint64_t)v;
	}
	xport_rkey_destroy(key.k);
	timed_sends(h);
	h_sync(h);
}

/* ---- in a directory ---- */

/* The only file there; "" if there is none. */
static void only_file(struct h *h, const char *dir, char file[600])
{
	DIR *d = opendir(dir);

	file[0] = '\0';
	H_TRUE(d != NULL);
	for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		H_TRUE(file[0] == '\0');
		snprintf(file, 600, "%s/%s", dir, e->d_name);
	}
	closedir(d);
}

static ino_t file_text(struct h *h, const char *file, char *page)
{
	struct stat st;
	FILE *f = fopen(file, "r");
	size_t n;

	H_TRUE(f != NULL && fstat(fileno(f), &st) == 0);
	H_EQ(0644, st.st_mode & 0777);
	n = fread(page, 1, PAGE - 1, f);
	page[n] = '\0';
	fclose(f);
	well_formed(h, page);
	return st.st_ino;
}

/* Whether another process sees the lock. */
static bool locked(const char *file)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int fd = open(file, O_RDONLY);

		_exit(fd < 0 || fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

static void publishes_wrongly(struct h *h, const char *dir)
{
	static const char *const names[] = {"", ".x", "a b", "a/b",
	                                    "1234567890123456789012345678901234567890123456789012345678901234"};
	struct xport_metrics_attr a = {.size = sizeof(a), .dir = dir};
	char path[4100];
	xport_metrics *m;

	H_STATUS(XPORT_ERR_INVALID, xport_metrics_create(NULL, &a, &m));
	H_STATUS(XPORT_ERR_INVALID, xport_metrics_create(h->x, &a, NULL));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		a.name = names[i];
		H_STATUS(XPORT_ERR_INVALID, xport_metrics_create(h->x, &a, &m));
		H_TRUE(m == NULL);
		SVC_ERROR(XPORT_ERR_INVALID, "xport_metrics_create", "cannot be a part of a file name");
	}
	a.name = NULL;
	for (int i = 0; i < 3; i++) {
		a.interval_ms = (int[]){99, -1, 3600001}[i];
		H_STATUS(XPORT_ERR_INVALID, xport_metrics_create(h->x, &a, &m));
	}
	a.interval_ms = 0;
	a.size = 8;
	H_STATUS(XPORT_ERR_INVALID, xport_metrics_create(h->x, &a, &m));
	a.size = sizeof(a);
	a.dir = "/nonexistent";
	H_STATUS(XPORT_ERR_CONFIG, xport_metrics_create(h->x, &a, &m));
	SVC_ERROR(XPORT_ERR_CONFIG, "xport_metrics_create", "/nonexistent: No such file");
	a.dir = "/dev/null";
	H_STATUS(XPORT_ERR_CONFIG, xport_metrics_create(h->x, &a, &m));
	memset(path, '/', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	a.dir = path;
	H_STATUS(XPORT_ERR_CONFIG, xport_metrics_create(h->x, &a, &m));
	a.dir = "/proc";
	H_STATUS(XPORT_ERR_SYSTEM, xport_metrics_create(h->x, &a, &m));
	SVC_ERROR(XPORT_ERR_SYSTEM, "xport_metrics_create", "cannot create /proc/.");
	setenv("XPORT_METRICS_DIR", "/nonexistent", 1);
	H_STATUS(XPORT_ERR_CONFIG, xport_metrics_create(h->x, NULL, &m));
	SVC_ERROR(XPORT_ERR_CONFIG, "xport_metrics_create", "XPORT_METRICS_DIR=/nonexistent: No such file");
	setenv("XPORT_METRICS_DIR", "", 1);
	H_OK(xport_metrics_create(h->x, NULL, &m));
	H_TRUE(m == NULL);
	unsetenv("XPORT_METRICS_DIR");
	H_OK(xport_metrics_create(h->x, NULL, &m));
	H_TRUE(m == NULL);
	H_OK(xport_metrics_publish(m, h->ep, 1));
	xport_metrics_destroy(m);
}

static void published_user(struct h *h)
{
	char dir[] = "/tmp/xport-metrics-XXXXXX", file[600], again[600], begin[80], *page = h_buf(h, PAGE);
	struct xport_metrics_attr a = {.size = sizeof(a), .name = "a.B-1_", .interval_ms = 3600000};
	int cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	xport_metrics *m;
	mode_t mask;
	ino_t first;

	h_mesh(h, NULL);
	H_TRUE(mkdtemp(dir) != NULL);
	publishes_wrongly(h, dir);
	only_file(h, dir, file);
	H_EQ(0, strlen(file));

	/* The instance alone, at once. */
	setenv("XPORT_METRICS_DIR", dir, 1);
	H_OK(xport_metrics_create(h->x, &a, &m));
	only_file(h, dir, file);
	snprintf(begin, sizeof(begin), "%s/a.B-1_-%d-", dir, (int)getpid());
	H_EQ(0, strncmp(file, begin, strlen(begin)));
	H_EQ(strlen(begin) + 16 + strlen(".xport"), strlen(file));
	/* Reading the file here drops the lock, which is the process's. */
	H_TRUE(locked(file));
	first = file_text(h, file, page);
	H_EQ(0, lines(page, "xport_ep_", ""));

	/* Nothing within the interval of an hour.  Then with the endpoint. */
	H_OK(xport_metrics_publish(m, h->ep, 1));
	H_EQ(first, file_text(h, file, page));
	xport_metrics_destroy(m);
	only_file(h, dir, again);
	H_EQ(0, strlen(again));
	/* A process with the same name has left its new text, and the umask hides files. */
	snprintf(again, sizeof(again), "%s/.%.*s.fresh", dir, (int)(strlen(file) - strlen(dir) - 1 - strlen(".xport")),
	         file + strlen(dir) + 1);
	close(open(again, O_CREAT | O_WRONLY, 0600));
	mask = umask(077);
	a.interval_ms = 100;
	/* From a relative path, which is another one for what is published later. */
	a.dir = strrchr(dir, '/') + 1;
	H_TRUE(cwd >= 0 && chdir("/tmp") == 0);
	H_OK(xport_metrics_create(h->x, &a, &m));
	H_EQ(0, fchdir(cwd));
	close(cwd);
	umask(mask);
	first = file_text(h, file, page);
	poll(NULL, 0, 120);
	H_OK(xport_metrics_publish(m, h->ep, 1));
	H_TRUE(locked(file));
	H_TRUE(file_text(h, file, page) != first);
	H_TRUE(lines(page, "xport_ep_", "") > 0);
	only_file(h, dir, again);
	H_EQ(0, strcmp(file, again));

	/* It cannot be replaced: nothing else is left. */
	unlink(file);
	H_EQ(0, mkdir(file, 0700));
	poll(NULL, 0, 120);
	H_STATUS(XPORT_ERR_SYSTEM, xport_metrics_publish(m, h->ep, 1));
	SVC_ERROR(XPORT_ERR_SYSTEM, "xport_metrics_publish", "cannot rename");
	only_file(h, dir, again);
	H_EQ(0, strcmp(file, again));
	H_EQ(0, rmdir(file));
	poll(NULL, 0, 120);
	H_OK(xport_metrics_publish(m, h->ep, 1));
	xport_metrics_destroy(m);
	H_EQ(0, rmdir(dir));
	unsetenv("XPORT_METRICS_DIR");
	h_sync(h);
	h_sync(h);
}

const struct h_scenario svc_cases_metrics[] = {
	{.name = "metrics_as_text", .role = {target, user}},
	{.name = "metrics_latency", .role = {timed_target, timed_user}, .flags = H_ONCE},
	{.name = "metrics_published", .role = {target, published_user}, .flags = H_ONCE},
	{.name = NULL},
};
