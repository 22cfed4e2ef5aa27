/* SPDX-License-Identifier: BSD-3-Clause */
#include "node.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xport.h>

enum { SLOT = 3000, BODY = 200, RECEIVES = 64, KEY = 1, ACK = 2, DATA = 3 };

struct message {
	uint32_t type, from, to, number, length;
	uint8_t body[2048];
};

struct out {
	struct out *next;
	size_t len;
	struct message m;
};

/* To one neighbour. */
struct link {
	int rank;
	xport_ep *ep; /* NULL: none */
	xport_rkey *rkey;
	bool open, lost, putting;
	int tries;           /* to connect, in vain */
	uint32_t put, acked; /* rounds of ours */
	uint32_t seen;       /* rounds of its */
	struct out *waiting, **end;
	uint8_t bytes[SLOT];
};

struct node {
	const struct graph *g;
	struct board *board;
	int rank;
	xport *x;
	xport_listener *listener;
	xport_mr *mr;
	uint8_t *slots;
	struct link link[G_MAX];
	struct message in[RECEIVES];
	uint32_t got
		[G_MAX]; /* messages of each, of which number k must be the k-th of all its ways: they come in order */
	uint32_t target[G_MAX];
	int links, open, keys, unreaped;
};

uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void fail(struct node *n, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
static void fail(struct node *n, const char *fmt, ...)
{
	struct xport_error e = {.size = sizeof(e)};
	char *to = n->board->fault[n->rank];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(to, 250, fmt, ap);
	va_end(ap);
	if (n->x != NULL && xport_last_error(n->x, &e) == XPORT_OK && e.status != XPORT_OK)
		snprintf(to + len, 140, " (last error: %.20s: %.100s)", e.operation, e.text);
	exit(1);
}

static void must(struct node *n, int status, const char *what)
{
	if (status < 0)
		fail(n, "%s: %s", what, xport_status_name(status));
}

static void fill(uint8_t *at, size_t len, uint32_t from, uint32_t to, uint32_t number)
{
	uint32_t s = from * 2654435761u ^ to * 40503u ^ number * 97u;

	for (size_t i = 0; i < len; i++) {
		s = s * 1664525u + 1013904223u;
		at[i] = (uint8_t)(s >> 24);
	}
}

static void check(struct node *n, const uint8_t *at, size_t len, uint32_t from, uint32_t to, uint32_t number)
{
	uint8_t want[SLOT];

	fill(want, len, from, to, number);
	for (size_t i = 0; i < len; i++) {
		if (at[i] != want[i])
			fail(n, "byte %zu of %zu of number %u from %u to %u is %#x, not %#x", i, len, number, from, to,
			     at[i], want[i]);
	}
}

/* ---- sending ---- */

static void send_waiting(struct node *n, struct link *l)
{
	while (l->waiting != NULL && !l->lost) {
		struct out *o = l->waiting;
		struct xport_opt opt = {.size = sizeof(opt), .context = o};
		int r = xport_send(l->ep, &o->m, o->len, 0, &opt);

		if (r == XPORT_ERR_AGAIN)
			return;
		l->waiting = o->next;
		if (l->waiting == NULL)
			l->end = &l->waiting;
		if (r == XPORT_OK) {
			n->unreaped++;
			continue;
		}
		free(o);
		if (r != XPORT_ERR_PEER_LOST || !atomic_load(&n->board->dead[l->rank]))
			fail(n, "send to %d: %s", l->rank, xport_status_name(r));
	}
}

static void say(struct node *n, struct link *l, const struct message *m)
{
	struct out *o = malloc(sizeof(*o));

	if (o == NULL)
		fail(n, "out of memory");
	o->m = *m;
	o->len = offsetof(struct message, body) + m->length;
	o->next = NULL;
	*l->end = o;
	l->end = &o->next;
	send_waiting(n, l);
}

static void say_key(struct node *n, struct link *l)
{
	struct message m = {.type = KEY, .from = (uint32_t)n->rank};
	size_t len = sizeof(m.body);

	must(n, xport_rkey_pack(n->mr, m.body, &len), "xport_rkey_pack");
	m.length = (uint32_t)len;
	say(n, l, &m);
}

/* Puts the next round, when the one before has been seen. */
static void put_on(struct node *n, struct link *l)
{
	struct xport_opt o = {.size = sizeof(o), .context = l};
	int r;

	if (l->rkey == NULL || l->lost || l->putting || l->acked != l->put || l->put >= n->target[l->rank])
		return;
	fill(l->bytes, SLOT, (uint32_t)n->rank, (uint32_t)l->rank, l->put + 1);
	o.value = l->put + 1;
	r = xport_put_notify(l->ep, l->bytes, SLOT, l->rkey, (uint64_t)n->rank * SLOT, &o);
	if (r == XPORT_ERR_AGAIN)
		return;
	if (r == XPORT_ERR_PEER_LOST && atomic_load(&n->board->dead[l->rank]))
		return; /* its event comes */
	must(n, r, "xport_put_notify");
	l->put++;
	l->putting = true;
	n->unreaped++;
	atomic_fetch_add(&n->board->puts, 1);
}

/* ---- receiving ---- */

static void receive(struct node *n, struct message *m)
{
	struct xport_opt o = {.size = sizeof(o), .context = m};

	must(n, xport_recv(n->x, m, sizeof(*m), 0, 0, &o), "xport_recv");
}

static struct link *link_of(struct node *n, const xport_ep *ep)
{
	for (int i = 0; i < n->g->n; i++) {
		if (n->link[i].ep == ep && ep != NULL)
			return &n->link[i];
	}
	return NULL;
}

static void pass_on(struct node *n, const struct message *m)
{
	if (m->to >= (uint32_t)n->g->n || m->from >= (uint32_t)n->g->n || m->length != BODY)
		fail(n, "a message from %u to %u of %u bytes", m->from, m->to, m->length);
	if (m->to != (uint32_t)n->rank) {
		say(n, &n->link[n->g->next[n->rank][m->to]], m);
		return;
	}
	if (m->number != n->got[m->from])
		fail(n, "message %u of %u came, not %u", m->number, m->from, n->got[m->from]);
	check(n, m->body, BODY, m->from, m->to, m->number);
	n->got[m->from]++;
	atomic_fetch_add(&n->board->messages, 1);
}

static void received(struct node *n, const struct xport_completion *c)
{
	struct link *l = link_of(n, c->ep);
	struct message *m = c->context;

	must(n, c->status, "a receive");
	if (l == NULL || c->length != offsetof(struct message, body) + m->length)
		fail(n, "a message of %u bytes from nobody, or of a wrong length", (unsigned)c->length);
	if (m->type == KEY) {
		must(n, xport_rkey_unpack(l->ep, m->body, m->length, &l->rkey), "xport_rkey_unpack");
		n->keys++;
	} else if (m->type == ACK) {
		if (m->number != l->put)
			fail(n, "%d has seen round %u, not %u", l->rank, m->number, l->put);
		l->acked = m->number;
	} else {
		pass_on(n, m);
	}
	receive(n, m);
}

/* The bytes are there when the notification comes. */
static void notified(struct node *n, const struct xport_completion *c)
{
	struct link *l = link_of(n, c->ep);
	struct message m = {.type = ACK, .from = (uint32_t)n->rank};

	if (l == NULL || c->tag != l->seen + 1)
		fail(n, "notification %u, not %u", (unsigned)c->tag, l == NULL ? 0 : l->seen + 1);
	l->seen++;
	check(n, n->slots + (size_t)l->rank * SLOT, SLOT, (uint32_t)l->rank, (uint32_t)n->rank, l->seen);
	m.number = l->seen;
	say(n, l, &m);
}

static void connect_to(struct node *n, struct link *l)
{
	uint32_t rank = (uint32_t)n->rank;
	struct xport_conn_attr a = {.size = sizeof(a), .private_data = &rank, .private_len = sizeof(rank)};

	must(n, xport_connect(n->x, n->board->address[l->rank], &a, 0, &l->ep), "xport_connect");
}

/* A listener gives a connection 5 s, which on a loaded machine may be too few for sixteen processes that all begin. */
static bool connected_again(struct node *n, struct link *l, int status)
{
	if (l == NULL || l->open || l->tries == 3 || (status != XPORT_ERR_REFUSED && status != XPORT_ERR_TIMEOUT))
		return false;
	l->tries++;
	atomic_fetch_add(&n->board->again, 1);
	xport_ep_destroy(l->ep);
	connect_to(n, l);
	return true;
}

static void lost(struct node *n, const struct xport_completion *c)
{
	struct link *l = link_of(n, c->ep);
	uint64_t us;

	if (connected_again(n, l, c->status))
		return;
	if (l == NULL)
		fail(n, "an endpoint that nobody has ended: %s", xport_status_name(c->status));
	if (!atomic_load(&n->board->dead[l->rank]))
		fail(n, "%d lives, and its endpoint ended: %s", l->rank, xport_status_name(c->status));
	if (l->lost || c->type != XPORT_EVENT_LOST || c->status != XPORT_ERR_PEER_LOST)
		fail(n, "%d: event %u, %s", l->rank, (unsigned)c->type, xport_status_name(c->status));
	l->lost = true;
	us = now_us() - atomic_load(&n->board->killed_at[n->board->dead[l->rank]]);
	for (uint64_t old = atomic_load(&n->board->slowest_us); us > old;) {
		if (atomic_compare_exchange_weak(&n->board->slowest_us, &old, us))
			break;
	}
}

static void take_connection(struct node *n)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct link *l;
	uint32_t rank;
	xport_ep *ep;

	while (xport_accept(n->listener, 0, &ep) == XPORT_OK) {
		must(n, xport_ep_query(ep, &info), "xport_ep_query");
		if (info.private_len != sizeof(rank))
			fail(n, "private data of %zu bytes", info.private_len);
		memcpy(&rank, info.private_data, sizeof(rank));
		if (rank >= (uint32_t)n->g->n || n->link[rank].ep != NULL)
			fail(n, "a connection of %u", rank);
		l = &n->link[rank];
		l->ep = ep;
		l->open = true;
		n->open++;
	}
}

