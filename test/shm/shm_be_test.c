/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_be_test.c - the back end shm alone, with a core of a few lines: frames of all lengths, sleep, strangers at the
 * socket of an endpoint, and peers that break the rules. Both sides are instances of this process. A hostile side is
 * made by writing into the state of its endpoint.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm/pair.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum { MANY = 100 };

/* Every length, cut everywhere; what does not fit is refused, and fits later. */
static void test_frames(void)
{
	struct link l = meet();
	static uint8_t buf[SHM_AM_MAX];
	uint64_t sent = 0;

	for (size_t len = 1; len <= SHM_AM_MAX; len += len < 300 ? 1 : 97) {
		for (size_t i = 0; i < len; i++)
			buf[i] = (uint8_t)(len + 7 * i);
		CHECK(ops->am_send_two(one, &l.a->state, buf, len / 3 + 1, buf + len / 3 + 1, len - len / 3 - 1,
		                       NULL) == XPORT_OK);
		CHECK(ops->poll(two) == 1);
		CHECK(l.b->last_len == len && memcmp(l.b->last, buf, len) == 0);
		CHECK(l.b->in_ring == (len - len / 3 - 1 >= SHM_LONG ? len - len / 3 - 1 : 0));
	}
	sent = l.b->frames;
	for (int round = 0; round < 50; round++) {
		int r;

		while ((r = send_a(&l, buf, 1 + (size_t)(sent * 911) % SHM_AM_MAX)) == XPORT_OK)
			sent++;
		CHECK(r == XPORT_ERR_AGAIN);
		while (ops->poll(two) > 0)
			;
		CHECK(l.b->frames == sent);
	}
	part(&l);
}

/* A descriptor becomes readable by each frame after arm, and only then. */
static void test_sleep(void)
{
	struct link l = meet();
	struct pollfd p = {.events = POLLIN};

	CHECK(ops->fds(two, &p.fd, 1) == 1);
	for (int i = 0; i < 100; i++) {
		while (ops->arm(two) != XPORT_OK)
			;
		CHECK(poll(&p, 1, 0) == 0);
		for (int k = 0; k <= i % 3; k++)
			CHECK(send_a(&l, &i, sizeof(i)) == XPORT_OK);
		CHECK(poll(&p, 1, 0) == 1);
		CHECK(ops->arm(two) == XPORT_ERR_AGAIN);
		while (ops->poll(two) > 0)
			;
		CHECK(memcmp(l.b->last, &i, sizeof(i)) == 0);
	}
	part(&l);
}

/*
 * A writer is preempted between its frame and its look at the flag. The reader takes the frame and goes to sleep; the
 * bell that then rings for nothing must not be the last one.
 */
static void test_late_bell(void)
{
	struct link l = meet();
	struct pollfd p = {.events = POLLIN};
	bool broken = false;

	CHECK(ops->fds(two, &p.fd, 1) == 1);
	CHECK(shm_ring_push(&l.a->state.tx, "1", 1, NULL, 0, &broken));
	CHECK(ops->poll(two) == 1);
	while (ops->arm(two) != XPORT_OK)
		;
	shm_bell_ring(one, &l.a->state, l.a->state.peer->sleep);
	CHECK(poll(&p, 1, 0) == 1 && ops->poll(two) == 0);
	while (ops->arm(two) != XPORT_OK)
		;
	CHECK(poll(&p, 1, 0) == 0);
	CHECK(send_a(&l, "2", 1) == XPORT_OK);
	CHECK(poll(&p, 1, 0) == 1);
	part(&l);
}

/* A bell tells which endpoint has the frame: the next poll finds it among many. */
static void test_bell_among_many(void)
{
	static struct link l[MANY];

	for (int i = 0; i < MANY; i++)
		l[i] = meet();
	for (int i = 0; i < MANY; i++) {
		struct link *to = &l[(i * 37) % MANY];
		uint64_t before = to->b->frames;

		while (ops->arm(two) != XPORT_OK)
			;
		CHECK(send_a(to, &i, sizeof(i)) == XPORT_OK);
		CHECK(ops->arm(two) == XPORT_ERR_AGAIN);
		CHECK(ops->poll(two) == 1 && to->b->frames == before + 1);
	}
	for (int i = 0; i < MANY; i++)
		part(&l[i]);
}

