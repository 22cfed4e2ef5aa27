/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/link_user.h"

enum { EPS = 8, LONG = 100 * 1024 };

/* ---- the server ---- */

struct server {
	struct h *h;
	struct h_mem mem;
	struct h_key key;
	char address[80];
	xport_listener *listener;
	xport_ep *ep[EPS];
	int n;
	bool rejects; /* LINK_REJECT */
};

static void server_listen(struct server *s)
{
	struct xport_conn_attr a = {.size = sizeof(a)};
	struct h *h = s->h;

	s->key = h_key_pack(h, &s->mem);
	a.private_data = &s->key;
	a.private_len = sizeof(s->key) - sizeof(s->key.bytes) + s->key.len;
	H_OK(xport_listen(h->x, s->address, &a, &s->listener));
	H_OK(xport_listener_name(s->listener, s->address, sizeof(s->address)));
}

static void server_drop(struct server *s)
{
	while (s->n > 0)
		xport_ep_destroy(s->ep[--s->n]);
}

/* The next message. One of an endpoint that was closed may have been matched before this side heard of the close. */
static void server_take(struct server *s, uint8_t *buf)
{
	struct h *h = s->h;
	struct h_op *op;

	do {
		op = h_recv(h, NULL, buf, LONG, 5, UINT64_MAX);
		H_ENDED(op);
	} while (op->c.status == XPORT_ERR_PEER_CLOSED);
	H_STATUS(XPORT_OK, op->c.status);
}

static void server_receive(struct server *s)
{
	uint8_t *first = h_buf(s->h, LONG), *second = h_buf(s->h, LONG);
	struct h *h = s->h;

	server_take(s, first);
	server_take(s, second);
	H_FILLED(first, LONG, 1);
	H_FILLED(second, LONG, 2);
}

static uint64_t server_does(struct server *s, uint64_t what)
{
	uint64_t word = 0;

	switch (what) {
	case LINK_SHUT:
		xport_listener_close(s->listener);
		s->listener = NULL;
		/* fall through */
	case LINK_CLOSE:
		server_drop(s);
		break;
	case LINK_REJECT:
		s->rejects = true;
		break;
	case LINK_LISTEN:
		server_listen(s);
		break;
	case LINK_RECEIVE:
		server_receive(s);
		break;
	default:
		memcpy(&word, s->mem.p, sizeof(word));
		break;
	}
	return word;
}

void link_server(struct h *h)
{
	struct server s = {.h = h, .address = "127.0.0.1:0"};
	struct xport_attr a = h_attr(h);
	int64_t accepted = 0;
	uint64_t what;
	xport_ep *ep;

	a.peer_timeout_ms = h_ms(1000);
	h_open(h, &a);
	s.mem = h_mem_target(h, L_LEN, 0, H_ALL);
	if (h->incarnation > 0)
		h_hear(h, 1, s.address, sizeof(s.address));
	server_listen(&s);
	h_tell(h, 1, s.address, sizeof(s.address));
	for (;;) {
		if (h_heard(h, 1)) {
			what = h_hear_u64(h, 1);
			if (what == LINK_END)
				break;
			h_tell_u64(h, 1, server_does(&s, what));
			while (what == LINK_STOP && !h_heard(h, 1))
				usleep(500);
		}
		h_breathe(h);
		if (s.listener != NULL && s.n < EPS && xport_accept(s.listener, 0, &ep) == XPORT_OK)
			s.ep[s.n++] = ep, accepted = h_now_us();
		if (s.rejects && h_now_us() - accepted > 5000)
			server_drop(&s);
	}
	server_drop(&s);
	xport_listener_close(s.listener);
	h_sync(h);
}

uint64_t link_ask(struct link_user *u, enum link_ask what)
{
	struct h *h = u->h;

	h_tell_u64(h, 0, what);
	while (!h_heard(h, 0))
		link_turn(u);
	return h_hear_u64(h, 0);
}

/* ---- the client ---- */

void link_begin_with(struct link_user *u, struct h *h, const struct xport_attr *attr)
{
	char nobody[80];
	xport_listener *l;

	*u = (struct link_user){.h = h};
	h_open(h, attr);
	h_hear(h, 0, u->address[0], sizeof(u->address[0]));
	/* An address where nobody listens any more. */
	H_OK(xport_listen(h->x, "127.0.0.1:0", NULL, &l));
	H_OK(xport_listener_name(l, nobody, sizeof(nobody)));
	xport_listener_close(l);
	memcpy(u->address[1], nobody, sizeof(nobody));
	H_OK(xport_links_create(h->x, &u->l));
	u->mem = h_mem_local(h, L_LEN, 0);
	h->idle = true;
}

