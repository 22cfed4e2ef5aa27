/* SPDX-License-Identifier: BSD-3-Clause */
#include "primary.h"

#include <stdlib.h>
#include <string.h>

/* So many records of a filling are under way at a time. */
enum { WINDOW = 16 };

void sp_open(struct sp_primary *p, uint32_t id, struct st_table *table)
{
	*p = (struct sp_primary){.id = id, .table = table};
	for (int i = 0; i < SR_RANGES; i++) {
		p->range[i].last = &p->range[i].first;
		p->map.range[i] = (struct sw_range){.primary = SW_NONE, .second = SW_NONE};
	}
}

static bool is_mine(const struct sp_primary *p, uint32_t range)
{
	return p->map.range[range].primary == p->id;
}

/* ---- answers ---- */

static void answer(const struct sp_write *w, enum sw_status status)
{
	struct sw_message m = {.type = SW_ANSWER, .status = status, .number = w->number};

	if (w->client != NULL)
		sh_send(w->client, &m);
}

static void end_first(struct sp_range *r, enum sw_status status)
{
	struct sp_write *w = r->first;

	r->first = w->next;
	if (r->first == NULL)
		r->last = &r->first;
	r->busy = false;
	answer(w, status);
	free(w);
}

/* ---- the second ---- */

/* NULL: there is none, or no way to it now. */
static struct sh_peer *second_of(const struct sp_primary *p, uint32_t range)
{
	uint32_t second = p->map.range[range].second;

	return second == SW_NONE ? NULL : p->to[second];
}

static void make_copy(const struct sp_primary *p, uint32_t range, uint32_t slot, const struct sr_record *record,
                      struct sw_message *m)
{
	*m = (struct sw_message){.type = SW_COPY, .range = range, .slot = slot, .body_len = SR_SLOT};
	m->term = p->map.range[range].term;
	m->number = record->version;
	sr_write(record, m->body);
}

static void fill_on(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];
	struct sh_peer *second = second_of(p, range);
	struct sr_record record;
	struct sw_message m;

	if (second == NULL || p->map.range[range].filled || r->told)
		return;
	for (; r->next < SR_SLOTS && r->sent - r->answered < WINDOW; r->next++) {
		st_table_read(p->table, range, r->next, &record);
		if (record.state == SR_NEVER)
			continue;
		make_copy(p, range, r->next, &record, &m);
		m.status = SW_FILLING;
		sh_send(second, &m);
		r->sent++;
	}
	if (r->next < SR_SLOTS || r->sent != r->answered)
		return;
	m = (struct sw_message){.type = SW_FILLED, .range = range, .term = p->map.range[range].term};
	sh_send(p->keeper, &m);
	r->told = true;
}

static void fill_anew(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	r->next = r->sent = r->answered = 0;
	r->told = false;
	fill_on(p, range);
}

/* ---- writes ---- */

static void publish(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	st_table_write(p->table, range, r->slot, &r->record);
	end_first(r, SW_OK);
}

/* Planted: acknowledged now, copied when the next one comes. */
static void publish_early(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	if (r->is_late && second_of(p, range) != NULL)
		sh_send(second_of(p, range), &r->late);
	make_copy(p, range, r->slot, &r->record, &r->late);
	r->is_late = true;
	publish(p, range);
}

/* The write that is under way, on from the first step; also after a map, or a new way to the second. */
static void copy(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];
	struct sh_peer *second = second_of(p, range);
	struct sw_message m;

	if (p->map.range[range].second == SW_NONE) {
		publish(p, range);
	} else if (p->early) {
		publish_early(p, range);
	} else if (second != NULL) {
		make_copy(p, range, r->slot, &r->record, &m);
		sh_send(second, &m);
	}
}

static void begin(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];
	const struct sp_write *w = r->first;
	struct sr_record now;
	bool any = st_table_find(p->table, &w->record, !w->removes, &r->slot, &now);

	if (w->removes && (!any || now.state != SR_HELD)) {
		end_first(r, SW_NOT_FOUND);
		return;
	}
	if (!any) {
		end_first(r, SW_FULL);
		return;
	}
	r->record = w->record;
	r->record.version = now.version + 1;
	r->record.state = w->removes ? SR_DELETED : SR_HELD;
	if (w->removes)
		r->record.value_len = 0;
	r->busy = true;
	copy(p, range);
}

