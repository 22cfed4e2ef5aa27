/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chaos.c - a back end for tests. It wraps any other and does, from a seed, what a network may do: it delays,
 * completes late and out of order, returns AGAIN, refuses memory, loses connections, and ends the process.
 *
 *   XPORT_BACKEND=chaos:ucx:tcp  XPORT_CHAOS=seed=7,delay=30,again=20
 *
 * All of this is allowed by backend.h: nothing of it may be visible above the core, except an error where one is
 * due. xport_chaos(7) explains the options.
 *
 * The core's state of an endpoint or a key is ours, followed by that of the wrapped back end. Regions have only the
 * wrapped back end's.
 */
#include "chaos.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- open ---- */

/* None that could be chosen for somebody who did not name it. */
static int chaos_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg)
{
	struct xport_candidate c = {
		.name = "chaos",
		.state = XPORT_ABSENT,
		.reason = "XPORT_BACKEND=chaos names no back end for chaos to wrap",
		.hint = "set XPORT_BACKEND=chaos:ucx:tcp, for example, and XPORT_CHAOS as in xport_chaos(7)",
	};

	(void)log;
	emit(arg, &c);
	return XPORT_OK;
}

/* Loads and opens what the provider names, "ucx:tcp". */
static int open_inner(struct xpi_be *be, const struct xpi_be_open_args *args)
{
	static const char hint[] = "set XPORT_BACKEND=chaos:ucx:tcp, for example";
	struct xpi_be_open_args inner = *args;
	const char *colon;
	char name[32];
	int r;

	if (args->provider == NULL)
		return xpi_fail(args->err, XPORT_ERR_NO_BACKEND, 0, NULL, hint,
		                "XPORT_BACKEND=chaos names no back end for chaos to wrap");
	colon = strchr(args->provider, ':');
	snprintf(name, sizeof(name), "%.*s", colon != NULL ? (int)(colon - args->provider) : (int)sizeof(name),
	         args->provider);
	if (strcmp(name, "chaos") == 0)
		return xpi_fail(args->err, XPORT_ERR_NO_BACKEND, 0, NULL, hint, "chaos cannot wrap itself");
	r = args->up->back_end(args, name, &be->ops);
	if (r != XPORT_OK)
		return r;
	inner.provider = colon != NULL ? colon + 1 : NULL;
	inner.options = NULL;
	inner.core = (struct xpi_core *)be;
	inner.up = &chaos_up;
	r = be->ops->open(&inner, &be->be);
	if (r != XPORT_OK)
		return r;
	be->ops->query(be->be, &be->caps);
	snprintf(be->name, sizeof(be->name), "%s:%s", name, be->caps.provider);
	return XPORT_OK;
}

/* 0: no limit. */
static uint64_t limit_min(uint64_t its, uint64_t limit)
{
	return limit != 0 && (its == 0 || limit < its) ? limit : its;
}

/* The choices of the seed that hold for the whole life. */
static void seed_choices(struct xpi_be *be)
{
	static atomic_uint instances;
	const struct chaos_profile *m = be->config.profile;

	be->dice.state = (uint64_t)be->config.seed << 32 | atomic_fetch_add(&instances, 1);
	chaos_roll(&be->dice);
	/* No network in particular is now one, now the other. */
	be->ordered = be->caps.am_after_put && m->keeps_order && (m != chaos_profiles || chaos_hit(&be->dice, 50));
	be->am_max = limit_min(be->caps.am_max, m->am_max);
	be->rma_max = limit_min(be->caps.rma_max, m->rma_max);
	be->put_short = !be->ordered ? 0 : m->put_short < be->caps.put_short ? m->put_short : be->caps.put_short;
}

static int chaos_open(const struct xpi_be_open_args *args, struct xpi_be **out)
{
	struct xpi_be *be = calloc(1, sizeof(*be));
	int r;

	if (be == NULL)
		return xpi_fail(args->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance of chaos");
	be->core = args->core;
	be->up = args->up;
	be->log = args->log;
	be->err = args->err;
	be->now = 1;
	xpi_list_init(&be->held);
	xpi_list_init(&be->out);
	xpi_list_init(&be->late);
	xpi_list_init(&be->frames);
	r = chaos_config_read(args->options, &be->config, args->err);
	if (r == XPORT_OK)
		r = open_inner(be, args);
	if (r != XPORT_OK) {
		free(be);
		return r;
	}
	seed_choices(be);
	xpi_log(be->log, XPORT_LOG_INFO, "4001", "chaos around %s: seed=%u profile=%s", be->name, be->config.seed,
	        be->config.profile->name);
	*out = be;
	return XPORT_OK;
}

static void chaos_close(struct xpi_be *be)
{
	be->ops->close(be->be);
	chaos_forget(be, NULL);
	free(be);
}

/* ---- query ---- */

static size_t with_ours(size_t ours, size_t its)
{
	return ((ours + 15) & ~(size_t)15) + its;
}

static void chaos_query(struct xpi_be *be, struct xpi_be_caps *c)
{
	const struct chaos_profile *m = be->config.profile;

	*c = be->caps;
	snprintf(c->provider, sizeof(c->provider), "%.47s", be->name);
	snprintf(c->protocol, sizeof(c->protocol), "chaos 1 / %.37s", be->caps.protocol);
	c->ep_size = with_ours(sizeof(struct chaos_ep), be->caps.ep_size);
	c->rkey_size = with_ours(sizeof(struct chaos_rkey), be->caps.rkey_size);
	c->am_max = be->am_max;
	c->am_credits = (unsigned)limit_min(c->am_credits, m->am_credits);
	c->rma_max = be->rma_max;
	c->put_placed = c->put_placed && m->placed && !m->early;
	c->target_bounds = c->target_bounds && m->bounds;
	c->am_after_put = be->ordered;
	c->drain_places = c->drain_places && !m->early;
	/* It hides mappings. */
	c->passive_target = c->passive_target && m->passive && (c->put_placed || c->drain_places);
	c->put_short = be->put_short;
	c->nic_atomic = c->nic_atomic && m->atomics;
	if (m->clock && c->poll_ms == 0)
		c->poll_ms = 1;
}

extern const struct xpi_backend xpi_backend_chaos;

XPI_EXPORT_BACKEND(chaos) = {
	.abi = XPI_BACKEND_ABI,
	.name = "chaos",
	.list = chaos_list,
	.open = chaos_open,
	.close = chaos_close,
	.query = chaos_query,
	.mr_reg = chaos_mr_reg,
	.mr_alloc = chaos_mr_alloc,
	.mr_dereg = chaos_mr_dereg,
	.rkey_pack = chaos_rkey_pack,
	.rkey_unpack = chaos_rkey_unpack,
	.rkey_destroy = chaos_rkey_destroy,
	.address = chaos_address,
	.ep_connect = chaos_ep_connect,
	.ep_mark = chaos_ep_mark,
	.ep_quiesce = chaos_ep_quiesce,
	.ep_destroy = chaos_ep_destroy,
	.am_send = chaos_am_send,
	.am_send_two = chaos_am_send_two,
	.put = chaos_put,
	.get = chaos_get,
	.atomic = chaos_atomic,
	.drain = chaos_drain,
	.poll = chaos_poll,
	.fds = chaos_fds,
	.arm = chaos_arm,
};
