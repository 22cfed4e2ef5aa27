/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors: made by the owner of the memory, or unpacked from a peer's bytes. */
#include "services/bulk.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "services/grow.h"
#include "services/last_error.h"

static const char CREATE[] = "xport_bulk_create";
static const char UNPACK[] = "xport_bulk_unpack";
static const uint32_t RIGHTS = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE;

_Atomic unsigned svc_bulk_idles;

/* ---- life ---- */

void svc_bulk_hold(struct xport_bulk *bulk)
{
	atomic_fetch_add_explicit(&bulk->users, 1, memory_order_relaxed);
}

/* The rights end with the descriptor. A region that was deregistered has ended them before. */
static void keys_revoke(const struct xport_bulk *bulk)
{
	for (size_t i = 0; bulk->part != NULL && i < bulk->d.nkeys; i++) {
		if (bulk->part[i].packed)
			(void)xport_rkey_revoke(bulk->x, bulk->d.key[i].bytes, bulk->d.key[i].len);
	}
}

void xport_bulk_free(xport_bulk *bulk)
{
	unsigned users;

	if (bulk == NULL)
		return;
	users = atomic_fetch_sub(&bulk->users, 1);
	/* The descriptor is not touched again: another thread may see that nobody holds it, and free it. */
	if (users == 1)
		atomic_fetch_add(&svc_bulk_idles, 1);
	if (users != 0)
		return;
	keys_revoke(bulk);
	for (size_t i = 0; bulk->rkey != NULL && i < bulk->d.nkeys; i++)
		xport_rkey_destroy(bulk->rkey[i]);
	free(bulk->rkey);
	free(bulk->part);
	svc_bulk_desc_fini(&bulk->d);
	free(bulk);
}

bool svc_bulk_of(struct xport_bulk *bulk, xport *x)
{
	struct xport_counters counters = {.size = sizeof(counters)};

	if (atomic_load_explicit(&bulk->x, memory_order_relaxed) == x || (!bulk->own && bulk->ep == NULL))
		return true;
	/* Asked once, since it costs as much as a transfer. */
	if (bulk->own || xport_stats(x, bulk->ep, &counters) != XPORT_OK)
		return false;
	atomic_store_explicit(&bulk->x, x, memory_order_relaxed);
	return true;
}

/* ---- the owner ---- */

static const char *attr_wrong(const struct xport_bulk_attr *a)
{
	if (a->rights == 0 || (a->rights & ~RIGHTS) != 0)
		return "rights is not XPORT_REMOTE_READ, XPORT_REMOTE_WRITE, or both";
	if ((a->flags & ~(uint32_t)XPORT_BULK_CHECKED) != 0)
		return "flags has unknown bits";
	if (a->flags != 0 && (a->rights & XPORT_REMOTE_WRITE) != 0)
		return "XPORT_BULK_CHECKED and XPORT_REMOTE_WRITE exclude each other: the bytes must not change";
	if (a->owner != NULL && (strlen(a->owner) > XPORT_BULK_OWNER_MAX || !svc_bulk_owner_valid(a->owner)))
		return "owner is longer than 63 characters, or has a character that is not printable";
	return NULL;
}

/* Enters the region of a run, once. Returns its number, or an error that is described. */
static int region_add(struct xport_bulk *bulk, const struct xport_bulk_run *run, size_t at)
{
	struct xport_mr_info info = {.size = sizeof(info)};

	for (int i = 0; i < bulk->d.nkeys; i++) {
		if (bulk->part[i].mr == run->mr)
			return i;
	}
	if (run->mr == NULL || xport_mr_query(run->mr, &info) != XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, CREATE, NULL, "run %zu has no region", at);
	if (info.incarnation != bulk->d.incarnation)
		return svc_fail(XPORT_ERR_INVALID, CREATE, "register the memory on this instance",
		                "the region of run %zu is of another instance", at);
	if (bulk->d.nkeys == XPORT_BULK_REGIONS_MAX)
		return svc_fail(XPORT_ERR_INVALID, CREATE, "register the memory in fewer regions",
		                "the runs have more than %d regions", XPORT_BULK_REGIONS_MAX);
	if ((bulk->d.rights & ~info.rights) != 0)
		return svc_fail(XPORT_ERR_ACCESS, CREATE, "register the memory with the right",
		                "the region of run %zu does not grant %s", at,
		                (bulk->d.rights & ~info.rights & XPORT_REMOTE_READ) != 0 ? "XPORT_REMOTE_READ"
		                                                                         : "XPORT_REMOTE_WRITE");
	bulk->inexact = bulk->inexact || !info.exact_parts;
	bulk->d.key[bulk->d.nkeys].length = info.length;
	bulk->part[bulk->d.nkeys] = (struct svc_bulk_part){.mr = run->mr, .base = info.base};
	return bulk->d.nkeys++;
}

