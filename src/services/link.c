/* SPDX-License-Identifier: BSD-3-Clause */
/* The links of an instance: their life, their events, and the loop that drives them. */
#include "services/link.h"

#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/grow.h"
#include "services/last_error.h"

enum {
	SLICE_MS = 20, /* the longest sleep: another thread may do what is waited for */
	REAP_MS = 1000 /* for completions of endpoints that xport_links_destroy has destroyed */
};

/* ---- the index of endpoints ---- */

static struct svc_link_ep **bucket_of(struct xport_links *links, const xport_ep *ep)
{
	return &links->index[((uintptr_t)ep >> 6) % SVC_LINK_BUCKETS];
}

void svc_link_index(struct svc_link_ep *e)
{
	struct svc_link_ep **bucket = bucket_of(e->link->links, e->ep);

	e->next = *bucket;
	*bucket = e;
}

void svc_link_unindex(struct svc_link_ep *e)
{
	struct svc_link_ep **at = bucket_of(e->link->links, e->ep);

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
}

static struct svc_link_ep *link_ep_find(struct xport_links *links, const xport_ep *ep)
{
	struct svc_link_ep *e = *bucket_of(links, ep);

	while (e != NULL && e->ep != ep)
		e = e->next;
	return e;
}

/* ---- events ---- */

void svc_link_event(struct xport_link *link, struct svc_link_node *node, int type)
{
	struct xport_links *links = link->links;

	node->link = link;
	node->type = type;
	node->next = NULL;
	*links->last = node;
	links->last = &node->next;
}

/* The application has come back, and so no longer uses the event that it took last. */
static void event_over(struct xport_links *links)
{
	if (links->told == NULL)
		return;
	if (links->told->old != NULL)
		links->told->old->taken = true;
	links->told = NULL;
	links->stirred = true;
}

static void fill_op(struct xport_link_event *e, struct svc_link_op *op)
{
	e->status = op->status;
	e->context = op->context;
	e->attempts = op->attempts;
	e->operation = op->type;
	e->length = op->len;
	svc_link_op_free(op);
}

static void fill_ep(struct xport_link_event *e, const struct xport_link *link)
{
	const struct svc_link_ep *at = link->ep != NULL ? link->ep : link->old;

	e->ep = at != NULL ? at->ep : NULL; /* NULL: it is destroyed, because the close was cut short */
	e->address = link->addresses[link->at_address].name;
	e->transport = link->transport;
}

static void fill_event(struct xport_link_event *e, struct svc_link_node *node, int type)
{
	struct xport_link *link = node->link;

	e->context = link->context;
	switch (type) {
	case XPORT_LINK_DONE:
		fill_op(e, (struct svc_link_op *)(void *)node);
		break;
	case XPORT_LINK_UP:
	case XPORT_LINK_PEER_NEW:
		fill_ep(e, link);
		e->incarnation = link->incarnation;
		e->void_keys = svc_link_keys_void(link);
		link->announced = true;
		link->known = link->incarnation;
		svc_link_ops_end_strange(link); /* posted after the event happened, and before it was taken */
		break;
	case XPORT_LINK_DOWN:
		fill_ep(e, link);
		e->status = link->down_status;
		e->text = link->down_why;
		link->links->told = link;
		svc_link_down_taken(link);
		break;
	case XPORT_LINK_GIVEN_UP:
		e->status = link->status;
		e->text = link->round_text;
		svc_link_given_up_taken(link);
		break;
	default:
		e->status = link->closed_status;
		link->links->told = link;
		break;
	}
}

static int links_next_event(struct xport_links *links, struct xport_link_event *e)
{
	struct svc_link_node *node = links->first;
	int type;

	event_over(links);
	if (node == NULL)
		return 0;
	links->first = node->next;
	if (links->first == NULL)
		links->last = &links->first;
	type = node->type;
	node->type = 0;
	e->type = type;
	e->link = node->link;
	e->address = e->transport = e->text = "";
	fill_event(e, node, type);
	return 1;
}

