/* SPDX-License-Identifier: BSD-3-Clause */
/* ours.c - the half of xport_perf --tax that goes through libxport: the loops of baseline.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/tax/ours.h"

#include <poll.h>
#include <string.h>
#include <sys/uio.h>

static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};

static uint64_t inbox[WINDOW];
static unsigned sends_open, received, notified;
static uint64_t *used[2 * WINDOW]; /* receives to be posted again, once there is time */
static unsigned nused;
/* As in baseline.c: what has arrived or is still to come. */
static unsigned due;
static uint64_t turn;

static void ours_post_receive(struct pair *p, uint64_t *into)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = into};

	CHECK(xport_recv(p->x, into, sizeof(*into), 5, UINT64_MAX, &opt) == XPORT_OK);
}

enum { REAPED = WINDOW, LONG_TAG = 6 };

static void ours_take(const struct xport_completion *c, int n)
{
	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(c[i].status == XPORT_OK);
		if (c[i].type == XPORT_OP_RECV && c[i].tag == LONG_TAG) {
			sends_open--;
		} else if (c[i].type == XPORT_OP_RECV) {
			received++;
			used[nused++] = c[i].context;
		} else if (c[i].type == XPORT_EVENT_NOTIFY) {
			notified++;
		} else {
			sends_open--;
		}
	}
}

void tax_reap(struct pair *p)
{
	struct xport_completion c[REAPED];

	ours_take(c, xport_poll(p->x, c, REAPED));
}

static void reap_in_wait(struct pair *p)
{
	struct xport_completion c[REAPED];

	ours_take(c, xport_wait(p->x, c, REAPED, -1));
}

static void reap_by_fd(struct pair *p)
{
	struct pollfd f = {.fd = xport_fd(p->x), .events = POLLIN};

	poll(&f, 1, -1);
	tax_reap(p);
}

static void replenish(struct pair *p)
{
	while (nused > 0)
		ours_post_receive(p, used[--nused]);
}

static void ours_post_send(struct pair *p, const uint64_t *word)
{
	int r;

	while ((r = xport_send(p->ep, word, sizeof(*word), 5, NULL)) == XPORT_ERR_AGAIN)
		tax_reap(p);
	CHECK(r == XPORT_OK);
	sends_open++;
}

static void ours_post_put(struct pair *p, const uint64_t *word, uint64_t offset)
{
	int r;

	while ((r = xport_put(p->ep, word, sizeof(*word), p->rkey[0], offset, &local)) == XPORT_ERR_AGAIN)
		tax_reap(p);
	CHECK(r == XPORT_OK);
	sends_open++;
}

static inline void ours_answer(struct pair *p, long n, void (*reap)(struct pair *p))
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		due++;
		if (p->id == 0)
			ours_post_send(p, &word);
		while ((int)(received - due) < 0)
			reap(p);
		if (p->id == 1)
			ours_post_send(p, &word);
		replenish(p);
	}
	while (sends_open > 0)
		tax_reap(p);
}

void tax_pingpong(struct pair *p, long n)
{
	ours_answer(p, n, tax_reap);
}

void tax_wakes(struct pair *p, long n)
{
	ours_answer(p, n, reap_in_wait);
}

void tax_fd_wakes(struct pair *p, long n)
{
	ours_answer(p, n, reap_by_fd);
}

void tax_rate(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		due += p->id == 0 ? 1 : WINDOW;
		for (int k = 0; p->id == 0 && k < WINDOW; k++)
			ours_post_send(p, &word);
		while ((int)(received - due) < 0)
			tax_reap(p);
		if (p->id == 1)
			ours_post_send(p, &word);
		replenish(p);
	}
	while (sends_open > 0)
		tax_reap(p);
}

void tax_putpong(struct pair *p, long n)
{
	volatile uint64_t *in = (volatile uint64_t *)(p->mem[0] + 64);

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		turn++;
		if (p->id == 0)
			ours_post_put(p, &turn, 64);
		while (*in != turn)
			tax_reap(p);
		if (p->id == 1)
			ours_post_put(p, &turn, 64);
		while (sends_open > 0)
			tax_reap(p);
	}
}

void tax_putone(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		CHECK(xport_put(p->ep, p->mem[0] + 1024, 8, p->rkey[0], 512, &opt) == XPORT_OK);
		sends_open++;
		while (sends_open > 0)
			tax_reap(p);
	}
}

