/* SPDX-License-Identifier: BSD-3-Clause */
/* scene_open.c - the steps that open instances and connect them; see scene.h. */
#include "scene.h"

#include <stddef.h>
#include <string.h>

bool sc_open_side(struct scene *s, int side)
{
	struct xport_attr attr = {.size = sizeof(attr),
	                          .backend = s->backend,
	                          .peer_timeout_ms = PEER_TIMEOUT_MS,
	                          .progress = s->progress};

	if (sc_ok(s, NULL, "xport_open", xport_open(&attr, &s->x[side]), ON_OPEN))
		return true;
	if (s->x[side] != NULL)
		scene_bad(s, "xport_open failed and set *x");
	s->x[side] = NULL;
	return false;
}

bool sc_query(struct scene *s, int side)
{
	s->info[side].size = sizeof(s->info[side]);
	return sc_ok(s, s->x[side], "xport_query", xport_query(s->x[side], &s->info[side]), 0);
}

/* What failed while one of them was opened may not make it another than what was asked for. */
bool sc_open_both(struct scene *s)
{
	const size_t all = offsetof(struct xport_info, iov_max) + sizeof(uint32_t);

	if (!sc_open_side(s, 0) || !sc_open_side(s, 1) || !sc_query(s, 0) || !sc_query(s, 1))
		return false;
	if (memcmp(&s->info[0], &s->info[1], all) != 0)
		scene_bad(s, "two instances of %s can do different things", s->backend);
	return true;
}

static void take_accepted(struct scene *s)
{
	const struct xport_conn_attr answer = {.size = sizeof(answer), .private_data = "answer", .private_len = 7};
	int rc;

	if (s->ep[0] != NULL || s->listener == NULL)
		return;
	rc = xport_accept_with(s->listener, &answer, 0, &s->ep[0]);
	if (rc == XPORT_ERR_TIMEOUT)
		return;
	if (!sc_ok(s, s->x[0], "xport_accept_with", rc, ON_ACCEPT)) {
		/* Without memory for good, the connection waits for good: it is taken without an answer. */
		rc = rc == XPORT_ERR_NO_MEMORY ? xport_accept(s->listener, 0, &s->ep[0]) : rc;
		if (rc == XPORT_ERR_TIMEOUT || !sc_ok(s, s->x[0], "xport_accept", rc, ON_ACCEPT))
			return;
	} else {
		s->answered = true;
	}
	s->up[0] = true;
}

/* What side 0 answered arrives, or an end does. */
static void await_answer(struct scene *s)
{
	int64_t end = sc_now_ms() + CONNECT_LIMIT_MS;

	while (s->answered && !s->told && sc_connected(s) && sc_now_ms() < end)
		sc_step(s);
	if (s->answered && !s->told && sc_connected(s))
		scene_bad(s, "hang: the answer to the connection did not arrive, and no loss was seen");
}

void sc_connect_at(struct scene *s, const char *address)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = "private", .private_len = 8};
	int64_t end = sc_now_ms() + CONNECT_LIMIT_MS;
	char name[80];

	if (!sc_ok(s, s->x[0], "xport_listen", xport_listen(s->x[0], address, &attr, &s->listener), ON_LISTEN)) {
		s->listener = NULL;
		return;
	}
	if (!sc_ok(s, s->x[0], "xport_listener_name", xport_listener_name(s->listener, name, sizeof(name)), 0))
		return;
	if (!sc_ok(s, s->x[1], "xport_connect", xport_connect(s->x[1], name, &attr, 0, &s->ep[1]), ON_CONNECT)) {
		s->ep[1] = NULL;
		return;
	}
	while (!s->up[1] && !s->ended[1] && sc_now_ms() < end) {
		sc_step(s);
		take_accepted(s);
	}
	if (!s->up[1] && !s->ended[1])
		scene_bad(s, "hang: neither connected nor failed within %d ms", CONNECT_LIMIT_MS);
	end = sc_now_ms() + CONNECT_LIMIT_MS;
	while (s->up[1] && !s->ended[1] && s->ep[0] == NULL && sc_now_ms() < end) {
		sc_step(s);
		take_accepted(s);
	}
	if (s->up[1] && !s->ended[1] && s->ep[0] == NULL)
		scene_bad(s, "hang: connected here, but there is nobody on the other side, and no loss was seen");
	await_answer(s);
}

void sc_connect_both(struct scene *s)
{
	sc_connect_at(s, "localhost:0");
}

bool sc_connected(const struct scene *s)
{
	return s->ep[0] != NULL && s->ep[1] != NULL && s->up[1] && !s->ended[0] && !s->ended[1];
}

void sc_ep_query(struct scene *s, int side)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	if (!sc_ok(s, s->x[side], "xport_ep_query", xport_ep_query(s->ep[side], &info), 0))
		return;
	if (s->up[side] && (info.private_len != 8 || memcmp(info.private_data, "private", 8) != 0))
		scene_bad(s, "the private data of the connection is wrong");
}
