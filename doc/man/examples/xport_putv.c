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

static void until(uint32_t type)
{
	struct xport_completion c;

	do
		must(xport_wait(x, &c, 1, -1));
	while (c.type != type);
	must(c.status);
}

int main(void)
{
	char memory[64] = "", key[2048], name[64];
	char head[] = "head", body[] = "body", into[2][4];
	/* "head" and "body", and where they go: 6 bytes to 8, 2 bytes to 40. */
	struct xport_iov from[] = {{head, 4, NULL}, {body, 4, NULL}};
	struct xport_iov to[] = {{into[1], 4, NULL}, {into[0], 4, NULL}};
	struct xport_riov place[] = {{8, 6}, {40, 2}};
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

	must(xport_putv(ep, from, 2, rkey, place, 2, NULL));
	until(XPORT_OP_PUT); /* "headbo" is at 8 now, "dy" at 40 */
	printf("%s %s\n", memory + 8, memory + 40);
	must(xport_getv(ep, to, 2, rkey, place, 2, NULL));
	until(XPORT_OP_GET); /* into[1] is "head", into[0] "body" */

	must(xport_recvv(x, to, 2, 1, UINT64_MAX, NULL));
	must(xport_sendv(ep, from, 2, 1, NULL)); /* one message of 8 bytes */
	until(XPORT_OP_RECV);
	printf("%.4s %.4s\n", into[1], into[0]);
	xport_close(x);
	return strcmp(memory + 8, "headbo") != 0 ||
	       strcmp(memory + 40, "dy") != 0 ||
	       memcmp(into, "bodyhead", 8) != 0;
}
