/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_thread.c - threads, the progress thread, forks: the rules at the top of xport.h. */
#include <poll.h>
#include <sys/wait.h>

#include "harness.h"

enum { LEN = 65536, THREADS = 4, ROUNDS = 400 };

/* ---- the progress thread: the target sleeps and is served all the same ---- */

static void asleep(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_mem m;
	uint8_t *buf = h_buf(h, 1 << 20), *ref = h_buf(h, LEN);
	struct h_op *op;

	a.progress = "thread";
	h_mesh(h, &a);
	m = h_mem_target(h, LEN, 0, H_ALL);
	op = h_recv(h, NULL, buf, 1 << 20, 1, UINT64_MAX);
	h_share(h, 1, &m);
	h_sync(h);
	h->idle = true;
	h_hear_u64(h, 1);
	h->idle = false;
	h_fill(ref, LEN, 3);
	H_TRUE(!memcmp(m.p + 8, ref + 8, LEN - 8));
	H_EQ(7, __atomic_load_n((uint64_t *)(void *)m.p, __ATOMIC_SEQ_CST)); /* written by the thread of the library */
	H_DONE(op);
	H_FILLED(buf, 1 << 20, 4);
	H_EVENT(XPORT_EVENT_NOTIFY);
	h_sync(h);
}

static void visitor(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	uint8_t *big = h_buf(h, 1 << 20), *ref = h_buf(h, LEN);
	uint64_t old = 1;
	int64_t t;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	h_fill(l.p, LEN, 3);
	h_fill(ref, LEN, 3);
	h_fill(big, 1 << 20, 4);
	h_sync(h);
	t = h_now_us();
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, XPORT_LOCAL));
	H_DONE(h_flush(h, h->ep[0]));
	H_DONE(h_atomic(h, h->ep[0], XPORT_ATOMIC_SWAP, 8, 7, 0, &old, &r, 0));
	memset(l.p, 0, LEN);
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0));
	H_EQ(7, *(uint64_t *)l.p);
	H_TRUE(!memcmp(l.p + 8, ref + 8, LEN - 8));
	H_DONE(h_send(h, h->ep[0], big, 1 << 20, 1)); /* long: matched while the target sleeps */
	H_DONE(h_notify(h, h->ep[0], H_AT(l, 0, 0), &r, 0, 1, 0));
	H_CHECK(h_now_us() - t < (int64_t)h_ms(2000) * 1000, "took %" PRId64 " us", h_now_us() - t);
	h_tell_u64(h, 0, 1);
	h_sync(h);
}

/* The initiator sleeps after posting: with the thread its operations end all the same. */
static void post_and_sleep(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_mem l;
	struct h_rkey r;

	a.progress = "thread";
	h_mesh(h, &a);
	l = h_mem_local(h, LEN, 0);
	h_fill(l.p, LEN, 3);
	r = h_import(h, 0);
	for (int i = 0; i < 10; i++)
		h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0);
	h_notify(h, h->ep[0], H_AT(l, 0, 0), &r, 0, 1, 0);
	h->idle = true;
	h_hear_u64(h, 0);
	h->idle = false;
	h_settle(h);
}

static void see_it_land(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	H_EVENT(XPORT_EVENT_NOTIFY);
	H_FILLED(m.p, LEN, 3);
	h_tell_u64(h, 1, 1);
}

/* With the thread the fd still tells the application when there is something to reap. */
static void reap_on_fd(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct pollfd p = {.events = POLLIN};
	struct xport_completion c;
	struct xport_opt o = {.size = sizeof(o)};
	uint64_t in = 0, out;
	int n;

	a.progress = "thread";
	h_mesh(h, &a);
	p.fd = xport_fd(h->x);
	h_sync(h);
	for (uint64_t i = 0; i < 1000; i++) {
		int want = 2;

		out = i;
		H_OK(xport_recv(h->x, &in, 8, 1, UINT64_MAX, &o));
		H_OK(xport_send(h->ep[!h->role], &out, 8, 1, &o));
		while (want) {
			n = xport_poll(h->x, &c, 1);
			H_TRUE(n >= 0);
			want -= n;
			if (n == 0)
				H_CHECK(poll(&p, 1, h_ms(2000)) == 1, "round %" PRIu64 ": lost wake-up", i);
		}
		H_EQ(i, in);
	}
}

