/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoints - the cost of many idle endpoints between pairs of processes on this host.
 *
 *   endpoints [--pairs N] [--idle SECONDS] [PROVIDER [ENDPOINTS...]]
 *             prints a table in Markdown; default: 4 pairs, 5 s, ucx:tcp, 1 100 1000 10000 endpoints in all
 *
 * Each line has processes of its own, one side of a pair connects and the other accepts. Each pair has another address,
 * 127.0.0.1 and following. Each endpoint carries a message and its answer, whose bytes are verified. A cost is the difference
 * between one endpoint in a process and all of them; that of a line in which no process has two is the cost of the first.
 *
 * Exit status 1: something failed, or a limit stops it. Then the text names the limit, and how to raise it.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xport.h>

#include "used.h"

enum { PAIRS = 4, WINDOW = 32, PAIRS_MAX = 64, ENDPOINTS_MAX = 65536, IDLE_S = 5, ROUNDS = 41, TRIPS = 50, BATCH = 64 };
enum { CONNECTS, ACCEPTS, SIDES };
enum { SPARE = 32 }; /* descriptors beside those of endpoints */

/* What a process found. */
struct found {
	double descriptors, kib; /* an endpoint */
	double rate_s;           /* that its later endpoints took to connect */
	double idle_ms;          /* of processor time a second */
	double alone_ns, beside_ns;
};

static struct shared {
	atomic_uint at[SIDES * PAIRS_MAX]; /* barriers that each has reached */
	atomic_bool failed;                /* one has said why */
	char address[PAIRS_MAX][64];
	struct found found[SIDES * PAIRS_MAX];
} * shared;

static unsigned pairs = PAIRS, idle_s = IDLE_S;
static const char *provider = "ucx:tcp";

/* This process. */
static struct me {
	unsigned pair, side, n; /* n: its endpoints */
	unsigned all;           /* processes */
	unsigned most;          /* endpoints of any process */
	unsigned have;          /* of these that are connected */
	xport *x;
	xport_listener *listener;
	xport_ep **eps;         /* in the order of the connecting side, which the other learns by the first message */
	bool *accepted;         /* whether an endpoint, in the order of the accepting side, has had its first message */
	uint64_t *words, *said; /* what comes and what is sent, one for each endpoint */
	unsigned sending;       /* messages whose completions have not come */
} me;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *fmt, ...)
{
	va_list ap;

	if (atomic_exchange(&shared->failed, true))
		_exit(1);
	fprintf(stderr, "endpoints: %s, pair %u, %s: ", provider, me.pair,
	        me.side == CONNECTS ? "connecting side" : "accepting side");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	_exit(1);
}

/* Ends the process, with the library's own text, if a call failed. */
static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_last_error(me.x, &e);
	fail("%s: %s%s%s", e.operation, e.text, e.hint[0] != '\0' ? "; " : "", e.hint);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

/* ---- resources ---- */

/* Ends the process if, as its first endpoints show, the limits do not suffice for all of them. */
static void check_limits(const struct used *one)
{
	struct used now = used_now();
	unsigned n = me.have;
	double each = (now.descriptors - one->descriptors) / (n - 1);
	double need = now.descriptors + each * (me.n - n) + SPARE;
	double kib = (now.kib - one->kib) / (n - 1) * (me.n - n) * me.all;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		fail("getrlimit: %s", strerror(errno));
	if (need > (double)limit.rlim_cur)
		fail("stopped by the limit of open files, RLIMIT_NOFILE: %u endpoints in a process need %.0f "
		     "descriptors, "
		     "and it is %llu; raise it as root (ulimit -Hn %.0f, LimitNOFILE= of systemd, --ulimit nofile= of "
		     "a "
		     "container), or use more processes (--pairs)",
		     me.n, need, (unsigned long long)limit.rlim_cur, need);
	/* A few endpoints do not show it: memory comes in large pieces. */
	if (n >= BATCH && kib > used_number("/proc/meminfo", "MemAvailable:"))
		fail("stopped by memory: the other endpoints of all processes need %.0f MiB, and /proc/meminfo has "
		     "%.0f MiB available; use fewer endpoints, or a machine with more memory",
		     kib / 1024, used_number("/proc/meminfo", "MemAvailable:") / 1024);
}

/* Each connection of a pair takes a port of the connecting side. */
static void check_ports(void)
{
	unsigned low = 0, high = 0;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");

	if (f == NULL || fscanf(f, "%u %u", &low, &high) != 2)
		fail("cannot read ip_local_port_range");
	fclose(f);
	if (me.n > high - low)
		fail("stopped by the range of ports, net.ipv4.ip_local_port_range: %u connections to one address need "
		     "as "
		     "many, and it has %u; widen it (sysctl net.ipv4.ip_local_port_range=\"1024 65535\"), or use more "
		     "addresses (--pairs)",
		     me.n, high - low);
}

