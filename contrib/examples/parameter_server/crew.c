/* SPDX-License-Identifier: BSD-3-Clause */
/* crew.c - the server's workers. */
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "member.h"

/* ---- life ---- */

static bool make_memory(struct ps_crew *crew)
{
	const struct ps_plan *p = &crew->o->plan;
	struct xport_versioned_attr attr = ps_versioned(p);
	size_t words = p->parameters * sizeof(int64_t);
	int r;

	crew->added = calloc(p->parameters, sizeof(*crew->added));
	if (crew->added == NULL)
		return ps_failed(crew->x, "the sums", XPORT_ERR_NO_MEMORY);
	if (!ps_region_make(crew->x, &crew->weights, words, 0, NULL) ||
	    !ps_region_make(crew->x, &crew->object, xport_versioned_size(&attr), XPORT_REMOTE_READ,
	                    &crew->object_key) ||
	    !ps_region_over(crew->x, &crew->sums, crew->added, words, p->add ? XPORT_REMOTE_ATOMIC : 0,
	                    p->add ? &crew->sums_key : NULL))
		return false;
	r = xport_versioned_create(crew->object.mr, 0, &attr, &crew->versioned);
	return r == XPORT_OK || ps_service_failed("the parameters", r);
}

static bool listen_there(struct ps_crew *crew)
{
	struct xport_info info = {.size = sizeof(info)};
	char name[256];
	int r = xport_listen(crew->x, crew->o->address, NULL, &crew->listener);

	if (r == XPORT_OK)
		r = xport_listener_name(crew->listener, name, sizeof(name));
	if (r == XPORT_OK)
		r = xport_query(crew->x, &info);
	if (r != XPORT_OK)
		return ps_failed(crew->x, crew->o->address, r);
	printf("parameter_server: serving on %s, over %s:%s\n", name, info.backend, info.provider);
	return fflush(stdout) == 0;
}

bool ps_crew_open(struct ps_crew *crew, const struct ps_options *o)
{
	*crew = (struct ps_crew){.o = o};
	return ps_open(o->backend, &crew->x, &crew->rpcs) && make_memory(crew) && listen_there(crew);
}

void ps_crew_close(struct ps_crew *crew)
{
	for (unsigned i = 0; i < PS_WORKERS_MAX; i++)
		if (crew->members[i].state != PS_ABSENT)
			ps_member_end(&crew->members[i]);
	xport_listener_close(crew->listener);
	(void)xport_rpcs_destroy(crew->rpcs, NULL, NULL, PS_CLOSE_MS);
	xport_versioned_destroy(crew->versioned);
	xport_close(crew->x);
	free(crew->added);
}

/* ---- what comes ---- */

static void take_workers(struct ps_crew *crew)
{
	xport_ep *ep;

	while (xport_accept(crew->listener, 0, &ep) == XPORT_OK)
		ps_member_begin(crew, ep);
}

static void take_event(struct ps_crew *crew, const struct xport_completion *c)
{
	for (unsigned i = 0; i < PS_WORKERS_MAX; i++)
		if (crew->members[i].state != PS_ABSENT && crew->members[i].ep == c->ep) {
			ps_member_event(&crew->members[i], c);
			return;
		}
}

static void take(void *arg, const struct xport_completion *c)
{
	if (c->type <= XPORT_OP_FLUSH)
		ps_member_completed(c->context, c);
	else if (c->type == XPORT_EVENT_INCOMING)
		take_workers(arg);
	else
		take_event(arg, c);
}

bool ps_crew_poll(struct ps_crew *crew, int timeout_ms)
{
	struct xport_rpc_event e = {.size = sizeof(e)};
	int r = xport_rpcs_wait(crew->rpcs, &e, take, crew, timeout_ms);

	if (r == XPORT_OK && e.type == XPORT_RPC_DONE)
		ps_member_replied(e.context, &e);
	return r == XPORT_OK || r == XPORT_ERR_TIMEOUT || ps_service_failed("waiting", r);
}

unsigned ps_crew_here(const struct ps_crew *crew)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PS_WORKERS_MAX; i++)
		n += crew->members[i].state == PS_HERE;
	return n;
}

bool ps_crew_busy(const struct ps_crew *crew)
{
	for (unsigned i = 0; i < PS_WORKERS_MAX; i++) {
		const struct ps_member *m = &crew->members[i];

		if (m->state == PS_HERE && (m->busy || m->pending > 0))
			return true;
	}
	return false;
}

/* ---- a step ---- */

bool ps_crew_publish(struct ps_crew *crew)
{
	int r = xport_versioned_write(crew->versioned, crew->weights.base);

	crew->version += 2;
	return r == XPORT_OK || ps_service_failed("the parameters", r);
}

/*
 * The first parameters are broadcast, so that workers have them with their first order; later ones are read, unless
 * --broadcast.  Nobody is busy, so nobody touches the sums while they are cleared.
 */
bool ps_crew_order(struct ps_crew *crew, uint64_t step)
{
	const struct ps_plan *p = &crew->o->plan;
	bool broadcast = crew->o->broadcast || crew->number == 0;
	uint64_t here = ps_crew_here(crew), k = 0;
	bool now[PS_WORKERS_MAX];

	crew->number++;
	crew->torn = false;
	memset(crew->sums.base, 0, p->parameters * sizeof(int64_t));
	for (unsigned i = 0; i < PS_WORKERS_MAX; i++)
		now[i] = crew->members[i].state == PS_HERE;
	for (unsigned i = 0; i < PS_WORKERS_MAX; i++) {
		struct ps_member *m = &crew->members[i];

		if (!now[i])
			continue;
		if (m->state != PS_HERE) { /* it got lost while the others were given theirs */
			crew->torn = true;
			continue;
		}
		m->order = (struct ps_order){.number = crew->number, .step = step, .what = PS_WORK};
		m->order.from = p->rows * k / here;
		m->order.to = p->rows * ++k / here;
		m->order.version = broadcast ? 0 : crew->version;
		ps_member_order(m, broadcast);
	}
	if (here == 0)
		fprintf(stderr, "parameter_server: all workers are lost: nobody is left to go on\n");
	return here > 0;
}

/* One that came after the order has no part in it. */
static void add_slot(const struct ps_crew *crew, const struct ps_member *m, int64_t *sums)
{
	const int64_t *slot = m->slot.base;

	if (m->state == PS_HERE && m->order.number == crew->number)
		for (uint64_t i = 0; i < crew->o->plan.parameters; i++)
			sums[i] += slot[i];
}

const int64_t *ps_crew_sums(struct ps_crew *crew)
{
	for (unsigned i = 0; i < PS_WORKERS_MAX && !crew->o->plan.add; i++)
		add_slot(crew, &crew->members[i], crew->sums.base);
	return crew->sums.base;
}

void ps_crew_end(struct ps_crew *crew)
{
	crew->ending = true;
	for (unsigned i = 0; i < PS_WORKERS_MAX; i++)
		if (crew->members[i].state == PS_HERE) {
			crew->members[i].order = (struct ps_order){.what = PS_END};
			ps_member_order(&crew->members[i], false);
		}
}
