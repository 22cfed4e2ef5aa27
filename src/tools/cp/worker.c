/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c - a sink in its own thread. */
#include "tools/cp/worker.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* What a source may have asked for at a time: a block or a question and a hole before it for each slot, and the end. */
enum { MOST = 4 * CP_SLOTS };

/* What came, or what is to be answered. */
struct cp_job {
	struct cp_job *next;
	enum { BLOCK, MESSAGE, REFUSAL } kind;
	unsigned slot;
	size_t len;
	uint8_t bytes[]; /* of a message; of REFUSAL a sentence */
};

static void init(struct cp_jobs *jobs)
{
	jobs->first = NULL;
	jobs->last = &jobs->first;
}

static void worker_append(struct cp_jobs *jobs, struct cp_job *job)
{
	job->next = NULL;
	*jobs->last = job;
	jobs->last = &job->next;
}

static struct cp_job *worker_take(struct cp_jobs *jobs)
{
	struct cp_job *job = jobs->first;

	if (job != NULL)
		jobs->first = job->next;
	if (jobs->first == NULL)
		jobs->last = &jobs->first;
	return job;
}

static struct cp_job *job_of(int kind, const void *bytes, size_t len)
{
	struct cp_job *job = malloc(sizeof(*job) + len);

	if (job == NULL)
		return NULL;
	*job = (struct cp_job){.kind = (unsigned)kind, .len = len};
	if (len > 0)
		memcpy(job->bytes, bytes, len);
	return job;
}

static struct cp_job *job_of_message(const struct cp_msg *m)
{
	uint8_t bytes[CP_MESSAGE];

	return job_of(MESSAGE, bytes, cp_msg_write(m, bytes));
}

/* ---- in the worker ---- */

static void hand_back(struct cp_worker *w, struct cp_job *job)
{
	if (job == NULL)
		return; /* out of memory: the source waits until it is ended */
	pthread_mutex_lock(&w->lock);
	worker_append(&w->done, job);
	pthread_mutex_unlock(&w->lock);
	cp_hub_wake(w->link->hub);
}

static void worker_reply(void *arg, const struct cp_msg *m)
{
	hand_back(arg, job_of_message(m));
}

static void worker_refuse(void *arg, const char *text)
{
	hand_back(arg, job_of(REFUSAL, text, strlen(text) + 1));
}

static void do_job(struct cp_worker *w, const struct cp_job *job)
{
	struct cp_msg m;

	if (job->kind == BLOCK)
		cp_sink_block(&w->sink, job->slot);
	else if (cp_msg_read(&m, job->bytes, job->len))
		cp_sink_message(&w->sink, &m);
}

static void *worker_work(void *arg)
{
	struct cp_worker *w = arg;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct cp_job *job = worker_take(&w->todo);

		if (job == NULL) {
			pthread_cond_wait(&w->more, &w->lock);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		do_job(w, job);
		free(job);
		pthread_mutex_lock(&w->lock);
		w->waiting--;
	}
	w->over = true;
	pthread_mutex_unlock(&w->lock);
	cp_hub_wake(w->link->hub);
	return NULL;
}

/* ---- in the thread of the link ---- */

/* Signals are for the thread that knows what they mean. */
static bool worker_start_thread(struct cp_worker *w)
{
	sigset_t all, before;
	bool good;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	good = pthread_create(&w->thread, NULL, worker_work, w) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return good;
}

bool cp_worker_start(struct cp_worker *w, struct cp_link *l, int root, bool sync, const struct cp_observer *see)
{
	const struct cp_sink_answers answers = {worker_reply, worker_refuse, w};

	*w = (struct cp_worker){.link = l};
	init(&w->todo);
	init(&w->done);
	if (!cp_sink_init(&w->sink, l, root, sync, see, &answers))
		return cp_link_fail(l, "out of memory");
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	w->running = worker_start_thread(w);
	if (w->running)
		return true;
	(void)cp_worker_stop(w);
	return cp_link_fail(l, "cannot create a thread");
}

static void worker_forget(struct cp_jobs *jobs)
{
	for (struct cp_job *job; (job = worker_take(jobs)) != NULL;)
		free(job);
}

bool cp_worker_quit(struct cp_worker *w)
{
	bool over;

	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->more);
	over = w->over;
	pthread_mutex_unlock(&w->lock);
	return over;
}

bool cp_worker_stop(struct cp_worker *w)
{
	bool middle;

	if (w->running) {
		(void)cp_worker_quit(w);
		pthread_join(w->thread, NULL);
		w->running = false;
	}
	worker_forget(&w->todo);
	worker_forget(&w->done);
	middle = cp_part_is_open(&w->sink.part);
	cp_sink_fini(&w->sink);
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
	return middle;
}

static void hand_over(struct cp_worker *w, struct cp_job *job)
{
	bool many;

	if (job == NULL) {
		cp_link_fail(w->link, "out of memory");
		return;
	}
	pthread_mutex_lock(&w->lock);
	many = w->waiting >= MOST;
	if (!many) {
		worker_append(&w->todo, job);
		w->waiting++;
		pthread_cond_signal(&w->more);
	}
	pthread_mutex_unlock(&w->lock);
	if (many) {
		free(job);
		cp_link_fail(w->link, "the peer has more requests in flight than allowed");
	}
}

void cp_worker_message(struct cp_worker *w, const struct cp_msg *m)
{
	hand_over(w, job_of_message(m));
}

void cp_worker_block(struct cp_worker *w, unsigned slot)
{
	struct cp_job *job = job_of(BLOCK, NULL, 0);

	if (job != NULL)
		job->slot = slot;
	hand_over(w, job);
}

static void send_answer(struct cp_worker *w, const struct cp_job *job)
{
	struct cp_msg m;

	if (job->kind == REFUSAL) {
		cp_link_fail(w->link, "%s", (const char *)job->bytes);
	} else if (cp_msg_read(&m, job->bytes, job->len)) {
		cp_link_send(w->link, &m);
		w->ended = w->ended || (m.flags & CP_LAST) != 0;
	}
}

void cp_worker_answer(struct cp_worker *w)
{
	struct cp_jobs done;

	pthread_mutex_lock(&w->lock);
	done.first = w->done.first;
	done.last = done.first != NULL ? w->done.last : &done.first;
	init(&w->done);
	pthread_mutex_unlock(&w->lock);
	for (struct cp_job *job; (job = worker_take(&done)) != NULL; free(job))
		send_answer(w, job);
}

bool cp_worker_busy(struct cp_worker *w)
{
	bool busy;

	pthread_mutex_lock(&w->lock);
	busy = w->waiting > 0;
	pthread_mutex_unlock(&w->lock);
	return busy;
}
