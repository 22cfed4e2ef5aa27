/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors of memory in calls: packed by the caller, unpacked by the callee; and replies that wait for transfers. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "services/last_error.h"
#include "services/rpc.h"

/* AGAIN: there was no memory for a reply. LOOK: another thread may end a transfer, and does not wake this one. */
enum { AGAIN_MS = 1, LOOK_MS = 20 };

/* ---- both sides ---- */

void svc_rpc_bulks_end(struct svc_rpc_bulks *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		xport_bulk_free(b->bulk[i]);
	free(b->bulk);
	*b = (struct svc_rpc_bulks){0};
}

void svc_rpc_bulks_doubt(const struct svc_rpc_bulks *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		atomic_store_explicit(&b->bulk[i]->doubtful, true, memory_order_relaxed);
}

bool svc_rpc_bulks_doubtful(const struct svc_rpc_bulks *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		if (atomic_load_explicit(&b->bulk[i]->doubtful, memory_order_relaxed))
			return true;
	}
	return false;
}

/* ---- the caller ---- */

static int bulks_check(const struct xport_rpcs *r, const struct xport_rpc_args *a)
{
	static const char op[] = "xport_rpc_call";

	if (a->bulks == NULL)
		return svc_fail(XPORT_ERR_INVALID, op, NULL, "bulks is NULL, and nbulks is not 0");
	if (a->nbulks > XPORT_RPC_BULKS_MAX)
		return svc_fail(XPORT_ERR_INVALID, op,
		                "describe the memory by fewer descriptors, which may have many pieces",
		                "the call has %zu descriptors; %d are allowed", a->nbulks, XPORT_RPC_BULKS_MAX);
	if ((a->flags & XPORT_RPC_ONE_WAY) != 0)
		return svc_fail(XPORT_ERR_INVALID, op, "call without XPORT_RPC_ONE_WAY: the reply ends the loan",
		                "XPORT_RPC_ONE_WAY and bulks exclude each other");
	for (size_t i = 0; i < a->nbulks; i++) {
		if (a->bulks[i] == NULL)
			return svc_fail(XPORT_ERR_INVALID, op, NULL, "descriptor %zu is NULL", i);
		if (!svc_bulk_of(a->bulks[i], r->engine.x))
			return svc_fail(XPORT_ERR_INVALID, op,
			                "pass its bytes, or unpack them on an endpoint of this one",
			                "descriptor %zu is of another instance", i);
	}
	return XPORT_OK;
}

/* Each has its length before it. */
static void bulks_encode(const struct xport_rpc_args *a, uint8_t *bytes, size_t len)
{
	struct xpi_wr w = xpi_wr(bytes, len);

	for (size_t i = 0; i < a->nbulks; i++) {
		size_t n = svc_bulk_packed(&a->bulks[i]->d);

		xpi_wr_u32(&w, (uint32_t)n);
		svc_bulk_encode(&a->bulks[i]->d, w.p);
		w.p += n;
		w.left -= n;
	}
}

int svc_rpc_bulks_pack(const struct xport_rpcs *r, struct svc_rpc_bulks *b, struct xport_rpc_args *a, uint8_t **bytes)
{
	uint32_t max = r->a.max_payload;
	size_t size = 0;
	int status = bulks_check(r, a);

	if (status != XPORT_OK)
		return status;
	for (size_t i = 0; i < a->nbulks; i++)
		size += SVC_RPC_BULK_HEAD + svc_bulk_packed(&a->bulks[i]->d);
	if (size > max || a->len > max - size)
		return svc_fail(XPORT_ERR_BOUNDS, "xport_rpc_call", "use fewer runs, or a larger max_payload",
		                "the payload has %zu bytes, and the descriptors %zu; max_payload is %u", a->len, size,
		                (unsigned)max);
	*bytes = malloc(size + a->len);
	b->bulk = malloc(a->nbulks * sizeof(*b->bulk));
	if (*bytes == NULL || b->bulk == NULL) {
		free(b->bulk);
		b->bulk = NULL;
		return svc_fail(XPORT_ERR_NO_MEMORY, "xport_rpc_call", NULL, "out of memory");
	}
	bulks_encode(a, *bytes, size);
	if (a->len > 0)
		memcpy(*bytes + size, a->payload, a->len);
	for (; b->n < a->nbulks; b->n++) {
		b->bulk[b->n] = a->bulks[b->n];
		svc_bulk_hold(b->bulk[b->n]);
	}
	b->bytes = (uint32_t)size;
	a->payload = *bytes;
	a->len += size;
	a->flags |= XPORT_RPC_LENT;
	return XPORT_OK;
}