static void ended(struct node *n, const struct xport_completion *c)
{
	struct link *l = link_of(n, c->ep);

	if (c->type == XPORT_OP_SEND)
		free(c->context);
	else if (l != NULL)
		l->putting = false;
	n->unreaped--;
	if (c->status == XPORT_OK)
		return;
	if (l == NULL || c->status != XPORT_ERR_PEER_LOST || !atomic_load(&n->board->dead[l->rank]))
		fail(n, "operation %u to %d: %s", (unsigned)c->type, l == NULL ? -1 : l->rank,
		     xport_status_name(c->status));
}

static void take(struct node *n, const struct xport_completion *c)
{
	switch (c->type) {
	case XPORT_OP_RECV:
		received(n, c);
		break;
	case XPORT_EVENT_NOTIFY:
		notified(n, c);
		break;
	case XPORT_EVENT_CONNECTED:
		link_of(n, c->ep)->open = true;
		n->open++;
		break;
	case XPORT_EVENT_INCOMING:
		break;
	case XPORT_EVENT_LOST:
	case XPORT_EVENT_CLOSED:
		lost(n, c);
		break;
	default:
		ended(n, c);
	}
}

static void turn(struct node *n)
{
	struct pollfd p = {.fd = xport_fd(n->x), .events = POLLIN};
	struct xport_completion c[16];
	int got = xport_poll(n->x, c, 16);

	must(n, got, "xport_poll");
	for (int i = 0; i < got; i++)
		take(n, &c[i]);
	if (n->listener != NULL)
		take_connection(n);
	for (int i = 0; i < n->g->n; i++) {
		if (n->link[i].ep == NULL)
			continue;
		send_waiting(n, &n->link[i]);
		put_on(n, &n->link[i]);
	}
	if (got == 0)
		poll(&p, 1, 5);
}