/* Packs a key to the part that the runs use. Returns XPORT_OK, or an error that is described. */
static int part_pack(struct xport_bulk *bulk, size_t at)
{
	struct svc_bulk_part *part = &bulk->part[at];
	struct svc_bulk_key *key = &bulk->d.key[at];
	size_t len = sizeof(key->bytes);
	int status = xport_rkey_pack_range(part->mr, part->start, key->length, bulk->d.rights, key->bytes, &len);

	if (status == XPORT_ERR_BOUNDS)
		return svc_fail(
			XPORT_ERR_NOT_SUPPORTED, CREATE, NULL,
			"a packed key has %zu bytes, and %d are allowed; or a part begins too far into its region", len,
			SVC_BULK_KEY_MAX);
	if (status != XPORT_OK)
		return svc_fail(status, CREATE, NULL, "the key of region %zu cannot be packed: %s", at,
		                xport_strerror(status));
	part->packed = true;
	part->base += part->start;
	key->len = (uint16_t)len;
	return XPORT_OK;
}

/* Makes the keys, and lets the runs count from the start of their part. */
static int parts_pack(struct xport_bulk *bulk)
{
	uint64_t end[XPORT_BULK_REGIONS_MAX] = {0};
	struct svc_bulk_desc *d = &bulk->d;
	int status = XPORT_OK;

	for (size_t i = 0; i < d->nkeys; i++)
		bulk->part[i].start = UINT64_MAX;
	for (size_t i = 0; i < d->nruns; i++) {
		const struct svc_bulk_run *run = &d->run[i];
		struct svc_bulk_part *part = &bulk->part[run->key];
		uint64_t run_end = run->offset + (run->count - 1) * run->stride + run->length;

		part->start = run->offset < part->start ? run->offset : part->start;
		end[run->key] = run_end > end[run->key] ? run_end : end[run->key];
	}
	for (size_t i = 0; i < d->nruns; i++)
		d->run[i].offset -= bulk->part[d->run[i].key].start;
	for (size_t i = 0; i < d->nkeys && status == XPORT_OK; i++) {
		d->key[i].length = end[i] - bulk->part[i].start;
		status = part_pack(bulk, i);
	}
	return status;
}

/* Enters a run: as a part of the one before it if it goes on there. */
static void run_add(struct svc_bulk_desc *d, const struct xport_bulk_run *run, int key)
{
	struct svc_bulk_run *last = &d->run[d->nruns];
	struct svc_bulk_run r = {.offset = run->offset,
	                         .length = run->length,
	                         .stride = run->count == 1 ? 0 : run->stride,
	                         .count = (uint32_t)run->count,
	                         .key = (uint16_t)key};

	if (d->nruns > 0 && r.count == 1 && last[-1].count == 1 && last[-1].key == r.key &&
	    last[-1].offset + last[-1].length == r.offset && last[-1].length <= INT64_MAX && r.length <= INT64_MAX)
		last[-1].length += r.length;
	else
		d->run[d->nruns++] = r;
}

static int runs_add(struct xport_bulk *bulk, const struct xport_bulk_run *runs, size_t n)
{
	const char *why;
	size_t at;
	int status;

	for (size_t i = 0; i < n; i++) {
		int key = region_add(bulk, &runs[i], i);

		if (key < 0)
			return key;
		if (runs[i].count > UINT32_MAX || runs[i].count == 0 || runs[i].length == 0)
			return svc_fail(XPORT_ERR_INVALID, CREATE, NULL,
			                "the length or the count of run %zu is 0, or its count is above 2^32 - 1", i);
		run_add(&bulk->d, &runs[i], key);
	}
	status = svc_bulk_check(&bulk->d, &why, &at);
	if (status == XPORT_OK)
		return parts_pack(bulk);
	if (at == bulk->d.nruns)
		return svc_fail(status, CREATE, NULL, "%s", why);
	return svc_fail(status, CREATE, NULL, "%s: the one with offset %llu, %llu bytes, stride %llu and count %u", why,
	                (unsigned long long)bulk->d.run[at].offset, (unsigned long long)bulk->d.run[at].length,
	                (unsigned long long)bulk->d.run[at].stride, (unsigned)bulk->d.run[at].count);
}

static struct xport_bulk *bulk_new(xport *x, size_t nruns, const struct xport_bulk_attr *a)
{
	size_t regions = nruns < XPORT_BULK_REGIONS_MAX ? nruns : XPORT_BULK_REGIONS_MAX;
	struct xport_bulk *bulk = calloc(1, sizeof(*bulk));

