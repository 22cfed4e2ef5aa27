/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * many_threads - four threads share one instance and one endpoint; a fifth reaps all completions.
 *
 * The server is an instance of its own in the same process.  Its progress thread does all of its work.  The workers
 * count by atomics in the server's memory.  Each waits for its own operation on a semaphore.
 *
 * Where threads need nothing in common, give each its own instance instead: then nothing is locked.
 */
#include <err.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <xport.h>

enum { SECOND = 1000, WORKERS = 4, ROUNDS = 500 };
struct operation { /* what a completion's context points to */
	sem_t done;
	int status;
};
static xport *server, *x;
static xport_ep *ep;
static xport_rkey *rkey;

static void check(xport *instance, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(instance, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

static void *reap(void *arg)
{
	struct xport_completion list[16];

	for (int left = WORKERS * ROUNDS; left > 0;) {
		int n = xport_wait(x, list, 16, -1);

		check(x, n);
		for (int i = 0; i < n; i++) {
			struct operation *op = list[i].context;

			if (list[i].type >= XPORT_EVENT_NOTIFY)
				errx(1, "the connection ended: %s", xport_strerror(list[i].status));
			op->status = list[i].status;
			sem_post(&op->done);
			left--;
		}
	}
	return arg;
}

static void *work(void *arg)
{
	struct xport_atomic_args add = {.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	struct operation op;
	struct xport_opt opt = {.size = sizeof(opt), .context = &op};

	sem_init(&op.done, 0, 0);
	for (int i = 0; i < ROUNDS; i++) {
		check(x, xport_atomic(ep, &add, rkey, 0, &opt));
		while (sem_wait(&op.done) != 0)
			; /* EINTR */
		if (op.status < 0)
			errx(1, "atomic: %s", xport_strerror(op.status));
	}
	return arg;
}

/* Opens the server, which needs no call from now on, and connects to it. */
static void set_up(_Atomic uint64_t *counter)
{
	struct xport_attr of_server = {.size = sizeof(of_server), .progress = "thread"};
	struct xport_attr of_client = {.size = sizeof(of_client), .thread_mode = XPORT_THREAD_MULTIPLE};
	char key[1024], name[64];
	size_t key_len = sizeof(key);
	xport_listener *listener;
	xport_mr *mr;

	check(NULL, xport_open(&of_server, &server));
	check(server, xport_mr_reg(server, counter, sizeof(*counter), XPORT_REMOTE_ATOMIC, &mr));
	check(server, xport_rkey_pack(mr, key, &key_len));
	check(server, xport_listen(server, "127.0.0.1:0", NULL, &listener));
	check(server, xport_listener_name(listener, name, sizeof(name)));
	check(NULL, xport_open(&of_client, &x));
	check(x, xport_connect(x, name, NULL, 10 * SECOND, &ep));
	check(x, xport_rkey_unpack(ep, key, key_len, &rkey));
}

int main(void)
{
	static _Atomic uint64_t counter;
	pthread_t reaper, workers[WORKERS];

	set_up(&counter);
	pthread_create(&reaper, NULL, reap, NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&workers[i], NULL, work, NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	pthread_join(reaper, NULL);
	xport_close(x); /* no thread is in a call any more */
	xport_close(server);
	printf("%d additions by %d threads\n", (int)counter, WORKERS);
	return counter != WORKERS * ROUNDS;
}
