/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_demo [FILE] - moves FILE (this program) over every provider that is usable here, a line for each.
 *
 * For each provider it starts itself twice, with another XPORT_BACKEND and nothing else different.  The initiator puts
 * the file into the target's memory, window by window, and gets it back; then both exchange messages and count on one
 * another's memory.  Traffic stays on loopback.  With XPORT_BACKEND set, only what it says is used.
 */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xport.h>
#include <xxhash.h>

enum { WINDOW = 16 << 20, CHUNK = 1 << 20, PAGE = 4096, BATCH = 32, BATCHES = 8, TRIPS = 1000, ADDS = 2000 };
enum { TAG_SIZE = 1, TAG_SUM, TAG_TRIP, TAG_COUNTED, TAG_BATCH };
enum { PATIENCE_S = 60 }; /* for any one step; then SIGALRM ends the process, and the first one says so */

struct result {
	bool ok;
	char text[700], name[64], path[24]; /* name: the target's address */
	double put_s, get_s, trip_s, add_s;
};

static bool initiator;
static struct result result;
static xport *x;
static xport_ep *ep;
static xport_rkey *key; /* of the peer's memory: a page with its counter, the target's window behind it */
static uint8_t *memory;
static int pending, notified;
static bool closed;
static uint64_t notified_at;

/* Every process but the first ends here: what it found out goes to the first through standard output. */
static void finish(void)
{
	exit(write(STDOUT_FILENO, &result, sizeof(result)) == (ssize_t)sizeof(result) && result.ok ? 0 : 1);
}

static void fail(const char *step, const char *why, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status != XPORT_OK && xport_last_error(x, &e) != XPORT_OK)
		e.text[0] = '\0';
	snprintf(result.text, sizeof(result.text), "%s: %s%s%s", step, status != 0 ? xport_status_name(status) : why,
	         e.text[0] != '\0' ? ": " : "", e.text);
	finish();
}

static void need(bool good, const char *step, const char *why)
{
	if (!good)
		fail(step, why, XPORT_OK);
}

static void must(const char *step, int r)
{
	if (r < 0)
		fail(step, NULL, r);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- both ---- */

static void reap(const char *step)
{
	struct xport_completion c[32];
	int n = 0;

	for (int i = 0; i < 1000 && n == 0; i++)
		n = xport_poll(x, c, 32);
	if (n == 0)
		n = xport_wait(x, c, 32, 100);
	must(step, n);
	for (int i = 0; i < n; i++) {
		if (c[i].type == XPORT_EVENT_NOTIFY)
			notified = c[i].tag;
		else if (c[i].type == XPORT_EVENT_CLOSED)
			closed = true;
		else if (c[i].type != XPORT_EVENT_INCOMING)
			must(step, c[i].status);
		pending -= c[i].type < XPORT_EVENT_NOTIFY;
	}
}

/* Takes note of what a posting function returned.  True: post it again. */
static bool again(const char *step, int r)
{
	if (r == XPORT_ERR_AGAIN)
		reap(step);
	else
		must(step, r);
	pending += r == XPORT_OK;
	return r == XPORT_ERR_AGAIN;
}

static void settle(const char *step)
{
	for (alarm(PATIENCE_S); pending > 0;)
		reap(step);
}

/* Receives or sends a number. */
static void recv_u64(uint64_t tag, uint64_t *v)
{
	while (again("receive", xport_recv(x, v, sizeof(*v), tag, UINT64_MAX, NULL)))
		;
}

static void send_u64(uint64_t tag, const uint64_t *v)
{
	while (again("send", xport_send(ep, v, sizeof(*v), tag, NULL)))
		;
}

/* Tells the peer a number and returns the one that it told: neither goes on before the other is here. */
static uint64_t swap(uint64_t tag, uint64_t mine)
{
	uint64_t theirs = 0;

	recv_u64(tag, &theirs);
	send_u64(tag, &mine);
	settle("message");
	return theirs;
}

/* Both send a batch, and receive one whose order is the reverse: the tags decide what goes where. */
static void exchange(void)
{
	uint64_t in[BATCH], out[BATCH];

	for (uint64_t n = 0; n < BATCHES; n++) {
		for (uint64_t i = 0; i < BATCH; i++)
			recv_u64(TAG_BATCH + BATCH - 1 - i, &in[BATCH - 1 - i]);
		for (uint64_t i = 0; i < BATCH; i++) {
			out[i] = n << 32 | i;
			send_u64(TAG_BATCH + i, &out[i]);
		}
		settle("messages");
		need(memcmp(in, out, sizeof(in)) == 0, "messages", "a tag brought another message's content");
		swap(TAG_COUNTED, n); /* so that no message of the next batch matches a receive of this one */
	}
	result.trip_s = -now();
	for (uint64_t i = 0, v = 0; i < TRIPS; i++) {
		if (initiator)
			send_u64(TAG_TRIP, &i);
		recv_u64(TAG_TRIP, &v);
		settle("round trip");
		if (!initiator)
			send_u64(TAG_TRIP, &v);
		settle("round trip");
		need(v == i, "round trip", "another number came back");
	}
	result.trip_s += now();
}

/* Both count on the peer's memory by atomics, and on their own by the CPU's. */
static void count(void)
{
	_Atomic uint64_t *mine = (_Atomic uint64_t *)memory;
	static uint64_t old[ADDS];

	result.add_s = -now();
	for (int i = 0; i < ADDS; i++) {
		struct xport_atomic_args add = {.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};

		add.result = &old[i];
		while (again("atomic", xport_atomic(ep, &add, key, 0, NULL)))
			;
		atomic_fetch_add(mine, 1);
	}
	settle("atomic");
	result.add_s += now();
	for (int i = 0; i < ADDS; i++)
		need(old[i] < 2 * ADDS, "atomic", "an old value that never was");
	swap(TAG_COUNTED, 0);
	need(atomic_load(mine) == 2 * ADDS, "atomic", "the counter is wrong");
}

static void start(const char *file, const char *address)
{
}
