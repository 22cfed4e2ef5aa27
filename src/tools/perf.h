/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf.h - the parts of xport_perf.
 *
 * There are two processes, the client and the server. The client's options become a plan, a list of cases
 * (perf_plan.c). Each thread of either side has its own instance, with endpoints to its counterpart in the other
 * process: a stream (perf_stream.h). The client's streams control each case by messages over the stream itself
 * (perf_wire.c); the server's streams follow. Results become rows (perf_table.c, perf_csv.c, perf_json.c, perf_plot.c)
 * only when a case is complete and its data was right. Everything uses xport.h.
 *
 * ERRORS: functions that can fail return false, and the text is where their comment says.
 */
#ifndef XPORT_TOOLS_PERF_H
#define XPORT_TOOLS_PERF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <xport.h>

#include "tools/perf_histogram.h"

enum {
	PERF_FORMAT = 1,  /* of the JSON, and of what the two sides tell each other */
	PERF_PORT = 7471, /* where nobody names one */
	PERF_THREADS = 64,
	PERF_ENDPOINTS = 1024, /* a thread */
	PERF_WINDOW = 65536,   /* operations in flight an endpoint */
	PERF_PER_SAMPLE = 1000000,
	PERF_SIZES = 64,
	PERF_CASES = 4096,
	PERF_TESTS = 13,
	PERF_ADDRESS = 256,
	PERF_TEXT = 768,
	PERF_MEMORY = 64 << 20, /* that all operations in flight of a stream share, if one alone needs no more */
	PERF_UNITS = 10         /* of a histogram, a nanosecond */
};

/* The longest run: by time, and by operations an endpoint. */
#define PERF_RUN_NS UINT64_C(86400000000000)
#define PERF_RUN_COUNT UINT32_MAX

/* ---- perf_tests.c: what can be measured ---- */

enum perf_measure { PERF_LATENCY, PERF_BANDWIDTH, PERF_RATE, PERF_MEASURES };

/* Who knows that the data of a run have arrived. */
enum perf_proof {
	PERF_BY_COMPLETION, /* the initiator, by the completions */
	PERF_BY_FLUSH,      /* the initiator, by a flush at the end */
	PERF_BY_TARGET      /* the target, which counts what arrives */
};

/* How a latency is taken. */
enum perf_timing { PERF_UNTIL_DONE, PERF_HALF_TRIP };

struct perf_stream;
struct perf_peer;

struct perf_test {
	const char *name, *what;
	/* Posts up to n operations to one peer; returns how many, fewer where the queue is full, or -1 (stream's error). */
	int (*post)(struct perf_stream *stream, struct perf_peer *peer, uint32_t n);
	/* For a latency: what precedes it and is no part of it. */
	bool (*before)(struct perf_stream *stream, struct perf_peer *peer);
	uint64_t flags; /* of struct xport_opt */
	enum perf_proof proof;
	enum perf_timing timing;
	bool puts; /* bytes go into the target's memory, by its address */
	bool gets, messages, notifies, local, allocates;
	bool atomic, fetches;
	int op; /* of an atomic */
};

extern const struct perf_test perf_tests[PERF_TESTS];
extern const char *const perf_measure_names[PERF_MEASURES];

const struct perf_test *perf_test_of(const char *name);
/* "until it has completed", ...: what a latency of this test is. */
const char *perf_timing_text(const struct perf_test *test);
/* Whether it can be done with this size, measured so. */
bool perf_test_takes(const struct perf_test *test, enum perf_measure measure, uint64_t size);

/* ---- perf_options.c: the command line ---- */

/* --tax: pairs of batches, single steps, or calls for callgrind to count. */
enum perf_tax { PERF_TAX_NOT, PERF_TAX_BATCHES, PERF_TAX_STEPS, PERF_TAX_COUNT };

/* Where the data is.  The server, which only the client's source concerns, registers memory where that is mapped. */
enum perf_memory { PERF_ALLOCATED, PERF_REGISTERED, PERF_MAPPED, PERF_MEMORIES };
extern const char *const perf_memory_names[PERF_MEMORIES];

enum perf_plant { PERF_PLANT_NOTHING, PERF_PLANT_FIRST, PERF_PLANT_TIMED };

struct perf_like; /* perf_like.h */

