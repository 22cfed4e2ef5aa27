/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.c - the counters of an instance in a directory, where xport_exporter finds them.
 *
 * The text is written to a hidden file, which is locked and then renamed. The lock is the process's (fcntl): the kernel drops it
 * when the process ends, in whatever way, and a child does not inherit it. It also works between PID namespaces.
 * A process that reads its own file drops the lock when it closes it, until the next text.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/clock.h"
#include "services/group_fd.h"
#include "services/grow.h"
#include "services/last_error.h"

enum {
	NAME_MAX_BYTES = 63,
	DIR_MAX_BYTES = 3900,
	PATH_BYTES = 4096,
	TEXT_MAX = 16 << 20,
	HOUR_MS = 3600 * 1000,
	SKIPS = 60
};

static const char metrics_create_op[] = "xport_metrics_create", metrics_publish_op[] = "xport_metrics_publish";

struct xport_metrics {
	xport *x;
	char *text;
	size_t size; /* of text */
	int64_t due_ms;
	size_t many; /* so many endpoints had a text too long; SIZE_MAX: none had */
	int skips;   /* texts before so many endpoints are tried again */
	int interval_ms;
	int fd; /* the published file, locked; -1: none yet */
	char file[PATH_BYTES], fresh[PATH_BYTES];
};

static const char name_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

/* The program's name with other bytes replaced. */
static void name_default(char name[NAME_MAX_BYTES + 1])
{
	snprintf(name, NAME_MAX_BYTES + 1, "%s", program_invocation_short_name);
	for (char *c = name; *c != '\0'; c++)
		if (strchr(name_bytes, *c) == NULL || (c == name && *c == '.'))
			*c = '_';
	if (name[0] == '\0')
		strcpy(name, "_");
}

static int metrics_attr_check(const struct xport_metrics_attr *a)
{
	const char *name = a->name;

	if (name != NULL && (name[0] == '\0' || name[0] == '.' || strlen(name) > NAME_MAX_BYTES ||
	                     strspn(name, name_bytes) != strlen(name)))
		return svc_fail(XPORT_ERR_INVALID, metrics_create_op, "use up to 63 of A-Z a-z 0-9 . _ -, no dot first",
		                "attr->name \"%.100s\" cannot be a part of a file name", name);
	if (a->interval_ms != 0 && (a->interval_ms < 100 || a->interval_ms > HOUR_MS))
		return svc_fail(XPORT_ERR_INVALID, metrics_create_op, NULL,
		                "attr->interval_ms=%d is not 100 to 3600000", a->interval_ms);
	return XPORT_OK;
}

/* Sets `whole` to the absolute path: the program may change its working directory later. */
static int metrics_dir_check(const char *dir, bool variable, char whole[PATH_MAX])
{
	struct stat st;

	if (strlen(dir) > DIR_MAX_BYTES)
		return svc_fail(XPORT_ERR_CONFIG, metrics_create_op, NULL,
		                "the path of the directory is longer than %d bytes", (int)DIR_MAX_BYTES);
	if (realpath(dir, whole) == NULL || stat(whole, &st) != 0)
		return svc_fail(XPORT_ERR_CONFIG, metrics_create_op, "make the directory first", "%s%.200s: %s",
		                variable ? "XPORT_METRICS_DIR=" : "", dir, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return svc_fail(XPORT_ERR_CONFIG, metrics_create_op, "name a directory", "%s%.200s is not a directory",
		                variable ? "XPORT_METRICS_DIR=" : "", dir);
	if (strlen(whole) > DIR_MAX_BYTES)
		return svc_fail(XPORT_ERR_CONFIG, metrics_create_op, NULL,
		                "the absolute path of the directory is longer than %d bytes", (int)DIR_MAX_BYTES);
	return XPORT_OK;
}

static int metrics_system(const char *op, const char *what, const char *file)
{
	return svc_fail(XPORT_ERR_SYSTEM, op, "the directory must be local and writable, with space left",
	                "cannot %s %.200s: %s", what, file, strerror(errno));
}

static bool write_all(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n == 0 ? ENOSPC : errno;
			return false;
		}
		text += n;
		len -= (size_t)n;
	}
	return true;
}

/* A file that is there already was left by a process that ended while it wrote. */
static int metrics_open(const struct xport_metrics *m)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, fd = svc_fd_open(m->fresh, flags, 0644);

	if (fd < 0 && errno == EEXIST && unlink(m->fresh) == 0)
		fd = svc_fd_open(m->fresh, flags, 0644);
	return fd;
}