/* ---- many threads ---- */

struct worker {
	struct h *h;
	int number;
	struct h_rkey r;
	uint8_t buf[4096];
	pthread_t thread;
	atomic_int done;
};

/* Each thread posts on its own; whoever polls finds the completions of all. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct h *h = w->h;
	struct xport_opt o = {.size = sizeof(o), .context = w};
	struct xport_completion c[8];
	int posted = 0, s, n;

	h_fill(w->buf, sizeof(w->buf), (uint64_t)w->number);
	while (atomic_load(&w->done) < ROUNDS) {
		if (posted < ROUNDS) {
			if (posted % 3 == 2)
				s = xport_send(h->ep[0], w->buf, 100, 1, &o);
			else
				s = xport_put(h->ep[0], w->buf, sizeof(w->buf), w->r.k,
				              w->r.offset + (uint64_t)w->number * sizeof(w->buf), &o);
			posted += s == XPORT_OK;
			if (s != XPORT_OK)
				H_STATUS(XPORT_ERR_AGAIN, s);
		}
		n = posted & 1 ? xport_poll(h->x, c, 8) : xport_wait(h->x, c, 8, 1);
		H_TRUE(n >= 0);
		for (int i = 0; i < n; i++) {
			H_EQ(XPORT_OK, c[i].status);
			atomic_fetch_add(&((struct worker *)c[i].context)->done, 1);
		}
	}
	return NULL;
}

static void multiple(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct worker *w = h_buf(h, THREADS * sizeof(*w));
	struct h_rkey r;

	if (h->param)
		a.progress = "thread";
	else
		a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	H_EQ(XPORT_THREAD_MULTIPLE, h->info.thread_mode);
	r = h_import(h, 0);
	for (int i = 0; i < THREADS; i++) {
		w[i].h = h;
		w[i].number = i;
		w[i].r = r;
		H_TRUE(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	for (int i = 0; i < THREADS; i++)
		H_EQ(ROUNDS, atomic_load(&w[i].done));
	h_run_for(h, 20);
	H_EQ(0, h->nqueue);
	h_sync(h);
}

static void multiple_target(struct h *h)
{
	struct h_mem m;
	char buf[100];

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	for (int i = 0; i < THREADS * (ROUNDS / 3); i++)
		H_DONE(h_recv(h, NULL, buf, sizeof(buf), 1, UINT64_MAX));
	h_sync(h);
	for (uint64_t i = 0; i < THREADS; i++)
		H_FILLED(m.p + i * 4096, 4096, i);
	H_GUARDS(m);
}

/* One thread sleeps in xport_wait, another posts: the sleeper reaps it. */
static void *sleeper(void *arg)
{
	struct h *h = arg;
	struct xport_completion c;
	int n = 0;

	while (n == 0)
		n = xport_wait(h->x, &c, 1, h_ms(5000));
	H_EQ(1, n);
	H_EQ(XPORT_OP_FLUSH, c.type);
	return NULL;
}

static void post_for_sleeper(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_opt o = {.size = sizeof(o)};
	pthread_t t;
	int64_t from, took, starved;

	a.thread_mode = XPORT_THREAD_MULTIPLE;
	h_mesh(h, &a);
	h_run_for(h, 20);
	H_TRUE(pthread_create(&t, NULL, sleeper, h) == 0);
	usleep(100000);
	starved = h_starved_us();
	from = h_now_us();
	H_OK(xport_flush(h->ep[0], &o));
	took = h_now_us() - from;
	H_CHECK(took - (h_starved_us() - starved) < (int64_t)h_ms(500) * 1000,
	        "posting waited for the sleeper: %" PRId64 " us", took);
	pthread_join(t, NULL);
	H_CHECK(h_now_us() - from < (int64_t)h_ms(1500) * 1000, "took %" PRId64 " us", h_now_us() - from);
	h_sync(h);
}

