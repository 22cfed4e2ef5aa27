/* SPDX-License-Identifier: BSD-3-Clause */
#include "hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * MAX_ACTIVE: all slots that there can be, so that waiting requests of many clients leave slots to the nodes.  MAX_CALLS:
 * enough for the client in flood.c.
 */
enum { BATCH = 32, CONNECT_MS = 2000, CLOSE_MS = 1000, MAX_ACTIVE = 65535, MAX_CALLS = 4096 };

/* Waits for a get. */
struct get {
	bool done;
	int status;
};

int64_t sh_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t sh_again_ms(const struct xport_rpc_event *e)
{
	uint32_t ms = e != NULL && e->retry_after_ms > SH_SOON_MS ? e->retry_after_ms : SH_SOON_MS;

	return sh_now_ms() + ms;
}

static void print_error(const struct sh_hub *hub, const char *what, const struct xport_error *e)
{
	fprintf(stderr, "%s: %s: %s %s\n", hub->use->program, what, e->text, e->hint);
}

void sh_complain(struct sh_hub *hub, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	(void)xport_last_error(hub->x, &e);
	print_error(hub, what, &e);
}

void sh_complain_services(struct sh_hub *hub, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	(void)xport_services_last_error(&e);
	print_error(hub, what, &e);
}

/* ---- peers ---- */

static struct sh_peer *add_peer(struct sh_hub *hub, xport_ep *ep)
{
	struct sh_peer *p = calloc(1, sizeof(*p));

	if (p == NULL) {
		xport_ep_destroy(ep);
		return NULL;
	}
	*p = (struct sh_peer){.next = hub->peers, .ep = ep};
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

/* An endpoint that was lost before it was accepted, but has sent something, belongs to this process all the same. */
static void lose(struct sh_hub *hub, xport_ep *ep)
{
	struct sh_peer *p;

	accept_all(hub);
	p = find_peer(hub, ep);
	if (p == NULL)
		p = add_peer(hub, ep);
	if (p == NULL || p->ended)
		return;
	p->ended = true;
	hub->use->lost(hub->arg, ep);
}

xport_ep *sh_connect(struct sh_hub *hub, const char *address)
{
	xport_ep *ep;

	if (xport_connect(hub->x, address, NULL, CONNECT_MS, &ep) != XPORT_OK || add_peer(hub, ep) == NULL)
		return NULL;
	return ep;
}

void sh_close(struct sh_hub *hub, const xport_ep *ep)
{
	struct sh_peer *p = find_peer(hub, ep);

	if (p != NULL)
		p->bad = true;
}

/* `lost` may look at the list, but adds nothing to it.  A destruction that fails is repeated in the next turn. */
static void look_after_peers(struct sh_hub *hub)
{
	for (struct sh_peer *p = hub->peers; p != NULL; p = p->next) {
		if (p->destroyed || (!p->bad && !p->ended))
			continue;
		if (!p->ended) {
			p->ended = true;
			hub->use->lost(hub->arg, p->ep);
		}
		(void)xport_ep_close(p->ep, 0);
		xport_rpcs_forget(hub->rpcs, p->ep);
		p->destroyed = xport_ep_destroy_start(p->ep) == XPORT_OK;
	}
}

/* No completion names the endpoint any more. */
static void forget_peer(struct sh_hub *hub, const xport_ep *ep)
{
	struct sh_peer **at = &hub->peers, *p;

	while ((p = *at) != NULL && p->ep != ep)
		at = &p->next;
	if (p == NULL)
		return;
	*at = p->next;
	free(p);
}

/* ---- calls ---- */

uint64_t sh_call(struct sh_hub *hub, xport_ep *ep, const char *method, struct xport_rpc_args args)
{
	uint64_t id = 0;

	args.size = sizeof(args);
	args.id = &id;
	return xport_rpc_call(hub->rpcs, ep, method, &args) == XPORT_OK ? id : 0;
}

void sh_reply(struct sh_hub *hub, uint64_t request, int status, const void *payload, size_t len)
{
	int r = xport_rpc_reply(hub->rpcs, request, status, payload, len);

	/* The other errors mean that nobody waits for the reply. */
	if (r == XPORT_ERR_BOUNDS || r == XPORT_ERR_NO_MEMORY)
		(void)xport_rpc_reply(hub->rpcs, request, XPORT_ERR_NO_MEMORY, NULL, 0);
}

bool sh_payload(struct sh_hub *hub, const struct xport_rpc_event *request, void *to, size_t len)
{
	if (request->len == len)
		memcpy(to, request->payload, len);
	else
		sh_reply(hub, request->id, XPORT_ERR_INVALID, NULL, 0);
	return request->len == len;
}

/* ---- completions ---- */

void sh_hub_take(void *arg, const struct xport_completion *c)
{
	struct sh_hub *hub = arg;

	if (xport_rpcs_step(hub->rpcs, c) != 0)
		return;
	if (c->type == XPORT_OP_GET)
		*(struct get *)c->context = (struct get){.done = true, .status = c->status};
	else if (c->type == XPORT_EVENT_INCOMING)
		accept_all(hub);
	else if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED)
		lose(hub, c->ep);
	else if (c->type == XPORT_EVENT_DESTROYED)
		forget_peer(hub, c->ep);
}

