/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - steps: orders out, gradients in, and again if a worker was lost meanwhile. */
#include <stdio.h>

#include "crew.h"
#include "load.h"
#include "parameter_server.h"

enum { END_MS = 5000 };

static struct ps_crew crew;

static int wait_for_workers(const struct ps_options *o)
{
	double until = ps_now_s() + (double)o->patience_s;

	while (ps_crew_here(&crew) < o->workers) {
		if (!ps_crew_poll(&crew, 100))
			return PS_EXIT_FAILED;
		if (ps_now_s() > until) {
			fprintf(stderr,
			        "parameter_server: %u of %llu workers came in %llu s: start them, or wait longer by "
			        "--patience\n",
			        ps_crew_here(&crew), (unsigned long long)o->workers, (unsigned long long)o->patience_s);
			return PS_EXIT_LOST;
		}
	}
	printf("parameter_server: beginning with %u workers\n", ps_crew_here(&crew));
	return fflush(stdout) == 0 ? PS_EXIT_DONE : PS_EXIT_FAILED;
}

static int gather(const struct ps_options *o)
{
	while (ps_crew_busy(&crew)) {
		if (!ps_crew_poll(&crew, 100))
			return PS_EXIT_FAILED;
		if (crew.late == NULL)
			continue;
		fprintf(stderr,
		        "parameter_server: %s lives, but has not answered its order for %llu s: end it, or wait "
		        "longer by --patience\n",
		        crew.late->name, (unsigned long long)o->patience_s);
		return PS_EXIT_LOST;
	}
	return PS_EXIT_DONE;
}

/* What a lost worker has pushed may be half a gradient, so the whole step is done again, by those who are left. */
static int step(const struct ps_options *o, uint64_t number)
{
	int rc;

	do {
		if (!ps_crew_order(&crew, number))
			return PS_EXIT_LOST;
		rc = gather(o);
	} while (rc == PS_EXIT_DONE && crew.torn);
	return rc;
}

static int learn(const struct ps_options *o)
{
	int rc = PS_EXIT_DONE;

	for (uint64_t i = 0; i < o->plan.steps && rc == PS_EXIT_DONE; i++) {
		rc = step(o, i);
		if (rc == PS_EXIT_DONE) {
			ps_step(&o->plan, ps_crew_sums(&crew), crew.weights.base);
			rc = ps_crew_publish(&crew) ? PS_EXIT_DONE : PS_EXIT_FAILED;
		}
	}
	return rc;
}

/* Each worker reads or gets the parameters once in a step, and pushes as many words. */
static void report_load(const struct ps_options *o, uint64_t steps, double bytes, double seconds)
{
	printf("load: %u workers, %llu parameters, %s, %s: %llu steps in %.2f s, %.1f steps/s, %.4g bytes/s\n",
	       ps_crew_here(&crew), (unsigned long long)o->plan.parameters, o->plan.add ? "fetch-add" : "put+notify",
	       o->broadcast ? "broadcast" : "versioned get", (unsigned long long)steps, seconds,
	       (double)steps / seconds, bytes / seconds);
}

static int load(const struct ps_options *o)
{
	double begin = ps_now_s(), end = begin + (double)o->load_s, bytes = 0;
	uint64_t steps = 0;

	for (; ps_now_s() < end; steps++) {
		int rc = step(o, steps);

		if (rc != PS_EXIT_DONE)
			return rc;
		if (!ps_load_sums_right(&o->plan, ps_crew_sums(&crew))) {
			fprintf(stderr,
			        "parameter_server: step %llu: the gradients that arrived are not those that "
			        "were pushed\n",
			        (unsigned long long)steps);
			return PS_EXIT_FAILED;
		}
		bytes += (double)ps_crew_here(&crew) * (double)o->plan.parameters * 16;
		ps_load_weights(&o->plan, steps + 1, crew.weights.base);
		if (!ps_crew_publish(&crew))
			return PS_EXIT_FAILED;
	}
	report_load(o, steps, bytes, ps_now_s() - begin);
	return PS_EXIT_DONE;
}

/* The workers close their ends when they have heard that it is over. */
static void say_goodbye(void)
{
	double until = ps_now_s() + END_MS / 1000.0;

	ps_crew_end(&crew);
	while (ps_crew_here(&crew) > 0 && ps_now_s() < until)
		if (!ps_crew_poll(&crew, 100))
			return;
}

int ps_server(const struct ps_options *o)
{
	int rc = PS_EXIT_FAILED;

	if (ps_crew_open(&crew, o) && ps_crew_publish(&crew))
		rc = wait_for_workers(o);
	if (rc == PS_EXIT_DONE)
		rc = o->plan.load ? load(o) : learn(o);
	if (rc == PS_EXIT_DONE)
		say_goodbye();
	if (rc == PS_EXIT_DONE && !o->plan.load && !ps_report(&o->plan, crew.weights.base))
		rc = PS_EXIT_FAILED;
	ps_crew_close(&crew);
	return rc == PS_EXIT_DONE && fflush(stdout) != 0 ? PS_EXIT_FAILED : rc;
}