/* ---- the processes ---- */

static unsigned number_of(unsigned pair, unsigned side)
{
	return pair * SIDES + side;
}

/* Waits for all, and makes progress: seldom, since many wait while two are measured. */
static void barrier(void)
{
	unsigned mine = atomic_fetch_add(&shared->at[number_of(me.pair, me.side)], 1) + 1;

	for (unsigned i = 0; i < me.all;) {
		if (atomic_load(&shared->at[i]) >= mine) {
			i++;
			continue;
		}
		must(xport_poll(me.x, NULL, 0));
		usleep(5000);
	}
}

/* Events of connections alone. */
static int await_events(struct xport_completion *c, uint32_t type)
{
	int k = xport_wait(me.x, c, BATCH, 60000);

	must(k);
	if (k == 0)
		fail("only %u endpoints connected, and no other within 60 s", me.have);
	for (int i = 0; i < k; i++)
		if (c[i].type != type || c[i].status != XPORT_OK)
			fail("event of type %u with status %d after %u endpoints", c[i].type, c[i].status, me.have);
	return k;
}

/* Connects endpoints until `to` are there, WINDOW at a time. */
static void connect_to(unsigned to)
{
	struct xport_completion c[BATCH];
	unsigned begun = me.have;

	while (me.have < to) {
		for (; begun < to && begun - me.have < WINDOW; begun++)
			must(xport_connect(me.x, shared->address[me.pair], NULL, 0, &me.eps[begun]));
		me.have += (unsigned)await_events(c, XPORT_EVENT_CONNECTED);
	}
}

static void accept_to(unsigned to)
{
	struct xport_completion c[BATCH];
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep;

	while (me.have < to) {
		(void)await_events(c, XPORT_EVENT_INCOMING);
		while (me.have < me.n && xport_accept(me.listener, 0, &ep) == XPORT_OK)
			must(xport_ep_set_context(ep, &me.accepted[me.have++]));
		xport_last_error(me.x, &e);
		if (me.have < me.n && e.status != XPORT_ERR_TIMEOUT)
			must(e.status);
	}
}

static void endpoints_to(unsigned to)
{
	if (me.side == CONNECTS)
		connect_to(to);
	else
		accept_to(to);
}

/* What the connecting side sends on its i-th endpoint; the answer is its complement. */
static uint64_t word_of(unsigned i)
{
	return UINT64_C(0x9e3779b97f4a7c15) * (me.pair * (uint64_t)ENDPOINTS_MAX + i + 1);
}

static void post_word(unsigned i)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = &me.words[i]};

	must(xport_recv(me.x, &me.words[i], sizeof(me.words[i]), i, UINT64_MAX, &opt));
}

/* The accepting side learns which endpoint is the i-th: none is two of them. */
static void learn(unsigned i, xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	bool *heard;

	must(xport_ep_query(ep, &info));
	heard = info.context;
	if (heard == NULL || *heard)
		fail("message %u came from an endpoint that had one already, or that was not accepted", i);
	*heard = true;
	me.eps[i] = ep;
}

/* Whether a message has come: the right one, or the process ends. */
static bool verify(const struct xport_completion *c)
{
	unsigned i = (unsigned)c->tag;
	uint64_t want = me.side == CONNECTS ? ~word_of(i) : word_of(i);

	if (c->status == XPORT_OK && c->type == XPORT_OP_SEND) {
		me.sending--;
		return false;
	}
	if (c->status != XPORT_OK || c->type != XPORT_OP_RECV)
		fail("completion of type %u with status %d instead of a message", c->type, c->status);
	if (i < me.n && me.eps[i] == NULL && me.side == ACCEPTS)
		learn(i, c->ep);
	if (i >= me.n || c->ep != me.eps[i] || c->context != &me.words[i] || c->length != sizeof(want))
		fail("message %llu came from another endpoint, or has another length", (unsigned long long)c->tag);
	if (me.words[i] != want)
		fail("message %u is %016llx, not %016llx", i, (unsigned long long)me.words[i],
		     (unsigned long long)want);
	return true;
}

/* Sends what belongs on the i-th endpoint. */
static void say(unsigned i)
{
	me.said[i] = me.side == CONNECTS ? word_of(i) : ~word_of(i);
	must(xport_send(me.eps[i], &me.said[i], sizeof(me.said[i]), i, NULL));
	me.sending++;
}