static void begin_all(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	while (r->first != NULL && !r->busy)
		begin(p, range);
}

void sp_write(struct sp_primary *p, struct sh_peer *client, const struct sw_message *m)
{
	struct sp_write *w = calloc(1, sizeof(*w));
	uint32_t range, home;

	if (w == NULL || m->body_len != SR_SLOT || !sr_read(&w->record, m->body) || w->record.key_len == 0) {
		client->bad = true;
		free(w);
		return;
	}
	w->client = client;
	w->number = m->number;
	w->removes = m->type == SW_DELETE;
	sr_place(w->record.key, w->record.key_len, &range, &home);
	if (!is_mine(p, range)) {
		answer(w, SW_NOT_PRIMARY);
		free(w);
		return;
	}
	*p->range[range].last = w;
	p->range[range].last = &w->next;
	begin_all(p, range);
}

void sp_copied(struct sp_primary *p, const struct sw_message *m)
{
	struct sp_range *r = &p->range[m->range];

	if (!is_mine(p, m->range) || m->term != p->map.range[m->range].term)
		return; /* from an earlier second */
	if (m->status == SW_FILLING) {
		r->answered++;
		fill_on(p, m->range);
	} else if (r->busy && m->slot == r->slot && m->number == r->record.version) {
		publish(p, m->range);
		begin_all(p, m->range);
	}
}

/* ---- maps ---- */

static void refuse_all(struct sp_range *r)
{
	while (r->first != NULL)
		end_first(r, SW_NOT_PRIMARY);
}

static void take_range(struct sp_primary *p, uint32_t range)
{
	struct sp_range *r = &p->range[range];

	r->is_late = false;
	if (!is_mine(p, range)) {
		refuse_all(r);
		return;
	}
	fill_anew(p, range);
	if (r->busy)
		copy(p, range);
	begin_all(p, range);
}

void sp_map(struct sp_primary *p, const struct sw_map *map)
{
	struct sw_map old = p->map;

	p->map = *map;
	for (uint32_t i = 0; i < map->nodes; i++) {
		if (p->to[i] != NULL && p->to_life[i] != map->node[i].life) {
			p->to[i]->bad = true; /* closed in the next round of the loop */
			p->to[i] = NULL;
		}
	}
	for (uint32_t i = 0; i < SR_RANGES; i++)
		if (map->range[i].term != old.range[i].term)
			take_range(p, i);
}

/* ---- ways ---- */

void sp_lost(struct sp_primary *p, struct sh_peer *peer)
{
	for (int i = 0; i < SW_NODES; i++)
		if (p->to[i] == peer)
			p->to[i] = NULL;
	for (int i = 0; i < SR_RANGES; i++)
		for (struct sp_write *w = p->range[i].first; w != NULL; w = w->next)
			if (w->client == peer)
				w->client = NULL;
}

static bool is_second(const struct sp_primary *p, uint32_t node)
{
	for (uint32_t i = 0; i < SR_RANGES; i++)
		if (is_mine(p, i) && p->map.range[i].second == node)
			return true;
	return false;
}

/* What was sent on an earlier way may not have arrived. */
static void send_again(struct sp_primary *p, uint32_t node)
{
	for (uint32_t i = 0; i < SR_RANGES; i++) {
		if (!is_mine(p, i) || p->map.range[i].second != node)
			continue;
		fill_anew(p, i);
		if (p->range[i].busy)
			copy(p, i);
	}
}

bool sp_connect(struct sp_primary *p, struct sh_hub *hub)
{
	bool in_vain = false;

	for (uint32_t i = 0; i < p->map.nodes; i++) {
		if (p->to[i] != NULL || !is_second(p, i))
			continue;
		p->to[i] = sh_connect(hub, p->map.node[i].address);
		p->to_life[i] = p->map.node[i].life;
		if (p->to[i] != NULL)
			send_again(p, i);
		else
			in_vain = true;
	}
	return in_vain;
}
