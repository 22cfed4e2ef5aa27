/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lists.c - lists BACKEND [ROUNDS]: the time of operations with lists of pieces, beside that of the same bytes in one
 * buffer. Two processes do both in turn, MANY of one kind and then of the other. For each pair it prints the medians, and
 * the median and the quartiles of the ratios of the rounds.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xport.h>

enum { MANY = 64, ROUNDS = 60, ROUNDS_MAX = 1000, PIECES = 64, LEN = 4 << 20 };

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
			_exit(1); \
		} \
	} while (0)

/* What the target tells. */
static struct told {
	char address[64];
	uint8_t key[256];
	size_t key_len;
	volatile int ready;
} * told;

static xport *x;
static xport_ep *ep;
static xport_rkey *rkey;
static xport_mr *mr, *in;
static uint8_t *mem, *in_mem;

static void check(int status, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == XPORT_OK)
		return;
	if (xport_last_error(x, &e) == XPORT_OK)
		fprintf(stderr, "%s: %s: %s\n", what, xport_strerror(status), e.text);
	_exit(1);
}

static uint8_t *memory(xport_mr **region)
{
	struct xport_mr_info info = {.size = sizeof(info)};

	check(xport_mr_alloc(x, 2 * LEN, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, region), "xport_mr_alloc");
	check(xport_mr_query(*region, &info), "xport_mr_query");
	return info.base;
}

static void setup(const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};

	if (xport_open(&attr, &x) != XPORT_OK) {
		x = NULL;
		check(XPORT_ERR_NO_BACKEND, "xport_open");
	}
	mem = memory(&mr);
	in_mem = memory(&in);
}

/* Waits for one completion of this type. */
static void wait_for(unsigned type)
{
	struct xport_completion c;

	for (;;) {
		int n = xport_poll(x, &c, 1);

		CHECK(n >= 0);
		if (n == 0)
			continue;
		CHECK(c.status == XPORT_OK);
		if (c.type == type)
			return;
	}
}

