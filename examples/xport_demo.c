/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_demo [FILE] - moves FILE over every provider that is usable here, and prints a line for each.
 *
 * For each it starts itself twice, with another XPORT_BACKEND and nothing else different.  The initiator puts the file
 * into the target's memory, window by window, and gets it back; then they exchange messages and count in one another's
 * memory.  Traffic stays on loopback.  If XPORT_BACKEND is set, only what it says is tried.
 */
#define _GNU_SOURCE
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

enum { WINDOW = 16 << 20, CHUNK = 1 << 20, PAGE = 4096, TRIPS = 500, ADDS = 2000, PATIENCE_S = 60 };
static const char *const steps[] = {"", "put", "get", "put with notify", "atomic", "send", "receive"};

static struct result { /* what a process tells the one that started it, through its standard output */
	bool ok;
	char text[700], name[64], path[16];
	uint64_t size;
	double put_s, get_s, trip_s, add_s;
} me = {.ok = true};
static xport *x;
static xport_ep *ep;
static xport_mr *mr;
static xport_rkey *key; /* of the peer's memory; each has: */
static struct { _Atomic uint64_t counter; uint8_t page[PAGE - 8], window[WINDOW]; } *memory;
static bool initiator, closed;
static uint64_t old[ADDS], notified, pending; /* pending: operations without a completion yet */

static void tell(void)
{
	if (write(STDOUT_FILENO, &me, sizeof(me)) != (ssize_t)sizeof(me))
		exit(1);
}

/* Ends the process with the failing step and what the library says, or, for a `status` of 1, with the step alone. */
static void must(const char *step, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == 0 || (status < 0 && xport_last_error(x, &e) != XPORT_OK))
		return;
	snprintf(me.text, sizeof(me.text), "%s: %s: %s%s%s", initiator ? "initiator" : "target", step,
	         status < 0 ? xport_strerror(status) : "wrong", e.text[0] != '\0' ? ": " : "", e.text);
	me.ok = false;
	tell();
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void reap(void)
{
	struct xport_completion c;
	int n = 0;

	for (int i = 0; i < 1000 && n == 0; i++)
		n = xport_poll(x, &c, 1);
	if (n == 0)
		n = xport_wait(x, &c, 1, -1);
	must("wait", n < 0 ? n : 0);
	if (n == 1 && c.type == XPORT_EVENT_NOTIFY)
		notified = c.tag;
	else if (n == 1 && c.type == XPORT_EVENT_CLOSED)
		closed = true;
	else if (n == 1)
		must(c.type <= XPORT_OP_RECV ? steps[c.type] : "event", c.status);
	pending -= n == 1 && c.type <= XPORT_OP_RECV;
}

/* Waits for everything posted; one that waits too long dies of SIGALRM, which the first process reports. */
static void settle(void)
{
	for (alarm(PATIENCE_S); pending > 0;)
		reap();
}

/* Posts one operation; `at` is a tag or an offset. */
static void post(int type, void *buf, size_t len, uint64_t at, const struct xport_opt *opt)
{
	struct xport_atomic_args add = {.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1, .result = buf};
	int r = XPORT_ERR_AGAIN;

	for (; r == XPORT_ERR_AGAIN; r == XPORT_ERR_AGAIN ? reap() : (void)0)
		r = type == XPORT_OP_PUT          ? xport_put(ep, buf, len, key, at, opt)
		    : type == XPORT_OP_GET        ? xport_get(ep, buf, len, key, at, opt)
		    : type == XPORT_OP_PUT_NOTIFY ? xport_put_notify(ep, buf, len, key, at, opt)
		    : type == XPORT_OP_ATOMIC     ? xport_atomic(ep, &add, key, at, opt)
		    : type == XPORT_OP_SEND       ? xport_send(ep, buf, len, at, opt)
		                                  : xport_recv(x, buf, len, at, UINT64_MAX, opt);
	must(steps[type], r);
	pending++;
}

/* Tells the peer a number and returns the one that it tells: neither goes on before the other is here. */
static uint64_t swap(uint64_t mine)
{
	uint64_t theirs = 0;

	post(XPORT_OP_RECV, &theirs, sizeof(theirs), UINT64_MAX, NULL);
	post(XPORT_OP_SEND, &mine, sizeof(mine), UINT64_MAX, NULL);
	settle();
	return theirs;
}

