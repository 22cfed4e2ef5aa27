/* SPDX-License-Identifier: BSD-3-Clause */
/* transport.c - opening and closing one back end of an instance. */
#include "core/object/transport.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/signals.h"
#include "core/config/registry.h"
#include "core/config/select.h"
#include "core/object/mr.h"
#include "core/object/place.h"
#include "core/object/set.h"
#include "core/object/wakeup.h"

enum { FORGIVE_MS = 2000 };

static int fits(struct xpi_transport *tp)
{
	const char *contradiction = xpi_registry_contradiction(tp->ops, &tp->caps);

	if (contradiction == NULL)
		return XPORT_OK;
	return xpi_fail(&tp->x->err, XPORT_ERR_INCOMPATIBLE, 0, NULL,
	                "this is a mistake of the back end, see backend.h", "%s:%s cannot be used: %s", tp->ops->name,
	                tp->caps.provider, contradiction);
}

/* Whether the back end's state fits an endpoint whose transport was not agreed when it was made. */
static int transport_fits_endpoint(const struct xpi_transport *tp)
{
	if (!xpi_several(tp->x) || tp->caps.ep_size <= XPI_EP_BE_MAX)
		return XPORT_OK;
	return xpi_fail(&tp->x->err, XPORT_ERR_INCOMPATIBLE, 0, NULL, "use it alone",
	                "%s:%s needs %zu bytes for each endpoint, and beside others it has %d", tp->ops->name,
	                tp->caps.provider, tp->caps.ep_size, XPI_EP_BE_MAX);
}

static struct xpi_be_open_args open_args(struct xport *x, struct xpi_transport *tp)
{
	return (struct xpi_be_open_args){
		.core = (struct xpi_core *)tp,
		.up = x->set->up,
		.log = x->log,
		.err = &x->err, /* where the back end goes on to describe its failures */
		.peer_timeout_ms = x->settings.peer_timeout_ms,
		.options = x->settings.chaos,
		.shm_dir = x->settings.shm_dir,
		.traffic_class = x->settings.traffic_class,
	};
}

/* An idle one is polled seldom. */
static void transport_warm(struct xpi_transport *tp)
{
	tp->cools = !tp->caps.am_cheap || tp->neps == 0;
	xpi_transport_used(tp);
	xpi_set_stir(tp->x->set);
}

/* A long network needs more frames under way. */
static void transport_lengthen(struct xpi_be_caps *caps, uint32_t flight)
{
	uint32_t frames = (uint32_t)(flight / caps->am_max);

	if (frames > caps->am_credits_max)
		frames = caps->am_credits_max;
	if (frames > caps->am_credits)
		caps->am_credits = frames;
}

/* Takes a back end that was opened for `tp` into the set. On failure it is closed, and `tp` freed. */
static int transport_take(struct xpi_transport *tp, const struct xpi_choice *choice)
{
	struct xport *x = tp->x;
	struct xpi_set *set = x->set;
	int r;

	tp->ops = choice->ops;
	tp->am_send = choice->ops->am_send;
	tp->be = choice->be;
	tp->caps = choice->caps;
	tp->credits = tp->caps.am_credits;
	transport_lengthen(&tp->caps, x->settings.flight);
	xpi_pool_init(&tp->frame_pool, set->frame_head + tp->caps.am_max, 64);
	xpi_list_push(&x->transports, &tp->link);
	r = fits(tp);
	if (r == XPORT_OK)
		r = transport_fits_endpoint(tp);
	if (r != XPORT_OK) {
		xpi_candidate_failed(&set->candidates.list[tp->index], r, x->err.text);
		xpi_transport_close(tp);
		return r;
	}
	transport_warm(tp);
	set->of[tp->index] = set->open[set->nopen++] = tp;
	if (x->tp == NULL) {
		x->tp = tp;
		x->be = tp->be;
		x->poll = tp->ops->poll;
	} else {
		x->be = (struct xpi_be *)set;
		x->poll = xpi_poll_all;
	}
	return XPORT_OK;
}

static struct xpi_transport *transport_new(struct xport *x)
{
	struct xpi_transport *tp = calloc(1, sizeof(*tp));

	if (tp == NULL)
		xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for a transport");
	else
		*tp = (struct xpi_transport){.x = x, .stir = &x->set->alone};
	return tp;
}

static int open_first(struct xport *x)
{
	struct xpi_transport *tp = transport_new(x);
	struct xpi_be_open_args args;
	struct xpi_choice choice;
	int r;

	if (tp == NULL)
		return XPORT_ERR_NO_MEMORY;
	args = open_args(x, tp);
	r = xpi_select(&x->settings, &args, &choice, &x->set->candidates);
	if (r != XPORT_OK) {
		free(tp);
		return r;
	}
	tp->index = (unsigned)choice.candidate;
	return transport_take(tp, &choice);
}