static void put_windows(struct pair *p, long n, bool silent)
{
	static const struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		for (int k = 0; k < WINDOW; k++) {
			uint64_t at = 4096 + (uint64_t)k * 8;

			if (!silent)
				ours_post_put(p, &word, at);
			else
				CHECK(xport_put(p->ep, &word, 8, p->rkey[0], at, &quiet) == XPORT_OK);
		}
		CHECK(xport_flush(p->ep, NULL) == XPORT_OK);
		sends_open++;
		while (sends_open > 0)
			tax_reap(p);
	}
}

void tax_putrate(struct pair *p, long n)
{
	put_windows(p, n, false);
}

void tax_quietrate(struct pair *p, long n)
{
	put_windows(p, n, true);
}

void tax_getone(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		CHECK(xport_get(p->ep, p->mem[0] + 1024, 8, p->rkey[0], 1024, &opt) == XPORT_OK);
		sends_open++;
		while (sends_open > 0)
			tax_reap(p);
	}
}

void tax_bandwidth(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_LOCAL, .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		for (int k = 0; k < LONG_WINDOW; k++)
			CHECK(xport_put(p->ep, p->mem[0] + LARGE, LARGE, p->rkey[0], LARGE, &opt) == XPORT_OK);
		sends_open += LONG_WINDOW;
		while (sends_open > 0)
			tax_reap(p);
	}
}

void tax_placed(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_QUIET, .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		for (uint64_t k = 0; k < LONG_WINDOW; k++) {
			uint64_t at = k * HUGE % MEM;

			CHECK(xport_put(p->ep, p->mem[0] + at, HUGE, p->rkey[0], at, &opt) == XPORT_OK);
		}
		CHECK(xport_flush(p->ep, NULL) == XPORT_OK);
		sends_open++;
		while (sends_open > 0)
			tax_reap(p);
	}
}

void tax_gets(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n; i++) {
		for (uint64_t k = 0; k < LONG_WINDOW; k++) {
			uint64_t at = k * HUGE % MEM;

			CHECK(xport_get(p->ep, p->mem[0] + at, HUGE, p->rkey[0], at, &opt) == XPORT_OK);
		}
		sends_open += LONG_WINDOW;
		while (sends_open > 0)
			tax_reap(p);
	}
}

static void ours_copy(struct pair *p, uint64_t at, size_t len)
{
	memcpy(p->copied + at, p->mem[0] + at, len);
	__asm__ volatile("" ::: "memory"); /* each of them */
}

void tax_copy_large(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n * LONG_WINDOW; i++)
		ours_copy(p, LARGE, LARGE);
}

void tax_copy_messages_large(struct pair *p, long n)
{
	for (uint64_t i = 0; p->id == 0 && i < (uint64_t)n * LONG_WINDOW; i++)
		ours_copy(p, i % LONG_WINDOW * LARGE % MEM, LARGE);
}

void tax_copy_huge(struct pair *p, long n)
{
	for (uint64_t i = 0; p->id == 0 && i < (uint64_t)n * LONG_WINDOW; i++)
		ours_copy(p, i * HUGE % MEM, HUGE);
}

/* A cache line that goes to the other core and back, by nothing but loads and stores. */
void tax_cache_line(struct pair *p, long n)
{
	pair_bounce(p, n);
}

/* Windows of long messages out of memory of the user's, and into such, each window answered by a word. */
static void ours_messages(struct pair *p, long n, uint64_t size)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		due += p->id == 0;
		for (uint64_t k = 0; k < LONG_WINDOW; k++) {
			uint8_t *at = p->mem[1] + k * size % MEM;

			CHECK((p->id == 0 ? xport_send(p->ep, at, size, LONG_TAG, NULL)
			                  : xport_recv(p->x, at, size, LONG_TAG, UINT64_MAX, NULL)) == XPORT_OK);
		}
		sends_open += LONG_WINDOW;
		while (sends_open > 0 || (int)(received - due) < 0)
			tax_reap(p);
		if (p->id == 1)
			ours_post_send(p, &word);
		replenish(p);
	}
	while (sends_open > 0)
		tax_reap(p);
}

void tax_messages(struct pair *p, long n)
{
	ours_messages(p, n, HUGE);
}

void tax_messages_large(struct pair *p, long n)
{
	ours_messages(p, n, LARGE);
}

