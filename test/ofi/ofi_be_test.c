/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_be_test.c - the libfabric back end alone: its ops between instances of one process, with a core of a few lines on
 * top.  What the conformance suite cannot see, because the core stands before it: strangers, order of endings, a peer
 * that died inside shared memory, what is left in /dev/shm.
 *
 *   ofi_be_test MODULE.so [PROVIDER]...
 *
 * Each test is a process of its own; libfabric is not touched before.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

/* Every size around the limits, in one piece and cut. */
static void test_sizes(const char *provider)
{
	uint64_t seq = 0;

	open_pair(provider);
	for (size_t len = 1; len <= A.caps.am_max; len = len < 300 ? len + 1 : len < 4000 ? len + 371 : 2 * len - 100)
		for (int k = 0; k < 3; k++, seq++) {
			must_send(&a, &b, seq, len, k == 0 ? len : k == 1 ? 1 : len / 2 + 1);
			await(&a, &b, seq + 1);
		}
	must_send(&a, &b, seq, A.caps.am_max, 24);
	await(&a, &b, seq + 1);
}

/* A peer that does not poll: am_send says AGAIN some time, and all that was accepted comes, in order. */
static void test_full(const char *provider)
{
	uint64_t seq = 0;

	open_pair(provider);
	while (seq < 200000 && send_frame(&a, seq, A.caps.am_max, 24) >= 0)
		seq++;
	CHECK(seq < 200000, "never full");
	await(&a, &b, seq);
	run_both(&A, &B, 20);
	CHECK(B.frames == seq);
	must_send(&a, &b, seq, 64, 24);
	await(&a, &b, seq + 1);
}

/*
 * sockets (1.17) reads nothing before a whole header of its own is there, and TCP may cut there at the end of its window,
 * and then wait in turn: both for ever.  So all that may be under way fits into the windows, half a buffer each.
 */
static void test_window(const char *provider)
{
	size_t most;
	int wide = 0;

	if (strcmp(provider, "sockets") != 0)
		return;
	open_pair(provider);
	must_send(&a, &b, 0, 64, 24);
	await(&a, &b, 1);
	most = A.be->nsend * (A.be->frame_max + 24) + A.be->credits * (A.be->inject + 24); /* with its headers */
	for (int fd = 3; fd < 256; fd++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer), size = sizeof(int);
		int buffer = 0;

		if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0 || peer.ss_family == AF_UNIX)
			continue;
		CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, &size) == 0 && (size_t)buffer / 2 >= most,
		      "%d bytes of buffer for %zu", buffer, most);
		wide += (size_t)buffer / 2 >= 3 * most;
	}
	CHECK(wide > 0, "no end is wide");
	CHECK(getenv("FI_SOCKETS_MAX_BUF_SZ") == NULL, "left in the environment");
}

/* Closing one endpoint with frames under way: nothing comes of it any more, and the other one goes on. */
static void test_quiesce(const char *provider)
{
	uint64_t seq = 0;
	unsigned long came;

	open_pair(provider);
	prepare(&c, &A);
	prepare(&d, &B);
	join(&c, &d);
	while (seq < 100000 && send_frame(&a, seq, A.caps.am_max, 24) >= 0)
		seq++;
	leave(&a);
	A.hands_off = true;
	do { /* what had left still comes */
		came = B.frames;
		run_both(&A, &B, 100);
	} while (B.frames != came);
	A.hands_off = false;
	CHECK(c.core_ep.failed == 0 && d.core_ep.failed == 0, "the other endpoint failed as well");
	leave(&b);
	for (int i = 0; i < SLOTS; i++)
		A.slots[i].busy = false;
	seq = B.frames;
	must_send(&c, &d, seq, 100, 24);
	await(&c, &d, seq + 1);
	leave(&c);
	leave(&d);
	ops->close(A.be);
	ops->close(B.be);
}

