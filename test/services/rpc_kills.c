/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc_kills - peers that are killed or stopped at each step of calls that lend memory.
 *
 *	rpc_kills BACKEND ROUNDS [SEED]
 *
 * A survivor has one victim after the other, several at a time. Either side calls the other one's method with two
 * descriptors: the callee pulls from the first, pushes to the second, and replies. The victim ends by SIGKILL or SIGSTOP at
 * a step, or at a random moment. Each call of the survivor must have one DONE and one RELEASED, in time; then the keys of its
 * descriptors have ended, and nothing may write to its memory, also when a stopped victim goes on. Nothing of a victim may
 * be left at the end. A round whose victim does not come to its step is repeated. The times when the survivor itself did not
 * run are not counted.
 *
 * With KILLS_FORGET in the environment it forgets one RELEASED, and must find that.
 */
#include <dirent.h>
#include <err.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "services/bulk.h"

enum { T_MS = 500, LANES = 8, CALLS = 2, LEN = 65536, SHORT_MS = 100, LONG_MS = 60000, SLACK_MS = 3000, FDS = 4 };
enum { MARGIN_MS = 250, GAP_MS = 20 }; /* beyond 1.5 peer timeouts; longer turns than GAP are not counted */

/* Where the victim ends. As a callee it does not come to the last ones, and as a caller not to those before. */
enum step {
	CONNECTED,
	TAKEN,
	PULLING,
	PULLED,
	PUSHING,
	PUSHED,
	REPLYING,
	REPLIED,
	CALLED,
	CANCELED,
	DONE,
	RELEASED,
	ANY
};
static const char *const step_names[] = {"connected", "taken",  "pulling",  "pulled", "pushing",  "pushed", "replying",
                                         "replied",   "called", "canceled", "done",   "released", "any"};

struct order {
	int step, generation;
	bool calls, stops;
};

struct call {
	uint32_t deadline_ms;
	bool done, released;
	int status;
	int64_t done_at;
	struct svc_bulk_key key; /* of its first descriptor */
};

struct lane {
	struct order order;
	pid_t pid;
	xport_ep *ep;
	xport_mr *mr;
	uint8_t *memory; /* LEN bytes to read, and LEN to write to */
	int calls, open; /* open: without RELEASED */
	struct call call[CALLS];
	int jobs;
	int64_t started_at, kill_at, ended_at, over_at; /* 0: not yet */
	int64_t gaps_before;                            /* `gaps` at ended_at */
	int refused;                                    /* status of the last xport_rpc_call */
	bool lost;
	bool early; /* lost before it came to its step */
};

/* A request at work. */
struct job {
	struct lane *lane;
	uint64_t request;
	xport_bulk *const *bulks;
	bool pushing, replied;
	int in_flight;
	uint8_t buf[LEN];
};

static const char *backend;
static xport *x;
static xport_rpcs *rpcs;
static xport_bulks *bulks;
static xport_listener *listener;
static struct lane lanes[LANES];
static struct order *orders; /* shared with the victims */
static int lane_of_victim = -1;
static unsigned rounds, started, finished, by_step[ANY + 1], killed, stopped, early, calls_made, timed_out;
static int64_t late_us[1 << 16];  /* from DONE with TIMEOUT, or the victim's end, to RELEASED */
static int64_t gaps, last_turn;   /* microseconds in which the survivor did not run; when it last did */
static struct order again[LANES]; /* rounds to repeat */
static unsigned nagain;
static bool forget;
static char address[80];

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void check(int status, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	if (xport_services_last_error(&e) != XPORT_OK || e.status != status)
		(void)!xport_last_error(x, &e);
	errx(1, "%s: %s: %s", what, xport_status_name(status), e.text);
}

/* A victim ends here, if this is its step. */
static void at(enum step step)
{
	if (lane_of_victim >= 0 && orders[lane_of_victim].step == (int)step)
		raise(orders[lane_of_victim].stops ? SIGSTOP : SIGKILL);
}

/* ---- the callee ---- */

static void job_end(struct job *j, int status)
{
	if (!j->replied) {
		at(REPLYING);
		(void)xport_rpc_reply(rpcs, j->request, status, NULL, 0); /* the caller may have ended */
		j->replied = true;
		at(REPLIED);
	}
	if (j->in_flight > 0)
		return;
	if (j->lane != NULL)
		j->lane->jobs--;
	free(j);
}