static void plain_target(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
}

/* Instances of their own for each thread: independent. */
static void *whole_life(void *arg)
{
	struct worker *w = arg;
	struct h *h = w->h;
	struct xport_attr a = h_attr(h);
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_completion c;
	char address[80];
	xport *x = NULL;
	xport_listener *l = NULL;
	xport_ep *out = NULL, *in = NULL;
	uint64_t got = 0, word = (uint64_t)w->number;

	for (int round = 0; round < 3; round++) {
		H_OK(xport_open(&a, &x));
		H_OK(xport_listen(x, "127.0.0.1:0", NULL, &l));
		H_OK(xport_listener_name(l, address, sizeof(address)));
		H_OK(xport_connect(x, address, NULL, 0, &out));
		H_OK(xport_accept(l, h_ms(10000), &in));
		do {
			H_EQ(1, xport_wait(x, &c, 1, h_ms(10000)));
		} while (c.type != XPORT_EVENT_CONNECTED);
		for (int i = 0; i < 50; i++) {
			H_OK(xport_recv(x, &got, 8, 1, UINT64_MAX, &o));
			H_OK(xport_send(out, &word, 8, 1, &o));
			for (int left = 2; left;)
				left -= xport_wait(x, &c, 1, h_ms(10000));
			H_EQ(word, got);
		}
		xport_close(x);
	}
	return NULL;
}