static void take_events(struct sh_hub *hub)
{
	struct xport_rpc_event e = {.size = sizeof(e)};

	while (xport_rpcs_next(hub->rpcs, &e) == 1)
		hub->use->done(hub->arg, &e);
}

void sh_hub_poll(struct sh_hub *hub, int timeout_ms)
{
	struct xport_completion list[BATCH];
	int ms = xport_rpcs_timeout(hub->rpcs);
	int n = xport_wait(hub->x, list, BATCH, ms >= 0 && ms < timeout_ms ? ms : timeout_ms);

	for (int i = 0; i < n; i++)
		sh_hub_take(hub, &list[i]);
	if (n <= 0)
		(void)xport_rpcs_step(hub->rpcs, NULL);
	take_events(hub);
	look_after_peers(hub);
	take_events(hub); /* of calls to endpoints that have just been destroyed */
}

bool sh_get(struct sh_hub *hub, xport_ep *ep, void *to, size_t len, xport_rkey *rkey, uint64_t offset, xport_mr *mr)
{
	struct get g = {.done = false};
	struct xport_opt opt = {.size = sizeof(opt), .context = &g, .mr = mr};

	if (xport_get(ep, to, len, rkey, offset, &opt) != XPORT_OK)
		return false;
	while (!g.done)
		sh_hub_poll(hub, 100);
	return g.status == XPORT_OK;
}

/* ---- life ---- */

static bool start(struct sh_hub *hub, const char *listen)
{
	if (xport_open(NULL, &hub->x) == XPORT_OK &&
	    (listen == NULL || (xport_listen(hub->x, listen, NULL, &hub->listener) == XPORT_OK &&
	                        xport_listener_name(hub->listener, hub->address, sizeof(hub->address)) == XPORT_OK)))
		return true;
	sh_complain(hub, "opening");
	return false;
}

static bool offer(struct sh_hub *hub)
{
	const struct xport_rpcs_attr attr = {
		.size = sizeof(attr), .max_calls = MAX_CALLS, .max_active = hub->use->methods == NULL ? 0 : MAX_ACTIVE};
	const struct sh_method *m = hub->use->methods;
	bool ok = xport_rpcs_create(hub->x, &attr, &hub->rpcs) == XPORT_OK;

	for (; ok && m != NULL && m->name != NULL; m++)
		ok = xport_rpc_register(hub->rpcs, m->name, m->fn, hub->arg) == XPORT_OK;
	if (!ok)
		sh_complain_services(hub, "the calls");
	return ok;
}

struct sh_hub *sh_hub_open(const struct sh_use *use, void *arg, const char *listen)
{
	struct sh_hub *hub = calloc(1, sizeof(*hub));

	if (hub == NULL)
		return NULL;
	hub->use = use;
	hub->arg = arg;
	if (start(hub, listen) && offer(hub))
		return hub;
	sh_hub_close(hub);
	return NULL;
}

void sh_hub_close(struct sh_hub *hub)
{
	struct sh_peer *p;

	if (hub == NULL)
		return;
	while ((p = hub->peers) != NULL) {
		hub->peers = p->next;
		if (!p->destroyed) {
			(void)xport_ep_close(p->ep, CLOSE_MS);
			xport_rpcs_forget(hub->rpcs, p->ep);
			xport_ep_destroy(p->ep);
		}
		free(p);
	}
	if (xport_rpcs_destroy(hub->rpcs, NULL, NULL, CLOSE_MS) != XPORT_OK)
		sh_complain_services(hub, "closing");
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
