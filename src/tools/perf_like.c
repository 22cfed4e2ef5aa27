/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_like.c - translates a command line of perftest into one of xport_perf, and prints perftest's columns.
 *
 * The translation is a command line, so it can be shown to the user, who may go on with it.
 */
#include "tools/perf_like.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LIKE_PORT = 18515, LIKE_DEPTH = 128, LIKE_WORDS = 32, LIKE_WORD = 300, LIKE_NAME = 40, FLAG_SELF = 256 };

/* A latency counts a put at its target's side by looking at the memory, as perftest does. */
static const struct perf_like commands[] = {
	{"ib_write_bw", "put_local", "RDMA_Write BW Test", PERF_BANDWIDTH, 5000, false},
	{"ib_write_lat", "put_local", "RDMA_Write Latency Test", PERF_LATENCY, 1000, false},
	{"ib_read_bw", "get", "RDMA_Read BW Test", PERF_BANDWIDTH, 1000, false},
	{"ib_read_lat", "get", "RDMA_Read Latency Test", PERF_LATENCY, 1000, false},
	{"ib_send_bw", "send", "Send BW Test", PERF_BANDWIDTH, 1000, false},
	{"ib_send_lat", "send", "Send Latency Test", PERF_LATENCY, 1000, false},
	{"ib_atomic_bw", "fetch_add", "Atomic FETCH_AND_ADD BW Test", PERF_RATE, 1000, true},
	{"ib_atomic_lat", "fetch_add", "Atomic FETCH_AND_ADD Latency Test", PERF_LATENCY, 1000, true},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct option flags[] = {
	{"ib-dev", required_argument, NULL, 'd'},   {"size", required_argument, NULL, 's'},
	{"iters", required_argument, NULL, 'n'},    {"duration", required_argument, NULL, 'D'},
	{"port", required_argument, NULL, 'p'},     {"qp", required_argument, NULL, 'q'},
	{"tx-depth", required_argument, NULL, 't'}, {"CPU-freq", no_argument, NULL, 'F'},
	{"bidirectional", no_argument, NULL, 'b'},  {"all", no_argument, NULL, 'a'},
	{"self", no_argument, NULL, FLAG_SELF},     {NULL, 0, NULL, 0}};
static const char letters[] = ":d:s:n:D:p:q:t:Fba";

/* Other flags of perftest that people use, and what to do instead. */
static const struct {
	char letter;
	const char *name, *advice;
} others[] = {
	{'A', "atomic_type", "xport_perf -t cas measures compare and swap"},
	{'c', "connection", "libxport has reliable connections only"},
	{'e', "events", "xport_perf --wait sleeps until something arrives"},
	{'g', "mcg", "libxport has reliable connections only"},
	{'h', "help", "see the table in xport_perf(1)"},
	{'i', "ib-port", "libxport uses a port that is up: omit it"},
	{'I', "inline_size", "the back end decides this: omit it"},
	{'l', "post_list", "xport_perf posts each operation by itself: omit it"},
	{'m', "mtu", "the back end decides this: omit it"},
	{'N', "noPeak", "the peak costs nothing here: omit it"},
	{'o', "outs", "the back end decides this: omit it"},
	{'Q', "cq-mod", "the back end decides this: omit it"},
	{'r', "rx-depth", "libxport posts the receives: omit it"},
	{'R', "rdma_cm", "libxport makes its connections itself: omit it"},
	{'x', "gid-index", "libxport finds the GID by the address: omit it"},
	{'z', "com_rdma_cm", "libxport makes its connections itself: omit it"},
	{0, "out_json", "xport_perf --json prints JSON"},
	{0, "report_gbits", "the unit is MiB/s: omit it"},
	{0, "use_hugepages", "xport_mr_alloc uses huge pages where it can: omit it"},
};
enum { OTHERS = sizeof(others) / sizeof(others[0]) };

static void like_refuse(const struct perf_like *like, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
static void like_refuse(const struct perf_like *like, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "xport_perf: --like%s%s: ", like != NULL ? " " : "", like != NULL ? like->name : "");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(2);
}

/* ---- names that are unknown ---- */

/* Letters to insert, remove or change: Levenshtein's distance, of names cut to LIKE_NAME. */
static size_t like_distance(const char *a, const char *b)
{
	size_t row[LIKE_NAME + 1], na = strnlen(a, LIKE_NAME), nb = strnlen(b, LIKE_NAME);

	for (size_t k = 0; k <= nb; k++)
		row[k] = k;
	for (size_t i = 1; i <= na; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t k = 1; k <= nb; k++) {
			size_t change = corner + (a[i - 1] != b[k - 1]);
			size_t least = row[k] < row[k - 1] ? row[k] + 1 : row[k - 1] + 1;

			corner = row[k];
			row[k] = change < least ? change : least;
		}
	}
	return row[nb];
}