static void independent(struct h *h)
{
	struct worker *w = h_buf(h, THREADS * sizeof(*w));

	for (int i = 0; i < THREADS; i++) {
		w[i].h = h;
		w[i].number = i;
		H_TRUE(pthread_create(&w[i].thread, NULL, whole_life, &w[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
}

/* ---- fork ---- */

/* What the child sees: ERR_FORK from everything that would touch the parent's instance. */
static int child_calls(struct h *h, struct h_rkey *r)
{
	struct xport_completion c;
	struct xport_opt o = {.size = sizeof(o)};
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct xport_error e = {.size = sizeof(e)};
	xport_mr *mr;
	uint64_t word = 1;

	if (xport_poll(h->x, &c, 1) != XPORT_ERR_FORK)
		return 1;
	if (xport_wait(h->x, &c, 1, 10) != XPORT_ERR_FORK)
		return 2;
	if (xport_put(h->ep[0], &word, 8, r->k, r->offset, &o) != XPORT_ERR_FORK)
		return 3;
	if (xport_send(h->ep[0], &word, 8, 1, &o) != XPORT_ERR_FORK)
		return 4;
	if (xport_recv(h->x, &word, 8, 1, 1, &o) != XPORT_ERR_FORK)
		return 5;
	if (xport_mr_reg(h->x, &word, 8, 0, &mr) != XPORT_ERR_FORK)
		return 6;
	if (xport_flush(h->ep[0], &o) != XPORT_ERR_FORK)
		return 7;
	if (xport_rkey_query(r->k, &info) != XPORT_ERR_FORK)
		return 8;
	if (xport_last_error(h->x, &e) != XPORT_ERR_FORK)
		return 9;
	return 0;
}

static void forked(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;
	int status;
	pid_t pid;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	pid = fork();
	if (pid == 0) {
		if (h->param == 0)
			_exit(child_calls(h, &r));
		if (h->param == 1)
			execl("/bin/true", "true", (char *)NULL);
		exit(0); /* with all its exit handlers */
	}
	H_TRUE(waitpid(pid, &status, 0) == pid);
	H_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
	/* the parent's connection is as it was */
	for (int i = 0; i < 20; i++) {
		H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
		H_DONE(h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0));
	}
	h_run_for(h, 300);
	H_EQ(0, h->nqueue);
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

static void fork_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_EQ(0, h->nqueue);
}

/* A child may open an instance of its own. */
static void opens_its_own(struct h *h)
{
	struct xport_attr a = h_attr(h);
	xport *y = NULL;
	int status, s;
	pid_t pid;

	h_open(h, NULL);
	xport_close(h->x);
	h->x = NULL;
	pid = fork();
	if (pid == 0) {
		s = xport_open(&a, &y);
		if (s == XPORT_OK)
			xport_close(y);
		_exit(s == XPORT_OK || s == XPORT_ERR_FORK ? 0 : 1);
	}
	H_TRUE(waitpid(pid, &status, 0) == pid);
	H_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
}

static const struct h_param modes[] = {{"multiple", 0}, {"progress_thread", 1}, {NULL, 0}};
static const struct h_param children[] = {{"calls", 0}, {"execs", 1}, {"exits", 2}, {NULL, 0}};

/* Threads of the application read the environment whenever they like, and loading a stack sets variables for it. */
static atomic_bool opened;
static atomic_long seen;

/* As getenv(3) does; that itself is counted in this program, by means of the dynamic linker. */
static void *reader(void *arg)
{
	while (!atomic_load(&opened))
		for (char **e = environ; *e; e++)
			if (!strncmp(*e, "H_OWNED_BY_THE_C_LIBRARY=", 25))
				atomic_fetch_add(&seen, 1);
	return arg;
}

static int opens_beside_a_reader(const struct xport_attr *a)
{
	pthread_t t;
	xport *x = NULL;
	int s;

	atomic_store(&opened, false);
	atomic_store(&seen, 0);
	setenv("H_OWNED_BY_THE_C_LIBRARY", "from now on", 1);
	if (pthread_create(&t, NULL, reader, NULL) != 0)
		return 1;
	while (!atomic_load(&seen)) /* it may be long until it has a processor */
		usleep(1000);
	s = xport_open(a, &x);
	atomic_store(&opened, true);
	pthread_join(t, NULL);
	xport_close(x);
	return s != XPORT_OK ? 2 : 0;
}

static void environment_read(struct h *h)
{
	struct xport_attr a = h_attr(h);
	int status;
	pid_t pid;

	if (h_instrumented()) { /* a child stands still if the harness's thread was allocating when it was forked */
		H_EQ(0, opens_beside_a_reader(&a));
		return;
	}
	for (int i = 0; i < 10; i++) {
		pid = fork();
		H_TRUE(pid >= 0);
		if (pid == 0)
			_exit(opens_beside_a_reader(&a));
		H_TRUE(waitpid(pid, &status, 0) == pid);
		H_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "number %d ended with %x", i, status);
	}
}

const struct h_scenario cases_thread[] = {
	{.name = "P5_sleeping_target_with_progress_thread", .role = {asleep, visitor}, .flags = H_TARGET},
	{.name = "P2_sleeping_initiator_with_progress_thread",
         .role = {see_it_land, post_and_sleep},
         .flags = H_TARGET},
	{.name = "P10_fd_with_progress_thread", .role = {reap_on_fd, reap_on_fd}},
	{.name = "P1_four_threads", .role = {multiple_target, multiple}, .params = modes, .flags = H_TARGET},
	{.name = "P10_post_while_another_waits", .role = {plain_target, post_for_sleeper}},
	{.name = "P14_instance_for_each_thread", .role = {independent}},
	{.name = "P14_environment_read_while_opening", .role = {environment_read}, .flags = H_KILLS | H_ONCE},
	{.name = "P12_forked_child", .role = {fork_target, forked}, .params = children, .flags = H_KILLS},
	{.name = "P12_forked_child_opens", .role = {opens_its_own}, .flags = H_KILLS},
	{.name = NULL},
};
