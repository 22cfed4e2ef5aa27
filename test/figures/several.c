/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * several - what other transports of an instance, open and idle, cost an endpoint over shared memory.
 *
 *   several [IDLE]      prints a table in Markdown; IDLE: endpoints over ucx:tcp that do nothing, default 100
 *
 * Two processes.  In each of them one instance has ucx:shm alone, and one has three more transports, each open for an endpoint
 * that does nothing.  The rounds take turns, so that a busy machine slows down both.  Then the second gets the idle endpoints.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/tax/pair.h"

enum { ROUNDS = 61, STEPS = 400, WORDS = 4096, SMALL = 8 };

static const char several[] = "ucx:shm+ucx:tcp+ofi:tcp+ofi:sockets";
static const char *const others[] = {"ucx:tcp", "ofi:tcp", "ofi:sockets"};
static unsigned idle = 100;

/* One instance's side of a connection over ucx:shm. */
struct side {
	xport *x;
	xport_ep *ep;
	xport_mr *mr;
	xport_rkey *key;
	volatile uint64_t *words; /* the other writes into them */
	uint64_t turn;
};

/* ---- connecting: both processes call it ---- */

static void turn_both(struct pair *p, struct side *s)
{
	unsigned mine = atomic_fetch_add(&p->sh->at[p->id], 1) + 1;

	while (atomic_load(&p->sh->at[!p->id]) < mine)
		for (int i = 0; i < 2; i++)
			CHECK(s[i].x == NULL || xport_poll(s[i].x, NULL, 0) >= 0);
}

static void connect_over(struct pair *p, struct side *both, struct side *s, const char *transport, xport_ep **ep,
                         unsigned n)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .transports = transport};
	struct xport_ep_info info = {.size = sizeof(info)};
	xport_listener *listener = NULL;
	char name[80];

	if (p->id == 1) {
		CHECK(xport_listen(s->x, "127.0.0.1:0", NULL, &listener) == XPORT_OK);
		CHECK(xport_listener_name(listener, p->sh->address, sizeof(p->sh->address)) == XPORT_OK);
	}
	turn_both(p, both);
	for (unsigned i = 0; i < n; i++) {
		if (p->id == 1)
			CHECK(xport_accept(listener, 30000, &ep[i]) == XPORT_OK);
		else
			CHECK(xport_connect(s->x, p->sh->address, &attr, 30000, &ep[i]) == XPORT_OK);
	}
	CHECK(xport_ep_query(ep[0], &info) == XPORT_OK);
	snprintf(name, sizeof(name), "%s:%s", info.backend, info.provider);
	CHECK(strcmp(name, transport) == 0);
	turn_both(p, both);
	xport_listener_close(listener);
}

static void side_open(struct pair *p, struct side *both, struct side *s, const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend, .peer_timeout_ms = 60000};
	struct xport_mr_info mr = {.size = sizeof(mr)};
	struct xport_rkey_info key = {.size = sizeof(key)};

	CHECK(xport_open(&attr, &s->x) == XPORT_OK);
	CHECK(xport_mr_alloc(s->x, WORDS * 8, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &s->mr) == XPORT_OK);
	CHECK(xport_mr_query(s->mr, &mr) == XPORT_OK);
	s->words = mr.base;
	memset(mr.base, 0, WORDS * 8);
	connect_over(p, both, s, "ucx:shm", &s->ep, 1);
	p->sh->key_len[p->id][0] = sizeof(p->sh->key[0][0]);
	CHECK(xport_rkey_pack(s->mr, p->sh->key[p->id][0], &p->sh->key_len[p->id][0]) == XPORT_OK);
	turn_both(p, both);
	CHECK(xport_rkey_unpack(s->ep, p->sh->key[!p->id][0], p->sh->key_len[!p->id][0], &s->key) == XPORT_OK);
	do { /* until the owner has confirmed it */
		CHECK(xport_poll(s->x, NULL, 0) >= 0);
		CHECK(xport_rkey_query(s->key, &key) == XPORT_OK);
	} while (!key.direct);
	turn_both(p, both);
}

/* ---- the work: each returns ns a step, in process 0 ---- */

/* Reaps until one of that type comes; those of sends are nothing to wait for. */
static void await(struct side *s, unsigned type)
{
	struct xport_completion c;
	int n;

	do {
		n = xport_poll(s->x, &c, 1);
		CHECK(n >= 0 && (n == 0 || c.status == XPORT_OK));
	} while (n == 0 || c.type != type);
}

static void send_one(struct side *s)
{
	static const uint64_t word = 7;

	CHECK(xport_send(s->ep, &word, SMALL, 1, NULL) == XPORT_OK);
}

static void receive_one(struct side *s)
{
	static uint64_t in;

	CHECK(xport_recv(s->x, &in, sizeof(in), 1, UINT64_MAX, NULL) == XPORT_OK);
	await(s, XPORT_OP_RECV);
}

