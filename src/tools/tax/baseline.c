/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baseline.c - the direct half of xport_perf --tax: loops around the calls of one stack, as an expert of the stack
 * would write them.
 */
#include "tools/tax/baseline.h"

/* Messages that have arrived or are still to come, over all batches: the other's first may come before ours has begun. */
static uint64_t due;
static uint64_t turn;

static inline void baseline_await(struct pair *p, bool asleep)
{
	for (; p->arrived < due; direct_progress(p))
		if (asleep)
			direct_sleep(p);
}

/* Half of a round trip of an 8-byte message. */
static inline void baseline_answer(struct pair *p, long n, bool asleep)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		due++;
		if (p->id == 0)
			direct_send(p, &word, sizeof(word));
		baseline_await(p, asleep);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
	}
	direct_wait(p);
}

static void pingpong(struct pair *p, long n)
{
	baseline_answer(p, n, false);
}

static void wakes(struct pair *p, long n)
{
	baseline_answer(p, n, true);
}

/* Windows of messages, each answered by one. */
static void baseline_rate(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		due += p->id == 0 ? 1 : WINDOW;
		for (int k = 0; p->id == 0 && k < WINDOW; k++)
			direct_send(p, &word, sizeof(word));
		baseline_await(p, false);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
	}
	direct_wait(p);
}

/* Half of a round trip of an 8-byte put into memory that the other watches. */
static void putpong(struct pair *p, long n)
{
	volatile uint64_t *in = (volatile uint64_t *)(p->direct_mem + 64);

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		turn++;
		if (p->id == 0)
			direct_put(p, &turn, 8, 64);
		while (*in != turn)
			direct_progress(p);
		if (p->id == 1)
			direct_put(p, &turn, 8, 64);
		direct_wait(p);
	}
}

/* Puts of 8 bytes, one at a time, each until it is placed. */
static void putone(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		direct_put_placed(p, p->direct_mem + 1024, 8, 512);
	}
}

/* Windows of puts, each followed by a flush. */
static void putrate(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		for (int k = 0; k < WINDOW; k++)
			direct_put(p, &word, 8, 4096 + (uint64_t)k * 8);
		direct_flush(p);
	}
}

/* The next as soon as one has ended, at most `most` of them in flight. */
static inline void baseline_slide(struct pair *p, uint64_t most)
{
	while (p->pending >= most)
		direct_progress(p);
}

/* Messages; each half of a window is answered by one, and may be under way while the other half is answered. */
static void slide_send(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < 2 * n; i++) {
		due += p->id == 0 ? i > 0 : WINDOW / 2;
		for (int k = 0; p->id == 0 && k < WINDOW / 2; k++)
			direct_send(p, &word, sizeof(word));
		baseline_await(p, false);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
	}
	due += p->id == 0;
	baseline_await(p, false);
	direct_wait(p);
}

/* Puts, of which the stack holds so many at most; all are flushed at the end. */
static void slide_local(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < n * WINDOW; i++) {
		direct_put(p, &word, 8, 4096 + (uint64_t)(i % WINDOW) * 8);
		baseline_slide(p, WINDOW);
	}
	if (p->id == 0)
		direct_flush(p);
}

/* Puts, each half of a window followed by a flush; the flush of one half is waited for once the other is posted. */
static void slide_quiet(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; p->id == 0 && i < 2 * n; i++) {
		for (int k = 0; k < WINDOW / 2; k++)
			direct_put(p, &word, 8, 4096 + (uint64_t)k * 8);
		direct_flush_begin(p);
		baseline_slide(p, 2);
	}
	direct_wait(p);
}

static void slide_get(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n * WINDOW; i++) {
		direct_get(p, p->direct_mem + 1024 + i % WINDOW * 8, 8, 4096 + (uint64_t)(i % WINDOW) * 8);
		baseline_slide(p, WINDOW);
	}
	direct_wait(p);
}

#ifdef DIRECT_ADD
/* Additions that bring the old value. */
static void slide_add(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n * WINDOW; i++) {
		direct_add(p, (uint64_t *)(void *)(p->direct_mem + 1024) + i % WINDOW, 4096);
		baseline_slide(p, WINDOW);
	}
	direct_wait(p);
}
#endif

/* Gets of 8 bytes, one at a time. */
static void getone(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		direct_get(p, p->direct_mem + 1024, 8, 1024);
		direct_wait(p);
	}
}

/* Windows of long puts, until the network is done with each. */
static void bandwidth(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		for (int k = 0; k < LONG_WINDOW; k++)
			direct_put(p, p->direct_mem + LARGE, LARGE, LARGE);
		direct_wait(p);
	}
}

