/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * strided_speed.c - strided_speed BACKEND [ROUNDS]: a block of 64 x 64 bytes, by single puts and by one prepared put.
 *
 * The target is another process. Rounds of single puts, those of 16 blocks posted and then reaped, alternate with rounds
 * of 16 prepared ones, and with single puts that are waited for one by one. It prints the medians for a block, and how many
 * times the rate of single puts the prepared ones have. Memory is registered (reg) and allocated (alloc).
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

#include "services/xport_services.h"

enum {
	ROWS = 64,
	ROW = 64,
	STRIDE = 4096,
	LEN = ROWS * STRIDE,
	BLOCKS = 16,
	MANY = 10,
	ROUNDS = 40,
	ROUNDS_MAX = 1000
};

/* What the target tells. */
static struct told {
	char address[64];
	uint8_t key[2][256];
	size_t key_len[2];
	volatile int ready;
} * told;

static xport *x;
static xport_ep *ep;
static xport_mr *mr[2];
static uint8_t *mem[2];
static xport_rkey *rkey;
static xport_prepared *set;
static size_t block;
static int kind;

static void must(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "strided_speed: %s: %s\n", what, xport_strerror(status));
	_exit(1);
}

static void setup(const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	struct xport_mr_info info = {.size = sizeof(info)};

	must(xport_open(&attr, &x), "xport_open");
	mem[0] = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(xport_mr_reg(x, mem[0], LEN, XPORT_REMOTE_WRITE, &mr[0]), "xport_mr_reg");
	must(xport_mr_alloc(x, LEN, XPORT_REMOTE_WRITE, &mr[1]), "xport_mr_alloc");
	must(xport_mr_query(mr[1], &info), "xport_mr_query");
	mem[1] = info.base;
}

static _Noreturn void target(const char *backend)
{
	struct xport_completion c = {0};
	xport_listener *listener;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setup(backend);
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
	must(xport_listener_name(listener, told->address, sizeof(told->address)), "xport_listener_name");
	for (int i = 0; i < 2; i++) {
		told->key_len[i] = sizeof(told->key[i]);
		must(xport_rkey_pack(mr[i], told->key[i], &told->key_len[i]), "xport_rkey_pack");
	}
	told->ready = 1;
	must(xport_accept(listener, -1, &ep), "xport_accept");
	while (c.type != XPORT_EVENT_CLOSED)
		must(xport_poll(x, &c, 1), "xport_poll");
	_exit(0);
}

static void reap(unsigned n)
{
	struct xport_completion c[64];

	while (n > 0) {
		int got = xport_poll(x, c, 64);

		must(got, "xport_poll");
		for (int i = 0; i < got; i++, n--)
			must(c[i].status, "a put");
	}
}

static void single(unsigned row)
{
	struct xport_opt o = {.size = sizeof(o), .mr = mr[kind]};
	int r;

	while ((r = xport_put(ep, mem[kind] + row * STRIDE, ROW, rkey, row * STRIDE, &o)) == XPORT_ERR_AGAIN)
		reap(0);
	must(r, "xport_put");
}

static void single_all(void)
{
	for (unsigned i = 0; i < BLOCKS * ROWS; i++)
		single(i % ROWS);
	reap(BLOCKS * ROWS);
}

static void single_each(void)
{
	for (unsigned i = 0; i < ROWS; i++) {
		single(i);
		reap(1);
	}
}

static void prepared(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		must(xport_prepared_put(set, block, NULL, NULL), "xport_prepared_put");
	reap(BLOCKS);
}

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

static double median(double *list, int n)
{
	qsort(list, (size_t)n, sizeof(*list), by_size);
	return list[n / 2];
}

static void compare(int rounds)
{
	static double each[ROUNDS_MAX], all[ROUNDS_MAX], one[ROUNDS_MAX], ratio[ROUNDS_MAX];
	struct xport_prepared_run run = {.length = ROW, .level = {{ROWS, STRIDE, STRIDE}, {0}}};

	must(xport_rkey_unpack(ep, told->key[kind], told->key_len[kind], &rkey), "xport_rkey_unpack");
	must(xport_prepared_create(x, ep, rkey, mem[kind], LEN, mr[kind], &set), "xport_prepared_create");
	must(xport_prepared_add(set, &run, sizeof(run), 1, &block), "xport_prepared_add");
	time_of(single_all, MANY);
	time_of(prepared, MANY);
	for (int i = 0; i < rounds; i++) {
		all[i] = time_of(single_all, MANY) / BLOCKS;
		one[i] = time_of(prepared, MANY) / BLOCKS;
		each[i] = time_of(single_each, 1);
		ratio[i] = all[i] / one[i];
	}
	printf("%-5s prepared %8.2f us, 64 puts %8.2f us (one by one %9.2f us), %.1f times the rate\n",
	       kind == 0 ? "reg" : "alloc", median(one, rounds), median(all, rounds), median(each, rounds),
	       median(ratio, rounds));
	xport_prepared_destroy(set);
	xport_rkey_destroy(rkey);
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS, status;
	pid_t child;

	if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: strided_speed BACKEND [ROUNDS]\n");
		return 2;
	}
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		return 1;
	child = fork();
	if (child < 0)
		return 1;
	if (child == 0)
		target(argv[1]);
	setup(argv[1]);
	while (!told->ready)
		usleep(1000);
	must(xport_connect(x, told->address, NULL, -1, &ep), "xport_connect");
	printf("%s\n", argv[1]);
	for (kind = 0; kind < 2; kind++)
		compare(rounds);
	must(xport_ep_close(ep, -1), "xport_ep_close");
	waitpid(child, &status, 0);
	xport_close(x);
	return status != 0;
}
