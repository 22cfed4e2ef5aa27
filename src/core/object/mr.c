/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/object/mr.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/fd.h"
#include "base/grow.h"
#include "core/config/select.h"
#include "core/config/settings.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/mr_part.h"
#include "core/object/set.h"
#include "core/object/usdt.h"
#include "core/wire/rkey_format.h"

enum { INDEX_BITS = 20 };
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)

/* ---- the table ---- */

static int mr_slot_find(struct xport *x, uint32_t *slot)
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

int xpi_mr_enter(struct xport *x, struct xport_mr *mr, const char *operation)
{
	uint64_t random;
	uint32_t slot;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, NULL, "getrandom failed");
	if (mr_slot_find(x, &slot) != XPORT_OK)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, operation,
		                  "too many regions (%u are registered, parts with a key included)", x->nmr);
	mr->id = (random & ~INDEX_MASK) | slot;
	x->mr_table[slot] = mr;
	x->nmr++;
	return XPORT_OK;
}

void xpi_mr_leave(struct xport_mr *mr)
{
	mr->x->mr_table[mr->id & INDEX_MASK] = NULL;
	mr->x->nmr--;
}

struct xport_mr *xpi_mr_at(struct xport *x, uint64_t id)
{
	uint32_t slot = (uint32_t)(id & INDEX_MASK);
	struct xport_mr *mr = slot < x->mr_table_size ? x->mr_table[slot] : NULL;

	return mr != NULL && mr->id == id ? mr : NULL;
}

struct xport_mr *xpi_mr_find(struct xport *x, uint64_t id)
{
	struct xport_mr *mr = xpi_mr_at(x, id);

	return mr != NULL && mr->whole != NULL ? mr->whole : mr;
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
	if (__builtin_expect((mr->rights & right) == 0, 0))
		return xpi_part_check(mr, offset, len, right, mrp, at);
	if (len > mr->length || offset > mr->length - len)
		return XPORT_ERR_BOUNDS;
	*at = mr->base + offset;
	return XPORT_OK;
}

/* ---- registering ---- */

/* A range of memory as the kernel maps it. */
struct mapped {
	uint64_t at;           /* up to here it is mapped with the rights needed */
	uint64_t ro_lo, ro_hi; /* the part that is not writable lies in here; equal: there is none */
};

/* Looks [base, base + length) up in the process's memory map.  False: it cannot be read, and errno tells why. */
static bool look_up(uint64_t base, uint64_t length, bool writing, struct mapped *m)
{
	uint64_t end = base + length;
	FILE *f = xpi_fd_stream("/proc/self/maps");
	char line[512];

	*m = (struct mapped){.at = base};
	if (f == NULL)
		return false;
	while (m->at < end && fgets(line, sizeof(line), f) != NULL) {
		uint64_t lo, hi;
		char perm[5];

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &lo, &hi, perm) != 3 || hi <= m->at)
			continue;
		if (lo > m->at || perm[0] != 'r' || (writing && perm[1] != 'w'))
			break;
		if (perm[1] != 'w') {
			m->ro_lo = m->ro_hi == 0 ? m->at : m->ro_lo;
			m->ro_hi = hi < end ? hi : end;
		}
		m->at = hi;
	}
	fclose(f);
	return true;
}

bool xpi_mr_writable(const struct xport_mr *mr, const void *buf, size_t len)
{
	uintptr_t at = (uintptr_t)buf;
	struct mapped m;

	if (len == 0 || at >= mr->ro_hi || at + len <= mr->ro_lo)
		return true;
	return look_up(at, len, true, &m) && m.at >= at + len;
}

/* Whether [base, base + length) is mapped with the rights needed: XPORT_OK or XPORT_ERR_FAULT. */
static int mr_probe(struct xport *x, uint64_t base, uint64_t length, bool writing, struct mapped *m)
{
	if (!look_up(base, length, writing, m))
		return xpi_fail_errno(&x->err, XPORT_ERR_SYSTEM, "mount /proc", "cannot read /proc/self/maps");
	if (m->at >= base + length)
		return XPORT_OK;
	return xpi_refuse(x, XPORT_ERR_FAULT, "xport_mr_reg", "address %#" PRIx64 " is not mapped for %s", m->at,
	                  writing ? "writing" : "reading");
}

