/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapped.c - mapped BACKEND FILE [ROUNDS]: what the source of xport_cp does to a file in the page cache, with blocks that it
 * reads into its slots (pread), and with blocks of a mapping. In each round both ways send the whole file to another process, in
 * turn: checksum and put of each block, 16 in flight. It prints the medians, and the median and quartiles of the ratios, for the
 * time and for the processor time of the source. A ratio above 1 means that the mapping is faster.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xport.h>

#include "tools/cp/sum.h"
#include "tools/cp/wire.h"

enum { ROUNDS = 11, ROUNDS_MAX = 1000 };

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
static xport_mr *mr;
static uint8_t *slots;

static void check(int status, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == XPORT_OK)
		return;
	if (xport_last_error(x, &e) == XPORT_OK)
		fprintf(stderr, "%s: %s: %s\n", what, xport_strerror(status), e.text);
	_exit(1);
}

static void setup(const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	struct xport_mr_info info = {.size = sizeof(info)};

	if (xport_open(&attr, &x) != XPORT_OK) {
		x = NULL;
		check(XPORT_ERR_NO_BACKEND, "xport_open");
	}
	check(xport_mr_alloc(x, (size_t)CP_SLOTS * CP_STRIDE, XPORT_REMOTE_WRITE, &mr), "xport_mr_alloc");
	check(xport_mr_query(mr, &info), "xport_mr_query");
	slots = info.base;
}

/* Makes progress until the source closes. */
static _Noreturn void target(const char *backend)
{
	struct xport_completion c = {0};
	xport_listener *listener;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setup(backend);
	check(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
	check(xport_listener_name(listener, told->address, sizeof(told->address)), "xport_listener_name");
	told->key_len = sizeof(told->key);
	check(xport_rkey_pack(mr, told->key, &told->key_len), "xport_rkey_pack");
	told->ready = 1;
	check(xport_accept(listener, -1, &ep), "xport_accept");
	while (c.type != XPORT_EVENT_CLOSED)
		CHECK(xport_wait(x, &c, 1, -1) >= 0);
	_exit(0);
}

/* ---- the two ways ---- */

static uint64_t size, sum[2];
static int fd;
static unsigned busy;

static void reap(void)
{
	struct xport_completion c[CP_SLOTS];
	int n = xport_wait(x, c, CP_SLOTS, -1);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(c[i].status == XPORT_OK);
		if (c[i].type == XPORT_OP_PUT_NOTIFY)
			busy &= ~(1U << (uintptr_t)c[i].context);
	}
}

static unsigned free_slot(void)
{
	while (busy == (1U << CP_SLOTS) - 1)
		reap();
	return (unsigned)__builtin_ctz(~busy);
}

static uint64_t data_at(unsigned slot)
{
	return (uint64_t)slot * CP_STRIDE + CP_FRONT;
}

/* The head and the data, which lie together if `data` is in the slot. */
static void send_block(unsigned slot, const uint8_t *data, size_t len, xport_mr *region)
{
	struct xport_opt o = {.size = sizeof(o), .mr = region, .value = slot, .context = (void *)(uintptr_t)slot};
	struct xport_opt quiet = {.size = sizeof(quiet), .mr = mr, .flags = XPORT_QUIET};
	uint64_t at = data_at(slot);
	bool together = data == slots + at;
	const uint8_t *head = slots + at - CP_HEAD;
	int r;

	while (!together && (r = xport_put(ep, head, CP_HEAD, rkey, at - CP_HEAD, &quiet)) != XPORT_OK)
		r == XPORT_ERR_AGAIN ? reap() : check(r, "xport_put");
	while ((r = xport_put_notify(ep, together ? head : data, together ? len + CP_HEAD : len, rkey,
	                             together ? at - CP_HEAD : at, &o)) != XPORT_OK)
		r == XPORT_ERR_AGAIN ? reap() : check(r, "xport_put_notify");
	busy |= 1U << slot;
}

static void by_pread(void)
{
	for (uint64_t at = 0; at < size; at += CP_BLOCK) {
		size_t len = size - at < CP_BLOCK ? (size_t)(size - at) : CP_BLOCK;
		unsigned slot = free_slot();
		uint8_t *data = slots + data_at(slot);

		CHECK(pread(fd, data, len, (off_t)at) == (ssize_t)len);
		cp_sum_block(data, len, at, sum);
		send_block(slot, data, len, mr);
	}
}

/* The region is registered once. */
static void by_mapping(void)
{
	uint8_t *file = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	xport_mr *region;

	CHECK(file != MAP_FAILED);
	check(xport_mr_reg(x, file, size, 0, &region), "xport_mr_reg");
	for (uint64_t at = 0; at < size; at += CP_BLOCK) {
		size_t len = size - at < CP_BLOCK ? (size_t)(size - at) : CP_BLOCK;
		unsigned slot = free_slot();

		cp_sum_block(file + at, len, at, sum);
		send_block(slot, file + at, len, region);
	}
	while (busy != 0)
		reap();
	check(xport_mr_dereg(region), "xport_mr_dereg");
	munmap(file, size);
}

/* ---- the figures ---- */

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* Seconds, and processor seconds. */
static void time_of(void (*way)(void), double *wall, double *cpu)
{
	struct timespec begin, end;
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	way();
	while (busy != 0)
		reap();
	clock_gettime(CLOCK_MONOTONIC, &end);
	getrusage(RUSAGE_SELF, &after);
	*wall = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
	*cpu = seconds_of(after.ru_utime) - seconds_of(before.ru_utime) + seconds_of(after.ru_stime) -
	       seconds_of(before.ru_stime);
}

static int by_size(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

static void print(const char *what, double *read, double *mapped, size_t n)
{
	static double ratio[ROUNDS_MAX];
	double gib = (double)size / (1 << 30);

	for (size_t i = 0; i < n; i++)
		ratio[i] = read[i] / mapped[i];
	qsort(read, n, sizeof(*read), by_size);
	qsort(mapped, n, sizeof(*mapped), by_size);
	qsort(ratio, n, sizeof(*ratio), by_size);
	printf("%-20s pread %.3f s a GiB, mapped %.3f, ratio %.2f (%.2f to %.2f)\n", what, read[n / 2] / gib,
	       mapped[n / 2] / gib, ratio[n / 2], ratio[n / 4], ratio[n * 3 / 4]);
}

int main(int argc, char **argv)
{
	static double wall[2][ROUNDS_MAX], cpu[2][ROUNDS_MAX];
	int rounds = argc > 3 ? atoi(argv[3]) : ROUNDS, status;
	struct stat st;
	pid_t child;

	if (argc < 3 || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: mapped BACKEND FILE [ROUNDS]\n");
		return 2;
	}
	fd = open(argv[2], O_RDONLY);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0);
	size = (uint64_t)st.st_size;
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
	by_pread();
	for (int i = 0; i < rounds; i++) {
		time_of(by_pread, &wall[0][i], &cpu[0][i]);
		time_of(by_mapping, &wall[1][i], &cpu[1][i]);
	}
	printf("%s, %llu MiB, %d rounds\n", argv[1], (unsigned long long)(size >> 20), rounds);
	print("time", wall[0], wall[1], (size_t)rounds);
	print("processor, source", cpu[0], cpu[1], (size_t)rounds);
	check(xport_ep_close(ep, 5000), "xport_ep_close");
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	xport_close(x);
	return 0;
}