static const struct perf_like *command_of(const char *name)
{
	const struct perf_like *nearest = &commands[0];

	for (int i = 0; i < COMMANDS; i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
		if (like_distance(name, commands[i].name) < like_distance(name, nearest->name))
			nearest = &commands[i];
	}
	like_refuse(NULL,
	            "\"%s\" is not supported; the nearest is %s, and there are ib_{write,read,send,atomic}_{bw,lat}",
	            name, nearest->name);
}

/* A long flag, or a letter that has no other case. */
static void refuse_flag(const struct perf_like *like, const char *word)
{
	const struct option *nearest = &flags[0];
	const char *name = word + 2;
	size_t len = strcspn(name, "=");

	for (int i = 0; i < OTHERS && len > 1; i++)
		if (strncmp(name, others[i].name, len) == 0)
			like_refuse(like, "%s has no counterpart: %s", word, others[i].advice);
	for (const struct option *f = flags; f->name != NULL; f++) {
		/* It is the beginning of several flags. */
		if (len > 0 && strncmp(name, f->name, len) == 0) {
			nearest = f;
			break;
		}
		if (like_distance(name, f->name) < like_distance(name, nearest->name))
			nearest = f;
	}
	like_refuse(like, "%s is not supported; the nearest is --%s", word, nearest->name);
}

static void refuse_letter(const struct perf_like *like, int letter)
{
	int other = letter ^ 0x20;

	for (int i = 0; i < OTHERS; i++)
		if (others[i].letter == letter)
			like_refuse(like, "-%c (--%s) has no counterpart: %s", letter, others[i].name,
			            others[i].advice);
	for (const struct option *f = flags; f->name != NULL; f++)
		if (f->val == other)
			like_refuse(like, "-%c is not supported; the nearest is -%c (--%s)", letter, other, f->name);
	like_refuse(like, "-%c is not supported; there are -d -s -n -D -p -q -t -F -b -a and --self", letter);
}

/* ---- the translation ---- */

struct translation {
	const struct perf_like *like;
	char *words[LIKE_WORDS];
	int n;
	const char *device, *size, *host;
	uint64_t count, seconds, port, qps, depth;
	bool both, all, self;
};

