/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fd.h - descriptors that are never 0, 1 or 2.
 *
 * A daemon may close its standard streams.  A socket or memory file that got one of their numbers would receive whatever the
 * process prints.  So every descriptor of the library is moved above 2, by xpi_fd_up around the call that creates it.  The
 * stacks create descriptors of their own: xpi_fd_fill puts placeholders at the free low numbers before they do.
 */
#ifndef XPI_BASE_FD_H
#define XPI_BASE_FD_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* Moves a new descriptor above 2 and sets close-on-exec if it had to move.  Passes -1 through.  -1: errno says why. */
int xpi_fd_up(int fd);

/* fopen(3) for reading, and opendir(3), above 2 and close-on-exec. */
FILE *xpi_fd_stream(const char *path);
DIR *xpi_fd_dir(const char *path);

/*
 * Puts a placeholder at each of 0, 1 and 2 that is closed, and leaves it there.  It is /dev/null opened with O_PATH and
 * close-on-exec: reading and writing it fail with EBADF, as they did before.  Preserves errno.
 */
void xpi_fd_fill(void);

/* Which file a descriptor stands for. */
struct xpi_fd_id {
	dev_t dev;
	ino_t ino;
	bool known;
};

/* Unknown if the descriptor is closed.  Preserves errno. */
struct xpi_fd_id xpi_fd_identify(int fd);
/* Whether the descriptor still stands for that file.  Preserves errno. */
bool xpi_fd_is(int fd, const struct xpi_fd_id *id);

#endif