/* ---- the callee ---- */

int svc_rpc_bulks_unpack(struct svc_rpc_bulks *b, xport_ep *ep, uint32_t n, const uint8_t *payload)
{
	struct xpi_rd r = xpi_rd(payload, b->bytes);
	int status = XPORT_OK;

	b->bulk = calloc(n, sizeof(*b->bulk));
	if (b->bulk == NULL)
		return XPORT_ERR_NO_MEMORY;
	while (status == XPORT_OK && b->n < n) {
		uint32_t len = xpi_rd_u32(&r);

		status = svc_bulk_unpack_for(ep, xpi_rd_bytes(&r, len), len, &b->bulk[b->n]);
		b->n += status == XPORT_OK;
	}
	return status;
}

bool svc_rpc_bulks_busy(const struct svc_rpc_bulks *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		if (svc_bulk_held(b->bulk[i]))
			return true;
	}
	return false;
}

int svc_rpc_reply_keep(struct xport_rpcs *r, struct svc_rpc_request *q, const struct svc_rpc_message *m)
{
	q->reply = malloc(m->len + 1);
	if (q->reply == NULL)
		return XPORT_ERR_NO_MEMORY;
	if (m->len > 0)
		memcpy(q->reply, m->payload, m->len);
	q->reply_len = m->len;
	q->reply_status = m->status;
	r->request_bytes += m->len;
	svc_ring_remove(&q->node.link); /* XPORT_RPC_ABANDONED is void */
	svc_ring_push(&r->kept, &q->node.link);
	r->kept_again = true; /* one may have become idle before */
	return XPORT_OK;
}

/* Returns false if there is no memory for it. */
static bool kept_send(struct xport_rpcs *r, struct svc_rpc_request *q)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_REPLY,
	                            .flags = svc_rpc_bulks_doubtful(&q->bulks) ? SVC_RPC_DOUBTFUL : 0,
	                            .ran = XPORT_RPC_RAN_YES,
	                            .id = q->call,
	                            .status = q->reply_status,
	                            .payload = q->reply,
	                            .len = q->reply_len};

	if (q->peer != NULL && svc_rpc_send(q->peer->msgq, &m, true) == XPORT_ERR_NO_MEMORY)
		return false;
	svc_rpc_request_free(r, q);
	return true;
}

/* Looks at all of them, but only after one of their descriptors came to be held by nobody. */
void svc_rpc_kept_work(struct xport_rpcs *r)
{
	struct svc_link *l = r->kept.next;
	unsigned idles = atomic_load(&svc_bulk_idles);

	if (idles == r->kept_idles && !r->kept_again)
		return;
	r->kept_idles = idles;
	r->kept_again = false;
	while (l != &r->kept) {
		struct svc_rpc_request *q = (struct svc_rpc_request *)SVC_OF(l, struct svc_rpc_node, link);

		l = l->next;
		if (q->peer == NULL || !svc_rpc_bulks_busy(&q->bulks))
			r->kept_again |= !kept_send(r, q);
	}
}

void svc_rpc_kept_end(void *service, struct svc_msgq_peer *peer)
{
	struct xport_rpcs *r = service;
	struct svc_link *l = r->kept.next;

	while (l != &r->kept) {
		struct svc_rpc_request *q = (struct svc_rpc_request *)SVC_OF(l, struct svc_rpc_node, link);

		l = l->next;
		if (q->peer != NULL && q->peer->msgq == peer && !svc_rpc_bulks_busy(&q->bulks))
			(void)kept_send(r, q);
	}
}

int svc_rpc_kept_timeout(const struct xport_rpcs *r)
{
	if (svc_ring_empty(&r->kept))
		return -1;
	if (atomic_load(&svc_bulk_idles) != r->kept_idles)
		return 0;
	return r->kept_again ? AGAIN_MS : LOOK_MS;
}