static void job_move(struct job *j, bool push)
{
	struct xport_iov iov = {.addr = j->buf, .len = LEN};
	struct xport_bulk_args a = {.size = sizeof(a), .local = &iov, .nlocal = 1, .deadline_ms = 20000, .context = j};
	int status = push ? xport_bulk_push(bulks, j->bulks[1], &a) : xport_bulk_pull(bulks, j->bulks[0], &a);

	j->pushing = push;
	if (status != XPORT_OK) {
		job_end(j, status);
		return;
	}
	j->in_flight++;
	at(push ? PUSHING : PULLING);
}

static struct lane *lane_of(const xport_ep *ep)
{
	for (int i = 0; i < LANES; i++) {
		if (lanes[i].ep == ep && ep != NULL)
			return &lanes[i];
	}
	return NULL;
}

static void work(void *arg, const struct xport_rpc_event *q)
{
	struct job *j = calloc(1, sizeof(*j));

	(void)arg;
	if (j == NULL || q->nbulks != 2)
		errx(1, "a request has %zu descriptors", q->nbulks);
	j->lane = lane_of(q->ep);
	if (j->lane != NULL)
		j->lane->jobs++;
	j->request = q->id;
	j->bulks = q->bulks;
	at(TAKEN);
	job_move(j, false);
}

static void bulk_event(const struct xport_bulk_event *e)
{
	struct job *j = e->context;

	if (e->type == XPORT_BULK_RELEASED || e->released)
		j->in_flight--;
	if (e->type == XPORT_BULK_RELEASED || e->status != XPORT_OK) {
		job_end(j, e->status);
		return;
	}
	at(j->pushing ? PUSHED : PULLED);
	if (j->pushing)
		job_end(j, XPORT_OK);
	else
		job_move(j, true);
}

/* ---- the caller ---- */

static void call_one(struct lane *l, xport_ep *ep, struct call *c, uint64_t *id)
{
	struct xport_bulk_attr read = {.size = sizeof(read), .rights = XPORT_REMOTE_READ};
	struct xport_bulk_attr write = {.size = sizeof(write), .rights = XPORT_REMOTE_WRITE};
	struct xport_bulk_run run = {.mr = l->mr, .length = LEN, .count = 1};
	xport_bulk *b[2];
	struct xport_rpc_args a = {
		.size = sizeof(a), .deadline_ms = c->deadline_ms, .context = c, .bulks = b, .nbulks = 2, .id = id};
	int status;

	check(xport_bulk_create(x, &run, 1, &read, &b[0]), "xport_bulk_create");
	run.offset = LEN;
	check(xport_bulk_create(x, &run, 1, &write, &b[1]), "xport_bulk_create");
	c->key = b[0]->d.key[0];
	status = xport_rpc_call(rpcs, ep, "work", &a);
	xport_bulk_free(b[0]);
	xport_bulk_free(b[1]);
	l->refused = status; /* the endpoint may have ended already */
	if (status != XPORT_OK)
		return;
	l->calls++;
	l->open++;
	calls_made++;
}

static void memory_make(struct lane *l)
{
	l->memory = malloc(2 * LEN);
	if (l->memory == NULL)
		errx(1, "out of memory");
	for (size_t i = 0; i < LEN; i++)
		l->memory[i] = (uint8_t)(i * 31 >> 3);
	memset(l->memory + LEN, 0, LEN);
	check(xport_mr_reg(x, l->memory, 2 * LEN, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &l->mr), "xport_mr_reg");
}

