/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire.h"

#include <endian.h>
#include <string.h>

/* What is written or read next, and where it must end. */
struct cursor {
	uint8_t *at, *end;
	const uint8_t *from, *until;
	bool ok;
};

static void put(struct cursor *c, const void *p, size_t n)
{
	c->ok = c->ok && n <= (size_t)(c->end - c->at);
	if (!c->ok)
		return;
	memcpy(c->at, p, n);
	c->at += n;
}

static void get(struct cursor *c, void *p, size_t n)
{
	c->ok = c->ok && n <= (size_t)(c->until - c->from);
	if (!c->ok)
		return;
	memcpy(p, c->from, n);
	c->from += n;
}

static void put_u32(struct cursor *c, uint32_t v)
{
	v = htole32(v);
	put(c, &v, sizeof(v));
}

static void put_u64(struct cursor *c, uint64_t v)
{
	v = htole64(v);
	put(c, &v, sizeof(v));
}

static uint32_t get_u32(struct cursor *c)
{
	uint32_t v = 0;

	get(c, &v, sizeof(v));
	return le32toh(v);
}

static uint64_t get_u64(struct cursor *c)
{
	uint64_t v = 0;

	get(c, &v, sizeof(v));
	return le64toh(v);
}

/* ---- messages ---- */

size_t sw_write(const struct sw_message *m, uint8_t *to)
{
	struct cursor c = {.at = to, .end = to + SW_MESSAGE, .ok = true};

	put_u32(&c, m->type);
	put_u32(&c, m->status);
	put_u32(&c, m->range);
	put_u32(&c, m->slot);
	put_u64(&c, m->term);
	put_u64(&c, m->number);
	put_u32(&c, m->body_len);
	put_u32(&c, 0);
	put(&c, m->body, m->body_len);
	return (size_t)(c.at - to);
}

bool sw_read(struct sw_message *m, const uint8_t *from, size_t len)
{
	struct cursor c = {.from = from, .until = from + len, .ok = true};

	m->type = get_u32(&c);
	m->status = get_u32(&c);
	m->range = get_u32(&c);
	m->slot = get_u32(&c);
	m->term = get_u64(&c);
	m->number = get_u64(&c);
	m->body_len = get_u32(&c);
	(void)get_u32(&c);
	if (!c.ok || m->type == 0 || m->type >= SW_TYPES || m->range >= SR_RANGES || m->slot >= SR_SLOTS ||
	    m->body_len > SW_BODY || m->body_len != (size_t)(c.until - c.from))
		return false;
	memcpy(m->body, c.from, m->body_len);
	return true;
}

/* ---- bodies ---- */

static void put_member(struct cursor *c, const struct sw_member *p)
{
	put_u64(c, p->life);
	put_u32(c, p->rkey_len);
	put(c, p->address, SW_ADDRESS);
	put(c, p->rkey, p->rkey_len);
}

static void get_member(struct cursor *c, struct sw_member *p)
{
	memset(p, 0, sizeof(*p));
	p->life = get_u64(c);
	p->rkey_len = get_u32(c);
	get(c, p->address, SW_ADDRESS);
	c->ok = c->ok && p->rkey_len <= SW_RKEY && memchr(p->address, 0, SW_ADDRESS) != NULL;
	if (c->ok)
		get(c, p->rkey, p->rkey_len);
}

static struct cursor body_to_write(struct sw_message *m)
{
	return (struct cursor){.at = m->body, .end = m->body + SW_BODY, .ok = true};
}

static struct cursor body_to_read(const struct sw_message *m)
{
	return (struct cursor){.from = m->body, .until = m->body + m->body_len, .ok = true};
}

void sw_put_member(struct sw_message *m, const struct sw_member *member)
{
	struct cursor c = body_to_write(m);

	put_member(&c, member);
	m->body_len = (uint32_t)(c.at - m->body);
}

bool sw_get_member(const struct sw_message *m, struct sw_member *member)
{
	struct cursor c = body_to_read(m);

	get_member(&c, member);
	return c.ok && c.from == c.until;
}

void sw_put_map(struct sw_message *m, const struct sw_map *map)
{
	struct cursor c = body_to_write(m);

	put_u64(&c, map->epoch);
	put_u32(&c, map->nodes);
	put_member(&c, &map->keeper);
	for (uint32_t i = 0; i < map->nodes; i++)
		put_member(&c, &map->node[i]);
	for (int i = 0; i < SR_RANGES; i++) {
		put_u64(&c, map->range[i].term);
		put_u32(&c, map->range[i].primary);
		put_u32(&c, map->range[i].second);
		put_u32(&c, map->range[i].filled);
	}
	m->body_len = (uint32_t)(c.at - m->body);
}

static bool is_node(const struct sw_map *map, uint32_t node)
{
	return node == SW_NONE || node < map->nodes;
}

bool sw_get_map(const struct sw_message *m, struct sw_map *map)
{
	struct cursor c = body_to_read(m);

	memset(map, 0, sizeof(*map));
	map->epoch = get_u64(&c);
	map->nodes = get_u32(&c);
	get_member(&c, &map->keeper);
	if (!c.ok || map->nodes > SW_NODES)
		return false;
	for (uint32_t i = 0; i < map->nodes; i++)
		get_member(&c, &map->node[i]);
	for (int i = 0; i < SR_RANGES; i++) {
		map->range[i].term = get_u64(&c);
		map->range[i].primary = get_u32(&c);
		map->range[i].second = get_u32(&c);
		map->range[i].filled = get_u32(&c);
		c.ok = c.ok && is_node(map, map->range[i].primary) && is_node(map, map->range[i].second);
	}
	return c.ok && c.from == c.until;
}
