/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile.c - the libfabric back end with damaged addresses, dead peers and nothing left to open. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "side.h"

/* Damaged addresses: refused or unreachable, never taken, never a crash. */
void test_bad_address(const char *provider)
{
	uint8_t bad[2048];
	int rc;

	open_side(&A, provider);
	open_side(&B, provider);
	prepare(&b, &B);
	for (size_t i = 0; i < b.len; i++) {
		prepare(&a, &A);
		rc = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, b.addr, i);
		CHECK(rc == XPORT_ERR_PROTOCOL, "%zu of %zu bytes: %d", i, b.len, rc);
		leave(&a);
	}
	for (size_t i = OFI_HOST + OFI_COOKIE; i < OFI_HOST + OFI_COOKIE + 5; i++)
		for (int bit = 0; bit < 8; bit++) {
			prepare(&a, &A);
			memcpy(bad, b.addr, b.len);
			bad[i] ^= (uint8_t)(1 << bit);
			rc = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, bad, b.len);
			CHECK(rc != XPORT_OK, "byte %zu bit %d", i, bit);
			leave(&a);
		}
}

/* One that was killed inside the shared memory leaves its lock taken: polling goes on, others go on, closing works. */
void test_dead_inside(const char *provider)
{
	if (strcmp(provider, "shm") != 0)
		return;
	open_pair(provider);
	prepare(&c, &A);
	prepare(&d, &B);
	join(&c, &d);
	*(volatile uint32_t *)((struct ofi_ep *)b.ep)->page.base = 1;
	CHECK(send_frame(&a, 0, 64, 24) == XPORT_ERR_AGAIN, "entered where another one is");
	must_send(&c, &d, 0, 64, 24);
	await(&c, &d, 1);
	((struct ofi_ep *)b.ep)->beside = false; /* of a process that can be killed alone */
	leave(&b);
	leave(&a);
}

/*
 * A thread of this process that is inside, and does not get a processor for a while: it writes where it was as soon as it
 * gets one, so that stays until it is out.
 */
void test_slow_inside(const char *provider)
{
	volatile uint32_t *word;
	int64_t start;

	if (strcmp(provider, "shm") != 0)
		return;
	open_pair(provider);
	word = ((struct ofi_ep *)b.ep)->page.base;
	CHECK((*word & 1) == 0);
	*word |= 1;
	for (start = now_ms(); now_ms() < start + 250; usleep(1000))
		CHECK(ops->ep_quiesce(B.be, b.ep) == XPORT_ERR_AGAIN && ops->poll(B.be) >= 0, "after %d ms",
		      (int)(now_ms() - start));
	*word &= ~1u;
	CHECK(ops->ep_quiesce(B.be, b.ep) == XPORT_OK);
	leave(&a);
}

/* A listener that answers nobody any more: its queue is full. */
static void deaf(struct sockaddr_storage *sa, socklen_t *len)
{
	int l = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sa->ss_family == AF_INET)
		((struct sockaddr_in *)sa)->sin_port = 0;
	else
		((struct sockaddr_in6 *)sa)->sin6_port = 0;
	CHECK(l >= 0 && bind(l, (struct sockaddr *)sa, *len) == 0 && listen(l, 0) == 0 &&
	              getsockname(l, (struct sockaddr *)sa, len) == 0,
	      "%s", strerror(errno));
	for (int i = 0; i < 8; i++) {
		int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		CHECK(fd >= 0 && (connect(fd, (struct sockaddr *)sa, *len) == 0 || errno == EINPROGRESS));
		usleep(2000);
	}
}

/* b's address with another one before its own; returns its length. */
static size_t two_addresses(uint8_t *both, const struct sockaddr_storage *sa, socklen_t len)
{
	const size_t at = OFI_HOST + OFI_COOKIE;

	memcpy(both, b.addr, at);
	both[at] = 2;
	both[at + 1] = (uint8_t)len;
	memcpy(both + at + 2, sa, len);
	memcpy(both + at + 2 + len, b.addr + at + 1, 1 + len);
	return at + 3 + 2 * len;
}