/* The peer does not read. What the contract lets a sender send fits, wherever the ring begins: nothing is left to retry. */
static void test_no_reader(void)
{
	static uint8_t buf[SHM_AM_MAX];

	for (uint32_t begin = 0; begin < SHM_SLOTS; begin += 61) {
		struct link l = meet();

		for (uint32_t i = 0; i < begin; i++)
			CHECK(send_a(&l, "x", 1) == XPORT_OK && ops->poll(two) == 1);
		for (int i = 0; i < SHM_CREDITS + 1; i++) /* one is acknowledged, and still read */
			CHECK(send_a(&l, buf, sizeof(buf)) == XPORT_OK);
		for (int i = 0; i < SHM_CREDITS + 8; i++)
			CHECK(send_a(&l, buf, XPI_CONTROL_MAX) == XPORT_OK);
		part(&l);
	}
}

/* Many endpoints: each is found, whichever was used last. */
static void test_many(void)
{
	static struct link l[MANY];

	for (int i = 0; i < MANY; i++)
		l[i] = meet();
	for (int i = 0; i < 10 * MANY; i++) {
		struct link *to = &l[(i * 37) % MANY];
		uint64_t before = to->b->frames;

		CHECK(send_a(to, &i, sizeof(i)) == XPORT_OK);
		for (int k = 0; k < MANY && to->b->frames == before; k++)
			ops->poll(two);
		CHECK(to->b->frames == before + 1);
	}
	for (int i = 0; i < MANY; i++)
		part(&l[(i * 7) % MANY]);
}

/* More frames than a poll takes: no endpoint keeps the others waiting. */
static void test_fair(void)
{
	enum { EPS = 24, FRAMES = 500, POLLS = 12 };
	struct link l[EPS];

	for (int i = 0; i < EPS; i++)
		l[i] = meet();
	for (int i = 0; i < EPS * FRAMES; i++)
		CHECK(send_a(&l[i % EPS], &i, sizeof(i)) == XPORT_OK);
	for (int i = 0; i < POLLS; i++)
		CHECK(ops->poll(two) <= 150);
	for (int i = 0; i < EPS; i++) {
		CHECK(l[i].b->frames > 0 && l[i].b->frames < FRAMES);
		part(&l[i]);
	}
}

static void test_hostile_record(void)
{
	static const uint32_t heads[] = {SHM_AM_MAX + 1, SHM_SKIP, SHM_SKIP - 1, 1u << 31};

	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		struct link l = meet(), other = meet();

		__atomic_store_n(&file_of(l.a)->ring[0].head, heads[i], __ATOMIC_RELEASE);
		for (int k = 0; k < 10; k++)
			ops->poll(two);
		CHECK(l.b->failed == 1 && l.b->frames == 0);
		CHECK(strstr(l.b->why, "invalid record") != NULL);
		CHECK(ops->am_send(two, &l.b->state, "x", 1, NULL) == XPORT_ERR_PROTOCOL);
		CHECK(strstr(err.text, "invalid record") != NULL);
		CHECK(send_a(&other, "x", 1) == XPORT_OK && ops->poll(two) == 1 && other.b->frames == 1);
		part(&l);
		part(&other);
	}
}

/* The place where a frame is cut is the peer's word. A bad one is ignored: the frame is copied whole. */
static void test_hostile_cut(void)
{
	static const uint32_t cuts[] = {0, 1, 4000 - SHM_LONG, 4000 - SHM_LONG + 1, 3999, 4000, 4001, UINT32_MAX};
	struct link l = meet();
	static uint8_t buf[4000];

	for (unsigned i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		uint32_t at = l.a->state.tx.at;

		memset(buf, (int)i + 1, sizeof(buf));
		CHECK(send_a(&l, buf, sizeof(buf)) == XPORT_OK);
		__atomic_store_n(&file_of(l.a)->ring[at].hlen, cuts[i], __ATOMIC_RELEASE);
		CHECK(ops->poll(two) == 1 && l.b->failed == 0);
		CHECK(l.b->last_len == sizeof(buf) && memcmp(l.b->last, buf, sizeof(buf)) == 0);
		CHECK(l.b->in_ring == (cuts[i] == 1 || cuts[i] == 4000 - SHM_LONG ? sizeof(buf) - cuts[i] : 0));
	}
	part(&l);
}

