/* SPDX-License-Identifier: BSD-3-Clause */
#include "primary.h"

#include <stdlib.h>
#include <string.h>

/*
 * A second that does not answer for so long gets the record again.  More than WRITES writes of clients do not wait: each
 * holds a slot of the node's calls, and two nodes whose slots were all held could not take each other's copies.
 */
enum { COPY_MS = 10000, WRITES = 512 };

void sp_open(struct sp_primary *p, uint32_t id, struct st_table *table, struct sh_hub *hub)
{
	*p = (struct sp_primary){.id = id, .table = table, .watch = {.hub = hub}};
	for (int i = 0; i < SR_RANGES; i++)
		p->range[i].last = &p->range[i].first;
}

static const struct sw_range *map_of(const struct sp_primary *p, uint32_t range)
{
	return &p->watch.map.range[range];
}

static bool is_mine(const struct sp_primary *p, uint32_t range)
{
	return p->watch.map.epoch > 0 && map_of(p, range)->primary == p->id;
}

/* ---- answers ---- */

static void end_write(struct sp_primary *p, struct sp_write *w, enum sw_answer answer)
{
	uint8_t byte = (uint8_t)answer;

	sh_reply(p->watch.hub, w->request, XPORT_OK, &byte, 1);
	p->writes--;
	free(w);
}

static void end_first(struct sp_primary *p, uint32_t range, enum sw_answer answer)
{
	struct sp_range *r = &p->range[range];
	struct sp_write *w = r->first;

	r->first = w->next;
	if (r->first == NULL)
		r->last = &r->first;
	r->busy = false;
	end_write(p, w, answer);
}

/* ---- the second ---- */

static void make_copy(const struct sp_primary *p, uint32_t range, uint32_t slot, const struct sr_record *record,
                      struct sw_copy *copy)
{
	*copy = (struct sw_copy){.term = map_of(p, range)->term, .range = range, .slot = slot};
	sr_write(record, copy->record);
}

/* After a call that could not be made, or to a peer that was muted, there is a new endpoint. */
static void close_second(struct sp_primary *p, const xport_ep *ep)
{
	for (int i = 0; i < SW_NODES; i++) {
		if (p->to[i] == NULL || p->to[i] != ep)
			continue;
		sh_close(p->watch.hub, ep);
		p->to[i] = NULL;
	}
}

static uint64_t send_copy(struct sp_primary *p, uint32_t range, const struct sw_copy *copy)
{
	struct xport_rpc_args args = {
		.payload = copy, .len = sizeof(*copy), .deadline_ms = COPY_MS, .context = &p->range[range]};
	uint32_t second = map_of(p, range)->second;
	uint64_t id;

	if (second == SW_NONE || p->to[second] == NULL)
		return 0;
	id = sh_call(p->watch.hub, p->to[second], "store.copy", args);
	if (id == 0) {
		p->range[range].again_ms = sh_again_ms(NULL);
		close_second(p, p->to[second]);
	}
	return id;
}

static uint64_t copy_record(struct sp_primary *p, uint32_t range, uint32_t slot, const struct sr_record *record)
{
	struct sw_copy copy;

	make_copy(p, range, slot, record, &copy);
	return send_copy(p, range, &copy);
}

static uint64_t tell_keeper(struct sp_primary *p, uint32_t range)
{
	struct sw_filled filled = {.term = map_of(p, range)->term, .range = range};
	struct xport_rpc_args args = {
		.payload = &filled, .len = sizeof(filled), .deadline_ms = COPY_MS, .context = &p->range[range]};

	return p->watch.keeper == NULL ? 0 : sh_call(p->watch.hub, p->watch.keeper, "store.filled", args);
}

static bool is_paused(const struct sp_range *r)
{
	return r->again_ms > 0 && sh_now_ms() < r->again_ms;
}

/* Copies slot by slot, one copy at a time, and then tells the keeper. */
static void fill(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];
	struct sr_record record;

	if (r->fill != 0 || is_paused(r) || r->next > SR_SLOTS)
		return;
	if (map_of(p, range)->second == SW_NONE || map_of(p, range)->filled)
		return;
	for (; r->next < SR_SLOTS; r->next++) {
		st_table_read(p->table, range, r->next, &record);
		if (record.state == SR_NEVER)
			continue;
		r->fill = copy_record(p, range, r->next, &record);
		return;
	}
	r->fill = tell_keeper(p, range);
}

/* ---- writes ---- */

static void publish(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	st_table_write(p->table, range, r->slot, &r->record);
	end_first(p, range, SW_OK);
}

/* Planted: acknowledged now, copied when the next one comes. */
static void publish_early(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	if (r->is_late)
		(void)send_copy(p, range, &r->late);
	make_copy(p, range, r->slot, &r->record, &r->late);
	r->is_late = true;
	publish(p, range);
}

