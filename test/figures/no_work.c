/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * no_work - no allocation, no lock and no system call of ours per operation on the data path in steady state.
 *
 *   no_work [--planted] PROVIDER...     ucx:tcp, ucx:shm; exits with 1 if anything of ours was counted
 *
 * --planted allocates in each operation, which must be found.
 *
 * Two processes; each operation runs some thousand times to warm up, then as often while both of them count.
 */
#include <string.h>
#include <unistd.h>

#include "count.h"
#include "tools/tax/pair.h"

enum { ROUNDS = 100, BURST = 16, NOPS = ROUNDS * (BURST + BURST), POSTED = 4 /* a place in result[] */ };

static bool planted;
static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};
static const struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
static const struct xport_opt told = {.size = sizeof(told), .value = 7};

/* ---- one operation each; returns the status of the post ---- */

struct op {
	const char *name;
	int (*post)(struct pair *p, xport_rkey *k, uint64_t *buf);
	bool no_completion;
	bool told; /* the target counts what arrives of it */
};

static int put_local(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	return xport_put(p->ep, buf, 8, k, 64, &local);
}

static int put_quiet(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	return xport_put(p->ep, buf, 8, k, 64, &quiet);
}

static int put_placed(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	return xport_put(p->ep, buf, 8, k, 64, NULL);
}

static int put_4k(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	(void)buf;
	return xport_put(p->ep, p->mem[1], 4096, k, 4096, NULL);
}

static int get(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	return xport_get(p->ep, buf, 8, k, 64, NULL);
}

static int put_notify(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	return xport_put_notify(p->ep, buf, 8, k, 64, &told);
}

static int fetch_add(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	struct xport_atomic_args a = {
		.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1, .result = buf};

	return xport_atomic(p->ep, &a, k, 128, NULL);
}

static int add(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};

	(void)buf;
	return xport_atomic(p->ep, &a, k, 128, NULL);
}

/* A flush alone has nothing to wait for: it follows a quiet put. */
static int flush(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	int r = xport_put(p->ep, buf, 8, k, 64, &quiet);

	return r == XPORT_OK ? xport_flush(p->ep, NULL) : r;
}

static int fence(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	int r = xport_put(p->ep, buf, 8, k, 64, NULL);

	return r == XPORT_OK ? xport_fence(p->ep) : r;
}

static int send8(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	(void)k;
	return xport_send(p->ep, buf, 8, 5, NULL);
}

static int send2k(struct pair *p, xport_rkey *k, uint64_t *buf)
{
	(void)k, (void)buf;
	return xport_send(p->ep, p->mem[1], 2048, 5, NULL);
}

static const struct op ops[] = {
	{"put 8 B LOCAL", put_local, false, false},
	{"put 8 B QUIET", put_quiet, true, false},
	{"put 8 B placed", put_placed, false, false},
	{"put 4 KiB placed", put_4k, false, false},
	{"get 8 B", get, false, false},
	{"put_notify 8 B", put_notify, false, true},
	{"atomic, fetching", fetch_add, false, false},
	{"atomic, plain", add, false, false},
	{"quiet put, flush", flush, false, false},
	{"put, fence", fence, false, false},
	{"send, recv 8 B", send8, false, true},
	{"send, recv 2 KiB", send2k, false, true},
};

/* ---- the two sides ---- */

static void reap(struct pair *p, unsigned *open)
{
	struct xport_completion c[BURST];
	int n = xport_poll(p->x, c, BURST);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(c[i].status == XPORT_OK && c[i].type <= XPORT_OP_FLUSH);
		--*open;
	}
}

static void post(struct pair *p, const struct op *op, xport_rkey *k, uint64_t *buf, unsigned *open)
{
	int r;

	if (planted)
		free(*(void *volatile *)&(void *){malloc(1)});
	while ((r = op->post(p, k, buf)) == XPORT_ERR_AGAIN)
		reap(p, open);
	CHECK(r == XPORT_OK);
	*open += op->no_completion ? 0 : 1;
}

/* Complete before it has arrived: no more than a burst is let under way, so that pools stay as they are. */
static void await_received(struct pair *p, const struct op *op, unsigned long long sent)
{
	unsigned none = 0;

	while (op->told && atomic_load(&p->sh->result[3]) < sent)
		reap(p, &none);
}

