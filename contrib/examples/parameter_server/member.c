/* SPDX-License-Identifier: BSD-3-Clause */
/* member.c - one worker: its coming, its orders, its end. */
#include "member.h"

#include <stdio.h>
#include <string.h>

/* ---- the end ---- */

void ps_member_end(struct ps_member *m)
{
	xport_rkey_destroy(m->parameters);
	m->parameters = NULL;
	(void)xport_ep_close(m->ep, 0);
	xport_rpcs_forget(m->crew->rpcs, m->ep);
	xport_ep_destroy(m->ep);
	m->ep = NULL;
	(void)xport_mr_dereg(m->slot.mr);
	m->slot = (struct ps_region){NULL, NULL};
	m->state = PS_ABSENT;
}

/* What it has of the order under way is lost with it, also if it has pushed: its slot goes, too. */
static void lose(struct ps_member *m, const char *why)
{
	bool part = m->order.number != 0 && m->order.number == m->crew->number;

	if (m->state == PS_ABSENT)
		return;
	if (!m->crew->ending)
		fprintf(stderr, "parameter_server: %s is lost: %s%s\n", m->name, why,
		        part ? "; its rows go to the others" : "");
	m->crew->torn = m->crew->torn || part;
	m->busy = false;
	ps_member_end(m);
}

/* What a posting function said; only operations that were accepted have a completion. */
static bool posted(struct ps_member *m, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status == XPORT_OK) {
		m->pending++;
		return true;
	}
	(void)xport_last_error(m->crew->x, &e);
	lose(m, e.status == status ? e.text : xport_strerror(status));
	return false;
}

static void call(struct ps_member *m, const char *method, struct xport_rpc_args *args)
{
	struct xport_error e = {.size = sizeof(e)};

	args->size = sizeof(*args);
	args->context = m;
	args->deadline_ms = (uint32_t)m->crew->o->patience_s * 1000;
	if (xport_rpc_call(m->crew->rpcs, m->ep, method, args) == XPORT_OK) {
		m->pending++;
		return;
	}
	xport_services_last_error(&e);
	lose(m, e.text);
}

/* ---- coming ---- */

static struct ps_member *free_place(struct ps_crew *crew)
{
	for (unsigned i = 0; i < PS_WORKERS_MAX; i++)
		if (crew->members[i].state == PS_ABSENT && crew->members[i].pending == 0)
			return &crew->members[i];
	return NULL;
}

static bool is_worker(const struct xport_ep_info *info)
{
	return info->private_len == sizeof(PS_HELLO) && memcmp(info->private_data, PS_HELLO, sizeof(PS_HELLO)) == 0;
}

static void welcome(struct ps_member *m)
{
	struct ps_crew *crew = m->crew;
	const struct ps_plan *p = &crew->o->plan;
	struct ps_welcome *w = &m->welcome;
	struct xport_rpc_args args = {
		.payload = w, .len = sizeof(*w), .reply = &m->ready, .reply_max = sizeof(m->ready)};

	*w = (struct ps_welcome){.plan = *p, .parameters = crew->object_key, .sums = crew->sums_key};
	w->rank = (uint32_t)(m - crew->members);
	/* With fetch-add the slot takes notifications alone. */
	if (!ps_region_make(crew->x, &m->slot, p->add ? 8 : p->parameters * sizeof(int64_t), XPORT_REMOTE_WRITE,
	                    &w->slot))
		lose(m, "there is no memory for its gradients");
	else
		call(m, PS_METHOD_WELCOME, &args);
}

void ps_member_begin(struct ps_crew *crew, xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct ps_member *m = free_place(crew);

	if (m == NULL || xport_ep_query(ep, &info) != XPORT_OK || !is_worker(&info)) {
		fprintf(stderr, "parameter_server: a connection is closed: %s\n",
		        m == NULL ? "there are 64 workers already" : "its other end is no worker of this version");
		xport_ep_destroy(ep);
		return;
	}
	*m = (struct ps_member){.crew = crew, .state = PS_COMING, .ep = ep};
	snprintf(m->name, sizeof(m->name), "worker %d (process %lld on %.63s)", (int)(m - crew->members),
	         (long long)info.peer_pid, info.peer_host);
	welcome(m);
}

static void take_ready(struct ps_member *m, size_t len)
{
	size_t bytes = m->crew->o->plan.parameters * sizeof(double);

	if (len != sizeof(m->ready) ||
	    !ps_key_use(m->crew->x, m->ep, &m->ready.parameters, bytes, XPORT_REMOTE_WRITE, &m->parameters))
		lose(m, "it does not begin as a worker does");
	else {
		m->state = PS_HERE;
		printf("parameter_server: %s is here\n", m->name);
		(void)fflush(stdout);
	}
}

/* ---- orders ---- */

/* The worker finds its parameters when it finds the order: both come in the order posted (P4). */
static bool put_parameters(struct ps_member *m)
{
	struct ps_crew *crew = m->crew;
	struct xport_opt opt = {.size = sizeof(opt), .context = m, .mr = crew->weights.mr, .value = m->order.number};
	int r;

	do /* while it polls, the worker may get lost */
		r = xport_put_notify(m->ep, crew->weights.base, crew->o->plan.parameters * sizeof(double),
		                     m->parameters, 0, &opt);
	while (r == XPORT_ERR_AGAIN && ps_crew_poll(crew, 10) && m->state != PS_ABSENT);
	return posted(m, r);
}

void ps_member_order(struct ps_member *m, bool broadcast)
{
	struct xport_rpc_args args = {.payload = &m->order, .len = sizeof(m->order)};

	m->busy = m->order.what == PS_WORK;
	m->pushed = false;
	if (!broadcast || put_parameters(m))
		call(m, PS_METHOD_ORDER, &args);
}

/* ---- what comes ---- */

void ps_member_replied(struct ps_member *m, const struct xport_rpc_event *e)
{
	m->pending--;
	if (m->state == PS_ABSENT)
		return;
	if (e->status == XPORT_ERR_TIMEOUT && m->busy)
		m->crew->late = m;
	else if (e->status != XPORT_OK)
		lose(m, e->why[0] != '\0' ? e->why : xport_strerror(e->status));
	else if (m->state == PS_COMING)
		take_ready(m, e->len);
	else if (m->busy && !m->pushed)
		lose(m, "it replies, and has pushed no gradient");
	else
		m->busy = false;
}

void ps_member_completed(struct ps_member *m, const struct xport_completion *c)
{
	m->pending--;
	if (c->status != XPORT_OK)
		lose(m, xport_strerror(c->status));
}

void ps_member_event(struct ps_member *m, const struct xport_completion *c)
{
	struct xport_error e = {.size = sizeof(e)};
	bool ended = c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED;

	if (ended) {
		(void)xport_last_error(m->crew->x, &e);
		lose(m, e.status == c->status && e.text[0] != '\0' ? e.text : xport_strerror(c->status));
	} else if (c->type == XPORT_EVENT_NOTIFY && m->busy && c->tag == m->order.number) {
		m->pushed = true;
	} else {
		lose(m, "it pushes what it was not asked for");
	}
}