static void ours_read(struct pair *p, long n, size_t size)
{
	const uint8_t *theirs = (const uint8_t *)(uintptr_t)atomic_load(&p->sh->long_mem[0]);

	for (long i = 0; p->id == 1 && i < n; i++) {
		for (uint64_t k = 0; k < LONG_WINDOW; k++) {
			uint64_t at = k * size % MEM;
			struct iovec to = {p->mem[1] + at, size}, from = {(void *)(uintptr_t)(theirs + at), size};

			CHECK(process_vm_readv(atomic_load(&p->sh->pid[0]), &to, 1, &from, 1, 0) == (ssize_t)size);
		}
	}
	pair_barrier(p); /* the initiator's time is what counts */
}

void tax_read(struct pair *p, long n)
{
	ours_read(p, n, HUGE);
}

void tax_read_large(struct pair *p, long n)
{
	ours_read(p, n, LARGE);
}

/* ---- a window that slides ---- */

static void ours_slide(struct pair *p, unsigned most)
{
	while (sends_open > most)
		tax_reap(p);
}

/* As in baseline.c. */
void tax_slide_send(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < 2 * n; i++) {
		due += p->id == 0 ? i > 0 : WINDOW / 2;
		for (int k = 0; p->id == 0 && k < WINDOW / 2; k++)
			ours_post_send(p, &word);
		while ((int)(received - due) < 0)
			tax_reap(p);
		if (p->id == 1)
			ours_post_send(p, &word);
		replenish(p);
	}
	due += p->id == 0;
	while ((int)(received - due) < 0)
		tax_reap(p);
	replenish(p);
	ours_slide(p, 0);
}

void tax_slide_local(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n * WINDOW; i++) {
		ours_post_put(p, &word, 4096 + (uint64_t)(i % WINDOW) * 8);
		ours_slide(p, WINDOW - 1);
	}
	if (p->id == 0) {
		CHECK(xport_flush(p->ep, NULL) == XPORT_OK);
		sends_open++;
	}
	ours_slide(p, 0);
}

void tax_slide_quiet(struct pair *p, long n)
{
	static const struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < 2 * n; i++) {
		for (int k = 0; k < WINDOW / 2; k++)
			CHECK(xport_put(p->ep, &word, 8, p->rkey[0], 4096 + (uint64_t)k * 8, &quiet) == XPORT_OK);
		CHECK(xport_flush(p->ep, NULL) == XPORT_OK);
		sends_open++;
		ours_slide(p, 1);
	}
	ours_slide(p, 0);
}

void tax_slide_get(struct pair *p, long n)
{
	const struct xport_opt opt = {.size = sizeof(opt), .mr = p->mr[0]};

	for (long i = 0; p->id == 0 && i < n * WINDOW; i++) {
		uint64_t at = (uint64_t)(i % WINDOW) * 8;

		CHECK(xport_get(p->ep, p->mem[0] + 1024 + at, 8, p->rkey[0], 4096 + at, &opt) == XPORT_OK);
		sends_open++;
		ours_slide(p, WINDOW - 1);
	}
	ours_slide(p, 0);
}

void tax_slide_notify(struct pair *p, long n)
{
	static unsigned told;
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n * WINDOW; i++) {
		int r;

		while ((r = xport_put_notify(p->ep, &word, 8, p->rkey[0], 4096 + (uint64_t)(i % WINDOW) * 8, &local)) ==
		       XPORT_ERR_AGAIN)
			tax_reap(p);
		CHECK(r == XPORT_OK);
		sends_open++;
		ours_slide(p, WINDOW - 1);
	}
	if (p->id == 1) {
		told += (unsigned)n * WINDOW;
		while ((int)(notified - told) < 0)
			tax_reap(p);
	} else {
		CHECK(xport_flush(p->ep, NULL) == XPORT_OK);
		sends_open++;
	}
	ours_slide(p, 0);
}

void tax_slide_add(struct pair *p, long n)
{
	struct xport_atomic_args add = {.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};

	for (long i = 0; p->id == 0 && i < n * WINDOW; i++) {
		add.result = p->mem[0] + 1024 + i % WINDOW * 8;
		CHECK(xport_atomic(p->ep, &add, p->rkey[0], 4096, NULL) == XPORT_OK);
		sends_open++;
		ours_slide(p, WINDOW - 1);
	}
	ours_slide(p, 0);
}

void tax_ready(struct pair *p)
{
	for (int i = 0; i < WINDOW * 2; i++)
		ours_post_receive(p, &inbox[i % WINDOW]);
}
