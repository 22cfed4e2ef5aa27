/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tax.c - xport_perf --tax: measures what libxport costs over direct calls of the stack, in one pair of processes. The
 * direct calls are in a module, xport_tax_NAME.so, beside that of the back end.
 */
#include "tools/tax/tax.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "tools/tax/ours.h"

#define DIRECT(f) offsetof(struct pair_baseline, f)

/* Directly with what UCX sets for TCP by itself; the back end and the other direct calls set more. */
static const char defaults[] = "UCX as it comes";

static const struct tax_kind kinds[] = {
	{"send", PERF_LATENCY, 8, DIRECT(pingpong), tax_pingpong, 2, .passive = false},
	{"send", PERF_LATENCY, 8, 0, tax_pingpong, 2, .passive = false, .than = "cache line", .read = tax_cache_line},
	{"put_local", PERF_LATENCY, 8, DIRECT(putpong), tax_putpong, 2, .passive = false},
	{"put", PERF_LATENCY, 8, DIRECT(putone), tax_putone, 1, .passive = true},
	{"get", PERF_LATENCY, 8, DIRECT(getone), tax_getone, 1, .passive = true},
	{"send", PERF_RATE, 8, DIRECT(rate), tax_rate, WINDOW, .passive = false},
	{"put_local", PERF_RATE, 8, DIRECT(putrate), tax_putrate, WINDOW, .passive = true},
	{"put_quiet", PERF_RATE, 8, DIRECT(putrate), tax_quietrate, WINDOW, .passive = true},
	{"send", PERF_RATE, 8, DIRECT(slide_send), tax_slide_send, WINDOW, .passive = false, .sliding = true},
	{"put_local", PERF_RATE, 8, DIRECT(slide_local), tax_slide_local, WINDOW, .passive = true, .sliding = true},
	{"put_quiet", PERF_RATE, 8, DIRECT(slide_quiet), tax_slide_quiet, WINDOW, .passive = true, .sliding = true},
	/* directly a message, whose target puts it where it belongs: the least that does the same */
	{"put_notify", PERF_RATE, 8, DIRECT(slide_send), tax_slide_notify, WINDOW, .passive = false, .sliding = true},
	{"get", PERF_RATE, 8, DIRECT(slide_get), tax_slide_get, WINDOW, .passive = true, .sliding = true},
	{"fetch_add", PERF_RATE, 8, DIRECT(slide_add), tax_slide_add, WINDOW, .passive = true, .sliding = true},
	{"put_local", PERF_BANDWIDTH, LARGE, DIRECT(bandwidth), tax_bandwidth, LONG_WINDOW, .passive = true},
	{"put_local", PERF_BANDWIDTH, LARGE, 0, tax_bandwidth, LONG_WINDOW, .passive = true, .than = "memcpy",
         .read = tax_copy_large},
	{"put_quiet", PERF_BANDWIDTH, HUGE, DIRECT(placed), tax_placed, LONG_WINDOW, .passive = true},
	{"put_quiet", PERF_BANDWIDTH, HUGE, 0, tax_placed, LONG_WINDOW, .passive = true, .than = "memcpy",
         .read = tax_copy_huge},
	{"put_quiet", PERF_BANDWIDTH, HUGE, DIRECT(default_placed), tax_placed, LONG_WINDOW, .passive = true,
         .than = defaults},
	{"get", PERF_BANDWIDTH, HUGE, DIRECT(default_gets), tax_gets, LONG_WINDOW, .passive = true, .than = defaults},
	{"send", PERF_BANDWIDTH, HUGE, DIRECT(messages), tax_messages, LONG_WINDOW, .passive = false,
         .than = "ucp_tag"},
	{"send", PERF_BANDWIDTH, HUGE, 0, tax_messages, LONG_WINDOW, .passive = false, .than = "process_vm_readv",
         .read = tax_read},
	{"send", PERF_BANDWIDTH, HUGE, 0, tax_messages, LONG_WINDOW, .passive = false, .than = "memcpy",
         .read = tax_copy_huge},
	{"send", PERF_BANDWIDTH, LARGE, 0, tax_messages_large, LONG_WINDOW, .passive = false,
         .than = "process_vm_readv", .read = tax_read_large},
	{"send", PERF_BANDWIDTH, LARGE, 0, tax_messages_large, LONG_WINDOW, .passive = false, .than = "memcpy",
         .read = tax_copy_messages_large},
};

/* With --wait; the last leaves a descriptor that costs. */
static const struct tax_kind sleeping[] = {
	{"send", PERF_LATENCY, 8, DIRECT(wakes), tax_wakes, 2, .passive = false, .in = "xport_wait"},
	{"send", PERF_LATENCY, 8, DIRECT(wakes), tax_fd_wakes, 2, .passive = false, .in = "xport_fd"},
};

