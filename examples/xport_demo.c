/* SPDX-License-Identifier: BSD-3-Clause */
/* xport_demo [FILE] - moves FILE (this program) over every provider that is usable here, and prints a line for each:
 * two processes that differ in nothing but XPORT_BACKEND.  If that is set, only what it says is used. */
#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xport.h>
#include <xxhash.h>

enum { WINDOW = 16 << 20, CHUNK = 1 << 20, PAGE = 4096, TRIPS = 500, ADDS = 1000, PATIENCE_S = 60, MAX = 64 };
enum { TARGET, INITIATOR };
static const char *const steps[] = {"peer", "put", "get", "put with notify", "atomic", "send", "receive"};

struct shared { /* what the processes tell one another */
	atomic_bool listening;
	char address[64], path[16], failure[2][800];
	double put_s, get_s, trip_s;
};
static struct shared *shared;
static int role;
static xport *x;
static xport_ep *ep;
static xport_mr *mr;
static xport_rkey *key;  /* to the peer's memory, which is as ours: */
static uint8_t *memory;  /* a page with a counter, and a window */
static uint64_t pending; /* operations that have not completed */
static uint64_t notified, old[ADDS];

/* Ends the process unless `bad` is 0: with the step, the status if it is one, and what the library says. */
static void must(const char *step, int bad)
{
	struct xport_error e = {.size = sizeof(e)};

	if (bad == 0)
		return;
	(void)xport_last_error(x, &e);
	snprintf(shared->failure[role], sizeof(shared->failure[role]), "%s: %s%s%s%s%s", role ? "initiator" : "target",
	         step, bad < 0 ? ": " : "", bad < 0 ? xport_strerror(bad) : "", e.text[0] != '\0' ? ": " : "", e.text);
	_exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reaps once, and on until no more than `left` operations are pending.  A wait without end is ended by SIGALRM, which
 * the first process reports. */
static void reap(uint64_t left)
{
	alarm(PATIENCE_S);
	do {
		struct xport_completion c = {0};
		int n = xport_wait(x, &c, 1, 1000);

		must("wait", n < 0 ? n : 0);
		must(steps[c.type <= XPORT_OP_RECV ? c.type : 0], c.status);
		notified = c.type == XPORT_EVENT_NOTIFY ? c.tag : notified;
		pending -= c.type >= XPORT_OP_PUT && c.type <= XPORT_OP_RECV;
	} while (pending > left);
}

/* Takes note of what a posting function returned.  False: it must be called again. */
static bool accepted(int type, int r)
{
	must(steps[type], r == XPORT_ERR_AGAIN ? 0 : r);
	pending += r == XPORT_OK;
	if (r == XPORT_ERR_AGAIN)
		reap(UINT64_MAX);
	return r == XPORT_OK;
}

/* Tells the peer a number and returns the one it tells.  The receives are posted in another order: the tags decide. */
static uint64_t swap(uint64_t n)
{
	static uint64_t tag;
	uint64_t out[2] = {n, ~n}, in[2] = {0, 0};

	for (uint64_t i = 2; i-- > 0;)
		while (!accepted(XPORT_OP_RECV, xport_recv(x, &in[i], 8, tag + i, UINT64_MAX, NULL))) {}
	for (uint64_t i = 0; i < 2; i++)
		while (!accepted(XPORT_OP_SEND, xport_send(ep, &out[i], 8, tag + i, NULL))) {}
	tag += 2;
	reap(0);
	must("content of messages", in[1] != ~in[0]);
	return in[0];
}

/* Puts a window of the file, the last piece with a notification, and gets it back into our own window. */
static void put_and_get(uint8_t *data, uint64_t n, uint64_t value)
{
	struct xport_opt out = {.size = sizeof(out), .value = value}, in = {.size = sizeof(in), .mr = mr};
	uint64_t i = 0, last = n > 0 ? (n - 1) / CHUNK * CHUNK : 0;

	must("register the file", n > 0 ? xport_mr_reg(x, data, n, 0, &out.mr) : 0);
	shared->put_s -= now();
	for (; i < last; i += CHUNK)
		while (!accepted(XPORT_OP_PUT, xport_put(ep, data + i, CHUNK, key, PAGE + i, &out))) {}
	while (!accepted(XPORT_OP_PUT_NOTIFY, xport_put_notify(ep, data + i, n - i, key, PAGE + i, &out))) {}
	reap(0);
	shared->put_s += now();
	shared->get_s -= now();
	while (!accepted(XPORT_OP_GET, xport_get(ep, memory + PAGE, n, key, PAGE, &in))) {}
	reap(0);
	shared->get_s += now();
	must("what was read back differs", memcmp(data, memory + PAGE, n) != 0);
	must("deregister the file", xport_mr_dereg(out.mr));
}

static void move(int fd, uint64_t size)
{
	for (uint64_t at = 0, sum = 0, n; at == 0 || at < size; at += WINDOW) {
		uint8_t *data = memory + PAGE;

		n = size - at < WINDOW ? size - at : WINDOW;
		if (role == INITIATOR) {
			data = n > 0 ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)at) : data;
			must("map the file", data == MAP_FAILED);
			put_and_get(data, n, at + n + 1);
		}
		while (role == TARGET && notified != at + n + 1)
			reap(UINT64_MAX);
		sum = XXH3_64bits_withSeed(data, n, sum);
		must("checksums differ", swap(sum) != sum);
		if (data != memory + PAGE)
			munmap(data, n);
	}
}

