/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c - takes orders: gets the parameters, computes the gradient of its rows, pushes it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"
#include "net.h"
#include "parameter_server.h"

enum { BATCH = 32, PLANT_STEP = 5, PAUSE_NS = 200000000 };

static struct worker {
	const struct ps_options *o;
	xport *x;
	xport_rpcs *rpcs;
	xport_ep *ep;
	xport_rkey *slot, *object, *sums; /* at the server */
	xport_versioned_peer *versioned;
	struct ps_region weights, gradient;
	struct ps_rows rows;
	struct ps_welcome welcome;
	bool planted;
	unsigned pending;  /* puts and flushes that have not completed */
	uint64_t notified; /* the order whose parameters were broadcast */
	int failed;        /* a status; XPORT_OK: all is well */
} w;

/* ---- what comes ---- */

static void fail(int status)
{
	if (w.failed == XPORT_OK) {
		w.failed = status;
		ps_failed(w.x, "the server", status);
	}
}

static void take(void *arg, const struct xport_completion *c)
{
	(void)arg;
	if (xport_rpcs_step(w.rpcs, c) != 0)
		return;
	if (c->type == XPORT_EVENT_NOTIFY)
		w.notified = c->tag;
	else if (c->type <= XPORT_OP_FLUSH)
		w.pending--;
	if (c->status != XPORT_OK)
		fail(c->status);
	else if (c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST)
		fail(XPORT_ERR_PEER_CLOSED);
}

static bool reap(void)
{
	struct xport_completion list[BATCH];
	int n = xport_wait(w.x, list, BATCH, xport_rpcs_timeout(w.rpcs));

	for (int i = 0; i < n; i++)
		take(NULL, &list[i]);
	if (n == 0)
		(void)xport_rpcs_step(w.rpcs, NULL);
	if (n < 0)
		fail(n);
	return w.failed == XPORT_OK;
}

/* Its requests are events: an order takes its time, and a handler must not wait. */
static bool offer(const char *method)
{
	int r = xport_rpc_register(w.rpcs, method, NULL, NULL);

	return r == XPORT_OK || ps_service_failed(method, r);
}

/* Waits for a call of the server.  False: the server is lost, or sends something else. */
static bool called(struct xport_rpc_event *e, const char *method, size_t len)
{
	e->size = sizeof(*e);
	while (xport_rpcs_next(w.rpcs, e) != 1)
		if (!reap())
			return false;
	if (e->type == XPORT_RPC_REQUEST && strcmp(e->method, method) == 0 && e->len == len)
		return true;
	fprintf(stderr, "parameter_server: the server is another program: it calls an unknown method\n");
	return false;
}

/* If the server no longer wants the reply, its next event says why: another order, or its end. */
static bool reply(const struct xport_rpc_event *e, const void *payload, size_t len)
{
	int r = xport_rpc_reply(w.rpcs, e->id, XPORT_OK, payload, len);

	if (r == XPORT_OK || r == XPORT_ERR_CANCELED)
		return true;
	if (w.failed == XPORT_OK) {
		w.failed = r;
		ps_service_failed("the server", r);
	}
	return false;
}

/* Takes what a posting function said; false after AGAIN as well, when the post is to be tried again. */
static bool posted(int status, bool completes)
{
	if (status == XPORT_OK)
		w.pending += completes;
	else if (status == XPORT_ERR_AGAIN)
		(void)reap();
	else
		fail(status);
	return status == XPORT_OK;
}

static bool settle(void)
{
	while (w.pending > 0 && w.failed == XPORT_OK)
		(void)reap();
	return w.failed == XPORT_OK;
}

/* ---- joining ---- */

static bool use_keys(void)
{
	const struct ps_plan *p = &w.welcome.plan;
	struct xport_versioned_attr attr = ps_versioned(p);
	size_t words = p->parameters * sizeof(int64_t);
	int r;

	if (!ps_key_use(w.x, w.ep, &w.welcome.slot, p->add ? 8 : words, XPORT_REMOTE_WRITE, &w.slot) ||
	    !ps_key_use(w.x, w.ep, &w.welcome.parameters, xport_versioned_size(&attr), XPORT_REMOTE_READ, &w.object) ||
	    (p->add && !ps_key_use(w.x, w.ep, &w.welcome.sums, words, XPORT_REMOTE_ATOMIC, &w.sums)))
		return false;
	r = xport_versioned_peer_create(w.x, w.ep, w.object, 0, &attr, &w.versioned);
	return r == XPORT_OK || ps_service_failed("the parameters", r);
}