/* The core's answer to a frame finds out that the peer lies: the frame is the last one. */
static void answer(struct xpi_core_ep *ep)
{
	static uint8_t buf[SHM_AM_MAX];
	int r;

	while ((r = ops->am_send(two, &ep->state, buf, sizeof(buf), NULL)) == XPORT_OK)
		;
	CHECK(r == XPORT_ERR_PROTOCOL && strstr(err.text, "counter") != NULL);
}

static void test_broken_meanwhile(void)
{
	struct link l = meet();

	CHECK(send_a(&l, "1", 1) == XPORT_OK && send_a(&l, "2", 1) == XPORT_OK);
	__atomic_store_n(&file_of(l.a)->taken, 1u << 30, __ATOMIC_RELEASE);
	meanwhile = answer;
	for (int i = 0; i < 10; i++)
		ops->poll(two);
	meanwhile = NULL;
	CHECK(l.b->frames == 1);
	CHECK(l.b->state.rx.taken == 0); /* the reader has left the ring, and does not go on in it */
	part(&l);
}

/* It says that it has read what was never written. */
static void test_hostile_counter(void)
{
	struct link l = meet();
	static uint8_t buf[SHM_AM_MAX];
	int r;

	__atomic_store_n(&file_of(l.b)->taken, 1u << 30, __ATOMIC_RELEASE);
	while ((r = send_a(&l, buf, sizeof(buf))) == XPORT_OK)
		;
	CHECK(r == XPORT_ERR_PROTOCOL && strstr(err.text, "counter") != NULL);
	CHECK(send_a(&l, buf, 1) == XPORT_ERR_PROTOCOL);
	CHECK(ops->am_send(two, &l.b->state, "x", 1, NULL) == XPORT_OK);
	CHECK(ops->poll(one) == 0 && l.a->frames == 0);
	part(&l);
}

static void sleeps_again(struct xpi_core_ep *ep, uint32_t steps)
{
	__atomic_fetch_add(&file_of(ep)->sleep, steps, __ATOMIC_RELEASE);
}

/* Its socket refuses our bells: this process sleeps all the same. */
static void test_deaf_peer(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(name);
	struct link l = meet();
	int third = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(bind(third, (struct sockaddr *)&name, sizeof(sa_family_t)) == 0);
	CHECK(getsockname(third, (struct sockaddr *)&name, &len) == 0);
	CHECK(connect(l.b->state.sock, (struct sockaddr *)&name, len) == 0);
	sleeps_again(l.b, 1);
	for (int i = 0; i < 10; i++) {
		sleeps_again(l.b, 2);
		CHECK(send_a(&l, "x", 1) == XPORT_OK);
		CHECK(ops->poll(one) == 0 && ops->arm(one) == XPORT_OK);
	}
	close(third);
	part(&l);
}

/* Two bells for one sleep may come late; more, or other data, end the endpoint, and its socket wakes us no more. */
static void test_bells(void)
{
	static const struct {
		size_t len;
		int times, failed;
	} rings[] = {{1, 2, 0}, {1, 100, 1}, {2, 1, 1}, {8, 1, 1}};
	struct pollfd p = {.events = POLLIN};

	CHECK(ops->fds(two, &p.fd, 1) == 1);
	for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		struct link l = meet();

		for (int k = 0; k < rings[i].times; k++)
			CHECK(send(l.a->state.sock, "12345678", rings[i].len, MSG_DONTWAIT) > 0);
		for (int k = 0; k < 10 && ops->arm(two) != XPORT_OK; k++)
			ops->poll(two);
		CHECK(l.b->failed == rings[i].failed && poll(&p, 1, 0) == 0);
		if (rings[i].failed)
			CHECK(strstr(l.b->why, "bells") != NULL);
		part(&l);
	}
}

