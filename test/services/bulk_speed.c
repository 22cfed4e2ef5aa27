/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk_speed.c - bulk transfers and plain operations side by side, between two processes:
 *
 *	bulk_speed [BACKEND[:PROVIDER]] [SECONDS]
 *
 * All alternate. The best of each counts, since others use the processors, too. It prints the bandwidth of gets of 1
 * MiB and of pulls of one piece of 1 MiB; and the time of a get of 64 KiB, and of 64 pieces of 1 KiB with gaps between
 * them, by xport_getv and by a pull.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/wait.h>

#include "services/xport_services.h"

enum { LENGTH = 1 << 20, PIECES = 64, PIECE = 1024, TIMES = 10 };

static xport *x;
static xport_ep *ep;
static xport_mr *mr;
static uint8_t *memory;
static xport_bulks *bulks;
static xport_rkey *rkey;
static xport_bulk *whole, *pieces;

static void must(int status, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "bulk_speed: %s: %s %s\n", what, xport_strerror(status), e.text);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* What the owner tells: a key, and two descriptors. */
struct card {
	uint64_t key_len, whole_len, pieces_len;
	uint8_t key[128], whole[320], pieces[320];
};

static void region_make(void)
{
	struct xport_mr_info info = {.size = sizeof(info)};

	must(xport_mr_alloc(x, LENGTH, XPORT_REMOTE_READ, &mr), "xport_mr_alloc");
	must(xport_mr_query(mr, &info), "xport_mr_query");
	memory = info.base;
}

/* ---- the owner ---- */

static void describe(struct card *card)
{
	struct xport_bulk_attr a = {.size = sizeof(a), .rights = XPORT_REMOTE_READ};
	struct xport_bulk_run one = {.mr = mr, .length = LENGTH, .count = 1};
	struct xport_bulk_run many = {.mr = mr, .length = PIECE, .stride = 2 * (uint64_t)PIECE, .count = PIECES};
	size_t key_len = sizeof(card->key), whole_len = sizeof(card->whole), pieces_len = sizeof(card->pieces);

	must(xport_rkey_pack(mr, card->key, &key_len), "xport_rkey_pack");
	must(xport_bulk_create(x, &one, 1, &a, &whole), "xport_bulk_create");
	must(xport_bulk_pack(whole, card->whole, &whole_len), "xport_bulk_pack");
	must(xport_bulk_create(x, &many, 1, &a, &pieces), "xport_bulk_create");
	must(xport_bulk_pack(pieces, card->pieces, &pieces_len), "xport_bulk_pack");
	card->key_len = key_len;
	card->whole_len = whole_len;
	card->pieces_len = pieces_len;
}