/* With two peers, frames are those of the right one; where a stranger could have sent them as well, of none. */
static void test_from(const char *provider)
{
	unsigned long n = 0, named;

	open_pair(provider);
	prepare(&c, &A);
	prepare(&d, &B);
	join(&c, &d);
	for (; n < 30; n++) {
		must_send(n % 3 == 0 ? &a : &c, n % 3 == 0 ? &b : &d, n, 100, 24);
		await(&a, &b, n + 1);
	}
	named = !B.be->rdm;
	CHECK(b.core_ep.frames == 10 * named && d.core_ep.frames == 20 * named, "%lu and %lu", b.core_ep.frames,
	      d.core_ep.frames);
	leave(&c);
	leave(&d);
	close_ends();
}

/* What a peer sent before it closed, and what had left, comes before the news of its end.  Frames are longer than what is
 * injected, of which nobody says when it leaves. */
static void test_last_words(const char *provider)
{
	enum { LEN = 2000 };

	open_side(&A, provider);
	open_side(&B, provider);
	for (int round = 0; round < 50; round++) {
		unsigned long before = B.frames;

		prepare(&a, &A);
		prepare(&b, &B);
		join(&a, &b);
		for (uint64_t i = 0; i < 5; i++)
			must_send(&a, &b, before + i, LEN, 24);
		/* Some say so only when the other side has taken them. */
		for (int64_t start = now_ms(); busy(&A);) {
			CHECK(now_ms() < start + 10000, "they do not leave");
			CHECK(ops->poll(A.be) >= 0 && (now_ms() < start + 20 || ops->poll(B.be) >= 0));
		}
		leave(&a);
		for (int64_t end = now_ms() + 10000; B.frames < before + 5 && b.core_ep.failed == 0 && now_ms() < end;)
			CHECK(ops->poll(B.be) >= 0);
		/* Those that have no connections never say that it ended. */
		for (int64_t end = now_ms() + 60; b.core_ep.failed == 0 && now_ms() < end;) {
			CHECK(ops->poll(B.be) >= 0);
			usleep(20);
		}
		if (b.core_ep.failed > 0)
			CHECK(b.core_ep.frames_then == before + 5, "%lu of 5", b.core_ep.frames_then - before);
		CHECK(b.core_ep.failed <= 1 && B.frames == before + 5, "%lu of 5", B.frames - before);
		leave(&b);
	}
}

/*
 * A name in /dev/shm is gone once connected; what nobody has open any more is taken away, if it is ours by its name and
 * user.  A file of libfabric's own naming is somebody else's: a process of that number may live in another container.
 */
