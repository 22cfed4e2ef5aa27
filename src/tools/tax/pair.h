/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pair.h - two processes on one host, connected twice: through libxport, and by direct calls of UCX, libfabric or
 * libibverbs with the same settings as the back end. So the figures compare the same work at the same time on the same
 * two cores. The direct calls are in a module of their own, the baseline, so that nothing else is linked with the
 * stack.
 *
 * ERRORS: none are handled. A failure is printed and ends the process, and with it the other one.
 */
#ifndef XPORT_TOOLS_TAX_PAIR_H
#define XPORT_TOOLS_TAX_PAIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <xport.h>

enum {
	LARGE = 64 << 10, /* of memory that is moved in one piece, to the same offset */
	HUGE = 1 << 20,
	MEM = 4 * HUGE,
	WINDOW = 64,
	LONG_WINDOW = 16,
	DEPTH = 512 /* operations in flight */
};

#define CHECK(cond) \
	do { \
		if (!(cond)) \
			pair_die(__FILE__, __LINE__, #cond); \
	} while (0)

/* What the two processes share beside their connections. */
struct pair_shared {
	_Alignas(64) atomic_uint ping; /* each in a cache line of its own */
	_Alignas(64) atomic_uint pong;
	_Alignas(64) atomic_bool ended;
	atomic_uint at[2];    /* barriers that each has reached */
	atomic_uint still;    /* processes that make no more progress */
	atomic_bool done;     /* the initiator has had enough of this phase */
	atomic_ullong result[16];
	atomic_int core[2];   /* what each is bound to; -1: nothing */
	char address[64];
	atomic_ullong long_mem[2]; /* mem[1] of each, in its own memory */
	atomic_int pid[2];
	size_t key_len[2][2];
	char key[2][2][2048];
	_Alignas(16) char direct[2][8192];
};

struct pair;

/* ---- the baseline: direct calls, the same for each stack (baseline.c) ---- */

/* n steps of one kind of work; both processes call it. */
typedef void (*pair_work)(struct pair *p, long n);

/* What a module exports, as xport_tax_baseline. */
struct pair_baseline {
	size_t size; /* of struct pair: both were built from the same */
	/* Each process opens, writes into sh->direct[id] what the other needs, and connects once both have. */
	void (*open)(struct pair *p);
	void (*connect)(struct pair *p);
	void (*close)(struct pair *p);
	void (*progress)(struct pair *p);
	bool (*can_sleep)(const struct pair *p);
	pair_work pingpong, wakes, rate, putpong, putone, putrate, getone, bandwidth, placed;
	pair_work slide_send, slide_local, slide_quiet, slide_get;
	pair_work slide_add, messages, default_placed, default_gets; /* NULL: not written */
	pair_work count; /* for callgrind, see instructions.c */
};

/* When each step began, where single steps are looked at. */
struct pair_steps {
	long n, max;
	uint64_t *at;
};

struct pair {
	struct pair_shared *sh;
	int id; /* 0: the initiator, in the parent; 1: the target */
	const char *provider;
	const char *beside; /* what the direct calls travel over, mostly the same */
	/* through libxport */
	xport *x;
	xport_ep *ep;
	xport_mr *mr[2];     /* of xport_mr_alloc, of xport_mr_reg */
	uint8_t *mem[2];
	uint8_t *copied;     /* MEM bytes that both have mapped, for nothing but memcpy(3) */
	xport_rkey *rkey[2]; /* of the other's */
	/* direct */
	const struct pair_baseline *baseline; /* NULL: only through libxport */
	struct direct *direct;
	uint8_t *direct_mem;          /* MEM bytes that the other puts into */
	uint64_t arrived;             /* messages */
	uint64_t pending;             /* operations that the stack holds */
	struct pair_steps steps;
	void (*barrier)(struct pair *p);
	void (*poll)(struct pair *p); /* progress of what goes through libxport */
};

static inline _Noreturn void pair_die(const char *file, int line, const char *what)
{
	/* If it fails because the other has ended, SIGCHLD says so: a moment after the other's sockets are closed. */
	usleep(200000);
	fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
	_exit(1);
}

static inline uint64_t pair_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline void pair_tick(struct pair *p)
{
	if (p->steps.n < p->steps.max)
		p->steps.at[p->steps.n++] = pair_ns();
}

/*
 * Forks, connects, runs `work` in both processes, and ends; returns the exit status of the worse.  `find` gives the baseline
 * for `beside`, in both processes, once libxport is open; NULL: there is none.
 */
int pair_run(const char *provider, const char *beside, const struct pair_baseline *(*find)(const char *provider),
             void (*work)(struct pair *p));

/* Waits for the other, making progress on both connections. */
void pair_barrier(struct pair *p);
/* Binds this process to a core of its own, if there are two; sh->core says which. */
void pair_pin(const struct pair *p);
/* Sends a cache line from core to core and back so many times, by loads and stores; both call it. */
void pair_bounce(struct pair *p, long trips);
/* Whether the provider is one of shared memory. */
bool pair_is_local(const char *provider);
/* How long a cache line takes from one core to the other, in ns; both call it. */
double pair_probe(struct pair *p);

#endif