	if (bulk == NULL)
		return NULL;
	bulk->own = true;
	bulk->x = x;
	bulk->d.rights = a->rights;
	bulk->d.flags = (uint16_t)a->flags;
	if (a->owner != NULL)
		memcpy(bulk->d.owner, a->owner, strlen(a->owner));
	bulk->d.run = calloc(nruns, sizeof(*bulk->d.run));
	bulk->d.key = calloc(regions, sizeof(*bulk->d.key));
	bulk->part = calloc(regions, sizeof(*bulk->part));
	if (bulk->d.run != NULL && bulk->d.key != NULL && bulk->part != NULL)
		return bulk;
	xport_bulk_free(bulk);
	return NULL;
}

static uint64_t sum_range(const struct xport_bulk *bulk, uint64_t offset, uint64_t length)
{
	struct svc_bulk_at at = svc_bulk_seek(&bulk->d, offset);
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	while (length > 0) {
		const uint8_t *base = bulk->part[bulk->d.run[at.run].key].base;
		uint64_t from, n = svc_bulk_go(&bulk->d, &at, length, &from);

		XXH3_64bits_update(&state, base + from, n);
		length -= n;
	}
	return XXH3_64bits_digest(&state);
}

int xport_bulk_create(xport *x, const struct xport_bulk_run *runs, size_t nruns, const struct xport_bulk_attr *attr,
                      xport_bulk **bulk)
{
	struct xport_info info = {.size = sizeof(info)};
	struct xport_bulk_attr a;
	struct xport_bulk *new;
	int status = svc_grow_in(&a, sizeof(a), SVC_FIRST_BULK_ATTR, attr, CREATE, "xport_bulk_attr");

	if (status != XPORT_OK)
		return status;
	if (x == NULL || runs == NULL || attr == NULL || bulk == NULL)
		return svc_fail(XPORT_ERR_INVALID, CREATE, NULL, "an argument is NULL");
	if (attr_wrong(&a) != NULL)
		return svc_fail(XPORT_ERR_INVALID, CREATE, NULL, "xport_bulk_attr: %s", attr_wrong(&a));
	if (nruns == 0 || nruns > XPORT_BULK_RUNS_MAX)
		return svc_fail(XPORT_ERR_INVALID, CREATE, NULL, "there are %zu runs; 1 to %d are allowed", nruns,
		                XPORT_BULK_RUNS_MAX);
	status = xport_query(x, &info);
	if (status != XPORT_OK)
		return svc_pass(x, status, CREATE);
	new = bulk_new(x, nruns, &a);
	if (new == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, CREATE, NULL, "out of memory");
	new->d.incarnation = info.incarnation;
	status = runs_add(new, runs, nruns);
	if (status != XPORT_OK) {
		xport_bulk_free(new);
		return status;
	}
	if ((a.flags & XPORT_BULK_CHECKED) != 0)
		new->d.sum = sum_range(new, 0, new->d.length);
	*bulk = new;
	return XPORT_OK;
}

int xport_bulk_sum(const xport_bulk *bulk, uint64_t offset, uint64_t length, uint64_t *sum)
{
	if (bulk == NULL || sum == NULL || !bulk->own)
		return svc_fail(XPORT_ERR_INVALID, "xport_bulk_sum", NULL,
		                "an argument is NULL, or the descriptor is a peer's");
	if (offset > bulk->d.length || length > bulk->d.length - offset)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_bulk_sum", NULL,
		                "offset %llu plus %llu bytes is beyond the %llu bytes of the descriptor",
		                (unsigned long long)offset, (unsigned long long)length,
		                (unsigned long long)bulk->d.length);
	*sum = sum_range(bulk, offset, length);
	return XPORT_OK;
}

/* ---- bytes ---- */

int xport_bulk_pack(const xport_bulk *bulk, void *buf, size_t *len)
{
	size_t have, need;

	if (bulk == NULL || len == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_bulk_pack", NULL, "an argument is NULL");
	have = *len;
	need = svc_bulk_packed(&bulk->d);
	*len = need;
	if (buf == NULL || have < need)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_bulk_pack", NULL,
		                "the descriptor has %zu bytes; there is space for %zu", need, buf == NULL ? 0 : have);
	svc_bulk_encode(&bulk->d, buf);
	return XPORT_OK;
}