static void pingpong(struct pair *p, struct side *s)
{
	for (int i = 0; i < STEPS; i++) {
		if (p->id == 0)
			send_one(s);
		receive_one(s);
		if (p->id == 1)
			send_one(s);
	}
}

static void put_word(struct side *s, uint64_t at, uint64_t word)
{
	static const struct xport_opt local = {.size = sizeof(local), .flags = XPORT_LOCAL};

	CHECK(xport_put(s->ep, &word, SMALL, s->key, at * 8, &local) == XPORT_OK);
	await(s, XPORT_OP_PUT);
}

static void putpong(struct pair *p, struct side *s)
{
	for (int i = 0; i < STEPS; i++) {
		uint64_t turn = ++s->turn;

		if (p->id == 0)
			put_word(s, 0, turn);
		while (s->words[0] != turn)
			CHECK(xport_poll(s->x, NULL, 0) >= 0);
		if (p->id == 1)
			put_word(s, 0, turn);
	}
}

static void puts_alone(struct pair *p, struct side *s)
{
	for (int i = 0; i < 8 * STEPS && p->id == 0; i++)
		put_word(s, 8 + (uint64_t)i % 64, (uint64_t)i);
}

static void gets_alone(struct pair *p, struct side *s)
{
	uint64_t word;

	for (int i = 0; i < 4 * STEPS && p->id == 0; i++) {
		CHECK(xport_get(s->ep, &word, SMALL, s->key, 64, NULL) == XPORT_OK);
		await(s, XPORT_OP_GET);
	}
}

/* Messages one way, and an answer after each window. */
static void messages(struct pair *p, struct side *s)
{
	for (int i = 0; i < STEPS / 8; i++) {
		for (int k = 0; k < WINDOW; k++) {
			if (p->id == 0)
				send_one(s);
			else
				receive_one(s);
		}
		if (p->id == 0)
			receive_one(s);
		else
			send_one(s);
	}
}

static const struct kind {
	const char *name;
	void (*work)(struct pair *p, struct side *s);
	int steps; /* of one call */
} kinds[] = {
	{"send 8 B, ping-pong", pingpong, STEPS},         {"put 8 B, ping-pong", putpong, STEPS},
	{"put 8 B, rate", puts_alone, 8 * STEPS},         {"get 8 B, one after the other", gets_alone, 4 * STEPS},
	{"send 8 B, rate", messages, STEPS / 8 * WINDOW},
};

/* ---- the table ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double quantile(double *v, int percent)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[(ROUNDS - 1) * percent / 100];
}

static double once(struct pair *p, struct side *both, struct side *s, const struct kind *k)
{
	uint64_t began;

	turn_both(p, both);
	began = pair_ns();
	k->work(p, s);
	return (double)(pair_ns() - began) / k->steps;
}

static void compare(struct pair *p, struct side *both, const char *beside)
{
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		double alone[ROUNDS], among[ROUNDS], ratio[ROUNDS];

		for (int round = -1; round < ROUNDS; round++) {
			int at = round < 0 ? 0 : round; /* the first warms up */

			alone[at] = once(p, both, &both[0], &kinds[i]);
			among[at] = once(p, both, &both[1], &kinds[i]);
			ratio[at] = among[at] / alone[at];
		}
		if (p->id == 0)
			printf("| %s | %s | %.0f ns | %.0f ns | %.2f (%.2f to %.2f) |\n", kinds[i].name, beside,
			       quantile(alone, 50), quantile(among, 50), quantile(ratio, 50), quantile(ratio, 25),
			       quantile(ratio, 75));
	}
	fflush(stdout);
}

static void work(struct pair *p)
{
	static xport_ep *eps[4096];
	struct side both[2] = {{0}};
	char beside[80];

	pair_pin(p);
	side_open(p, both, &both[0], "ucx:shm");
	side_open(p, both, &both[1], several);
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		connect_over(p, both, &both[1], others[i], &eps[i], 1);
	if (p->id == 0)
		printf("| ucx:shm | beside | alone | with them | ratio (quartiles) |\n|---|---|---|---|---|\n");
	compare(p, both, "three transports");
	connect_over(p, both, &both[1], "ucx:tcp", eps + 3, idle);
	snprintf(beside, sizeof(beside), "and %u idle endpoints", idle);
	compare(p, both, beside);
	turn_both(p, both);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		idle = (unsigned)strtoul(argv[1], NULL, 10);
	if (argc > 2 || idle < 1 || idle > 4000) {
		fprintf(stderr, "usage: several [IDLE]    1 to 4000 idle endpoints, default 100\n");
		return 2;
	}
	return pair_run("ucx:shm", NULL, NULL, work);
}