static bool join(void)
{
	struct xport_rpc_event e;
	struct ps_ready ready;
	size_t words;

	if (!called(&e, PS_METHOD_WELCOME, sizeof(w.welcome)))
		return false;
	memcpy(&w.welcome, e.payload, sizeof(w.welcome));
	if (!ps_plan_sound(&w.welcome.plan)) {
		fprintf(stderr, "parameter_server: the server has a plan that is none: it is another version\n");
		return false;
	}
	words = w.welcome.plan.parameters * sizeof(int64_t);
	return use_keys() && ps_region_make(w.x, &w.gradient, words, 0, NULL) &&
	       ps_region_make(w.x, &w.weights, words, XPORT_REMOTE_WRITE, &ready.parameters) &&
	       reply(&e, &ready, sizeof(ready));
}

/* The server may be started after its workers, or be too busy for them all at once. */
static bool connect_there(void)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = PS_HELLO, .private_len = sizeof(PS_HELLO)};
	double until = ps_now_s() + (double)w.o->patience_s;
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	int r;

	attr.private_len -= w.o->plant == PS_PLANT_STRANGER;
	for (;;) {
		r = xport_connect(w.x, w.o->address, &attr, -1, &w.ep);
		if (r == XPORT_OK)
			return true;
		if ((r != XPORT_ERR_REFUSED && r != XPORT_ERR_TIMEOUT) || ps_now_s() > until)
			return ps_failed(w.x, w.o->address, r);
		nanosleep(&pause, NULL);
	}
}

/* ---- the parameters ---- */

static bool read_parameters(const struct ps_order *order)
{
	int r = xport_versioned_peer_read(w.versioned, w.weights.base);

	if (r == XPORT_OK)
		r = xport_versioned_peer_wait(w.versioned, take, NULL, -1);
	if (r != XPORT_OK && w.failed == XPORT_OK) {
		w.failed = r;
		ps_service_failed("reading the parameters", r);
	}
	if (w.failed != XPORT_OK)
		return false;
	if (xport_versioned_peer_version(w.versioned) == order->version)
		return true;
	fprintf(stderr, "parameter_server: the parameters are version %llu, and the order is for %llu\n",
	        (unsigned long long)xport_versioned_peer_version(w.versioned), (unsigned long long)order->version);
	return false;
}

static bool have_parameters(const struct ps_order *order)
{
	if (order->version != 0)
		return read_parameters(order);
	if (w.notified == order->number)
		return true;
	fprintf(stderr, "parameter_server: the order is here, and its parameters are not\n");
	return false;
}

/* ---- the gradient ---- */

static bool compute(const struct ps_order *order)
{
	const struct ps_plan *p = &w.welcome.plan;

	if (p->load == 1) {
		ps_load_gradient(p, order->to - order->from, w.gradient.base);
		if (ps_load_weights_right(p, order->step, w.weights.base))
			return true;
		fprintf(stderr, "parameter_server: step %llu: the parameters are not those of the server\n",
		        (unsigned long long)order->step);
		return false;
	}
	if ((w.rows.x == NULL || w.rows.from != order->from || w.rows.to != order->to) &&
	    !ps_rows_make(&w.rows, p, order->from, order->to)) {
		fprintf(stderr, "parameter_server: out of memory for the data set: take fewer --rows\n");
		return false;
	}
	ps_gradient(&w.rows, w.weights.base, w.gradient.base);
	return true;
}

static bool flush(void)
{
	while (w.failed == XPORT_OK && !posted(xport_flush(w.ep, NULL), true))
		;
	return settle();
}

