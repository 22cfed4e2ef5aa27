/* SPDX-License-Identifier: BSD-3-Clause */
/* xport_demo [--mixed] [FILE] - moves FILE (default: this program) over every provider that is usable here, and prints a
 * line for each.  Two processes do it; only XPORT_BACKEND differs from line to line.  If it is set, only that provider is
 * used.  For --mixed see xport_demo_mixed.c. */
#define XXH_INLINE_ALL
#include "xport_demo.h"

#include <err.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { TARGET, INITIATOR, WINDOW = 16 << 20, MAX = 64 };

static struct memory { /* what each side lets the other reach */
	_Alignas(4096) _Atomic uint64_t counter;
	_Alignas(4096) uint8_t window[WINDOW], back[WINDOW]; /* a part of the file; the same, read back */
} * memory;
xport *x;
const char *who;
static int role, address[2]; /* a pipe by which the target tells where it listens */
static xport_ep *ep;
static xport_mr *mr;
static xport_rkey *key;   /* to the peer's memory */
static uint64_t notified; /* the last value that came with a put */

void must(const char *step, int bad)
{
	struct xport_error e = {.size = sizeof(e)};

	if (bad == 0)
		return;
	(void)xport_last_error(x, &e);
	warnx("%s: %s: %s: %s. %s", getenv("XPORT_BACKEND"), who, step,
	      bad < 0 ? xport_strerror(bad) : "not as it should be", e.text);
	_exit(1);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void finish(const char *step, int status, int n)
{
	must(step, status);
	alarm(PATIENCE_S);
	do {
		struct xport_completion c = {0};

		status = xport_wait(x, &c, 1, 1000);
		must(step, status < 0 ? status : c.status);
		notified = c.type == XPORT_EVENT_NOTIFY ? c.tag : notified;
		n -= c.type >= XPORT_OP_PUT && c.type <= XPORT_OP_RECV;
	} while (n > 0);
}

/* Sends the peer a number and returns the one that it sends; the n-th of either has the tag n. */
static uint64_t swap(uint64_t mine)
{
	static uint64_t tag;
	uint64_t theirs = 0;

	must("receive", xport_recv(x, &theirs, sizeof(theirs), ++tag, UINT64_MAX, NULL));
	finish("send", xport_send(ep, &mine, sizeof(mine), tag, NULL), 2);
	return theirs;
}

/* Connects; the key to either's memory is handed to the other with the connection. */
static void meet(void)
{
	char packed[1024], name[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = packed, .private_len = sizeof(packed)};
	struct xport_mr_info mine = {.size = sizeof(mine)};
	struct xport_ep_info peer = {.size = sizeof(peer)};
	xport_listener *listener;

	must("open", xport_open(NULL, &x));
	must("memory",
	     xport_mr_alloc(x, sizeof(*memory), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC, &mr));
	must("memory", xport_mr_query(mr, &mine));
	memory = mine.base;
	must("pack key", xport_rkey_pack(mr, packed, &attr.private_len));
	if (role == TARGET) {
		must("listen", xport_listen(x, "127.0.0.1:0", &attr, &listener));
		must("listen", xport_listener_name(listener, name, sizeof(name)));
		must("tell the initiator", write(address[1], name, sizeof(name)) != sizeof(name));
		must("accept", xport_accept(listener, PATIENCE_S * 1000, &ep));
	} else {
		close(address[1]);
		must("hear from the target", read(address[0], name, sizeof(name)) != sizeof(name));
		must("connect", xport_connect(x, name, &attr, -1, &ep));
	}
	must("peer", xport_ep_query(ep, &peer));
	must("unpack key", xport_rkey_unpack(ep, peer.private_data, peer.private_len, &key));
}

static void run(int fd, uint64_t size)
{
	const uint64_t window = offsetof(struct memory, window), counter = offsetof(struct memory, counter);
	struct xport_atomic_args add = {.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	struct xport_rkey_info theirs = {.size = sizeof(theirs)};
	double put_s = 0, get_s = 0, gb = 1e-9 * (double)size;

	who = role == TARGET ? "target" : "initiator";
	meet();
	swap(0); /* both are here, and the network's own way is agreed upon, if there is one */
	struct xport_opt opt = {.size = sizeof(opt), .mr = mr, .value = 1}; /* the value counts windows */
	for (uint64_t at = 0; at == 0 || at < size; at += WINDOW, opt.value++) {
		uint64_t n = size - at < WINDOW ? size - at : WINDOW;

		if (role == INITIATOR) {
			must("reading the file", pread(fd, memory->window, n, (off_t)at) != (ssize_t)n);
			put_s -= now();
			finish("put", xport_put_notify(ep, memory->window, n, key, window, &opt), 1);
			put_s += now();
			get_s -= now();
			finish("get", xport_get(ep, memory->back, n, key, window, &opt), 1);
			get_s += now();
		}
		while (role == TARGET && notified != opt.value)
			finish("notification", XPORT_OK, 0);
		uint64_t sum = XXH3_64bits(memory->window, n);
		must("checksum of what was put", swap(sum) != sum);
		must("checksum of what was got", role == INITIATOR && XXH3_64bits(memory->back, n) != sum);
	}
	must("query key", xport_rkey_query(key, &theirs));
	for (uint64_t i = 0; i < ROUNDS; i++) { /* both count: at the peer by atomics, and at home with the CPU's */
		must("content of messages", swap(i) != i);
		finish("atomic", xport_atomic(ep, &add, key, counter, NULL), 1);
		memory->counter++;
	}
	swap(0); /* the peer has counted, too */
	must("counter", memory->counter != 2 * ROUNDS || swap(memory->counter) != 2 * ROUNDS);
	if (role == INITIATOR)
		printf("%-12s %-8s %8.2f %8.2f %12d of each  ok\n", getenv("XPORT_BACKEND"),
		       theirs.put ? "native" : "emulated", gb / put_s, gb / get_s, 2 * ROUNDS);
	(void)xport_ep_close(ep, 5000); /* PEER_CLOSED where the other was first */
	xport_close(x);
	_exit(0);
}

/* A line of the table; returns whether it is a good one. */
static int row(const char *backend, int fd, off_t size)
{
	int good = 0;

	setenv("XPORT_BACKEND", backend, 1);
	if (pipe(address) != 0)
		err(1, "pipe");
	for (role = TARGET; role <= INITIATOR; role++)
		if (fork() == 0)
			run(fd, (uint64_t)size);
	close(address[0]);
	close(address[1]);
	for (int st; wait(&st) > 0;)
		good += st == 0;
	if (good < 2)
		printf("%-12s FAILED\n", backend);
	return good == 2;
}

static const char usage[] =
	"usage: xport_demo [--mixed] [FILE]\n"
	"Move FILE (default: this program) over every provider that is usable here, and print a line for each.\n"
	"If XPORT_BACKEND is set, only that provider is used.\n"
	"--mixed: all at the same time. One process serves a peer for each provider.\n"
	"Exit status: 0 if all succeeded, 1 if not, 2 for wrong arguments.\n";

/* Lists the candidates into memory that a child process fills: so this one, which forks again, never loads a stack. */
static const struct xport_candidate *candidates(void)
{
	struct xport_candidate *list =
		mmap(NULL, MAX * sizeof(*list), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (list == MAP_FAILED)
		err(1, "mmap");
	snprintf(list->name, sizeof(list->name), "auto"); /* which says why, if listing fails */
	if (fork() == 0)
		_exit(xport_list(NULL, list, sizeof(*list), MAX) < 0);
	wait(NULL);
	return list;
}

int main(int argc, char **argv)
{
	const char *only = getenv("XPORT_BACKEND"), *file;
	int fd, rows[] = {0, 0}; /* bad ones, good ones */
	bool mixed = argc > 1 && strcmp(argv[1], "--mixed") == 0;
	const struct xport_candidate *list;
	struct stat st;

	argc -= mixed, argv += mixed;
	if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
		bool help = argc == 2 && strcmp(argv[1], "--help") == 0;

		fputs(usage, help ? stdout : stderr);
		return help ? 0 : 2;
	}
	file = argc == 2 ? argv[1] : "/proc/self/exe";
	fd = open(file, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) != 0)
		err(1, "%s", file);
	if (!S_ISREG(st.st_mode))
		errx(1, "%s: not one regular file", file);
	setlinebuf(stdout);
	printf("provider     put path  put GB/s get GB/s  messages, atomics\n");
	if (only != NULL && *only != '\0')
		return mixed ? mixed_of(only, fd, (uint64_t)st.st_size) : !row(only, fd, st.st_size);
	list = candidates();
	if (mixed)
		return mixed_all(list, MAX, fd, (uint64_t)st.st_size);
	for (int i = 0; i < MAX && list[i].name[0] != '\0'; i++)
		if (list[i].state == XPORT_READY)
			rows[row(list[i].name, fd, st.st_size)]++;
		else
			printf("%-12s not used: %s; %s\n", list[i].name, list[i].reason, list[i].hint);
	return rows[0] > 0 || rows[1] == 0;
}
