/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct_verbs.h - the direct calls of libibverbs, see baseline.h: small data is inline, and one completion covers many
 * requests, as in src/backends/verbs/.
 */
#ifndef XPORT_TOOLS_TAX_DIRECT_VERBS_H
#define XPORT_TOOLS_TAX_DIRECT_VERBS_H

#include "tools/tax/pair.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

enum { DIRECT_RECEIVES = 256, DIRECT_SQ = 256, DIRECT_SIGNAL = 32, DIRECT_BATCH = 16, DIRECT_INLINE = 64 };

/* In a wr_id, beside the number of requests posted up to then, or of the receive. */
enum { DIRECT_RECEIVE = 1 << 30, DIRECT_WAITED = 1 << 29 };

struct direct {
	struct rdma_cm_id *id, *listener;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* what to sleep on */
	struct ibv_cq *cq;
	struct ibv_mr *mr, *inbox_mr;
	uint64_t at; /* the other's memory */
	uint32_t key;
	uint32_t posted, ended; /* requests */
	uint64_t inbox[DIRECT_RECEIVES];
};

void direct_came(struct pair *p, const struct ibv_wc *wc, int n);

static inline void direct_progress(struct pair *p)
{
	struct ibv_wc wc[DIRECT_BATCH];
	int n = ibv_poll_cq(p->direct->cq, DIRECT_BATCH, wc);

	if (n != 0)
		direct_came(p, wc, n);
}

static inline void direct_wait(struct pair *p)
{
	while (p->pending > 0)
		direct_progress(p);
}

static inline bool direct_can_sleep(const struct pair *p)
{
	(void)p;
	return true;
}

/* What came before the queue was armed does not wake. */
static inline void direct_sleep(struct pair *p)
{
	struct direct *d = p->direct;
	struct ibv_wc wc[DIRECT_BATCH];
	struct ibv_cq *cq;
	void *context;
	int n;

	CHECK(ibv_req_notify_cq(d->cq, 0) == 0);
	n = ibv_poll_cq(d->cq, DIRECT_BATCH, wc);
	if (n != 0) {
		direct_came(p, wc, n);
		return;
	}
	CHECK(ibv_get_cq_event(d->channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
}

static inline void direct_post(struct pair *p, struct ibv_send_wr *wr, const void *buf, size_t len)
{
	struct direct *d = p->direct;
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = (uint32_t)len, .lkey = d->mr->lkey};
	struct ibv_send_wr *bad;

	while (d->posted - d->ended >= DIRECT_SQ - DIRECT_SIGNAL)
		direct_progress(p);
	wr->sg_list = &sge;
	wr->num_sge = 1;
	d->posted++;
	wr->wr_id |= d->posted & (DIRECT_WAITED - 1);
	if (d->posted % DIRECT_SIGNAL == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(d->id->qp, wr, &bad) == 0);
}

/* One that is waited for, to or from memory of p->direct_mem. */
static inline void direct_post_waited(struct pair *p, struct ibv_send_wr *wr, const void *buf, size_t len)
{
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->wr_id = DIRECT_WAITED;
	p->pending++;
	direct_post(p, wr, buf, len);
}

static inline void direct_send(struct pair *p, const void *buf, size_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};

	direct_post(p, &wr, buf, len);
}

static inline struct ibv_send_wr direct_there(const struct direct *d, enum ibv_wr_opcode opcode, uint64_t offset)
{
	struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_INLINE};

	wr.wr.rdma.remote_addr = d->at + offset;
	wr.wr.rdma.rkey = d->key;
	return wr;
}

static inline void direct_put(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	struct ibv_send_wr wr = direct_there(p->direct, IBV_WR_RDMA_WRITE, offset);

	if (len <= DIRECT_INLINE)
		direct_post(p, &wr, buf, len);
	else
		direct_post_waited(p, &wr, buf, len);
}

static inline void direct_get(struct pair *p, void *buf, size_t len, uint64_t offset)
{
	struct ibv_send_wr wr = direct_there(p->direct, IBV_WR_RDMA_READ, offset);

	direct_post_waited(p, &wr, buf, len);
}

/* A write that is done may still be under way; a read behind it comes back when it is placed. */
static inline void direct_flush_begin(struct pair *p)
{
	direct_get(p, p->direct_mem + 2048, 64, 2048);
}

static inline void direct_flush(struct pair *p)
{
	direct_flush_begin(p);
	direct_wait(p);
}

static inline void direct_put_placed(struct pair *p, const void *buf, size_t len, uint64_t offset)
{
	direct_put(p, buf, len, offset);
	direct_flush(p);
}

#endif
