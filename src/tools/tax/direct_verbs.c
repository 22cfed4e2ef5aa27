/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

#include "tools/tax/baseline.h"

/* What the other process needs to know. */
struct told {
	struct sockaddr_in address; /* of the target, which listens */
	uint64_t at;
	uint32_t key;
};

static void verbs_direct_post(struct pair *p, uint32_t i)
{
	struct direct *d = p->direct;
	struct ibv_sge sge = {
		.addr = (uintptr_t)&d->inbox[i], .length = sizeof(d->inbox[i]), .lkey = d->inbox_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = DIRECT_RECEIVE | i, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(ibv_post_recv(d->id->qp, &wr, &bad) == 0);
}

void direct_came(struct pair *p, const struct ibv_wc *wc, int n)
{
	struct direct *d = p->direct;

	CHECK(n > 0);
	for (int i = 0; i < n; i++) {
		uint32_t id = (uint32_t)wc[i].wr_id;

		CHECK(wc[i].status == IBV_WC_SUCCESS);
		if ((id & DIRECT_RECEIVE) != 0) {
			CHECK(wc[i].byte_len == sizeof(d->inbox[0]));
			p->arrived++;
			verbs_direct_post(p, id & 0xffff);
			continue;
		}
		if ((id & DIRECT_WAITED) != 0)
			p->pending--;
		id &= DIRECT_WAITED - 1;
		/* siw completes a write before the read in front of it. */
		if ((int32_t)((id - d->ended) << 3) > 0)
			d->ended = id;
	}
}

/* The address that belongs to the device is the one that rdma_cm binds to it. */
static struct rdma_cm_id *bound(struct pair *p)
{
	const char *device = strchr(p->beside, ':');
	struct ifaddrs *all, *a;
	struct rdma_cm_id *id = NULL;

	CHECK(device != NULL && getifaddrs(&all) == 0);
	for (a = all; a != NULL && id == NULL; a = a->ifa_next) {
		struct sockaddr_in in;

		if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&in, a->ifa_addr, sizeof(in));
		in.sin_port = 0;
		CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
		if (rdma_bind_addr(id, (struct sockaddr *)&in) == 0 && id->verbs != NULL &&
		    strcmp(ibv_get_device_name(id->verbs->device), device + 1) == 0)
			break;
		rdma_destroy_id(id);
		id = NULL;
	}
	CHECK(id != NULL);
	freeifaddrs(all);
	return id;
}

static void verbs_direct_publish(struct pair *p)
{
	struct direct *d = p->direct;
	struct told *told = (struct told *)p->sh->direct[p->id];

	p->direct_mem = aligned_alloc(4096, MEM);
	CHECK(p->direct_mem != NULL);
	memset(p->direct_mem, 0, MEM);
	d->mr = ibv_reg_mr(d->pd, p->direct_mem, MEM,
	                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	d->inbox_mr = ibv_reg_mr(d->pd, d->inbox, sizeof(d->inbox), IBV_ACCESS_LOCAL_WRITE);
	CHECK(d->mr != NULL && d->inbox_mr != NULL);
	told->at = (uint64_t)(uintptr_t)p->direct_mem;
	told->key = d->mr->rkey;
	if (p->id == 0)
		return;
	d->listener = d->id;
	d->id = NULL;
	CHECK(rdma_listen(d->listener, 1) == 0);
	memcpy(&told->address, rdma_get_local_addr(d->listener), sizeof(told->address));
	CHECK(told->address.sin_family == AF_INET);
}

void direct_open(struct pair *p)
{
	struct direct *d = aligned_alloc(64, sizeof(*d));

	CHECK(d != NULL);
	memset(d, 0, sizeof(*d));
	p->direct = d;
	d->id = bound(p);
	d->pd = ibv_alloc_pd(d->id->verbs);
	d->channel = ibv_create_comp_channel(d->id->verbs);
	d->cq = ibv_create_cq(d->id->verbs, 2 * (DIRECT_RECEIVES + DIRECT_SQ), NULL, d->channel, 0);
	CHECK(d->pd != NULL && d->channel != NULL && d->cq != NULL);
	verbs_direct_publish(p);
}

static void queue_pair(struct pair *p)
{
	struct direct *d = p->direct;
	struct ibv_qp_init_attr attr = {
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.cap = {.max_send_wr = DIRECT_SQ,
	                .max_recv_wr = DIRECT_RECEIVES,
	                .max_send_sge = 1,
	                .max_recv_sge = 1,
	                .max_inline_data = DIRECT_INLINE},
		.qp_type = IBV_QPT_RC,
	};

	CHECK(rdma_create_qp(d->id, d->pd, &attr) == 0);
	for (uint32_t i = 0; i < DIRECT_RECEIVES; i++)
		verbs_direct_post(p, i);
}

void direct_connect(struct pair *p)
{
	struct direct *d = p->direct;
	struct told *told = (struct told *)p->sh->direct[!p->id];
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16, .retry_count = 7, .rnr_retry_count = 7};

	d->at = told->at;
	d->key = told->key;
	if (p->id == 0) {
		CHECK(rdma_resolve_addr(d->id, NULL, (struct sockaddr *)&told->address, 3000) == 0);
		CHECK(rdma_resolve_route(d->id, 3000) == 0);
		queue_pair(p);
		CHECK(rdma_connect(d->id, &param) == 0);
	} else {
		CHECK(rdma_get_request(d->listener, &d->id) == 0);
		queue_pair(p);
		CHECK(rdma_accept(d->id, &param) == 0);
	}
}

void direct_close(struct pair *p)
{
	struct direct *d = p->direct;

	p->barrier(p);
	p->direct = NULL;
	rdma_disconnect(d->id);
	rdma_destroy_qp(d->id);
	rdma_destroy_id(d->id);
	if (d->listener != NULL)
		rdma_destroy_id(d->listener);
	ibv_dereg_mr(d->mr);
	ibv_dereg_mr(d->inbox_mr);
	ibv_destroy_cq(d->cq);
	ibv_destroy_comp_channel(d->channel);
	ibv_dealloc_pd(d->pd);
	free(p->direct_mem);
	free(d);
}
