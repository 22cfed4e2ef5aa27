/* SPDX-License-Identifier: BSD-3-Clause */
/* info_peer.c - which transport a running listener and this process agree on. */
#include <stdio.h>

#include "tools/info.h"

enum { PEER_TIMEOUT_MS = 30000 };

static int peer_failed(struct xport_error *e, xport *x)
{
	e->size = sizeof(*e);
	(void)xport_last_error(x, e);
	return 1;
}

static void peer_show(const char *address, const struct xport_ep_info *i)
{
	printf("%s: process %lld on %s, over %s:%s%s%s\n", address, (long long)i->peer_pid, i->peer_host, i->backend,
	       i->provider, i->device[0] != '\0' ? ", device " : "", i->device);
	if (i->passed_over[0] != '\0')
		printf("  passed over: %s\n", i->passed_over);
}

int info_peer(const struct info *info, struct xport_error *e)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = info->nnames > 0 ? info->names[0] : NULL};
	struct xport_ep_info i = {.size = sizeof(i)};
	xport_ep *ep;
	xport *x;
	int rc = 0;

	if (xport_open(&attr, &x) != XPORT_OK)
		return peer_failed(e, NULL);
	if (xport_connect(x, info->peer, NULL, PEER_TIMEOUT_MS, &ep) != XPORT_OK || xport_ep_query(ep, &i) != XPORT_OK)
		rc = peer_failed(e, x);
	else
		peer_show(info->peer, &i);
	xport_close(x);
	return rc;
}