/* The tests' worker that dies or stops, and if it adds, with half of its gradient added. */
static void plant_end(const struct ps_order *order)
{
	enum ps_plant plant = w.o->plant;

	if ((plant == PS_PLANT_DIE || plant == PS_PLANT_STOP) && order->step == PLANT_STEP && !w.planted) {
		w.planted = true;
		(void)flush();
		raise(plant == PS_PLANT_DIE ? SIGKILL : SIGSTOP);
	}
}

/* By fetch-add, without a completion for each; the flush says that all have been added. */
static bool add(const struct ps_order *order)
{
	struct xport_atomic_args args = {.size = sizeof(args), .op = XPORT_ATOMIC_ADD, .width = 8};
	struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_QUIET};
	const int64_t *gradient = w.gradient.base;
	uint64_t n = w.welcome.plan.parameters;

	for (uint64_t i = 0; i < n && w.failed == XPORT_OK; i++) {
		args.operand = (uint64_t)gradient[i];
		while (w.failed == XPORT_OK &&
		       !posted(xport_atomic(w.ep, &args, w.sums, i * sizeof(int64_t), &opt), false))
			;
		if (i == n / 2)
			plant_end(order);
	}
	return flush();
}

static bool push(const struct ps_order *order)
{
	const struct ps_plan *p = &w.welcome.plan;
	struct xport_opt opt = {.size = sizeof(opt), .mr = w.gradient.mr, .value = order->number};
	size_t bytes = p->add ? 0 : p->parameters * sizeof(int64_t);

	if (p->add == 1 && !add(order))
		return false;
	plant_end(order);
	opt.value += w.o->plant == PS_PLANT_WRONG && order->step == PLANT_STEP;
	while (w.failed == XPORT_OK && !posted(xport_put_notify(w.ep, w.gradient.base, bytes, w.slot, 0, &opt), true))
		;
	if (w.o->plant == PS_PLANT_AFTER && order->step == PLANT_STEP && settle())
		raise(SIGKILL);
	return w.failed == XPORT_OK;
}

/* The tests' worker whose last gradient gets lost. */
static void plant_drop(const struct ps_order *order)
{
	int64_t *gradient = w.gradient.base;

	for (uint64_t i = 0; i < w.welcome.plan.parameters; i++)
		if (w.o->plant == PS_PLANT_DROP && order->step + 1 == w.welcome.plan.steps)
			gradient[i] = 0;
}

/* ---- orders ---- */

static bool obey(const struct ps_order *order)
{
	if (order->from > order->to || order->to > w.welcome.plan.rows) {
		fprintf(stderr, "parameter_server: the order is for rows that there are not\n");
		return false;
	}
	if (!have_parameters(order) || !compute(order))
		return false;
	plant_drop(order);
	return push(order);
}

/* The reply follows the notification of the gradient, and the server finds them in this order (P4). */
static bool work(void)
{
	struct xport_rpc_event e;
	struct ps_order order;

	while (called(&e, PS_METHOD_ORDER, sizeof(order))) {
		memcpy(&order, e.payload, sizeof(order));
		if (order.what == PS_END)
			return reply(&e, NULL, 0);
		if (!obey(&order) || !reply(&e, NULL, 0) || !settle())
			return false;
	}
	return false;
}

int ps_worker(const struct ps_options *o)
{
	int rc = PS_EXIT_FAILED;

	w.o = o;
	if (!ps_open(o->backend, &w.x, &w.rpcs) || !offer(PS_METHOD_WELCOME) || !offer(PS_METHOD_ORDER))
		return PS_EXIT_FAILED;
	if (!connect_there())
		rc = PS_EXIT_LOST;
	else if (join() && work())
		rc = PS_EXIT_DONE;
	else if (w.failed == XPORT_ERR_PEER_LOST || w.failed == XPORT_ERR_PEER_CLOSED)
		rc = PS_EXIT_LOST;
	ps_rows_free(&w.rows);
	xport_versioned_peer_destroy(w.versioned);
	(void)xport_rpcs_destroy(w.rpcs, NULL, NULL, PS_CLOSE_MS);
	if (w.ep != NULL)
		(void)xport_ep_close(w.ep, PS_CLOSE_MS);
	xport_close(w.x);
	return rc;
}