static void call_event(const struct xport_rpc_event *e)
{
	struct call *c = e->context;
	struct lane *l = NULL;

	for (int i = 0; i < LANES; i++) {
		if (c >= lanes[i].call && c < lanes[i].call + CALLS)
			l = &lanes[i];
	}
	if (e->type == XPORT_RPC_DONE) {
		at(DONE);
		if (c->done)
			errx(1, "a second DONE");
		c->done = true;
		c->status = e->status;
		c->done_at = now_us();
		return;
	}
	at(RELEASED);
	if (forget) {
		forget = false;
		return;
	}
	if (!c->done || c->released)
		errx(1, "RELEASED %s", c->released ? "twice" : "before DONE");
	c->released = true;
	l->open--;
	if (xport_rkey_revoke(x, c->key.bytes, c->key.len) != XPORT_ERR_STALE_KEY)
		errx(1, "RELEASED, and a key of the call has not ended");
	if (c->status == XPORT_ERR_TIMEOUT && l->ended_at != 0) {
		int64_t from = c->done_at > l->ended_at ? c->done_at : l->ended_at;

		late_us[timed_out % (sizeof(late_us) / sizeof(*late_us))] = now_us() - from - (gaps - l->gaps_before);
		timed_out++;
	}
	if (c->status == XPORT_OK && memcmp(l->memory, l->memory + LEN, LEN) != 0)
		errx(1, "a call succeeded, and the bytes are not there");
	if (l->open == 0)
		memset(l->memory + LEN, 0xee, LEN);
}

/* ---- the loop of both ---- */

static void accept_all(void);
static void event(const struct xport_completion *c)
{
	struct lane *l = lane_of(c->ep);

	if (c->type == XPORT_EVENT_INCOMING)
		accept_all();
	if ((c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED) && l != NULL)
		l->lost = true;
}

/* Returns how many completions came. */
static int turn(int ms)
{
	struct xport_bulk_event b = {.size = sizeof(b)};
	struct xport_rpc_event r = {.size = sizeof(r)};
	struct xport_completion c[16];
	int n = xport_wait(x, c, 16, ms);
	int64_t now = now_us();

	if (last_turn != 0 && now - last_turn > (GAP_MS + ms) * 1000)
		gaps += now - last_turn;
	last_turn = now;
	check(n, "xport_wait");
	for (int i = 0; i < n; i++) {
		if (xport_rpcs_step(rpcs, &c[i]) == 0 && xport_bulks_step(bulks, &c[i]) == 0)
			event(&c[i]);
	}
	(void)xport_rpcs_step(rpcs, NULL);
	(void)xport_bulks_step(bulks, NULL);
	while (xport_bulks_next(bulks, &b) == 1)
		bulk_event(&b);
	while (xport_rpcs_next(rpcs, &r) == 1)
		call_event(&r);
	return n;
}

static void begin(void)
{
	struct xport_attr a = {.size = sizeof(a), .backend = backend, .peer_timeout_ms = T_MS};

	check(xport_open(&a, &x), "xport_open");
	check(xport_rpcs_create(x, NULL, &rpcs), "xport_rpcs_create");
	check(xport_bulks_create(x, NULL, &bulks), "xport_bulks_create");
	check(xport_rpc_register(rpcs, "work", work, NULL), "xport_rpc_register");
}

/* ---- the victim ---- */

static _Noreturn void victim(int lane)
{
	struct order o = orders[lane];
	struct xport_conn_attr attr = {.size = sizeof(attr),
	                               .private_data = (uint32_t[]){(uint32_t)lane, (uint32_t)o.generation},
	                               .private_len = 8};
	struct lane *l = &lanes[lane];
	uint64_t id = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin();
	check(xport_connect(x, address, &attr, 10000, &l->ep), "xport_connect");
	lane_of_victim = lane;
	at(CONNECTED);
	if (o.calls)
		memory_make(l);
	for (int i = 0; i < CALLS && o.calls; i++) {
		l->call[i].deadline_ms = LONG_MS;
		call_one(l, l->ep, &l->call[i], &id);
		at(CALLED);
	}
	if (o.step == CANCELED) {
		for (int i = 0; i < 5; i++)
			turn(1);
		(void)xport_rpc_cancel(rpcs, id); /* it may be done */
		at(CANCELED);
	}
	for (;;)
		turn(10);
}

/* ---- the survivor ---- */

static void accept_all(void)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	uint32_t who[2];
	xport_ep *ep;

	while (xport_accept(listener, 0, &ep) == XPORT_OK) {
		struct lane *l;

		check(xport_ep_query(ep, &info), "xport_ep_query");
		memcpy(who, info.private_data, sizeof(who));
		l = &lanes[who[0] % LANES];
		if (l->pid == 0 || l->over_at != 0 || l->order.generation != (int)who[1]) { /* its round is over */
			xport_ep_destroy(ep);
			continue;
		}
		l->ep = ep;
		for (int i = 0; i < CALLS && !l->order.calls; i++) {
			l->call[i].deadline_ms = i % 2 == 0 ? SHORT_MS : LONG_MS;
			call_one(l, ep, &l->call[i], NULL);
		}
	}
}

