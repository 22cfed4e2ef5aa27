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

/* What is not the leases': here, the completions of puts. */
static void other(void *arg, const struct xport_completion *c)
{
	if (c->type == XPORT_OP_PUT)
		*(int *)arg = c->status == XPORT_OK ? 1 : c->status;
}

/* One turn of an event loop. */
static void turn(xport *x, xport_leases *leases, int *placed)
{
	struct pollfd p = {.fd = xport_fd(x), .events = POLLIN};
	struct xport_completion c;

	poll(&p, 1, xport_leases_timeout(leases));
	if (xport_poll(x, &c, 1) < 1)
		must(xport_leases_step(leases, NULL));
	else if (xport_leases_step(leases, &c) == 0)
		other(placed, &c);
}

/* The bytes of a lease that the borrower has handed over. */
static const char *handed(const xport_lease *lease)
{
	struct xport_lease_info info = {.size = sizeof(info)};

	must(xport_lease_query(lease, &info));
	return info.base;
}

int main(void)
{
	struct xport_leases_attr attr = {.size = sizeof(attr),
	                                 .quota = 1 << 20,
	                                 .flags = XPORT_LEASES_TAKE |
	                                          XPORT_LEASES_HAND_OVER};
	struct xport_leases_info all = {.size = sizeof(all)};
	struct xport_lease_info info = {.size = sizeof(info)};
	struct xport_lease_event e = {.size = sizeof(e)};
	xport_lease *borrowed, *given;
	char own[100] = "", name[64];
	xport_listener *listener;
	xport_leases *leases;
	xport_ep *ep, *peer;
	int placed = 0;
	xport_mr *mr;
	xport *x;

	/* Both ends are here: the instance connects to its own listener. */
	if (xport_open(NULL, &x) ||
	    xport_listen(x, "127.0.0.1:0", NULL, &listener) ||
	    xport_listener_name(listener, name, sizeof(name)) ||
	    xport_connect(x, name, NULL, -1, &ep) ||
	    xport_accept(listener, -1, &peer))
		return 1;
	must(xport_leases_create(x, &attr, &leases));

	/* Ask the peer for memory, in an event loop, and use it. */
	must(xport_lease_ask(leases, ep, 4096, 7, NULL, &borrowed));
	while (xport_leases_next(leases, &e) == 0 || e.lease != borrowed)
		turn(x, leases, &placed);
	if (e.type != XPORT_LEASE_GRANTED)
		return 1;
	must(xport_lease_query(borrowed, &info));
	must(xport_put(ep, "hello", 6, info.rkey, 0, NULL));
	while (placed == 0)
		turn(x, leases, &placed);
	must(placed);

	/* Make it the peer's, which finds the bytes; xport_lease_return would drop them. Wait for it. */
	must(xport_lease_hand_over(borrowed));
	must(xport_lease_wait(borrowed, other, &placed, -1));
	must(xport_lease_free(borrowed));

	/* Ask for more, and give it back. */
	must(xport_lease_ask(leases, ep, 64, 7, NULL, &borrowed));
	do {
		must(xport_lease_query(borrowed, &info));
		turn(x, leases, &placed);
	} while (info.state == XPORT_LEASE_ASKING);
	must(xport_lease_return(borrowed));
	must(xport_lease_wait(borrowed, other, &placed, -1));
	must(xport_lease_free(borrowed));

	/* Give the peer a region of this process. */
	if (xport_mr_reg(x, own, sizeof(own), XPORT_REMOTE_WRITE, &mr))
		return 1;
	must(xport_lease_give(leases, ep, mr, own, &given));
	must(xport_lease_wait(given, other, &placed, -1));

	/* Take it back: nobody writes to it from now on. */
	must(xport_lease_revoke(given));
	must(xport_lease_wait(given, other, &placed, -1));
	must(xport_lease_free(given));

	/* What happened to the leases that the peer holds. */
	do {
		must(xport_leases_wait(leases, &e, other, &placed, -1));
		printf("event %d: %s\n", e.type, xport_status_name(e.status));
		xport_lease_set_context(e.lease, own);
		if (e.type == XPORT_LEASE_HANDED)
			printf("%s\n", handed(e.lease));
		if (e.type == XPORT_LEASE_ENDED || e.type == XPORT_LEASE_HANDED)
			must(xport_lease_free(e.lease));
		must(xport_leases_query(leases, &all));
	} while (all.lent + all.borrowed > 0 || e.type != XPORT_LEASE_ENDED);

	/* An endpoint is closed, forgotten, destroyed; the other end hears of it by an event. */
	must(xport_ep_close(ep, 1000));
	xport_leases_forget(leases, ep);
	xport_ep_destroy(ep);
	must(xport_leases_destroy(leases, other, &placed, 1000));
	xport_close(x);
	return 0;
}
