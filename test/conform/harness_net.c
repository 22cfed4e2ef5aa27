/* SPDX-License-Identifier: BSD-3-Clause */
/* harness_net.c - raw TCP sockets and the proxy. */
#include "harness_net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static int raw_listen(char *address, size_t len)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, 64) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
		return -1;
	snprintf(address, len, "127.0.0.1:%u", ntohs(sa.sin_port));
	return fd;
}

static int raw_connect(const char *address)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const char *colon = strrchr(address, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!colon)
		return -1;
	sa.sin_port = htons((uint16_t)atoi(colon + 1));
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -1;
	return fd;
}

int h_raw_listen(struct h *h, char *address, size_t len)
{
	int fd = raw_listen(address, len);

	H_CHECK(fd >= 0, "%s", strerror(errno));
	return fd;
}

int h_raw_connect(struct h *h, const char *address)
{
	int fd = raw_connect(address);

	H_CHECK(fd >= 0, "%s: %s", address, strerror(errno));
	return fd;
}

size_t h_raw_read(int fd, void *buf, size_t len, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t got = 0;

	while (got < len && poll(&p, 1, timeout_ms) > 0) {
		ssize_t n = recv(fd, (char *)buf + got, len - got, 0);

		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

void h_raw_write(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		p += n;
		len -= (size_t)n;
	}
}

/* The last eight bytes of a first message, little-endian: XXH64 of all before them; bytes 4 and 5 tell its length. */
static void mend_sum(uint8_t *buf, size_t n)
{
	uint64_t sum;

	if (n < 16 || (size_t)(buf[4] << 8 | buf[5]) != n)
		return;
	sum = XXH64(buf, n - 8, 0);
	for (int i = 0; i < 8; i++)
		buf[n - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
}

static void keep(struct h_proxy *p, int direction, const uint8_t *buf, size_t n, long passed)
{
	size_t room = sizeof(p->keep[0]) - p->kept[direction];

	if (passed == 0)
		p->kept[direction] = 0, room = sizeof(p->keep[0]);
	n = n < room ? n : room;
	memcpy(p->keep[direction] + p->kept[direction], buf, n);
	p->kept[direction] += n;
}

/* How much may pass in this direction now: the HELLO, and the words about the transport behind it.  The length of a HELLO is
 * in its bytes 4 and 5, that of the rest of a word in its bytes 1 and 2. */
static size_t may_pass(struct h_proxy *p, int from, int direction, long passed, size_t most)
{
	const uint8_t *head = p->keep[direction];
	long *end = &p->words_end[direction];
	uint8_t word[3];

	if (atomic_load(&p->hold) != (direction == 0 ? H_HOLD_UP : H_HOLD_DOWN))
		return most;
	if (passed < 8)
		return (size_t)(8 - passed);
	if (*end == 0)
		*end = head[4] << 8 | head[5];
	if (passed >= *end && recv(from, word, sizeof(word), MSG_PEEK | MSG_DONTWAIT) == sizeof(word) &&
	    (word[0] == 'T' || word[0] == 'N'))
		*end = passed + 3 + (word[1] << 8 | word[2]);
	return passed < *end ? (size_t)(*end - passed) : 0;
}

/* Moves what is there from one side to the other; false at the end of it. */
static bool pump(struct h_proxy *p, int from, int to, int direction, long *passed)
{
	uint8_t buf[4096];
	size_t most = may_pass(p, from, direction, *passed, sizeof(buf));
	long at = atomic_load(&p->flip_at) - *passed;
	ssize_t n;

	if (most == 0) {
		usleep(1000); /* poll says again that something is there */
		return true;
	}
	n = recv(from, buf, most, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	if (atomic_load(&p->flip_direction) == direction && atomic_load(&p->flip_at) >= 0 && at >= 0 && at < n) {
		buf[at] ^= (uint8_t)atomic_load(&p->flip_mask);
		if (atomic_load(&p->mend_sum))
			mend_sum(buf, (size_t)n);
	}
	keep(p, direction, buf, (size_t)n, *passed);
	*passed += n;
	atomic_store(&p->passed[direction], *passed);
	if (atomic_load(&p->mode) == H_FORWARD)
		h_raw_write(to, buf, (size_t)n);
	return true;
}

static void carry(struct h_proxy *p, int down, int up)
{
	struct pollfd f[2] = {{.fd = down, .events = POLLIN}, {.fd = up, .events = POLLIN}};
	long passed[2] = {0, 0};

	p->words_end[0] = p->words_end[1] = 0;
	while (!atomic_load(&p->stop) && atomic_load(&p->mode) != H_CUT) {
		poll(f, 2, 5);
		for (int i = 0; i < 2; i++) {
			if (f[i].revents == 0 || pump(p, i == 0 ? down : up, i == 0 ? up : down, i, &passed[i]))
				continue;
			if (atomic_load(&p->mode) != H_SWALLOW)
				return;
			f[i].fd = -1; /* the other must not hear of it */
			f[i].revents = 0;
		}
	}
}

static void *proxy(void *arg)
{
	struct h_proxy *p = arg;
	struct pollfd f = {.fd = p->listen_fd, .events = POLLIN};

	while (!atomic_load(&p->stop)) {
		int down, up;

		if (poll(&f, 1, 20) <= 0)
			continue;
		down = accept(p->listen_fd, NULL, NULL);
		up = raw_connect(p->upstream);
		if (down >= 0 && up >= 0)
			carry(p, down, up);
		if (up >= 0)
			close(up);
		if (down >= 0)
			close(down);
	}
	return NULL;
}

void h_proxy_start(struct h *h, struct h_proxy *p, const char *upstream)
{
	memset(p, 0, sizeof(*p));
	p->h = h;
	p->flip_at = -1;
	snprintf(p->upstream, sizeof(p->upstream), "%s", upstream);
	p->listen_fd = h_raw_listen(h, p->address, sizeof(p->address));
	H_TRUE(pthread_create(&p->thread, NULL, proxy, p) == 0);
}

void h_proxy_stop(struct h_proxy *p)
{
	atomic_store(&p->stop, 1);
	pthread_join(p->thread, NULL);
	close(p->listen_fd);
}