/* Locks the new file before it has its name: a file without a lock belongs to a process that has ended. */
static int metrics_write(struct xport_metrics *m, size_t len, const char *op)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int r, fd = metrics_open(m);

	if (fd < 0)
		return metrics_system(op, "create", m->fresh);
	if (fcntl(fd, F_SETLK, &lock) != 0)
		r = metrics_system(op, "lock", m->fresh);
	else if (fchmod(fd, 0644) != 0) /* whatever the umask is */
		r = metrics_system(op, "set the mode of", m->fresh);
	else if (!write_all(fd, m->text, len))
		r = metrics_system(op, "write", m->fresh);
	else if (rename(m->fresh, m->file) != 0)
		r = metrics_system(op, "rename", m->fresh);
	else
		r = XPORT_OK;
	if (r != XPORT_OK) {
		unlink(m->fresh);
		close(fd);
		return r;
	}
	if (m->fd >= 0)
		close(m->fd);
	m->fd = fd;
	return XPORT_OK;
}

/* The text of the instance and these endpoints, or of the instance alone if that is too long. */
static int metrics_text(struct xport_metrics *m, xport_ep *const *eps, size_t n, size_t *len, const char *op)
{
	if (n >= m->many && --m->skips > 0)
		n = 0;
	for (;;) {
		char *more;
		int r;

		*len = m->size;
		r = xport_stats_text(m->x, eps, n, m->text, len);
		if (r != XPORT_OK && r != XPORT_ERR_BOUNDS)
			return r;
		if (*len > TEXT_MAX && n > 0) {
			m->many = n;
			m->skips = SKIPS;
			n = 0;
			continue;
		}
		if (r == XPORT_OK) {
			if (n > 0)
				m->many = SIZE_MAX;
			return r;
		}
		*len += *len / 4; /* it grows with its numbers */
		more = realloc(m->text, *len);
		if (more == NULL)
			return svc_fail(XPORT_ERR_NO_MEMORY, op, NULL, "out of memory");
		m->text = more;
		m->size = *len;
	}
}

static int metrics_now(struct xport_metrics *m, xport_ep *const *eps, size_t n, const char *op)
{
	size_t len;
	int r = metrics_text(m, eps, n, &len, op);

	return r != XPORT_OK ? r : metrics_write(m, len, op);
}

int xport_metrics_create(xport *x, const struct xport_metrics_attr *attr, xport_metrics **metrics)
{
	struct xport_info info = {.size = sizeof(info)};
	char name[NAME_MAX_BYTES + 1], whole[PATH_MAX];
	struct xport_metrics_attr a;
	struct xport_metrics *m;
	const char *dir;
	int r;

	if (x == NULL || metrics == NULL)
		return svc_fail(XPORT_ERR_INVALID, metrics_create_op, NULL, "%s is NULL",
		                x == NULL ? "the instance" : "metrics");
	*metrics = NULL;
	r = svc_grow_in(&a, sizeof(a), SVC_FIRST_METRICS_ATTR, attr, metrics_create_op, "xport_metrics_attr");
	if (r == XPORT_OK)
		r = metrics_attr_check(&a);
	if (r != XPORT_OK)
		return r;
	dir = a.dir != NULL ? a.dir : secure_getenv("XPORT_METRICS_DIR");
	if (dir == NULL || dir[0] == '\0')
		return XPORT_OK;
	r = metrics_dir_check(dir, a.dir == NULL, whole);
	if (r != XPORT_OK)
		return r;
	r = xport_query(x, &info);
	if (r != XPORT_OK)
		return svc_pass(x, r, metrics_create_op);
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, metrics_create_op, NULL, "out of memory");
	m->x = x;
	m->fd = -1;
	m->many = SIZE_MAX;
	m->interval_ms = a.interval_ms != 0 ? a.interval_ms : 1000;
	name_default(name);
	snprintf(m->file, sizeof(m->file), "%.*s/%s-%lld-%016" PRIx64 ".xport", (int)DIR_MAX_BYTES, whole,
	         a.name != NULL ? a.name : name, (long long)getpid(), info.incarnation);
	snprintf(m->fresh, sizeof(m->fresh), "%.*s/.%s-%lld-%016" PRIx64 ".fresh", (int)DIR_MAX_BYTES, whole,
	         a.name != NULL ? a.name : name, (long long)getpid(), info.incarnation);
	r = metrics_now(m, NULL, 0, metrics_create_op);
	if (r != XPORT_OK) {
		xport_metrics_destroy(m);
		return r;
	}
	m->due_ms = svc_coarse_ms() + m->interval_ms;
	*metrics = m;
	return XPORT_OK;
}

int xport_metrics_publish(xport_metrics *m, xport_ep *const *eps, size_t n)
{
	int64_t now;

	if (m == NULL)
		return XPORT_OK;
	now = svc_coarse_ms();
	if (now < m->due_ms)
		return XPORT_OK;
	m->due_ms = now + m->interval_ms;
	return metrics_now(m, eps, n, metrics_publish_op);
}

void xport_metrics_destroy(xport_metrics *m)
{
	if (m == NULL)
		return;
	if (m->fd >= 0) {
		unlink(m->file);
		close(m->fd);
	}
	free(m->text);
	free(m);
}
