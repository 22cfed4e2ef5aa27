/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/rkey.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "core/rma.h"
#include "core/serve.h"
#include "core/tx.h"

enum { KEY_MAGIC = 0x314b5058 /* "XPK1" */, KEY_VERSION = 1, KEY_CHECK = 8 };

size_t xpi_key_encode(const struct xpi_key *k, void *buf, size_t len)
{
	struct xpi_wr w = xpi_wr(buf, len);
	uint8_t *start = buf;
	size_t n;

	xpi_wr_u32(&w, KEY_MAGIC);
	xpi_wr_u16(&w, 0); /* the length, below */
	xpi_wr_u16(&w, KEY_VERSION);
	xpi_wr_u64(&w, k->incarnation);
	xpi_wr_u64(&w, k->region);
	xpi_wr_u64(&w, k->base);
	xpi_wr_u64(&w, k->length);
	xpi_wr_u32(&w, k->rights);
	xpi_wr_str(&w, k->backend);
	xpi_wr_u16(&w, (uint16_t)k->native_len);
	xpi_wr_bytes(&w, k->native, k->native_len);
	n = len - w.left + KEY_CHECK;
	if (w.bad || w.left < KEY_CHECK || n > UINT16_MAX)
		return 0;
	start[4] = (uint8_t)n;
	start[5] = (uint8_t)(n >> 8);
	xpi_wr_u64(&w, XXH64(buf, n - KEY_CHECK, KEY_MAGIC));
	return n;
}

bool xpi_key_decode(const void *buf, size_t len, struct xpi_key *k)
{
	struct xpi_rd r = xpi_rd(buf, len);

	memset(k, 0, sizeof(*k));
	if (len <= KEY_CHECK || len > XPI_RKEY_MAX)
		return false;
	if (xpi_rd_u32(&r) != KEY_MAGIC || xpi_rd_u16(&r) != len || xpi_rd_u16(&r) != KEY_VERSION)
		return false;
	k->incarnation = xpi_rd_u64(&r);
	k->region = xpi_rd_u64(&r);
	k->base = xpi_rd_u64(&r);
	k->length = xpi_rd_u64(&r);
	k->rights = xpi_rd_u32(&r);
	xpi_rd_str(&r, k->backend, sizeof(k->backend));
	k->native_len = xpi_rd_u16(&r);
	k->native = xpi_rd_bytes(&r, k->native_len);
	if (r.bad || r.left != KEY_CHECK)
		return false;
	return xpi_rd_u64(&r) == XXH64(buf, len - KEY_CHECK, KEY_MAGIC);
}

/*
 * A native key may be of a region that ended meanwhile, or of whatever took its place; only its owner knows.  So the
 * owner is asked first (CLAIM, GRANT, and a REVOKE that it waits for), and until then the region is reached by message;
 * atomics that the adapter carries wait.
 */