/* Whether the key opens what the descriptor says. */
static int key_check(struct xport_bulk *bulk, size_t i)
{
	const struct svc_bulk_desc *d = &bulk->d;
	struct xport_rkey_info info = {.size = sizeof(info)};
	int status = xport_rkey_query(bulk->rkey[i], &info);

	if (status != XPORT_OK)
		return svc_fail(status, UNPACK, NULL, "xport_rkey_query: %s", xport_strerror(status));
	bulk->inexact = bulk->inexact || !info.exact;
	if (info.length >= d->key[i].length && (d->rights & ~info.rights) == 0)
		return XPORT_OK;
	return svc_fail(XPORT_ERR_BAD_KEY, UNPACK, NULL, "key %zu of %u allows less than the descriptor says", i,
	                (unsigned)d->nkeys);
}

static int keys_unpack(struct xport_bulk *bulk)
{
	const struct svc_bulk_desc *d = &bulk->d;

	bulk->rkey = calloc(d->nkeys, sizeof(*bulk->rkey));
	if (bulk->rkey == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, UNPACK, NULL, "out of memory");
	for (size_t i = 0; i < d->nkeys; i++) {
		int status = xport_rkey_unpack(bulk->ep, d->key[i].bytes, d->key[i].len, &bulk->rkey[i]);

		if (status != XPORT_OK)
			return svc_fail(status, UNPACK,
			                status == XPORT_ERR_STALE_KEY ? "ask the owner for a new descriptor" : NULL,
			                "key %zu of %u: %s", i, (unsigned)d->nkeys, xport_strerror(status));
		status = key_check(bulk, i);
		if (status != XPORT_OK)
			return status;
	}
	return XPORT_OK;
}

/* Whether the endpoint leads to the owner. */
static int owner_check(const struct xport_bulk *bulk)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	if (xport_ep_query(bulk->ep, &info) != XPORT_OK)
		return svc_fail(XPORT_ERR_INVALID, UNPACK, NULL, "ep is not an endpoint");
	if (info.state == XPORT_EP_CONNECTING)
		return svc_fail(XPORT_ERR_INVALID, UNPACK, "wait for XPORT_EVENT_CONNECTED",
		                "the endpoint is not connected yet");
	if (info.peer_incarnation == bulk->d.incarnation)
		return XPORT_OK;
	return svc_fail(XPORT_ERR_STALE_KEY, UNPACK, "unpack it on an endpoint to its owner, or ask for a new one",
	                "the owner of the memory is not this peer (%s), or was started again since", info.peer);
}

int xport_bulk_unpack(xport_ep *ep, const void *buf, size_t len, xport_bulk **bulk)
{
	struct xport_bulk *new;
	const char *why;
	int status;

	if (buf == NULL || bulk == NULL)
		return svc_fail(XPORT_ERR_INVALID, UNPACK, NULL, "an argument is NULL");
	new = calloc(1, sizeof(*new));
	if (new == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, UNPACK, NULL, "out of memory");
	new->ep = ep;
	status = svc_bulk_decode(buf, len, &new->d, &why);
	if (status != XPORT_OK)
		(void)svc_fail(status, UNPACK, NULL, "the %zu bytes are not a valid descriptor: %s", len, why);
	if (status == XPORT_OK && ep != NULL)
		status = owner_check(new);
	if (status == XPORT_OK && ep != NULL)
		status = keys_unpack(new);
	if (status != XPORT_OK)
		xport_bulk_free(new);
	else
		*bulk = new;
	return status;
}

int svc_bulk_unpack_for(xport_ep *ep, const void *buf, size_t len, xport_bulk **bulk)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	int status = xport_bulk_unpack(NULL, buf, len, bulk);

	if (status != XPORT_OK || xport_ep_query(ep, &info) != XPORT_OK ||
	    info.peer_incarnation != (*bulk)->d.incarnation)
		return status;
	(*bulk)->ep = ep;
	status = keys_unpack(*bulk);
	if (status != XPORT_OK)
		xport_bulk_free(*bulk);
	return status;
}

int xport_bulk_query(const xport_bulk *bulk, struct xport_bulk_info *info)
{
	struct xport_bulk_info i = {0};

	if (bulk == NULL || info == NULL || !svc_grow_size(info->size, SVC_FIRST_BULK_INFO))
		return svc_fail(XPORT_ERR_INVALID, "xport_bulk_query", NULL,
		                "an argument is NULL, or xport_bulk_info.size is not the size of the struct");
	i.length = bulk->d.length;
	i.pieces = bulk->d.pieces;
	i.incarnation = bulk->d.incarnation;
	i.sum = bulk->d.sum;
	i.rights = bulk->d.rights;
	i.flags = bulk->d.flags;
	i.packed = (uint32_t)svc_bulk_packed(&bulk->d);
	i.regions = bulk->d.nkeys;
	i.exact = (bulk->own || bulk->ep != NULL) && !bulk->inexact;
	memcpy(i.owner, bulk->d.owner, sizeof(i.owner));
	svc_grow_out(info, &i, sizeof(i));
	return XPORT_OK;
}
