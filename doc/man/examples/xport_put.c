/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static struct xport_completion until(uint32_t type)
{
	struct xport_completion c;

	do
		must(xport_wait(x, &c, 1, -1));
	while (c.type != type);
	must(c.status);
	return c;
}

int main(void)
{
	struct xport_opt opt = {.size = sizeof(opt), .value = 7};
	char memory[64] = "", back[6] = "", key[2048], name[64];
	struct xport_completion c;
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
	must(xport_mr_reg(x, memory, sizeof(memory),
	                  XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &mr));
	must(xport_rkey_pack(mr, key, &len));
	must(xport_rkey_unpack(ep, key, len, &rkey));

	must(xport_put(ep, "hello", 6, rkey, 8, NULL));
	until(XPORT_OP_PUT); /* memory + 8 holds it now */
	must(xport_get(ep, back, sizeof(back), rkey, 8, NULL));
	until(XPORT_OP_GET); /* and so does back */
	must(xport_put_notify(ep, "again", 6, rkey, 16, &opt));
	c = until(XPORT_EVENT_NOTIFY); /* at the target */
	printf("%s, %s, value %llu\n", back, memory + c.offset,
	       (unsigned long long)c.tag);
	xport_close(x);
	return strcmp(back, "hello") != 0 ||
	       strcmp(memory + 16, "again") != 0 || c.tag != 7;
}
