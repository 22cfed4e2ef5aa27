/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - the command line: a word that says what to be, then the options of that. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

enum { OPT_STEPS = 256, OPT_ROWS, OPT_FEATURES, OPT_SEED, OPT_BROADCAST, OPT_LOAD, OPT_PARAMETERS, OPT_PATIENCE };
enum { OPT_FIXED = 300, OPT_PLANT };

static const char usage[] =
	"usage: parameter_server server [OPTION...]           lends the parameters, adds up, steps\n"
	"       parameter_server worker HOST:PORT [OPTION...] computes gradients of a part of the rows\n"
	"       parameter_server alone [OPTION...]            the same in one process, without a network\n"
	"Each has --help.  Exit status: 0 done, 1 failed, 2 wrong options, 3 nobody at the other end.\n";

static const struct argp_option model_options[] = {{NULL, 0, NULL, 0, "What is learned:", 2},
                                                   {"steps", OPT_STEPS, "N", 0, "Steps of gradient descent (200)", 2},
                                                   {"rows", OPT_ROWS, "N", 0, "Rows of data (2000)", 2},
                                                   {"features", OPT_FEATURES, "N", 0, "Features of a row (8)", 2},
                                                   {"seed", OPT_SEED, "N", 0, "What the data are made from (1)", 2},
                                                   {NULL, 0, NULL, 0, NULL, 0}};

static const struct argp_option server_options[] = {
	{"workers", 'w', "N", 0, "Begin when so many are here (1); later ones join in", 1},
	{"listen", 'l', "HOST:PORT", 0, "Listen there (127.0.0.1:0)", 1},
	{"push", 'p', "put|add", 0,
         "How workers push: put and notification into a slot of their own (put), or fetch-add (add)", 1},
	{"broadcast", OPT_BROADCAST, NULL, 0,
         "Put the parameters into each worker's memory in each step; else they are read from the second step on", 1},
	{"patience", OPT_PATIENCE, "SECONDS", 0, "Wait so long for workers to come, and to push (60)", 1},
	{"load", OPT_LOAD, "SECONDS", 0, "Learn nothing: move as much as possible for so long", 1},
	{"parameters", OPT_PARAMETERS, "N", 0, "With --load: so many (65536)", 1},
	{"backend", 'B', "NAME", 0, "What to travel over, instead of what XPORT_BACKEND says", 1},
	{NULL, 0, NULL, 0, NULL, 0}};

static const struct argp_option worker_options[] = {
	{"backend", 'B', "NAME", 0, "What to travel over, instead of what XPORT_BACKEND says", 1},
	{"patience", OPT_PATIENCE, "SECONDS", 0, "Try so long to connect (20)", 1},
	{"plant", OPT_PLANT, "drop|die|stop|after|wrong|stranger", OPTION_HIDDEN, NULL, 1},
	{NULL, 0, NULL, 0, NULL, 0}};

static const struct argp_option alone_options[] = {
	{"fixed-point", OPT_FIXED, NULL, 0, "Add up integers, as server and workers do, and not numbers", 1},
	{NULL, 0, NULL, 0, NULL, 0}};

static uint64_t number(const char *name, const char *arg, struct argp_state *state, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(arg, &end, 10);
	if (*arg < '0' || *arg > '9' || *end != '\0' || errno != 0 || n < least || n > most)
		argp_error(state, "--%s=%s: it takes a number from %llu to %llu", name, arg, (unsigned long long)least,
		           (unsigned long long)most);
	return n;
}

