/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cost.c - the cost of a pool's block and of a cache's hit. `cost count` is for callgrind, which counts the functions
 * named figure_; `cost time` prints nanoseconds, with those of malloc and of registering.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "services/xport_services.h"

enum { CALLS = 100, ROUNDS = 20000, SIZE = 65536 };

static xport *x;
static xport_pool *pool;
static xport_cache *cache;
static unsigned char buffer[64][SIZE];

static void must(int status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "cost: %s\n", xport_strerror(status));
	exit(1);
}

void figure_pool(int n);
void figure_pool_large(int n);
void figure_cache(int n);

__attribute__((noinline)) void figure_pool(int n)
{
	struct xport_block b;

	while (n-- > 0) {
		must(xport_pool_alloc(pool, 4096, 0, &b));
		must(xport_pool_free(pool, b.address));
	}
}

__attribute__((noinline)) void figure_pool_large(int n)
{
	struct xport_block b;

	while (n-- > 0) {
		must(xport_pool_alloc(pool, SIZE, 0, &b));
		must(xport_pool_free(pool, b.address));
	}
}

__attribute__((noinline)) void figure_cache(int n)
{
	struct xport_cached c;

	while (n-- > 0) {
		must(xport_cache_get(cache, buffer[n % 64], SIZE, &c));
		must(xport_cache_put(cache, &c));
	}
}

/* What is slow the first time. */
static void warm(void)
{
	struct xport_cached c;
	struct xport_block b;

	for (int i = 0; i < 64; i++) {
		must(xport_cache_get(cache, buffer[i], SIZE, &c));
		must(xport_cache_put(cache, &c));
	}
	must(xport_pool_alloc(pool, 4096, 0, &b));
	must(xport_pool_free(pool, b.address));
	must(xport_pool_alloc(pool, SIZE, 0, &b));
	must(xport_pool_free(pool, b.address));
}

static void with_malloc(int n)
{
	while (n-- > 0) {
		void *volatile p = malloc(4096);

		free(p);
	}
}

static void with_reg(int n)
{
	xport_mr *mr;

	while (n-- > 0) {
		must(xport_mr_reg(x, buffer[0], SIZE, 0, &mr));
		must(xport_mr_dereg(mr));
	}
}

static double time_of(void (*what)(int), int n)
{
	struct timespec a, b;
	double best = 1e18, t;

	for (int i = 0; i < 10; i++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		what(n);
		clock_gettime(CLOCK_MONOTONIC, &b);
		t = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / n;
		best = t < best ? t : best;
	}
	return best;
}

int main(int argc, char **argv)
{
	must(xport_open(NULL, &x));
	must(xport_pool_create(x, NULL, &pool));
	must(xport_cache_create(x, NULL, &cache));
	warm();
	if (argc > 1 && strcmp(argv[1], "time") == 0) {
		double block = time_of(figure_pool, ROUNDS), large = time_of(figure_pool_large, ROUNDS);
		double hit = time_of(figure_cache, ROUNDS), heap = time_of(with_malloc, ROUNDS),
		       reg = time_of(with_reg, 200);

		printf("pool 4 KiB %.1f ns, pool 64 KiB %.1f ns, cache hit %.1f ns, malloc 4 KiB %.1f ns, register 64 "
		       "KiB %.0f ns "
		       "(%.0f times the pool)\n",
		       block, large, hit, heap, reg, reg / large);
	} else {
		figure_pool(CALLS);
		figure_pool_large(CALLS);
		figure_cache(CALLS);
	}
	must(xport_cache_destroy(cache));
	must(xport_pool_destroy(pool));
	xport_close(x);
	return 0;
}
