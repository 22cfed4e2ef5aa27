/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/snapshot.h"

#include "services/grow.h"
#include "services/last_error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

int svc_snapshot_attr(const struct xport_versioned_attr *from, struct xport_versioned_attr *to, const char *operation)
{
	int r = svc_grow_in(to, sizeof(*to), SVC_FIRST_VERSIONED_ATTR, from, operation, "xport_versioned_attr");

	if (r != XPORT_OK)
		return r;
	if (to->form < XPORT_VERSIONED_CHECKED || to->form > XPORT_VERSIONED_COPIES || to->length == 0 ||
	    to->length > SIZE_MAX / 4 || to->copies == 1 || to->copies > 1 << 16 || to->grace_ms < -1 || to->tries < 0)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL, "a field of xport_versioned_attr is out of range");
	if (to->copies == 0)
		to->copies = SVC_COPIES;
	/* So that svc_snapshot_size can be counted: with the head, and what a copy takes beside its bytes. */
	if (to->form == XPORT_VERSIONED_COPIES && to->length > SIZE_MAX / 4 / to->copies - 128)
		return svc_fail(XPORT_ERR_INVALID, operation, NULL,
		                "xport_versioned_attr: %u copies of %zu bytes are too large", (unsigned)to->copies,
		                to->length);
	if (to->grace_ms == 0)
		to->grace_ms = SVC_GRACE_MS;
	if (to->tries == 0)
		to->tries = SVC_TRIES;
	return XPORT_OK;
}

static struct svc_mark mark(uint64_t version, uint64_t check)
{
	return (struct svc_mark){htole64(version), htole64(check)};
}

static uint64_t own_check(uint64_t version)
{
	uint64_t word = htole64(version);

	return XXH3_64bits(&word, sizeof(word));
}

struct svc_mark svc_mark_alone(uint64_t version)
{
	return mark(version, own_check(version));
}

struct svc_mark svc_mark_over(uint64_t version, const void *bytes, size_t length)
{
	return mark(version, XXH3_64bits_withSeed(bytes, length, version));
}

bool svc_mark_read_alone(const void *at, uint64_t *version)
{
	struct svc_mark m;

	memcpy(&m, at, sizeof(m));
	*version = le64toh(m.version);
	return le64toh(m.check) == own_check(*version);
}

bool svc_mark_read_over(const void *at, const void *bytes, size_t length, uint64_t *version)
{
	struct svc_mark m;

	memcpy(&m, at, sizeof(m));
	*version = le64toh(m.version);
	return le64toh(m.check) == XXH3_64bits_withSeed(bytes, length, *version);
}

size_t svc_snapshot_size(const struct xport_versioned_attr *a)
{
	if (a->form == XPORT_VERSIONED_COPIES)
		return (size_t)(svc_snapshot_copy(a, 2) - SVC_BODY) * a->copies + SVC_BODY;
	return SVC_BODY + ((a->length + 63) & ~(size_t)63);
}

size_t xport_versioned_size(const struct xport_versioned_attr *attr)
{
	struct xport_versioned_attr a;

	return svc_snapshot_attr(attr, &a, "xport_versioned_size") == XPORT_OK ? svc_snapshot_size(&a) : 0;
}