static error_t parse_model(int key, char *arg, struct argp_state *state)
{
	struct ps_plan *p = &((struct ps_options *)state->input)->plan;

	switch (key) {
	case OPT_STEPS:
		p->steps = number("steps", arg, state, 1, PS_STEPS_MAX);
		break;
	case OPT_ROWS:
		p->rows = number("rows", arg, state, 1, PS_ROWS_MAX);
		break;
	case OPT_FEATURES:
		p->features = number("features", arg, state, 1, PS_FEATURES_MAX);
		break;
	case OPT_SEED:
		p->seed = number("seed", arg, state, 0, UINT64_MAX);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* One of the words, which are separated by '|'; their number, from 0. */
static int word(const char *name, const char *arg, struct argp_state *state, const char *words)
{
	size_t len = strlen(arg);
	int i = 0;

	for (const char *w = words; w != NULL; i++) {
		if (len > 0 && strcspn(w, "|") == len && strncmp(w, arg, len) == 0)
			return i;
		w = strchr(w, '|');
		w = w == NULL ? NULL : w + 1;
	}
	argp_error(state, "--%s=%s: it is one of %s", name, arg, words);
	return 0;
}

static void finish_server(struct ps_options *o, struct argp_state *state)
{
	if (o->plan.parameters != 0 && o->load_s == 0)
		argp_error(state, "--parameters goes with --load; what is learned has one a feature, and one more");
	o->plan.load = o->load_s != 0;
	if (o->plan.parameters == 0)
		o->plan.parameters = o->plan.load ? 65536 : o->plan.features + 1;
}

static error_t parse_server(int key, char *arg, struct argp_state *state)
{
	struct ps_options *o = state->input;

	switch (key) {
	case 'w':
		o->workers = number("workers", arg, state, 1, PS_WORKERS_MAX);
		break;
	case 'l':
		o->address = arg;
		break;
	case 'p':
		o->plan.add = (uint32_t)word("push", arg, state, "put|add");
		break;
	case OPT_BROADCAST:
		o->broadcast = true;
		break;
	case OPT_LOAD:
		o->load_s = number("load", arg, state, 1, 86400);
		break;
	case OPT_PARAMETERS:
		o->plan.parameters = number("parameters", arg, state, 1, PS_PARAMETERS_MAX);
		break;
	case ARGP_KEY_END:
		finish_server(o, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static error_t parse_worker(int key, char *arg, struct argp_state *state)
{
	struct ps_options *o = state->input;

	switch (key) {
	case OPT_PLANT:
		o->plant =
			PS_PLANT_DROP + (enum ps_plant)word("plant", arg, state, "drop|die|stop|after|wrong|stranger");
		break;
	case ARGP_KEY_ARG:
		if (o->address != NULL)
			argp_error(state, "%s: it takes one address", arg);
		o->address = arg;
		break;
	case ARGP_KEY_END:
		if (o->address == NULL)
			argp_error(state, "it takes HOST:PORT, where the server says that it listens");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ps_options *o = state->input;

	if (key == ARGP_KEY_INIT && o->mode != PS_WORKER) {
		state->child_inputs[0] = o;
		return 0;
	}
	if (key == ARGP_KEY_ARG && o->mode != PS_WORKER)
		argp_error(state, "%s: it takes options alone", arg);
	if (key == 'B')
		o->backend = arg;
	else if (key == OPT_PATIENCE)
		o->patience_s = number("patience", arg, state, 1, 86400);
	else if (key == OPT_FIXED)
		o->fixed = true;
	else if (o->mode == PS_SERVER)
		return parse_server(key, arg, state);
	else if (o->mode == PS_WORKER)
		return parse_worker(key, arg, state);
	else if (key == ARGP_KEY_END)
		o->plan.parameters = o->plan.features + 1;
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

static enum ps_mode read_mode(int argc, char **argv)
{
	static const char *const modes[] = {"server", "worker", "alone"};
	bool help = argc > 1 && strcmp(argv[1], "--help") == 0;

	for (unsigned i = 0; argc > 1 && i < 3; i++)
		if (strcmp(argv[1], modes[i]) == 0)
			return (enum ps_mode)i;
	fputs(usage, help ? stdout : stderr);
	exit(help && fflush(stdout) == 0 ? PS_EXIT_DONE : PS_EXIT_USAGE);
}

void ps_options_read(struct ps_options *o, int argc, char **argv)
{
	static const struct argp model = {model_options, parse_model, NULL, NULL, NULL, NULL, NULL};
	static const struct argp_child children[] = {{&model, 0, NULL, 0}, {NULL, 0, NULL, 0}};
	static const struct argp argps[] = {
		{server_options, parse, NULL, "Lends parameters to workers and steps by what they push.", children,
	         NULL, NULL},
		{worker_options, parse, "HOST:PORT", "Computes gradients for the server there.", NULL, NULL, NULL},
		{alone_options, parse, NULL, "Does in one process what server and workers do.", children, NULL, NULL}};
	static char names[3][24] = {"parameter_server server", "parameter_server worker", "parameter_server alone"};

	*o = (struct ps_options){.mode = read_mode(argc, argv), .workers = 1};
	o->patience_s = o->mode == PS_WORKER ? 20 : 60;
	o->plan = (struct ps_plan){.seed = 1, .rows = 2000, .features = 8, .steps = 200};
	argp_err_exit_status = PS_EXIT_USAGE;
	argv[1] = names[o->mode];
	argp_parse(&argps[o->mode], argc - 1, argv + 1, 0, NULL, o);
	if (o->mode == PS_SERVER && o->address == NULL)
		o->address = "127.0.0.1:0";
}
