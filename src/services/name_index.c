/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/name_index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "services/xport_services.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static struct svc_name **index_place(const struct svc_name_index *t, uint64_t hash)
{
	return &t->bucket[hash & (t->buckets - 1)];
}

int svc_name_index_init(struct svc_name_index *t)
{
	memset(t, 0, sizeof(*t));
	t->buckets = 64;
	t->bucket = calloc(t->buckets, sizeof(*t->bucket));
	if (getrandom(&t->seed, sizeof(t->seed), 0) != sizeof(t->seed))
		t->seed = (uintptr_t)t->bucket;
	return t->bucket == NULL ? XPORT_ERR_NO_MEMORY : XPORT_OK;
}

void svc_name_index_fini(struct svc_name_index *t)
{
	free(t->bucket);
}

void *svc_name_index_find(const struct svc_name_index *t, const void *name, size_t len)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, t->seed);
	struct svc_name *n = *index_place(t, hash);

	while (n != NULL && (n->hash != hash || n->len != len || memcmp(n->bytes, name, len) != 0))
		n = n->next;
	return n;
}

/* Where there is no memory for it, the chains get longer. */
static void index_grow(struct svc_name_index *t)
{
	struct svc_name_index old = *t;

	t->bucket = calloc(old.buckets * 2, sizeof(*t->bucket));
	if (t->bucket == NULL) {
		t->bucket = old.bucket;
		return;
	}
	t->buckets = old.buckets * 2;
	for (size_t i = 0; i < old.buckets; i++) {
		for (struct svc_name *n = old.bucket[i], *next; n != NULL; n = next) {
			next = n->next;
			n->next = *index_place(t, n->hash);
			*index_place(t, n->hash) = n;
		}
	}
	free(old.bucket);
}

void svc_name_index_enter(struct svc_name_index *t, struct svc_name *thing, const void *name, size_t len)
{
	if (t->n >= t->buckets)
		index_grow(t);
	thing->hash = XXH3_64bits_withSeed(name, len, t->seed);
	thing->len = len;
	memcpy(thing->bytes, name, len);
	thing->next = *index_place(t, thing->hash);
	*index_place(t, thing->hash) = thing;
	t->n++;
}

void svc_name_index_remove(struct svc_name_index *t, struct svc_name *thing)
{
	struct svc_name **at = index_place(t, thing->hash);

	while (*at != thing)
		at = &(*at)->next;
	*at = thing->next;
	t->n--;
}