/* ---- stages ---- */

static void meet(struct node *n, _Atomic int *count)
{
	atomic_fetch_add(count, 1);
	while (atomic_load(count) < n->g->n)
		turn(n);
}

static void connect_all(struct node *n)
{
	must(n, xport_listen(n->x, "127.0.0.1:0", NULL, &n->listener), "xport_listen");
	must(n, xport_listener_name(n->listener, n->board->address[n->rank], 64), "xport_listener_name");
	meet(n, &n->board->listening);
	for (int i = 0; i < n->rank; i++) {
		if (n->g->edge[n->rank][i])
			connect_to(n, &n->link[i]);
	}
	while (n->open < n->links)
		turn(n);
	meet(n, &n->board->connected);
	for (int i = 0; i < n->g->n; i++) {
		if (n->link[i].ep != NULL)
			say_key(n, &n->link[i]);
	}
	while (n->keys < n->links)
		turn(n);
}

static bool all_here(const struct node *n)
{
	for (int i = 0; i < n->g->n; i++) {
		if (i != n->rank && n->got[i] < MESSAGES)
			return false;
		if (n->link[i].ep != NULL && (n->link[i].acked < ROUNDS || n->link[i].seen < ROUNDS))
			return false;
	}
	return true;
}

static void everybody_to_everybody(struct node *n)
{
	struct message m = {.type = DATA, .from = (uint32_t)n->rank, .length = BODY};

	for (int i = 0; i < n->g->n; i++)
		n->target[i] = ROUNDS;
	for (m.number = 0; m.number < MESSAGES; m.number++) {
		for (m.to = 0; m.to < (uint32_t)n->g->n; m.to++) {
			if (m.to == (uint32_t)n->rank)
				continue;
			fill(m.body, BODY, m.from, m.to, m.number);
			say(n, &n->link[n->g->next[n->rank][m.to]], &m);
			turn(n);
		}
	}
	while (!all_here(n))
		turn(n);
	atomic_fetch_add(&n->board->arrived[0], 1);
	while (!atomic_load(&n->board->go[1]))
		turn(n);
}

