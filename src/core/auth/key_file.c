/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/auth/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "core/auth/auth.h"

/* What is asked of the file itself; a symbolic link to such a one will do. */
static int key_file_check(const char *path, const struct stat *st, struct xport_error *err)
{
	char hint[160];

	if (!S_ISREG(st->st_mode))
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "name a regular file",
		                "XPORT_AUTH_KEY_FILE=%.100s is %s", path,
		                S_ISDIR(st->st_mode)    ? "a directory"
		                : S_ISFIFO(st->st_mode) ? "a named pipe"
		                                        : "not a regular file");
	if (st->st_uid != geteuid() && st->st_uid != 0) {
		snprintf(hint, sizeof(hint), "chown %u '%.100s'", (unsigned)geteuid(), path);
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, hint,
		                "XPORT_AUTH_KEY_FILE=%.100s belongs to user %u, neither to this one (%u) nor to root",
		                path, (unsigned)st->st_uid, (unsigned)geteuid());
	}
	if ((st->st_mode & 077) != 0) {
		snprintf(hint, sizeof(hint), "chmod 600 '%.100s'", path);
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, hint,
		                "XPORT_AUTH_KEY_FILE=%.100s has mode %04o: others than its owner may use it", path,
		                (unsigned)(st->st_mode & 07777));
	}
	return XPORT_OK;
}

/* At most XPI_KEY_FILE_ROOM bytes; minus an errno. */
static ssize_t key_file_read(int fd, uint8_t *buf)
{
	size_t n = 0;

	while (n < XPI_KEY_FILE_ROOM) {
		ssize_t got = read(fd, buf + n, XPI_KEY_FILE_ROOM - n);

		if (got < 0 && errno == EINTR) /* LCOV_EXCL_BR_LINE: only some file systems let a signal interrupt it */
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	return (ssize_t)n;
}

static int key_file_take(const char *path, int fd, uint8_t *buf, size_t *len, struct xport_error *err)
{
	ssize_t n = key_file_read(fd, buf);

	if (n < 0) {
		errno = (int)-n;
		return xpi_fail_errno(err, XPORT_ERR_CONFIG, NULL, "XPORT_AUTH_KEY_FILE: cannot read %.200s", path);
	}
	if (n > 0 && buf[n - 1] == '\n')
		n--;
	if (n < XPI_SECRET_MIN || n > XPI_SECRET_MAX)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL,
		                "make a key by: (umask 077 && head -c 32 /dev/urandom | base64 >FILE)",
		                "XPORT_AUTH_KEY_FILE=%.100s has %s than %d bytes", path,
		                n < XPI_SECRET_MIN ? "fewer" : "more",
		                n < XPI_SECRET_MIN ? XPI_SECRET_MIN : XPI_SECRET_MAX);
	*len = (size_t)n;
	return XPORT_OK;
}

int xpi_key_file(const char *path, uint8_t *buf, size_t *len, struct xport_error *err)
{
	/* O_NONBLOCK: a named pipe without a writer is refused, not waited for. */
	int rc, fd = xpi_fd_up(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
	struct stat st;

	if (fd < 0)
		return xpi_fail_errno(err, XPORT_ERR_CONFIG, NULL, "XPORT_AUTH_KEY_FILE: cannot open %.200s", path);
	if (fstat(fd, &st) != 0)
		rc = xpi_fail_errno(err, XPORT_ERR_CONFIG, NULL, "XPORT_AUTH_KEY_FILE: cannot look at %.200s", path);
	else
		rc = key_file_check(path, &st, err);
	if (rc == XPORT_OK)
		rc = key_file_take(path, fd, buf, len, err);
	close(fd);
	return rc;
}