/* One to repeat, or one step after the other, so that each has its turn. */
static struct order next_order(void)
{
	unsigned step = started % (ANY + 2); /* the last of them is ANY, as a caller */
	struct order o = {.calls = step >= CALLED && step != ANY, .stops = rand() % 4 == 0};

	if (nagain > 0)
		return again[--nagain];
	o.step = step > ANY ? ANY : (int)step;
	started++;
	return o;
}

static void lane_start(struct lane *l, char **argv)
{
	static int generation;
	int lane = (int)(l - lanes);
	char text[2][16];

	memset(l, 0, sizeof(*l));
	l->order = next_order();
	l->order.generation = ++generation;
	orders[lane] = l->order;
	memory_make(l);
	l->started_at = now_us();
	l->kill_at = l->started_at + 20000 + rand() % 200000;
	snprintf(text[0], sizeof(text[0]), "%d", lane);
	l->pid = fork();
	if (l->pid == 0) {
		execl("/proc/self/exe", argv[0], backend, "victim", text[0], address, (char *)NULL);
		_exit(127);
	}
	if (l->pid < 0)
		err(1, "fork");
}

static void fail(const struct lane *l, const char *what)
{
	for (int i = 0; i < l->calls; i++)
		fprintf(stderr, "call %d: %s, %s%s\n", i, l->call[i].done ? "done" : "no DONE",
		        xport_status_name(l->call[i].status), l->call[i].released ? "" : ", no RELEASED");
	errx(1, "STUCK: round %d, the victim %s, %s at '%s': %s (%d calls open, %d requests, %s, %s)",
	     l->order.generation, l->order.calls ? "calls" : "serves", l->order.stops ? "stopped" : "killed",
	     step_names[l->order.step], what, l->open, l->jobs, xport_status_name(l->refused),
	     l->lost         ? "lost"
	     : l->ep == NULL ? "never accepted"
	                     : "not lost");
}

static void lane_finish(struct lane *l)
{
	int64_t began;

	for (size_t i = LEN; l->calls > 0 && i < 2 * LEN; i++) {
		if (l->memory[i] != 0xee)
			fail(l, "memory changed after RELEASED");
	}
	kill(l->pid, SIGKILL);
	waitpid(l->pid, NULL, 0);
	if (l->ep != NULL)
		xport_ep_destroy(l->ep);
	began = now_us();
	check(xport_mr_dereg(l->mr), "xport_mr_dereg");
	if (now_us() - began > (int64_t)SLACK_MS * 1000)
		fail(l, "xport_mr_dereg took too long");
	free(l->memory);
	if (l->early) {
		if (early > rounds)
			fail(l, "more rounds than asked for were lost before their step");
		again[nagain++] = l->order;
	} else {
		finished++;
		by_step[l->order.step]++;
		*(l->order.stops ? &stopped : &killed) += 1;
	}
	memset(l, 0, sizeof(*l));
}

static void lane_look(struct lane *l)
{
	int64_t now = now_us();
	int st;

	if (l->ended_at == 0 && l->order.step == ANY && now >= l->kill_at)
		kill(l->pid, l->order.stops ? SIGSTOP : SIGKILL);
	if (l->ended_at == 0 && waitpid(l->pid, &st, WNOHANG | WUNTRACED) == l->pid) {
		if (WIFEXITED(st))
			fail(l, "the victim ended by itself");
		l->ended_at = now;
		l->gaps_before = gaps;
	}
	/* On a busy machine a victim may be silent for too long by itself. */
	if (l->ended_at == 0 && l->lost && !l->early) {
		l->early = true;
		early++;
		kill(l->pid, SIGKILL);
	}
	if (l->ended_at == 0 && now - l->started_at > 60000000)
		fail(l, "the victim does not come to its step");
	if (l->ended_at == 0)
		return;
	/* A victim that ended before it was accepted has no endpoint here. */
	if (l->over_at == 0 && l->open == 0 && l->jobs == 0 &&
	    (l->lost || (l->ep == NULL && now - l->ended_at > 2000 * T_MS))) {
		l->over_at = now;
		if (l->order.stops)
			kill(l->pid, SIGCONT);
	}
	if (l->over_at == 0 && now - l->ended_at - (gaps - l->gaps_before) >
	                               (3 * T_MS / 2 + (l->ep == NULL ? SLACK_MS : MARGIN_MS)) * 1000)
		fail(l, "it is not over");
	if (l->over_at != 0 && now - l->over_at > (l->order.stops ? 30000 : 0))
		lane_finish(l);
}

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d != NULL)
		closedir(d);
	return n;
}

