/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker.h - a sink in its own thread. So writing, reading back and syncing run beside the network, and one client's
 * slow disk does not delay another client.
 *
 * The thread of the link passes messages and blocks on (cp_worker_message, cp_worker_block), and sends the sink's
 * answers (cp_worker_answer, when the hub was woken). The sink and its observer belong to the worker until
 * cp_worker_stop has returned.
 */
#ifndef CP_WORKER_H
#define CP_WORKER_H

#include <pthread.h>

#include "tools/cp/sink.h"

struct cp_job;

struct cp_jobs {
	struct cp_job *first, **last;
};

struct cp_worker {
	struct cp_link *link;
	struct cp_sink sink;
	bool running, ended; /* ended: the source's BYE was answered */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	bool stop, over;      /* from here on under the lock; over: the thread does nothing any more */
	unsigned waiting;     /* jobs that are not done */
	struct cp_jobs todo, done;
};

/* `root` stays the caller's. */
bool cp_worker_start(struct cp_worker *w, struct cp_link *l, int root, bool sync, const struct cp_observer *see);
/* It is to begin nothing more, and wakes the hub when it has done what it is doing.  True: it has. */
bool cp_worker_quit(struct cp_worker *w);
/* Waits for what the worker is doing, and forgets what it was to do.  True: it was in the middle of a file. */
bool cp_worker_stop(struct cp_worker *w);
void cp_worker_message(struct cp_worker *w, const struct cp_msg *m);
void cp_worker_block(struct cp_worker *w, unsigned slot);
/* Sends the answers that are there. */
void cp_worker_answer(struct cp_worker *w);
/* Whether it has something to do. */
bool cp_worker_busy(struct cp_worker *w);

#endif
