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

/* Whether a post is to be tried again.  Meanwhile the worker may get lost. */
static bool again(struct ps_member *m, int status)
{
	return status == XPORT_ERR_AGAIN && ps_crew_poll(m->crew, 10) && m->state != PS_ABSENT;
}

static bool send_to(struct ps_member *m, const void *bytes, size_t len, uint64_t tag)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = m};
	int r;

	do
		r = xport_send(m->ep, bytes, len, tag, &opt);
	while (again(m, r));
	return posted(m, r);
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
	struct xport_opt opt = {.size = sizeof(opt), .context = m, .source = m->ep};
	struct ps_crew *crew = m->crew;
	const struct ps_plan *p = &crew->o->plan;
	struct ps_welcome *w = &m->welcome;

	*w = (struct ps_welcome){.plan = *p, .parameters = crew->object_key, .sums = crew->sums_key};
	w->rank = (uint32_t)(m - crew->members);
	/* With fetch-add the slot takes notifications alone. */
	if (!ps_region_make(crew->x, &m->slot, p->add ? 8 : p->parameters * sizeof(int64_t), XPORT_REMOTE_WRITE,
	                    &w->slot))
		lose(m, "there is no memory for its gradients");
	else if (posted(m, xport_recv(crew->x, &m->ready, sizeof(m->ready), PS_TAG_READY, UINT64_MAX, &opt)))
		(void)send_to(m, w, sizeof(*w), PS_TAG_WELCOME);
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

static void take_ready(struct ps_member *m, const struct xport_completion *c)
{
	size_t bytes = m->crew->o->plan.parameters * sizeof(double);

	if (c->status != XPORT_OK)
		return; /* an event of the endpoint says why */
	if (c->length != sizeof(m->ready) ||
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

	do
		r = xport_put_notify(m->ep, crew->weights.base, crew->o->plan.parameters * sizeof(double),
		                     m->parameters, 0, &opt);
	while (again(m, r));
	return posted(m, r);
}

void ps_member_order(struct ps_member *m, bool broadcast)
{
	m->busy = m->order.what == PS_WORK;
	if (!broadcast || put_parameters(m))
		(void)send_to(m, &m->order, sizeof(m->order), PS_TAG_ORDER);
}

/* ---- what comes ---- */

void ps_member_completed(struct ps_member *m, const struct xport_completion *c)
{
	m->pending--;
	if (m->state == PS_ABSENT)
		return;
	if (c->type == XPORT_OP_RECV)
		take_ready(m, c);
	else if (c->status != XPORT_OK)
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
		m->busy = false;
	} else {
		lose(m, "it pushes what it was not asked for");
	}
}