/* Target and initiator; the key to either's memory is handed to the other with the connection. */
static void run(int fd, uint64_t size)
{
	char packed[1024];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = packed, .private_len = sizeof(packed)};
	struct xport_mr_info mine = {.size = sizeof(mine)};
	struct xport_ep_info peer = {.size = sizeof(peer)};
	struct xport_rkey_info theirs = {.size = sizeof(theirs)};
	struct xport_atomic_args add = {.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	xport_listener *listener;

	alarm(PATIENCE_S);
	must("open", xport_open(NULL, &x));
	must("memory", xport_mr_alloc(x, PAGE + WINDOW, 7, &mr) || xport_mr_query(mr, &mine) ||
	                       xport_rkey_pack(mr, packed, &attr.private_len));
	memory = mine.base;
	if (role == TARGET) {
		must("listen", xport_listen(x, "127.0.0.1:0", &attr, &listener) ||
		                       xport_listener_name(listener, shared->address, sizeof(shared->address)));
		shared->listening = 1;
		must("accept", xport_accept(listener, -1, &ep));
	} else {
		while (!shared->listening && shared->failure[TARGET][0] == '\0')
			usleep(1000);
		must("connect", xport_connect(x, shared->address, &attr, -1, &ep));
	}
	must("key", xport_ep_query(ep, &peer) || xport_rkey_unpack(ep, peer.private_data, peer.private_len, &key));
	swap(0); /* both are here, and the network's own way is agreed upon, if there is one */
	move(fd, size);
	must("key", xport_rkey_query(key, &theirs));
	if (role == INITIATOR)
		strcpy(shared->path, theirs.direct ? "mapped" : theirs.put == XPORT_NATIVE ? "native" : "emulated");
	double begun = now();
	for (uint64_t i = 0; i < TRIPS; i++)
		must("content of messages", swap(i) != i);
	shared->trip_s = now() - begun;
	for (int i = 0; i < ADDS; i++, atomic_fetch_add((_Atomic uint64_t *)memory, 1)) {
		add.result = &old[i]; /* both count in the peer's memory by atomics, and in their own with the CPU's */
		while (!accepted(XPORT_OP_ATOMIC, xport_atomic(ep, &add, key, 0, NULL))) {}
	}
	reap(0);
	swap(0); /* the peer has counted, too */
	must("the counter is wrong", *(uint64_t *)memory != 2 * ADDS);
	(void)xport_ep_close(ep, 5000); /* PEER_CLOSED where the other was first */
	xport_close(x);
	_exit(0);
}

/* Prints a line of the table; returns whether it is a good one. */
static bool row(const char *backend, int fd, double size)
{
	pid_t pid[2];
	int st[2] = {1, 1};

	memset(shared, 0, sizeof(*shared));
	setenv("XPORT_BACKEND", backend, 1);
	fflush(NULL);
	for (role = TARGET; role <= INITIATOR; role++)
		if ((pid[role] = fork()) == 0)
			run(fd, (uint64_t)size);
	for (int i = 0; i < 2; i++)
		if (pid[i] > 0 && waitpid(pid[i], &st[i], 0) > 0 && WIFSIGNALED(st[i]))
			sprintf(shared->failure[i], "%s: %s", i ? "initiator" : "target", strsignal(WTERMSIG(st[i])));
	if (st[0] == 0 && st[1] == 0)
		printf("%-12s %-9s %8.2f %8.2f %14.0f %8d  ok\n", backend, shared->path, size / shared->put_s / 1e9,
		       size / shared->get_s / 1e9, TRIPS / shared->trip_s, 2 * ADDS);
	else
		printf("%-12s FAILED    %s; %s\n", backend, shared->failure[INITIATOR], shared->failure[TARGET]);
	return st[0] == 0 && st[1] == 0;
}

int main(int argc, char **argv)
{
	const char *file = argc > 1 ? argv[1] : "/proc/self/exe", *only = getenv("XPORT_BACKEND");
	size_t room = sizeof(struct shared) + MAX * sizeof(struct xport_candidate);
	int fd = open(file, O_RDONLY), n = 0, ready = 0, good = 0;
	struct xport_candidate *c;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || argc > 2) {
		fprintf(stderr, "xport_demo: %s: %s\n", file, fd < 0 ? strerror(errno) : "not one regular file");
		return 1;
	}
	shared = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return perror("xport_demo"), 1;
	c = (struct xport_candidate *)(shared + 1);
	printf("provider     put path  put GB/s get GB/s  round trips/s  atomics\n");
	fflush(stdout);
	/* Listed by a process of its own, so that this one, which forks, never loads a stack. */
	if ((only == NULL || *only == '\0') && fork() == 0)
		_exit((n = xport_list(NULL, c, sizeof(*c), MAX)) < 0 ? 0 : n > MAX ? MAX : n);
	n = wait(&n) > 0 && WIFEXITED(n) ? WEXITSTATUS(n) : 0;
	if (n == 0) /* one is asked for, or opening says why there are none */
		return !row(only != NULL && *only != '\0' ? only : "auto", fd, (double)st.st_size);
	for (; n-- > 0; c++) {
		if (c->state == XPORT_READY)
			good += row(c->name, fd, (double)st.st_size);
		else
			printf("%-12s not used: %s%s%s\n", c->name, c->reason, c->hint[0] != '\0' ? "; " : "", c->hint);
		ready += c->state == XPORT_READY;
	}
	return ready == 0 || good < ready;
}