/* An address of the peer that does not answer: no call waits for it, and the next one is taken. */
void test_deaf(const char *provider)
{
	struct sockaddr_storage sa;
	int64_t end, longest = 0;
	int rc = XPORT_ERR_AGAIN;
	uint8_t both[2048];
	socklen_t len;
	size_t n;

	open_ends(provider);
	if (!where(&b, &sa, &len) || strchr(provider, ';') != NULL)
		return; /* not one that listens */
	deaf(&sa, &len);
	n = two_addresses(both, &sa, len);
	for (end = now_ms() + 20000; rc == XPORT_ERR_AGAIN && now_ms() < end;) {
		int64_t t = now_ms();

		rc = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, both, n);
		t = now_ms() - t;
		longest = t > longest ? t : longest;
		CHECK(ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len) != XPORT_ERR_UNREACHABLE);
		run_both(&A, &B, 1);
	}
	CHECK(rc == XPORT_OK, "%d %s", rc, err.text);
	CHECK(longest < 10000, "a call took %d ms", (int)longest);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	close_ends();
}

/*
 * A peer with two addresses that answer and a program that computes for a while: it is waited for.  Who gave the first one up
 * would be connected to by that all the same, for it comes first.
 */
void test_late(const char *provider)
{
	struct sockaddr_storage sa;
	uint8_t both[2048];
	socklen_t len;

	open_ends(provider);
	if (!where(&b, &sa, &len) || strchr(provider, ';') != NULL)
		return; /* not one that listens */
	b.len = two_addresses(both, &sa, len);
	memcpy(b.addr, both, b.len);
	for (int64_t end = now_ms() + 2500; now_ms() < end; usleep(1000))
		CHECK(ops->ep_connect(A.be, a.ep, XPI_ACTIVE, b.addr, b.len) == XPORT_ERR_AGAIN && ops->poll(A.be) >= 0,
		      "%s", err.text);
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	close_ends();
}

static struct fi_ops_cm *real_cm;
static int rejected;

static int count_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t len)
{
	rejected++;
	return strcmp(B.be->quirk->name, "sockets") == 0 ? 0 : real_cm->reject(pep, handle, param, len);
}

/*
 * Accepting fails when the endpoint is already made: both ends hear of it, and the next one is taken.  Of sockets (1.17)
 * the request is gone with that endpoint, so it must not be rejected.
 */
void test_half_accepted(const char *provider)
{
	int ra = XPORT_ERR_AGAIN, rb = XPORT_ERR_AGAIN;
	struct fi_ops_cm counting;
	size_t left;

	open_side(&A, provider);
	open_side(&B, provider);
	if (B.be->pep == NULL)
		return; /* nothing is accepted */
	real_cm = B.be->pep->cm;
	counting = *real_cm;
	counting.reject = count_reject;
	B.be->pep->cm = &counting;
	left = B.be->cq_left;
	B.be->cq_left = 0;
	prepare(&a, &A);
	prepare(&b, &B);
	for (int64_t end = now_ms() + 10000; (ra == XPORT_ERR_AGAIN || rb == XPORT_ERR_AGAIN) && now_ms() < end;) {
		if (rb == XPORT_ERR_AGAIN)
			rb = ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len);
		if (ra == XPORT_ERR_AGAIN)
			ra = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, b.addr, b.len);
		run_both(&A, &B, 1);
	}
	CHECK(ra < 0 && ra != XPORT_ERR_AGAIN && rb == XPORT_ERR_NO_MEMORY, "%d %d %s", ra, rb, err.text);
	CHECK(rejected == (strcmp(provider, "sockets") != 0), "%d", rejected);
	leave(&a);
	leave(&b);
	B.be->cq_left = left;
	prepare(&a, &A);
	prepare(&b, &B);
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
}

