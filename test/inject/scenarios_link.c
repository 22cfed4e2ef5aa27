/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_link.c - see scenarios.h: a link of libxport_services whose endpoint ends and comes back. */
#include "scene.h"
#include "services/xport_services.h"

enum {
	LINK_PUTS = 8,
	ON_LINK = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | BIT(XPORT_ERR_AGAIN) | BIT(XPORT_ERR_INVALID) |
	          BIT(XPORT_ERR_STALE_KEY) | BIT(XPORT_ERR_TIMEOUT) | ON_CONNECT | ENDED
};

void link_back(struct scene *s);

static xport_links *links;
static xport_link *the_link;
static xport_link_rkey *link_key;
static xport_ep *accepted;         /* at side 0: the last one */
static int ups, puts_open;         /* accepted, and not DONE */
static bool link_over, link_ended; /* CLOSED; given up */

/* All of side 0 is the scenario's. */
static bool to_links(struct scene *s, int side, const struct xport_completion *c)
{
	if (side == 1)
		return links != NULL && xport_links_step(links, c) == 1;
	if ((c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED) && c->ep != NULL) {
		if (c->ep == accepted)
			accepted = NULL;
		xport_ep_destroy(c->ep);
	}
	(void)s;
	return true;
}

static void link_event(struct scene *s, const struct xport_link_event *e)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	int status;

	if (e->type == XPORT_LINK_DONE) {
		if (--puts_open < 0)
			scene_bad(s, "a DONE too many");
		if (e->status != XPORT_OK)
			sc_note(s, e->status, ON_LINK | ON_DONE);
	} else if (e->type == XPORT_LINK_UP && ups++ == 0) {
		if (xport_ep_query(e->ep, &info) != XPORT_OK)
			return;
		status = xport_link_rkey_add(the_link, "region", 6, info.private_data, info.private_len, &link_key);
		if (!sc_served(s, "xport_link_rkey_add", status, ON_UNPACK))
			link_key = NULL;
	} else if (e->type == XPORT_LINK_PEER_NEW) {
		scene_bad(s, "another instance");
	} else if (e->type == XPORT_LINK_GIVEN_UP) {
		link_ended = true;
		sc_note(s, e->status, ON_CONNECT);
	} else if (e->type == XPORT_LINK_CLOSED) {
		link_over = true;
	}
}

static void link_turn(struct scene *s)
{
	struct xport_link_event e = {.size = sizeof(e)};
	xport_ep *ep;

	sc_step(s);
	if (s->listener != NULL && xport_accept(s->listener, 0, &ep) == XPORT_OK)
		accepted = ep;
	if (xport_links_timeout(links) == 0)
		xport_links_step(links, NULL);
	while (xport_links_next(links, &e) == 1)
		link_event(s, &e);
}

/* Until the link was up so often, and nothing is posted; or it has given up. */
static void link_finish(struct scene *s, int times, const char *what)
{
	int64_t began = sc_now_ms();

	while ((ups < times || puts_open > 0) && !link_ended && sc_now_ms() - began < CONNECT_LIMIT_MS) {
		link_turn(s);
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	if ((ups < times || puts_open > 0) && !link_ended)
		scene_bad(s, "hang: %s: %d times up, %d puts without DONE", what, ups, puts_open);
}

/* If all are repeatable, they succeed although the endpoint ends. */
static void link_puts(struct scene *s, bool all)
{
	static uint64_t word = 7;

	for (int i = 0; i < LINK_PUTS && link_key != NULL && !link_ended; i++) {
		int status =
			xport_link_put(the_link, &word, 8, link_key, 0, NULL, all || i % 2 ? XPORT_LINK_REPEATABLE : 0);

		puts_open += sc_served(s, "xport_link_put", status, ON_LINK);
	}
}

static bool link_listens(struct scene *s, struct region *r, char *name, size_t len)
{
	struct xport_conn_attr attr = {.size = sizeof(attr)};
	uint8_t key[1024];
	int rc;

	*r = (struct region){0};
	attr.private_len = sizeof(key);
	attr.private_data = key;
	rc = xport_mr_reg(s->x[0], buffer[0], REGION, RIGHTS, &r->mr);
	if (!sc_ok(s, s->x[0], "xport_mr_reg", rc, ON_REG))
		return r->mr = NULL, false;
	rc = xport_rkey_pack(r->mr, key, &attr.private_len);
	if (!sc_ok(s, s->x[0], "xport_rkey_pack", rc, BIT(XPORT_ERR_NO_MEMORY)))
		return false;
	rc = xport_listen(s->x[0], "127.0.0.1:0", &attr, &s->listener);
	if (!sc_ok(s, s->x[0], "xport_listen", rc, ON_LISTEN))
		return s->listener = NULL, false;
	return sc_ok(s, s->x[0], "xport_listener_name", xport_listener_name(s->listener, name, len), 0);
}

static void use_link(struct scene *s, const char *address)
{
	struct xport_conn_attr conn = {.size = sizeof(conn), .private_data = "me", .private_len = 2};
	struct xport_link_attr attr = {.size = sizeof(attr), .first_ms = 1, .max_ms = 5, .conn = &conn};

	conn.transports = s->backend;
	if (!sc_served(s, "xport_link_open", xport_link_open(links, &address, 1, &attr, &the_link), ON_LINK)) {
		the_link = NULL;
		return;
	}
	link_finish(s, 1, "to come up");
	link_puts(s, false);
	link_finish(s, 1, "puts");
	if (accepted != NULL) {
		xport_ep *ep = accepted;
		int before = ups;

		accepted = NULL;
		xport_ep_destroy(ep);
		link_puts(s, true);
		link_finish(s, before + 1, "to come back");
		link_puts(s, false);
		link_finish(s, before + 1, "puts after that");
	}
	sc_served(s, "xport_link_close", xport_link_close(the_link, OPS_LIMIT_MS), 0);
	for (int64_t end = sc_now_ms() + CONNECT_LIMIT_MS; !link_over && sc_now_ms() < end;)
		link_turn(s);
	if (!link_over || puts_open > 0)
		scene_bad(s, "hang: the link is not closed, or %d puts have no DONE", puts_open);
	else
		sc_served(s, "xport_link_free", xport_link_free(the_link), BIT(XPORT_ERR_BUSY));
}

void link_back(struct scene *s)
{
	struct region r = {0};
	char name[80];

	links = NULL;
	the_link = NULL;
	link_key = NULL;
	accepted = NULL;
	ups = puts_open = 0;
	link_over = link_ended = false;
	s->own = to_links;
	if (sc_open_both(s) && link_listens(s, &r, name, sizeof(name))) {
		if (sc_served(s, "xport_links_create", xport_links_create(s->x[1], &links), ON_LINK))
			use_link(s, name);
		else
			links = NULL;
	}
	s->ending = true;
	inject_relent();
	sc_served(s, "xport_links_destroy", xport_links_destroy(links, NULL, NULL, OPS_LIMIT_MS), 0);
	links = NULL;
	xport_ep_destroy(accepted);
	sc_close_all(s);
	s->own = NULL;
}
