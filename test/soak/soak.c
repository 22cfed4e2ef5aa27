/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak - random operations between two processes for as long as one likes, each of which is verified, and what the
 * processes hold meanwhile.
 *
 *     soak --self -B ucx:tcp --operations 1e8         both sides, here
 *     soak --listen HOST:PORT -B ucx:tcp              the target, until the initiator ends
 *     soak -B ucx:tcp --operations 1e6 HOST:PORT      the initiator
 *
 * Puts, puts with notification, gets, messages (short and long, expected and not, too long for their receive), atomics and
 * flushes of 0 bytes to 16 MiB, transfers of memory in pieces (xport_bulk.h), memory registered anew, stale keys, connections
 * closed and made again.  At the end, and every few seconds, each side writes a line of JSON.  With several transports
 * (-B ucx:shm+ofi:tcp) each connection uses the next one of them.  The exit status is 0 if all was right and nothing grew, 1 if
 * not, 2 if the options are wrong.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soak/side.h"

enum { SETTLE_S = 5, WATCH_MS = 100 };

enum { OPT_FIRST = 256, OPT_ROUNDS, OPT_SELF, OPT_PLANT, OPT_LIMIT };

#define RUN_MAGIC UINT64_C(0x78706f7274536f01)

struct command {
	struct soak_options o;
	bool self;
};

static const struct argp_option options[] = {
	{"self", OPT_SELF, NULL, 0, "Be both sides, in two processes on this machine", 0},
	{"listen", 'l', "HOST:PORT", 0, "Be the target, and listen there", 0},
	{"backend", 'B', "NAME", 0, "The back end and provider, instead of XPORT_BACKEND", 0},
	{"operations", 'n', "COUNT", 0, "How many, of both sides together, such as 1000000 or 1e8 (default: 1e6)", 0},
	{"seed", 's', "NUMBER", 0, "What everything grows from (default: 1)", 0},
	{"window", 'w', "COUNT", 0,
         "Operations of a side from one meeting of the two to the next, 16 to 4096 (default: 2048)", 0},
	{"reconnect", 'c', "COUNT", 0, "Rounds after which the connection is closed and made anew (default: 20)", 0},
	{"interval", 'i', "SECONDS", 0, "From one line to the next (default: 10)", 0},
	{"first", OPT_FIRST, "ROUND", 0, "Begin with this round", 0},
	{"rounds", OPT_ROUNDS, "COUNT", 0, "End after so many rounds", 0},
	{"limit", OPT_LIMIT, "KIB", 0, "By how much memory may grow (default: 1024)", 0},
	/* For tests: byte=N, a wrong byte in the N-th put; fd, memory: one lost with each connection. */
	{"plant", OPT_PLANT, "WHAT", OPTION_HIDDEN, NULL, 0},
	{NULL, 0, NULL, 0, NULL, 0}};

/* "1e8" is a number, too. */
static uint64_t number(struct argp_state *state, const char *name, const char *arg, uint64_t least, uint64_t most)
{
	double v;
	char *end;

	errno = 0;
	v = strtod(arg, &end);
	if (*arg < '0' || *arg > '9' || *end != '\0' || errno != 0 || v < (double)least || v > (double)most)
		argp_error(state, "--%s=%s: it takes a number from %" PRIu64 " to %" PRIu64, name, arg, least, most);
	return (uint64_t)v;
}

static void read_plant(struct argp_state *state, struct soak_options *o, const char *arg)
{
	if (strncmp(arg, "byte=", 5) == 0) {
		o->plant = SOAK_WRONG_BYTE;
		o->plant_at = number(state, "plant", arg + 5, 1, UINT64_C(1) << 50);
	} else if (strcmp(arg, "fd") == 0) {
		o->plant = SOAK_LOST_FD;
	} else if (strcmp(arg, "memory") == 0) {
		o->plant = SOAK_LOST_MEMORY;
	} else {
		argp_error(state, "--plant=%s: byte=N, fd and memory are known", arg);
	}
}