static void test_leftovers(const char *provider)
{
	static const struct timespec old[2] = {{1, 0}, {1, 0}};
	static const char dead[] = "/dev/shm/xport-0123456789abcdef0123456789abcdef";
	char foreign[64];
	int fd, other, before;

	if (strcmp(provider, "shm") != 0)
		return;
	(void)own_dev_shm(NULL);
	snprintf(foreign, sizeof(foreign), "/dev/shm/%d:%d:0", (int)getpid(), (int)getuid());
	fd = open(dead, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	other = open(foreign, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && futimens(fd, old) == 0, "%s: %s", dead, strerror(errno));
	CHECK(other >= 0 && futimens(other, old) == 0, "%s: %s", foreign, strerror(errno));
	close(other);
	before = count_names("xport-");
	CHECK(try_open(&C, provider) == XPORT_OK, "%s", err.text);
	CHECK(access(dead, F_OK) == 0, "%s was taken away from who has it", dead);
	close(fd);
	open_pair(provider);
	CHECK(access(dead, F_OK) != 0, "%s is still there", dead);
	CHECK(count_names("xport-") < before, "an endpoint's file would be left by a kill");
	CHECK(access(foreign, F_OK) == 0, "%s of somebody else was taken away", foreign);
	unlink(foreign);
}

static void ignore(void *arg, const struct xport_candidate *cand)
{
	CHECK(cand->reason[0] != '\0' && (cand->state == XPORT_READY || cand->hint[0] != '\0'), "%s", cand->name);
	*(int *)arg += cand->state == XPORT_READY;
}

/* Signals are as before, and no thread of the stack takes one. */
static void test_signals(const char *provider)
{
	struct sigaction before[65], after;
	sigset_t mask, now;
	int ready = 0;

	for (int i = 1; i < 65; i++)
		sigaction(i, NULL, &before[i]);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	CHECK(ops->list(&quiet, ignore, &ready) == XPORT_OK && ready > 0);
	open_pair(provider);
	for (int i = 1; i < 65; i++)
		CHECK(sigaction(i, NULL, &after) != 0 || before[i].sa_handler == after.sa_handler, "signal %d", i);
	sigprocmask(SIG_SETMASK, NULL, &now);
	for (int i = 1; i < 65; i++)
		CHECK(sigismember(&mask, i) == sigismember(&now, i), "signal %d", i);
}

/* Where the clock wakes it is soon after something happened, and how often it was armed meanwhile does not matter. */
static void test_naps(const char *provider)
{
	int64_t best = INT64_MAX;
	struct pollfd p = {.events = POLLIN};

	open_pair(provider);
	if (B.be->timer < 0)
		return;
	CHECK(ops->fds(B.be, &p.fd, 1) == 1);
	for (uint64_t i = 0; i < 20; i++) {
		int64_t t;

		must_send(&a, &b, i, 64, 24);
		await(&a, &b, i + 1);
		for (int k = 0; k < 300; k++)
			CHECK(ops->poll(B.be) >= 0 && (ops->arm(B.be) == XPORT_OK || k == 0));
		t = now_ms();
		CHECK(poll(&p, 1, 1000) == 1);
		t = now_ms() - t;
		best = t < best ? t : best;
	}
	CHECK(best <= 3, "%d ms", (int)best);
}

/* read(2) and write(2) of this process so far. */
static unsigned long reads_and_writes(void)
{
	unsigned long r = 0, w = 0;
	FILE *f = fopen("/proc/self/io", "re");

	CHECK(f != NULL && fscanf(f, "rchar: %*u wchar: %*u syscr: %lu syscw: %lu", &r, &w) == 2);
	fclose(f);
	return r + w;
}

/* A message costs tcp no byte to itself, but who sleeps wakes when it comes, and not before. */
static void test_wakes(const char *provider)
{
	enum { FRAMES = 300 };
	struct pollfd p[3] = {{.events = POLLIN}, {.events = POLLIN}, {.events = POLLIN}};
	unsigned long before;
	unsigned minor = 0;
	uint64_t seq = 0;
	int n;

	if (strcmp(provider, "tcp") != 0)
		return;
	open_pair(provider);
	before = reads_and_writes();
	for (; seq < FRAMES; seq++) {
		must_send(&a, &b, seq, 64, 24);
		await(&a, &b, seq + 1);
	}
	before = reads_and_writes() - before;
	CHECK(sscanf(A.caps.stack, "libfabric 1.%u", &minor) == 1 && (minor >= 18 || before < FRAMES / 2), "%lu",
	      before);
	n = ops->fds(B.be, (int[3]){0}, 3);
	for (; seq < FRAMES + 20; seq++) {
		int fds[3];

		run_both(&A, &B, 5);
		CHECK(ops->fds(B.be, fds, 3) == n && n > 0);
		for (int i = 0; i < n; i++)
			p[i].fd = fds[i];
		CHECK(ops->arm(B.be) == XPORT_OK && poll(p, (nfds_t)n, 20) == 0);
		must_send(&a, &b, seq, 64, 24);
		CHECK(poll(p, (nfds_t)n, 1000) == 1);
		await(&a, &b, seq + 1);
	}
}

/* Both ends in one process: what is sent to an end that was closed is refused, and touches nothing of it. */
static void test_closed_beside(const char *provider)
{
	open_pair(provider);
	must_send(&a, &b, 0, 64, 24);
	must_send(&b, &a, 0, 64, 24);
	await(&a, &b, 1);
	await(&b, &a, 1);
	leave(&a);
	for (uint64_t i = 1; i < 50; i++)
		(void)send_frame(&b, i, 64, 24);
	if (strcmp(provider, "shm") == 0)
		CHECK(send_frame(&b, 50, 64, 24) == XPORT_ERR_AGAIN, "the door is open");
	leave(&b);
}

/*
 * Both ends in one process, one of which closes while they connect: what it had sent is not taken any more, because shm
 * (1.17) would write to its memory for that.
 */
static void test_closed_early(const char *provider)
{
	open_side(&A, provider);
	open_side(&B, provider);
	prepare(&a, &A);
	prepare(&b, &B);
	(void)ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len);
	(void)ops->ep_connect(A.be, a.ep, XPI_ACTIVE, b.addr, b.len);
	leave(&a);
	for (int i = 0; i < 100; i++)
		CHECK(ops->poll(B.be) >= 0);
	leave(&b);
	ops->close(A.be);
	ops->close(B.be);
}

