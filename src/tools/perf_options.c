/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_options.c - the command line. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf_like.h"

enum {
	OPT_SELF = 256,
	OPT_TAX,
	OPT_BESIDE,
	OPT_JSON,
	OPT_CSV,
	OPT_PLOT,
	OPT_NO_VERIFY,
	OPT_PER_SAMPLE,
	OPT_MEMORY,
	OPT_PLANT,
	OPT_KEEP,
	OPT_LIKE
};

static const struct argp_option options[] = {
	{NULL, 0, NULL, 0, "The two sides:", 1},
	{"listen", 'l', "HOST[:PORT]", 0,
         "Be the server, and listen at this address (default: port 7471 of 127.0.0.1, "
         "or of all addresses if XPORT_AUTH or XPORT_AUTH_KEY_FILE is set)",
         1},
	{"keep", OPT_KEEP, NULL, 0, "Server: wait for another client after each one", 1},
	{"self", OPT_SELF, NULL, 0, "Be both sides, in two processes on this machine", 1},
	{"tax", OPT_TAX, "HOW", OPTION_ARG_OPTIONAL,
         "Measure what libxport costs over direct calls of the stack, in two "
         "processes on this machine; HOW is batches (the default) or steps",
         1},
	{"beside", OPT_BESIDE, "NAME", 0, "With --tax: the provider for the direct calls (default: that of -B)", 1},
	{"like", OPT_LIKE, "COMMAND", 0,
         "Do what this command of perftest does, such as ib_write_bw, with its flags and columns; "
         "must be the first option",
         1},
	{"backend", 'B', "NAME", 0, "The back end and provider, instead of XPORT_BACKEND", 1},
	{"cores", 'c', "LIST", 0,
         "Bind the n-th thread to the n-th core of the list; with --self the cores of the server's "
         "threads follow (default: --self binds each thread to a core if there are enough)",
         1},
	{"wait", 'W', NULL, 0, "Sleep when there is nothing to do, instead of polling", 1},
	{NULL, 0, NULL, 0, "Measuring:", 2},
	{"test", 't', "LIST", 0,
         "A list of put, put_local, put_quiet, put_notify, get, send, fetch_add, add, swap, cas, "
         "flush, reg, alloc; or all (default: put,get,send)",
         2},
	{"measure", 'm', "LIST", 0, "A list of latency, bandwidth, rate (default: all)", 2},
	{"size", 's', "LIST", 0,
         "A list of sizes in bytes, such as 8 or 8,4K,1M; 1:4M is each power of two between "
         "(default: 8; 64K for bandwidth)",
         2},
	{"count", 'n', "COUNT", 0, "Number of operations on each endpoint, instead of a duration", 2},
	{"duration", 'D', "TIME", 0, "Time for each test and size, such as 500ms or 10s (default: 1s)", 2},
	{"warm-up", 'w', "TIME|COUNT", 0, "Warm-up before the timed run (default: 100ms; 0: none)", 2},
	{"window", 'q', "COUNT", 0, "Operations in flight for each endpoint, for bandwidth and rate (default: 64)", 2},
	{"endpoints", 'e', "COUNT", 0, "Endpoints for each thread (default: 1)", 2},
	{"threads", 'T', "COUNT", 0, "Threads on each side, each with an instance (default: 1)", 2},
	{"both", 'b', NULL, 0, "Both directions at once, for bandwidth and rate", 2},
	{"per-sample", OPT_PER_SAMPLE, "COUNT", 0,
         "Operations between two readings of the clock, for latency (default: 1)", 2},
	{"memory", OPT_MEMORY, "KIND", 0,
         "allocated, by xport_mr_alloc (the default); registered, by xport_mr_reg; or mapped: the client's is a file "
         "in "
         "TMPDIR (/tmp), mapped and registered",
         2},
	{"no-verify", OPT_NO_VERIFY, NULL, 0, "Do not check the data; the output says so", 2},
	{NULL, 0, NULL, 0, "Output:", 3},
	{"json", OPT_JSON, NULL, 0, "Print JSON at the end; xport_perf.schema.json describes it", 3},
	{"csv", OPT_CSV, NULL, 0, "Print comma-separated values; the first line has their names", 3},
	{"plot", OPT_PLOT, "FILE", 0, "Also draw a plot over the sizes with gnuplot: FILE.png, .svg or .pdf", 3},
	{NULL, 0, NULL, 0, "Help:", -1},
	/* For tests: a byte that is wrong, when all data are checked for the first time, or in what is timed. */
	{"plant", OPT_PLANT, "WHERE", OPTION_HIDDEN, NULL, 0},
	{NULL, 0, NULL, 0, NULL, 0}};

