/* SPDX-License-Identifier: BSD-3-Clause */
#include "hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 32, CONNECT_MS = 2000, CLOSED_MS = 1000 };

int64_t sh_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void sh_complain(struct sh_hub *hub, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	(void)xport_last_error(hub->x, &e);
	fprintf(stderr, "%s: %s: %s %s\n", hub->name, what, e.text, e.hint);
}

/* ---- peers ---- */

static struct sh_peer *add_peer(struct sh_hub *hub, xport_ep *ep)
{
	struct sh_peer *p = calloc(1, sizeof(*p));

	if (p == NULL) {
		xport_ep_destroy(ep);
		return NULL;
	}
	*p = (struct sh_peer){.hub = hub, .ep = ep, .node = SW_NONE, .next = hub->peers, .last = &p->first};
	hub->peers = p;
	return p;
}

static void accept_all(struct sh_hub *hub)
{
	xport_ep *ep;

	while (hub->listener != NULL && xport_accept(hub->listener, 0, &ep) == XPORT_OK)
		(void)add_peer(hub, ep);
}

static struct sh_peer *find_peer(struct sh_hub *hub, const xport_ep *ep)
{
	struct sh_peer *p = hub->peers;

	while (p != NULL && p->ep != ep)
		p = p->next;
	return p;
}

static void free_peer(struct sh_peer *p)
{
	for (struct sh_letter *l = p->first, *next; l != NULL; l = next) {
		next = l->next;
		free(l);
	}
	xport_ep_destroy(p->ep);
	free(p);
}

static void remove_peer(struct sh_hub *hub, struct sh_peer *p)
{
	struct sh_peer **at = &hub->peers;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free_peer(p);
}

/* What it has sent before may come yet, also behind the event that tells of its end: so it goes when nothing comes any more. */
static void lose_peer(struct sh_hub *hub, struct sh_peer *p)
{
	if (p->closed_ms != 0)
		return;
	p->closed_ms = sh_now_ms();
	hub->calls->lost(hub->arg, p);
}

static void close_peer(struct sh_hub *hub, struct sh_peer *p)
{
	(void)xport_ep_close(p->ep, 0);
	lose_peer(hub, p);
}

struct sh_peer *sh_connect(struct sh_hub *hub, const char *address)
{
	xport_ep *ep;

	return xport_connect(hub->x, address, NULL, CONNECT_MS, &ep) == XPORT_OK ? add_peer(hub, ep) : NULL;
}

/* ---- messages ---- */

static void post_letters(struct sh_peer *p)
{
	while (p->first != NULL) {
		struct sh_letter *l = p->first;
		struct xport_opt opt = {.size = sizeof(opt), .context = l};
		int r = xport_send(p->ep, l->bytes, l->len, 0, &opt);

		if (r == XPORT_ERR_AGAIN)
			return;
		p->first = l->next;
		if (p->first == NULL)
			p->last = &p->first;
		if (r != XPORT_OK)
			free(l);
	}
}

void sh_send(struct sh_peer *p, const struct sw_message *m)
{
	struct sh_letter *l = malloc(sizeof(*l) + SW_HEAD + m->body_len);

	if (l == NULL) {
		p->bad = true;
		return;
	}
	l->next = NULL;
	l->len = sw_write(m, l->bytes);
	*p->last = l;
	p->last = &l->next;
	post_letters(p);
}

static bool post_receive(struct sh_hub *hub, uint8_t *in)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = in};

	return xport_recv(hub->x, in, SW_MESSAGE, 0, UINT64_MAX, &opt) == XPORT_OK;
}

static void hand_out(struct sh_hub *hub, struct sh_peer *p, const struct sh_held *h)
{
	if (p->closed_ms == 0 && h->status == XPORT_OK && sw_read(&hub->message, h->in, h->len))
		hub->calls->message(hub->arg, p, &hub->message);
	else if (h->status == XPORT_OK || h->status == XPORT_ERR_TRUNCATED)
		p->bad = true;
	if (!post_receive(hub, h->in))
		sh_complain(hub, "posting a receive");
}

/* In the order in which they came. */
static void hand_out_all(struct sh_hub *hub)
{
	int left = 0;

	if (hub->helds > 0)
		accept_all(hub);
	for (int i = 0; i < hub->helds; i++) {
		struct sh_held h = hub->held[i];
		struct sh_peer *p = find_peer(hub, h.ep);

		if (p != NULL)
			hand_out(hub, p, &h);
		else
			hub->held[left++] = h;
	}
	hub->helds = left;
}

static void take_message(struct sh_hub *hub, const struct xport_completion *c)
{
	if (c->ep == NULL) { /* of one that was removed */
		(void)post_receive(hub, c->context);
		return;
	}
	hub->held[hub->helds++] =
		(struct sh_held){.ep = c->ep, .status = c->status, .len = (size_t)c->length, .in = c->context};
	hand_out_all(hub);
}

