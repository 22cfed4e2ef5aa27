/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "services/xport_services.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static struct svc_name **place(const struct svc_names *t, uint64_t hash)
{
	return &t->bucket[hash & (t->buckets - 1)];
}

int svc_names_init(struct svc_names *t)
{
	memset(t, 0, sizeof(*t));
	t->buckets = 64;
	t->bucket = calloc(t->buckets, sizeof(*t->bucket));
	if (getrandom(&t->seed, sizeof(t->seed), 0) != sizeof(t->seed))
		t->seed = (uintptr_t)t->bucket;
	return t->bucket == NULL ? XPORT_ERR_NO_MEMORY : XPORT_OK;
}

void svc_names_fini(struct svc_names *t)
{
	free(t->bucket);
}

void *svc_names_find(const struct svc_names *t, const void *name, size_t len)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, t->seed);
	struct svc_name *n = *place(t, hash);

	while (n != NULL && (n->hash != hash || n->len != len || memcmp(n->bytes, name, len) != 0))
		n = n->next;
	return n;
}

/* Where there is no memory for it, the chains get longer. */
static void grow(struct svc_names *t)
{
	struct svc_names old = *t;

	t->bucket = calloc(old.buckets * 2, sizeof(*t->bucket));
	if (t->bucket == NULL) {
		t->bucket = old.bucket;
		return;
	}
	t->buckets = old.buckets * 2;
	for (size_t i = 0; i < old.buckets; i++) {
		for (struct svc_name *n = old.bucket[i], *next; n != NULL; n = next) {
			next = n->next;
			n->next = *place(t, n->hash);
			*place(t, n->hash) = n;
		}
	}
	free(old.bucket);
}

void svc_names_enter(struct svc_names *t, struct svc_name *thing, const void *name, size_t len)
{
	if (t->n >= t->buckets)
		grow(t);
	thing->hash = XXH3_64bits_withSeed(name, len, t->seed);
	thing->len = len;
	memcpy(thing->bytes, name, len);
	thing->next = *place(t, thing->hash);
	*place(t, thing->hash) = thing;
	t->n++;
}

void svc_names_remove(struct svc_names *t, struct svc_name *thing)
{
	struct svc_name **at = place(t, thing->hash);

	while (*at != thing)
		at = &(*at)->next;
	*at = thing->next;
	t->n--;
}