/* The same peer takes the connection just when its address is asked whether it answers: nothing stays of that. */
void test_late_no_more(const char *provider)
{
	const struct ofi_ep *ep;
	struct sockaddr_storage sa;
	uint8_t both[2048];
	socklen_t len;
	size_t n;

	open_ends(provider);
	if (!where(&b, &sa, &len) || strchr(provider, ';') != NULL || A.be->quirk->blocks)
		return; /* not one that listens, or that asks before it connects */
	n = two_addresses(both, &sa, len);
	ep = a.ep;
	for (int64_t end = now_ms() + 20000; !ep->probing && now_ms() < end; usleep(1000))
		CHECK(ops->ep_connect(A.be, a.ep, XPI_ACTIVE, both, n) == XPORT_ERR_AGAIN && ops->poll(A.be) >= 0, "%s",
		      err.text);
	CHECK(ep->probing);
	for (int64_t end = now_ms() + 20000; ep->state != OFI_EP_UP && now_ms() < end; run_both(&A, &B, 1))
		CHECK(ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len) != XPORT_ERR_UNREACHABLE);
	CHECK(ops->ep_connect(A.be, a.ep, XPI_ACTIVE, both, n) == XPORT_OK && !ep->probing, "%s", err.text);
	while (ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len) == XPORT_ERR_AGAIN)
		run_both(&A, &B, 1);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	close_ends();
}

/* One end of a connection between processes: tells its address, and is told the other's. */
static void swap_addresses(int fd, const struct end *own, uint8_t *addr, size_t *len)
{
	ssize_t n;

	CHECK(write(fd, own->addr, own->len) == (ssize_t)own->len, "%s", strerror(errno));
	n = read(fd, addr, 2048);
	CHECK(n > 0, "%s", strerror(errno));
	*len = (size_t)n;
}

/* Greets whoever listens, says so, and goes on until the other end of `fd` is closed. */
static void greeter(int fd, const char *provider)
{
	uint8_t addr[2048];
	int rounds = 0;
	size_t len;

	open_side(&B, provider);
	prepare(&b, &B);
	swap_addresses(fd, &b, addr, &len);
	for (; recv(fd, addr, 0, MSG_DONTWAIT | MSG_PEEK) < 0; usleep(1000)) {
		CHECK(ops->ep_connect(B.be, b.ep, XPI_ACTIVE, addr, len) != XPORT_OK && ops->poll(B.be) >= 0);
		if (++rounds == 50)
			CHECK(write(fd, "", 1) == 1, "%s", strerror(errno));
	}
	_exit(0);
}

static int greeter_goes_on;

/* A has an endpoint, and in its queue the greeting of a process, whose address this is. */
static pid_t greeted(const char *provider, uint8_t *addr, size_t *len)
{
	char said;
	int fd[2];
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) == 0, "%s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		close(fd[0]);
		greeter(fd[1], provider);
	}
	close(fd[1]);
	greeter_goes_on = fd[0];
	open_side(&A, provider);
	prepare(&a, &A);
	swap_addresses(fd[0], &a, addr, len);
	CHECK(read(fd[0], &said, 1) == 1, "%s", strerror(errno));
	return pid;
}

/* Polls, connects, polls: what ep_connect returned. */
static int look_and_connect(const uint8_t *addr, size_t len)
{
	int rc;

	for (int i = 0; i < 100; i++)
		CHECK(ops->poll(A.be) >= 0);
	rc = ops->ep_connect(A.be, a.ep, XPI_PASSIVE, addr, len);
	for (int i = 0; i < 100; i++)
		CHECK(ops->poll(A.be) >= 0);
	return rc;
}

static struct fi_ops_av *real_av;

/* libfabric looks for the peer's file just when that went. */
static int insert_too_late(struct fid_av *av, const void *addr, size_t n, fi_addr_t *to, uint64_t flags, void *context)
{
	CHECK(shm_unlink((const char *)addr + strlen("fi_shm://")) == 0, "%s", strerror(errno));
	return real_av->insert(av, addr, n, to, flags, context);
}

static void end_with(pid_t pid)
{
	close(greeter_goes_on);
	CHECK(waitpid(pid, NULL, 0) == pid, "%s", strerror(errno));
	leave(&a);
	ops->close(A.be);
}

