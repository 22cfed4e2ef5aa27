/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote_put - one process writes into the memory of another.
 *
 *   remote_put             the target: prints its address, then waits for the put
 *   remote_put HOST:PORT   the initiator: writes 8 bytes into the target's memory
 */
#include <err.h>
#include <stdio.h>
#include <xport.h>

enum { SECOND = 1000 };
static const uint64_t expected = 0x600df00d;
static xport *x;

/* Ends the program if a call failed.  The library knows what went wrong, and what helps. */
static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s. %s", e.operation, e.text, e.hint);
	}
}

/* Makes progress until a completion of this type arrives. */
static void wait_for(uint32_t type)
{
	struct xport_completion c = {0};

	while (c.type != type) {
		check(xport_wait(x, &c, 1, -1));
		if (c.status < 0 && c.type != XPORT_EVENT_CLOSED)
			errx(1, "%s", xport_strerror(c.status));
	}
}

static void target(void)
{
	struct xport_conn_attr attr = {.size = sizeof(attr)};
	xport_listener *listener;
	uint64_t memory = 0;
	char key[1024], address[64];
	size_t key_len = sizeof(key);
	xport_ep *ep;
	xport_mr *mr;

	check(xport_open(NULL, &x));
	check(xport_mr_reg(x, &memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr));
	check(xport_rkey_pack(mr, key, &key_len));
	attr.private_data = key; /* each peer that connects gets the key */
	attr.private_len = key_len;
	check(xport_listen(x, "127.0.0.1:0", &attr, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	check(xport_accept(listener, 60 * SECOND, &ep));
	wait_for(XPORT_EVENT_CLOSED); /* the initiator closes when its put has succeeded */
	if (memory != expected)
		errx(1, "wrong bytes");
	xport_close(x);
}

static void initiator(const char *address)
{
	struct xport_ep_info peer = {.size = sizeof(peer)};
	xport_rkey *rkey;
	xport_ep *ep;

	check(xport_open(NULL, &x));
	check(xport_connect(x, address, NULL, 10 * SECOND, &ep));
	check(xport_ep_query(ep, &peer)); /* the target's key came with the connection */
	check(xport_rkey_unpack(ep, peer.private_data, peer.private_len, &rkey));
	check(xport_put(ep, &expected, sizeof(expected), rkey, 0, NULL));
	wait_for(XPORT_OP_PUT); /* success: the bytes are visible in the target's memory */
	check(xport_ep_close(ep, 5 * SECOND));
	xport_close(x);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		target();
	else
		initiator(argv[1]);
	return 0;
}