static int claim(struct xport_rkey *k, const struct xpi_key *key)
{
	struct xport *x = k->ep->x;
	const uint32_t both = XPI_EMULATE_PUT | XPI_EMULATE_GET;

	if (key->native_len == 0 || ((x->settings.emulate & both) == both && k->atomic != XPI_BY_NETWORK)) {
		k->settled = true;
		return XPORT_OK;
	}
	k->native_key = malloc(key->native_len);
	if (k->native_key == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_rkey_unpack", "no memory for the key");
	memcpy(k->native_key, key->native, key->native_len);
	k->native_len = key->native_len;
	xpi_tell_key(k->ep, XPI_OP_CLAIM, k->region);
	return XPORT_OK;
}

static void native_end(struct xport_rkey *k)
{
	struct xport *x = k->ep->x;

	if (k->native)
		x->ops->rkey_destroy(x->be, xpi_rkey_be(k));
	k->native = false;
	k->direct = NULL;
}

/* From the first native key on, operations may overtake messages.  The application's fences until then had nothing to
 * do, since messages keep their order among themselves; this one makes up for them.  False: out of memory. */
static bool leave_messages(struct xport_ep *ep)
{
	if (ep->direct)
		return true;
	ep->direct = true;
	ep->direct = xpi_fence(ep) == XPORT_OK;
	return ep->direct;
}

/* Whether what is aligned there is aligned here, too. */
static bool mapped_alike(const struct xport_rkey *k)
{
	return k->direct != NULL && (((uintptr_t)k->direct ^ k->base_low) & 7) == 0;
}

static void adopt(struct xport_rkey *k)
{
	struct xport *x = k->ep->x;
	bool put = !(x->settings.emulate & XPI_EMULATE_PUT), get = !(x->settings.emulate & XPI_EMULATE_GET);
	void *direct = NULL;
	int r = x->ops->rkey_unpack(x->be, xpi_ep_be(k->ep), xpi_rkey_be(k), k->native_key, k->native_len, k->length,
	                            k->rights, &direct);

	free(k->native_key);
	k->native_key = NULL;
	k->settled = true;
	k->native = r == XPORT_OK;
	if (k->native && !k->lent && !leave_messages(k->ep)) {
		native_end(k);
		r = XPORT_ERR_NO_MEMORY;
	}
	if (r != XPORT_OK) {
		xpi_log(x->log, XPORT_LOG_INFO, "0014",
		        "%s: a native key is not usable (%s): its region is reached by message", k->ep->peer,
		        xport_status_name(r));
		return;
	}
	k->direct = direct;
	k->put = !put ? XPI_BY_MESSAGE : direct != NULL ? XPI_BY_COPY : XPI_BY_NETWORK;
	k->get = !get ? XPI_BY_MESSAGE : direct != NULL ? XPI_BY_COPY : XPI_BY_NETWORK;
	if (k->atomic == XPI_BY_MESSAGE && mapped_alike(k) && !(x->settings.emulate & XPI_EMULATE_ATOMIC))
		k->atomic = XPI_BY_COPY;
}

void xpi_rkey_adopt(struct xport_ep *ep, uint64_t region)
{
	xpi_list_for(l, &ep->rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		if (k->region == region && k->native_key != NULL && !k->stale)
			adopt(k);
	}
	if (ep->q_busy) /* an atomic may have waited for it */
		xpi_work(ep);
}

/* Without what it is a key of; NULL: out of memory. */
static struct xport_rkey *key_new(struct xport_ep *ep)
{
	size_t fixed = (sizeof(struct xport_rkey) + 15) & ~(size_t)15;
	size_t size = (fixed + ep->x->caps.rkey_size + 15) & ~(size_t)15;
	struct xport_rkey *k = aligned_alloc(16, size);

	if (k == NULL)
		return NULL;
	memset(k, 0, size);
	k->ep = ep;
	return k;
}

int xpi_rkey_unpack(struct xport_ep *ep, const void *buf, size_t len, struct xport_rkey **out)
{
	struct xport *x = ep->x;
	struct xport_rkey *k;
	struct xpi_key key;
	int r;

	if (buf == NULL || !xpi_key_decode(buf, len, &key))
		return xpi_refuse(x, XPORT_ERR_BAD_KEY, "xport_rkey_unpack", "%zu bytes are damaged or not a key", len);
	if (strcmp(key.backend, x->ops->name) != 0)
		return xpi_refuse(x, XPORT_ERR_BAD_KEY, "xport_rkey_unpack",
		                  "the key is of back end %s, this instance uses %s", key.backend, x->ops->name);
	if (key.incarnation != ep->peer_incarnation)
		return xpi_refuse(x, XPORT_ERR_STALE_KEY, "xport_rkey_unpack",
		                  "the key is of another process, or of an earlier life of this peer");
	k = key_new(ep);
	if (k == NULL)
		return xpi_refuse(x, XPORT_ERR_NO_MEMORY, "xport_rkey_unpack", "no memory for the key");
	k->length = key.length;
	k->region = key.region;
	k->base_low = key.base;
	k->rights = key.rights & ~XPI_KEY_BY_ADAPTER;
	k->atomic = (key.rights & XPI_KEY_BY_ADAPTER) != 0 ? XPI_BY_NETWORK : XPI_BY_MESSAGE;
	r = claim(k, &key);
	if (r != XPORT_OK) {
		free(k);
		return r;
	}
	xpi_list_push(&ep->rkeys, &k->link);
	*out = k;
	return XPORT_OK;
}

static void rkey_free(struct xport_rkey *k)
{
	struct xport_ep *ep = k->ep;

	native_end(k);
	ep->nborrowed -= k->lent;
	xpi_list_del(&k->link);
	free(k->native_key);
	free(k);
	if (ep->destroyed)
		ep->x->todo |= XPI_TODO_RELEASE;
}

void xpi_rkey_destroy(struct xport_rkey *k)
{
	k->destroyed = true;
	if (k->busy == 0)
		rkey_free(k);
}

void xpi_rkey_idle(struct xport_rkey *k)
{
	k->busy--;
	if (k->busy > 0)
		return;
	if (k->stale)
		xpi_work(k->ep);
	if (k->destroyed || (k->lent && k->stale))
		rkey_free(k);
}

static struct xport_rkey *lent(struct xport_ep *ep, uint64_t region)
{
	xpi_list_for(l, &ep->rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		if (k->lent && k->region == region)
			return k;
	}
	return NULL;
}

bool xpi_rkey_lent(struct xport_ep *ep, uint64_t region, uint64_t length, const uint8_t *native, size_t len)
{
	struct xport *x = ep->x;
	struct xport_rkey *k;

	if (!x->caps.lends || len == 0 || len > x->caps.rkey_native_max || ep->nborrowed >= XPI_LENT_MAX ||
	    lent(ep, region) != NULL)
		return false;
	k = key_new(ep);
	if (k == NULL)
		return true;
	k->native_key = malloc(len);
	if (k->native_key == NULL) {
		free(k);
		return true;
	}
	memcpy(k->native_key, native, len);
	k->native_len = len;
	k->region = region;
	k->length = length;
	k->rights = XPORT_REMOTE_WRITE;
	k->lent = true;
	ep->nborrowed++;
	xpi_list_push(&ep->rkeys, &k->link);
	xpi_tell_key(ep, XPI_OP_ADOPT, region); /* the back end is not to be called from here */
	return true;
}

struct xport_rkey *xpi_rkey_borrow(struct xport_ep *ep, uint64_t region, uint64_t offset, uint64_t len)
{
	struct xport_rkey *k = lent(ep, region);

	if (k == NULL || !xpi_rkey_fits(k, ep, offset, len, XPORT_REMOTE_WRITE))
		return NULL;
	k->busy++;
	return k;
}

bool xpi_rkey_revoke(struct xport_ep *ep, uint64_t region)
{
	bool idle = true;

	xpi_list_for_safe(l, &ep->rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		if (k->region != region)
			continue;
		k->stale = true;
		if (k->busy > 0)
			idle = false;
		else if (k->lent)
			rkey_free(k);
	}
	return idle;
}

void xpi_rkey_orphan(struct xport_ep *ep)
{
	xpi_list_for_safe(l, &ep->rkeys) {
		struct xport_rkey *k = xpi_container(l, struct xport_rkey, link);

		k->stale = true;
		k->put = k->get = k->atomic = XPI_BY_MESSAGE;
		native_end(k);
		if (k->lent && k->busy == 0)
			rkey_free(k);
	}
}
