/* SPDX-License-Identifier: BSD-3-Clause */
#include "crew.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "actor.h"
#include "end.h"

enum { WARM_S = 60, ROUND_S = 4, ENOUGH = 20, ENOUGH_RATES = 30 };

struct kl_board *crew_board(const char *backend, bool silent)
{
	struct kl_board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (b == MAP_FAILED)
		return NULL;
	b->backend = backend;
	b->silent = silent;
	for (int way = 0; way < KL_WAYS; way++)
		for (int step = 0; step < KL_STEPS && kl_is_silent((enum kl_way)way) == silent; step++)
			for (int part = 0; part < KL_PARTS; part++)
				b->cell[b->ncells++] = (struct kl_cell){.way = (enum kl_way)way,
				                                        .step = (enum kl_step)step,
				                                        .part = (enum kl_part)part};
	b->cell[b->ncells++] = (struct kl_cell){.step = KL_AFTER};
	return b;
}

/* ---- the conductor ---- */

static bool own_shm(void)
{
	return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777,size=512m") == 0;
}

/* Those that need what this machine does not give are skipped, and say so. */
static void skip_cut(struct kl_board *b)
{
	for (int i = 0; i < b->ncells; i++)
		if (b->cell[i].way == KL_CUT && b->cell[i].step != KL_AFTER)
			kl_cell_judge(&b->cell[i], KL_SKIPPED, b->no_net);
}

static int rounds_left(const struct kl_board *b)
{
	int n = 0;

	for (int i = 0; i < b->ncells; i++)
		if (kl_cell_state(&b->cell[i]) == KL_WAITING)
			n += b->cell[i].rounds;
	return n;
}

static void new_crew(struct kl_board *b)
{
	atomic_store(&b->current, -1);
	atomic_store(&b->lives, 0);
	atomic_store(&b->third_ready, 0);
	atomic_store(&b->third_full, 0);
	atomic_store(&b->third_stop, 0);
	atomic_store(&b->keys, 0);
	b->victim_address[0] = 0;
}

/*
 * Over UCX's posix transport all peers of a process write into one queue of it.  A writer that is killed between taking an
 * entry and filling it leaves an entry that never becomes valid, and nothing behind it is read any more, from nobody.
 * That cannot be mended from outside of UCX 1.13: the library fails all endpoints of the survivor and says so in its log
 * (src/backends/ucx/ucx_watchdog.c).  It is counted here, and not a failure.
 */
static bool queue_was_broken(const struct kl_board *b, const char *text)
{
	return strstr(b->backend, "ucx:shm") && strstr(text, "XP-1015") && !strstr(text, "content: wrong");
}

/*
 * libfabric's sockets provider keeps an entry of 128 for whatever was being sent on a connection that ends while its peer does not
 * read.  With three quarters of them gone the library fails all endpoints and says so (src/backends/ofi/ofi_ep.c).
 */
static bool entries_were_spent(const struct kl_board *b, const char *text)
{
	return !strcmp(b->backend, "ofi:sockets") && strstr(text, "has no send entries left") &&
	       !strstr(text, "content: wrong");
}

/* What failed is the cell that was at work; before the first, it is that one.  False: none is left that it could be. */
static bool blame(struct kl_board *b, const char *text)
{
	bool queue = queue_was_broken(b, text), spent = entries_were_spent(b, text), broken = queue || spent;
	int i = atomic_load(&b->current);
	char why[7000];

	snprintf(why, sizeof(why), "%s%.6000s",
	         queue ? "capability 'shared memory that outlives its writers' is absent: a victim was killed while it "
	                 "wrote into the queue of the survivor's UCX, which reads nothing any more: "
	         : spent ? "capability 'what was sent is given back when its connection ends' is absent: "
	                 : "",
	         text);
	b->broken += broken;
	for (i = i < 0 ? 0 : i; i < b->ncells; i++)
		if (b->cell[i].rounds && kl_cell_state(&b->cell[i]) == KL_WAITING) {
			kl_cell_judge(&b->cell[i], broken ? KL_SKIPPED : KL_FAILED, why);
			return true;
		}
	fprintf(stderr, "kill_check: %s: when the crew ended: %s\n", b->backend, why);
	return broken;
}