/* One that went is forgotten while others are busy all the time. */
static void test_one_gone(const char *provider)
{
	int64_t end;

	if (strcmp(provider, "tcp") != 0)
		return;
	open_pair(provider);
	open_side(&C, provider);
	prepare(&c, &A);
	prepare(&d, &C);
	join(&c, &d);
	leave(&d);
	end = now_ms() + 5000;
	for (uint64_t seq = 0, more = 0; more < 100 && now_ms() < end; seq++) {
		must_send(&b, &a, seq, 64, 24);
		(void)ops->arm(A.be); /* so that the next poll looks everywhere */
		await(&b, &a, seq + 1);
		more += c.core_ep.failed != 0;
	}
	CHECK(c.core_ep.failed != 0);
	leave(&c);
	CHECK(A.be->ngone == 0 && a.core_ep.failed == 0, "%u", A.be->ngone);
}

static char chosen[64];

static void take_chosen(void *arg, const struct xport_candidate *cand)
{
	(void)arg;
	if (strstr(cand->reason, "XPORT_BACKEND=ofi chooses this") != NULL) {
		CHECK(chosen[0] == '\0' && cand->state == XPORT_READY, "%s and %s", chosen, cand->name);
		snprintf(chosen, sizeof(chosen), "%s", strchr(cand->name, ':') + 1);
	}
}

/* Without a provider: the one that the list says, and the log tells which and why not those before it. */
static void test_choice(const char *provider)
{
	char took[96];

	(void)provider;
	listen_for("3014");
	CHECK(ops->list(&quiet, take_chosen, NULL) == XPORT_OK && chosen[0] != '\0');
	CHECK(try_open(&A, NULL) == XPORT_OK, "%s", err.text);
	ops->query(A.be, &A.caps);
	CHECK(strcmp(A.caps.provider, chosen) == 0, "%s, listed was %s", A.caps.provider, chosen);
	snprintf(took, sizeof(took), "chose %s,", chosen);
	CHECK(strstr(line, took) != NULL, "%s", line);
	CHECK(strcmp(chosen, "verbs") == 0 || strstr(line, "; not verbs: ") != NULL, "%s", line);
}

/* A network of this process's own, with an interface v7 that has an address of IPv6. */
static bool own_network(void)
{
	static const char make[] = "{ mount --make-rprivate / && mount -t sysfs none /sys && ip link set lo up && "
				   "ip link add v7 type veth peer name w7 && ip link set w7 up && ip link set v7 up && "
				   "ip address add fd00:7::5/64 dev v7 nodad; } 2>/dev/null";

	if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 || system(make) != 0) {
		printf("skipped: a network of one's own cannot be made here\n");
		return false;
	}
	unsetenv("FI_TCP_IFACE");
	unsetenv("FI_NET_IFACE");
	unsetenv("FI_SOCKETS_IFACE");
	return true;
}

/* Who tells addresses of IPv6 and who tells those of IPv4 connect to each other. */
static void test_families(const char *provider)
{
	if (strchr(provider, ';') != NULL || strcmp(provider, "shm") == 0 || !own_network())
		return;
	open_side(&A, provider);
	CHECK(A.be->addr[0].sa.sa_family == AF_INET6);
	CHECK(system("ip address add 10.9.9.1/24 dev v7") == 0);
	open_side(&B, provider);
	CHECK(B.be->addr[0].sa.sa_family == AF_INET);
	prepare(&a, &A);
	prepare(&b, &B);
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	prepare(&c, &A);
	prepare(&d, &B);
	join(&d, &c);
	must_send(&d, &c, 0, 100, 24);
	await(&d, &c, 1);
}

