/* SPDX-License-Identifier: BSD-3-Clause */
/* name_index.h - a hash table by name. An element begins with its struct svc_name; the table neither allocates nor frees it. */
#ifndef SVC_NAME_INDEX_H
#define SVC_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

enum { SVC_NAME_MAX = 255 };

struct svc_name {
	struct svc_name *next; /* of its bucket */
	uint64_t hash;
	size_t len;
	uint8_t bytes[SVC_NAME_MAX];
};

struct svc_name_index {
	struct svc_name **bucket;
	size_t buckets, n; /* buckets: a power of 2 */
	uint64_t seed;     /* nobody outside can make names meet in one bucket */
};

/* XPORT_OK or NO_MEMORY. */
int svc_name_index_init(struct svc_name_index *t);
void svc_name_index_fini(struct svc_name_index *t);
void *svc_name_index_find(const struct svc_name_index *t, const void *name, size_t len);
/* Enters a thing under a name that is not there. */
void svc_name_index_enter(struct svc_name_index *t, struct svc_name *thing, const void *name, size_t len);
void svc_name_index_remove(struct svc_name_index *t, struct svc_name *thing);
#endif
