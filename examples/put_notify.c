/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * put_notify - a producer writes records straight into a ring buffer of the consumer.
 *
 *   put_notify             the consumer: prints its address, then verifies all records
 *   put_notify HOST:PORT   the producer: writes 1000 records of 4 KiB
 *
 * Each put carries a 64-bit value, which the peer gets as XPORT_EVENT_NOTIFY once the bytes are there.  The consumer
 * answers with the number of records that it has taken: the producer never overwrites a slot that is in use. */
#include <err.h>
#include <stdio.h>
#include <xport.h>

enum { SECOND = 1000, RECORDS = 1000, SLOTS = 8, WORDS = 512, RECORD_SIZE = WORDS * 8 };
static uint64_t ring[SLOTS][WORDS]; /* consumer: filled by the peer; producer: the records in flight */
static xport *x;
static xport_mr *mr;
static xport_ep *ep;
static xport_rkey *rkey; /* the peer's ring */

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

static struct xport_completion next_completion(void)
{
	struct xport_completion c;
	int n;

	while ((n = xport_wait(x, &c, 1, -1)) == 0)
		;
	check(n);
	if (c.status < 0 && c.type != XPORT_EVENT_CLOSED)
		errx(1, "%s", xport_strerror(c.status));
	return c;
}

/* Connects the two.  Each side hands over the key to its ring with the connection. */
static void meet(const char *address)
{
	struct xport_ep_info peer = {.size = sizeof(peer)};
	char key[1024], name[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = key, .private_len = sizeof(key)};
	xport_listener *listener;

	check(xport_mr_reg(x, ring, sizeof(ring), XPORT_REMOTE_WRITE, &mr));
	check(xport_rkey_pack(mr, key, &attr.private_len));
	if (address != NULL) {
		check(xport_connect(x, address, &attr, 10 * SECOND, &ep));
	} else {
		check(xport_listen(x, "127.0.0.1:0", &attr, &listener));
		check(xport_listener_name(listener, name, sizeof(name)));
		printf("%s\n", name);
		fflush(stdout);
		check(xport_accept(listener, 60 * SECOND, &ep));
	}
	check(xport_ep_query(ep, &peer));
	check(xport_rkey_unpack(ep, peer.private_data, peer.private_len, &rkey));
}

static void produce(void)
{
	struct xport_opt opt = {.size = sizeof(opt), .mr = mr};
	uint64_t next = 0, taken = 0; /* the next record to put; how many the consumer has taken */
	int busy[SLOTS] = {0};        /* 1: a put still reads this slot */

	while (taken < RECORDS) {
		uint64_t slot = next % SLOTS;

		if (next == RECORDS || next == taken + SLOTS || busy[slot]) {
			struct xport_completion c = next_completion();

			if (c.type == XPORT_OP_PUT_NOTIFY)
				*(int *)c.context = 0;
			else if (c.type == XPORT_EVENT_NOTIFY)
				taken = c.tag;
			continue;
		}
		for (uint64_t w = 0; w < WORDS; w++)
			ring[slot][w] = next * WORDS + w;
		busy[slot] = 1;
		opt.context = &busy[slot];
		opt.value = next++;
		check(xport_put_notify(ep, ring[slot], RECORD_SIZE, rkey, slot * RECORD_SIZE, &opt));
	}
	check(xport_ep_close(ep, 5 * SECOND));
}

static void consume(void)
{
	struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_QUIET}; /* no completion wanted */
	uint64_t taken = 0;
	struct xport_completion c;

	while ((c = next_completion()).type != XPORT_EVENT_CLOSED) {
		for (uint64_t w = 0; w < WORDS; w++)
			if (c.tag != taken || ring[taken % SLOTS][w] != taken * WORDS + w)
				errx(1, "wrong record");
		opt.value = ++taken;
		check(xport_put_notify(ep, NULL, 0, rkey, 0, &opt)); /* no bytes, only the value */
	}
	if (taken != RECORDS)
		errx(1, "only %d records", (int)taken);
}

int main(int argc, char **argv)
{
	check(xport_open(NULL, &x));
	meet(argc < 2 ? NULL : argv[1]);
	argc < 2 ? consume() : produce();
	xport_close(x);
	return 0;
}
