/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_am.c - frames: one message each.
 *
 * Receives of one size are posted before the endpoint connects. Each is posted again as soon as the core has read
 * the frame in it. So no message can be truncated, an error that every provider reports differently. If the provider
 * holds back a sender that finds no receive (FI_RM_ENABLED: a socket does), a few receives are enough. Otherwise
 * there are as many as the contract says may arrive. Frames up to the provider's inject size are the core's again at
 * once. Longer ones are sent from where they are, or from a registered copy if an adapter needs registered memory.
 */
#include <string.h>
#include <sys/mman.h>

#include "ofi.h"

enum { KEYS_TRIED = 65536 }; /* attempts: keys of other endpoints of this side may collide, rarely more than once */

/* ---- buffers ---- */

static size_t stride(const struct xpi_be *be)
{
	return (be->frame_max + 63) & ~(size_t)63;
}

/* The provider's key, or a unique one. Peers never learn it, so it need not be hard to guess. */
static int register_under_a_key(struct ofi_ep *ep)
{
	struct xpi_be *be = ep->be;
	const struct fi_domain_attr *attr = be->info->domain_attr;
	bool ours = (attr->mr_mode & FI_MR_PROV_KEY) == 0;
	uint64_t last = attr->mr_key_size < sizeof(last) ? (UINT64_C(1) << (8 * attr->mr_key_size)) - 1 : UINT64_MAX;
	uint64_t tries = ours ? last < KEYS_TRIED ? last + 1 : KEYS_TRIED : 1;
	int rc = -FI_ENOKEY;

	while (rc == -FI_ENOKEY && tries-- > 0)
		rc = fi_mr_reg(be->domain, ep->slab, ep->slab_len, FI_SEND | FI_RECV, 0, ours ? be->key++ & last : 0, 0,
		               &ep->slab_mr, NULL);
	if (rc != 0)
		ep->slab_mr = NULL;
	return rc;
}

