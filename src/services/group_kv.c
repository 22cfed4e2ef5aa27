/* SPDX-License-Identifier: BSD-3-Clause */
/* The values of a group: what was put is passed around by a fence, so that each member has all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/clock.h"
#include "services/group.h"
#include "services/last_error.h"
#include "services/wire.h"

enum { ENTRY_HEAD = 8 }; /* the lengths of key and value */

static unsigned value_bucket(const char *key)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (; *key != '\0'; key++)
		h = (h ^ (uint8_t)*key) * UINT64_C(0x100000001b3);
	return (unsigned)(h % SVC_GROUP_BUCKETS);
}

static struct svc_group_value *value_new(const void *key, size_t key_len, const void *bytes, size_t len)
{
	struct svc_group_value *v = malloc(sizeof(*v) + len);

	if (v == NULL)
		return NULL;
	v->next = NULL;
	v->len = len;
	memcpy(v->key, key, key_len);
	v->key[key_len] = '\0';
	if (len > 0)
		memcpy(v->bytes, bytes, len);
	return v;
}

/* The place of the pointer to this key's value, or of where it goes. */
static struct svc_group_value **value_find(struct xport_group *g, const char *key)
{
	struct svc_group_value **at = &g->value[value_bucket(key)];

	while (*at != NULL && strcmp((*at)->key, key) != 0)
		at = &(*at)->next;
	return at;
}

static void value_enter(struct xport_group *g, struct svc_group_value *v)
{
	struct svc_group_value **at = value_find(g, v->key), *old = *at;

	v->next = old == NULL ? NULL : old->next;
	*at = v;
	free(old);
}

static void list_free(struct svc_group_value *list)
{
	while (list != NULL) {
		struct svc_group_value *v = list;

		list = v->next;
		free(v);
	}
}

void svc_values_free(struct xport_group *g)
{
	list_free(g->put);
	for (int i = 0; i < SVC_GROUP_BUCKETS; i++) {
		while (g->value[i] != NULL) {
			struct svc_group_value *v = g->value[i];

			g->value[i] = v->next;
			free(v);
		}
	}
}

int xport_group_put(xport_group *g, const char *key, const void *value, size_t len)
{
	static const char op[] = "xport_group_put";
	size_t key_len = key == NULL ? 0 : strlen(key);
	struct svc_group_value *v;

	if (g == NULL || key == NULL || (value == NULL && len > 0))
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "%s is NULL",
		                g == NULL     ? "group"
		                : key == NULL ? "key"
		                              : "value");
	if (key_len < 1 || key_len > XPORT_GROUP_KEY_MAX || len > XPORT_GROUP_VALUE_MAX)
		return svc_fail(XPORT_ERR_INVALID, op, "1 to 255 bytes, and a value of at most 1 MiB",
		                "a key of %zu bytes, and a value of %zu", key_len, len);
	v = value_new(key, key_len, value, len);
	if (v == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, op, NULL, "out of memory");
	pthread_mutex_lock(&g->lock);
	*g->put_end = v;
	g->put_end = &v->next;
	g->put_bytes += ENTRY_HEAD + key_len + len;
	pthread_mutex_unlock(&g->lock);
	return XPORT_OK;
}

int xport_group_get(xport_group *g, const char *key, void *value, size_t *len)
{
	static const char op[] = "xport_group_get";
	const struct svc_group_value *v;
	int r = XPORT_OK;

	if (g == NULL || key == NULL || len == NULL || (value == NULL && *len > 0))
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "an argument is NULL");
	pthread_mutex_lock(&g->lock);
	v = *value_find(g, key);
	if (v == NULL) {
		r = svc_fail(XPORT_ERR_UNREACHABLE, op, "put it, and call xport_group_fence at all members",
		             "no member had put \"%.100s\" before the last fence", key);
	} else {
		if (v->len > *len)
			r = svc_fail(XPORT_ERR_BOUNDS, op, NULL, "the value has %zu bytes, the buffer %zu", v->len,
			             *len);
		else if (v->len > 0)
			memcpy(value, v->bytes, v->len);
		*len = v->len;
	}
	pthread_mutex_unlock(&g->lock);
	return r;
}

static void entries_write(const struct svc_group_value *list, uint8_t *bytes, size_t len)
{
	struct xpi_wr w = xpi_wr(bytes, len);

	for (const struct svc_group_value *v = list; v != NULL; v = v->next) {
		xpi_wr_u32(&w, (uint32_t)strlen(v->key));
		xpi_wr_u32(&w, (uint32_t)v->len);
		xpi_wr_bytes(&w, v->key, strlen(v->key));
		xpi_wr_bytes(&w, v->bytes, v->len);
	}
}

