/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inject.c - see inject.h.
 *
 * ASSUMPTIONS  x86-64 or AArch64: a function that takes up to eight integers or pointers takes them the same way whatever
 *              their types, also if it takes fewer, or a variable number of them; and it returns an int, a long or a
 *              pointer in the same register.  So one wrapper fits all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "inject.h"

#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT INJECT_SHORT

static struct inject_run *_Atomic run;

/* ---- the table ---- */

enum {
#define CALL(kind, name, how, ...) AT_##name,
#define NEVER(name)
#include "calls.h"
#undef CALL
	NCALLS
};

enum how { NULL_, MINUS, CODE, AFTER, AFTER_CODE };

static const enum how hows[] = {
#define CALL(kind, name, how, ...) how,
#include "calls.h"
#undef CALL
};

const struct inject_call inject_calls[] = {
#define CALL(kind, name, how, ...) \
	{#name, \
	 INJECT_##kind, \
	 how == AFTER || how == AFTER_CODE, \
	 sizeof((int[]){__VA_ARGS__}) / sizeof(int), \
	 {__VA_ARGS__}},
#include "calls.h"
#undef CALL
};

const int inject_ncalls = NCALLS;

/* ---- memory of the library ---- */

enum { LEDGER = 1 << 16 };
static struct block {
	void *p;
	uintptr_t site;
	size_t size;
} ledger[LEDGER];
static atomic_flag ledger_lock = ATOMIC_FLAG_INIT;
static void *const gone = &ledger;

static void lock(void)
{
	while (atomic_flag_test_and_set_explicit(&ledger_lock, memory_order_acquire))
		;
}

static void unlock(void)
{
	atomic_flag_clear_explicit(&ledger_lock, memory_order_release);
}