/* Decides where the first write goes.  One that cannot be done ends. */
static void begin(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];
	const struct sp_write *w = r->first;
	struct sr_record now;
	bool any = st_table_find(p->table, &w->record, !w->removes, &r->slot, &now);

	if (w->removes && (!any || now.state != SR_HELD)) {
		end_first(p, range, SW_NOT_FOUND);
		return;
	}
	if (!any) {
		end_first(p, range, SW_FULL);
		return;
	}
	r->record = w->record;
	r->record.version = now.version + 1;
	r->record.state = w->removes ? SR_DELETED : SR_HELD;
	if (w->removes)
		r->record.value_len = 0;
	r->busy = true;
}

/* Does what can be done now. */
static void work(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	while (r->first != NULL && r->copy == 0 && !is_paused(r)) {
		if (!r->busy)
			begin(p, range);
		if (!r->busy)
			continue;
		if (map_of(p, range)->second == SW_NONE)
			publish(p, range);
		else if (p->early)
			publish_early(p, range);
		else if ((r->copy = copy_record(p, range, r->slot, &r->record)) == 0)
			break; /* there is no way to the second now */
	}
	fill(p, range);
}

void sp_write(struct sp_primary *p, const struct xport_rpc_event *request, bool removes)
{
	struct sp_write *w = calloc(1, sizeof(*w));
	uint32_t range, home;

	if (w == NULL || request->len != SR_SLOT || !sr_read(&w->record, request->payload) || w->record.key_len == 0) {
		sh_reply(p->watch.hub, request->id, w == NULL ? XPORT_ERR_NO_MEMORY : XPORT_ERR_INVALID, NULL, 0);
		free(w);
		return;
	}
	if (p->writes == WRITES) {
		sh_reply(p->watch.hub, request->id, XPORT_ERR_BUSY, NULL, 0);
		free(w);
		return;
	}
	p->writes++;
	w->request = request->id;
	w->removes = removes;
	sr_place(w->record.key, w->record.key_len, &range, &home);
	if (!is_mine(p, range)) {
		end_write(p, w, SW_NOT_PRIMARY);
		return;
	}
	*p->range[range].last = w;
	p->range[range].last = &w->next;
	work(p, range);
}

/* sp_continue repeats a failed call after a pause.  The range has forgotten the calls of an earlier term. */
void sp_done(struct sp_primary *p, const struct xport_rpc_event *e)
{
	struct sp_range *r = e->context;
	uint32_t range = (uint32_t)(r - p->range);

	if (e->status == XPORT_ERR_PROTOCOL)
		close_second(p, e->ep);
	if (e->status != XPORT_OK && (e->id == r->fill || e->id == r->copy))
		r->again_ms = sh_again_ms(e);
	if (e->id == r->fill) {
		r->fill = 0;
		r->next += e->status == XPORT_OK;
	} else if (e->id == r->copy) {
		r->copy = 0;
		if (e->status == XPORT_OK)
			publish(p, range);
	}
	if (e->status == XPORT_OK && is_mine(p, range))
		work(p, range);
}

/* ---- maps ---- */

static void take_range(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	r->term = map_of(p, range)->term;
	r->is_late = false;
	r->copy = r->fill = 0;
	r->again_ms = 0;
	r->next = 0;
	if (is_mine(p, range))
		work(p, range);
	else
		while (r->first != NULL)
			end_first(p, range, SW_NOT_PRIMARY);
}

void sp_map(struct sp_primary *p)
{
	const struct sw_map *map = &p->watch.map;

	for (uint32_t i = 0; i < map->nodes; i++) {
		if (p->to[i] != NULL && p->to_life[i] != map->node[i].life) {
			sh_close(p->watch.hub, p->to[i]);
			p->to[i] = NULL;
		}
	}
	for (uint32_t i = 0; i < SR_RANGES; i++)
		if (map->range[i].term != p->range[i].term)
			take_range(p, i);
}

/* ---- ways ---- */

void sp_lost(struct sp_primary *p, const xport_ep *ep)
{
	for (int i = 0; i < SW_NODES; i++)
		if (p->to[i] == ep)
			p->to[i] = NULL;
}

/* Connecting waits if the second is dying, so each one is tried once. */
static bool connect_seconds(struct sp_primary *p)
{
	const struct sw_map *map = &p->watch.map;
	bool tried[SW_NODES] = {false}, all = true;

	for (uint32_t i = 0; i < SR_RANGES; i++) {
		uint32_t second = is_mine(p, i) ? map->range[i].second : SW_NONE;

		if (second == SW_NONE || p->to[second] != NULL || tried[second])
			continue;
		tried[second] = true;
		p->to[second] = sh_connect(p->watch.hub, map->node[second].address);
		p->to_life[second] = map->node[second].life;
		all = all && p->to[second] != NULL;
	}
	return all;
}

bool sp_continue(struct sp_primary *p)
{
	bool soon = !connect_seconds(p);

	for (uint32_t i = 0; i < SR_RANGES; i++) {
		if (!is_mine(p, i))
			continue;
		work(p, i);
		soon = soon || is_paused(&p->range[i]);
	}
	return soon;
}