static error_t read_option(int key, char *arg, struct argp_state *state)
{
	struct command *c = state->input;
	struct soak_options *o = &c->o;

	switch (key) {
	case OPT_SELF:
		c->self = true;
		return 0;
	case 'l':
		o->listen = arg;
		return 0;
	case 'B':
		o->backend = arg;
		return 0;
	case 'n':
		o->run.ops = number(state, "operations", arg, 1, UINT64_C(1) << 50);
		return 0;
	case 's':
		o->run.seed = number(state, "seed", arg, 0, UINT64_C(1) << 50);
		return 0;
	case 'w':
		o->run.window = (uint32_t)number(state, "window", arg, 16, SOAK_STEPS);
		return 0;
	case 'c':
		o->run.reconnect = (uint32_t)number(state, "reconnect", arg, 1, 1 << 30);
		return 0;
	case 'i':
		o->interval_s = (int)number(state, "interval", arg, 1, 86400);
		return 0;
	case OPT_FIRST:
		o->run.first = number(state, "first", arg, 0, UINT64_C(1) << 50);
		return 0;
	case OPT_ROUNDS:
		o->run.rounds = number(state, "rounds", arg, 1, UINT64_C(1) << 50);
		return 0;
	case OPT_LIMIT:
		o->limit_kib = number(state, "limit", arg, 0, UINT64_C(1) << 30);
		return 0;
	case OPT_PLANT:
		read_plant(state, o, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (o->connect != NULL)
			argp_error(state, "one address is enough");
		o->connect = arg;
		return 0;
	case ARGP_KEY_END:
		if (c->self + (o->listen != NULL) + (o->connect != NULL) != 1)
			argp_error(state, "either --self, or --listen, or the address of a target");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the run ---- */

static struct soak_now now_of(struct soak_side *s)
{
	struct xport_counters k = {.size = sizeof(k)};

	soak_must(s, xport_stats(s->x, NULL, &k), "xport_stats");
	return (struct soak_now){.side = s->role == 0 ? "initiator" : "target",
	                         .backend = s->o.backend ? s->o.backend : "",
	                         .seed = s->o.run.seed,
	                         .round = s->round,
	                         .ops = s->ops,
	                         .all = s->o.run.ops,
	                         .connections = s->connections,
	                         .retries = s->retries,
	                         .in_flight = k.in_flight,
	                         .unmatched = k.unmatched,
	                         .interval_s = s->o.interval_s};
}

/* Makes progress and counts descriptors for a moment; longer if there are more than there were, to let them go. */
static void watch(struct soak_side *s)
{
	double begin = soak_seconds(), now = begin;

	for (soak_meter_watch(&s->meter, true);
	     now < begin + WATCH_MS / 1e3 || (!soak_meter_settled(&s->meter) && now < begin + SETTLE_S);
	     now = soak_seconds()) {
		soak_progress(s);
		soak_meter_watch(&s->meter, false);
	}
}

static void look(struct soak_side *s, bool fresh)
{
	struct soak_now now = now_of(s);

	if (fresh && soak_meter_warms(&s->meter, &now))
		watch(s);
	soak_meter_look(&s->meter, &now, fresh);
}

static void look_back(struct soak_side *s)
{
	struct soak_now now = now_of(s);
	char why[256];

	watch(s);
	if (!soak_meter_end(&s->meter, &now, s->o.limit_kib, why, sizeof(why))) {
		fprintf(stderr, "soak: %s, GROWN: %s\n", now.side, why);
		exit(1);
	}
	printf("soak: %s, %s: %" PRIu64 " operations, 0 mismatches; %s\n", now.backend, now.side, s->ops, why);
}

/* Now that the other side has nothing more to send. */
static void compare_counts(struct soak_side *s)
{
	struct xport_counters k = {.size = sizeof(k)}, *want = &s->count;

	soak_must(s, xport_stats(s->x, NULL, &k), "xport_stats");
	if (k.puts != want->puts || k.gets != want->gets || k.put_notifies != want->put_notifies ||
	    k.atomics != want->atomics || k.sends != want->sends || k.flushes != want->flushes ||
	    k.notifications != want->notifications || k.receives != want->receives || k.unmatched != 0)
		soak_fail(s, "MISMATCH: xport_stats has counted otherwise");
}

static bool over(const struct soak_side *s)
{
	const struct soak_run *r = &s->o.run;

	return s->ops >= r->ops || (r->rounds > 0 && s->round >= r->first + r->rounds);
}

static int run(const struct soak_options *o, int role)
{
	static struct soak_side side;
	struct soak_side *s = &side;

	s->o = *o;
	s->role = role;
	soak_open(s);
	soak_join(s);
	soak_meter_begin(&s->meter);
	while (!over(s)) {
		soak_round(s);
		soak_renew(s);
		if (++s->round % s->o.run.reconnect != 0) {
			look(s, false);
			continue;
		}
		soak_part(s, (int)(s->round / s->o.run.reconnect & 1));
		soak_join(s);
		s->ops++;
		look(s, true);
	}
	/* Who closes must know that the other side has taken its keys: a round without new ones goes before. */
	s->ending = true;
	soak_round(s);
	s->round++;
	/* As after the warm-up, when it was measured: right after connecting.  On a wire with loss the sockets of the connection
	 * before may take their time to close. */
	soak_part(s, 0);
	soak_join(s);
	look_back(s);
	soak_round(s);
	compare_counts(s);
	soak_part(s, 0);
	soak_close(s);
	return 0;
}

/* ---- two processes ---- */

/* The target's first line is for us; the others go where ours go. */
static void read_address(int fd, char *address, size_t len)
{
	size_t n = 0;

	while (n + 1 < len && read(fd, address + n, 1) == 1 && address[n] != '\n')
		n++;
	address[n] = '\0';
}

static int be_initiator(struct soak_options *o, int from)
{
	static const char said[] = "soak: listening on ";
	char line[256];

	read_address(from, line, sizeof(line));
	close(from);
	if (strncmp(line, said, sizeof(said) - 1) != 0)
		return 1;
	o->connect = line + sizeof(said) - 1;
	return run(o, 0);
}

static int be_target(struct soak_options *o, int to)
{
	o->listen = "127.0.0.1:0";
	o->report = to;
	return run(o, 1);
}

static int run_both(struct soak_options *o)
{
	int fds[2], status, rc = 0;

	if (pipe(fds) != 0) {
		perror("soak: no pipe");
		return 1;
	}
	for (int role = 0; role < 2; role++) {
		pid_t child = fork();

		if (child == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* who ends us ends both sides */
			close(fds[role == 0]);
			exit(role == 0 ? be_initiator(o, fds[0]) : be_target(o, fds[1]));
		}
		if (child < 0) {
			perror("soak: no second process");
			rc = 1;
		}
	}
	close(fds[0]);
	close(fds[1]);
	while (wait(&status) > 0)
		rc |= status != 0;
	return rc;
}

int main(int argc, char **argv)
{
	static const char doc[] =
		"Random operations between two processes, each of which is verified, and what the processes hold "
		"meanwhile.";
	struct command c = {
		.o = {.run = {.magic = RUN_MAGIC, .seed = 1, .ops = 1000000, .window = 2048, .reconnect = 20},
	              .report = 1,
	              .interval_s = 10,
	              .limit_kib = 1024}};
	const struct argp argp = {options, read_option, "[ADDRESS]", doc, NULL, NULL, NULL};

	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	if (c.self)
		return run_both(&c.o);
	return run(&c.o, c.o.connect != NULL ? 0 : 1);
}