/* With the signals held, and the registry entered. */
static int open_another(struct xport *x, unsigned candidate)
{
	struct xpi_transport *tp = transport_new(x);
	struct xpi_be_open_args args;
	struct xpi_choice choice;
	int r;

	if (tp == NULL)
		return XPORT_ERR_NO_MEMORY;
	args = open_args(x, tp);
	tp->index = candidate;
	r = xpi_select_candidate(&x->settings, &args, &x->set->candidates.list[candidate], &choice);
	if (r != XPORT_OK) {
		free(tp);
		/* Out of memory is no property of the transport. */
		if (r == XPORT_ERR_NO_MEMORY)
			x->set->candidates.list[candidate].state = XPI_CANDIDATE_UNOPENED;
		return r;
	}
	r = transport_take(tp, &choice);
	if (r == XPORT_OK)
		xpi_log(x->log, XPORT_LOG_INFO, "0026", "opened %s:%s (%s, %s) beside %s:%s", tp->ops->name,
		        tp->caps.provider, tp->caps.stack, tp->caps.device, x->tp->ops->name, x->tp->caps.provider);
	return r;
}

static void open_shared(struct xport *x)
{
	struct xpi_candidates *c = &x->set->candidates;

	for (int i = 0; i < c->n; i++) {
		if (!c->list[i].shares_memory || c->list[i].state == XPI_CANDIDATE_FAILED)
			continue;
		if (c->list[i].state == XPI_CANDIDATE_OPEN || open_another(x, (unsigned)i) == XPORT_OK)
			return;
	}
}

int xpi_transport_open(struct xport *x, const struct xpi_core_ops *up, size_t frame_head)
{
	int r;

	x->set = calloc(1, sizeof(*x->set));
	if (x->set == NULL)
		return xpi_fail(&x->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance");
	x->set->x = x;
	x->set->up = up;
	x->set->frame_head = frame_head;
	r = open_first(x);
	if (r == XPORT_OK)
		open_shared(x);
	return r;
}

void xpi_transports_forgive(struct xport *x)
{
	int64_t before = xpi_now_ms() - FORGIVE_MS;

	for (int i = 0; i < x->set->candidates.n; i++) {
		struct xpi_candidate *c = &x->set->candidates.list[i];

		if (c->state == XPI_CANDIDATE_FAILED && c->status == XPORT_ERR_SYSTEM && x->set->of[i] == NULL &&
		    c->failed_ms < before)
			c->state = XPI_CANDIDATE_UNOPENED;
	}
}

struct xpi_transport *xpi_transport_get(struct xport *x, unsigned candidate)
{
	struct xpi_candidate *c = &x->set->candidates.list[candidate];
	struct xpi_transport *tp = x->set->of[candidate];
	sigset_t mask;
	int r;

	if (c->state == XPI_CANDIDATE_FAILED || (tp != NULL && tp->broke != XPORT_OK)) {
		xpi_fail(&x->err, XPORT_ERR_NO_BACKEND, 0, NULL, NULL, "%s is not usable: %s", c->name, c->reason);
		return NULL;
	}
	if (tp != NULL)
		return tp;
	xpi_fd_fill();
	xpi_registry_enter();
	xpi_signals_hold(&mask);
	r = open_another(x, candidate);
	xpi_signals_release(&mask);
	xpi_registry_leave();
	if (r != XPORT_OK && x->err.status == XPORT_OK)
		xpi_fail(&x->err, r, 0, NULL, NULL, "%s cannot be opened", c->name);
	if (r != XPORT_OK)
		return NULL;
	tp = x->set->of[candidate];
	r = xpi_fd_add(x, tp);
	if (r != XPORT_OK) { /* LCOV_EXCL_BR_LINE: by fault alone, where epoll has no room left */
		xpi_candidate_failed(c, r, x->err.text);
		return NULL; /* it stays open, and is not used */
	}
	xpi_mr_know_all(tp);
	xpi_place_again(x);
	return tp;
}

bool xpi_transport_broke(struct xpi_transport *tp, int status)
{
	struct xport *x = tp->x;

	if (!xpi_several(x))
		return false;
	x->be = (struct xpi_be *)x->set;
	x->poll = xpi_poll_all;
	if (tp->broke == XPORT_OK) {
		tp->broke = status;
		x->todo |= XPI_TODO_BROKE;
	}
	/* Its endpoints end by being polled on. */
	tp->hot = tp->neps > 0;
	xpi_set_stir(x->set);
	return true;
}

void xpi_transport_join(struct xpi_transport *tp)
{
	tp->neps++;
	transport_warm(tp);
	if (tp->neps == 1)
		xpi_fd_clock(tp->x);
}

void xpi_transport_quit(struct xpi_transport *tp)
{
	tp->neps--;
	if (tp->neps > 0)
		return;
	if (tp->broke == XPORT_OK) {
		transport_warm(tp);
	} else {
		tp->hot = 0;
		xpi_fd_remove(tp->x, tp);
	}
	xpi_fd_clock(tp->x);
}

void xpi_transport_close(struct xpi_transport *tp)
{
	tp->ops->close(tp->be);
	xpi_list_del(&tp->link);
	xpi_pool_fini(&tp->frame_pool);
	free(tp);
}
