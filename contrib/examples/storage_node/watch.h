/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - the map of a node or client: each call of store.map gets the next one. */
#ifndef STORAGE_WATCH_H
#define STORAGE_WATCH_H

#include "hub.h"

struct sm_watch {
	struct sh_hub *hub;
	xport_ep *keeper; /* NULL: lost */
	uint64_t call;    /* for the next map; 0: none */
	int64_t again_ms; /* a call that failed is repeated then */
	struct sw_map map, next;
};

/* Asks for the next map, unless that is in progress.  Returns true if it must be called again in a moment. */
bool sm_ask(struct sm_watch *w);
/* Takes a call that has ended.  Returns whether it has brought another map. */
bool sm_done(struct sm_watch *w, const struct xport_rpc_event *e);

#endif
