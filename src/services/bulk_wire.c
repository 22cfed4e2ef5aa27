/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of a descriptor, and what is allowed in it:
 *
 *	u32 magic, u16 version, u16 flags, u32 rights, u16 keys, u16 runs, u64 incarnation, u64 checksum of the memory,
 *	u16 length and bytes of the owner's address
 *	each key:	u64 length of the region, u16 length and bytes of the packed key
 *	each run:	u16 key, u64 offset, u64 length, u64 stride, u32 count
 *	u64 checksum of all these bytes
 */
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "services/bulk.h"

enum { MAGIC = 0x31425058 /* "XPB1" */, FORMAT = 1, HEAD = 34, KEY_HEAD = 10, RUN = 30, CHECK = 8 };
static const uint32_t RIGHTS = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE;

/* ---- what is allowed ---- */

bool svc_bulk_owner_valid(const char *owner)
{
	for (; *owner != '\0'; owner++) {
		if (*owner < '!' || *owner > '~')
			return false;
	}
	return true;
}

/* Where the last piece of a run ends. False: beyond all numbers. */
static bool run_end(const struct svc_bulk_run *run, uint64_t *end)
{
	uint64_t last;

	return !__builtin_mul_overflow((uint64_t)run->count - 1, run->stride, &last) &&
	       !__builtin_add_overflow(last, run->offset, &last) && !__builtin_add_overflow(last, run->length, end);
}

struct extent {
	uint64_t begin, end;
	uint16_t key;
};

