/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * instructions.c - xport_perf --tax=count, for callgrind. Each function figure_* is one call of libxport; all waiting
 * is outside of them. The functions figure_direct_* of baseline.c are the direct calls.
 */
#include <sched.h>

#include "tools/tax/tax.h"

static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};
static const struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
static uint64_t inbox;
long tax_calls;

#define FIGURE __attribute__((noinline, noclone, used))

FIGURE static int figure_put(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	(void)c;
	return xport_put(p->ep, word, sizeof(*word), p->rkey[0], 64, &local);
}

FIGURE static int figure_quiet(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	(void)c;
	return xport_put(p->ep, word, sizeof(*word), p->rkey[0], 64, &quiet);
}

/* Quiet puts while a flush has not been reaped. */
FIGURE static int figure_behind(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	int r = xport_flush(p->ep, NULL);

	for (int i = 0; r == XPORT_OK && i < WINDOW; i++)
		r = xport_put(p->ep, word, sizeof(*word), p->rkey[0], 64, &quiet);
	return r < 0 ? r : xport_poll(p->x, c, 1);
}

FIGURE static int figure_get(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	(void)word;
	(void)c;
	return xport_get(p->ep, &inbox, sizeof(inbox), p->rkey[0], 64, NULL);
}

FIGURE static int figure_add(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	struct xport_atomic_args args = {
		.size = sizeof(args), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = *word, .result = &inbox};

	(void)c;
	return xport_atomic(p->ep, &args, p->rkey[0], 128, NULL);
}

FIGURE static int figure_poll(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	(void)word;
	return xport_poll(p->x, c, 1);
}

FIGURE static int figure_send(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	int r = xport_send(p->ep, word, sizeof(*word), 5, NULL);

	return r < 0 ? r : xport_poll(p->x, c, 1);
}

FIGURE static int figure_window(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	for (int i = 0; i < WINDOW; i++) {
		int r = xport_send(p->ep, word, sizeof(*word), 5, NULL);

		if (r < 0)
			return r;
	}
	return xport_poll(p->x, c, WINDOW);
}

FIGURE static int figure_gets(struct pair *p, const uint64_t *word, struct xport_completion *c)
{
	int n = 0;

	(void)word;
	for (int i = 0; i < WINDOW; i++) {
		int r = xport_get(p->ep, &inbox, sizeof(inbox), p->rkey[0], 64, NULL);

		if (r < 0)
			return r;
	}
	while (n < WINDOW) {
		int r = xport_poll(p->x, c, WINDOW);

		if (r < 0)
			return r;
		n += r;
		sched_yield();
	}
	return n;
}

FIGURE static int figure_recv(struct pair *p, uint64_t *word, struct xport_completion *c)
{
	int r = xport_recv(p->x, word, sizeof(*word), 5, UINT64_MAX, NULL);

	return r < 0 ? r : xport_poll(p->x, c, 1);
}

typedef int (*figure_fn)(struct pair *p, const uint64_t *word, struct xport_completion *c);

static void wait_ours(struct pair *p, unsigned want)
{
	struct xport_completion c[WINDOW];

	while (want > 0) {
		int n = xport_poll(p->x, c, WINDOW);

		CHECK(n >= 0);
		want -= (unsigned)n;
		sched_yield();
	}
}

static void repeat(struct pair *p, figure_fn fn, unsigned each)
{
	struct xport_completion c[WINDOW];
	uint64_t word = 1;

	for (long i = 0; i < tax_calls; i++) {
		int n = fn(p, &word, c);

		CHECK(n >= 0);
		if (fn == figure_put || fn == figure_get || fn == figure_add)
			n = figure_poll(p, &word, c);
		CHECK(n >= 0);
		wait_ours(p, each - (unsigned)n);
		/* What the peer acknowledges meanwhile is part of a call, too; only idle waiting is not. */
		sched_yield();
	}
}

/* Lets every pool grow to what the figures use. */
enum { WARM = 20 };

static void warm(struct pair *p)
{
	uint64_t word = 1;

	for (int i = 0; i < WARM; i++) {
		for (int k = 0; k < WINDOW; k++)
			CHECK(xport_send(p->ep, &word, sizeof(word), 5, NULL) == XPORT_OK);
		wait_ours(p, WINDOW);
		CHECK(xport_put(p->ep, &word, sizeof(word), p->rkey[0], 64, &local) == XPORT_OK);
		CHECK(xport_get(p->ep, &inbox, sizeof(inbox), p->rkey[0], 64, NULL) == XPORT_OK);
		wait_ours(p, 2);
	}
}

static void instructions_take_in(struct pair *p, long n)
{
	for (long i = 0; i < n; i++) {
		CHECK(xport_recv(p->x, &inbox, sizeof(inbox), 5, UINT64_MAX, NULL) == XPORT_OK);
		wait_ours(p, 1);
	}
}

static void count_ours(struct pair *p)
{
	struct xport_completion c[WINDOW];
	long n = tax_calls * (1 + WINDOW);

	if (p->id == 0)
		warm(p);
	else
		instructions_take_in(p, WARM * WINDOW);
	pair_barrier(p);
	if (p->id == 0) {
		repeat(p, figure_put, 1);
		repeat(p, figure_get, 1);
		repeat(p, figure_quiet, 0);
		repeat(p, figure_behind, 1);
		repeat(p, figure_add, 1);
		repeat(p, figure_gets, WINDOW);
		repeat(p, figure_send, 1);
		repeat(p, figure_window, WINDOW);
		return;
	}
	for (long i = 0; i < n; i++) {
		int r = figure_recv(p, &inbox, c);

		CHECK(r >= 0);
		wait_ours(p, r == 1 ? 0 : 1);
	}
}

/* The initiator calls the figures; the target takes in what comes, and its own figure is the receive. */
void tax_count(struct pair *p)
{
	count_ours(p);
	pair_barrier(p);
	p->baseline->count(p, tax_calls);
	pair_barrier(p);
}