/* The peer cannot write to what it has mapped, nor map it for writing. */
static void test_read_only(void)
{
	struct link l = addresses();
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", l.a->state.file.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && (fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) ==
	                         (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	if ((fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) != 0)
		CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(ftruncate(fd, 4096) != 0);
	close(fd);
	part(&l);
}

/* Sends a descriptor as the file of b's peer, or of a's. */
static void send_to(struct link *l, int sock, int fd, bool b)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const struct shm_address *address = (const void *)(b ? l->address_b : l->address_a);
	uint64_t magic = SHM_MAGIC;
	struct iovec body = {&magic, sizeof(magic)};
	alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr m = {.msg_name = &to,
	                   .msg_iov = &body,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int n = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "xport-%016llx%016llx",
	                 (unsigned long long)address->name[0], (unsigned long long)address->name[1]);

	m.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (fd < 0) { /* none */
		m.msg_control = NULL;
		m.msg_controllen = 0;
	}
	(void)sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Strangers fill the socket before the peer comes: what they send is dropped, and their descriptors are closed. */
static void test_strangers(void)
{
	unsigned before = descriptors();
	struct link l = addresses();
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (int i = 0; i < 50; i++) {
		send_to(&l, sock, 1, true);
		send_to(&l, sock, -1, true);
	}
	CHECK(connect_a(&l) == XPORT_ERR_AGAIN && !l.a->state.sent);
	connect_both(&l);
	send_to(&l, sock, -1, true);
	CHECK(send_a(&l, "x", 1) == XPORT_OK && ops->poll(two) == 1);
	CHECK(ops->arm(two) == XPORT_OK && l.b->failed == 0);
	close(sock);
	part(&l);
	CHECK(descriptors() == before);
}

/* What a peer may send as its file. Only the last one is mapped. */
enum { FILE_NONE, FILE_NOT_SEALED, FILE_SHORT, FILE_SPARSE, FILE_MAY_GET_HOLES, FILE_ZEROS, FILE_GOOD };

static int wrong_file(int how)
{
	int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct shm_file head = {.magic = how == FILE_ZEROS ? 0 : SHM_MAGIC, .slots = SHM_SLOTS};
	off_t length = (off_t)sizeof(struct shm_file) - (how == FILE_SHORT ? 64 : 0);
	int fd = how == FILE_NONE ? open("/dev/null", O_RDWR | O_CLOEXEC)
	                          : memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0);
	if (how == FILE_NONE)
		return fd;
	CHECK(ftruncate(fd, length) == 0 && pwrite(fd, &head, 64, 0) == 64);
	if (how != FILE_SPARSE)
		CHECK(fallocate(fd, 0, 0, length) == 0);
	if (how == FILE_NOT_SEALED)
		return fd;
	if (how == FILE_MAY_GET_HOLES || fcntl(fd, F_ADD_SEALS, all | F_SEAL_FUTURE_WRITE) != 0)
		CHECK(fcntl(fd, F_ADD_SEALS, all) == 0);
	return fd;
}

static void test_wrong_files(void)
{
	unsigned before = descriptors();

	for (int how = FILE_NONE; how <= FILE_GOOD; how++) {
		struct link l = addresses();
		bool old = how == FILE_MAY_GET_HOLES && (l.b->state.seals & F_SEAL_FUTURE_WRITE) == 0;
		int fd = wrong_file(how), b = XPORT_ERR_AGAIN;

		CHECK(dup2(fd, l.a->state.file.fd) >= 0);
		close(fd);
		for (int i = 0; i < 10 && b == XPORT_ERR_AGAIN; i++) {
			(void)connect_a(&l);
			b = connect_b(&l);
		}
		CHECK(b == (how == FILE_GOOD || old ? XPORT_OK : XPORT_ERR_PROTOCOL));
		part(&l);
	}
	CHECK(descriptors() == before);
}