int xport_links_next(xport_links *links, struct xport_link_event *event)
{
	struct xport_link_event e = {.size = sizeof(e)};
	int r;

	if (links == NULL || event == NULL || !svc_grow_size(event->size, SVC_FIRST_LINK_EVENT))
		return svc_fail(XPORT_ERR_INVALID, "xport_links_next", NULL,
		                "an argument is NULL, or xport_link_event.size is not the size of the struct");
	pthread_mutex_lock(&links->lock);
	r = links_next_event(links, &e);
	pthread_mutex_unlock(&links->lock);
	if (r == 1)
		svc_grow_out(event, &e, sizeof(e));
	return r;
}

/* ---- the loop ---- */

/* Finds the operation by its context: the handle of an endpoint that was destroyed is stale. */
static struct svc_link_op *cut_op_find(struct xport_links *links, const void *context)
{
	struct svc_link_op *op = NULL;

	for (struct xport_link *link = links->list; link != NULL && op == NULL; link = link->next)
		op = link->cut ? svc_link_op_of(link, context) : NULL;
	return op;
}

static struct svc_link_op *link_op_find(struct xport_links *links, const struct svc_link_ep *e,
                                        const struct xport_completion *c)
{
	struct svc_link_op *op = NULL;

	if (c->type >= XPORT_EVENT_NOTIFY)
		return NULL;
	if (e != NULL)
		op = svc_link_op_of(e->link, c->context);
	return op == NULL && links->cut > 0 ? cut_op_find(links, c->context) : op;
}

/* Returns whether the completion belongs to a link. */
static bool links_take(struct xport_links *links, const struct xport_completion *c)
{
	struct svc_link_ep *e = c->ep != NULL ? link_ep_find(links, c->ep) : NULL;
	struct svc_link_op *op;

	if (e != NULL && (e == e->link->old || e->link->kept != NULL))
		links->stirred = true;
	if (e != NULL &&
	    (c->type == XPORT_EVENT_CONNECTED || c->type == XPORT_EVENT_CLOSED || c->type == XPORT_EVENT_LOST)) {
		svc_link_ep_event(e, c);
		return true;
	}
	op = link_op_find(links, e, c);
	if (op == NULL)
		return false;
	svc_link_op_completed(op, c);
	return true;
}

void svc_links_move(struct xport_links *links)
{
	int64_t now = svc_now_ms();

	if (!links->stirred && (links->due < 0 || now < links->due))
		return;
	links->stirred = false;
	links->due = -1;
	for (struct xport_link *link = links->list; link != NULL; link = link->next) {
		int64_t due = svc_link_move(link, now);

		if (due >= 0 && (links->due < 0 || due < links->due))
			links->due = due;
	}
}