/* Takes the values of all members. */
static int entries_read(struct xport_group *g, const uint8_t *bytes, size_t len)
{
	struct xpi_rd r = xpi_rd(bytes, len);

	while (r.left > 0) {
		uint32_t key_len = xpi_rd_u32(&r), value_len = xpi_rd_u32(&r);
		const uint8_t *key = xpi_rd_bytes(&r, key_len), *value = xpi_rd_bytes(&r, value_len);
		struct svc_group_value *v;

		if (r.bad || key_len < 1 || key_len > XPORT_GROUP_KEY_MAX || memchr(key, 0, key_len) != NULL)
			return XPORT_ERR_PROTOCOL;
		v = value_new(key, key_len, value, value_len);
		if (v == NULL)
			return XPORT_ERR_NO_MEMORY;
		value_enter(g, v);
	}
	return XPORT_OK;
}

/* The bytes of all members. `sizes` has those of each, and the sums become the offsets. `list` is this member's. */
static int fence_bytes(struct xport_group *g, const struct svc_group_value *list, const uint64_t *sizes, size_t *offset,
                       int64_t until, const char *op)
{
	uint8_t *all;
	int r;

	offset[0] = 0;
	for (int i = 0; i < g->members; i++) {
		if (sizes[i] > (uint64_t)PTRDIFF_MAX - offset[i]) {
			svc_group_fail(g, i, XPORT_ERR_PROTOCOL, "rank %d put more than the address space holds", i);
			return XPORT_ERR_PROTOCOL;
		}
		offset[i + 1] = offset[i] + (size_t)sizes[i];
	}
	if (offset[g->members] == 0)
		return XPORT_OK;
	all = malloc(offset[g->members]);
	if (all == NULL) {
		svc_group_fail(g, g->rank, XPORT_ERR_NO_MEMORY, "rank %d is out of memory", g->rank);
		return XPORT_ERR_NO_MEMORY;
	}
	entries_write(list, all + offset[g->rank], (size_t)sizes[g->rank]);
	r = svc_coll_ring(g, all, offset, until, op);
	if (r == XPORT_OK) {
		r = entries_read(g, all, offset[g->members]);
		if (r != XPORT_OK)
			svc_group_fail(g, g->rank, r, "rank %d could not take the values: %s", g->rank,
			               xport_strerror(r));
	}
	if (r != XPORT_OK)
		r = svc_coll_end(g, r, op); /* the buffer is in use until then */
	free(all);
	return r;
}

static int fence(struct xport_group *g, int64_t until, const char *op)
{
	size_t n = (size_t)g->members;
	/* What is put from now on goes with the next fence. */
	struct svc_group_value *list = g->put;
	uint64_t bytes = g->put_bytes;
	uint64_t *sizes = calloc(n, sizeof(*sizes));
	size_t *offset = calloc(n + 1, sizeof(*offset));
	int r;

	g->put = NULL;
	g->put_end = &g->put;
	g->put_bytes = 0;
	if (sizes == NULL || offset == NULL) {
		svc_group_fail(g, g->rank, XPORT_ERR_NO_MEMORY, "rank %d is out of memory", g->rank);
		r = XPORT_ERR_NO_MEMORY;
	} else {
		sizes[g->rank] = bytes;
		r = svc_coll_allgather(g, sizeof(*sizes), (uint8_t *)sizes, until, op);
		if (r == XPORT_OK)
			r = fence_bytes(g, list, sizes, offset, until, op);
		else
			r = svc_coll_end(g, r, op);
	}
	list_free(list);
	free(sizes);
	free(offset);
	return r;
}

int xport_group_fence(xport_group *g, int timeout_ms)
{
	static const char op[] = "xport_group_fence";
	int r = svc_time_valid(timeout_ms, op);
	int64_t until;

	if (r != XPORT_OK)
		return r;
	if (g == NULL)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "group is NULL");
	pthread_mutex_lock(&g->lock);
	r = svc_group_enter(g, op);
	if (r == XPORT_OK) {
		until = timeout_ms < 0 ? -1 : svc_now_ms() + timeout_ms;
		r = svc_coll_begin(g, SVC_GROUP_FENCE, 0, 0);
		r = svc_coll_end(g, r == XPORT_OK ? fence(g, until, op) : r, op);
		svc_group_leave(g);
	}
	pthread_mutex_unlock(&g->lock);
	return r;
}
