/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_demo --mixed - one process, the hub, serves peers over several providers at the same time.
 *
 * The hub opens all of them as one instance, XPORT_BACKEND=A+B+C. It has one listener, one region and one loop. Each peer
 * opens one provider. It puts the file into its part of the region, and gets it back. Then it sends messages, and
 * increments a counter that all peers share.
 */
#define XXH_INLINE_ALL
#include <err.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "xport_demo.h"

enum { PEERS = 16, PART = 4 << 20 };
enum { SUM = 1, QUESTION, ANSWER }; /* tags */

struct shared { /* the region of the hub */
	_Alignas(4096) _Atomic uint64_t counter;
	_Alignas(4096) uint8_t part[PEERS][PART];
};

struct own { /* the region of a peer */
	_Alignas(4096) uint8_t out[PART], back[PART];
};

static int address[2]; /* a pipe by which the hub tells where it listens */

/* ---- The hub ---- */

static struct shared *shared;
static uint64_t question[PEERS], sum[PEERS];

static void hub_open(int peers, xport_listener **listener)
{
	const uint32_t rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC;
	char packed[1024], name[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = packed, .private_len = sizeof(packed)};
	struct xport_mr_info info = {.size = sizeof(info)};
	xport_mr *mr;

	must("open", xport_open(NULL, &x));
	must("memory", xport_mr_alloc(x, sizeof(*shared), rights, &mr));
	must("memory", xport_mr_query(mr, &info));
	shared = info.base;
	must("pack key", xport_rkey_pack(mr, packed, &attr.private_len));
	must("listen", xport_listen(x, "127.0.0.1:0", &attr, listener));
	must("listen", xport_listener_name(*listener, name, sizeof(name)));
	for (int i = 0; i < peers; i++)
		must("tell a peer", write(address[1], name, sizeof(name)) != sizeof(name));
}

/* Waits for the next question of any peer; `q` names it until the answer has left. */
static void hub_listen(uint64_t *q)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = q};

	must("receive", xport_recv(x, q, sizeof(*q), QUESTION, UINT64_MAX, &opt));
}

static void hub_put_arrived(const struct xport_completion *c)
{
	uint64_t i = c->tag; /* the peer says which part */

	must("a put that belongs to no part", i >= PEERS || c->length > PART);
	sum[i] = XXH3_64bits(shared->part[i], c->length);
	must("send the checksum", xport_send(c->ep, &sum[i], sizeof(sum[i]), SUM, NULL));
}

static void hub(int peers)
{
	xport_listener *listener;
	xport_ep *ep;
	int ended = 0;

	who = "hub";
	hub_open(peers, &listener);
	for (int i = 0; i < peers; i++)
		hub_listen(&question[i]);
	while (ended < peers) {
		struct xport_completion c;
		int n = xport_wait(x, &c, 1, PATIENCE_S * 1000);

		must("a peer's next step", n < 0 ? n : n == 0);
		switch (c.type) {
		case XPORT_EVENT_INCOMING:
			must("accept", xport_accept(listener, 0, &ep));
			break;
		case XPORT_EVENT_NOTIFY:
			hub_put_arrived(&c);
			break;
		case XPORT_OP_RECV: {
			struct xport_opt opt = {.size = sizeof(opt), .context = c.context};

			must("question", c.status);
			must("answer", xport_send(c.ep, c.context, sizeof(uint64_t), ANSWER, &opt));
			break;
		}
		case XPORT_OP_SEND:
			must("send", c.status);
			if (c.context != NULL)
				hub_listen(c.context);
			break;
		case XPORT_EVENT_CLOSED:
			xport_ep_destroy(c.ep);
			ended++;
			break;
		default:
			must("an event", c.status);
		}
	}
	must("counter", shared->counter != (uint64_t)peers * ROUNDS);
	xport_close(x);
	_exit(0);
}

/* ---- A peer ---- */

struct peer {
	xport_ep *ep;
	xport_mr *mr;
	struct own *own;
	xport_rkey *key;
	uint64_t index, part; /* which part of the region is its own, and where */
	double put_s, get_s;
};

static void peer_open(struct peer *p, struct xport_ep_info *info)
{
	struct xport_mr_info mine = {.size = sizeof(mine)};
	char name[64];

	must("open", xport_open(NULL, &x));
	must("memory", xport_mr_alloc(x, sizeof(struct own), 0, &p->mr));
	must("memory", xport_mr_query(p->mr, &mine));
	p->own = mine.base;
	must("hear from the hub", read(address[0], name, sizeof(name)) != sizeof(name));
	must("connect", xport_connect(x, name, NULL, PATIENCE_S * 1000, &p->ep));
	must("hub", xport_ep_query(p->ep, info));
	must("unpack key", xport_rkey_unpack(p->ep, info->private_data, info->private_len, &p->key));
}

