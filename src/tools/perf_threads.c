/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_threads.c - see perf_threads.h. */
#include "tools/perf_threads.h"

#include <stdlib.h>

bool perf_threads_init(struct perf_threads *threads, const struct perf_options *o, int n)
{
	*threads = (struct perf_threads){.options = o,
	                                 .lock = PTHREAD_MUTEX_INITIALIZER,
	                                 .gate = PTHREAD_COND_INITIALIZER,
	                                 .members = calloc((size_t)n, sizeof(*threads->members))};
	if (threads->members == NULL)
		return false;
	threads->n = n;
	for (int i = 0; i < n; i++)
		threads->members[i].threads = threads;
	return true;
}

static void threads_give_up(struct perf_threads *threads)
{
	pthread_mutex_lock(&threads->lock);
	atomic_store(&threads->stop, true);
	pthread_cond_broadcast(&threads->gate);
	pthread_mutex_unlock(&threads->lock);
}

bool perf_threads_meet(struct perf_threads *threads)
{
	unsigned opened;

	pthread_mutex_lock(&threads->lock);
	opened = threads->opened;
	if (++threads->waiting == threads->n) {
		threads->waiting = 0;
		threads->opened++;
		pthread_cond_broadcast(&threads->gate);
	}
	while (threads->opened == opened && !atomic_load(&threads->stop))
		pthread_cond_wait(&threads->gate, &threads->lock);
	pthread_mutex_unlock(&threads->lock);
	return !atomic_load(&threads->stop);
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
		job.member->stream.failed = true;
		threads_give_up(job.member->threads);
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
static bool threads_complain(const struct perf_threads *threads)
{
	const struct perf_stream *failed = NULL;

	for (int i = 0; i < threads->n; i++) {
		const struct perf_stream *l = &threads->members[i].stream;

		if (l->failed && l->text[0] != '\0' && (failed == NULL || !l->stopped))
			failed = l;
	}
	fflush(stdout);
	if (failed != NULL)
		perf_stream_complain(failed);
	else
		fprintf(stderr, "xport_perf: a thread could not be started\n");
	return false;
}

bool perf_threads_run(struct perf_threads *threads, bool (*work)(struct perf_member *m))
{
	int started;

	for (started = 1; started < threads->n; started++) {
		struct perf_member *m = &threads->members[started];
		struct job *job = make_job(m, work);

		if (job == NULL || pthread_create(&m->thread, NULL, in_thread, job) != 0) {
			free(job);
			threads_give_up(threads);
			break;
		}
	}
	if (started == threads->n && !work(&threads->members[0])) {
		threads->members[0].stream.failed = true;
		threads_give_up(threads);
	}
	for (int i = 1; i < started; i++)
		pthread_join(threads->members[i].thread, NULL);
	return !atomic_load(&threads->stop) || threads_complain(threads);
}

void perf_threads_free(struct perf_threads *threads)
{
	free(threads->members);
}
