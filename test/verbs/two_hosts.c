/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * two_hosts - random operations between two machines, each of which is checked:
 *
 *   two_hosts target ADDRESS:PORT        listens there, answers every message, ends when the initiator closes
 *   two_hosts ADDRESS:PORT OPS [SEED [LONGEST]]
 *                                        keeps a copy of the target's memory; puts into it, gets from it, adds to it, sends
 *                                        messages that come back; at last it reads all of the memory.  Nothing is longer
 *                                        than LONGEST bytes (20000): RoCE sends all again that follows a packet which is
 *                                        out of place, so that long requests take for ever where many are
 *
 * The initiator ends with a line "OPS operations, N wrong", and 0 if none was.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xport.h>

enum { MEMORY = 1 << 20, WORDS = 4096, MOST = 20000, LIMIT_MS = 60000 };

static xport *x;
static xport_ep *ep;
static xport_mr *mr;
static xport_rkey *rkey;
static uint8_t *memory, model[MEMORY]; /* the first bytes are words that are added to */
static uint64_t seed = 1, longest = MOST;

static void die(const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (x == NULL || xport_last_error(x, &e) != XPORT_OK)
		e.text[0] = '\0';
	fprintf(stderr, "two_hosts: %s: %s\n", what, e.text);
	exit(1);
}

#define OK(call) ((call) == XPORT_OK ? (void)0 : die(#call))

/* xorshift64* */
static uint64_t draw(uint64_t below)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (seed * UINT64_C(0x2545f4914f6cdd1d) >> 16) % below;
}

static void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)draw(256);
}

/* Waits for one completion; false: the peer closed. */
static bool await(struct xport_completion *c)
{
	int n = xport_wait(x, c, 1, LIMIT_MS);

	if (n != 1)
		die("waiting");
	if (c->type == XPORT_EVENT_CLOSED)
		return false;
	if (c->status != XPORT_OK)
		die(xport_status_name(c->status));
	return true;
}

static void done(unsigned type)
{
	struct xport_completion c;

	if (!await(&c) || c.type != type)
		die("another completion was due");
}

static void open_all(void)
{
	const uint32_t rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC;
	struct xport_mr_info info = {.size = sizeof(info)};

	OK(xport_open(NULL, &x));
	OK(xport_mr_alloc(x, MEMORY, rights, &mr));
	OK(xport_mr_query(mr, &info));
	memory = info.base;
}

/* ---- target ---- */

static int target(const char *address)
{
	static uint8_t in[MOST];
	char key[1024];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = key, .private_len = sizeof(key)};
	struct xport_completion c;
	xport_listener *l;

	open_all();
	OK(xport_rkey_pack(mr, key, &attr.private_len));
	OK(xport_listen(x, address, &attr, &l));
	OK(xport_accept(l, 4 * LIMIT_MS, &ep));
	OK(xport_recv(x, in, sizeof(in), 0, 0, NULL));
	while (await(&c)) {
		if (c.type != XPORT_OP_RECV)
			continue;
		OK(xport_send(ep, in, c.length, c.tag + 1, NULL));
		do
			if (!await(&c))
				return 0;
		while (c.type != XPORT_OP_SEND);
		OK(xport_recv(x, in, sizeof(in), 0, 0, NULL));
	}
	xport_close(x);
	return 0;
}

/* ---- initiator ---- */

static uint64_t place(size_t len)
{
	return WORDS + draw(MEMORY - WORDS - len);
}

static void one_put(void)
{
	size_t len = draw(4) > 0 ? 1 + draw(64) : 1 + draw(longest);
	struct xport_opt opt = {.size = sizeof(opt), .mr = mr};
	uint64_t at = place(len);

	fill(memory, len);
	memcpy(model + at, memory, len);
	OK(xport_put(ep, memory, len, rkey, at, &opt));
	done(XPORT_OP_PUT);
}