static const char doc[] =
	"Measure latency, bandwidth and rate of libxport between two processes.\v"
	"Without an ADDRESS it is a server: it waits for a client, and exits with it.  With an ADDRESS "
	"or --self it is a client: it measures, and prints a table.\n"
	"\n"
	"Exit status: 0 if everything was measured and all data was right; 1 if a test failed (the "
	"reason is on standard error, and there is no figure of it); 2 for wrong options.";

/* ---- values ---- */

static uint64_t number(struct argp_state *state, const char *name, const char *arg, uint64_t least, uint64_t most)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(arg, &end, 10);
	if (*arg < '0' || *arg > '9' || *end != '\0' || errno != 0 || v < least || v > most)
		argp_error(state, "%s=%s: it takes a number from %llu to %llu", name, arg, (unsigned long long)least,
		           (unsigned long long)most);
	return v;
}

/* "4M"; false if it is no size. */
static bool size_of(const char *arg, const char *end, uint64_t *size)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *rest;

	errno = 0;
	*size = strtoull(arg, &rest, 10);
	if (*arg < '0' || *arg > '9' || errno != 0)
		return false;
	unit = rest < end ? strchr(units, *rest) : NULL;
	for (const char *u = units; unit != NULL && u <= unit; u++) {
		if (*size > (UINT64_C(1) << 40))
			return false;
		*size <<= 10;
	}
	rest += unit != NULL;
	return rest == end && *size <= (UINT64_C(1) << 40);
}

static void add_size(struct argp_state *state, struct perf_options *o, uint64_t size)
{
	if (o->nsizes == PERF_SIZES)
		argp_error(state, "--size: more than %d sizes are not supported", PERF_SIZES);
	o->sizes[o->nsizes++] = size;
}

/* One item of the list: a size, or two with a colon between. */
static bool add_sizes(struct argp_state *state, struct perf_options *o, const char *item, const char *end)
{
	const char *colon = memchr(item, ':', (size_t)(end - item));
	uint64_t from, to;

	if (!size_of(item, colon != NULL ? colon : end, &from))
		return false;
	if (colon == NULL) {
		add_size(state, o, from);
		return true;
	}
	if (!size_of(colon + 1, end, &to) || to < from || from == 0)
		return false;
	for (; from < to; from *= 2)
		add_size(state, o, from);
	add_size(state, o, to);
	return true;
}

static void read_sizes(struct argp_state *state, struct perf_options *o, const char *arg)
{
	o->nsizes = 0;
	for (const char *item = arg, *end;; item = end + 1) {
		end = strchrnul(item, ',');
		if (!add_sizes(state, o, item, end))
			argp_error(state, "--size=%s: \"%.*s\" is not a size; valid are 8, 64K, 1M, 1:4M", arg,
			           (int)(end - item), item);
		if (*end == '\0')
			return;
	}
}

/* "500ms" in nanoseconds; 0: it has no unit, or is no time. */
static uint64_t time_of(const char *arg)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
	char *end;
	double v = strtod(arg, &end);

	for (size_t i = 0; *arg >= '0' && *arg <= '9' && i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].name) == 0 && v * units[i].ns >= 1 && v * units[i].ns <= (double)PERF_RUN_NS)
			return (uint64_t)(v * units[i].ns);
	return 0;
}

static uint64_t perf_options_read_time(struct argp_state *state, const char *name, const char *arg)
{
	uint64_t ns = time_of(arg);

	if (ns == 0)
		argp_error(state, "%s=%s: it takes a time with its unit, such as 500ms or 10s, up to a day", name, arg);
	return ns;
}