/* Who is lost before it was accepted, but has sent something, is ours all the same. */
static void lose(struct sh_hub *hub, xport_ep *ep)
{
	struct sh_peer *p;

	accept_all(hub);
	hand_out_all(hub);
	p = find_peer(hub, ep);
	if (p == NULL && (p = add_peer(hub, ep)) != NULL)
		p->closed_ms = sh_now_ms();
	if (p != NULL)
		lose_peer(hub, p);
	hand_out_all(hub);
}

/* ---- completions ---- */

void sh_hub_take(void *arg, const struct xport_completion *c)
{
	struct sh_hub *hub = arg;

	switch (c->type) {
	case XPORT_OP_SEND:
		free(c->context);
		break;
	case XPORT_OP_RECV:
		take_message(hub, c);
		break;
	case XPORT_OP_GET:
		*(struct sh_get *)c->context = (struct sh_get){.done = true, .status = c->status};
		break;
	case XPORT_EVENT_INCOMING:
		accept_all(hub);
		hand_out_all(hub);
		break;
	case XPORT_EVENT_LOST:
	case XPORT_EVENT_CLOSED:
		lose(hub, c->ep);
		break;
	default:
		break;
	}
}

/* `quiet`: there is no completion left to be reaped. */
static void look_after_peers(struct sh_hub *hub, bool quiet)
{
	for (struct sh_peer *p = hub->peers, *next; p != NULL; p = next) {
		next = p->next;
		if (p->closed_ms > 0 && quiet && sh_now_ms() - p->closed_ms > CLOSED_MS)
			remove_peer(hub, p);
		else if (p->bad && p->closed_ms == 0)
			close_peer(hub, p);
		else
			post_letters(p);
	}
}

void sh_hub_poll(struct sh_hub *hub, int timeout_ms)
{
	struct xport_completion list[BATCH];
	int n = xport_wait(hub->x, list, BATCH, timeout_ms);

	for (int i = 0; i < n; i++)
		sh_hub_take(hub, &list[i]);
	look_after_peers(hub, n < BATCH);
}

/* While it waits the peer may be lost, and its struct is gone; so nothing of it is used after the post. */
bool sh_get(struct sh_peer *p, void *to, size_t len, xport_rkey *rkey, uint64_t offset, xport_mr *mr)
{
	struct sh_hub *hub = p->hub;
	struct sh_get g = {.done = false};
	struct xport_opt opt = {.size = sizeof(opt), .context = &g, .mr = mr};

	if (xport_get(p->ep, to, len, rkey, offset, &opt) != XPORT_OK)
		return false;
	while (!g.done)
		sh_hub_poll(hub, 100);
	return g.status == XPORT_OK;
}

/* ---- life ---- */

static bool listen_on(struct sh_hub *hub, const char *address)
{
	if (address == NULL)
		return true;
	return xport_listen(hub->x, address, NULL, &hub->listener) == XPORT_OK &&
	       xport_listener_name(hub->listener, hub->address, sizeof(hub->address)) == XPORT_OK;
}

struct sh_hub *sh_hub_open(const char *name, const char *listen, const struct sh_calls *calls, void *arg)
{
	struct sh_hub *hub = calloc(1, sizeof(*hub));
	bool ok;

	if (hub == NULL)
		return NULL;
	hub->name = name;
	hub->calls = calls;
	hub->arg = arg;
	ok = xport_open(NULL, &hub->x) == XPORT_OK && listen_on(hub, listen);
	for (int i = 0; ok && i < SH_RECEIVES; i++)
		ok = post_receive(hub, hub->in[i]);
	if (ok)
		return hub;
	sh_complain(hub, "opening");
	xport_close(hub->x);
	free(hub);
	return NULL;
}

void sh_hub_close(struct sh_hub *hub)
{
	struct xport_completion list[BATCH];
	struct sh_peer *next;
	int n;

	if (hub == NULL)
		return;
	for (struct sh_peer *p = hub->peers; p != NULL; p = next) {
		next = p->next;
		(void)xport_ep_close(p->ep, 1000);
		free_peer(p);
	}
	hub->peers = NULL;
	/* What they were sent and did not take comes back. */
	while ((n = xport_poll(hub->x, list, BATCH)) > 0)
		for (int i = 0; i < n; i++)
			if (list[i].type == XPORT_OP_SEND)
				free(list[i].context);
	xport_close(hub->x);
	free(hub);
}

bool sh_describe(struct sh_hub *hub, xport_mr *mr, struct sw_member *member)
{
	size_t len = SW_RKEY;

	memcpy(member->address, hub->address, SW_ADDRESS);
	if (xport_rkey_pack(mr, member->rkey, &len) != XPORT_OK) {
		sh_complain(hub, "the region's key");
		return false;
	}
	member->rkey_len = (uint32_t)len;
	return true;
}
