/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <xport.h>

static xport *x;

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_last_error(x, &e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

int main(void)
{
	/* The target's CPU may change it at the same time. */
	_Atomic uint64_t counter = 40;
	uint64_t old = 0;
	struct xport_atomic_args add = {.size = sizeof(add),
	                                .op = XPORT_ATOMIC_ADD,
	                                .width = 8,
	                                .operand = 2,
	                                .result = &old};
	struct xport_completion c = {0};
	char key[2048], name[64];
	size_t len = sizeof(key);
	xport_listener *listener;
	xport_ep *ep, *peer;
	xport_rkey *rkey;
	xport_mr *mr;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, -1, &ep));
	must(xport_accept(listener, -1, &peer));
	must(xport_mr_reg(x, &counter, sizeof(counter), XPORT_REMOTE_ATOMIC,
	                  &mr));
	must(xport_rkey_pack(mr, key, &len));
	must(xport_rkey_unpack(ep, key, len, &rkey));

	must(xport_atomic(ep, &add, rkey, 0, NULL));
	while (c.type != XPORT_OP_ATOMIC)
		must(xport_wait(x, &c, 1, -1));
	must(c.status);
	printf("it was %llu and is %llu\n", (unsigned long long)old,
	       (unsigned long long)atomic_load(&counter));
	xport_close(x);
	return old != 40 || atomic_load(&counter) != 42;
}