static size_t home(const void *p)
{
	return ((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 48;
}

static void note_block(void *p, size_t size, uintptr_t site)
{
	lock();
	for (size_t i = home(p), n = 0; n < LEDGER; i = (i + 1) % LEDGER, n++)
		if (ledger[i].p == NULL || ledger[i].p == gone) {
			ledger[i] = (struct block){p, site, size};
			break;
		}
	unlock();
}

/* Its size; 0: not the library's. */
static size_t forget_block(const void *p)
{
	size_t size = 0;

	lock();
	for (size_t i = home(p), n = 0; n < LEDGER && ledger[i].p != NULL; i = (i + 1) % LEDGER, n++)
		if (ledger[i].p == p) {
			size = ledger[i].size;
			ledger[i].p = gone;
			break;
		}
	unlock();
	return size;
}

/* Whoever gives it back: a stack may free what the library handed to it. */
void __libc_free(void *p);
void free(void *p)
{
	if (p != NULL && atomic_load_explicit(&run, memory_order_relaxed) != NULL)
		forget_block(p);
	__libc_free(p);
}

/* The library's own: what is freed is spoilt first, so that who still uses it is seen. */
void __wrap_free(void *p);
void __wrap_free(void *p)
{
	size_t size = p != NULL ? forget_block(p) : 0;

	if (size > 0)
		memset(p, 0xdd, size);
	__libc_free(p);
}

/* ---- the counter ---- */

static int base_of(struct dl_phdr_info *info, size_t size, void *base)
{
	(void)size;
	*(uintptr_t *)base = info->dlpi_addr; /* the first one is the program */
	return 1;
}

static uintptr_t program;

static struct inject_site *site_of(struct inject_run *r, int call, uintptr_t at)
{
	for (size_t i = at * 0x9e3779b97f4a7c15u >> 52, n = 0; n < INJECT_SITES; i = (i + 1) % INJECT_SITES, n++) {
		uintptr_t none = 0;

		if (atomic_load(&r->sites[i].at) == at)
			return &r->sites[i];
		if (atomic_compare_exchange_strong(&r->sites[i].at, &none, at)) {
			r->sites[i].call = call;
			return &r->sites[i];
		}
		if (none == at)
			return &r->sites[i];
	}
	abort();
}

static _Atomic int struck_call[INJECT_STEPS];

/* Whether this call is to fail, and with what. */
static bool strikes(struct inject_run *r, int i, int call, uintptr_t at, unsigned of_kind, unsigned of_site)
{
	const struct inject_step *s = &r->steps[i];

	if (!s->active)
		return false;
	if (atomic_load(&r->struck[i])) {
		if (!s->persistent)
			return false;
		return s->site != 0 ? atomic_load(&struck_call[i]) == call : inject_calls[call].kind == s->kind;
	}
	if (s->site != 0 ? s->site != at || of_site < s->nth : inject_calls[call].kind != s->kind || of_kind < s->nth)
		return false;
	atomic_store(&struck_call[i], call);
	atomic_store(&r->struck[i], true);
	return true;
}

static bool fails(int call, const void *return_address, int *error, uintptr_t *at)
{
	struct inject_run *r = atomic_load(&run);
	struct inject_site *site;
	unsigned of_kind, of_site;
	bool yes = false;

	if (r == NULL)
		return false;
	*at = (uintptr_t)return_address - program;
	site = site_of(r, call, *at);
	of_kind = atomic_fetch_add(&r->counts[inject_calls[call].kind], 1) + 1;
	of_site = atomic_fetch_add(&site->made, 1) + 1;
	for (int i = 0; i < INJECT_STEPS && !yes; i++) {
		yes = strikes(r, i, call, *at, of_kind, of_site);
		*error = r->steps[i].error;
	}
	if (!yes)
		return false;
	atomic_fetch_add(&site->failed, 1);
	if (r->steps[0].site == 0 && inject_calls[call].kind == INJECT_MEMORY)
		*error = inject_calls[call].errors[0];
	return true;
}

static long outcome(int call, int error)
{
	if (call == AT_getaddrinfo)
		errno = EIO;
	else if (hows[call] != CODE && hows[call] != AFTER_CODE)
		errno = error;
	switch (hows[call]) {
	case NULL_:
		return 0;
	case MINUS:
	case AFTER:
		return -1;
	default:
		return error;
	}
}

/* What the library now has, with bytes that nobody may take for zeros. */
static void take_block(int call, long result, size_t size, uintptr_t at)
{
	if (result == 0 || atomic_load(&run) == NULL)
		return;
	if (call == AT_malloc || call == AT_aligned_alloc)
		memset((void *)result, 0xa5, size);
	note_block((void *)result, size, at);
}

static bool makes_block(int call)
{
	return call == AT_malloc || call == AT_calloc || call == AT_realloc || call == AT_aligned_alloc ||
	       call == AT_strdup;
}

static size_t block_size(int call, long result, long a, long b)
{
	switch (call) {
	case AT_calloc:
		return (size_t)a * (size_t)b;
	case AT_malloc:
		return (size_t)a;
	case AT_strdup:
		return strlen((const char *)result) + 1;
	default:
		return (size_t)b; /* realloc, aligned_alloc */
	}
}

typedef long any(long, long, long, long, long, long, long, long);

static long through(int call, any *real, const void *from, long v[8])
{
	uintptr_t at = 0;
	int error = 0;
	long r;

	if (fails(call, from, &error, &at)) {
		if (hows[call] == AFTER || hows[call] == AFTER_CODE)
			real(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
		if (error != SHORT)
			return outcome(call, error);
		v[call == AT_getrandom ? 1 : 2] = 1;
	}
	if (call == AT_realloc && v[0] != 0)
		forget_block((void *)v[0]);
	r = real(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
	if (makes_block(call))
		take_block(call, r, r != 0 ? block_size(call, r, v[0], v[1]) : 0, at);
	return r;
}

/* libfabric's own are inline functions, which fabric.c has under another name. */
#define REAL_MEMORY
#define REAL_SYSTEM
#define REAL_SODIUM
#define REAL_UCX
#define REAL_FABRIC "real_"
#define REAL_RDMA
#define CALL(kind, name, how, ...) \
	any xreal_##name __asm__(REAL_##kind #name) __attribute__((weak)); \
	any __wrap_##name; \
	long __wrap_##name(long a, long b, long c, long d, long e, long f, long g, long h) \
	{ \
		long v[] = {a, b, c, d, e, f, g, h}; \
\
		return through(AT_##name, xreal_##name, __builtin_return_address(0), v); \
	}
#include "calls.h"

/* ---- on and off ---- */

void inject_arm(struct inject_run *r)
{
	dl_iterate_phdr(base_of, &program);
	atomic_store(&run, r);
}

void inject_relent(void)
{
	struct inject_run *r = atomic_load(&run);

	for (int i = 0; i < INJECT_STEPS; i++) {
		bool struck = atomic_load(&r->struck[i]);

		if (r->steps[i].site == 0 ? r->steps[i].kind == INJECT_MEMORY
		                          : struck && inject_calls[struck_call[i]].kind == INJECT_MEMORY)
			r->steps[i].persistent = false;
	}
}

void inject_disarm(void)
{
	struct inject_run *r = atomic_load(&run);

	atomic_store(&run, NULL);
	for (size_t i = 0; i < LEDGER; i++)
		if (ledger[i].p != NULL && ledger[i].p != gone) {
			if (r->nblocks < INJECT_BLOCKS) {
				r->blocks[r->nblocks].site = ledger[i].site;
				r->blocks[r->nblocks].size = ledger[i].size;
			}
			r->nblocks++;
		}
}