static void read_warm(struct argp_state *state, struct perf_options *o, const char *arg)
{
	o->warm_ns = time_of(arg);
	o->warm_count = 0;
	if (o->warm_ns == 0)
		o->warm_count =
			number(state, "--warm-up (without a unit a number of operations)", arg, 0, PERF_RUN_COUNT);
}

/* Calls fn with the index of each item's name among `names`. */
static void perf_options_read_names(struct argp_state *state, const char *option, const char *arg,
                                    const char *const *names, int n, bool *chosen)
{
	memset(chosen, 0, (size_t)n * sizeof(*chosen));
	for (const char *item = arg, *end;; item = end + 1) {
		bool known = false;

		end = strchrnul(item, ',');
		for (int i = 0; i < n; i++) {
			bool all = end - item == 3 && strncmp(item, "all", 3) == 0;

			if (all || (strncmp(item, names[i], (size_t)(end - item)) == 0 && names[i][end - item] == '\0'))
				chosen[i] = known = true;
		}
		if (!known)
			argp_error(state, "%s=%s: there is no \"%.*s\"; see --help", option, arg, (int)(end - item),
			           item);
		if (*end == '\0')
			return;
	}
}

static void read_tests(struct argp_state *state, struct perf_options *o, const char *arg)
{
	const char *names[PERF_TESTS];

	for (int i = 0; i < PERF_TESTS; i++)
		names[i] = perf_tests[i].name;
	perf_options_read_names(state, "--test", arg, names, PERF_TESTS, o->tests);
}

static void read_cores(struct argp_state *state, struct perf_options *o, const char *arg)
{
	char *end;

	for (o->ncores = 0; o->ncores < 2 * PERF_THREADS; arg = end + 1) {
		long core = *arg >= '0' && *arg <= '9' ? strtol(arg, &end, 10) : -1;

		if (core < 0 || core >= 1024 || (*end != ',' && *end != '\0'))
			break;
		o->cores[o->ncores++] = (int)core;
		if (*end == '\0')
			return;
	}
	argp_error(state, "--cores: it takes core numbers separated by commas, such as 0,2");
}

static enum perf_plant perf_options_read_plant(struct argp_state *state, const char *arg)
{
	if (strcmp(arg, "first") == 0)
		return PERF_PLANT_FIRST;
	if (strcmp(arg, "timed") != 0)
		argp_error(state, "--plant=%s: it takes first or timed", arg);
	return PERF_PLANT_TIMED;
}

static enum perf_tax read_tax(struct argp_state *state, const char *arg)
{
	static const char *const ways[] = {NULL, "batches", "steps", "count"};

	for (int i = PERF_TAX_BATCHES; i <= PERF_TAX_COUNT; i++)
		if (strcmp(arg != NULL ? arg : "batches", ways[i]) == 0)
			return (enum perf_tax)i;
	argp_error(state, "--tax=%s: it takes batches or steps", arg);
	return PERF_TAX_NOT;
}

const char *const perf_memory_names[PERF_MEMORIES] = {"allocated", "registered", "mapped"};

static enum perf_memory read_kind(struct argp_state *state, const char *arg)
{
	for (int i = 0; i < PERF_MEMORIES; i++)
		if (strcmp(arg, perf_memory_names[i]) == 0)
			return (enum perf_memory)i;
	argp_error(state, "--memory=%s: it takes allocated, registered or mapped", arg);
	return PERF_ALLOCATED;
}

/* ---- as a whole ---- */

struct reading {
	struct perf_options *o;
	const char *listen;
	bool beyond_tax; /* there is an option that says nothing to --tax */
};

/* Whether peers off this machine are let in. */
static bool is_open(void)
{
	struct xport_variable v[64];
	int n = xport_variables(v, sizeof(v[0]), 64);
	bool open = false;

	for (int i = 0; i < n && i < 64; i++)
		open = open || (strncmp(v[i].name, "XPORT_AUTH", strlen("XPORT_AUTH")) == 0 && v[i].value != NULL);
	return open;
}