static void add_word(struct translation *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_word(struct translation *t, const char *fmt, ...)
{
	static char space[LIKE_WORDS][LIKE_WORD];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(space[t->n], sizeof(space[0]), fmt, ap);
	va_end(ap);
	if (n >= LIKE_WORD)
		like_refuse(t->like, "an argument is longer than %d characters", LIKE_WORD - 1);
	t->words[t->n] = space[t->n];
	t->n++;
}

static uint64_t like_number(const struct perf_like *like, const char *flag, const char *arg, uint64_t least,
                            uint64_t most)
{
	char *end;
	unsigned long long v = strtoull(arg, &end, 10);

	if (*arg < '0' || *arg > '9' || *end != '\0' || v < least || v > most)
		like_refuse(like, "%s takes a number from %llu to %llu, and not \"%s\"", flag,
		            (unsigned long long)least, (unsigned long long)most, arg);
	return v;
}

/* 65536, or 64K. */
static void like_size(const struct perf_like *like, const char *arg)
{
	const uint64_t most = UINT64_C(1) << 40;
	uint64_t v = 0;
	const char *c = arg;

	for (; *c >= '0' && *c <= '9' && v <= most; c++)
		v = 10 * v + (uint64_t)(*c - '0');
	if (*c == 'K' || *c == 'M' || *c == 'G')
		v <<= *c == 'K' ? 10 : *c == 'M' ? 20 : 30, c++;
	if (*c != '\0' || v < 1 || v > most)
		like_refuse(like,
		            "-s (--size) takes a number of bytes from 1 to 2^40, such as 65536 or 64K, and not \"%s\"",
		            arg);
}

static void read_flag(struct translation *t, int flag)
{
	switch (flag) {
	case 'd':
		t->device = optarg;
		break;
	case 's':
		like_size(t->like, optarg);
		t->size = optarg;
		break;
	case 'n':
		t->count = like_number(t->like, "-n (--iters)", optarg, 5, PERF_RUN_COUNT);
		break;
	case 'D':
		t->seconds = like_number(t->like, "-D (--duration)", optarg, 1, PERF_RUN_NS / 1000000000);
		break;
	case 'p':
		t->port = like_number(t->like, "-p (--port)", optarg, 1, 65535);
		break;
	case 'q':
		t->qps = like_number(t->like, "-q (--qp)", optarg, 1, PERF_ENDPOINTS);
		break;
	case 't':
		t->depth = like_number(t->like, "-t (--tx-depth)", optarg, 1, PERF_WINDOW);
		break;
	case 'b':
		t->both = true;
		break;
	case 'a':
		t->all = true;
		break;
	case FLAG_SELF:
		t->self = true;
		break;
	default: /* -F: there is no warning to turn off */
		break;
	}
}

static void judge(const struct translation *t)
{
	const struct perf_like *like = t->like;

	if (t->count > 0 && t->seconds > 0)
		like_refuse(like, "-n and -D exclude each other");
	if (t->size != NULL && t->all)
		like_refuse(like, "-s and -a exclude each other");
	if ((t->size != NULL || t->all) && like->lone)
		like_refuse(like, "an atomic has 8 bytes: omit -s and -a");
	if (like->measure == PERF_LATENCY && (t->both || t->qps > 1 || t->depth > 0))
		like_refuse(like, "a latency has no -b, -q or -t: use %.*s_bw",
		            (int)(strrchr(like->name, '_') - like->name), like->name);
	if (t->host != NULL && (t->host[0] == '\0' || t->host[0] == '-'))
		like_refuse(like, "\"%s\" is not a host", t->host);
	if (t->host != NULL && strchr(t->host, ':') != NULL && strchr(t->host, ':') == strrchr(t->host, ':'))
		like_refuse(like, "\"%s\" is not a host: -p sets the port", t->host);
	if (t->self && t->host != NULL)
		like_refuse(like, "--self needs no host");
}

static void read_line(struct translation *t, int argc, char **argv)
{
	int flag;

	opterr = 0;
	optind = 1;
	while ((flag = getopt_long(argc, argv, letters, flags, NULL)) != -1) {
		if (flag == ':')
			like_refuse(t->like, "%s needs a value", argv[optind - 1]);
		if (flag == '?' &&
		    (optopt == FLAG_SELF || (optopt != 0 && strchr(letters + 1, optopt) != NULL && optopt != ':')))
			like_refuse(t->like, "%s takes no value", argv[optind - 1]);
		if (flag == '?' && optopt != 0)
			refuse_letter(t->like, optopt);
		if (flag == '?')
			refuse_flag(t->like, argv[optind - 1]);
		read_flag(t, flag);
	}
	if (argc - optind > 1)
		like_refuse(t->like, "more than one host");
	t->host = argv[optind]; /* NULL after the last */
	judge(t);
}

static void write_side(struct translation *t, bool open)
{
	if (t->device != NULL && strchr(t->device, ':') != NULL) {
		add_word(t, "-B");
		add_word(t, "%s", t->device);
	} else if (t->device != NULL) {
		add_word(t, "-B");
		add_word(t, "verbs:%s", t->device);
	}
	if (t->self) {
		add_word(t, "--self");
	} else if (t->host != NULL) {
		add_word(t, strchr(t->host, ':') != NULL && t->host[0] != '[' ? "[%s]:%llu" : "%s:%llu", t->host,
		         (unsigned long long)t->port);
	} else {
		add_word(t, "-l");
		add_word(t, "%s:%llu", open ? "*" : "127.0.0.1", (unsigned long long)t->port);
	}
}

static void write_measured(struct translation *t)
{
	const struct perf_like *like = t->like;

	add_word(t, "-t");
	add_word(t, "%s", like->test);
	add_word(t, "-m");
	add_word(t, "%s", perf_measure_names[like->measure]);
	add_word(t, "-s");
	if (t->all)
		add_word(t, "2:8M");
	else
		add_word(t, "%s",
		         like->lone                      ? "8"
		         : t->size != NULL               ? t->size
		         : like->measure == PERF_LATENCY ? "2"
		                                         : "64K");
	if (t->seconds > 0) {
		add_word(t, "-D");
		add_word(t, "%llus", (unsigned long long)t->seconds);
	} else {
		add_word(t, "-n");
		add_word(t, "%llu", (unsigned long long)(t->count > 0 ? t->count : like->count));
	}
	if (like->measure != PERF_LATENCY) {
		add_word(t, "-q");
		add_word(t, "%llu", (unsigned long long)(t->depth > 0 ? t->depth : LIKE_DEPTH));
	}
	if (t->qps > 1) {
		add_word(t, "-e");
		add_word(t, "%llu", (unsigned long long)t->qps);
	}
	if (t->both)
		add_word(t, "-b");
}

const struct perf_like *perf_like_of(int argc, char **argv)
{
	static const char option[] = "--like";
	const char *word = argc > 1 ? argv[1] : "";

	if (strncmp(word, option, sizeof(option) - 1) != 0)
		return NULL;
	word += sizeof(option) - 1;
	if (*word == '=')
		return command_of(word + 1);
	if (*word != '\0')
		return NULL;
	if (argc < 3)
		like_refuse(NULL, "it needs a command of perftest, such as ib_write_bw");
	return command_of(argv[2]);
}

char **perf_like_translate(const struct perf_like *like, int *argc, char **argv, bool open)
{
	static struct translation t;
	int skip = strchr(argv[1], '=') != NULL ? 1 : 2;

	t = (struct translation){.like = like, .port = LIKE_PORT, .qps = 1};
	read_line(&t, *argc - skip, argv + skip);
	add_word(&t, "xport_perf");
	write_side(&t, open);
	/* A server does what the client requests. */
	if (t.self || t.host != NULL)
		write_measured(&t);
	*argc = t.n;
	return t.words;
}

/* ---- the columns ---- */

static void rule(int n)
{
	while (n-- > 0)
		putchar('-');
	putchar('\n');
}

void perf_like_begin(const struct perf_options *o)
{
	enum { WIDTH = 87 };
	const struct perf_like *like = o->like;

	printf("#");
	for (char **word = o->words; *word != NULL; word++)
		printf(" %s", *word);
	putchar('\n');
	rule(WIDTH);
	printf("                    %s%s\n", o->both ? "Bidirectional " : "", like->title);
	rule(WIDTH);
	if (like->measure != PERF_LATENCY)
		printf(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n");
	else if (o->count > 0)
		printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
		       "t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec] \n");
	else
		printf(" #bytes        #iterations       t_avg[usec]    tps average\n");
}

/* perftest's MB is 2^20 bytes.  Its typical latency is the median.  Of both directions it counts one, and adds the rates. */
void perf_like_row(const struct perf_options *o, const struct perf_result *r)
{
	const struct perf_histogram *h = &r->latency;
	const double us = PERF_UNITS * 1000.0, mib = 1 << 20;
	double rate = (double)r->operations / r->seconds, size = (double)r->is->size;
	unsigned long long bytes = r->is->size, n = o->both ? r->operations / 2 : r->operations;

	if (r->is->measure != PERF_LATENCY)
		printf(" %-7llu    %-10llu       %-7.2f            %-7.2f\t\t   %-7.6f\n", bytes, n,
		       o->count > 0 ? r->peak * size / mib : 0, rate * size / mib, rate / 1e6);
	else if (o->count > 0)
		printf(" %-7llu %llu          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f "
		       "\t\t%-7.2f\n",
		       bytes, n, (double)h->least / us, (double)h->greatest / us,
		       (double)perf_histogram_quantile(h, 0.5) / us, perf_histogram_mean(h) / us,
		       perf_histogram_deviation(h) / us, (double)perf_histogram_quantile(h, 0.99) / us,
		       (double)perf_histogram_quantile(h, 0.999) / us);
	else
		printf(" %-7llu       %llu            %-7.2f        %-7.2f\n", bytes, n, perf_histogram_mean(h) / us,
		       1e6 / (perf_histogram_mean(h) / us));
}
