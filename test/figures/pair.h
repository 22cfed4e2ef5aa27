/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pair.h - two processes on one host, connected twice: through libxport, and by direct calls of UCX that are configured
 * as the back end configures them.  So the figures compare the same work at the same time on the same two cores.
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
#include <ucp/api/ucp.h>
#include <xport.h>

enum { MEM = 65536, WINDOW = 64, DEPTH = 512 /* operations in flight */ };

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
	size_t key_len[2][2], worker_len[2], rkey_len[2];
	uint64_t direct_at[2];
	char key[2][2][2048], worker[2][4096], rkey[2][2048];
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
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h direct;
	ucp_mem_h direct_mr;
	uint8_t *direct_mem; /* allocated by UCX */
	ucp_rkey_h direct_rkey;
	uint64_t direct_at;  /* the other's direct_mem there */
	uint64_t arrived;    /* active messages */
	uint64_t pending;    /* requests that UCX holds */
	uint64_t last;
};

/* Forks, connects, runs `work` in both processes, and ends; returns the exit status of the worse. */
int pair_run(const char *provider, void (*work)(struct pair *p));

void pair_die(const char *file, int line, const char *what) __attribute__((noreturn));
/* Waits for the other, making progress on both connections. */
void pair_barrier(struct pair *p);
/* Binds this process to a core of its own. */
void pair_pin(const struct pair *p);
uint64_t pair_ns(void);

/* The direct calls. */
static inline void direct_wait(struct pair *p)
{
	while (p->pending > 0)
		ucp_worker_progress(p->worker);
}

void direct_sent(void *request, ucs_status_t status, void *arg);
extern ucp_request_param_t direct_am, direct_rma;

static inline void direct_track(struct pair *p, ucs_status_ptr_t r)
{
	if (r == NULL)
		return;
	CHECK(UCS_PTR_IS_PTR(r));
	p->pending++;
}

static inline void direct_send(struct pair *p, const void *buf, size_t len)
{
	direct_track(p, ucp_am_send_nbx(p->direct, 0, NULL, 0, buf, len, &direct_am));
}

static inline void direct_put(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	direct_track(p, ucp_put_nbx(p->direct, buf, len, p->direct_at + offset, p->direct_rkey, &direct_rma));
}

static inline void direct_flush(struct pair *p)
{
	direct_track(p, ucp_ep_flush_nbx(p->direct, &direct_rma));
	direct_wait(p);
}

#endif