static int register_slab(struct ofi_ep *ep)
{
	bool bind = (ep->be->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
	int rc = register_under_a_key(ep);

	if (rc != 0)
		return rc;
	if (bind)
		rc = fi_mr_bind(ep->slab_mr, &ep->fid->fid, 0);
	if (rc == 0 && bind)
		rc = fi_mr_enable(ep->slab_mr);
	ep->desc = fi_mr_desc(ep->slab_mr);
	return rc;
}

static int add_buffers(struct ofi_ep *ep, struct xpi_list *list, uint8_t *at, unsigned n, bool recv)
{
	for (unsigned i = 0; i < n; i++, at += stride(ep->be)) {
		struct ofi_rec *rec = xpi_pool_get(&ep->be->recs);

		if (rec == NULL)
			return -FI_ENOMEM;
		rec->ep = ep;
		rec->req = NULL;
		rec->buf = at;
		rec->recv = recv;
		xpi_list_push(list, &rec->link);
	}
	return 0;
}

int ofi_am_open(struct ofi_ep *ep)
{
	struct xpi_be *be = ep->be;
	unsigned nbounces = be->copies ? be->nsend : 0;
	int rc;

	if (be->cq_left < be->nrecv + be->nsend)
		return -FI_ENOSPC;
	be->cq_left -= ep->cq_share = be->cq_counts ? be->nrecv + be->nsend : 0;
	ep->slab_len = (be->nrecv + nbounces) * stride(be);
	ep->slab = mmap(NULL, ep->slab_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ep->slab == MAP_FAILED) {
		ep->slab = NULL;
		return -FI_ENOMEM;
	}
	rc = be->local_mr ? register_slab(ep) : 0;
	if (rc == 0)
		rc = add_buffers(ep, &ep->idle, ep->slab, be->nrecv, true);
	if (rc == 0)
		rc = add_buffers(ep, &ep->bounces, ep->slab + be->nrecv * stride(be), nbounces, false);
	return rc;
}

static void put_all(struct xpi_be *be, struct xpi_list *list)
{
	while (!xpi_list_empty(list))
		xpi_pool_put(&be->recs, xpi_container(xpi_list_pop(list), struct ofi_rec, link));
}

/* After libfabric's endpoint was closed. */
void ofi_am_close(struct ofi_ep *ep)
{
	struct xpi_be *be = ep->be;

	if (ep->cq != NULL) {
		fi_close(&ep->cq->fid);
		ep->cq = NULL;
		put_all(be, &ep->posted);
	}
	while (!xpi_list_empty(&ep->posted)) {
		struct ofi_rec *rec = xpi_container(xpi_list_pop(&ep->posted), struct ofi_rec, link);

		rec->ep = NULL;
		xpi_list_push(&be->zombies, &rec->link);
		be->calm = 0;
	}
	put_all(be, &ep->idle);
	put_all(be, &ep->early);
	put_all(be, &ep->bounces);
	if (xpi_list_linked(&ep->hungry))
		xpi_list_del(&ep->hungry);
	if (ep->slab_mr != NULL)
		fi_close(&ep->slab_mr->fid);
	if (ep->slab != NULL)
		munmap(ep->slab, ep->slab_len);
	ep->slab_mr = NULL;
	ep->slab = NULL;
	be->cq_left += ep->cq_share;
	ep->cq_share = 0;
}

int ofi_am_feed(struct ofi_ep *ep)
{
	struct xpi_be *be = ep->be;

	while (!xpi_list_empty(&ep->idle)) {
		struct ofi_rec *rec = xpi_container(ep->idle.next, struct ofi_rec, link);
		ssize_t rc = fi_recv(ep->fid, rec->buf, be->frame_max, ep->desc, FI_ADDR_UNSPEC, &rec->context);

		if (rc == -FI_EAGAIN) {
			if (!xpi_list_linked(&ep->hungry))
				xpi_list_push(&be->hungry, &ep->hungry);
			be->calm = 0;
			return 0;
		}
		if (rc != 0)
			return (int)rc;
		xpi_list_del(&rec->link);
		xpi_list_push(&ep->posted, &rec->link);
		rec->nth = ep->nposted++;
	}
	if (xpi_list_linked(&ep->hungry))
		xpi_list_del(&ep->hungry);
	return 0;
}

/* ---- sending ---- */

static __attribute__((noinline, cold)) int am_refused(struct ofi_ep *ep, ssize_t rc)
{
	if (rc == -FI_EAGAIN)
		return XPORT_ERR_AGAIN;
	if (rc == -FI_ENOMEM)
		return XPORT_ERR_NO_MEMORY;
	ofi_am_room(ep, 0);
	if (ep->why == 0)
		ep->why = (int)rc;
	ofi_fail(ep->be->err, rc, NULL, "sending a frame");
	return XPORT_ERR_PEER_LOST;
}

static __attribute__((noinline, cold)) int am_no_room(const struct ofi_ep *ep)
{
	return ep->why != 0 || ep->state != OFI_EP_UP ? XPORT_ERR_PEER_LOST : XPORT_ERR_AGAIN;
}

static __attribute__((noinline)) int send_guarded(struct ofi_ep *ep, const void *buf, size_t len)
{
	ssize_t rc;

	if (!ofi_lock_try(ep->theirs))
		return XPORT_ERR_AGAIN;
	rc = fi_inject(ep->fid, buf, len, ep->to);
	ofi_lock_release(ep->theirs, rc == 0);
	return rc == 0 ? XPORT_OK : am_refused(ep, rc);
}

static inline int send_small(struct ofi_ep *ep, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	uint8_t both[OFI_INJECT_MAX];
	ssize_t rc;

	if (dlen > 0 && (const uint8_t *)hdr + hlen != data) {
		memcpy(both, hdr, hlen);
		memcpy(both + hlen, data, dlen);
		hdr = both;
	}
	if (ofi_unlikely(ep->theirs != NULL))
		return send_guarded(ep, hdr, hlen + dlen);
	rc = fi_inject(ep->fid, hdr, hlen + dlen, ep->to);
	return ofi_likely(rc == 0) ? XPORT_OK : am_refused(ep, rc);
}

/* Sends a registered copy: the pieces belong to the core again. */
static ssize_t post_copy(struct ofi_ep *ep, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	struct ofi_rec *rec;
	ssize_t rc;

	if (xpi_list_empty(&ep->bounces))
		return -FI_EAGAIN;
	rec = xpi_container(ep->bounces.next, struct ofi_rec, link);
	memcpy(rec->buf, hdr, hlen);
	if (dlen > 0)
		memcpy(rec->buf + hlen, data, dlen);
	rc = fi_send(ep->fid, rec->buf, hlen + dlen, ep->desc, ep->to, &rec->context);
	if (ofi_unlikely(rc != 0))
		return rc;
	xpi_list_del(&rec->link);
	xpi_list_push(&ep->posted, &rec->link);
	return 0;
}

static int send_copy(struct ofi_ep *ep, const void *hdr, size_t hlen, const void *data, size_t dlen)
{
	ssize_t rc = post_copy(ep, hdr, hlen, data, dlen);

	if (ofi_unlikely(rc != 0))
		return am_refused(ep, rc);
	ofi_am_room(ep, ep->room - 1);
	return XPORT_OK;
}

/* Sends the pieces without a copy. They stay in use until req is done. */
static ssize_t am_post(struct ofi_ep *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
                       struct xpi_req *req)
{
	struct iovec iov[2] = {{(void *)(uintptr_t)hdr, hlen}, {(void *)(uintptr_t)data, dlen}};
	struct xpi_be *be = ep->be;
	struct ofi_rec *rec = xpi_pool_get(&be->recs);
	ssize_t rc;

	if (ofi_unlikely(rec == NULL))
		return -FI_ENOMEM;
	rec->ep = ep;
	rec->req = req;
	rec->recv = false;
	if (dlen > 0)
		rc = fi_sendv(ep->fid, iov, NULL, 2, ep->to, &rec->context);
	else
		rc = fi_send(ep->fid, hdr, hlen, NULL, ep->to, &rec->context);
	if (ofi_unlikely(rc != 0)) {
		xpi_pool_put(&be->recs, rec);
		return rc;
	}
	xpi_list_push(&ep->posted, &rec->link);
	return 0;
}

int ofi_am_send_two(struct xpi_be *be, void *ep_, const void *hdr, size_t hlen, const void *data, size_t dlen,
                    struct xpi_req *req)
{
	struct ofi_ep *ep = ep_;
	ssize_t rc;

	if (ofi_unlikely(ep->room == 0))
		return am_no_room(ep);
	if (hlen + dlen <= be->inject)
		return send_small(ep, hdr, hlen, data, dlen);
	if (be->copies)
		return send_copy(ep, hdr, hlen, data, dlen);
	rc = am_post(ep, hdr, hlen, data, dlen, req);
	if (ofi_unlikely(rc != 0))
		return am_refused(ep, rc);
	ofi_am_room(ep, ep->room - 1);
	return XPI_PENDING;
}

int ofi_am_send(struct xpi_be *be, void *ep_, const void *buf, size_t len, struct xpi_req *req)
{
	struct ofi_ep *ep = ep_;
	ssize_t rc;

	if (ofi_unlikely(len > ep->quick))
		return ofi_am_send_two(be, ep, buf, len, NULL, 0, req);
	rc = fi_inject(ep->fid, buf, len, ep->to);
	return ofi_likely(rc == 0) ? XPORT_OK : am_refused(ep, rc);
}

/* ---- greeting ---- */

ssize_t ofi_am_greet(struct ofi_ep *ep)
{
	if (sizeof(ep->hello) <= ep->be->inject)
		return fi_inject(ep->fid, ep->hello, sizeof(ep->hello), ep->to);
	if (ep->be->copies)
		return post_copy(ep, ep->hello, sizeof(ep->hello), NULL, 0);
	return am_post(ep, ep->hello, sizeof(ep->hello), NULL, 0, NULL);
}

bool ofi_am_greeting(const struct ofi_ep *ep)
{
	xpi_list_for(link, &ep->posted)
		if (!xpi_container(link, struct ofi_rec, link)->recv)
			return true;
	return false;
}
