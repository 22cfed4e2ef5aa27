/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owner's side. Other processors and devices see its stores, which the memory model of C does not cover. The stores
 * need an order: a release fence keeps earlier stores before later ones for every coherent reader. That is another
 * process, or a device on machines with coherent DMA, as machines with RDMA have.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "services/clock.h"
#include "services/last_error.h"
#include "services/snapshot.h"

static const uint64_t OWNER = UINT64_MAX; /* in the lock */

struct xport_versioned {
	uint8_t *at;
	struct xport_versioned_attr a;
	uint64_t version;
	int64_t *replaced; /* COPIES: when each copy was, in ms */
};

static _Atomic uint64_t *word(const struct xport_versioned *v, uint64_t at)
{
	return (_Atomic uint64_t *)(void *)(v->at + at);
}

static void store_mark(struct xport_versioned *v, uint64_t at, struct svc_mark m)
{
	atomic_store_explicit(word(v, at + 8), m.check, memory_order_relaxed);
	atomic_store_explicit(word(v, at), m.version, memory_order_relaxed);
}

/*
 * The version is odd before any byte changes, and even after all have.  A reader that saw the same even version before
 * and after it read the bytes read no byte that was written in between.
 */
static void write_checked(struct xport_versioned *v, const void *data, uint64_t next)
{
	store_mark(v, SVC_MARK, svc_mark_alone(next - 1));
	atomic_thread_fence(memory_order_release);
	memcpy(v->at + SVC_BODY, data, v->a.length);
	atomic_thread_fence(memory_order_release);
	store_mark(v, SVC_MARK, svc_mark_alone(next));
}

/* In any order: what does not belong together has another sum. */
static void write_summed(struct xport_versioned *v, const void *data, uint64_t next)
{
	store_mark(v, SVC_MARK, svc_mark_over(next, data, v->a.length));
	memcpy(v->at + SVC_BODY, data, v->a.length);
	atomic_thread_fence(memory_order_release);
}

/* A copy is whole before the head says that it is the one. */
static int write_copy(struct xport_versioned *v, const void *data, uint64_t next)
{
	uint64_t copy = svc_snapshot_copy(&v->a, next);

	if (v->a.grace_ms > 0 && svc_now_ms() < v->replaced[next / 2 % v->a.copies])
		return svc_fail(XPORT_ERR_AGAIN, "xport_versioned_write", "write less often, or with more copies",
		                "the oldest of %u copies was replaced less than %d ms ago", (unsigned)v->a.copies,
		                v->a.grace_ms);
	store_mark(v, copy, svc_mark_over(next, data, v->a.length));
	memcpy(v->at + copy + sizeof(struct svc_mark), data, v->a.length);
	atomic_thread_fence(memory_order_release);
	store_mark(v, SVC_MARK, svc_mark_alone(next));
	v->replaced[v->version / 2 % v->a.copies] = svc_now_ms() + v->a.grace_ms;
	return XPORT_OK;
}

