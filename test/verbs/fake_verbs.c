/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_verbs.c - see fake.h: the functions of libibverbs. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fake_parts.h"

#undef ibv_query_port
#undef ibv_reg_mr

static int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int i = 0;

	(void)cq;
	if (fake.poll_cq_fails != 0)
		return fake.poll_cq_fails;
	for (; i < n && fake.wc_head != fake.wc_tail; i++)
		wc[i] = fake.wc[fake.wc_head++ % FAKE_QUEUE];
	return i;
}

static int fake_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	return solicited;
}

static void keep(const struct ibv_send_wr *wr)
{
	unsigned n = fake.nsent++ % FAKE_QUEUE;
	uint32_t len = 0;

	fake.sent[n] = *wr;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		for (uint32_t k = 0; k < sge->length && len + k < 64 && wr->opcode != IBV_WR_RDMA_READ; k++)
			fake.bytes[n][len + k] = ((const uint8_t *)(uintptr_t)sge->addr)[k];
		len += sge->length;
	}
	fake.lengths[n] = len;
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	if (fake.state == IBV_QPS_ERR && fake.stop_fails)
		return -1;
	fake.doorbells++;
	for (; wr != NULL; wr = wr->next) {
		if (fake.post_send_fails != 0 && fake.post_send_after-- <= 0) {
			*bad = wr;
			return fake.post_send_zero ? 0 : fake.post_send_fails;
		}
		if (fake.state == IBV_QPS_ERR)
			fake_wc(wr->wr_id, IBV_WC_WR_FLUSH_ERR);
		else
			keep(wr);
	}
	*bad = NULL;
	return fake.doorbell_fails;
}

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	for (; wr != NULL; wr = wr->next) {
		unsigned i = (fake.receives_head + fake.nreceives) % FAKE_QUEUE;

		if (fake.post_recv_fails != 0 && fake.post_recv_after-- <= 0) {
			*bad = wr;
			return fake.post_recv_fails;
		}
		fake.receives[i] = wr->wr_id;
		fake.places[i] = (void *)(uintptr_t)wr->sg_list[0].addr;
		fake.nreceives++;
	}
	return 0;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = fake_made(&fake.lists, 2 * sizeof(*list));

	fake_device.transport_type = fake.transport;
	list[0] = fake.no_device ? NULL : &fake_device;
	*n = fake.no_device ? 0 : 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	fake_unmade(&fake.lists, list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct ibv_context *ctx = fake_made(&fake.contexts, sizeof(*ctx));

	ctx->device = d;
	ctx->async_fd = fake.async[0];
	ctx->num_comp_vectors = fake.vectors;
	ctx->ops.poll_cq = fake_poll_cq;
	ctx->ops.req_notify_cq = fake_notify_cq;
	ctx->ops.post_send = fake_post_send;
	ctx->ops.post_recv = fake_post_recv;
	return ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	return fake_unmade(&fake.contexts, ctx);
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	(void)ctx;
	*attr = (struct ibv_device_attr){
		.vendor_id = fake.vendor,
		.max_mr_size = 1 << 30,
		.max_qp_wr = 1024,
		.max_cqe = fake.max_cqe,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.phys_port_cnt = 1,
	};
	return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)ctx;
	(void)port;
	((struct ibv_port_attr *)(void *)attr)->state = fake.port;
	((struct ibv_port_attr *)(void *)attr)->link_layer = fake.link_layer;
	((struct ibv_port_attr *)(void *)attr)->max_msg_sz = fake.max_msg;
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = fake_made(&fake.pds, sizeof(*pd));

	pd->context = ctx;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return fake_unmade(&fake.pds, pd);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *c = fake_made(&fake.channels, sizeof(*c));

	c->context = ctx;
	c->fd = fake.comp[0];
	return c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	return fake_unmade(&fake.channels, c);
}

int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **cq, void **context)
{
	char one;

	(void)cq;
	(void)context;
	return read(c->fd, &one, 1) == 1 ? 0 : -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	(void)cq;
	(void)n;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr;

	(void)access;
	if (fake.reg_fails != 0) {
		errno = fake.reg_fails;
		return NULL;
	}
	mr = fake_made(&fake.mrs, sizeof(*mr));
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = mr->rkey = 0x1234;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return fake_unmade(&fake.mrs, mr);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *c, int vector)
{
	struct ibv_cq *cq;

	fake.vector = vector;
	if (fake.cq_fails != 0 || vector >= c->context->num_comp_vectors) {
		errno = fake.cq_fails != 0 ? fake.cq_fails : EINVAL;
		return NULL;
	}
	cq = fake_made(&fake.cqs, sizeof(*cq));
	cq->context = ctx;
	cq->channel = c;
	cq->cq_context = context;
	cq->cqe = fake.cqe = cqe;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return fake_unmade(&fake.cqs, cq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;

	if (fake.qp_fails != 0 || attr->cap.max_inline_data > fake.inline_max) {
		errno = fake.qp_fails != 0 ? fake.qp_fails : EINVAL;
		return NULL;
	}
	qp = fake_made(&fake.qps, sizeof(*qp));
	qp->context = pd->context;
	qp->qp_context = attr->qp_context;
	fake.qp = qp;
	fake.state = IBV_QPS_RESET;
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	if (mask & IBV_QP_TIMEOUT)
		fake.timeout = attr->timeout;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		fake.rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_AV)
		fake.tos = attr->ah_attr.grh.traffic_class;
	fake.state = attr->qp_state;
	if (fake.state == IBV_QPS_ERR && !fake.stop_fails)
		fake_flush();
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (fake.vendor == FAKE_SIW) /* stops it first */
		fake_flush();
	fake.nreceives = 0;
	return fake_unmade(&fake.qps, qp);
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	(void)e;
	fake.nacked++;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return fake.fork_status;
}

int ibv_fork_init(void)
{
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_RNR_RETRY_EXC_ERR ? "RNR retry counter exceeded" : "a status";
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
	return type == IBV_EVENT_CQ_ERR ? "CQ error" : "an event";
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	return state == IBV_PORT_DOWN ? "PORT_DOWN" : "a state";
}
