/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pair.h - two processes on one host, connected twice: through libxport, and by direct calls of UCX, libfabric or
 * libibverbs that are configured as the back end configures them: DIRECT_H says which.  So the figures compare the same
 * work at the same time on the same two cores.
 *
 * ERRORS: none are handled; what goes wrong is printed and ends the process.
 */
#ifndef FIGURES_PAIR_H
#define FIGURES_PAIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <xport.h>

enum {
	LARGE = 64 << 10, /* of memory that is moved in one piece, to the same offset */
	HUGE = 1 << 20,
	MEM = 4 * HUGE,
	WINDOW = 64,
	DEPTH = 512 /* operations in flight */
};

#define CHECK(cond) \
	do { \
		if (!(cond)) \
			pair_die(__FILE__, __LINE__, #cond); \
	} while (0)

/* What the two processes share beside their connections. */
struct pair_shared {
	atomic_uint at[2];    /* barriers that each has reached */
	atomic_bool done;     /* the initiator has had enough of this phase */
	atomic_ullong result[16];
	char address[64];
	size_t key_len[2][2];
	char key[2][2][2048];
	_Alignas(16) char direct[2][8192];
};

struct pair {
	struct pair_shared *sh;
	int id; /* 0: the initiator, in the parent; 1: the target */
	const char *provider;
	/* through libxport */
	xport *x;
	xport_ep *ep;
	xport_mr *mr[2];     /* of xport_mr_alloc, of xport_mr_reg */
	uint8_t *mem[2];
	xport_rkey *rkey[2]; /* of the other's */
	/* direct */
	struct direct *direct;
	uint8_t *direct_mem; /* MEM bytes that the other puts into */
	uint64_t arrived;    /* messages */
	uint64_t pending;    /* operations that the stack holds */
};

/* Forks, connects, runs `work` in both processes, and ends; returns the exit status of the worse. */
int pair_run(const char *provider, void (*work)(struct pair *p));

void pair_die(const char *file, int line, const char *what) __attribute__((noreturn));
/* Waits for the other, making progress on both connections. */
void pair_barrier(struct pair *p);
/* Binds this process to a core of its own. */
void pair_pin(const struct pair *p);
uint64_t pair_ns(void);

/* ---- direct: the same for each stack ---- */

/* Each process opens, writes into sh->direct[id] what the other needs, and connects once both have. */
void direct_open(struct pair *p);
void direct_connect(struct pair *p);
void direct_close(struct pair *p);

/*
 * Inline: direct_progress(p), direct_send(p, buf, len) counted in the other's p->arrived, direct_put(p, buf, len, offset)
 * into the other's p->direct_mem, direct_get(p, buf, len, offset) out of it, direct_wait(p) for what the stack still
 * holds, direct_flush(p) until all is placed.
 */
#include DIRECT_H

#endif
