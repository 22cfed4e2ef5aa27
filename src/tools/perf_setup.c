/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_setup.c - describes a side: versions, back end, variables, machine; also the clock and the cores. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tools/perf.h"

extern char **environ;

enum { VARIABLES = 64 };

uint64_t perf_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

double perf_clock_cost(void)
{
	enum { ROUNDS = 5, READINGS = 1000 };
	double best = 1e9;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t from = perf_now(), ns;

		for (int k = 0; k < READINGS; k++)
			(void)perf_now();
		ns = perf_now() - from;
		best = (double)ns / (READINGS + 1) < best ? (double)ns / (READINGS + 1) : best;
	}
	return best;
}

bool perf_pin(int core)
{
	cpu_set_t one;

	if (core < 0)
		return true;
	CPU_ZERO(&one);
	CPU_SET((size_t)core, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* The n-th of the cores that this process could use when it began; -1: there are fewer. */
static int allowed_core(int n)
{
	static cpu_set_t allowed;
	static bool known;

	/* The main thread asks first, and before it is bound. */
	known = known || sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET((size_t)i, &allowed) && n-- == 0)
			return i;
	return -1;
}

int perf_core_of(const struct perf_options *o, bool server, int thread)
{
	int n = o->self && server ? o->threads + thread : thread;

	if (o->ncores > 0)
		return o->cores[n % o->ncores];
	/* Two processes of one command get in each other's way if they meet on a core. */
	if (!o->self || allowed_core(2 * o->threads - 1) < 0)
		return -1;
	return allowed_core(n);
}

/* ---- the machine ---- */

static json_t *setup_text(const char *s)
{
	json_t *j = json_string(s);

	return j != NULL ? j : json_string("?");
}

static json_t *cpu_model(void)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256], *colon;
	json_t *model = NULL;

	while (f != NULL && model == NULL && fgets(line, sizeof(line), f) != NULL) {
		colon = strchr(line, ':');
		line[strcspn(line, "\n")] = '\0';
		if (colon != NULL && strncmp(line, "model name", strlen("model name")) == 0)
			model = setup_text(colon + 1 + strspn(colon + 1, " "));
	}
	if (f != NULL)
		fclose(f);
	return model != NULL ? model : json_null();
}

static json_t *machine(void)
{
	struct utsname u;

	if (uname(&u) != 0)
		memset(&u, 0, sizeof(u));
	return json_pack("{so so so so sI}", "host", setup_text(u.nodename), "kernel", setup_text(u.release),
	                 "architecture", setup_text(u.machine), "cpu", cpu_model(), "cores",
	                 (json_int_t)sysconf(_SC_NPROCESSORS_ONLN));
}

/* ---- the library ---- */

static json_t *variables(void)
{
	struct xport_variable v[VARIABLES];
	int n = xport_variables(v, sizeof(v[0]), VARIABLES);
	json_t *list = json_array();

	for (int i = 0; i < n && i < VARIABLES; i++)
		json_array_append_new(list, json_pack("{so so ss}", "name", setup_text(v[i].name), "value",
		                                      setup_text(v[i].value != NULL ? v[i].value : v[i].standard),
		                                      "source", v[i].value != NULL ? "environment" : "default"));
	return list;
}

/* What the stacks below read. */
static json_t *environment(void)
{
	static const char *const prefixes[] = {"UCX_", "FI_", "IBV_", "RDMAV_", "MLX4_", "MLX5_", "HFI_", "PSM2_"};
	json_t *all = json_object();

	for (char **e = environ; *e != NULL; e++) {
		const char *equals = strchr(*e, '=');

		for (size_t i = 0; equals != NULL && i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
			if (strncmp(*e, prefixes[i], strlen(prefixes[i])) == 0)
				json_object_setn_new_nocheck(all, *e, (size_t)(equals - *e), setup_text(equals + 1));
	}
	return all;
}

static json_t *setup_path(int p)
{
	return json_string(p == XPORT_NATIVE ? "native" : "emulated");
}

static json_t *paths(const struct xport_info *i, bool registered)
{
	return json_pack("{so so so so so so}", "put", setup_path(registered ? i->put_reg : i->put), "get",
	                 setup_path(registered ? i->get_reg : i->get), "notify", setup_path(i->notify), "atomic",
	                 setup_path(i->atomic), "send", setup_path(i->send), "flush", setup_path(i->flush));
}

/* Which core each thread is bound to; -1: to none. */
static json_t *cores(const struct perf_options *o, int threads)
{
	json_t *list = json_array();

	for (int i = 0; i < threads; i++)
		json_array_append_new(list, json_integer(perf_core_of(o, o->server, i)));
	return list;
}

json_t *perf_setup(xport *x, const xport_ep *ep, const struct perf_options *o, int threads)
{
	struct xport_info i = {.size = sizeof(i)};
	struct xport_ep_info e = {.size = sizeof(e)};
	char backend[80];

	if (xport_query(x, &i) != XPORT_OK || xport_ep_query(ep, &e) != XPORT_OK)
		return NULL;
	snprintf(backend, sizeof(backend), "%s:%s", e.backend, e.provider);
	return json_pack("{so so so so so so sI sI sI sI sI si so so sf so sb}", "version", setup_text(xport_version()),
	                 "machine", machine(), "backend", setup_text(backend), "device", setup_text(e.device), "stack",
	                 setup_text(i.stack), "paths", paths(&i, o->memory != PERF_ALLOCATED), "eager_max",
	                 (json_int_t)i.eager_max, "frame_max", (json_int_t)i.frame_max, "queue_depth",
	                 (json_int_t)i.queue_depth, "stack_threads", (json_int_t)i.stack_threads, "peer_timeout_ms",
	                 (json_int_t)i.peer_timeout_ms, "pid", (int)getpid(), "variables", variables(), "environment",
	                 environment(), "clock_ns", perf_clock_cost(), "threads_on_cores", cores(o, threads), "sleeps",
	                 o->wait || i.stack_threads > 0);
}