static int by_time(const void *a, const void *b)
{
	return *(const int64_t *)a < *(const int64_t *)b ? -1 : *(const int64_t *)a > *(const int64_t *)b;
}

static void figures(int64_t began)
{
	size_t n = timed_out < sizeof(late_us) / sizeof(*late_us) ? timed_out : sizeof(late_us) / sizeof(*late_us);

	qsort(late_us, n, sizeof(*late_us), by_time);
	printf("rpc_kills: %s: %u victims in %.0f s: %u killed, %u stopped, %u lost before; %u calls, %u timed out",
	       backend, finished, 1e-6 * (double)(now_us() - began), killed, stopped, early, calls_made, timed_out);
	if (n > 0)
		printf(", RELEASED after %.0f ms (median), %.0f ms (most); 1.5 peer timeouts are %d ms",
		       1e-3 * (double)late_us[n / 2], 1e-3 * (double)late_us[n - 1], 3 * T_MS / 2);
	for (int i = 0; i <= ANY; i++)
		printf("%s %s %u", i == 0 ? "\nsteps:" : "", step_names[i], by_step[i]);
	printf("\n");
}

/* Nothing is left of all the victims. */
static void nothing_left(int fds)
{
	struct xport_rpcs_info r = {.size = sizeof(r)};
	struct xport_bulks_info b = {.size = sizeof(b)};

	check(xport_rpcs_query(rpcs, &r), "xport_rpcs_query");
	check(xport_bulks_query(bulks, &b), "xport_bulks_query");
	if (r.calls != 0 || r.active != 0 || r.muted != 0 || b.transfers != 0 || b.in_flight != 0)
		errx(1, "left: %u calls, %u requests, %llu muted, %u transfers", r.calls, r.active,
		     (unsigned long long)r.muted, b.transfers);
	if (descriptors() > fds + FDS)
		errx(1, "left: %d descriptors, %d before", descriptors(), fds);
	check(xport_bulks_destroy(bulks, NULL, NULL, 5000), "xport_bulks_destroy");
	check(xport_rpcs_destroy(rpcs, NULL, NULL, 5000), "xport_rpcs_destroy");
	xport_close(x);
}

int main(int argc, char **argv)
{
	int64_t began = now_us();
	int fds = 0;

	if (argc < 3)
		errx(2, "usage: rpc_kills BACKEND ROUNDS [SEED]");
	backend = argv[1];
	if (argc == 5 && strcmp(argv[2], "victim") == 0) {
		orders = mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3, 0);
		snprintf(address, sizeof(address), "%s", argv[4]);
		victim(atoi(argv[3]));
	}
	rounds = (unsigned)atoi(argv[2]);
	srand(argc > 3 ? (unsigned)atoi(argv[3]) : 1);
	forget = getenv("KILLS_FORGET") != NULL;
	if (dup2(memfd_create("orders", 0), 3) != 3 || ftruncate(3, 4096) != 0)
		err(1, "memfd_create");
	orders = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
	begin();
	check(xport_listen(x, "127.0.0.1:0", NULL, &listener), "xport_listen");
	check(xport_listener_name(listener, address, sizeof(address)), "xport_listener_name");
	while (finished < rounds) {
		for (int i = 0; i < LANES; i++) {
			if (lanes[i].pid == 0 && (started < rounds || nagain > 0))
				lane_start(&lanes[i], argv);
			if (lanes[i].pid != 0)
				lane_look(&lanes[i]);
		}
		for (int n = turn(2); n > 0;) /* all that has come, before anything is judged */
			n = turn(0);
		accept_all(); /* one that ended meanwhile may have ended the loop before */
		if (fds == 0 && finished >= LANES)
			fds = descriptors();
	}
	figures(began);
	nothing_left(fds);
	return 0;
}