/* The initiator's part with the file: each window is put, the last piece with a notification, and got back. */
static void move(const char *path)
{
	struct xport_opt out = {.size = sizeof(out)}, in = {.size = sizeof(in), .mr = mr};
	struct stat st = {.st_size = 0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t sum = 0, at = 0, n, last;

	must("opening the file", fd < 0 || fstat(fd, &st) != 0);
	me.size = swap((uint64_t)st.st_size) + (uint64_t)st.st_size;
	do {
		n = me.size - at < WINDOW ? me.size - at : WINDOW;
		last = n > 0 ? (n - 1) / CHUNK * CHUNK : 0;
		uint8_t *from = n > 0 ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)at) : memory->window;
		must("mapping the file", from == MAP_FAILED);
		sum = XXH3_64bits_withSeed(from, n, sum);
		must("registering the file", n > 0 ? xport_mr_reg(x, from, n, 0, &out.mr) : 0);
		out.value = at + n + 1;
		me.put_s -= now();
		for (uint64_t i = 0; i < last; i += CHUNK)
			post(XPORT_OP_PUT, from + i, CHUNK, PAGE + i, &out);
		post(XPORT_OP_PUT_NOTIFY, from + last, n - last, PAGE + last, &out);
		settle();
		me.put_s += now();
		me.get_s -= now();
		for (uint64_t i = 0; i < n; i += CHUNK)
			post(XPORT_OP_GET, memory->window + i, n - i < CHUNK ? n - i : CHUNK, PAGE + i, &in);
		settle();
		me.get_s += now();
		must("content that was read back", memcmp(from, memory->window, n) != 0);
		must("checksum of what arrived", swap(sum) != sum);
		must("deregistering the file", n > 0 ? xport_mr_dereg(out.mr) : 0);
		if (n > 0)
			munmap(from, n);
	} while ((at += n) < me.size);
	close(fd);
}

/* The target's. */
static void watch(void)
{
	uint64_t sum = 0, at = 0, n;

	me.size = swap(0);
	do {
		n = me.size - at < WINDOW ? me.size - at : WINDOW;
		for (alarm(PATIENCE_S); notified != at + n + 1;)
			reap();
		sum = XXH3_64bits_withSeed(memory->window, n, sum);
		must("checksum of what was sent", swap(sum) != sum);
	} while ((at += n) < me.size);
}

/* Two messages and their answer; the target posts its receives in the other order, so that the tags must decide. */
static void talk(void)
{
	me.trip_s = -now();
	for (uint64_t i = 0; i < TRIPS; i++) {
		uint64_t a = initiator ? i : 0, b = initiator ? i * i : 0, answer = 0;

		post(initiator ? XPORT_OP_SEND : XPORT_OP_RECV, initiator ? &a : &b, sizeof(a), 3 * i + !initiator, NULL);
		post(initiator ? XPORT_OP_SEND : XPORT_OP_RECV, initiator ? &b : &a, sizeof(a), 3 * i + initiator, NULL);
		if (initiator)
			post(XPORT_OP_RECV, &answer, sizeof(answer), 3 * i + 2, NULL);
		settle();
		must("messages", a != i || b != i * i || (initiator && answer != a + b));
		answer = a + b;
		if (!initiator)
			post(XPORT_OP_SEND, &answer, sizeof(answer), 3 * i + 2, NULL);
		settle();
	}
	me.trip_s += now();
}

/* Both count in the peer's memory by atomics, and in their own by the CPU's. */
static void count(void)
{
	me.add_s = -now();
	for (int i = 0; i < ADDS; i++) {
		post(XPORT_OP_ATOMIC, &old[i], sizeof(old[i]), 0, NULL);
		atomic_fetch_add(&memory->counter, 1);
	}
	settle();
	me.add_s += now();
	for (int i = 0; i < ADDS; i++)
		must("old value of an atomic", old[i] >= 2 * ADDS);
	swap(0);
	must("counter", atomic_load(&memory->counter) != 2 * ADDS);
}

/* Connects to `to`, or listens if that is empty; either is handed the key of the other's memory. */
static void meet(const char *to)
{
	char packed[1024];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = packed, .private_len = sizeof(packed)};
	struct xport_mr_info mi = {.size = sizeof(mi)};
	struct xport_ep_info ei = {.size = sizeof(ei)};
	struct xport_rkey_info ki = {.size = sizeof(ki)};
	xport_listener *listener;

	must("open", xport_open(NULL, &x));
	must("allocate", xport_mr_alloc(x, sizeof(*memory), 7, &mr));
	must("query", xport_mr_query(mr, &mi));
	memory = mi.base;
	must("pack the key", xport_rkey_pack(mr, packed, &attr.private_len));
	if (initiator) {
		must("connect", xport_connect(x, to, &attr, -1, &ep));
	} else {
		must("listen", xport_listen(x, "127.0.0.1:0", &attr, &listener));
		must("listen", xport_listener_name(listener, me.name, sizeof(me.name)));
		tell();
		must("accept", xport_accept(listener, PATIENCE_S * 1000, &ep));
	}
	must("query", xport_ep_query(ep, &ei));
	must("unpack the key", xport_rkey_unpack(ep, ei.private_data, ei.private_len, &key));
	must("query", xport_rkey_query(key, &ki));
	strcpy(me.path, ki.direct ? "mapped" : ki.put == XPORT_NATIVE ? "native" : "emulated");
}
