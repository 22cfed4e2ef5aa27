/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOWEST = 3 };

int xpi_fd_up(int fd)
{
	int up, e;

	if (fd < 0 || fd >= LOWEST)
		return fd;
	up = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST);
	e = errno;
	close(fd);
	errno = e;
	return up;
}

FILE *xpi_fd_stream(const char *path)
{
	int e, fd = xpi_fd_up(open(path, O_RDONLY | O_CLOEXEC));
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (f == NULL && fd >= 0) {
		e = errno;
		close(fd);
		errno = e;
	}
	return f;
}

DIR *xpi_fd_dir(const char *path)
{
	int e, fd = xpi_fd_up(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (dir == NULL && fd >= 0) {
		e = errno;
		close(fd);
		errno = e;
	}
	return dir;
}

void xpi_fd_fill(void)
{
	int fd, e = errno;

	for (int low = 0; low < LOWEST; low++) {
		if (fcntl(low, F_GETFD) >= 0)
			continue;
		/* The lowest free number is taken, so this is `low`, unless another thread was faster. */
		fd = open("/dev/null", O_PATH | O_CLOEXEC);
		if (fd < 0) /* no /dev here: reading and writing an epoll set fail as well */
			fd = epoll_create1(EPOLL_CLOEXEC);
		if (fd >= LOWEST)
			close(fd);
	}
	errno = e;
}

struct xpi_fd_id xpi_fd_identify(int fd)
{
	struct xpi_fd_id id = {0};
	int e = errno;
	struct stat st;

	if (fstat(fd, &st) == 0)
		id = (struct xpi_fd_id){st.st_dev, st.st_ino, true};
	errno = e;
	return id;
}

bool xpi_fd_is(int fd, const struct xpi_fd_id *id)
{
	struct xpi_fd_id now = xpi_fd_identify(fd);

	return id->known && now.known && now.dev == id->dev && now.ino == id->ino;
}
