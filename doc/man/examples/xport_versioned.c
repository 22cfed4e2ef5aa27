/* SPDX-License-Identifier: BSD-3-Clause */
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

int main(void)
{
	struct xport_versioned_attr attr = {.size = sizeof(attr),
	                                    .form = XPORT_VERSIONED_SUMMED,
	                                    .length = 100};
	char mine[100] = "first", seen[100], key[2048], name[64];
	size_t len = sizeof(key);
	struct xport_completion c;
	xport_versioned_peer *reader;
	xport_versioned *object;
	xport_listener *listener;
	xport_ep *ep, *peer;
	xport_rkey *rkey;
	xport_mr *mr;
	xport *x;
	int r;

	/* Both ends are here: the instance connects to its own listener. */
	if (xport_open(NULL, &x) ||
	    xport_listen(x, "127.0.0.1:0", NULL, &listener) ||
	    xport_listener_name(listener, name, sizeof(name)) ||
	    xport_connect(x, name, NULL, -1, &ep) ||
	    xport_accept(listener, -1, &peer) ||
	    xport_mr_alloc(x, xport_versioned_size(&attr), 7, &mr) ||
	    xport_rkey_pack(mr, key, &len) ||
	    xport_rkey_unpack(ep, key, len, &rkey))
		return 1;

	must(xport_versioned_create(mr, 0, &attr, &object));
	must(xport_versioned_write(object, mine));
	must(xport_versioned_peer_create(x, ep, rkey, 0, &attr, &reader));

	/* In an event loop: its completions go to it. */
	must(xport_versioned_peer_read(reader, seen));
	do {
		r = xport_wait(x, &c, 1, -1);
		if (r > 0 && c.context == reader)
			r = xport_versioned_peer_step(reader, &c);
		else
			r = xport_versioned_peer_step(reader, NULL);
	} while (r == 1);
	must(r);
	printf("version %llu: %s\n",
	       (unsigned long long)xport_versioned_peer_version(reader), seen);

	/* Or wait for it. */
	strcpy(mine, "second, by a peer");
	must(xport_versioned_peer_write(reader, mine));
	must(xport_versioned_peer_wait(reader, NULL, NULL, -1));
	must(xport_versioned_peer_read(reader, seen));
	must(xport_versioned_peer_wait(reader, NULL, NULL, -1));
	printf("version %llu: %s, read again %llu times\n",
	       (unsigned long long)xport_versioned_peer_version(reader), seen,
	       (unsigned long long)xport_versioned_peer_retries(reader));

	/* Only where a writer died. */
	printf("locked: %d\n", xport_versioned_recover(object));
	xport_versioned_peer_destroy(reader);
	xport_versioned_destroy(object);
	xport_close(x);
	return strcmp(seen, "second, by a peer") != 0;
}