/* One at a time, and in bursts that the core packs. */
static void initiate(struct pair *p, const struct op *op, xport_rkey *k)
{
	uint64_t buf[BURST] = {0};
	unsigned long long sent = atomic_load(&p->sh->result[3]);
	unsigned open = 0;

	for (int round = 0; round < ROUNDS; round++, sent += 2 * BURST) {
		for (int i = 0; i < BURST; i++) {
			post(p, op, k, &buf[i], &open);
			do
				reap(p, &open);
			while (open > 0);
		}
		await_received(p, op, sent + BURST);
		for (int i = 0; i < BURST; i++)
			post(p, op, k, &buf[i], &open);
		do
			reap(p, &open);
		while (open > 0);
		await_received(p, op, sent + 2 * BURST);
	}
	atomic_store(&p->sh->done, true);
}

static uint8_t inbox[WINDOW][2048];

static void serve(struct pair *p)
{
	struct xport_completion c[BURST];
	bool done;

	do {
		int n;

		done = atomic_load(&p->sh->done);
		n = xport_poll(p->x, c, BURST);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			CHECK(c[i].status == XPORT_OK);
			if (c[i].type == XPORT_OP_RECV) {
				CHECK(xport_recv(p->x, c[i].context, sizeof(inbox[0]), 5, UINT64_MAX,
				                 &(struct xport_opt){.size = sizeof(struct xport_opt),
				                                     .context = c[i].context}) == XPORT_OK);
				atomic_fetch_add(&p->sh->result[3], 1);
			} else {
				CHECK(c[i].type == XPORT_EVENT_NOTIFY);
				atomic_fetch_add(&p->sh->result[3], 1);
			}
		}
	} while (!done);
}

/*
 * As much under way as the queue takes, while the target makes no progress.  So the pools have grown to whatever a preempted
 * target can make of them later.  The target waits until all is posted, however long that takes.
 * Without a poll between them the core packs operations into frames; with one, each operation is a frame and an xpi_op of its
 * own.
 */
static void flood(struct pair *p, const struct op *op, xport_rkey *k, bool packed)
{
	static uint64_t buf[BURST];
	unsigned long long sent;
	unsigned open = 0, posted = 0;

	pair_barrier(p);
	if (p->id == 0) {
		atomic_store(&p->sh->done, false);
		atomic_store(&p->sh->result[POSTED], 0);
	}
	sent = atomic_load(&p->sh->result[3]);
	pair_barrier(p);
	if (p->id == 1) {
		while (atomic_load(&p->sh->result[POSTED]) == 0)
			usleep(1000);
		serve(p);
		return;
	}
	while (posted < 2 * DEPTH && op->post(p, k, &buf[posted % BURST]) == XPORT_OK) {
		posted++;
		open += op->no_completion ? 0 : 1;
		if (!packed)
			reap(p, &open);
	}
	atomic_store(&p->sh->result[POSTED], 1);
	do
		reap(p, &open);
	while (open > 0);
	while (xport_flush(p->ep, NULL) == XPORT_ERR_AGAIN)
		reap(p, &open);
	open = 1;
	do
		reap(p, &open);
	while (open > 0);
	await_received(p, op, sent + posted);
	atomic_store(&p->sh->done, true);
}

static void phase(struct pair *p, const struct op *op, xport_rkey *k, struct count *c)
{
	pair_barrier(p);
	if (p->id == 0)
		atomic_store(&p->sh->done, false);
	pair_barrier(p);
	count_into(c);
	if (p->id == 0)
		initiate(p, op, k);
	else
		serve(p);
	count_into(NULL);
}

/* ---- judging ---- */

static bool clean(const struct pair *p, const char *what, const struct count *c)
{
	static const char *const names[] = {"allocation", "lock", "system call"};
	bool good = true;

	for (int i = 0; i < COUNT_WHATS; i++) {
		if (c->n[i][COUNT_OURS] == 0)
			continue;
		printf("FAILED: %s, %s, %s: %lu %ss of ours, the first: %s, called from %p\n", p->provider, what,
		       p->id == 0 ? "initiator" : "target", c->n[i][COUNT_OURS], names[i], c->first[i],
		       c->first_from[i]);
		good = false;
	}
	return good;
}