/* With a port, if need be the default one; an IPv6 address has brackets. */
static const char *with_port(struct argp_state *state, const char *address)
{
	static char whole[PERF_ADDRESS];
	const char *colon = strrchr(address, ':'), *bracket = strrchr(address, ']');
	int n;

	if (colon != NULL && (bracket == NULL || colon > bracket))
		n = snprintf(whole, sizeof(whole), "%s", address);
	else
		n = snprintf(whole, sizeof(whole), "%s:%d", address, PERF_PORT);
	if (n >= (int)sizeof(whole))
		argp_error(state, "the address is longer than %zu characters", sizeof(whole) - 1);
	return whole;
}

static void judge_side(struct argp_state *state, struct perf_options *o, bool listens)
{
	if (o->self && (listens || o->address != NULL))
		argp_error(state, "--self needs no address");
	o->server = !o->self && (listens || o->address == NULL);
	if (o->self)
		o->address = "127.0.0.1:0";
	else
		o->address = with_port(state, o->address != NULL ? o->address : is_open() ? "*" : "127.0.0.1");
	if (o->keep && !o->server)
		argp_error(state, "--keep is for the server");
	if (o->server && (o->json || o->csv || o->plot != NULL))
		argp_error(state,
		           "--json, --csv and --plot are for the client: name the ADDRESS of a server, or use --self");
}

/* What --tax does is fixed, but for the tests, the number of pairs and the time. */
static void judge_tax(struct argp_state *state, const struct reading *r)
{
	struct perf_options *o = r->o;

	if (r->listen != NULL || o->address != NULL || o->self)
		argp_error(state, "--tax starts its own two processes: omit the address and --self");
	if (r->beyond_tax)
		argp_error(state, "--tax can be combined only with -B, --beside, -W, -t, -m, -n, -D and --json");
	if (o->json && o->tax != PERF_TAX_BATCHES)
		argp_error(state, "--tax=steps has no JSON");
	if (!o->measures[0] && !o->measures[1] && !o->measures[2])
		o->measures[0] = o->measures[1] = o->measures[2] = true;
}

static void perf_options_judge(struct argp_state *state, struct perf_options *o)
{
	if (o->beside != NULL)
		argp_error(state, "--beside needs --tax");
	if (o->json && o->csv)
		argp_error(state, "--json and --csv exclude each other");
	if (o->count > 0 && o->duration_ns > 0)
		argp_error(state, "--count and --duration exclude each other");
	if (o->count == 0 && o->duration_ns == 0)
		o->duration_ns = 1000000000;
	if (!o->measures[0] && !o->measures[1] && !o->measures[2])
		for (int i = 0; i < PERF_MEASURES; i++)
			o->measures[i] = i != PERF_LATENCY || !o->both;
	if (o->both && o->measures[PERF_LATENCY])
		argp_error(state, "--both cannot measure latency: use -m bandwidth or -m rate");
	for (int i = 0; o->both && i < PERF_TESTS; i++)
		if (o->tests[i] && perf_tests[i].local)
			argp_error(state, "%s has no direction, so --both does not apply", perf_tests[i].name);
	if ((uint64_t)o->window * (uint64_t)o->endpoints > PERF_MEMORY / 64)
		argp_error(state, "a window of %u on %d endpoints is more than %d operations in flight", o->window,
		           o->endpoints, PERF_MEMORY / 64);
}

/* Where none is named. */
static void choose_tests(struct perf_options *o)
{
	for (int i = 0; i < PERF_TESTS; i++)
		if (o->tests[i])
			return;
	for (int i = 0; i < PERF_TESTS; i++)
		o->tests[i] = o->tax != PERF_TAX_NOT;
	o->tests[perf_test_of("put") - perf_tests] = true;
	o->tests[perf_test_of("get") - perf_tests] = true;
	o->tests[perf_test_of("send") - perf_tests] = true;
}

