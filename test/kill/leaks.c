/* SPDX-License-Identifier: BSD-3-Clause */
#include "leaks.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <malloc.h>
#include <sys/socket.h>

enum { HALF_OPEN_MS = 6000, LARGE = 64 << 10 };

static int count_dir(const char *path)
{
	struct dirent *e;
	DIR *d = opendir(path);
	int n = 0;

	while (d && (e = readdir(d)) != NULL)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static long rss_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long all = 0, resident = 0;

	if (f && fscanf(f, "%ld %ld", &all, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

void leaks_begin(void)
{
	mallopt(M_MMAP_THRESHOLD, LARGE);
}

struct leaks leaks_now(void)
{
	struct mallinfo2 m = mallinfo2();
	struct leaks l = {.heap = (long)m.uordblks, .large = (long)m.hblkhd, .rss = rss_kib()};

	l.fds = count_dir("/proc/self/fd");
	l.files = count_dir("/dev/shm");
	return l;
}

static int port_of(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_in sa = {0};
	socklen_t len = sizeof(sa);

	return name(fd, (struct sockaddr *)&sa, &len) == 0 && sa.sin_family == AF_INET ? ntohs(sa.sin_port) : 0;
}

static int local_name(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getsockname(fd, sa, len);
}

static int peer_name(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getpeername(fd, sa, len);
}

/* What they are, for who has to find out. */
static void list_fds(struct h *h)
{
	char path[64], text[256], all[3000] = "";

	for (int fd = 0; fd < 4096; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, text, sizeof(text) - 1);
		if (n <= 0)
			continue;
		text[n] = 0;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%d=%.40s:%d>%d ", fd, text,
		         port_of(fd, local_name), port_of(fd, peer_name));
	}
	H_CHECK(false, "descriptors are left open: %s", all);
}

void leaks_check(struct actor *a, const struct leaks *first)
{
	struct xport_counters c = {.size = sizeof(c)};
	struct h *h = a->h;
	/* A connection that a victim had half made may be kept for 5 s. */
	int64_t end = h_now_us() + (int64_t)h_ms(HALF_OPEN_MS) * 1000;

	while (leaks_now().fds > first->fds && h_now_us() < end)
		actor_turn(a, true);
	if (leaks_now().fds > first->fds)
		list_fds(h);
	H_OK(xport_stats(h->x, NULL, &c));
	H_EQ(0, c.in_flight);
	H_EQ(0, c.posted_receives);
	H_EQ(0, c.unmatched);
}
