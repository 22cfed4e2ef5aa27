/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <xport_services.h>

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
	static uint64_t memory[1000], copy[1000];
	struct xport_batch_op ops[100] = {0};
	struct xport_completion c = {0};
	char key[2048], name[64];
	size_t len = sizeof(key), done = 0, posted;
	xport_listener *listener;
	xport_ep *ep, *peer;
	xport_rkey *rkey;
	xport_mr *mr;
	int r;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, -1, &ep));
	must(xport_accept(listener, -1, &peer));
	must(xport_mr_reg(x, memory, sizeof(memory), XPORT_REMOTE_READ, &mr));
	must(xport_rkey_pack(mr, key, &len));
	must(xport_rkey_unpack(ep, key, len, &rkey));

	for (uint64_t i = 0; i < 100; i++) { /* each tenth of the numbers */
		memory[10 * i] = i + 1;
		ops[i].type = XPORT_OP_GET;
		ops[i].buf = &copy[i];
		ops[i].length = 8;
		ops[i].rkey = rkey;
		ops[i].offset = 8 * 10 * i;
	}
	do {
		r = xport_batch(ep, ops + done, sizeof(ops[0]), 100 - done, ops,
		                &posted);
		done += posted;
		if (r == XPORT_ERR_AGAIN)
			must(xport_poll(x, NULL,
			                0)); /* there may be room now */
		else
			must(r);
	} while (r == XPORT_ERR_AGAIN);
	while (c.context != ops)
		must(xport_wait(x, &c, 1, -1));
	must(c.status); /* all are here */
	printf("%llu numbers\n", (unsigned long long)copy[99]);
	xport_close(x);
	return copy[0] != 1 || copy[99] != 100;
}
