/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz/ledger.h"

enum { PAINT = 0xa5 };

uint8_t *ledger_buffer(struct ledger *l, size_t len)
{
	struct ledger_entry *e = &l->entry[l->n];

	if (l->n == LEDGER_MAX)
		return NULL;
	*e = (struct ledger_entry){.len = len, .block = malloc(len + 2 * LEDGER_GUARD)};
	FUZZ_CHECK(e->block != NULL);
	memset(e->block, PAINT, len + 2 * LEDGER_GUARD);
	return e->block + LEDGER_GUARD;
}

void *ledger_context(const struct ledger *l)
{
	return (void *)(uintptr_t)(l->n + 1);
}

void ledger_enter(struct ledger *l, uint32_t type, bool quiet, uint64_t id, int status)
{
	struct ledger_entry *e = &l->entry[l->n];

	if (status != XPORT_OK) {
		FUZZ_CHECK(status < 0);
		free(e->block);
		return;
	}
	e->type = type;
	e->expects = !quiet;
	e->id = id;
	l->n++;
}

void ledger_reap(struct ledger *l, const struct xport_completion *c, int n)
{
	FUZZ_CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		uintptr_t at = (uintptr_t)c[i].context;

		if (c[i].type >= XPORT_EVENT_NOTIFY)
			continue;
		FUZZ_CHECK(at >= 1 && at <= l->n);
		FUZZ_CHECK(l->entry[at - 1].expects && !l->entry[at - 1].done);
		FUZZ_CHECK(c[i].status <= 0);
		/* A message of a receive that takes many: its end follows. */
		if (l->entry[at - 1].type == XPORT_OP_RECV_END && c[i].type == XPORT_OP_RECV) {
			FUZZ_CHECK(c[i].offset % 64 == 0 && c[i].offset <= l->entry[at - 1].len);
			continue;
		}
		FUZZ_CHECK(l->entry[at - 1].type == c[i].type);
		l->entry[at - 1].done = true;
	}
}

void ledger_cancel(struct ledger *l, struct xport *x)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->entry[i].id != 0 && !l->entry[i].done)
			(void)!xport_cancel(x, l->entry[i].id);
}

void ledger_end(struct ledger *l)
{
	for (unsigned i = 0; i < l->n; i++) {
		struct ledger_entry *e = &l->entry[i];

		FUZZ_CHECK(e->done || !e->expects);
		for (size_t k = 0; k < LEDGER_GUARD; k++)
			FUZZ_CHECK(e->block[k] == PAINT && e->block[LEDGER_GUARD + e->len + k] == PAINT);
		free(e->block);
	}
	l->n = 0;
}

unsigned ledger_in_use(const struct xpi_pool *p)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < p->nslabs << p->shift; i++)
		n += xpi_pool_at(p, i) != NULL;
	return n;
}
