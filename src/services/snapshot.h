/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * snapshot.h - the layout of a versioned object in memory; all numbers little-endian.
 *
 *	0   lock: 0, or the writer's number
 *	48  version, even if nobody is writing    } a mark
 *	56  check                                 }
 *	64  CHECKED, SUMMED: the bytes.  COPIES: the copies, each a mark and the bytes, a multiple of 64 apart
 *
 * The check of a mark with bytes (SUMMED, a copy) is a checksum of the bytes, with the version as seed. The check of a
 * mark alone (CHECKED, the head of COPIES) is computed from the version. So half of one mark and half of another do not
 * match, nor do bytes of two versions, in whatever order and pieces they were read.
 *
 * The forms rely on one promise of libxport only: a completed get has read each byte at some moment between its post
 * and its completion.
 */
#ifndef SVC_SNAPSHOT_H
#define SVC_SNAPSHOT_H

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#include "services/xport_services.h"

enum { SVC_LOCK = 0, SVC_MARK = 48, SVC_BODY = 64, SVC_COPIES = 4, SVC_GRACE_MS = 100, SVC_TRIES = 100 };

struct svc_mark {
	uint64_t version, check;
};

/* The attributes with their defaults; or INVALID, or NOT_SUPPORTED, in the name of `operation`. */
int svc_snapshot_attr(const struct xport_versioned_attr *from, struct xport_versioned_attr *to, const char *operation);
size_t svc_snapshot_size(const struct xport_versioned_attr *a);

/* Where a copy begins, whose mark it is. */
static inline uint64_t svc_snapshot_copy(const struct xport_versioned_attr *a, uint64_t version)
{
	uint64_t stride = (sizeof(struct svc_mark) + a->length + 63) & ~UINT64_C(63);

	return SVC_BODY + version / 2 % a->copies * stride;
}

/* A mark alone, and one with bytes. */
struct svc_mark svc_mark_alone(uint64_t version);
struct svc_mark svc_mark_over(uint64_t version, const void *bytes, size_t length);
/* The version, if the mark is whole; false: it is not. */
bool svc_mark_read_alone(const void *mark, uint64_t *version);
bool svc_mark_read_over(const void *mark, const void *bytes, size_t length, uint64_t *version);

#endif