enum { PAIRS = 40, CALLS = 200 };
#define LIMIT_NS UINT64_C(25000000000)

static const struct perf_options *options;
static json_t *rows, *setup;
static int figures, missing;

/* ---- the baseline ---- */

static bool has_baseline(const char *provider)
{
	static const char *const known[] = {"ucx:tcp", "ucx:shm", "ofi:tcp",        "ofi:sockets",
	                                    "ofi:net", "ofi:shm", "ofi:tcp;ofi_rxm"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(provider, known[i]) == 0)
			return true;
	return strncmp(provider, "verbs:", strlen("verbs:")) == 0;
}

/* Beside the library that is running, else where it was installed, or built. */
static void *open_module(const char *name, char *path, size_t len)
{
	const char *slash;
	Dl_info self;
	void *module = NULL;

	if (dladdr((void *)(uintptr_t)xport_open, &self) != 0 && self.dli_fname != NULL && self.dli_fname[0] == '/') {
		slash = strrchr(self.dli_fname, '/');
		snprintf(path, len, "%.*s/libxport/xport_tax_%s.so", (int)(slash - self.dli_fname), self.dli_fname,
		         name);
		module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	if (module == NULL) {
		snprintf(path, len, "%s/xport_tax_%s.so", XPORT_TAX_DIR, name);
		module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return module;
}

/* It stays until the process ends: a stack may have threads. */
static const struct pair_baseline *tax_find(const char *provider)
{
	const struct pair_baseline *baseline;
	char name[16], path[1024];
	void *module;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(provider, ":"), provider);
	module = open_module(name, path, sizeof(path));
	if (module == NULL) {
		fprintf(stderr, "xport_perf: cannot load the direct calls for %s: %s\n", name, dlerror());
		_exit(1);
	}
	baseline = dlsym(module, "xport_tax_baseline");
	if (baseline == NULL || baseline->size != sizeof(struct pair)) {
		fprintf(stderr, "xport_perf: %s belongs to another version\n", path);
		_exit(1);
	}
	return baseline;
}

/* ---- showing ---- */

/* Not every stack has all of it.  What is of no stack goes within one host; and its steps, those of a window that slides, and
 * those of a second connection are not looked at one by one. */
static bool written(const struct pair *p, const struct tax_kind *k)
{
	if (options->tax == PERF_TAX_STEPS && (k->read != NULL || k->sliding || k->than == defaults))
		return false;
	if (k->than == defaults && strcmp(p->beside, "ucx:tcp") != 0)
		return false;
	return k->read != NULL ? pair_is_local(p->provider)
	                       : *(const pair_work *)((const char *)p->baseline + k->direct) != NULL;
}

static bool tax_wanted(const struct tax_kind *k)
{
	return options->tests[perf_test_of(k->test) - perf_tests] && options->measures[k->measure];
}

static void head(void)
{
	if (options->json)
		return;
	printf("# the portability tax over %s: direct calls, and through libxport, in the same two processes\n"
	       "# a ratio above 1 means, of a latency: slower than direct; of a rate or a bandwidth: faster\n",
	       options->backend);
	if (options->beside != NULL)
		printf("# the direct calls go over %s\n", options->beside);
	if (options->tax == PERF_TAX_STEPS)
		printf("# single steps: the least and the median of all\n");
	else
		printf("# batches in turn; medians of the undisturbed pairs; the last columns count these\n"
		       " %-10s %-10s %9s %14s %12s %8s %8s %8s %11s %s\n",
		       "#test", "measure", "#bytes", "t_direct[ns]", "t_ours[ns]", "ratio", "p25", "p75", "pairs",
		       "near/apart/far");
}

static void row(const struct tax_result *r)
{
	const struct tax_kind *k = r->kind;

	if (!options->json)
		printf(" %-10s %-10s %9llu %14.1f %12.1f %8.3f %8.3f %8.3f %5ld/%-5ld %ld/%ld/%ld%s%s%s%s%s\n", k->test,
		       perf_measure_names[k->measure], (unsigned long long)k->size, r->direct, r->ours, r->ratio[1],
		       r->ratio[0], r->ratio[2], r->accepted, r->pairs, r->regimes[0], r->regimes[1], r->regimes[2],
		       k->in != NULL ? "  asleep in " : "", k->in != NULL ? k->in : "",
		       k->than != NULL ? "  beside " : "", k->than != NULL ? k->than : "",
		       k->sliding ? "  sliding" : "");
	json_array_append_new(rows, json_pack("{ss ss* ss* sb ss sI sf sf s{sf sf sf} si si s{si si si}}", "test",
	                                      k->test, "asleep_in", k->in, "than", k->than, "sliding", k->sliding,
	                                      "measure", perf_measure_names[k->measure], "size", (json_int_t)k->size,
	                                      "direct_ns", r->direct, "ours_ns", r->ours, "ratio", "p25", r->ratio[0],
	                                      "p50", r->ratio[1], "p75", r->ratio[2], "pairs", (int)r->pairs,
	                                      "accepted", (int)r->accepted, "cores", "near", (int)r->regimes[0],
	                                      "apart", (int)r->regimes[1], "far", (int)r->regimes[2]));
}

/* ---- the two ways, and what both processes do ---- */

static long pairs_wanted(void)
{
	return options->count > 0 ? (long)options->count : PAIRS;
}

static void in_batches(struct pair *p, const struct tax_kind *k)
{
	struct tax_result r;
	bool good = tax_batches(p, k, pairs_wanted(), options->duration_ns > 0 ? options->duration_ns : LIMIT_NS, &r);

	if (p->id != 0)
		return;
	figures += good;
	missing += !good;
	if (good)
		row(&r);
	else
		fprintf(stderr, "xport_perf: %s, %s: only %ld of %ld pairs of batches were undisturbed: no result\n",
		        k->test, perf_measure_names[k->measure], r.accepted, r.pairs);
}

static void in_steps(struct pair *p, const struct tax_kind *k)
{
	double least[2], median[2];
	bool latency = k->measure == PERF_LATENCY;

	tax_steps(p, k, pairs_wanted(), least, median);
	if (p->id != 0)
		return;
	figures++;
	printf(" %-10s %-10s %9llu least: direct %9.1f ns  ours %9.1f ns  ratio %.3f  median: direct %9.1f ns  ours "
	       "%9.1f ns  "
	       "ratio %.3f\n",
	       k->test, perf_measure_names[k->measure], (unsigned long long)k->size, least[0], least[1],
	       latency ? least[1] / least[0] : least[0] / least[1], median[0], median[1],
	       latency ? median[1] / median[0] : median[0] / median[1]);
}

/* What holds for the two processes, instead of the threads that the options would ask for. */
static json_t *setup_of(struct pair *p)
{
	json_t *all = perf_setup(p->x, p->ep, options, 1);

	json_object_update_new(all, json_pack("{s[ii] sb}", "threads_on_cores", atomic_load(&p->sh->core[0]),
	                                      atomic_load(&p->sh->core[1]), "sleeps", options->wait));
	return all;
}

static void tax_work(struct pair *p)
{
	const struct tax_kind *kind = options->wait ? sleeping : kinds;
	size_t n = options->wait ? sizeof(sleeping) / sizeof(sleeping[0]) : sizeof(kinds) / sizeof(kinds[0]);

	if (options->wait && !p->baseline->can_sleep(p)) {
		if (p->id == 0)
			fprintf(stderr, "xport_perf: the direct calls over %s have no descriptor to wait on\n",
			        p->beside);
		missing++;
		return;
	}
	pair_pin(p);
	tax_ready(p);
	pair_barrier(p);
	if (p->id == 0) {
		setup = setup_of(p);
		head();
	}
	for (size_t i = 0; i < n; i++)
		if (tax_wanted(&kind[i]) && written(p, &kind[i]))
			(options->tax == PERF_TAX_STEPS ? in_steps : in_batches)(p, &kind[i]);
}

static bool write_json(void)
{
	json_t *whole = perf_json_tax(options, setup, rows);
	bool good = whole != NULL && perf_json_write(whole, stdout);

	json_decref(whole);
	if (!good)
		fprintf(stderr, "xport_perf: the JSON cannot be written\n");
	return good;
}

int perf_tax(const struct perf_options *o)
{
	const char *beside = o->beside != NULL ? o->beside : o->backend;
	bool count = o->tax == PERF_TAX_COUNT;
	int rc;

	options = o;
	if (o->backend == NULL || !has_baseline(beside)) {
		fprintf(stderr,
		        "xport_perf: --tax needs a provider with direct calls: %s with ucx:tcp, ucx:shm, ofi:tcp, "
		        "ofi:sockets, ofi:net, ofi:shm, ofi:tcp;ofi_rxm or verbs:DEVICE\n",
		        o->beside != NULL ? "--beside" : "-B");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	tax_calls = o->count > 0 ? (long)o->count : CALLS;
	rows = json_array();
	rc = pair_run(o->backend, beside, tax_find, count ? tax_count : tax_work);
	if (rc != 0 || count)
		return rc;
	if (figures + missing == 0)
		fprintf(stderr, "xport_perf: --tax has none of what -t and -m request: it has only %s\n",
		        options->wait ? "the latency of send"
		                      : "send, put, put_local, put_quiet, put_notify, get and fetch_add");
	if (missing > 0 || figures == 0)
		return 1;
	return o->json && !write_json() ? 1 : 0;
}