/* The greeting comes when this process can open nothing: shm (1.17) reads it and maps the peer then. */
void test_no_descriptor(const char *provider)
{
	struct rlimit limit, none;
	uint8_t addr[2048];
	size_t len;
	pid_t pid = greeted(provider, addr, &len);
	int rc;

	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "%s", strerror(errno));
	rc = look_and_connect(addr, len);
	if (strcmp(provider, "shm") == 0)
		CHECK(rc == XPORT_ERR_SYSTEM && strstr(err.hint, "ulimit -n") != NULL, "%d %s", rc, err.text);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "%s", strerror(errno));
	end_with(pid);
}

/* Who connects with not one descriptor left is told that, and nothing of networks. */
void test_full_table(const char *provider)
{
	struct rlimit limit, full;
	int fd, rc = XPORT_ERR_AGAIN;

	open_side(&A, provider);
	open_side(&B, provider);
	if (A.be->pep == NULL)
		return; /* nothing is opened to connect */
	prepare(&a, &A);
	prepare(&b, &B);
	getrlimit(RLIMIT_NOFILE, &limit);
	full = limit;
	fd = dup(0);
	full.rlim_cur = (rlim_t)fd;
	close(fd);
	CHECK(fd >= 0 && setrlimit(RLIMIT_NOFILE, &full) == 0, "%s", strerror(errno));
	for (int64_t end = now_ms() + 5000; rc == XPORT_ERR_AGAIN && now_ms() < end;)
		rc = ops->ep_connect(A.be, a.ep, XPI_ACTIVE, b.addr, b.len);
	CHECK(rc == XPORT_ERR_SYSTEM && strstr(err.hint, "ulimit -n") != NULL, "%d %s: %s", rc, err.text, err.hint);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "%s", strerror(errno));
}

/* A process that died inside is not waited for. */
void test_dead_beside(const char *provider)
{
	uint8_t addr[2048];
	size_t len;
	pid_t pid;

	if (strcmp(provider, "shm") != 0)
		return;
	pid = greeted(provider, addr, &len);
	(void)look_and_connect(addr, len);
	CHECK(((struct ofi_ep *)a.ep)->theirs != NULL, "%s", err.text);
	*(volatile uint32_t *)((struct ofi_ep *)a.ep)->page.base |= 1;
	end_with(pid);
}

/* The same from a peer whose file is not there any more. */
void test_no_file(const char *provider)
{
	uint8_t addr[2048] = {0};
	size_t len;
	pid_t pid;

	if (strcmp(provider, "shm") != 0)
		return;
	pid = greeted(provider, addr, &len);
	CHECK(shm_unlink((char *)addr + OFI_HOST + OFI_COOKIE + 2 + strlen("fi_shm://")) == 0, "%s", strerror(errno));
	CHECK(look_and_connect(addr, len) == XPORT_ERR_UNREACHABLE, "%s", err.text);
	end_with(pid);
}

/* The same from one whose file goes while libfabric is told of it. */
void test_no_file_more(const char *provider)
{
	static struct fi_ops_av too_late;
	uint8_t addr[2048] = {0};
	int rc = XPORT_ERR_AGAIN;
	struct fid_av *av;
	size_t len;
	pid_t pid;

	if (strcmp(provider, "shm") != 0)
		return;
	pid = greeted(provider, addr, &len);
	av = ((struct ofi_ep *)a.ep)->av;
	real_av = av->ops;
	too_late = *real_av;
	too_late.insert = insert_too_late;
	av->ops = &too_late;
	for (int64_t end = now_ms() + 5000; rc == XPORT_ERR_AGAIN && now_ms() < end;)
		rc = look_and_connect(addr, len);
	CHECK(rc == XPORT_ERR_UNREACHABLE, "%d %s", rc, err.text);
	end_with(pid);
}

