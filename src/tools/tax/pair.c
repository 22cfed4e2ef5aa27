/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/tax/pair.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint32_t all_rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_REMOTE_RECV;

void pair_pin(const struct pair *p)
{
	cpu_set_t allowed, one;
	int n = p->id;

	CHECK(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	atomic_store(&p->sh->core[p->id], -1);
	if (CPU_COUNT(&allowed) < 2)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &allowed) || n-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(i, &one);
		CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
		atomic_store(&p->sh->core[p->id], i);
		return;
	}
}

/* Ends the process if the call of xport failed, and prints why. */
static void pair_must(const struct pair *p, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == XPORT_OK)
		return;
	xport_last_error(p->x, &e);
	fprintf(stderr, "%s: %s: %s%s%s\n", p->provider, e.operation, e.text, e.hint[0] != '\0' ? "; " : "", e.hint);
	CHECK(status == XPORT_OK);
}

static void poll_ours(struct pair *p)
{
	if (p->x != NULL)
		CHECK(xport_poll(p->x, NULL, 0) >= 0);
}

void pair_barrier(struct pair *p)
{
	unsigned mine = atomic_fetch_add(&p->sh->at[p->id], 1) + 1;

	while (atomic_load(&p->sh->at[!p->id]) < mine) {
		poll_ours(p);
		if (p->direct != NULL)
			p->baseline->progress(p);
		sched_yield();
	}
}

void pair_bounce(struct pair *p, long trips)
{
	atomic_uint *mine = p->id == 0 ? &p->sh->ping : &p->sh->pong, *other = p->id == 0 ? &p->sh->pong : &p->sh->ping;
	unsigned turn = atomic_load(mine);

	for (long i = 0; i < trips; i++) {
		turn++;
		if (p->id == 0)
			atomic_store_explicit(mine, turn, memory_order_release);
		while (atomic_load_explicit(other, memory_order_acquire) != turn)
			;
		if (p->id == 1)
			atomic_store_explicit(mine, turn, memory_order_release);
	}
}

double pair_probe(struct pair *p)
{
	enum { GROUPS = 4, TRIPS = 50 };
	double best = 1e12;

	pair_barrier(p);
	for (unsigned g = 0; g < GROUPS; g++) {
		uint64_t ns = pair_ns();

		pair_bounce(p, TRIPS);
		ns = pair_ns() - ns;
		best = (double)ns / (2 * TRIPS) < best ? (double)ns / (2 * TRIPS) : best;
	}
	return best;
}

/* ---- through libxport ---- */

static void xport_side_open(struct pair *p)
{
	struct xport_attr attr = {.size = sizeof(attr),
	                          .backend = p->provider,
	                          .queue_depth = getenv("XPORT_QUEUE_DEPTH") != NULL ? 0 : DEPTH};
	struct xport_mr_info info = {.size = sizeof(info)};

	pair_must(p, xport_open(&attr, &p->x));
	CHECK(xport_mr_alloc(p->x, MEM, all_rights, &p->mr[0]) == XPORT_OK);
	CHECK(xport_mr_query(p->mr[0], &info) == XPORT_OK);
	p->mem[0] = info.base;
	p->mem[1] = aligned_alloc(4096, MEM);
	CHECK(p->mem[1] != NULL);
	memset(p->mem[1], 0, MEM);
	atomic_store(&p->sh->long_mem[p->id], (uintptr_t)p->mem[1]);
	atomic_store(&p->sh->pid[p->id], getpid());
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
		pair_must(p, xport_accept(listener, 30000, &p->ep));
		xport_listener_close(listener);
	} else {
		pair_must(p, xport_connect(p->x, p->sh->address, NULL, 30000, &p->ep));
	}
	for (int i = 0; i < 2; i++)
		CHECK(xport_rkey_unpack(p->ep, p->sh->key[!p->id][i], p->sh->key_len[!p->id][i], &p->rkey[i]) ==
		      XPORT_OK);
}

bool pair_is_local(const char *provider)
{
	return strcmp(provider, "shm") == 0 || strncmp(provider, "shm:", 4) == 0 || strstr(provider, ":shm") != NULL;
}

/* A key is used natively once its owner confirmed it. */
static void await_native(struct pair *p)
{
	struct xport_rkey_info info = {.size = sizeof(info)};
	bool shm = strcmp(p->provider, "ofi:shm") != 0 && pair_is_local(p->provider);
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
	if (p->baseline != NULL)
		p->baseline->close(p);
	free(p->mem[1]);
}

/* The other may leave the last barrier and close while this one makes progress in it, and would find an error there. */
static void stand_still(struct pair *p)
{
	atomic_fetch_add(&p->sh->still, 1);
	while (atomic_load(&p->sh->still) < 2)
		sched_yield();
}

static void pair_side(struct pair *p, const struct pair_baseline *(*find)(const char *provider),
                      void (*work)(struct pair *p))
{
	p->barrier = pair_barrier;
	p->poll = poll_ours;
	xport_side_open(p);
	p->baseline = find != NULL ? find(p->beside) : NULL;
	if (p->baseline != NULL)
		p->baseline->open(p);
	pair_barrier(p);
	if (p->baseline != NULL)
		p->baseline->connect(p);
	xport_side_connect(p);
	await_native(p);
	pair_barrier(p);
	work(p);
	pair_barrier(p);
	stand_still(p);
	pair_close(p);
	atomic_store(&p->sh->ended, true);
}

static struct pair_shared *watched;

/* The loops have no time limit, and look for nothing but their data: an initiator left alone ends here. */
static void child_ended(int number)
{
	static const char words[] = "xport_perf: the other process has ended: no result\n";

	(void)number;
	if (atomic_load(&watched->ended))
		return;
	(void)!write(STDERR_FILENO, words, sizeof(words) - 1);
	_exit(1);
}

int pair_run(const char *provider, const char *beside, const struct pair_baseline *(*find)(const char *provider),
             void (*work)(struct pair *p))
{
	struct sigaction act = {.sa_handler = child_ended, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
	struct pair p = {.provider = provider, .beside = beside};
	int status;
	pid_t child;

	p.sh = mmap(NULL, sizeof(*p.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p.sh != MAP_FAILED);
	p.copied = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p.copied != MAP_FAILED);
	watched = p.sh;
	CHECK(sigaction(SIGCHLD, &act, NULL) == 0);
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		p.id = 1;
		pair_side(&p, find, work);
		fflush(NULL);
		_exit(0);
	}
	pair_side(&p, find, work);
	CHECK(waitpid(child, &status, 0) == child);
	munmap(p.copied, MEM);
	munmap(p.sh, sizeof(*p.sh));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