/* Receives messages and answers each, until a message of 1 byte. */
static _Noreturn void target(const char *backend)
{
	struct xport_opt o = {.size = sizeof(o)};
	xport_listener *listener;
	struct xport_completion c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setup(backend);
	check(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
	check(xport_listener_name(listener, told->address, sizeof(told->address)), "xport_listener_name");
	told->key_len = sizeof(told->key);
	check(xport_rkey_pack(mr, told->key, &told->key_len), "xport_rkey_pack");
	told->ready = 1;
	check(xport_accept(listener, -1, &ep), "xport_accept");
	o.mr = mr;
	for (c.length = 0; c.length != 1;) {
		check(xport_recv(x, mem, LEN, 1, UINT64_MAX, &o), "xport_recv");
		do {
			int n = xport_poll(x, &c, 1);

			CHECK(n >= 0);
			c.type = n > 0 ? c.type : 0;
		} while (c.type != XPORT_OP_RECV);
		check(xport_send(ep, mem, 1, 2, NULL), "xport_send");
	}
	for (int i = 0; i < 1000; i++)
		(void)xport_poll(x, &c, 1);
	_exit(0);
}

/* ---- what is compared ---- */

static struct xport_iov local[PIECES];
static struct xport_riov remote[PIECES];
static size_t npieces, piece;

/* Pieces with holes of the same length between them, at both ends. */
static void cut(size_t n, size_t len)
{
	npieces = n;
	piece = len;
	for (size_t i = 0; i < n; i++) {
		local[i] = (struct xport_iov){.addr = mem + 2 * i * len, .len = len, .mr = mr};
		remote[i] = (struct xport_riov){.offset = 2 * i * len, .len = len};
	}
}

static void put_one(void)
{
	struct xport_opt o = {.size = sizeof(o), .mr = mr};

	check(xport_put(ep, mem, npieces * piece, rkey, 0, &o), "xport_put");
	wait_for(XPORT_OP_PUT);
}

static void put_list(void)
{
	check(xport_putv(ep, local, npieces, rkey, remote, npieces, NULL), "xport_putv");
	wait_for(XPORT_OP_PUT);
}

static void get_one(void)
{
	struct xport_opt o = {.size = sizeof(o), .mr = mr};

	check(xport_get(ep, mem, npieces * piece, rkey, 0, &o), "xport_get");
	wait_for(XPORT_OP_GET);
}

static void get_list(void)
{
	check(xport_getv(ep, local, npieces, rkey, remote, npieces, NULL), "xport_getv");
	wait_for(XPORT_OP_GET);
}

/* To the answer of the receiver. */
static void answer_post(void)
{
	struct xport_opt o = {.size = sizeof(o), .mr = in};

	check(xport_recv(x, in_mem, 1, 2, UINT64_MAX, &o), "xport_recv");
}

static void send_one(void)
{
	struct xport_opt o = {.size = sizeof(o), .mr = mr};

	answer_post();
	check(xport_send(ep, mem, npieces * piece, 1, &o), "xport_send");
	wait_for(XPORT_OP_RECV);
}

static void send_list(void)
{
	answer_post();
	check(xport_sendv(ep, local, npieces, 1, NULL), "xport_sendv");
	wait_for(XPORT_OP_RECV);
}

/* ---- the figures ---- */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double time_of(void (*one)(void), unsigned many)
{
	double begin = now_us();

	for (unsigned i = 0; i < many; i++)
		one();
	return (now_us() - begin) / many;
}

static int by_size(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

static void compare(const char *what, size_t n, size_t len, void (*one)(void), void (*list)(void), int rounds)
{
	static double single[ROUNDS_MAX], pieces[ROUNDS_MAX], ratio[ROUNDS_MAX];
	unsigned many = n * len > (256 << 10) ? 4 : MANY;

	cut(n, len);
	time_of(one, many);
	time_of(list, many);
	for (int i = 0; i < rounds; i++) {
		single[i] = time_of(one, many);
		pieces[i] = time_of(list, many);
		ratio[i] = pieces[i] / single[i];
	}
	qsort(single, (size_t)rounds, sizeof(*single), by_size);
	qsort(pieces, (size_t)rounds, sizeof(*pieces), by_size);
	qsort(ratio, (size_t)rounds, sizeof(*ratio), by_size);
	printf("%-6s %2zu x %7zu  list %9.2f us, one buffer %9.2f us, ratio %.2f (%.2f to %.2f)\n", what, n, len,
	       pieces[rounds / 2], single[rounds / 2], ratio[rounds / 2], ratio[rounds / 4], ratio[rounds * 3 / 4]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS, status;
	pid_t child;

	if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: lists BACKEND [ROUNDS]\n");
		return 2;
	}
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(told != MAP_FAILED);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		target(argv[1]);
	setup(argv[1]);
	while (!told->ready) {
		CHECK(waitpid(child, &status, WNOHANG) == 0);
		usleep(1000);
	}
	check(xport_connect(x, told->address, NULL, -1, &ep), "xport_connect");
	check(xport_rkey_unpack(ep, told->key, told->key_len, &rkey), "xport_rkey_unpack");
	printf("%s\n", argv[1]);
	compare("put", 64, 1024, put_one, put_list, rounds);
	compare("put", 4, 16384, put_one, put_list, rounds);
	compare("put", 64, 64, put_one, put_list, rounds);
	compare("put", 4, 8, put_one, put_list, rounds);
	compare("put", 16, 65536, put_one, put_list, rounds);
	compare("get", 64, 1024, get_one, get_list, rounds);
	compare("get", 4, 16384, get_one, get_list, rounds);
	compare("get", 16, 65536, get_one, get_list, rounds);
	compare("send", 4, 16, send_one, send_list, rounds);
	compare("send", 4, 256, send_one, send_list, rounds);
	compare("send", 4, 1024, send_one, send_list, rounds);
	compare("send", 4, 15000, send_one, send_list, rounds);
	compare("send", 4, 65536, send_one, send_list, rounds);
	compare("send", 4, 1 << 18, send_one, send_list, rounds);
	compare("send", 64, 1024, send_one, send_list, rounds);
	check(xport_send(ep, mem, 1, 1, NULL), "xport_send");
	while (waitpid(child, &status, WNOHANG) == 0)
		(void)xport_poll(x, NULL, 0);
	xport_close(x);
	return status == 0 ? 0 : 1;
}
