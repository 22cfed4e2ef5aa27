/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc.c - xport_rpc: calls the methods of a program that uses xport_rpc.h. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xport_services.h>

#include "tools/hint.h"

enum {
	CONNECT_MS = 10000,
	DEADLINE_MS = 5000,
	PAYLOAD = 1 << 16,
	HEADS = 76, /* of a message, beside its payload: see xport_rpcs_attr.max_payload */
	PINGS = 10,
	REPLIES = 1000 /* of a list: with 30 lines or more in each, more methods than a program has */
};

struct rpc_tool {
	const char *backend, *address, *command, *method, *payload;
	int deadline_ms, count;
	xport *x;
	xport_ep *ep;
	xport_rpcs *rpcs;
	char reply[PAYLOAD];
	size_t len; /* of the reply */
};

static const struct argp_option rpc_options[] = {
	{"backend", 'B', "NAME", 0, "The back end and provider, instead of XPORT_BACKEND", 0},
	{"count", 'n', "COUNT", 0, "Number of calls of ping (default: 10)", 0},
	{"deadline", 't', "MS", 0, "Time limit for each call in milliseconds (default: 5000)", 0},
	{NULL, 0, NULL, 0, NULL, 0}};

static const char rpc_doc[] =
	"Call the methods of a program that uses xport_rpc.h.\v"
	"COMMAND is one of:\n"
	"  list                    print the names of the methods\n"
	"  ping                    print the time that calls take\n"
	"  stats                   print counters: calls and errors of each method\n"
	"  call METHOD [PAYLOAD]   call the method, and print the reply; PAYLOAD - is\n"
	"                          standard input\n"
	"\n"
	"Exit status: 0 if all calls succeeded; 1 if not (the reason is on standard error); 2 for wrong options.";

static void rpc_show_version(FILE *out, struct argp_state *state)
{
	(void)state;
	fprintf(out, "xport_rpc %s\n", xport_version());
}

/* ---- options ---- */

static int read_number(const char *arg, int most, const char *name, struct argp_state *state)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(arg, &end, 10);
	if (*arg == '\0' || *end != '\0' || errno != 0 || n < 1 || n > most)
		argp_error(state, "--%s=%s: not a number from 1 to %d", name, arg, most);
	return (int)n;
}

static void rpc_take_arg(struct rpc_tool *t, const char *arg, struct argp_state *state)
{
	const char **place = t->address == NULL   ? &t->address
	                     : t->command == NULL ? &t->command
	                     : t->method == NULL  ? &t->method
	                                          : &t->payload;

	if (*place != NULL)
		argp_error(state, "one argument too many: %s", arg);
	*place = arg;
}

static void rpc_check_args(const struct rpc_tool *t, struct argp_state *state)
{
	static const char *const commands[] = {"list", "ping", "stats", "call"};
	size_t i = 0;

	if (t->command == NULL)
		argp_error(state, "an address and a command are needed");
	while (i < 4 && strcmp(t->command, commands[i]) != 0)
		i++;
	if (i == 4)
		argp_error(state, "%s: not a command", t->command);
	if (i == 3 && t->method == NULL)
		argp_error(state, "call needs a method");
	if (i < 3 && t->method != NULL)
		argp_error(state, "%s takes no argument: %s", t->command, t->method);
}

