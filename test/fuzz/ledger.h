/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ledger.h - what an input posted and what came back: each accepted operation completes exactly once (P1), and only its
 * own buffer is written.
 */
#ifndef FUZZ_LEDGER_H
#define FUZZ_LEDGER_H

#include <stdbool.h>

#include "core/object/instance.h"
#include "fuzz/fuzz.h"

enum { LEDGER_MAX = 512, LEDGER_GUARD = 32 };

struct ledger_entry {
	uint32_t type;  /* enum xport_type */
	bool expects;   /* a completion */
	bool done;
	uint64_t id;    /* receives: for xport_cancel */
	uint8_t *block; /* the buffer, with a guard on either side */
	size_t len;
};

struct ledger {
	unsigned n;
	struct ledger_entry entry[LEDGER_MAX];
};

/* A buffer for the next operation; NULL: the ledger is full. */
uint8_t *ledger_buffer(struct ledger *l, size_t len);
/* The context for the next operation. */
void *ledger_context(const struct ledger *l);
/* The call returned `status`: if the operation was accepted, it is entered. */
void ledger_enter(struct ledger *l, uint32_t type, bool quiet, uint64_t id, int status);
/* Of the instance's that polled; events are none of ours. */
void ledger_reap(struct ledger *l, const struct xport_completion *c, int n);
/* Cancels all receives that are still posted. */
void ledger_cancel(struct ledger *l, struct xport *x);
/* All that was accepted is done; buffers are freed. */
void ledger_end(struct ledger *l);

/* How many objects of the pool are in use. */
unsigned ledger_in_use(const struct xpi_pool *p);

#endif