/* Windows of puts of 1 MiB, until all are placed. */
static void placed(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		pair_tick(p);
		for (uint64_t k = 0; k < LONG_WINDOW; k++)
			direct_put(p, p->direct_mem + k * HUGE % MEM, HUGE, k * HUGE % MEM);
		direct_flush(p);
	}
}

#ifdef DIRECT_LONG
/* As `placed`, and the same with gets, over a connection that nothing was set for. */
static void default_placed(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		for (uint64_t k = 0; k < LONG_WINDOW; k++)
			direct_default_put(p, p->mem[1] + k * HUGE % MEM, HUGE, k * HUGE % MEM);
		direct_default_flush(p);
	}
	if (p->id == 1)
		direct_default_serve(p);
}

static void default_gets(struct pair *p, long n)
{
	for (long i = 0; p->id == 0 && i < n; i++) {
		for (uint64_t k = 0; k < LONG_WINDOW; k++)
			direct_default_get(p, p->mem[1] + k * HUGE % MEM, HUGE, k * HUGE % MEM);
		direct_long_wait(p);
	}
	if (p->id == 1)
		direct_default_serve(p);
}

/* Windows of long messages out of memory of the user's, and into such, each window answered by a word. */
static void messages(struct pair *p, long n)
{
	uint64_t word = 1;

	for (long i = 0; i < n; i++) {
		pair_tick(p);
		due += p->id == 0;
		for (uint64_t k = 0; k < LONG_WINDOW; k++)
			direct_long(p, p->id == 0, p->mem[1] + k * HUGE % MEM, HUGE);
		direct_long_wait(p);
		if (p->id == 1)
			direct_send(p, &word, sizeof(word));
		baseline_await(p, false);
	}
	direct_wait(p);
}
#endif

/* ---- for callgrind: each a call, and all waiting outside of them ---- */

#define FIGURE static __attribute__((noinline, noclone, used))

FIGURE void figure_direct_put(struct pair *p, const uint64_t *word)
{
	direct_put(p, word, sizeof(*word), 64);
}

FIGURE void figure_direct_get(struct pair *p, const uint64_t *word)
{
	(void)word;
	direct_get(p, p->direct_mem + 1024, sizeof(*word), 64);
}

FIGURE void figure_direct_send(struct pair *p, const uint64_t *word)
{
	direct_send(p, word, sizeof(*word));
	direct_progress(p);
}

#ifdef DIRECT_ADD
FIGURE void figure_direct_add(struct pair *p, const uint64_t *word)
{
	(void)word;
	direct_add(p, (uint64_t *)(void *)(p->direct_mem + 1024), 64);
}
#endif

/* The sends come last: when they have arrived, the target has served all. */
static void baseline_count(struct pair *p, long n)
{
	static void (*const figures[])(struct pair * p, const uint64_t *word) = {figure_direct_put, figure_direct_get,
#ifdef DIRECT_ADD
	                                                                         figure_direct_add,
#endif
	                                                                         figure_direct_send};
	uint64_t word = 1;

	for (size_t k = 0; p->id == 0 && k < sizeof(figures) / sizeof(figures[0]); k++)
		for (long i = 0; i < n; i++) {
			figures[k](p, &word);
			direct_wait(p);
		}
	due += p->id == 0 ? 0 : (uint64_t)n;
	baseline_await(p, false);
}

static void progress(struct pair *p)
{
	direct_progress(p);
}

static bool can_sleep(const struct pair *p)
{
	return direct_can_sleep(p);
}

extern const struct pair_baseline xport_tax_baseline;
__attribute__((visibility("default"))) const struct pair_baseline xport_tax_baseline = {
	.size = sizeof(struct pair),
	.open = direct_open,
	.connect = direct_connect,
	.close = direct_close,
	.progress = progress,
	.can_sleep = can_sleep,
	.pingpong = pingpong,
	.wakes = wakes,
	.rate = baseline_rate,
	.putpong = putpong,
	.putone = putone,
	.putrate = putrate,
	.getone = getone,
	.bandwidth = bandwidth,
	.placed = placed,
	.slide_send = slide_send,
	.slide_local = slide_local,
	.slide_quiet = slide_quiet,
	.slide_get = slide_get,
	.count = baseline_count,
#ifdef DIRECT_ADD
	.slide_add = slide_add,
#endif
#ifdef DIRECT_LONG
	.messages = messages,
	.default_placed = default_placed,
	.default_gets = default_gets,
#endif
};