struct perf_options {
	char **argv;
	bool server, self, keep, json, csv;
	const char *address; /* of the server; NULL: the default */
	const char *backend; /* NULL: what the environment says */
	const char *plot;
	bool tests[PERF_TESTS], measures[PERF_MEASURES];
	uint64_t sizes[PERF_SIZES];
	int nsizes; /* 0: the default of the measure */
	uint32_t window, per_sample;
	int endpoints, threads;
	uint64_t count, duration_ns;  /* of the timed run: one of them is 0 */
	uint64_t warm_count, warm_ns; /* or both, for none */
	bool both, verify, wait;
	enum perf_memory memory;
	int cores[2 * PERF_THREADS], ncores;
	enum perf_tax tax;
	const char *beside; /* --tax: what the direct calls travel over, if not the back end */
	const struct perf_like *like; /* the command of perftest whose columns are printed; NULL: none */
	char **words;                 /* with it: the command line that it was translated to */
	enum perf_plant plant; /* for tests: a byte that is wrong */
};

/* Ends the program where they are wrong. */
void perf_options_read(struct perf_options *o, int argc, char **argv);

/* ---- perf_plan.c: the cases ---- */

struct perf_case {
	const struct perf_test *test;
	enum perf_measure measure;
	uint64_t size;
	uint64_t stride; /* between slots */
	uint32_t slots;  /* places for the data of operations, an endpoint */
};

struct perf_plan {
	struct perf_case cases[PERF_CASES];
	int ncases;
	uint64_t span; /* what the slots of a case take at most, all endpoints of a stream together */
};

/* False if nothing is left to do, or too much; the text says what. */
bool perf_plan_make(struct perf_plan *plan, const struct perf_options *o, char *text, size_t len);

/* ---- what came out ---- */

struct perf_result {
	const struct perf_case *is;
	uint64_t operations, bytes; /* of all threads, and of both directions */
	double seconds;
	double peak; /* operations a second of the best slice, no less than the average; 0: not known */
	bool verified;
	struct perf_histogram latency; /* of samples, in 1/PERF_UNITS ns */
};

/* ---- perf_setup.c: what it runs on ---- */

/* All about this process, an instance of it and the connection, as JSON: versions, transport, variables, machine. */
json_t *perf_setup(xport *x, const xport_ep *ep, const struct perf_options *o, int threads);
/* Binds the calling thread; a core of -1: leaves it alone. */
bool perf_pin(int core);
/* The core for a thread of the client, or of the server; -1: any. */
int perf_core_of(const struct perf_options *o, bool server, int thread);
uint64_t perf_now(void);
/* What a reading of the clock costs, in nanoseconds. */
double perf_clock_cost(void);

/* ---- perf_client.c, perf_serve.c: the two sides; they return the exit status ---- */

struct perf_outcome; /* perf_out.c */

int perf_client(const struct perf_options *o, const struct perf_plan *plan, const char *address,
                struct perf_outcome *out);
/* `told`: where the real address is written, for --self; -1: nowhere. */
int perf_server(const struct perf_options *o, int told);

/* tax/tax.c: the same work by direct calls and through libxport. */
int perf_tax(const struct perf_options *o);

/* ---- showing ---- */

/* What all forms of output need. */
struct perf_about {
	const struct perf_options *options;
	const struct perf_plan *plan;
	json_t *client, *server; /* of perf_setup */
};

void perf_table_begin(const struct perf_about *about);
void perf_table_row(const struct perf_about *about, const struct perf_result *r);
void perf_csv_begin(void);
void perf_csv_row(const struct perf_about *about, const struct perf_result *r);
/* One result, and all of them; NULL where there is no memory. */
json_t *perf_json_row(const struct perf_result *r);
json_t *perf_json_whole(const struct perf_about *about, json_t *results);
/* The same of --tax. */
json_t *perf_json_tax(const struct perf_options *o, json_t *setup, json_t *rows);
bool perf_json_write(const json_t *whole, FILE *to);
/* Whether the file's name has one of the endings that gnuplot is asked for. */
bool perf_plot_name(const char *file, char *text, size_t len);
/* Whether gnuplot is there. */
bool perf_plot_ready(char *text, size_t len);
bool perf_plot_write(const char *file, const json_t *whole, char *text, size_t len);

/* perf_out.c: passes each result on to what the options ask for. */
struct perf_outcome {
	struct perf_about about;
	json_t *results;
	bool whole; /* there was memory for all of them */
};

void perf_out_begin(struct perf_outcome *out);
void perf_out_row(struct perf_outcome *out, const struct perf_result *r);
/* After all: what is written at the end, JSON and plot. */
bool perf_out_end(struct perf_outcome *out);

#endif
