/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport_services.h>

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

/* One turn of an event loop. Returns the context of a get or put of the application that has completed, or NULL. */
static void *turn(xport *x, xport_far *far)
{
	struct pollfd p = {.fd = xport_fd(x), .events = POLLIN};
	struct xport_completion c;
	int own;

	poll(&p, 1, xport_far_timeout(far));
	if (xport_poll(x, &c, 1) < 1) {
		must(xport_far_step(far, NULL));
		return NULL;
	}
	own = xport_far_step(far, &c);
	must(own);
	if (own == 1 || c.context == NULL)
		return NULL;
	must(c.status);
	return c.context;
}

/* Until the get into this buffer, or the put from it, has completed. */
static void completed(xport *x, xport_far *far, const void *buf)
{
	while (turn(x, far) != buf)
		continue;
}

/* The next event, which must be a success. */
static struct xport_far_event next(xport *x, xport_far *far)
{
	struct xport_far_event e = {.size = sizeof(e)};

	while (xport_far_next(far, &e) == 0)
		turn(x, far);
	if (e.status != XPORT_OK)
		exit(1);
	return e;
}

int main(void)
{
	struct xport_far_attr attr = {.size = sizeof(attr), .lend = 1 << 20};
	struct xport_far_args args = {.size = sizeof(args),
	                              .length = 300000,
	                              .piece = 65536,
	                              .policy = XPORT_FAR_SPREAD};
	struct xport_far_lender_info lender = {.size = sizeof(lender)};
	struct xport_far_block_info shape = {.size = sizeof(shape)};
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	struct xport_far_place place = {.size = sizeof(place)};
	struct xport_far_event e = {.size = sizeof(e)};
	struct xport_far_info all = {.size = sizeof(all)};
	char name[64], back[6] = "", hello[6] = "hello";
	struct xport_opt opt = {.size = sizeof(opt)};
	xport_listener *listener;
	xport_far_block *block;
	xport_ep *ep, *peer;
	xport_far *far;
	xport *x;

	/* Lender and user are one instance, connected to its own listener. */
	if (xport_open(NULL, &x) ||
	    xport_listen(x, "127.0.0.1:0", NULL, &listener) ||
	    xport_listener_name(listener, name, sizeof(name)) ||
	    xport_connect(x, name, NULL, -1, &ep) ||
	    xport_accept(listener, -1, &peer))
		return 1;
	must(xport_far_create(x, &attr, &far));

	/* The lender describes itself; the user adds it: JOINED. */
	must(xport_far_entry(far, &entry));
	must(xport_far_add(far, ep, &entry, NULL));
	(void)next(x, far);
	must(xport_far_lender(far, ep, &lender));
	printf("%d bytes are free\n", (int)lender.free);

	/* A block of five pieces: DONE. */
	must(xport_far_alloc(far, &args, &block));
	must(xport_far_wait(far, &e, NULL, NULL, -1));
	must(e.status);
	opt.context = hello;
	must(xport_far_put(block, 70000, hello, 6, &opt));
	completed(x, far, hello);
	opt.context = back;
	must(xport_far_locate(block, 70000, &place));
	must(xport_get(place.ep, back, 6, place.rkey, place.offset, &opt));
	completed(x, far, back);

	/* Longer, and shorter. */
	must(xport_far_resize(block, 400000));
	(void)next(x, far);
	must(xport_far_block_query(block, &shape));
	printf("%d bytes\n", (int)shape.length);
	must(xport_far_get(block, 70000, back, 6, &opt));
	completed(x, far, back);
	puts(back);
	must(xport_far_move(block, 65536, 65536, ep)); /* it is there */
	(void)next(x, far);

	must(xport_far_free(block));
	must(xport_far_look(far));
	must(xport_far_query(far, &all));
	printf("%d lender\n", (int)all.lenders);
	must(xport_ep_close(ep, 1000));
	xport_far_forget(far, ep);
	xport_ep_destroy(ep);
	must(xport_far_destroy(far, NULL, NULL, 1000));
	xport_close(x);
	return 0;
}