static int one_get(void)
{
	size_t len = draw(4) > 0 ? 1 + draw(64) : 1 + draw(longest);
	struct xport_opt opt = {.size = sizeof(opt), .mr = mr};
	uint64_t at = place(len);

	memset(memory, 0xee, len);
	OK(xport_get(ep, memory, len, rkey, at, &opt));
	done(XPORT_OP_GET);
	return memcmp(memory, model + at, len) != 0;
}

static int one_add(void)
{
	uint64_t old = 0, was, now, by = draw(1000), at = 8 * draw(WORDS / 8);
	struct xport_atomic_args args = {
		.size = sizeof(args), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = by, .result = &old};

	memcpy(&was, model + at, 8);
	OK(xport_atomic(ep, &args, rkey, at, NULL));
	done(XPORT_OP_ATOMIC);
	now = was + by;
	memcpy(model + at, &now, 8);
	return old != was;
}

static int one_message(uint64_t tag)
{
	static uint8_t out[MOST], in[MOST];
	size_t len = draw(4) > 0 ? draw(64) : draw(longest);
	struct xport_completion c = {0};

	fill(out, len);
	OK(xport_recv(x, in, sizeof(in), tag + 1, UINT64_MAX, NULL));
	OK(xport_send(ep, out, len, tag, NULL));
	for (int i = 0; i < 2; i++) {
		struct xport_completion one;

		if (!await(&one))
			die("the target closed");
		if (one.type == XPORT_OP_RECV)
			c = one;
	}
	return c.type != XPORT_OP_RECV || c.length != len || memcmp(in, out, len) != 0;
}

static int all_of_it(void)
{
	struct xport_opt opt = {.size = sizeof(opt), .mr = mr};

	for (uint64_t at = 0, len; at < MEMORY; at += len) {
		len = MEMORY - at < longest ? MEMORY - at : longest;
		OK(xport_get(ep, memory + at, len, rkey, at, &opt));
		done(XPORT_OP_GET);
	}
	return memcmp(memory, model, MEMORY) != 0;
}

static int initiator(const char *address, uint64_t ops)
{
	struct xport_ep_info peer = {.size = sizeof(peer)};
	uint64_t wrong = 0;

	open_all();
	for (int i = 0; i < 60 && xport_connect(x, address, NULL, 2000, &ep) != XPORT_OK; i++) {
		ep = NULL;
		sleep(1); /* the other machine may be a minute later */
	}
	if (ep == NULL)
		die("connecting");
	OK(xport_ep_query(ep, &peer));
	OK(xport_rkey_unpack(ep, peer.private_data, peer.private_len, &rkey));
	for (uint64_t i = 0; i < ops; i++) {
		switch (draw(4)) {
		case 0:
			one_put();
			break;
		case 1:
			wrong += (uint64_t)one_get();
			break;
		case 2:
			wrong += (uint64_t)one_add();
			break;
		default:
			wrong += (uint64_t)one_message(2 * i);
			break;
		}
	}
	wrong += (uint64_t)all_of_it();
	printf("%llu operations, %llu wrong\n", (unsigned long long)ops, (unsigned long long)wrong);
	xport_ep_close(ep, 5000);
	xport_close(x);
	return wrong != 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "target") == 0)
		return target(argv[2]);
	if (argc > 3)
		seed = strtoull(argv[3], NULL, 0) | 1;
	if (argc > 4)
		longest = strtoull(argv[4], NULL, 0);
	if (longest < 64 || longest > MOST) {
		fprintf(stderr, "two_hosts: LONGEST is between 64 and %d\n", MOST);
		return 2;
	}
	if (argc > 2)
		return initiator(argv[1], strtoull(argv[2], NULL, 0));
	fprintf(stderr, "usage: two_hosts target ADDRESS:PORT | two_hosts ADDRESS:PORT OPS [SEED [LONGEST]]\n");
	return 2;
}
