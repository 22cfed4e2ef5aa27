/* SPDX-License-Identifier: BSD-3-Clause */
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
	static uint64_t memory[1001], numbers[1001];
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
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
	must(xport_mr_reg(x, memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr));
	must(xport_rkey_pack(mr, key, &len));
	must(xport_rkey_unpack(ep, key, len, &rkey));

	for (uint64_t i = 0; i <= 1000; i++) {
		numbers[i] = i + 1;
		if (i == 1000) /* it must not overtake the others */
			must(xport_fence(ep));
		must(xport_put(ep, &numbers[i], 8, rkey, 8 * i, &quiet));
	}
	must(xport_flush(ep, NULL));
	while (c.type != XPORT_OP_FLUSH)
		must(xport_wait(x, &c, 1, -1));
	must(c.status); /* all of them are placed, and numbers may be reused */
	printf("%llu numbers\n", (unsigned long long)memory[1000]);
	xport_close(x);
	return memory[0] != 1 || memory[1000] != 1001;
}
