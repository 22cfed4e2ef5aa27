/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_crew.c - see perf_crew.h. */
#include "tools/perf_crew.h"

#include <stdlib.h>

bool perf_crew_init(struct perf_crew *crew, const struct perf_options *o, int n)
{
	*crew = (struct perf_crew){.options = o,
	                           .lock = PTHREAD_MUTEX_INITIALIZER,
	                           .gate = PTHREAD_COND_INITIALIZER,
	                           .members = calloc((size_t)n, sizeof(*crew->members))};
	if (crew->members == NULL)
		return false;
	crew->n = n;
	for (int i = 0; i < n; i++)
		crew->members[i].crew = crew;
	return true;
}

static void give_up(struct perf_crew *crew)
{
	pthread_mutex_lock(&crew->lock);
	atomic_store(&crew->stop, true);
	pthread_cond_broadcast(&crew->gate);
	pthread_mutex_unlock(&crew->lock);
}

bool perf_crew_meet(struct perf_crew *crew)
{
	unsigned opened;

	pthread_mutex_lock(&crew->lock);
	opened = crew->opened;
	if (++crew->waiting == crew->n) {
		crew->waiting = 0;
		crew->opened++;
		pthread_cond_broadcast(&crew->gate);
	}
	while (crew->opened == opened && !atomic_load(&crew->stop))
		pthread_cond_wait(&crew->gate, &crew->lock);
	pthread_mutex_unlock(&crew->lock);
	return !atomic_load(&crew->stop);
}

struct job {
	struct perf_member *member;
	bool (*work)(struct perf_member *m);
};

static void *in_thread(void *arg)
{
	struct job job = *(struct job *)arg;

	free(arg);
	if (!job.work(job.member)) {
		job.member->lane.failed = true;
		give_up(job.member->crew);
	}
	return NULL;
}

static struct job *make_job(struct perf_member *m, bool (*work)(struct perf_member *m))
{
	struct job *job = malloc(sizeof(*job));

	if (job != NULL)
		*job = (struct job){m, work};
	return job;
}

/* What failed first says why; that the others stopped for it does not. */
static bool complain(const struct perf_crew *crew)
{
	const char *text = NULL;

	for (int i = 0; i < crew->n; i++) {
		const struct perf_lane *l = &crew->members[i].lane;

		if (l->failed && l->text[0] != '\0' && (text == NULL || !l->stopped))
			text = l->text;
	}
	fflush(stdout);
	fprintf(stderr, "xport_perf: %s\n", text != NULL ? text : "a thread could not be started");
	return false;
}

bool perf_crew_run(struct perf_crew *crew, bool (*work)(struct perf_member *m))
{
	int started;

	for (started = 1; started < crew->n; started++) {
		struct perf_member *m = &crew->members[started];
		struct job *job = make_job(m, work);

		if (job == NULL || pthread_create(&m->thread, NULL, in_thread, job) != 0) {
			free(job);
			give_up(crew);
			break;
		}
	}
	if (started == crew->n && !work(&crew->members[0])) {
		crew->members[0].lane.failed = true;
		give_up(crew);
	}
	for (int i = 1; i < started; i++)
		pthread_join(crew->members[i].thread, NULL);
	return !atomic_load(&crew->stop) || complain(crew);
}

void perf_crew_free(struct perf_crew *crew)
{
	free(crew->members);
}