/* Dead neighbours are known to be dead, and nobody else. */
static bool survived(struct node *n, const uint32_t *from)
{
	for (int i = 0; i < n->g->n; i++) {
		struct link *l = &n->link[i];

		if (l->ep == NULL)
			continue;
		if (atomic_load(&n->board->dead[i]) != 0) {
			if (!l->lost)
				return false;
		} else if (l->acked < from[i] + ROUNDS) {
			return false;
		}
	}
	return true;
}

/* Puts without end, until the parent has killed; then so many more with each neighbour that lives. */
static void go_through(struct node *n, int stage)
{
	uint32_t from[G_MAX] = {0};

	for (int i = 0; i < n->g->n; i++) {
		n->target[i] = UINT32_MAX;
		from[i] = n->link[i].acked;
	}
	for (bool running = false; !running; turn(n)) {
		running = true;
		for (int i = 0; i < n->g->n; i++)
			running &= n->link[i].ep == NULL || n->link[i].lost || atomic_load(&n->board->dead[i]) ||
			           n->link[i].acked >= from[i] + 2;
	}
	atomic_fetch_add(&n->board->running[stage], 1);
	while (!atomic_load(&n->board->killed_at[stage]))
		turn(n);
	for (int i = 0; i < n->g->n; i++)
		from[i] = n->link[i].acked;
	while (!survived(n, from))
		turn(n);
	atomic_fetch_add(&n->board->arrived[stage], 1);
	while (stage + 1 < STAGES && !atomic_load(&n->board->go[stage + 1]))
		turn(n);
}

static void write_log(void *arg, int level, const char *id, const char *line)
{
	struct node *n = arg;

	if (strcmp(id, "XP-1015") == 0)
		atomic_store(&n->board->stands, 1);
	if (level == XPORT_LOG_ERROR)
		fprintf(stderr, "process %d: %s: %s\n", n->rank, id, line);
}

static void open_it(struct node *n, const char *backend)
{
	struct xport_attr a = {
		.size = sizeof(a), .backend = backend, .peer_timeout_ms = 10000, .log_fn = write_log, .log_arg = n};
	struct xport_mr_info info = {.size = sizeof(info)};

	must(n, xport_open(&a, &n->x), "xport_open");
	must(n, xport_mr_alloc(n->x, (size_t)n->g->n * SLOT, XPORT_REMOTE_WRITE, &n->mr), "xport_mr_alloc");
	must(n, xport_mr_query(n->mr, &info), "xport_mr_query");
	n->slots = info.base;
	for (int i = 0; i < RECEIVES; i++)
		receive(n, &n->in[i]);
}

void node_run(const struct graph *g, int rank, const char *backend, struct board *board)
{
	static struct node n;

	n.g = g;
	n.rank = rank;
	n.board = board;
	for (int i = 0; i < g->n; i++) {
		n.link[i].rank = i;
		n.link[i].end = &n.link[i].waiting;
		n.links += g->edge[rank][i];
	}
	open_it(&n, backend);
	connect_all(&n);
	everybody_to_everybody(&n);
	for (int stage = 1; stage < STAGES; stage++)
		go_through(&n, stage);
	/* Nobody closes before everybody has seen what it should: an endpoint's end would be somebody's fault. */
	while (!atomic_load(&board->go[0]))
		turn(&n);
	atomic_fetch_add(&board->through, 1);
	while (!atomic_load(&board->end))
		usleep(1000);
	_exit(0);
}