/* A /dev/shm that got full after it was opened: no endpoint, and not the end of the process. */
void test_no_room(const char *provider)
{
	if (strcmp(provider, "shm") != 0)
		return;
	if (!own_dev_shm("size=4g")) {
		printf("skipped: a /dev/shm of one's own cannot be made here\n");
		return;
	}
	open_pair(provider);
	must_send(&a, &b, 0, 64, 24);
	await(&a, &b, 1);
	leave(&a);
	leave(&b);
	CHECK(mount("none", "/dev/shm", "tmpfs", MS_REMOUNT, "size=1m") == 0, "%s", strerror(errno));
	c.ep = calloc(1, A.caps.ep_size);
	c.len = sizeof(c.addr);
	CHECK(c.ep != NULL && ops->address(A.be, c.ep, &c.core_ep, c.addr, &c.len) == XPORT_ERR_NO_MEMORY &&
	              strstr(err.text, "/dev/shm") != NULL && strstr(err.hint, "--shm-size") != NULL,
	      "%s", err.text);
	free(c.ep);
	CHECK(mount("none", "/dev/shm", "tmpfs", MS_REMOUNT, "size=1g") == 0, "%s", strerror(errno));
	prepare(&a, &A);
	prepare(&b, &B);
	join(&a, &b);
	must_send(&a, &b, 1, 64, 24);
	await(&a, &b, 2);
}

/* A /dev/shm that is filled after they have connected: all the queue's entries are used for the first time then. */
void test_filled_later(const char *provider)
{
	static const char zeros[1 << 16];
	enum { FRAMES = 300 };
	int fd;

	if (strcmp(provider, "shm") != 0)
		return;
	if (!own_dev_shm("size=512m")) {
		printf("skipped: a /dev/shm of one's own cannot be made here\n");
		return;
	}
	open_pair(provider);
	fd = open("/dev/shm/full", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0, "%s", strerror(errno));
	while (write(fd, zeros, sizeof(zeros)) > 0 || write(fd, zeros, 1) > 0)
		;
	CHECK(errno == ENOSPC, "%s", strerror(errno));
	for (int i = 0; i < FRAMES; i++) /* without a poll, as long as they are taken */
		must_send(&a, &b, (uint64_t)i, 4000, 24);
	await(&a, &b, FRAMES);
	close(fd);
}

/* The first process of a container: opens, prepares an endpoint, says so, and waits. */
static void first_process(const char *provider, int say, int hear)
{
	char byte = 'x';

	open_side(&C, provider);
	prepare(&c, &C);
	CHECK(write(say, &byte, 1) == 1 && read(hear, &byte, 1) >= 0);
	leave(&c);
	ops->close(C.be);
	_exit(0);
}

/* Containers that share /dev/shm have processes of equal numbers: they do not take, or delete, each other's files. */
void test_equal_pids(const char *provider)
{
	int said[2], go[2], status, n = 0, files;
	pid_t inner[2];
	char byte;

	if (strcmp(provider, "shm") != 0)
		return;
	(void)own_dev_shm(NULL);
	files = count_names("xport-");
	CHECK(pipe(said) == 0 && pipe(go) == 0);
	for (int i = 0; i < 2; i++) {
		inner[i] = fork();
		if (inner[i] == 0) {
			pid_t pid = unshare(CLONE_NEWPID) == 0 ? fork() : -1;

			close(go[1]);
			if (pid == 0)
				first_process(provider, said[1], go[0]);
			close(said[1]);
			_exit(pid < 0                                                ? 77
			      : waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
			                                                             : 1);
		}
	}
	close(said[1]);
	for (int i = 0; i < 2; i++) {
		struct pollfd p = {.fd = said[0], .events = POLLIN};

		n += poll(&p, 1, 20000) == 1 && read(said[0], &byte, 1) == 1;
	}
	if (n == 2)
		CHECK(count_names("xport-") == files + 2, "%d files of 2", count_names("xport-") - files);
	close(go[0]);
	close(go[1]);
	for (int i = 0; i < 2; i++) {
		CHECK(waitpid(inner[i], &status, 0) == inner[i] && WIFEXITED(status), "%d ended by signal %d", i,
		      WTERMSIG(status));
		if (WEXITSTATUS(status) == 77)
			printf("skipped: a PID namespace cannot be made here\n");
		else
			CHECK(WEXITSTATUS(status) == 0, "%d failed", i);
	}
}
