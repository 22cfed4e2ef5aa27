/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far_speed.c - random 64-byte reads of far memory over four lenders, and plain gets of the same bytes, in one run:
 *
 *     test/far_speed [BACKEND[:PROVIDER] [READS [ROUNDS]]]
 *
 * The reads are divided among the rounds. Each round reads both ways; the medians are printed. DEPTH reads are in flight.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "services/xport_services.h"

enum { LENDERS = 4, ITEM = 64, DEPTH = 32, ROUNDS_MAX = 99, LEND = 4 << 20, PIECE = 1 << 20, LENGTH = 16 << 20 };

struct card {
	char address[64];
	struct xport_directory_entry entry;
};

static void must(int r, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (r >= 0)
		return;
	(void)xport_services_last_error(&e);
	fprintf(stderr, "far_speed: %s: %s (%s)\n", what, xport_strerror(r), e.text);
	exit(1);
}

static void open_one(xport **x, xport_far **f, uint64_t lend, const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	struct xport_far_attr a = {.size = sizeof(a), .lend = lend, .piece = PIECE};

	must(xport_open(&attr, x), "xport_open");
	must(xport_far_create(*x, &a, f), "xport_far_create");
}

static void turn(xport *x, xport_far *f, int ms)
{
	struct xport_completion c;
	int n = xport_wait(x, &c, 1, ms);

	must(n, "xport_wait");
	must(xport_far_step(f, n > 0 ? &c : NULL), "xport_far_step");
}

/* Until its parent ends. */
static void lend(int out, const char *backend)
{
	struct card card = {.entry = {.size = sizeof(card.entry)}};
	xport_listener *listener;
	xport_ep *ep;
	xport_far *f;
	xport *x;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_one(&x, &f, LEND, backend);
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
	must(xport_listener_name(listener, card.address, sizeof(card.address)), "xport_listener_name");
	must(xport_far_entry(f, &card.entry), "xport_far_entry");
	if (write(out, &card, sizeof(card)) != sizeof(card))
		exit(1);
	must(xport_accept(listener, -1, &ep), "xport_accept");
	for (;;)
		turn(x, f, 1);
}

static void event(xport *x, xport_far *f, int type)
{
	struct xport_far_event e = {.size = sizeof(e)};

	while (xport_far_next(f, &e) == 0)
		turn(x, f, 1);
	must(e.type == type ? e.status : XPORT_ERR_PROTOCOL, "xport_far_next");
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* It goes on from one pass to the next: the same bytes once more would be in the cache. */
static uint64_t state = 1;
static uint64_t any(void)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (state >> 33) % (LENGTH / ITEM) * ITEM;
}

static uint8_t buf[DEPTH][ITEM];
static struct xport_far_place place[LENGTH / PIECE];

/* Reads per second; by the block, or by what is known of its pieces. */
static double rate(xport *x, xport_far *f, xport_far_block *b, long reads)
{
	struct xport_completion c[DEPTH];
	struct xport_opt opt = {.size = sizeof(opt)};
	long posted = 0, done = 0;
	double begun = seconds();

	while (done < reads) {
		int n, r;

		while (posted < reads && posted - done < DEPTH) {
			uint64_t at = any();

			if (b != NULL)
				r = xport_far_get(b, at, buf[posted % DEPTH], ITEM, &opt);
			else
				r = xport_get(place[at / PIECE].ep, buf[posted % DEPTH], ITEM, place[at / PIECE].rkey,
				              at % PIECE, &opt);
			if (r == XPORT_ERR_AGAIN)
				break;
			must(r, "a get");
			posted++;
		}
		n = xport_poll(x, c, DEPTH);
		must(n, "xport_poll");
		for (int i = 0; i < n; i++) {
			must(c[i].status, "a read");
			done += b == NULL || xport_far_step(f, &c[i]) == 0;
		}
	}
	return (double)reads / (seconds() - begun);
}

static int by_size(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

int main(int argc, char **argv)
{
	struct xport_far_args args = {
		.size = sizeof(args), .length = LENGTH, .piece = PIECE, .policy = XPORT_FAR_SPREAD};
	const char *backend = argc > 1 ? argv[1] : "ucx:tcp";
	long reads = argc > 2 ? atol(argv[2]) : 1000000;
	int rounds = argc > 3 ? atoi(argv[3]) : 51, pipes[LENDERS][2];
	double far[ROUNDS_MAX], plain[ROUNDS_MAX], ratio[ROUNDS_MAX];
	xport_far_block *b;
	xport_far *f;
	xport *x;

	if (reads < rounds || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: far_speed [BACKEND[:PROVIDER] [READS [ROUNDS]]]\n");
		return 2;
	}
	for (int i = 0; i < LENDERS; i++) {
		if (pipe(pipes[i]) != 0)
			return 1;
		if (fork() == 0)
			lend(pipes[i][1], backend);
	}
	open_one(&x, &f, 0, backend);
	for (int i = 0; i < LENDERS; i++) {
		struct card card;
		xport_ep *ep;

		if (read(pipes[i][0], &card, sizeof(card)) != sizeof(card))
			return 1;
		must(xport_connect(x, card.address, NULL, -1, &ep), "xport_connect");
		must(xport_far_add(f, ep, &card.entry, NULL), "xport_far_add");
		event(x, f, XPORT_FAR_JOINED);
	}
	must(xport_far_alloc(f, &args, &b), "xport_far_alloc");
	event(x, f, XPORT_FAR_DONE);
	for (int i = 0; i < LENGTH / PIECE; i++) {
		place[i].size = sizeof(place[i]);
		must(xport_far_locate(b, (uint64_t)i * PIECE, &place[i]), "xport_far_locate");
	}
	(void)rate(x, f, b, reads / rounds);
	for (int i = 0; i < rounds; i++) {
		far[i] = rate(x, f, i % 2 == 0 ? b : NULL, reads / rounds);
		plain[i] = rate(x, f, i % 2 == 0 ? NULL : b, reads / rounds);
		if (i % 2 != 0) {
			double t = far[i];

			far[i] = plain[i];
			plain[i] = t;
		}
		ratio[i] = far[i] / plain[i];
	}
	qsort(far, (size_t)rounds, sizeof(*far), by_size);
	qsort(plain, (size_t)rounds, sizeof(*plain), by_size);
	qsort(ratio, (size_t)rounds, sizeof(*ratio), by_size);
	printf("%s: %ld reads of %d bytes over %d lenders, %d in flight: far memory %.0f/s, plain gets %.0f/s, ratio "
	       "%.3f\n",
	       backend, reads, ITEM, LENDERS, DEPTH, far[rounds / 2], plain[rounds / 2], ratio[rounds / 2]);
	return 0;
}
