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
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct xport_info limits = {.size = sizeof(limits)};
	uint64_t memory[512] = {0}, value = 1;
	xport_listener *listener;
	xport_ep *ep, *peer;
	xport_rkey *rkey;
	xport_mr *mr;
	char name[64];
	int status;
	size_t len;
	void *key;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, -1, &ep));
	must(xport_accept(listener, -1, &peer));

	/* At the owner of the memory: the key as bytes, to be sent anyhow. */
	must(xport_mr_reg(x, memory, sizeof(memory), XPORT_REMOTE_WRITE, &mr));
	must(xport_query(x, &limits));
	len = limits.rkey_max;
	key = malloc(len);
	must(key != NULL ? xport_rkey_pack(mr, key, &len)
	                 : XPORT_ERR_NO_MEMORY);

	/* At the peer. */
	must(xport_rkey_unpack(ep, key, len, &rkey));
	must(xport_rkey_query(rkey, &info));
	printf("a key of %zu bytes to %llu bytes\n", len,
	       (unsigned long long)info.length);
	status = xport_put(ep, &value, 8, rkey, sizeof(memory), NULL);
	printf("a put behind its end: %s\n", xport_status_name(status));
	xport_rkey_destroy(rkey);

	/* A key to the second half alone. */
	len = limits.rkey_max;
	must(xport_rkey_pack_range(mr, 2048, 2048, 0, key, &len));
	must(xport_rkey_unpack(ep, key, len, &rkey));
	must(xport_rkey_query(rkey, &info));
	printf("a key to a part of %llu bytes\n",
	       (unsigned long long)info.length);
	xport_rkey_destroy(rkey);
	must(xport_rkey_revoke(x, key, len));
	xport_close(x);
	free(key);
	return status != XPORT_ERR_BOUNDS || info.length != 2048;
}
