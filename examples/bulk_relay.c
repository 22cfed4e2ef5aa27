/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk_relay.c - three processes: an owner of memory, a broker that never touches it, and a worker that reads it.
 *
 *	bulk_relay				the owner: prints its address, and serves until its peers have gone
 *	bulk_relay HOST:PORT			the broker: asks the owner for a descriptor, prints its own address, and gives
 *						the bytes of the descriptor to one worker
 *	bulk_relay HOST:PORT worker		the worker: asks the broker for the bytes, connects to the owner that they
 *						name, and pulls what they describe
 *
 * The memory is a column of a table: many short pieces, equally far apart. One pull reads them all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

enum { ROWS = 1000, COLUMNS = 16, COLUMN = 3, ASK = 1, GIVE = 2, PACKED = 512, WAIT_MS = 30000 };

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "bulk_relay: %s: %s\n", xport_strerror(status), e.status == status ? e.text : "");
	exit(1);
}

/* Waits for a completion of this type. Returns 0 if the peer ends first. */
static int reap(xport *x, uint32_t type, struct xport_completion *c)
{
	for (;;) {
		int n = xport_wait(x, c, 1, WAIT_MS);

		check(n == 0 ? XPORT_ERR_TIMEOUT : n);
		if (c->type == XPORT_EVENT_LOST || c->type == XPORT_EVENT_CLOSED)
			return 0;
		check(c->status);
		if (c->type == type)
			return 1;
	}
}

/* Listens, prints the address, and keeps it in `address`. */
static xport_listener *listen_here(xport *x, char *address, size_t len)
{
	xport_listener *listener;

	check(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	check(xport_listener_name(listener, address, len));
	printf("%s\n", address);
	fflush(stdout);
	return listener;
}

/* Waits for a question of the peer, and gives it the bytes. */
static void give(xport *x, xport_ep *ep, const void *bytes, size_t len)
{
	struct xport_completion c;
	char ask;

	check(xport_recv(x, &ask, 1, ASK, UINT64_MAX, NULL));
	if (!reap(x, XPORT_OP_RECV, &c))
		return;
	check(xport_send(ep, bytes, len, GIVE, NULL));
	reap(x, XPORT_OP_SEND, &c);
}

/* Asks the peer. Returns how many bytes it gave. */
static size_t ask(xport *x, xport_ep *ep, void *bytes, size_t max)
{
	struct xport_completion c;

	check(xport_send(ep, "?", 1, ASK, NULL));
	check(xport_recv(x, bytes, max, GIVE, UINT64_MAX, NULL));
	check(reap(x, XPORT_OP_RECV, &c) ? XPORT_OK : XPORT_ERR_PEER_LOST);
	return c.length;
}

/* ---- the owner ---- */

static void own(xport *x)
{
	static uint64_t table[ROWS][COLUMNS];
	struct xport_bulk_run column = {.offset = COLUMN * sizeof(table[0][0]),
	                                .length = sizeof(table[0][0]),
	                                .stride = sizeof(table[0]),
	                                .count = ROWS};
	struct xport_bulk_attr attr = {.size = sizeof(attr), .rights = XPORT_REMOTE_READ, .flags = XPORT_BULK_CHECKED};
	struct xport_completion c;
	size_t len = PACKED;
	uint8_t bytes[PACKED];
	xport_ep *broker, *worker;
	xport_listener *listener;
	char address[64];
	xport_bulk *bulk;

	for (uint64_t row = 0; row < ROWS; row++)
		table[row][COLUMN] = row + 1;
	check(xport_mr_reg(x, table, sizeof(table), XPORT_REMOTE_READ, &column.mr));
	listener = listen_here(x, address, sizeof(address));
	attr.owner = address; /* the worker connects to it */
	check(xport_bulk_create(x, &column, 1, &attr, &bulk));
	check(xport_bulk_pack(bulk, bytes, &len));
	check(xport_accept(listener, WAIT_MS, &broker));
	give(x, broker, bytes, len);
	check(xport_accept(listener, WAIT_MS, &worker));
	do
		reap(x, 0, &c); /* until one of the two ends; the broker stays as long as the worker */
	while (c.ep != worker);
	xport_bulk_free(bulk);
	check(xport_mr_dereg(column.mr));
}

/* ---- the broker ---- */

static void relay(xport *x, const char *owner)
{
	struct xport_bulk_info info = {.size = sizeof(info)};
	struct xport_completion c;
	uint8_t bytes[PACKED];
	char address[64];
	xport_listener *listener;
	xport_ep *ep, *worker;
	xport_bulk *bulk;
	size_t len;

	check(xport_connect(x, owner, NULL, WAIT_MS, &ep));
	len = ask(x, ep, bytes, sizeof(bytes));
	check(xport_bulk_unpack(NULL, bytes, len, &bulk)); /* only to look at it */
	check(xport_bulk_query(bulk, &info));
	xport_bulk_free(bulk);
	fprintf(stderr, "broker: %llu bytes in %llu pieces at %s\n", (unsigned long long)info.length,
	        (unsigned long long)info.pieces, info.owner);
	listener = listen_here(x, address, sizeof(address));
	check(xport_accept(listener, WAIT_MS, &worker));
	give(x, worker, bytes, len);
	while (reap(x, 0, &c))
		;
	(void)xport_ep_close(ep, 1000); /* the owner may have ended first */
}

/* ---- the worker ---- */

static void pull(xport *x, xport_ep *ep, const void *bytes, size_t len)
{
	static uint64_t got[ROWS];
	struct xport_iov to = {.addr = got, .len = sizeof(got)};
	struct xport_bulk_args args = {.size = sizeof(args), .local = &to, .nlocal = 1, .deadline_ms = 10000};
	struct xport_bulk_event e = {.size = sizeof(e)};
	uint64_t sum = 0;
	xport_bulks *bulks;
	xport_bulk *bulk;

	check(xport_bulks_create(x, NULL, &bulks));
	check(xport_bulk_unpack(ep, bytes, len, &bulk));
	check(xport_bulk_pull(bulks, bulk, &args));
	check(xport_bulks_wait(bulks, &e, NULL, NULL, -1));
	if (e.status != XPORT_OK)
		fprintf(stderr, "bulk_relay: %s\n", e.why);
	check(e.status);
	for (int row = 0; row < ROWS; row++)
		sum += got[row];
	printf("worker: %d rows, sum %llu, checksum %s\n", ROWS, (unsigned long long)sum,
	       e.checked ? "compared" : "absent");
	xport_bulk_free(bulk);
	check(xport_bulks_destroy(bulks, NULL, NULL, 1000));
}

static void work(xport *x, const char *broker)
{
	struct xport_bulk_info info = {.size = sizeof(info)};
	uint8_t bytes[PACKED];
	xport_ep *ep, *owner;
	xport_bulk *bulk;
	size_t len;

	check(xport_connect(x, broker, NULL, WAIT_MS, &ep));
	len = ask(x, ep, bytes, sizeof(bytes));
	check(xport_bulk_unpack(NULL, bytes, len, &bulk));
	check(xport_bulk_query(bulk, &info));
	xport_bulk_free(bulk);
	check(xport_connect(x, info.owner, NULL, WAIT_MS, &owner));
	pull(x, owner, bytes, len);
	check(xport_ep_close(owner, 1000));
	check(xport_ep_close(ep, 1000));
}

int main(int argc, char **argv)
{
	xport *x;

	check(xport_open(NULL, &x));
	if (argc < 2)
		own(x);
	else if (argc < 3)
		relay(x, argv[1]);
	else
		work(x, argv[1]);
	xport_close(x);
	return 0;
}