void link_begin(struct link_user *u, struct h *h)
{
	struct xport_attr a = h_attr(h);

	a.peer_timeout_ms = h_ms(1000);
	link_begin_with(u, h, &a);
}

struct xport_link_attr link_attr(struct link_user *u)
{
	return (struct xport_link_attr){
		.size = sizeof(struct xport_link_attr), .first_ms = 2, .max_ms = 50, .context = u, .seed = 1};
}

void link_open(struct link_user *u, const struct xport_link_attr *a)
{
	struct xport_link_attr own = link_attr(u);
	const char *address = u->address[0];
	struct h *h = u->h;

	H_OK(xport_link_open(u->l, &address, 1, a != NULL ? a : &own, &u->link));
}

void link_key(struct link_user *u)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	const struct h_key *k;
	struct h *h = u->h;

	H_OK(xport_ep_query(xport_link_ep(u->link), &info));
	k = info.private_data;
	if (u->key != NULL)
		H_OK(xport_link_rkey_set(u->key, k->bytes, k->len));
	else
		H_OK(xport_link_rkey_add(u->link, "region", 6, k->bytes, k->len, &u->key));
}

static void link_other(void *arg, const struct xport_completion *c)
{
	struct link_user *u = arg;

	(void)c;
	u->dropped++;
}

void link_turn(struct link_user *u)
{
	struct xport_completion c[4];
	int ms = xport_links_timeout(u->l), n;

	n = xport_wait(u->h->x, c, 4, ms < 0 || ms > 2 ? 2 : ms);
	for (int i = 0; i < n; i++)
		if (xport_links_step(u->l, &c[i]) == 0)
			link_other(u, &c[i]);
	if (n <= 0)
		(void)xport_links_step(u->l, NULL);
}

void link_turn_for(struct link_user *u, int ms)
{
	int64_t end = h_now_us() + (int64_t)ms * 1000;

	while (h_now_us() < end)
		link_turn(u);
}

void link_end(struct link_user *u)
{
	struct h *h = u->h;

	h_tell_u64(h, 0, LINK_END);
	H_OK(xport_links_destroy(u->l, link_other, u, h_ms(10000)));
	h->idle = false;
	h_sync(h);
}

struct xport_link_event link_next(struct link_user *u, const char *file, int line, int type)
{
	struct xport_link_event e = {.size = sizeof(e)};
	int64_t end = h_now_us() + (int64_t)h_ms(L_BACK_MS) * 1000;
	struct h *h = u->h;
	int r;

	while ((r = xport_links_next(u->l, &e)) == 0 && h_now_us() < end)
		link_turn(u);
	if (r != 1 || e.type != type)
		h_fail(h, file, line, "event", "%d instead of %d (%s: %s), link: %d %s", r == 1 ? e.type : 0, type,
		       xport_status_name(e.status), e.text == NULL ? "" : e.text, link_info(u).state,
		       link_info(u).text);
	H_TRUE(e.link == u->link);
	return e;
}

void link_done(struct link_user *u, const char *file, int line, int status, uint32_t attempts)
{
	struct xport_link_event e = link_next(u, file, line, XPORT_LINK_DONE);
	struct h *h = u->h;

	h_check_status(h, file, line, "DONE", status, e.status);
	h_check_equal(h, file, line, "attempts", attempts, e.attempts);
}

void link_quiet(struct link_user *u, int ms)
{
	struct xport_link_event e = {.size = sizeof(e)};
	int64_t end = h_now_us() + (int64_t)ms * 1000;
	struct h *h = u->h;

	do {
		H_EQ(0, xport_links_next(u->l, &e));
		link_turn(u);
	} while (h_now_us() < end);
	H_EQ(0, xport_links_next(u->l, &e));
}

struct xport_link_info link_info(struct link_user *u)
{
	struct xport_link_info i = {.size = sizeof(i)};
	struct h *h = u->h;

	H_OK(xport_link_query(u->link, &i));
	return i;
}

void link_works(struct link_user *u, uint64_t value)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = u, .mr = u->mem.mr};
	struct xport_link_event e;
	struct h *h = u->h;
	uint64_t word = 0;

	memcpy(u->mem.p, &value, sizeof(value));
	H_OK(xport_link_put(u->link, u->mem.p, 8, u->key, 0, &opt, 0));
	e = LINK_NEXT(u, XPORT_LINK_DONE);
	H_OK(e.status);
	H_TRUE(e.context == u && e.operation == XPORT_OP_PUT && e.length == 8 && e.attempts == 1);
	memset(u->mem.p, 0, 8);
	H_OK(xport_link_get(u->link, u->mem.p, 8, u->key, 0, &opt, XPORT_LINK_REPEATABLE));
	LINK_DONE(u, XPORT_OK, 1);
	memcpy(&word, u->mem.p, sizeof(word));
	H_EQ(value, word);
}
