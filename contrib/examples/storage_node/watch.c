/* SPDX-License-Identifier: BSD-3-Clause */
#include "watch.h"

#include <string.h>

bool sm_ask(struct sm_watch *w)
{
	struct xport_rpc_args args = {.payload = &w->map.epoch,
	                              .len = sizeof(w->map.epoch),
	                              .reply = &w->next,
	                              .reply_max = sizeof(w->next),
	                              .deadline_ms = XPORT_RPC_DEADLINE_MAX};

	if (w->call != 0 || w->keeper == NULL)
		return false;
	if (sh_now_ms() >= w->again_ms && (w->call = sh_call(w->hub, w->keeper, "store.map", args)) == 0)
		w->again_ms = sh_again_ms(NULL);
	return w->call == 0;
}

static bool is_member(const struct sw_member *m)
{
	return m->rkey_len <= SW_RKEY && memchr(m->address, 0, SW_ADDRESS) != NULL;
}

static bool is_node(const struct sw_map *map, uint32_t node)
{
	return node == SW_NONE || node < map->nodes;
}

static bool is_map(const struct sw_map *map, size_t len)
{
	if (len != sizeof(*map) || map->nodes > SW_NODES || !is_member(&map->keeper))
		return false;
	for (uint64_t i = 0; i < map->nodes; i++)
		if (!is_member(&map->node[i]))
			return false;
	for (int i = 0; i < SR_RANGES; i++)
		if (!is_node(map, map->range[i].primary) || !is_node(map, map->range[i].second))
			return false;
	return true;
}

bool sm_done(struct sm_watch *w, const struct xport_rpc_event *e)
{
	if (e->id != w->call)
		return false;
	w->call = 0;
	if (e->status != XPORT_OK)
		w->again_ms = sh_again_ms(e);
	if (e->status != XPORT_OK || !is_map(&w->next, e->len) || w->next.epoch <= w->map.epoch)
		return false;
	w->map = w->next;
	return true;
}
