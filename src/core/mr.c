/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mr.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/opq.h"
#include "core/probe.h"
#include "core/rkey.h"
#include "core/rma.h"
#include "core/select.h"
#include "core/serve.h"

enum { INDEX_BITS = 20 };
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)

/* ---- the table ---- */

static int slot_find(struct xport *x, uint32_t *slot)
{
	uint32_t size = x->mr_table_size;
	struct xport_mr **bigger;

	for (uint32_t i = 0; i < size && x->nmr < size; i++) {
		uint32_t at = (x->mr_next + i) % size;

		if (x->mr_table[at] == NULL) {
			x->mr_next = at + 1;
			*slot = at;
			return XPORT_OK;
		}
	}
	if (size > INDEX_MASK / 2)
		return XPORT_ERR_NO_MEMORY;
	bigger = realloc(x->mr_table, (size ? size * 2 : 64) * sizeof(*bigger));
	if (bigger == NULL)
		return XPORT_ERR_NO_MEMORY;
	x->mr_table = bigger;
	x->mr_table_size = size ? size * 2 : 64;
	memset(bigger + size, 0, (x->mr_table_size - size) * sizeof(*bigger));
	*slot = size;
	return XPORT_OK;
}

int xpi_mr_check(struct xport *x, uint64_t id, uint64_t offset, uint64_t len, uint32_t right, struct xport_mr **mrp,
                 uint8_t **at)
{
	uint32_t slot = (uint32_t)(id & INDEX_MASK);
	struct xport_mr *mr = slot < x->mr_table_size ? x->mr_table[slot] : NULL;

	*mrp = NULL;
	if (mr == NULL || mr->id != id || mr->dying)
		return XPORT_ERR_STALE_KEY;
	*mrp = mr;
	if ((mr->rights & right) == 0)
		return XPORT_ERR_ACCESS;
	if (len > mr->length || offset > mr->length - len)
		return XPORT_ERR_BOUNDS;
	*at = mr->base + offset;
	return XPORT_OK;
}

/* ---- registering ---- */

/* Whether [base, base + length) is mapped with the rights needed: XPORT_OK or XPORT_ERR_FAULT. */
static int probe(struct xport *x, uint64_t base, uint64_t length, bool writing)
{
	uint64_t at = base, end = base + length;
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];

	if (f == NULL)
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, "mount /proc", "cannot read /proc/self/maps");
	while (at < end && fgets(line, sizeof(line), f) != NULL) {
		uint64_t lo, hi;
		char perm[5];

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &lo, &hi, perm) != 3 || hi <= at)
			continue;
		if (lo > at || perm[0] != 'r' || (writing && perm[1] != 'w'))
			break;
		at = hi;
	}
	fclose(f);
	if (at >= end)
		return XPORT_OK;
	return xpi_refuse(x, XPORT_ERR_FAULT, "xport_mr_reg", "address %#" PRIx64 " is not mapped for %s", at,
	                  writing ? "writing" : "reading");
}

static int memory_valid(struct xport *x, const void *base, uint64_t length, uint32_t rights)
{
	const uint32_t writing = XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_REMOTE_RECV;

	if (base == NULL)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_mr_reg", "the base is NULL");
	if ((uintptr_t)base + length < (uintptr_t)base)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_mr_reg",
		                  "base plus length wraps around the address space");
	return probe(x, (uintptr_t)base, length, (rights & writing) != 0);
}

static int region_valid(struct xport *x, uint64_t length, uint32_t rights, const char *operation)
{
	if (rights & ~(uint32_t)(XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC |
	                         XPORT_REMOTE_RECV))
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "unknown rights %#x", rights);
	if ((rights & XPORT_ATOMIC_NIC) != 0 && (rights & XPORT_REMOTE_ATOMIC) == 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "XPORT_ATOMIC_NIC goes with XPORT_REMOTE_ATOMIC");
	if (length == 0)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "the length is 0");
	return XPORT_OK;
}

/* Whether the adapter shall carry atomics on a region with these rights. */
static bool by_adapter(const struct xport *x, uint32_t rights)
{
	return (rights & XPORT_ATOMIC_NIC) != 0 && xpi_choice_nic_atomic(&x->settings, &x->caps);
}

/* Whether peers may reach memory with these rights without us. */
static bool by_network(const struct xport *x, uint32_t rights)
{
	const uint32_t both = XPI_EMULATE_PUT | XPI_EMULATE_GET;

	return x->caps.rkey_native_max > 0 && ((x->settings.emulate & both) != both || by_adapter(x, rights));
}

/* As the back end knows them. */
static uint32_t native_rights(const struct xport *x, uint32_t rights)
{
	uint32_t most = rights & ~(uint32_t)(XPORT_ATOMIC_NIC | XPORT_REMOTE_RECV);

	if (by_adapter(x, rights))
		most |= XPORT_ATOMIC_NIC;
	if ((rights & XPORT_REMOTE_RECV) != 0 && xpi_choice_lend(&x->settings, &x->caps))
		most |= XPORT_REMOTE_WRITE;
	return most;
}