static void row(const struct pair *p, const char *what, const char *memory, const struct count *c)
{
	char name[64];

	snprintf(name, sizeof(name), "%s%s", what, memory);
	printf("%-9s %-30s %-9s", p->provider, name, p->id == 0 ? "initiator" : "target");
	for (int i = 0; i < COUNT_WHATS; i++)
		printf("  %5lu %8lu", c->n[i][COUNT_OURS], c->n[i][COUNT_UCX] + c->n[i][COUNT_LIBC]);
	printf("\n");
}

/* What certainly works must be seen: region, waiting, an instance with a lock. */
static bool sees(struct pair *p)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = p->provider, .thread_mode = XPORT_THREAD_MULTIPLE};
	struct count region = {0}, waiting = {0}, locked = {0};
	static uint64_t word;
	xport_mr *mr;
	xport *x;

	count_into(&region);
	CHECK(xport_mr_reg(p->x, &word, sizeof(word), XPORT_REMOTE_READ, &mr) == XPORT_OK);
	CHECK(xport_mr_dereg(mr) == XPORT_OK);
	count_into(&waiting);
	CHECK(xport_wait(p->x, NULL, 0, 5) == 0);
	count_into(NULL);
	CHECK(xport_open(&attr, &x) == XPORT_OK);
	count_into(&locked);
	CHECK(xport_poll(x, NULL, 0) == 0);
	count_into(NULL);
	xport_close(x);
	printf("%-9s %-30s %lu allocations in xport_mr_reg and _dereg, %lu system calls in xport_wait, %lu locks in a "
	       "poll "
	       "with XPORT_THREAD_MULTIPLE\n",
	       p->provider, "the count sees", region.n[COUNT_ALLOC][COUNT_OURS], waiting.n[COUNT_SYSTEM][COUNT_OURS],
	       locked.n[COUNT_LOCK][COUNT_OURS]);
	return region.n[COUNT_ALLOC][COUNT_OURS] >= 2 && waiting.n[COUNT_SYSTEM][COUNT_OURS] >= 1 &&
	       locked.n[COUNT_LOCK][COUNT_OURS] >= 1;
}

static void work(struct pair *p)
{
	bool good = true;

	count_init();
	if (p->id == 1)
		for (int i = 0; i < WINDOW; i++)
			CHECK(xport_recv(p->x, inbox[i], sizeof(inbox[i]), 5, UINT64_MAX,
			                 &(struct xport_opt){.size = sizeof(struct xport_opt), .context = inbox[i]}) ==
			      XPORT_OK);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		for (int m = 0; m < 2; m++) {
			struct count c = {0};

			if (m == 1 && (ops[i].post == send8 || ops[i].post == send2k))
				continue; /* no memory of the target's */
			flood(p, &ops[i], p->rkey[m], true);
			flood(p, &ops[i], p->rkey[m], false);
			phase(p, &ops[i], p->rkey[m], NULL);
			phase(p, &ops[i], p->rkey[m], &c);
			/* One after the other, so that the lines do not mix. */
			for (int turn = 0; turn < 2; turn++) {
				if (turn == p->id) {
					row(p, ops[i].name,
					    ops[i].post == send8 || ops[i].post == send2k ? ""
					    : m == 0                                      ? ", mr_alloc"
					                                                  : ", mr_reg",
					    &c);
					good = clean(p, ops[i].name, &c) && good;
					fflush(stdout);
				}
				pair_barrier(p);
			}
		}
	}
	if (p->id == 0 && !sees(p)) {
		printf("FAILED: the count does not see what is there\n");
		good = false;
	}
	atomic_store(&p->sh->result[p->id], good);
}

static void judged(struct pair *p)
{
	work(p);
	pair_barrier(p);
	if (p->id == 0 && !(atomic_load(&p->sh->result[0]) && atomic_load(&p->sh->result[1])))
		_Exit(1);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%d operations each, in both processes counted: of ours, and of UCX and libc\n", NOPS);
	printf("%-9s %-30s %-9s  %14s  %14s  %14s\n", "", "", "", "allocations", "locks", "system calls");
	planted = argc > 1 && strcmp(argv[1], "--planted") == 0;
	for (int i = planted ? 2 : 1; i < argc; i++)
		if (pair_run(argv[i], NULL, NULL, judged) != 0)
			return 1;
	printf("ok: nothing of ours\n");
	return argc > 1 ? 0 : 2;
}