/* With IPv6 alone but for a bridge peers are told IPv6; as soon as IPv4 leads out, or is of anything else, that. */
static void test_bridge(const char *provider)
{
	static const struct {
		const char *command;
		int family;
	} steps[] = {
		{"ip link add br7 type bridge && ip address add 172.17.0.1/16 dev br7 && ip link set br7 up", AF_INET6},
		{"ip route add default via 172.17.0.2", AF_INET},
		{"ip route del default && ip address add 10.9.9.1/24 dev v7", AF_INET},
	};

	if (strchr(provider, ';') != NULL || strcmp(provider, "shm") == 0 || !own_network())
		return;
	for (int i = 0; i < 3; i++) {
		CHECK(system(steps[i].command) == 0, "%s", steps[i].command);
		open_side(&A, provider);
		CHECK(A.be->addr[0].sa.sa_family == steps[i].family, "%s: %d", steps[i].command,
		      A.be->addr[0].sa.sa_family);
		ops->close(A.be);
	}
}

/* FI_PROVIDER of the environment that leaves it out is named. */
static void test_filtered(const char *provider)
{
	setenv("FI_PROVIDER", "perf", 1);
	CHECK(try_open(&A, provider) == XPORT_ERR_NO_BACKEND);
	CHECK(strstr(err.text, "FI_PROVIDER=perf") != NULL, "%s", err.text);
}

/* ---- running ---- */

static const struct {
	const char *name;
	void (*fn)(const char *provider);
} tests[] = {
	{"sizes", test_sizes},
	{"full", test_full},
	{"stranger", test_stranger},
	{"too_long", test_too_long},
	{"bad_address", test_bad_address},
	{"quiesce", test_quiesce},
	{"from", test_from},
	{"last_words", test_last_words},
	{"signals", test_signals},
	{"families", test_families},
	{"bridge", test_bridge},
	{"filtered", test_filtered},
	{"leftovers", test_leftovers},
	{"dead_inside", test_dead_inside},
	{"slow_inside", test_slow_inside},
	{"dead_beside", test_dead_beside},
	{"choice", test_choice},
	{"rubbish", test_rubbish},
	{"half_request", test_half_request},
	{"silent", test_silent},
	{"deaf", test_deaf},
	{"late", test_late},
	{"late_no_more", test_late_no_more},
	{"naps", test_naps},
	{"window", test_window},
	{"half_accepted", test_half_accepted},
	{"no_descriptor", test_no_descriptor},
	{"full_table", test_full_table},
	{"no_file", test_no_file},
	{"no_file_more", test_no_file_more},
	{"no_room", test_no_room},
	{"filled_later", test_filled_later},
	{"equal_pids", test_equal_pids},
	{"wakes", test_wakes},
	{"closed_beside", test_closed_beside},
	{"closed_early", test_closed_early},
	{"one_gone", test_one_gone},
};

static bool run(const char *module, const char *provider, int i)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		void *handle;

		alarm(60);
		handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);
		if (handle == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			_exit(2);
		}
		ops = dlsym(handle, "xpi_backend");
		CHECK(ops != NULL && ops->abi == XPI_BACKEND_ABI, "no back end");
		tests[i].fn(provider);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	printf("%s %s %s\n", status == 0 ? "ok" : "FAILED", provider, tests[i].name);
	if (WIFSIGNALED(status))
		printf("  signal %d\n", WTERMSIG(status));
	return status == 0;
}

int main(int argc, char **argv)
{
	static const char *const all[] = {"tcp", "net", "sockets", "shm", "tcp;ofi_rxm", "udp;ofi_rxd"};
	const int n = argc > 2 ? argc - 2 : (int)(sizeof(all) / sizeof(all[0]));
	const char *only = getenv("BE_TEST_ONLY");
	int bad = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: ofi_be_test MODULE.so [PROVIDER]...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	for (int p = 0; p < n; p++)
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			if (only == NULL || strcmp(only, tests[i].name) == 0)
				bad += !run(argv[1], argc > 2 ? argv[2 + p] : all[p], (int)i);
	printf("%s: %d failed\n", bad == 0 ? "ok" : "FAILED", bad);
	return bad != 0;
}
