/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

int64_t xpi_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

uint64_t xpi_process_start(int64_t pid)
{
	char path[48] = "/proc/self/stat", buf[1024], *p;
	ssize_t n = 0;
	int fd;

	if (pid != 0)
		snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	fd = xpi_fd_up(open(path, O_RDONLY | O_CLOEXEC));
	if (fd >= 0) {
		n = read(fd, buf, sizeof(buf) - 1);
		close(fd);
	}
	buf[n > 0 ? n : 0] = '\0';
	/* The second field is the program's name in parentheses, with anything inside; the start is the 22nd. */
	p = strrchr(buf, ')');
	for (int field = 2; p != NULL && field < 22; field++) {
		p = strchr(p, ' ');
		if (p != NULL)
			p++;
	}
	return p != NULL ? strtoull(p, NULL, 10) : 0;
}