static int reg(struct xport *x, struct xport_mr *mr)
{
	return x->ops->mr_reg(x->be, xpi_mr_be(mr), mr->base, mr->length, native_rights(x, mr->rights));
}

/* One way for all: who has no native key to the region sends messages, and the two must not be mixed. */
static bool has_native_key(struct xport *x, const struct xport_mr *mr)
{
	uint8_t native[1024];
	size_t len = sizeof(native);

	return mr->native && x->ops->rkey_pack(x->be, xpi_mr_be(mr), native, &len) == XPORT_OK && len > 0;
}

/* Memory for xport_mr_alloc, of the back end's if it has better than ours. */
static int allocate(struct xport *x, struct xport_mr *mr)
{
	void *base = NULL;
	int r = XPORT_ERR_NOT_SUPPORTED;

	if (by_network(x, mr->rights) && !by_adapter(x, mr->rights))
		r = x->ops->mr_alloc(x->be, xpi_mr_be(mr), mr->length, native_rights(x, mr->rights), &base);
	if (r == XPORT_OK) {
		mr->native = true;
	} else if (r == XPORT_ERR_NOT_SUPPORTED) {
		base = mmap(NULL, mr->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base == MAP_FAILED)
			return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_mr_alloc", "no %" PRIu64 " bytes of memory",
			                  mr->length);
	} else {
		return r;
	}
	mr->base = base;
	if (!mr->native && by_network(x, mr->rights) && x->caps.rma_reg) {
		r = reg(x, mr);
		if (r != XPORT_OK)
			munmap(base, mr->length);
		mr->native = mr->mapped = r == XPORT_OK;
		return r;
	}
	mr->mapped = !mr->native;
	return XPORT_OK;
}

int xpi_mr_new(struct xport *x, void *base, uint64_t length, uint32_t rights, bool alloc, struct xport_mr **out)
{
	size_t fixed = (sizeof(struct xport_mr) + 15) & ~(size_t)15;
	struct xport_mr *mr;
	uint64_t random;
	uint32_t slot;
	int r;

	r = region_valid(x, length, rights, alloc ? "xport_mr_alloc" : "xport_mr_reg");
	if (r == XPORT_OK && !alloc)
		r = memory_valid(x, base, length, rights);
	if (r != XPORT_OK)
		return r;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "getrandom failed");
	if (slot_find(x, &slot) != XPORT_OK)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_mr_reg",
		                  "no room for another region (%u are registered)", x->nmr);
	mr = aligned_alloc(16, (fixed + x->caps.mr_size + 15) & ~(size_t)15);
	if (mr == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_mr_reg", "no memory for the region's object");
	memset(mr, 0, fixed + x->caps.mr_size);
	mr->x = x;
	mr->base = base;
	mr->length = length;
	mr->rights = rights;
	mr->allocated = alloc;
	mr->id = (random & ~INDEX_MASK) | slot;
	if (alloc) {
		r = allocate(x, mr);
	} else if (by_network(x, rights) && x->caps.rma_reg) {
		r = reg(x, mr);
		mr->native = r == XPORT_OK;
	}
	if (r != XPORT_OK) {
		free(mr);
		return r;
	}
	mr->by_adapter = by_adapter(x, rights) && has_native_key(x, mr);
	x->mr_table[slot] = mr;
	x->nmr++;
	XPI_PROBE_REGISTER(x, mr->base, length, rights);
	*out = mr;
	return XPORT_OK;
}

/* ---- ending ---- */

void xpi_mr_drop(struct xport_mr *mr)
{
	struct xport *x = mr->x;

	x->mr_table[mr->id & INDEX_MASK] = NULL;
	x->nmr--;
	if (mr->native)
		x->ops->mr_dereg(x->be, xpi_mr_be(mr));
	if (mr->mapped)
		munmap(mr->base, mr->length);
	free(mr);
}

/* A peer that may use the native key of a region. */
struct holder {
	struct xpi_list link; /* in ep->holds */
	uint64_t region;
	bool lent; /* it was told the key by us, see xpi_mr_lend */
};

static struct holder *hold_find(struct xport_ep *ep, uint64_t region)
{
	xpi_list_for(l, &ep->holds)
		if (xpi_container(l, struct holder, link)->region == region)
			return xpi_container(l, struct holder, link);
	return NULL;
}

/* That of the region, if need be a new one; NULL: out of memory. */
static struct holder *hold(struct xport_ep *ep, uint64_t region)
{
	struct holder *h = hold_find(ep, region);

	if (h != NULL)
		return h;
	h = calloc(1, sizeof(*h));
	if (h == NULL)
		return NULL;
	h->region = region;
	xpi_list_push(&ep->holds, &h->link);
	return h;
}

bool xpi_mr_claim(struct xport_ep *ep, uint64_t region)
{
	struct xport_mr *mr;
	uint8_t *at;

	xpi_mr_check(ep->x, region, 0, 0, UINT32_MAX, &mr, &at);
	return mr != NULL && mr->native && hold(ep, region) != NULL;
}