/* What is left shows when the roles have ended: their logs, their output, what they leaked.  False: a failure is nobody's. */
static bool conduct(struct kl_board *b)
{
	static struct h_result result;
	struct h_config config = {.backend = b->backend};
	struct h_scenario s = {.name = "kill",
	                       .role = {[KL_VICTIM] = kl_victim, [KL_SURVIVOR] = kl_survivor, [KL_THIRD] = kl_third},
	                       .flags = H_KILLS};
	struct kl_cell *after = &b->cell[b->ncells - 1];
	bool well = true;
	int left;

	kl_board = b;
	while ((left = rounds_left(b)) > 0) {
		new_crew(b);
		s.timeout_s = WARM_S + ROUND_S * left;
		if (h_run(&s, &config, &result) != H_PASSED)
			well = blame(b, result.text) && well;
		else
			kl_cell_judge(after, KL_PASSED, "");
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (b->own_net)
			end_mend();
	}
	return well;
}

pid_t crew_start(struct kl_board *b)
{
	pid_t pid, parent = getpid();

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	prctl(PR_SET_CHILD_SUBREAPER, 1); /* children of victims come here */
	b->own_shm = own_shm();
	b->own_net = b->silent && end_own_network(b->no_net, sizeof(b->no_net));
	if (b->silent && !b->own_net)
		skip_cut(b);
	_exit(conduct(b) ? 0 : 1);
}

/* Leaves its status to crew_end. */
static bool has_gone(pid_t conductor)
{
	siginfo_t info = {0};

	return conductor < 0 || waitid(P_PID, (id_t)conductor, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	       info.si_pid != 0;
}

enum kl_state crew_wait(struct kl_cell *cell, pid_t conductor)
{
	bool gone = false;

	while (kl_cell_state(cell) == KL_WAITING && !gone) {
		gone = has_gone(conductor);
		usleep(2000);
	}
	if (kl_cell_state(cell) == KL_WAITING)
		kl_cell_judge(cell, KL_FAILED, "the crew ended before this cell");
	return kl_cell_state(cell);
}

bool crew_end(pid_t conductor)
{
	int status;

	return waitpid(conductor, &status, 0) == conductor && status == 0;
}

/* ---- what the program of the tests sees of a board ---- */

struct kl_cell *crew_cells(struct kl_board *b, int *n)
{
	*n = b->ncells;
	return b->cell;
}

void crew_set(struct kl_board *b, uint64_t seed, int measure_every, int window_ms)
{
	b->seed = seed;
	b->window_us = window_ms * 1000;
	b->measure_every = measure_every;
}

static int by_value(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return x < y ? -1 : x > y;
}

/* Ways whose losses were, by the median, seen later than promised; a single one may be late on a busy machine. */
static unsigned late_ways(struct kl_board *b)
{
	unsigned n = 0;

	for (int way = 0; way < KL_WAYS; way++) {
		struct kl_figures *f = &b->figures[way];

		if (f->ndetect < ENOUGH)
			continue;
		qsort(f->detect_us, f->ndetect, sizeof(f->detect_us[0]), by_value);
		n += f->detect_us[f->ndetect / 2] > kl_promised_us(b, (enum kl_way)way);
	}
	return n;
}

static int by_ratio(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static double third_rate(struct kl_board *b)
{
	if (b->nratio < ENOUGH_RATES)
		return 1;
	qsort(b->ratio, b->nratio, sizeof(b->ratio[0]), by_ratio);
	return b->ratio[b->nratio / 2];
}

struct crew_left crew_what_is_left(struct kl_board *b)
{
	struct crew_left l = {.ends = b->rounds_all - b->rounds_half, .fds = b->fds_more, .files = b->shm_more};

	l.own_files = b->own_shm;
	l.late_ways = late_ways(b);
	l.third_rate = third_rate(b);
	l.heap = b->heap_last - b->heap_half;
	l.large = b->large_last - b->large_half;
	return l;
}