static void own(int out)
{
	xport_listener *listener;
	char name[64] = "";
	struct card card;
	int n;

	must(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
	must(xport_listener_name(listener, name, sizeof(name)), "xport_listener_name");
	region_make();
	memset(memory, 7, LENGTH);
	describe(&card);
	if (write(out, name, sizeof(name)) != sizeof(name) || write(out, &card, sizeof(card)) != sizeof(card))
		exit(1);
	must(xport_accept(listener, 30000, &ep), "xport_accept");
	for (struct xport_completion c; (n = xport_wait(x, &c, 1, 60000)) > 0;) {
		if (c.type == XPORT_EVENT_CLOSED || c.type == XPORT_EVENT_LOST)
			return;
	}
	must(n, "xport_wait");
}

/* ---- the client ---- */

static double gets(size_t len)
{
	struct xport_opt o = {.size = sizeof(o), .mr = mr};
	struct xport_completion c;
	double begun = now_us();

	for (int i = 0; i < TIMES; i++) {
		int n;

		must(xport_get(ep, memory, len, rkey, 0, &o), "xport_get");
		while ((n = xport_poll(x, &c, 1)) == 0)
			;
		must(n, "xport_poll");
		must(c.status, "a get");
	}
	return (now_us() - begun) / TIMES;
}

static double lists(void)
{
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_iov to = {.addr = memory, .len = (size_t)PIECES * PIECE, .mr = mr};
	struct xport_riov from[PIECES];
	struct xport_completion c;
	double begun = now_us();

	for (uint64_t i = 0; i < PIECES; i++)
		from[i] = (struct xport_riov){.offset = i * 2 * PIECE, .len = PIECE};
	for (int i = 0; i < TIMES; i++) {
		int n;

		must(xport_getv(ep, &to, 1, rkey, from, PIECES, &o), "xport_getv");
		while ((n = xport_poll(x, &c, 1)) == 0)
			;
		must(n, "xport_poll");
		must(c.status, "a list");
	}
	return (now_us() - begun) / TIMES;
}

static double pulls(xport_bulk *bulk, size_t len)
{
	struct xport_iov iov = {.addr = memory, .len = len, .mr = mr};
	struct xport_bulk_args a = {.size = sizeof(a), .local = &iov, .nlocal = 1, .deadline_ms = 60000};
	struct xport_bulk_event e = {.size = sizeof(e)};
	struct xport_completion c;
	double begun = now_us();

	for (int i = 0; i < TIMES; i++) {
		must(xport_bulk_pull(bulks, bulk, &a), "xport_bulk_pull");
		while (xport_bulks_next(bulks, &e) == 0) {
			if (xport_poll(x, &c, 1) > 0)
				(void)xport_bulks_step(bulks, &c);
		}
		must(e.status, e.why);
	}
	return (now_us() - begun) / TIMES;
}

static void better(double *best, double value)
{
	if (*best == 0 || value < *best)
		*best = value;
}

static void measure(const char *backend, double seconds, const struct card *card)
{
	double until = now_us() + seconds * 1e6, get = 0, pull = 0, short_get = 0, list = 0, pieces_pull = 0;

	region_make();
	must(xport_rkey_unpack(ep, card->key, card->key_len, &rkey), "xport_rkey_unpack");
	must(xport_bulk_unpack(ep, card->whole, card->whole_len, &whole), "xport_bulk_unpack");
	must(xport_bulk_unpack(ep, card->pieces, card->pieces_len, &pieces), "xport_bulk_unpack");
	must(xport_bulks_create(x, NULL, &bulks), "xport_bulks_create");
	do {
		better(&get, gets(LENGTH));
		better(&pull, pulls(whole, LENGTH));
		better(&short_get, gets((size_t)PIECES * PIECE));
		better(&list, lists());
		better(&pieces_pull, pulls(pieces, (size_t)PIECES * PIECE));
	} while (now_us() < until);
	if (memory[LENGTH - 1] != 7)
		exit(1);
	printf("%s: 1 MiB: get %.0f MB/s, pull %.0f MB/s, ratio %.2f; 64 KiB: one get %.1f us; 64 pieces: xport_getv "
	       "%.1f us, "
	       "pull %.1f us, ratio %.2f\n",
	       backend, LENGTH / get, LENGTH / pull, get / pull, short_get, list, pieces_pull, pieces_pull / list);
	must(xport_bulks_destroy(bulks, NULL, NULL, 5000), "xport_bulks_destroy");
	must(xport_ep_close(ep, 5000), "xport_ep_close");
}

int main(int argc, char **argv)
{
	const char *backend = argc > 1 ? argv[1] : "ucx:tcp";
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};
	int pipes[2], status = 0;
	char name[64] = "";
	struct card card;
	pid_t child;

	if (pipe(pipes) != 0 || (child = fork()) < 0)
		return 1;
	must(xport_open(&attr, &x), "xport_open");
	if (child == 0) {
		own(pipes[1]);
	} else {
		if (read(pipes[0], name, sizeof(name)) != sizeof(name) ||
		    read(pipes[0], &card, sizeof(card)) != sizeof(card))
			return 1;
		must(xport_connect(x, name, NULL, 30000, &ep), "xport_connect");
		measure(backend, argc > 2 ? atof(argv[2]) : 5, &card);
	}
	xport_close(x);
	if (child != 0 && (waitpid(child, &status, 0) != child || status != 0))
		return 1;
	return 0;
}
