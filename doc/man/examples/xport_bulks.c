/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

enum { PIECES = 100, PIECE = 16, STRIDE = 40 };

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

/* One turn of an event loop. */
static void turn(xport *x, xport_bulks *bulks)
{
	struct pollfd p = {.fd = xport_fd(x), .events = POLLIN};
	struct xport_completion c;

	poll(&p, 1, xport_bulks_timeout(bulks));
	if (xport_poll(x, &c, 1) < 1)
		must(xport_bulks_step(bulks, NULL));
	else
		must(xport_bulks_step(bulks, &c)); /* 0: not of a transfer */
}

/* The owner's part: 100 pieces of 16 bytes, 40 bytes apart. */
static xport_bulk *describe(xport *x, xport_mr *mr, const char *address)
{
	struct xport_bulk_run run = {
		.mr = mr, .length = PIECE, .stride = STRIDE, .count = PIECES};
	struct xport_bulk_attr attr = {.size = sizeof(attr),
	                               .rights = XPORT_REMOTE_READ |
	                                         XPORT_REMOTE_WRITE,
	                               .owner = address};
	xport_bulk *bulk;

	must(xport_bulk_create(x, &run, 1, &attr, &bulk));
	return bulk;
}

int main(void)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr),
	                                .max_in_flight = 1 << 20};
	struct xport_bulks_info state = {.size = sizeof(state)};
	struct xport_bulk_info info = {.size = sizeof(info)};
	struct xport_bulk_event e = {.size = sizeof(e)};
	static char memory[PIECES * STRIDE], buf[PIECES * PIECE];
	struct xport_iov local = {.addr = buf, .len = sizeof(buf)};
	struct xport_bulk_args args = {.size = sizeof(args),
	                               .local = &local,
	                               .nlocal = 1,
	                               .deadline_ms = 5000,
	                               .flags = XPORT_BULK_SUM};
	xport_bulk *mine, *bulk;
	char name[64], bytes[300];
	size_t len = sizeof(bytes);
	xport_listener *listener;
	xport_ep *ep, *peer;
	xport_bulks *bulks;
	uint64_t id, sum;
	xport_mr *mr;
	xport *x;

	/* Both ends are here: the instance connects to its own listener. */
	if (xport_open(NULL, &x) ||
	    xport_listen(x, "127.0.0.1:0", NULL, &listener) ||
	    xport_listener_name(listener, name, sizeof(name)) ||
	    xport_connect(x, name, NULL, -1, &ep) ||
	    xport_accept(listener, -1, &peer) ||
	    xport_mr_reg(x, memory, sizeof(memory),
	                 XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &mr))
		return 1;
	mine = describe(x, mr, name);
	must(xport_bulk_pack(mine, bytes, &len));

	/* The peer's part. The bytes came by a message, say. */
	must(xport_bulks_create(x, &attr, &bulks));
	must(xport_bulk_unpack(ep, bytes, len, &bulk));
	must(xport_bulk_query(bulk, &info));
	printf("%llu bytes in %llu pieces at %s\n",
	       (unsigned long long)info.length, (unsigned long long)info.pieces,
	       info.owner);

	/* A push, in an event loop. The owner compares the checksum. */
	memset(buf, 'a', sizeof(buf));
	must(xport_bulk_push(bulks, bulk, &args));
	while (xport_bulks_next(bulks, &e) == 0)
		turn(x, bulks);
	must(xport_bulk_sum(mine, 0, info.length, &sum));
	printf("%s, checksum %s\n", xport_status_name(e.status),
	       sum == e.sum ? "right" : "wrong");

	/* A pull of the last 80 bytes; it may be too late to cancel it. */
	args.offset = info.length - 80;
	local.len = 80;
	args.id = &id;
	must(xport_bulk_pull(bulks, bulk, &args));
	if (xport_bulk_cancel(bulks, id) != XPORT_OK)
		printf("it was done already\n");
	must(xport_bulks_wait(bulks, &e, NULL, NULL, 5000));
	if (!e.released) /* the buffer is in use still */
		must(xport_bulks_wait(bulks, &e, NULL, NULL, 5000));

	must(xport_bulks_query(bulks, &state));
	printf("%llu bytes pushed\n", (unsigned long long)state.pushed);

	/* An endpoint is closed, forgotten, destroyed. */
	xport_bulk_free(bulk);
	xport_bulk_free(mine);
	must(xport_ep_close(ep, 1000));
	xport_bulks_forget(bulks, ep);
	xport_ep_destroy(ep);
	must(xport_bulks_destroy(bulks, NULL, NULL, 1000));
	xport_mr_dereg(mr);
	xport_close(x);
	return sum == e.sum || e.sum == 0 ? 0 : 1;
}