static int extent_order(const void *one, const void *two)
{
	const struct extent *a = one, *b = two;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static bool extents_overlap(struct extent *e, size_t n)
{
	qsort(e, n, sizeof(*e), extent_order);
	for (size_t i = 1; i < n; i++) {
		if (e[i].key == e[i - 1].key && e[i].begin < e[i - 1].end)
			return true;
	}
	return false;
}

static size_t pieces_list(const struct svc_bulk_desc *d, struct extent *e)
{
	size_t n = 0;

	for (size_t i = 0; i < d->nruns; i++) {
		const struct svc_bulk_run *run = &d->run[i];

		for (uint64_t k = 0; k < run->count; k++) {
			uint64_t begin = run->offset + k * run->stride;

			e[n++] = (struct extent){begin, begin + run->length, run->key};
		}
	}
	return n;
}

/* Whether pieces of different runs overlap. The runs are in bounds, and the pieces of each are apart. */
static int runs_compare(const struct svc_bulk_desc *d, const char **why)
{
	size_t n = d->pieces < d->nruns || d->pieces > SVC_BULK_SORT_MAX ? d->nruns : (size_t)d->pieces;
	struct extent *e = malloc(n * sizeof(*e));
	bool overlap;

	*why = "out of memory";
	if (e == NULL)
		return XPORT_ERR_NO_MEMORY;
	for (size_t i = 0; i < d->nruns; i++) {
		e[i] = (struct extent){.begin = d->run[i].offset, .key = d->run[i].key};
		(void)run_end(&d->run[i], &e[i].end);
	}
	overlap = extents_overlap(e, d->nruns);
	if (overlap && d->pieces <= SVC_BULK_SORT_MAX) /* they may lie between each other */
		overlap = extents_overlap(e, pieces_list(d, e));
	free(e);
	if (!overlap)
		return XPORT_OK;
	*why = d->pieces <= SVC_BULK_SORT_MAX ? "pieces overlap, and peers may write to them"
	                                      : "too many pieces lie across each other to check whether they overlap";
	return XPORT_ERR_INVALID;
}

static int run_check(struct svc_bulk_desc *d, struct svc_bulk_run *run, const char **why)
{
	uint64_t end, bytes;

	*why = "the length or the count of a run is 0";
	if (run->length == 0 || run->count == 0)
		return XPORT_ERR_INVALID;
	*why = "a run is not inside its region";
	if (run->key >= d->nkeys || !run_end(run, &end) || end > d->key[run->key].length)
		return XPORT_ERR_BOUNDS;
	*why = "pieces overlap, and peers may write to them";
	if (run->count > 1 && run->stride < run->length && (d->rights & XPORT_REMOTE_WRITE) != 0)
		return XPORT_ERR_INVALID;
	*why = "the pieces have more than 2^63 - 1 bytes together";
	if (__builtin_mul_overflow(run->length, (uint64_t)run->count, &bytes) || bytes > INT64_MAX - d->length)
		return XPORT_ERR_INVALID;
	if (run->stride == run->length) { /* one piece */
		run->length = bytes;
		run->count = 1;
	}
	if (run->count == 1)
		run->stride = 0;
	run->start = d->length;
	d->length += bytes;
	d->pieces += run->count;
	return XPORT_OK;
}

int svc_bulk_check(struct svc_bulk_desc *d, const char **why, size_t *at)
{
	int status = XPORT_OK;

	d->length = d->pieces = 0;
	for (*at = 0; *at < d->nruns; ++*at) {
		status = run_check(d, &d->run[*at], why);
		if (status != XPORT_OK)
			return status;
	}
	return d->nruns > 1 && (d->rights & XPORT_REMOTE_WRITE) != 0 ? runs_compare(d, why) : XPORT_OK;
}

/* ---- bytes ---- */

size_t svc_bulk_packed(const struct svc_bulk_desc *d)
{
	size_t n = HEAD + strlen(d->owner) + RUN * (size_t)d->nruns + CHECK;

	for (size_t i = 0; i < d->nkeys; i++)
		n += KEY_HEAD + (size_t)d->key[i].len;
	return n;
}

void svc_bulk_encode(const struct svc_bulk_desc *d, void *buf)
{
	size_t n = svc_bulk_packed(d);
	struct xpi_wr w = xpi_wr(buf, n);

	xpi_wr_u32(&w, MAGIC);
	xpi_wr_u16(&w, FORMAT);
	xpi_wr_u16(&w, d->flags);
	xpi_wr_u32(&w, d->rights);
	xpi_wr_u16(&w, d->nkeys);
	xpi_wr_u16(&w, d->nruns);
	xpi_wr_u64(&w, d->incarnation);
	xpi_wr_u64(&w, d->sum);
	xpi_wr_str(&w, d->owner);
	for (size_t i = 0; i < d->nkeys; i++) {
		xpi_wr_u64(&w, d->key[i].length);
		xpi_wr_u16(&w, d->key[i].len);
		xpi_wr_bytes(&w, d->key[i].bytes, d->key[i].len);
	}
	for (size_t i = 0; i < d->nruns; i++) {
		const struct svc_bulk_run *run = &d->run[i];

		xpi_wr_u16(&w, run->key);
		xpi_wr_u64(&w, run->offset);
		xpi_wr_u64(&w, run->length);
		xpi_wr_u64(&w, run->stride);
		xpi_wr_u32(&w, run->count);
	}
	xpi_wr_u64(&w, XXH64(buf, n - CHECK, MAGIC));
}

static void keys_read(struct xpi_rd *r, struct svc_bulk_desc *d)
{
	for (size_t i = 0; i < d->nkeys; i++) {
		struct svc_bulk_key *key = &d->key[i];
		const uint8_t *bytes;
		uint16_t len;

		key->length = xpi_rd_u64(r);
		len = xpi_rd_u16(r);
		bytes = len > 0 && len <= sizeof(key->bytes) ? xpi_rd_bytes(r, len) : NULL;
		if (bytes == NULL) {
			r->bad = true;
			return;
		}
		key->len = len;
		memcpy(key->bytes, bytes, len);
	}
}

static void runs_read(struct xpi_rd *r, struct svc_bulk_desc *d)
{
	for (size_t i = 0; i < d->nruns; i++) {
		struct svc_bulk_run *run = &d->run[i];

		run->key = xpi_rd_u16(r);
		run->offset = xpi_rd_u64(r);
		run->length = xpi_rd_u64(r);
		run->stride = xpi_rd_u64(r);
		run->count = xpi_rd_u32(r);
	}
}

/* Two keys to one region would hide that runs overlap. */
static bool keys_differ(const struct svc_bulk_desc *d)
{
	for (size_t i = 1; i < d->nkeys; i++) {
		for (size_t k = 0; k < i; k++) {
			if (d->key[i].len == d->key[k].len &&
			    memcmp(d->key[i].bytes, d->key[k].bytes, d->key[i].len) == 0)
				return false;
		}
	}
	return true;
}

static const char *head_wrong(const struct svc_bulk_desc *d)
{
	if (d->rights == 0 || (d->rights & ~RIGHTS) != 0 || (d->flags & ~XPORT_BULK_CHECKED) != 0)
		return "the rights or flags are unknown";
	if ((d->flags & XPORT_BULK_CHECKED) != 0 && (d->rights & XPORT_REMOTE_WRITE) != 0)
		return "memory that peers may write to has a checksum";
	if (d->nkeys == 0 || d->nkeys > XPORT_BULK_REGIONS_MAX || d->nruns == 0 || d->nruns > XPORT_BULK_RUNS_MAX)
		return "there are no runs, or too many runs or regions";
	return svc_bulk_owner_valid(d->owner) ? NULL : "the owner's address is not printable";
}

static int desc_read(struct xpi_rd *r, struct svc_bulk_desc *d, const char **why)
{
	size_t at;

	d->flags = xpi_rd_u16(r);
	d->rights = xpi_rd_u32(r);
	d->nkeys = xpi_rd_u16(r);
	d->nruns = xpi_rd_u16(r);
	d->incarnation = xpi_rd_u64(r);
	d->sum = xpi_rd_u64(r);
	xpi_rd_str(r, d->owner, sizeof(d->owner));
	*why = r->bad ? "they are too short" : head_wrong(d);
	if (*why != NULL)
		return XPORT_ERR_BAD_KEY;
	*why = "the runs or keys are too short or too long";
	if (r->left < RUN * (size_t)d->nruns + KEY_HEAD * (size_t)d->nkeys)
		return XPORT_ERR_BAD_KEY;
	d->key = calloc(d->nkeys, sizeof(*d->key));
	d->run = calloc(d->nruns, sizeof(*d->run));
	if (d->key == NULL || d->run == NULL) {
		*why = "out of memory";
		return XPORT_ERR_NO_MEMORY;
	}
	keys_read(r, d);
	runs_read(r, d);
	if (r->bad || r->left != CHECK)
		return XPORT_ERR_BAD_KEY;
	*why = "two keys are the same";
	if (!keys_differ(d))
		return XPORT_ERR_BAD_KEY;
	return svc_bulk_check(d, why, &at);
}

int svc_bulk_decode(const void *buf, size_t len, struct svc_bulk_desc *d, const char **why)
{
	struct xpi_rd r = xpi_rd(buf, len), end;
	uint16_t version;
	int status;

	memset(d, 0, sizeof(*d));
	*why = "they do not begin as a descriptor does";
	if (xpi_rd_u32(&r) != MAGIC)
		return XPORT_ERR_BAD_KEY;
	version = xpi_rd_u16(&r);
	*why = "they are of another version: use one release of libxport on both sides";
	if (version != FORMAT)
		return XPORT_ERR_BAD_KEY;
	*why = "their checksum is wrong: they are damaged";
	if (len < HEAD + CHECK)
		return XPORT_ERR_BAD_KEY;
	end = xpi_rd((const uint8_t *)buf + len - CHECK, CHECK);
	if (xpi_rd_u64(&end) != XXH64(buf, len - CHECK, MAGIC))
		return XPORT_ERR_BAD_KEY;
	status = desc_read(&r, d, why);
	if (status == XPORT_OK)
		return XPORT_OK;
	svc_bulk_desc_fini(d);
	return status == XPORT_ERR_NO_MEMORY ? status : XPORT_ERR_BAD_KEY;
}

void svc_bulk_desc_fini(struct svc_bulk_desc *d)
{
	free(d->key);
	free(d->run);
	d->key = NULL;
	d->run = NULL;
}

/* ---- places ---- */

struct svc_bulk_at svc_bulk_seek(const struct svc_bulk_desc *d, uint64_t offset)
{
	uint32_t low = 0, high = d->nruns; /* the run is in [low, high) */
	const struct svc_bulk_run *run;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (d->run[middle].start <= offset)
			low = middle;
		else
			high = middle;
	}
	run = &d->run[low];
	offset -= run->start;
	/* The end of all bytes is behind the last piece: nobody goes on from there. */
	return (struct svc_bulk_at){low, (uint32_t)(offset / run->length), offset % run->length};
}

uint64_t svc_bulk_go(const struct svc_bulk_desc *d, struct svc_bulk_at *at, uint64_t max, uint64_t *from)
{
	const struct svc_bulk_run *run = &d->run[at->run];
	uint64_t n = run->length - at->byte;

	*from = run->offset + at->piece * run->stride + at->byte;
	if (n > max) {
		at->byte += max;
		return max;
	}
	at->byte = 0;
	if (++at->piece == run->count) {
		at->piece = 0;
		at->run++;
	}
	return n;
}