/* A message and its answer on each of the endpoints from..to-1. */
static void carry(unsigned from, unsigned to)
{
	struct xport_completion c[BATCH];

	for (unsigned i = from; i < to; i++)
		post_word(i);
	barrier();
	for (unsigned i = from; me.side == CONNECTS && i < to; i++)
		say(i);
	for (unsigned got = from; got < to || me.sending > 0;) {
		int k = xport_wait(me.x, c, BATCH, 60000);

		must(k);
		if (k == 0)
			fail("%u of %u messages did not come within 60 s", to - got, to - from);
		for (int j = 0; j < k; j++) {
			if (!verify(&c[j]))
				continue;
			got++;
			if (me.side == ACCEPTS)
				say((unsigned)c[j].tag);
		}
	}
	barrier();
}

/* A message on the first endpoint, from one side to the other and back. */
static void trip(void)
{
	struct xport_completion c;
	bool come = false;

	post_word(0);
	if (me.side == CONNECTS)
		say(0);
	while (!come || me.sending > 0) {
		int k = xport_poll(me.x, &c, 1);

		must(k);
		if (k == 0 || !verify(&c))
			continue;
		come = true;
		if (me.side == ACCEPTS)
			say(0);
	}
}

/* Half a round trip over the first endpoint of the first pair, each side on a CPU of its own. */
static double latency(void)
{
	cpu_set_t before, one;
	double v[ROUNDS];
	unsigned skip = me.side;

	if (sched_getaffinity(0, sizeof(before), &before) != 0)
		fail("sched_getaffinity: %s", strerror(errno));
	for (int cpu = 0; CPU_COUNT(&before) >= SIDES && cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &before) || skip-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		(void)sched_setaffinity(0, sizeof(one), &one);
		break;
	}
	for (int round = 0; round < ROUNDS; round++) {
		double begun = now_ns();

		for (int i = 0; i < TRIPS; i++)
			trip();
		v[round] = (now_ns() - begun) / (2 * TRIPS);
	}
	(void)sched_setaffinity(0, sizeof(before), &before);
	return median(v, ROUNDS);
}

static double processor_ms(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u) != 0)
		fail("getrusage: %s", strerror(errno));
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-3;
}

/* Processor time a second, while nothing but heartbeats travels. */
static double idle(void)
{
	struct xport_completion c;
	double until = now_ns() + idle_s * 1e9, begun = now_ns(), used = processor_ms();

	while (now_ns() < until) {
		int k = xport_wait(me.x, &c, 1, (int)((until - now_ns()) / 1e6) + 1);

		must(k);
		if (k > 0)
			fail("completion of type %u with status %d while all are idle", c.type, c.status);
	}
	return (processor_ms() - used) / ((now_ns() - begun) * 1e-9);
}

static void open_side(void)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = provider};
	char address[32];

	me.eps = calloc(me.n, sizeof(*me.eps));
	me.words = calloc(me.n, sizeof(*me.words));
	me.said = calloc(me.n, sizeof(*me.said));
	me.accepted = calloc(me.n, sizeof(*me.accepted));
	if (me.eps == NULL || me.words == NULL || me.said == NULL || me.accepted == NULL)
		fail("no memory");
	must(xport_open(&attr, &me.x));
	if (me.side == CONNECTS)
		return;
	snprintf(address, sizeof(address), "127.0.0.%u:0", me.pair + 1);
	must(xport_listen(me.x, address, NULL, &me.listener));
	must(xport_listener_name(me.listener, shared->address[me.pair], sizeof(shared->address[0])));
}

/* Connects all but the first, and returns how many seconds that took. In between, none being half connected, the limits are looked at. */
static double connect_others(const struct used *one)
{
	double ns = 0;

	for (unsigned most = 1; most < me.most;) {
		double begun = now_ns();

		most *= 4;

		endpoints_to(most < me.n ? most : me.n);
		ns += now_ns() - begun;
		barrier();
		if (me.have > 1)
			check_limits(one);
		barrier();
	}
	return ns * 1e-9;
}

static void work(void)
{
	struct found *found = &shared->found[number_of(me.pair, me.side)];
	struct used none, one, all;
	double begun;

	open_side();
	check_ports();
	barrier();
	none = used_now();
	begun = now_ns();
	endpoints_to(1);
	found->rate_s = (now_ns() - begun) * 1e-9;
	carry(0, 1);
	one = used_now();
	if (me.pair == 0)
		found->alone_ns = latency();
	barrier();
	if (me.most > 1)
		found->rate_s = connect_others(&one);
	carry(1, me.n);
	all = used_now();
	found->descriptors =
		me.n > 1 ? (all.descriptors - one.descriptors) / (me.n - 1) : one.descriptors - none.descriptors;
	found->kib = me.n > 1 ? (all.kib - one.kib) / (me.n - 1) : one.kib - none.kib;
	barrier();
	found->idle_ms = idle();
	barrier();
	if (me.pair == 0)
		found->beside_ns = latency();
	barrier();
	/* Both sides leave without a goodbye: how long that takes is not looked at. */
	_exit(0);
}