static error_t parse_measured(int key, char *arg, struct argp_state *state)
{
	struct perf_options *o = ((struct reading *)state->input)->o;

	switch (key) {
	case 't':
		read_tests(state, o, arg);
		return 0;
	case 'm':
		perf_options_read_names(state, "--measure", arg, perf_measure_names, PERF_MEASURES, o->measures);
		return 0;
	case 's':
		read_sizes(state, o, arg);
		return 0;
	case 'n':
		o->count = number(state, "--count", arg, 1, PERF_RUN_COUNT);
		return 0;
	case 'D':
		o->duration_ns = perf_options_read_time(state, "--duration", arg);
		return 0;
	case 'w':
		read_warm(state, o, arg);
		return 0;
	case 'q':
		o->window = (uint32_t)number(state, "--window", arg, 1, PERF_WINDOW);
		return 0;
	case 'e':
		o->endpoints = (int)number(state, "--endpoints", arg, 1, PERF_ENDPOINTS);
		return 0;
	case 'T':
		o->threads = (int)number(state, "--threads", arg, 1, PERF_THREADS);
		return 0;
	case 'b':
		o->both = true;
		return 0;
	case OPT_PER_SAMPLE:
		o->per_sample = (uint32_t)number(state, "--per-sample", arg, 1, PERF_PER_SAMPLE);
		return 0;
	case OPT_MEMORY:
		o->memory = read_kind(state, arg);
		return 0;
	case OPT_NO_VERIFY:
		o->verify = false;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static bool is_beyond_tax(int key)
{
	static const int keys[] = {
		'c',        's',           'w',      'q', 'e', 'T', 'b', OPT_KEEP, OPT_CSV, OPT_PLOT, OPT_PER_SAMPLE,
		OPT_MEMORY, OPT_NO_VERIFY, OPT_PLANT};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (key == keys[i])
			return true;
	return false;
}

static error_t perf_options_parse(int key, char *arg, struct argp_state *state)
{
	struct reading *r = state->input;
	struct perf_options *o = r->o;

	r->beyond_tax = r->beyond_tax || is_beyond_tax(key);
	switch (key) {
	case 'l':
		r->listen = arg;
		return 0;
	case OPT_KEEP:
		o->keep = true;
		return 0;
	case OPT_SELF:
		o->self = true;
		return 0;
	case OPT_TAX:
		o->tax = read_tax(state, arg);
		return 0;
	case OPT_BESIDE:
		o->beside = arg;
		return 0;
	case 'B':
		o->backend = arg;
		return 0;
	case 'c':
		read_cores(state, o, arg);
		return 0;
	case 'W':
		o->wait = true;
		return 0;
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_CSV:
		o->csv = true;
		return 0;
	case OPT_PLOT:
		o->plot = arg;
		return 0;
	case OPT_LIKE:
		argp_error(state, "--like must be the first option; the flags of perftest follow it");
		return 0;
	case OPT_PLANT:
		o->plant = perf_options_read_plant(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (o->address != NULL)
			argp_error(state, "more than one address");
		o->address = arg;
		return 0;
	case ARGP_KEY_END:
		if (r->listen != NULL && o->address != NULL)
			argp_error(state, "give either -l ADDRESS, for the server, or ADDRESS, for the client");
		choose_tests(o);
		if (o->tax != PERF_TAX_NOT) {
			judge_tax(state, r);
			return 0;
		}
		o->address = r->listen != NULL ? r->listen : o->address;
		judge_side(state, o, r->listen != NULL);
		perf_options_judge(state, o);
		return 0;
	default:
		return parse_measured(key, arg, state);
	}
}

static void perf_options_show_version(FILE *to, struct argp_state *state)
{
	(void)state;
	fprintf(to, "xport_perf %s\n", xport_version());
}

void perf_options_read(struct perf_options *o, int argc, char **argv)
{
	static const struct argp argp = {options, perf_options_parse, "[ADDRESS]", doc, NULL, NULL, NULL};
	struct reading r = {.o = o};
	const struct perf_like *like = perf_like_of(argc, argv);
	char **words = like != NULL ? perf_like_translate(like, &argc, argv, is_open()) : argv;

	*o = (struct perf_options){.argv = argv,
	                           .like = like,
	                           .words = words,
	                           .window = 64,
	                           .per_sample = 1,
	                           .endpoints = 1,
	                           .threads = 1,
	                           .warm_ns = 100000000,
	                           .verify = true};
	argp_program_version_hook = perf_options_show_version;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, words, 0, NULL, &r);
}
