/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const uint32_t all_rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC;
static struct pair *this_pair; /* for last words */

void pair_die(const char *file, int line, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
	if (this_pair != NULL && xport_last_error(this_pair->x, &e) == XPORT_OK && e.text[0] != '\0')
		fprintf(stderr, "the last error: %s: %s (%s)\n", e.operation, e.text, xport_status_name(e.status));
	_exit(1);
}

uint64_t pair_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void pair_pin(const struct pair *p)
{
	cpu_set_t allowed, one;
	int n = p->id;

	CHECK(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	if (CPU_COUNT(&allowed) < 2)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &allowed) || n-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(i, &one);
		CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
		return;
	}
}

void pair_barrier(struct pair *p)
{
	unsigned mine = atomic_fetch_add(&p->sh->at[p->id], 1) + 1;

	while (atomic_load(&p->sh->at[!p->id]) < mine) {
		if (p->x != NULL)
			CHECK(xport_poll(p->x, NULL, 0) >= 0);
		if (p->direct != NULL)
			direct_progress(p);
		sched_yield();
	}
}

/* ---- through libxport ---- */

static void xport_side_open(struct pair *p)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = p->provider, .queue_depth = DEPTH};
	struct xport_mr_info info = {.size = sizeof(info)};

	CHECK(xport_open(&attr, &p->x) == XPORT_OK);
	CHECK(xport_mr_alloc(p->x, MEM, all_rights, &p->mr[0]) == XPORT_OK);
	CHECK(xport_mr_query(p->mr[0], &info) == XPORT_OK);
	p->mem[0] = info.base;
	p->mem[1] = aligned_alloc(4096, MEM);
	CHECK(p->mem[1] != NULL);
	memset(p->mem[1], 0, MEM);
	CHECK(xport_mr_reg(p->x, p->mem[1], MEM, all_rights, &p->mr[1]) == XPORT_OK);
	for (int i = 0; i < 2; i++) {
		p->sh->key_len[p->id][i] = sizeof(p->sh->key[0][0]);
		CHECK(xport_rkey_pack(p->mr[i], p->sh->key[p->id][i], &p->sh->key_len[p->id][i]) == XPORT_OK);
	}
}

static void xport_side_connect(struct pair *p)
{
	xport_listener *listener = NULL;

	if (p->id == 1) {
		CHECK(xport_listen(p->x, "127.0.0.1:0", NULL, &listener) == XPORT_OK);
		CHECK(xport_listener_name(listener, p->sh->address, sizeof(p->sh->address)) == XPORT_OK);
	}
	pair_barrier(p);
	if (p->id == 1) {
		CHECK(xport_accept(listener, 30000, &p->ep) == XPORT_OK);
		xport_listener_close(listener);
	} else {
		CHECK(xport_connect(p->x, p->sh->address, NULL, 30000, &p->ep) == XPORT_OK);
	}
	for (int i = 0; i < 2; i++)
		CHECK(xport_rkey_unpack(p->ep, p->sh->key[!p->id][i], p->sh->key_len[!p->id][i], &p->rkey[i]) ==
		      XPORT_OK);
}

/* A key is used natively once its owner confirmed it. */
static void await_native(struct pair *p)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	bool shm = strcmp(p->provider, "ucx:shm") == 0;
	uint64_t until = pair_ns() + UINT64_C(30000000000);

	do {
		CHECK(xport_poll(p->x, NULL, 0) >= 0);
		CHECK(xport_rkey_query(p->rkey[0], &info) == XPORT_OK);
		CHECK(pair_ns() < until);
	} while (shm && !info.direct);
}

static void pair_close(struct pair *p)
{
	xport_ep_close(p->ep, 5000);
	for (int i = 0; i < 2; i++)
		xport_rkey_destroy(p->rkey[i]);
	xport_ep_destroy(p->ep);
	for (int i = 0; i < 2; i++)
		CHECK(xport_mr_dereg(p->mr[i]) == XPORT_OK);
	xport_close(p->x);
	p->x = NULL;
	free(p->mem[1]);
	direct_close(p);
}

static void side(struct pair *p, void (*work)(struct pair *p))
{
	this_pair = p;
	xport_side_open(p);
	direct_open(p);
	pair_barrier(p);
	direct_connect(p);
	xport_side_connect(p);
	await_native(p);
	pair_barrier(p);
	work(p);
	pair_barrier(p);
	pair_close(p);
}

int pair_run(const char *provider, void (*work)(struct pair *p))
{
	struct pair p = {.provider = provider};
	int status;
	pid_t child;

	p.sh = mmap(NULL, sizeof(*p.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p.sh != MAP_FAILED);
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		p.id = 1;
		side(&p, work);
		fflush(NULL);
		exit(0);
	}
	/* The barriers have no time limit: an initiator left alone must not wait for ever. */
	alarm(600);
	side(&p, work);
	CHECK(waitpid(child, &status, 0) == child);
	munmap(p.sh, sizeof(*p.sh));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
