/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_peer.c - see scenarios.h: receives for a peer, and endpoints whose last event is wanted. */
#include "scene.h"

void peers(struct scene *s);

static int destroyed;

static bool count_destroyed(struct scene *s, int side, const struct xport_completion *c)
{
	(void)s;
	(void)side;
	destroyed += c->type == XPORT_EVENT_DESTROYED;
	return c->type == XPORT_EVENT_DESTROYED;
}

/* At side 0, into its buffer. */
static struct scene_op *receive_peer(struct scene *s, size_t len, uint64_t tag)
{
	struct scene_op *op = &s->ops[s->nops++];
	struct xport_opt o = {.size = sizeof(o),
	                      .flags = XPORT_PEER,
	                      .source = s->ep[0],
	                      .context = op,
	                      .deadline_ms = tag == 1 ? 600000 : 0};

	*op = (struct scene_op){.type = XPORT_OP_RECV, .accepted = 1};
	if (!sc_ok(s, s->x[0], "xport_recv", xport_recv(s->x[0], buffer[0], len, tag, UINT64_MAX, &o), ON_POST))
		op->accepted = 0;
	return op;
}

static void until_received(struct scene *s, const struct scene_op *op)
{
	for (int64_t end = sc_now_ms() + OPS_LIMIT_MS; !sc_failing(s) && !op->done && sc_now_ms() < end;)
		sc_step(s);
	if (!sc_failing(s) && !op->done)
		scene_bad(s, "hang: a message for a receive with XPORT_PEER was sent and did not arrive");
}

/* Short and long messages, each before its receive and after it. */
static void messages_for_peer(struct scene *s)
{
	for (uint64_t tag = 0; tag < 4 && sc_connected(s); tag++) {
		size_t len = tag < 2 ? 16 : LONG;
		bool early = tag % 2 == 0;
		struct scene_op *op = early ? receive_peer(s, len, tag) : NULL;

		sc_send_to(s, 1, len, tag);
		sc_breathe(s, 5);
		if (!early && sc_connected(s))
			op = receive_peer(s, len, tag);
		if (op == NULL || !op->accepted)
			return;
		until_received(s, op);
	}
}

static bool destroy(struct scene *s, int side)
{
	int rc;

	s->ending = true;
	if (s->ep[side] == NULL)
		return false;
	rc = xport_ep_destroy_start(s->ep[side]);
	if (!sc_ok(s, s->x[side], "xport_ep_destroy_start", rc, BIT(XPORT_ERR_NO_MEMORY)))
		return false;
	s->ep[side] = NULL;
	return true;
}

/* A receive outlives its endpoint, and the instance ends before it. The other instance ends before its last event. */
void peers(struct scene *s)
{
	s->own = count_destroyed;
	destroyed = 0;
	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s))
		messages_for_peer(s);
	if (sc_connected(s))
		receive_peer(s, LONG, 100);
	if (destroy(s, 0)) {
		for (int64_t end = sc_now_ms() + OPS_LIMIT_MS; destroyed == 0 && sc_now_ms() < end;)
			sc_step(s);
		if (destroyed != 1)
			scene_bad(s, "%d times XPORT_EVENT_DESTROYED", destroyed);
	}
	if (destroy(s, 1)) {
		xport_close(s->x[1]);
		s->x[1] = NULL;
	}
	sc_close_all(s);
}