static int memory_valid(struct xport *x, const void *base, uint64_t length, uint32_t rights, struct mapped *m)
{
	const uint32_t writing = XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_REMOTE_RECV;

	if (base == NULL)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_mr_reg", "the base is NULL");
	if ((uintptr_t)base + length < (uintptr_t)base)
		return xpi_refuse(x, XPORT_ERR_INVALID, "xport_mr_reg",
		                  "base plus length wraps around the address space");
	return mr_probe(x, (uintptr_t)base, length, (rights & writing) != 0, m);
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

/*
 * Whether the adapter shall carry atomics on a region with these rights. Among several transports never: peers over the others
 * would change the same words by the CPU.
 */
static bool by_adapter(const struct xpi_transport *tp, uint32_t rights)
{
	return !xpi_several(tp->x) && (rights & XPORT_ATOMIC_NIC) != 0 &&
	       xpi_choice_nic_atomic(&tp->x->settings, &tp->caps);
}

/* Whether peers may reach memory with these rights without us. */
static bool by_network(const struct xpi_transport *tp, uint32_t rights)
{
	const uint32_t both = XPI_EMULATE_PUT | XPI_EMULATE_GET;

	return tp->caps.rkey_native_max > 0 && ((tp->x->settings.emulate & both) != both || by_adapter(tp, rights));
}

/* As the back end knows them. */
static uint32_t native_rights(const struct xpi_transport *tp, uint32_t rights)
{
	uint32_t most = rights & ~(uint32_t)(XPORT_ATOMIC_NIC | XPORT_REMOTE_RECV);

	if (by_adapter(tp, rights))
		most |= XPORT_ATOMIC_NIC;
	if ((rights & XPORT_REMOTE_RECV) != 0 && xpi_choice_lend(&tp->x->settings, &tp->caps))
		most |= XPORT_REMOTE_WRITE;
	return most;
}

/* Memory for what the back end keeps of a region: zeroed. NULL: out of memory. */
static void *state_new(const struct xpi_transport *tp)
{
	size_t size = (tp->caps.mr_size + 16) & ~(size_t)15;
	void *state = aligned_alloc(16, size);

	if (state != NULL)
		memset(state, 0, size);
	return state;
}

static int state_refuse(const struct xpi_transport *tp)
{
	return xpi_refuse(tp->x, XPORT_ERR_NO_MEMORY, "xport_mr_reg", "no memory for the region's object");
}

/* Makes the region known to the transport, if peers may reach it there without us. */
static int reg(struct xport_mr *mr, struct xpi_transport *tp)
{
	void *state;
	int r;

	if (!by_network(tp, mr->rights) || !tp->caps.rma_reg)
		return XPORT_OK;
	state = state_new(tp);
	if (state == NULL)
		return state_refuse(tp);
	r = tp->ops->mr_reg(tp->be, state, mr->base, mr->length, native_rights(tp, mr->rights));
	if (r == XPORT_OK)
		mr->on[tp->index] = state;
	else
		free(state);
	return r;
}

/* On one of several transports: the others go on without it. */
static void reg_or_log(struct xport_mr *mr, struct xpi_transport *tp)
{
	struct xport_error before = mr->x->err;

	if (reg(mr, tp) != XPORT_OK)
		xpi_log(mr->x->log, XPORT_LOG_INFO, "0027",
		        "%s:%s cannot register a region of %" PRIu64 " bytes: peers over it reach it by messages: %s",
		        tp->ops->name, tp->caps.provider, mr->length, mr->x->err.text);
	mr->x->err = before;
}

/* On all that are open and do not know it. The only transport of an instance must take it. */
static int reg_all(struct xport_mr *mr)
{
	if (!xpi_several(mr->x))
		return xpi_mr_on(mr, mr->x->tp) == NULL ? reg(mr, mr->x->tp) : XPORT_OK;
	xpi_list_for(l, &mr->x->transports) {
		struct xpi_transport *tp = xpi_container(l, struct xpi_transport, link);

		if (xpi_mr_on(mr, tp) == NULL)
			reg_or_log(mr, tp);
	}
	return XPORT_OK;
}

void xpi_mr_know_all(struct xpi_transport *tp)
{
	struct xport *x = tp->x;

	for (uint32_t i = 0; i < x->mr_table_size; i++)
		if (x->mr_table[i] != NULL && !x->mr_table[i]->dying && x->mr_table[i]->whole == NULL)
			reg_or_log(x->mr_table[i], tp);
}

int xpi_mr_native_key(const struct xport_mr *mr, const struct xpi_transport *tp, struct xport_ep *ep, void *buf,
                      size_t *len)
{
	void *state = xpi_mr_on(mr, tp);

	if (state == NULL)
		return XPORT_ERR_NOT_SUPPORTED;
	return tp->ops->rkey_pack(tp->be, ep != NULL ? xpi_ep_be(ep) : NULL, state, buf, len);
}

/* One way for all: who has no native key to the region sends messages, and the two must not be mixed. */
static bool has_native_key(const struct xport_mr *mr, const struct xpi_transport *tp)
{
	uint8_t native[XPI_NATIVE_KEY_MAX];
	size_t len = sizeof(native);

	return xpi_mr_native_key(mr, tp, NULL, native, &len) == XPORT_OK && len > 0;
}

/* Memory of the back end's. XPORT_ERR_NOT_SUPPORTED: it has none that is better than ours. */
static int allocate_there(struct xport_mr *mr, struct xpi_transport *tp)
{
	void *state, *base = NULL;
	int r;

	if (!by_network(tp, mr->rights) || by_adapter(tp, mr->rights))
		return XPORT_ERR_NOT_SUPPORTED;
	state = state_new(tp);
	if (state == NULL)
		return state_refuse(tp);
	r = tp->ops->mr_alloc(tp->be, state, mr->length, native_rights(tp, mr->rights), &base);
	if (r != XPORT_OK) {
		free(state);
		return r;
	}
	mr->on[tp->index] = state;
	mr->base = base;
	mr->owner = tp;
	return XPORT_OK;
}

/* The first back end that has memory better than ours provides it. */
static int allocate_native(struct xport_mr *mr)
{
	int r = XPORT_ERR_NOT_SUPPORTED;

	xpi_list_for(l, &mr->x->transports) {
		r = allocate_there(mr, xpi_container(l, struct xpi_transport, link));
		if (r == XPORT_OK || (r != XPORT_ERR_NOT_SUPPORTED && !xpi_several(mr->x)))
			break;
	}
	return r;
}

/* Memory for xport_mr_alloc. */
static int allocate(struct xport_mr *mr)
{
	void *base;
	int r = allocate_native(mr);

	if (r == XPORT_OK)
		return reg_all(mr);
	if (r != XPORT_ERR_NOT_SUPPORTED && !xpi_several(mr->x))
		return r;
	base = mmap(NULL, mr->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return xpi_refuse(mr->x, XPORT_ERR_NO_MEMORY, "xport_mr_alloc", "cannot allocate %" PRIu64 " bytes",
		                  mr->length);
	mr->base = base;
	r = reg_all(mr);
	if (r != XPORT_OK)
		munmap(base, mr->length);
	mr->mapped = r == XPORT_OK;
	return r;
}

int xpi_mr_new(struct xport *x, void *base, uint64_t length, uint32_t rights, bool alloc, struct xport_mr **out)
{
	struct mapped memory = {0};
	struct xport_mr *mr;
	int r;

	r = region_valid(x, length, rights, alloc ? "xport_mr_alloc" : "xport_mr_reg");
	if (r == XPORT_OK && !alloc)
		r = memory_valid(x, base, length, rights, &memory);
	if (r != XPORT_OK)
		return r;
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return state_refuse(x->tp);
	mr->x = x;
	mr->base = base;
	mr->length = length;
	mr->rights = rights;
	mr->allocated = alloc;
	mr->readonly = memory.ro_hi != 0;
	mr->ro_lo = memory.ro_lo;
	mr->ro_hi = memory.ro_hi;
	xpi_list_init(&mr->parts);
	r = xpi_mr_enter(x, mr, "xport_mr_reg");
	if (r != XPORT_OK) {
		free(mr);
		return r;
	}
	r = alloc ? allocate(mr) : reg_all(mr);
	if (r != XPORT_OK) {
		xpi_mr_leave(mr);
		free(mr);
		return r;
	}
	mr->by_adapter = by_adapter(x->tp, rights) && has_native_key(mr, x->tp);
	XPI_PROBE_REGISTER(x, mr->base, length, rights);
	*out = mr;
	return XPORT_OK;
}

/* ---- ending ---- */

static void dereg(struct xport_mr *mr, const struct xpi_transport *tp)
{
	if (mr->on[tp->index] != NULL)
		tp->ops->mr_dereg(tp->be, mr->on[tp->index]);
	free(mr->on[tp->index]);
}

void xpi_mr_drop(struct xport_mr *mr)
{
	struct xport *x = mr->x;

	xpi_parts_free(mr);
	xpi_mr_leave(mr);
	xpi_list_for(l, &x->transports) {
		const struct xpi_transport *tp = xpi_container(l, struct xpi_transport, link);

		if (tp != mr->owner)
			dereg(mr, tp);
	}
	/* Last, because it unmaps the memory. */
	if (mr->owner != NULL)
		dereg(mr, mr->owner);
	if (mr->mapped)
		munmap(mr->base, mr->length);
	free(mr);
}

/* ---- the key ---- */

/* Whether some transport may have a native key of the region; of several, one that is not open yet. */
static bool has_native(const struct xport_mr *mr)
{
	if (xpi_several(mr->x))
		return true;
	for (int i = 0; i < XPI_TRANSPORTS_MAX; i++)
		if (mr->on[i] != NULL)
			return true;
	return false;
}

bool xpi_mr_by_messages(const struct xport_mr *mr)
{
	return !has_native(mr);
}

int xpi_mr_pack_room(struct xport *x, const char *operation, const void *buf, size_t *len)
{
	size_t room;

	if (len == NULL)
		return xpi_refuse(x, XPORT_ERR_INVALID, operation, "len is NULL");
	room = buf != NULL ? *len : 0;
	*len = XPI_RKEY_LEN;
	if (room < XPI_RKEY_LEN)
		return xpi_refuse(x, XPORT_ERR_BOUNDS, operation, "the key needs %d bytes, and the buffer has %zu",
		                  XPI_RKEY_LEN, room);
	return XPORT_OK;
}

void xpi_mr_key_write(const struct xport_mr *mr, uint64_t base, uint32_t rights, void *buf)
{
	struct xpi_key k = {
		.incarnation = mr->x->incarnation,
		.region = mr->id,
		.base = base,
		.length = mr->length,
		.rights = rights,
	};

	xpi_key_encode(&k, buf, XPI_RKEY_LEN);
}

uint32_t xpi_mr_key_rights(const struct xport_mr *mr, uint32_t rights)
{
	return (rights & ~(uint32_t)XPORT_REMOTE_RECV) | (mr->by_adapter ? XPI_KEY_BY_ADAPTER : 0) |
	       (has_native(mr) ? 0 : XPI_KEY_BY_MESSAGES);
}

int xpi_mr_pack(const struct xport_mr *mr, void *buf, size_t *len)
{
	int r = xpi_mr_pack_room(mr->x, "xport_rkey_pack", buf, len);

	if (r != XPORT_OK)
		return r;
	/* The base is for alignment; a native key has what its network needs. */
	xpi_mr_key_write(mr, (uintptr_t)mr->base & XPI_KEY_BASE_MASK, xpi_mr_key_rights(mr, mr->rights), buf);
	((struct xport_mr *)(uintptr_t)mr)->packed = true;
	return XPORT_OK;
}