static void peer_move(struct peer *p, uint64_t n)
{
	struct xport_opt opt = {.size = sizeof(opt), .mr = p->mr, .value = p->index};
	uint64_t theirs = 0;

	must("receive", xport_recv(x, &theirs, sizeof(theirs), SUM, UINT64_MAX, NULL));
	p->put_s -= now();
	finish("put", xport_put_notify(p->ep, p->own->out, n, p->key, p->part, &opt), 2); /* and the checksum */
	p->put_s += now();
	must("checksum of what was put", theirs != XXH3_64bits(p->own->out, n));
	p->get_s -= now();
	finish("get", xport_get(p->ep, p->own->back, n, p->key, p->part, &opt), 1);
	p->get_s += now();
	must("what was got", memcmp(p->own->back, p->own->out, n));
}

static void peer_ask(struct peer *p, uint64_t i)
{
	struct xport_atomic_args add = {.size = sizeof(add), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	uint64_t answer = 0;

	must("receive", xport_recv(x, &answer, sizeof(answer), ANSWER, UINT64_MAX, NULL));
	finish("question", xport_send(p->ep, &i, sizeof(i), QUESTION, NULL), 2);
	must("content of messages", answer != i);
	finish("atomic", xport_atomic(p->ep, &add, p->key, offsetof(struct shared, counter), NULL), 1);
}

static void peer(uint64_t index, int fd, uint64_t size)
{
	struct peer p = {.index = index, .part = offsetof(struct shared, part) + index * PART};
	struct xport_ep_info info = {.size = sizeof(info)};
	struct xport_rkey_info theirs = {.size = sizeof(theirs)};
	double gb = 1e-9 * (double)size;
	char name[64];

	who = "peer";
	peer_open(&p, &info);
	for (uint64_t at = 0; at == 0 || at < size; at += PART) {
		uint64_t n = size - at < PART ? size - at : PART;

		must("reading the file", pread(fd, p.own->out, n, (off_t)at) != (ssize_t)n);
		peer_move(&p, n);
	}
	for (uint64_t i = 0; i < ROUNDS; i++)
		peer_ask(&p, i);
	must("query key", xport_rkey_query(p.key, &theirs));
	snprintf(name, sizeof(name), "%s:%s", info.backend, info.provider);
	printf("%-12s %-8s %8.2f %8.2f %12d of each  ok\n", name, theirs.put ? "native" : "emulated", gb / p.put_s,
	       gb / p.get_s, ROUNDS);
	(void)xport_ep_close(p.ep, 5000);
	xport_close(x);
	_exit(0);
}

/* ---- All of them ---- */

static pid_t start(const char *backend)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid == 0)
		setenv("XPORT_BACKEND", backend, 1);
	return pid;
}

static int mixed_run(const char *set, char (*names)[64], int n, int fd, uint64_t size)
{
	int good = 0, st;
	pid_t server;

	if (pipe(address) != 0)
		err(1, "pipe");
	server = start(set);
	if (server == 0)
		hub(n);
	close(address[1]);
	for (int i = 0; i < n; i++)
		if (start(names[i]) == 0)
			peer((uint64_t)i, fd, size);
	for (int i = 0; i < n; i++) {
		pid_t pid = wait(&st);

		if (pid == server) {
			good -= st != 0;
			i--;
			server = 0;
		} else {
			good += st == 0;
		}
	}
	if (server != 0 && good < n)
		kill(server, SIGKILL);
	if (server != 0)
		good -= waitpid(server, &st, 0) == server && st != 0;
	if (good < n)
		printf("FAILED: a peer or the hub of %s\n", set);
	return good < n;
}

int mixed_of(const char *set, int fd, uint64_t size)
{
	char names[PEERS][64];
	int n = 0;

	for (const char *at = set; at != NULL && n < PEERS; n++) {
		const char *end = strchr(at, '+');

		snprintf(names[n], sizeof(names[n]), "%.*s", (int)(end != NULL ? end - at : 63), at);
		at = end != NULL ? end + 1 : NULL;
	}
	return mixed_run(set, names, n, fd, size);
}

int mixed_all(const struct xport_candidate *list, int max, int fd, uint64_t size)
{
	char names[PEERS][64], set[PEERS * 64] = "";
	size_t len = 0;
	int n = 0;

	for (int i = 0; i < max && list[i].name[0] != '\0' && n < PEERS; i++) {
		if (list[i].state != XPORT_READY)
			continue;
		snprintf(names[n], sizeof(names[n]), "%.63s", list[i].name);
		len += (size_t)snprintf(set + len, sizeof(set) - len, "%s%s", n > 0 ? "+" : "", names[n]);
		n++;
	}
	if (n == 0)
		errx(1, "no provider is usable here; xport_info says why");
	return mixed_run(set, names, n, fd, size);
}