int xport_versioned_write(xport_versioned *v, const void *data)
{
	uint64_t none = 0, next;
	int r = XPORT_OK;

	if (v == NULL || data == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_write", NULL, "an argument is NULL");
	if (!atomic_compare_exchange_strong_explicit(word(v, SVC_LOCK), &none, OWNER, memory_order_acquire,
	                                             memory_order_relaxed))
		return svc_fail(XPORT_ERR_AGAIN, "xport_versioned_write",
		                "call again; if the peer is lost, call xport_versioned_recover", "a peer is writing");
	/* A peer may have written meanwhile; one that died in the middle left an odd version. */
	next = (le64toh(atomic_load_explicit(word(v, SVC_MARK), memory_order_relaxed)) | 1) + 1;
	if (v->a.form == XPORT_VERSIONED_CHECKED)
		write_checked(v, data, next);
	else if (v->a.form == XPORT_VERSIONED_SUMMED)
		write_summed(v, data, next);
	else
		r = write_copy(v, data, next);
	if (r == XPORT_OK)
		v->version = next;
	atomic_store_explicit(word(v, SVC_LOCK), 0, memory_order_release);
	return r;
}

int xport_versioned_recover(xport_versioned *v)
{
	return atomic_exchange_explicit(word(v, SVC_LOCK), 0, memory_order_acq_rel) != 0;
}

/*
 * Zero bytes, and the first version.  A peer may be reading an object that was here before: it must not find that one's
 * version again, so the new one's begin above it.  SUMMED and COPIES have sums that tell their bytes apart.
 */
static void make_checked(struct xport_versioned *v)
{
	uint64_t before, first = 0;

	if (svc_mark_read_alone(v->at + SVC_MARK, &before)) {
		first = (before | 1) + 1;
		store_mark(v, SVC_MARK, svc_mark_alone(first - 1));
		atomic_thread_fence(memory_order_release);
	}
	memset(v->at, 0, SVC_MARK);
	memset(v->at + SVC_BODY, 0, svc_snapshot_size(&v->a) - SVC_BODY);
	atomic_thread_fence(memory_order_release);
	store_mark(v, SVC_MARK, svc_mark_alone(first));
}

static void make_summed(struct xport_versioned *v)
{
	memset(v->at, 0, svc_snapshot_size(&v->a));
	store_mark(v, SVC_MARK, svc_mark_over(0, v->at + SVC_BODY, v->a.length));
}

static void make_copies(struct xport_versioned *v)
{
	memset(v->at, 0, svc_snapshot_size(&v->a));
	store_mark(v, SVC_BODY, svc_mark_over(0, v->at + SVC_BODY + sizeof(struct svc_mark), v->a.length));
	store_mark(v, SVC_MARK, svc_mark_alone(0));
}

static int check_place(xport_mr *mr, uint64_t offset, size_t need, struct xport_mr_info *info)
{
	if (mr == NULL || offset % 64 != 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_create", NULL, "%s",
		                mr == NULL ? "mr is NULL" : "the offset is not a multiple of 64");
	if (xport_mr_query(mr, info) != XPORT_OK || ((uintptr_t)info->base + offset) % 8 != 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_create", NULL,
		                "mr is not a region, or the object would not be aligned to 8 bytes");
	/* The owner takes the lock by its CPU, peers would by the adapter: these two are not atomic to one another. */
	if ((info->rights & XPORT_ATOMIC_NIC) != 0)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_create", "register it without XPORT_ATOMIC_NIC",
		                "the region has XPORT_ATOMIC_NIC, so its owner cannot lock the object");
	if (offset > info->length || need > info->length - offset)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_versioned_create",
		                "xport_versioned_size returns the size of the object",
		                "the object needs %zu bytes, and the region has %zu there", need,
		                offset > info->length ? (size_t)0 : (size_t)(info->length - offset));
	return XPORT_OK;
}

int xport_versioned_create(xport_mr *mr, uint64_t offset, const struct xport_versioned_attr *attr,
                           xport_versioned **object)
{
	struct xport_mr_info info = {.size = sizeof(info)};
	struct xport_versioned_attr a;
	struct xport_versioned *v;
	size_t need;
	int r = svc_snapshot_attr(attr, &a, "xport_versioned_create");

	if (r != XPORT_OK)
		return r;
	need = svc_snapshot_size(&a);
	r = check_place(mr, offset, need, &info);
	if (r != XPORT_OK)
		return r;
	if (object == NULL)
		return svc_fail(XPORT_ERR_INVALID, "xport_versioned_create", NULL, "object is NULL");
	v = calloc(1, sizeof(*v));
	if (v == NULL || (v->replaced = calloc(a.copies, sizeof(v->replaced[0]))) == NULL) {
		free(v);
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_versioned_create", NULL, "out of memory");
	}
	v->a = a;
	v->at = (uint8_t *)info.base + offset;
	if (v->a.form == XPORT_VERSIONED_CHECKED)
		make_checked(v);
	else if (v->a.form == XPORT_VERSIONED_SUMMED)
		make_summed(v);
	else
		make_copies(v);
	atomic_thread_fence(memory_order_release);
	*object = v;
	return XPORT_OK;
}

void xport_versioned_destroy(xport_versioned *v)
{
	if (v == NULL)
		return;
	free(v->replaced);
	free(v);
}