/* A program with set-uid: its effective user counts, by which the kernel also names the owner of its file. */
static void test_other_real_user(void)
{
	uid_t real, effective, saved;
	struct link l;

	CHECK(getresuid(&real, &effective, &saved) == 0);
	if (effective != 0 || setresuid(1, 0, 0) != 0) {
		printf("skipped, another real user needs root: ");
		return;
	}
	l = meet();
	part(&l);
	CHECK(setresuid(real, effective, saved) == 0);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * A stranger sends the last descriptor of a socket whose closing takes a minute. Linux since 6.16 refuses it; before,
 * there is no defence.
 */
static void test_slow_descriptor(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger slow = {.l_onoff = 1, .l_linger = 60};
	int ls = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = -1, accepted;
	struct link l = addresses();
	socklen_t len = sizeof(a), n = sizeof(on);
	static uint8_t buf[1 << 20];
	double begin;

	if (getsockopt(l.b->state.sock, SOL_SOCKET, SO_PASSRIGHTS, &on, &n) == 0) {
		CHECK(on == 0 && bind(ls, (struct sockaddr *)&a, len) == 0 && listen(ls, 1) == 0);
		CHECK(getsockname(ls, (struct sockaddr *)&a, &len) == 0 && connect(c, (struct sockaddr *)&a, len) == 0);
		accepted = accept(ls, NULL, NULL);
		while (send(c, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		CHECK(accepted >= 0 && setsockopt(c, SOL_SOCKET, SO_LINGER, &slow, sizeof(slow)) == 0);
		send_to(&l, sock, c, true);
		begin = seconds();
		connect_both(&l);
		CHECK(seconds() - begin < 30);
		CHECK(getsockopt(l.b->state.sock, SOL_SOCKET, SO_PASSRIGHTS, &on, &n) == 0 && on == 0);
		close(accepted);
	} else {
		printf("skipped, Linux 6.16 is needed: ");
	}
	close(c);
	close(ls);
	close(sock);
	part(&l);
}

static void test_wrong_addresses(void)
{
	struct link l = addresses();

	CHECK(ops->ep_connect(one, &l.a->state, XPI_ACTIVE, l.address_b, l.len_b - 1) == XPORT_ERR_PROTOCOL);
	CHECK(ops->ep_connect(one, &l.a->state, XPI_ACTIVE, "", 0) == XPORT_ERR_PROTOCOL);
	l.address_b[0] ^= 1;
	CHECK(connect_a(&l) == XPORT_ERR_PROTOCOL);
	l.address_b[0] ^= 1;
	same_user_is = XPORT_ERR_AUTH;
	CHECK(connect_a(&l) == XPORT_ERR_AUTH);
	same_user_is = XPORT_OK;
	l.address_b[8] ^= 1;
	CHECK(connect_a(&l) == XPORT_ERR_UNREACHABLE);
	CHECK(strstr(err.hint, "network namespace") != NULL);
	part(&l);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"frames", test_frames},
		{"sleep", test_sleep},
		{"late_bell", test_late_bell},
		{"bell_among_many", test_bell_among_many},
		{"no_reader", test_no_reader},
		{"many", test_many},
		{"fair", test_fair},
		{"hostile_record", test_hostile_record},
		{"hostile_cut", test_hostile_cut},
		{"broken_meanwhile", test_broken_meanwhile},
		{"hostile_counter", test_hostile_counter},
		{"deaf_peer", test_deaf_peer},
		{"bells", test_bells},
		{"read_only", test_read_only},
		{"strangers", test_strangers},
		{"wrong_files", test_wrong_files},
		{"other_real_user", test_other_real_user},
		{"slow_descriptor", test_slow_descriptor},
		{"wrong_addresses", test_wrong_addresses},
	};

	alarm(120);
	one = instance();
	two = instance();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		tests[i].run();
		printf("ok: %s\n", tests[i].name);
	}
	ops->close(one);
	ops->close(two);
	return 0;
}