static error_t rpc_parse(int key, char *arg, struct argp_state *state)
{
	struct rpc_tool *t = state->input;

	switch (key) {
	case 'B':
		t->backend = arg;
		return 0;
	case 'n':
		t->count = read_number(arg, 1000000, "count", state);
		return 0;
	case 't':
		t->deadline_ms = read_number(arg, XPORT_RPC_DEADLINE_MAX, "deadline", state);
		return 0;
	case ARGP_KEY_ARG:
		rpc_take_arg(t, arg, state);
		return 0;
	case ARGP_KEY_END:
		rpc_check_args(t, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- calls ---- */

static int rpc_fail(const char *what, const struct xport_error *e)
{
	const char *hint = tool_hint(e);

	fprintf(stderr, "xport_rpc: %s: %s\n", what, e->text);
	if (hint[0] != '\0')
		fprintf(stderr, "xport_rpc: hint: %s\n", hint);
	return 1;
}

/* A failure of libxport; `x` is NULL for xport_open. */
static int rpc_fail_x(const char *what, const xport *x)
{
	struct xport_error e = {.size = sizeof(e)};

	(void)xport_last_error(x, &e);
	return rpc_fail(what, &e);
}

static int rpc_fail_services(const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	(void)xport_services_last_error(&e);
	return rpc_fail(what, &e);
}

static const char *rpc_ran(int ran)
{
	return ran == XPORT_RPC_RAN_NO ? "it did not run" : ran == XPORT_RPC_RAN_YES ? "it ran" : "it may have run";
}

/* Calls a method, and waits for the reply. Returns 0, or 1 after a message. */
static int rpc_do(struct rpc_tool *t, const char *method, const void *payload, size_t len)
{
	struct xport_rpc_args a = {.size = sizeof(a),
	                           .payload = payload,
	                           .len = len,
	                           .reply = t->reply,
	                           .reply_max = sizeof(t->reply),
	                           .deadline_ms = (uint32_t)t->deadline_ms};
	struct xport_rpc_event e = {.size = sizeof(e)};

	if (xport_rpc_call(t->rpcs, t->ep, method, &a) != XPORT_OK)
		return rpc_fail_services(method);
	do {
		if (xport_rpcs_wait(t->rpcs, &e, NULL, NULL, -1) != XPORT_OK)
			return rpc_fail_services(method);
	} while (e.type != XPORT_RPC_DONE);
	t->len = e.len;
	if (e.status == XPORT_OK)
		return 0;
	fprintf(stderr, "xport_rpc: %s: %s: %s\n", method, e.why[0] != '\0' ? e.why : xport_strerror(e.status),
	        rpc_ran(e.ran));
	return 1;
}

/* Prints the lines of a method that replies with some of them at a time. */
static int rpc_lines(struct rpc_tool *t, const char *method, size_t extra)
{
	size_t skip = 0, lines;
	char number[32];

	for (int reply = 0; reply < REPLIES; reply++) {
		snprintf(number, sizeof(number), "%zu", skip);
		if (rpc_do(t, method, number, strlen(number)) != 0)
			return 1;
		lines = 0;
		for (size_t i = 0; i < t->len; i++)
			lines += t->reply[i] == '\n';
		fwrite(t->reply, 1, t->len, stdout);
		skip += skip == 0 && lines >= extra ? lines - extra : lines;
		if (lines == 0)
			return 0;
	}
	fprintf(stderr, "xport_rpc: %s: the program does not end its list after %d replies\n", method, REPLIES);
	return 1;
}

static double rpc_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int rpc_ping(struct rpc_tool *t)
{
	double least = 0, most = 0, sum = 0;

	for (int i = 0; i < t->count; i++) {
		double begun = rpc_now_us(), took;

		if (rpc_do(t, "xport.ping", "12345678", 8) != 0)
			return 1;
		took = rpc_now_us() - begun;
		least = i == 0 || took < least ? took : least;
		most = took > most ? took : most;
		sum += took;
	}
	printf("%d calls: %.1f us on average, %.1f least, %.1f most\n", t->count, sum / t->count, least, most);
	return 0;
}

static int rpc_call_one(struct rpc_tool *t)
{
	static char input[PAYLOAD + 1]; /* a longer one is refused with its length */
	size_t len = t->payload == NULL ? 0 : strlen(t->payload);
	const char *payload = t->payload;
	int failed;

	if (payload != NULL && strcmp(payload, "-") == 0) {
		len = fread(input, 1, sizeof(input), stdin);
		payload = input;
		if (ferror(stdin)) {
			fprintf(stderr, "xport_rpc: standard input: %s\n", strerror(errno));
			return 1;
		}
	}
	failed = rpc_do(t, t->method, payload, len);
	if (failed == 0)
		fwrite(t->reply, 1, t->len, stdout);
	return failed;
}

/* Calls take as much as the buffer, or as the network. */
static int rpc_create(struct rpc_tool *t)
{
	struct xport_info info = {.size = sizeof(info)};
	struct xport_rpcs_attr attr = {.size = sizeof(attr), .max_payload = PAYLOAD};

	if (xport_query(t->x, &info) != XPORT_OK)
		return rpc_fail_x(t->address, t->x);
	if (info.eager_max < PAYLOAD + HEADS)
		attr.max_payload = (uint32_t)info.eager_max - HEADS;
	if (xport_rpcs_create(t->x, &attr, &t->rpcs) != XPORT_OK)
		return rpc_fail_services(t->address);
	return 0;
}

static int rpc_command(struct rpc_tool *t)
{
	if (strcmp(t->command, "list") == 0)
		return rpc_lines(t, "xport.methods", 0);
	if (strcmp(t->command, "stats") == 0)
		return rpc_lines(t, "xport.stats", 1);
	if (strcmp(t->command, "ping") == 0)
		return rpc_ping(t);
	return rpc_call_one(t);
}

int main(int argc, char **argv)
{
	static const struct argp parser = {rpc_options, rpc_parse, "HOST:PORT COMMAND [METHOD [PAYLOAD]]", rpc_doc, 0,
	                                   0,           0};
	static struct rpc_tool t = {.deadline_ms = DEADLINE_MS, .count = PINGS};
	struct xport_attr attr = {.size = sizeof(attr)};
	int failed;

	argp_program_version_hook = rpc_show_version;
	argp_err_exit_status = 2;
	argp_parse(&parser, argc, argv, 0, NULL, &t);
	attr.backend = t.backend;
	if (xport_open(&attr, &t.x) != XPORT_OK)
		return rpc_fail_x("opening", NULL);
	if (xport_connect(t.x, t.address, NULL, CONNECT_MS, &t.ep) != XPORT_OK)
		failed = rpc_fail_x(t.address, t.x);
	else
		failed = rpc_create(&t) != 0 || rpc_command(&t) != 0;
	(void)xport_rpcs_destroy(t.rpcs, NULL, NULL, 1000);
	if (t.ep != NULL)
		(void)xport_ep_close(t.ep, 1000);
	xport_close(t.x);
	if (fflush(stdout) != 0) {
		fprintf(stderr, "xport_rpc: standard output: %s\n", strerror(errno));
		failed = 1;
	}
	return failed;
}