int xport_links_step(xport_links *links, const struct xport_completion *c)
{
	bool own;

	if (links == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_links_step", NULL, "links is NULL");
	pthread_mutex_lock(&links->lock);
	own = c != NULL && links_take(links, c);
	svc_links_move(links);
	pthread_mutex_unlock(&links->lock);
	return own;
}

int xport_links_timeout(xport_links *links)
{
	int64_t left = -1;

	if (links == NULL)
		return -1;
	pthread_mutex_lock(&links->lock);
	if (links->stirred)
		left = 0;
	else if (links->due >= 0 && (left = links->due - svc_now_ms()) < 0)
		left = 0;
	pthread_mutex_unlock(&links->lock);
	return (int)left;
}

/* Polls once, or sleeps until `until` at most (below 0: no limit). */
static int links_poll(struct xport_links *links, int64_t until, xport_completion_fn other, void *arg)
{
	int64_t left = until < 0 ? SLICE_MS : until - svc_now_ms();
	int ms = xport_links_timeout(links), n;
	struct xport_completion c;

	left = left > SLICE_MS ? SLICE_MS : left < 0 ? 0 : left;
	if (ms >= 0 && ms < left)
		left = ms;
	n = xport_wait(links->x, &c, 1, (int)left);
	if (n < 0)
		return n;
	if (xport_links_step(links, n > 0 ? &c : NULL) == 0 && n > 0 && other != NULL)
		other(arg, &c);
	return XPORT_OK;
}

/* Polls until `ready` does not return 0. Returns XPORT_OK, or an error, described. */
static int links_until(struct xport_links *links, int (*ready)(struct xport_links *l, struct xport_link_event *e),
                       struct xport_link_event *event, xport_completion_fn other, void *arg, int timeout_ms,
                       const char *operation)
{
	int64_t until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
	int r = svc_time_valid(timeout_ms, operation);
	bool late = false;

	if (r != XPORT_OK)
		return r;
	while ((r = ready(links, event)) == 0) {
		if (late)
			return svc_fail(XPORT_ERR_TIMEOUT, operation, NULL, "the time limit of %d ms expired",
			                timeout_ms);
		r = links_poll(links, until, other, arg);
		if (r != XPORT_OK)
			return svc_pass(links->x, r, operation);
		late = until >= 0 && svc_now_ms() >= until;
	}
	return r < 0 ? r : XPORT_OK;
}

int xport_links_wait(xport_links *links, struct xport_link_event *event, xport_completion_fn other, void *arg,
                     int timeout_ms)
{
	if (links == NULL)
		return xport_links_next(links, event); /* describes it */
	return links_until(links, xport_links_next, event, other, arg, timeout_ms, "xport_links_wait");
}

/* ---- a link ---- */

xport_ep *xport_link_ep(xport_link *link)
{
	xport_ep *ep = NULL;

	if (link == NULL)
		return NULL;
	pthread_mutex_lock(&link->links->lock);
	if (link->state == XPORT_LINK_OPEN && link->announced)
		ep = link->ep->ep;
	pthread_mutex_unlock(&link->links->lock);
	return ep;
}

int xport_link_retry(xport_link *link)
{
	int r;

	if (link == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_retry", NULL, "link is NULL");
	pthread_mutex_lock(&link->links->lock);
	r = svc_link_retry_now(link);
	pthread_mutex_unlock(&link->links->lock);
	return r;
}

int xport_link_close(xport_link *link, int timeout_ms)
{
	int r = svc_time_valid(timeout_ms, "xport_link_close");

	if (r != XPORT_OK)
		return r;
	if (link == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_link_close", NULL, "link is NULL");
	pthread_mutex_lock(&link->links->lock);
	r = svc_link_close_start(link, timeout_ms);
	pthread_mutex_unlock(&link->links->lock);
	return r;
}

/* Removes a link without endpoints. */
static void link_remove(struct xport_link *link)
{
	*link->at = link->next;
	if (link->next != NULL)
		link->next->at = link->at;
	if (link->cut)
		link->links->cut--;
	svc_link_keys_free(link);
	svc_link_free_memory(link);
}

int xport_link_free(xport_link *link)
{
	struct xport_links *links;
	int r = XPORT_OK;

	if (link == NULL)
		return XPORT_OK;
	links = link->links;
	pthread_mutex_lock(&links->lock);
	if (links->told == link)
		event_over(links);
	if (link->state != XPORT_LINK_OVER || link->closed.type != 0 || link->used_ops > 0)
		r = svc_fail(XPORT_ERR_BUSY, "xport_link_free", "call xport_link_close, and take the link's events",
		             "XPORT_LINK_CLOSED or XPORT_LINK_DONE of the link was not taken");
	else if (!svc_link_reap(link))
		r = svc_fail(XPORT_ERR_BUSY, "xport_link_free", "poll, then call again",
		             "completions of the link's endpoint were not reaped");
	else
		link_remove(link);
	pthread_mutex_unlock(&links->lock);
	return r;
}

int xport_link_query(xport_link *link, struct xport_link_info *info)
{
	struct xport_link_info i = {.size = sizeof(i)};
	int64_t now = svc_now_ms(), left;

	if (link == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_LINK_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_link_query", NULL,
		                "an argument is NULL, or xport_link_info.size is not the size of the struct");
	pthread_mutex_lock(&link->links->lock);
	left = link->due - now;
	i.state = link->state;
	i.status = link->state == XPORT_LINK_OPEN ? XPORT_OK : link->status;
	i.label = link->label;
	i.address = link->addresses[link->at_address].name;
	i.text = i.status == XPORT_OK ? "" : link->why;
	i.context = link->context;
	i.incarnation = link->incarnation;
	i.ups = link->ups;
	i.rounds = link->state == XPORT_LINK_OPEN && svc_link_stays(link, now) ? 0 : link->rounds;
	i.wait_ms = link->state != XPORT_LINK_WAITING ? 0 : link->down ? -1 : left < 0 ? 0 : (int)left;
	i.ops = link->used_ops;
	i.kept = link->nkept;
	i.keys = link->nkeys;
	i.void_keys = svc_link_keys_void(link);
	pthread_mutex_unlock(&link->links->lock);
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}

/* ---- the life of the links ---- */

int xport_links_create(xport *x, xport_links **links)
{
	struct xport_links *l;

	if (x == NULL || links == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_links_create", NULL, "an argument is NULL");
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_links_create", NULL, "out of memory");
	l->x = x;
	l->last = &l->first;
	l->due = -1;
	pthread_mutex_init(&l->lock, NULL);
	*links = l;
	return XPORT_OK;
}

/* Whether the link has neither an endpoint nor an operation that was posted. */
static bool link_idle(struct xport_link *link)
{
	return link->state == XPORT_LINK_OVER && svc_link_reap(link) && link->eps[0].ops == 0 && link->eps[1].ops == 0;
}

/* Drops the events, and returns whether all links are idle. */
static int links_idle(struct xport_links *links, struct xport_link_event *event)
{
	int idle = 1;

	(void)event;
	pthread_mutex_lock(&links->lock);
	links->first = NULL;
	links->last = &links->first;
	links->told = NULL;
	for (struct xport_link *link = links->list; link != NULL; link = link->next) {
		if (link->old != NULL)
			link->old->taken = true;
		if (!link_idle(link))
			idle = 0;
	}
	pthread_mutex_unlock(&links->lock);
	return idle;
}

/* Cuts all closes short. */
static void links_cut(struct xport_links *links)
{
	pthread_mutex_lock(&links->lock);
	for (struct xport_link *link = links->list; link != NULL; link = link->next)
		svc_link_close_cut(link);
	pthread_mutex_unlock(&links->lock);
}

int xport_links_destroy(xport_links *links, xport_completion_fn other, void *arg, int timeout_ms)
{
	int r = svc_time_valid(timeout_ms, "xport_links_destroy");

	if (links == NULL || r != XPORT_OK)
		return links == NULL ? XPORT_OK : r;
	pthread_mutex_lock(&links->lock);
	if (!links->destroying)
		for (struct xport_link *link = links->list; link != NULL; link = link->next)
			if (link->state != XPORT_LINK_ENDING && link->state != XPORT_LINK_OVER)
				(void)svc_link_close_start(link, timeout_ms);
	links->destroying = true;
	pthread_mutex_unlock(&links->lock);
	r = links_until(links, links_idle, NULL, other, arg, timeout_ms, "xport_links_destroy");
	if (r == XPORT_ERR_TIMEOUT) {
		links_cut(links);
		r = links_until(links, links_idle, NULL, other, arg, REAP_MS, "xport_links_destroy");
	}
	if (r != XPORT_OK)
		return r;
	while (links->list != NULL)
		link_remove(links->list);
	pthread_mutex_destroy(&links->lock);
	free(links);
	return XPORT_OK;
}
