/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kv_read - a table of keys and values that peers read without asking the server's program.
 *
 *   kv_read             the server: prints its address, changes values until the client leaves
 *   kv_read HOST:PORT   the client: 2000 reads by xport_get, each one verified
 *
 * While the server changes a slot, a get may return old and new bytes mixed, on every network.  So each slot has a
 * checksum, and the client reads again if it does not match.  (libxport_services has this ready: xport_versioned(3).)
 */
#include <err.h>
#include <stdio.h>
#include <xport.h>

enum { SECOND = 1000, SLOTS = 64, WORDS = 29, READS = 2000 };
static struct slot {
	uint64_t checksum, key, version, value[WORDS];
} table[SLOTS];
static xport *x;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s", e.operation, e.text);
	}
}

/* FNV-1a over everything behind the checksum. */
static uint64_t checksum(const struct slot *slot)
{
	const unsigned char *bytes = (const unsigned char *)slot;
	uint64_t sum = 0xcbf29ce484222325;

	for (size_t i = sizeof(slot->checksum); i < sizeof(*slot); i++)
		sum = (sum ^ bytes[i]) * 0x100000001b3;
	return sum;
}

static void update(uint64_t key)
{
	struct slot *slot = &table[key];

	slot->key = key;
	slot->version++;
	for (int w = 0; w < WORDS; w++)
		slot->value[w] = key * 1000 + slot->version;
	slot->checksum = checksum(slot);
}

static void serve(void)
{
	char rkey[1024], address[64];
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = rkey, .private_len = sizeof(rkey)};
	struct xport_completion c = {0};
	uint64_t key;
	xport_listener *listener;
	xport_mr *mr;
	xport_ep *ep;

	for (key = 0; key < SLOTS; key++)
		update(key);
	check(xport_mr_reg(x, table, sizeof(table), XPORT_REMOTE_READ, &mr));
	check(xport_rkey_pack(mr, rkey, &attr.private_len));
	check(xport_listen(x, "127.0.0.1:0", &attr, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	check(xport_accept(listener, 60 * SECOND, &ep));
	for (; c.type != XPORT_EVENT_CLOSED && c.type != XPORT_EVENT_LOST; key++) {
		update(key % SLOTS);
		check(xport_wait(x, &c, 1, 1)); /* answers gets where the network cannot read memory by itself */
	}
}

static void read_all(const char *address)
{
	struct xport_ep_info server = {.size = sizeof(server)};
	struct xport_completion c = {0};
	struct slot slot;
	int again = 0;
	xport_rkey *rkey;
	xport_ep *ep;

	check(xport_connect(x, address, NULL, 10 * SECOND, &ep));
	check(xport_ep_query(ep, &server));
	check(xport_rkey_unpack(ep, server.private_data, server.private_len, &rkey));
	for (int i = 0; i < READS;) {
		uint64_t key = (uint64_t)i * 7 % SLOTS;

		check(xport_get(ep, &slot, sizeof(slot), rkey, key * sizeof(slot), NULL));
		for (c.type = 0; c.type != XPORT_OP_GET;)
			check(xport_wait(x, &c, 1, -1));
		if (c.status < 0)
			errx(1, "%s", xport_strerror(c.status));
		if (slot.checksum != checksum(&slot))
			again++; /* the server changed it meanwhile: read it again */
		else if (slot.key != key || slot.value[0] != key * 1000 + slot.version)
			errx(1, "key %d: wrong value", (int)key);
		else
			i++;
	}
	printf("%d reads, %d repeated\n", READS, again);
	check(xport_ep_close(ep, 5 * SECOND));
}

int main(int argc, char **argv)
{
	check(xport_open(NULL, &x));
	if (argc < 2)
		serve();
	else
		read_all(argv[1]);
	xport_close(x);
	return 0;
}