/* ---- a line ---- */

/* Waits for all children; if one fails, the others are ended. */
static bool reap(pid_t *pids, unsigned n)
{
	bool good = true;

	for (unsigned left = n; left > 0; left--) {
		int status;
		pid_t pid = wait(&status);

		for (unsigned i = 0; i < n; i++)
			pids[i] = pids[i] == pid ? 0 : pids[i];
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		if (good && WIFSIGNALED(status))
			fprintf(stderr, "endpoints: a process was ended by signal %d\n", WTERMSIG(status));
		good = false;
		for (unsigned i = 0; i < n; i++)
			if (pids[i] != 0)
				kill(pids[i], SIGKILL);
	}
	return good;
}

static void print_line(unsigned endpoints, unsigned used)
{
	double descriptors[SIDES] = {0}, kib[SIDES] = {0}, longest = 0, idle_ms = 0;
	unsigned later = endpoints > used ? endpoints - used : endpoints;
	const struct found *first = &shared->found[number_of(0, CONNECTS)];

	for (unsigned i = 0; i < used * SIDES; i++) {
		descriptors[i % SIDES] += shared->found[i].descriptors / used;
		kib[i % SIDES] += shared->found[i].kib / used;
		longest = shared->found[i].rate_s > longest ? shared->found[i].rate_s : longest;
		idle_ms += shared->found[i].idle_ms;
	}
	printf("| %s | %u | %u | %.0f | %.2f + %.2f | %.1f + %.1f | %.2f ms | %.2f us | %.2f us | %.2f |\n", provider,
	       endpoints, used * SIDES, later / longest, descriptors[CONNECTS], descriptors[ACCEPTS], kib[CONNECTS],
	       kib[ACCEPTS], idle_ms, first->alone_ns / 1000, first->beside_ns / 1000,
	       first->beside_ns / first->alone_ns);
}

static bool line(unsigned endpoints)
{
	unsigned used = endpoints < pairs ? endpoints : pairs;
	pid_t pids[SIDES * PAIRS_MAX];

	memset(shared, 0, sizeof(*shared));
	for (unsigned i = 0; i < used * SIDES; i++) {
		pids[i] = fork();
		if (pids[i] < 0) {
			fprintf(stderr, "endpoints: fork: %s\n", strerror(errno));
			reap(pids, i);
			return false;
		}
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			me.pair = i / SIDES;
			me.side = i % SIDES;
			me.n = endpoints / used + (me.pair < endpoints % used);
			me.most = (endpoints + used - 1) / used;
			me.all = used * SIDES;
			work();
		}
	}
	if (!reap(pids, used * SIDES))
		return false;
	print_line(endpoints, used);
	return true;
}

/* A number from 1 to max, or the end. */
static unsigned number(const char *text, unsigned max)
{
	char *end;
	long n = text != NULL ? strtol(text, &end, 10) : 0;

	if (n < 1 || n > (long)max || *end != '\0') {
		fprintf(stderr,
		        "usage: endpoints [--pairs 1 to %d] [--idle SECONDS] [PROVIDER [ENDPOINTS, 1 to %d]...]\n",
		        PAIRS_MAX, ENDPOINTS_MAX);
		exit(2);
	}
	return (unsigned)n;
}

int main(int argc, char **argv)
{
	static const unsigned standard[] = {1, 100, 1000, 10000};
	struct rlimit limit;
	int at = 1;

	for (; at < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
		if (strcmp(argv[at], "--pairs") == 0)
			pairs = number(argv[at + 1], PAIRS_MAX);
		else
			idle_s = number(strcmp(argv[at], "--idle") == 0 ? argv[at + 1] : NULL, 3600);
	}
	provider = at < argc ? argv[at++] : provider;
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* All come from one address. */
	setenv("XPORT_PEER_CONNECTIONS", "65536", 1);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		fprintf(stderr, "endpoints: mmap: %s\n", strerror(errno));
		return 1;
	}
	printf("| provider | endpoints | processes | connections a second | descriptors an endpoint, connecting + "
	       "accepting side | "
	       "resident KiB an endpoint | processor time of heartbeats a second | one way, alone | beside them | "
	       "ratio |\n"
	       "|---|---|---|---|---|---|---|---|---|---|\n");
	for (unsigned i = 0; at >= argc && i < sizeof(standard) / sizeof(standard[0]); i++)
		if (!line(standard[i]))
			return 1;
	for (; at < argc; at++)
		if (!line(number(argv[at], ENDPOINTS_MAX)))
			return 1;
	return 0;
}