bool xpi_mr_lend(struct xport_ep *ep, struct xport_mr *mr)
{
	struct holder *h = hold_find(ep, mr->id);

	if (h != NULL && h->lent)
		return true;
	if (ep->nlent >= XPI_LENT_MAX || mr->dying)
		return false;
	h = hold(ep, mr->id);
	if (h == NULL || !xpi_lend_key(ep, mr->id))
		return false;
	h->lent = true;
	ep->nlent++;
	return true;
}

static void hold_end(struct xport_ep *ep, struct holder *h)
{
	struct xport *x = ep->x;
	struct xport_mr *mr = x->mr_table[h->region & INDEX_MASK];

	if (mr != NULL && mr->id == h->region && mr->revoking > 0)
		mr->revoking--;
	ep->nlent -= h->lent;
	xpi_list_del(&h->link);
	free(h);
}

void xpi_mr_revoked(struct xport_ep *ep, uint64_t region)
{
	struct holder *h = hold_find(ep, region);

	if (h != NULL)
		hold_end(ep, h);
}

void xpi_mr_peer_gone(struct xport_ep *ep)
{
	while (!xpi_list_empty(&ep->holds))
		hold_end(ep, xpi_container(ep->holds.next, struct holder, link));
}

/*
 * Asks those that may reach it without us to stop; tells the others, whose use would be refused anyway.  One that fails
 * holds its key until it is quiesced; one that has not heard yet that its peer is ready may have granted some.
 */
static void ask_peers(struct xport_mr *mr)
{
	xpi_list_for_safe(l, &mr->x->eps) {
		struct xport_ep *ep = xpi_container(l, struct xport_ep, link);
		bool held = hold_find(ep, mr->id) != NULL;

		mr->revoking += held;
		if (ep->state < XPI_EP_FAILING && (held || (mr->packed && ep->state != XPI_EP_CONNECTING)))
			xpi_tell_key(ep, XPI_OP_REVOKE, mr->id);
	}
}

/* Notifications not reaped yet must not show a region that is gone. */
static void forget_in_queue(struct xport *x, struct xport_mr *mr)
{
	xpi_list_for(l, &x->cq.later) {
		struct xpi_op *op = xpi_container(l, struct xpi_op, link);

		if (op->kind == XPORT_EVENT_NOTIFY && op->mr == mr)
			op->mr = NULL;
	}
}

int xpi_mr_dereg(struct xport_mr *mr)
{
	struct xport *x = mr->x;

	if (mr->dying)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_mr_dereg",
		                  "the region is being deregistered by another thread");
	if (mr->posted > 0)
		return xpi_refuse(x, XPORT_ERR_BUSY, "xport_mr_dereg",
		                  "%u posted receives use the region: cancel them, or let them be matched", mr->posted);
	mr->dying = true; /* from here on what comes by message is refused */
	ask_peers(mr);
	while (mr->revoking > 0 || mr->serving > 0 || mr->busy > 0) {
		xpi_progress(x);
		if (mr->revoking > 0 || mr->serving > 0 || mr->busy > 0)
			xpi_idle(x, 100);
	}
	xpi_progress(x); /* lets those hear of it that need not answer */
	forget_in_queue(x, mr);
	xpi_mr_drop(mr);
	return XPORT_OK;
}

/* ---- the key ---- */

int xpi_mr_pack(const struct xport_mr *mr, void *buf, size_t *len)
{
	struct xport *x = mr->x;
	uint8_t native[1024];
	struct xpi_key k = {
		.incarnation = x->incarnation,
		.region = mr->id,
		.base = (uintptr_t)mr->base &
	                4095, /* the native key has what its network needs, verbs' the whole address */
		.length = mr->length,
		.rights = (mr->rights & ~(uint32_t)XPORT_REMOTE_RECV) | (mr->by_adapter ? XPI_KEY_BY_ADAPTER : 0),
		.native = native,
	};
	uint8_t packed[XPI_RKEY_MAX];
	size_t n;

	if (len == NULL)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_rkey_pack", "len is NULL");
	snprintf(k.backend, sizeof(k.backend), "%s", x->ops->name);
	if (mr->native) {
		k.native_len = sizeof(native);
		int r = x->ops->rkey_pack(x->be, xpi_mr_be(mr), native, &k.native_len);

		if (r != XPORT_OK)
			return r;
	}
	n = xpi_key_encode(&k, packed, sizeof(packed));
	if (buf == NULL || *len < n) {
		size_t room = *len;

		*len = n;
		return xpi_refuse(x, XPORT_ERR_BOUNDS, "xport_rkey_pack",
		                  "the key takes %zu bytes, there is room for %zu", n, buf == NULL ? 0 : room);
	}
	memcpy(buf, packed, n);
	*len = n;
	((struct xport_mr *)(uintptr_t)mr)->packed = true;
	return XPORT_OK;
}
