/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.c - see fake.h. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

struct fake fake;

static struct ibv_device device = {.node_type = IBV_NODE_CA, .name = "fake0"};
static struct ibv_device other_device = {.node_type = IBV_NODE_CA, .name = "fake1"};

static void *made(int *count, size_t size)
{
	(*count)++;
	return calloc(1, size);
}

static int unmade(int *count, void *p)
{
	(*count)--;
	free(p);
	return 0;
}

void fake_reset(void)
{
	for (int i = 0; i < 2; i++) {
		if (fake.async[i] > 0)
			close(fake.async[i]);
		if (fake.comp[i] > 0)
			close(fake.comp[i]);
	}
	memset(&fake, 0, sizeof(fake));
	fake.transport = IBV_TRANSPORT_IB;
	fake.link_layer = IBV_LINK_LAYER_ETHERNET;
	fake.port = IBV_PORT_ACTIVE;
	fake.inline_max = 80;
	if (pipe2(fake.async, O_NONBLOCK | O_CLOEXEC) != 0 || pipe2(fake.comp, O_NONBLOCK | O_CLOEXEC) != 0)
		abort();
}

int fake_left(void)
{
	return fake.contexts + fake.pds + fake.channels + fake.mrs + fake.cqs + fake.qps + fake.cms + fake.ids +
	       fake.lists;
}

static struct ibv_wc *wc_new(uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc *wc = &fake.wc[fake.wc_tail++ % FAKE_QUEUE];

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = id;
	wc->status = status;
	return wc;
}

void fake_sent(unsigned n, enum ibv_wc_status status)
{
	wc_new(fake.sent[n % FAKE_QUEUE].wr_id, status);
}

/* A receive's wr_id says which; where it lies the back end tells by its list, which we were shown when it was posted. */
static void *places[FAKE_QUEUE];

void fake_received(const void *bytes, uint32_t len, enum ibv_wc_status status)
{
	unsigned i = fake.receives_head++ % FAKE_QUEUE;

	if (len > 0)
		memcpy(places[i], bytes, len);
	wc_new(fake.receives[i], status)->byte_len = len;
	fake.nreceives--;
}

void fake_flush(void)
{
	while (fake.nreceives > 0)
		fake_received(NULL, 0, IBV_WC_WR_FLUSH_ERR);
}

void fake_event(enum rdma_cm_event_type type, struct rdma_cm_id *id, int status, const void *data, uint8_t len)
{
	struct rdma_cm_event *e = &fake.events[fake.event_tail++ % FAKE_EVENTS];

	memset(e, 0, sizeof(*e));
	e->event = type;
	e->id = id;
	e->status = status;
	if (len > 0)
		memcpy(fake.private_data, data, len);
	e->param.conn.private_data = fake.private_data;
	e->param.conn.private_data_len = len;
	e->param.conn.initiator_depth = e->param.conn.responder_resources = 16;
}

void fake_call(const void *data, uint8_t len)
{
	struct rdma_cm_id *id = made(&fake.ids, sizeof(*id));

	id->context = fake.listener->context;
	fake.id = id;
	fake_event(RDMA_CM_EVENT_CONNECT_REQUEST, id, 0, data, len);
}

void fake_async(enum ibv_event_type type, void *element)
{
	struct {
		uint64_t element;
		uint32_t type, zero;
	} raw = {(uintptr_t)element, type, 0};

	if (write(fake.async[1], &raw, sizeof(raw)) != (ssize_t)sizeof(raw))
		abort();
}

/* ---- libibverbs ---- */

static int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int i = 0;

	(void)cq;
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
	if (fake.post_send_fails != 0) {
		*bad = wr;
		return fake.post_send_fails;
	}
	if (fake.state == IBV_QPS_ERR)
		wc_new(wr->wr_id, IBV_WC_WR_FLUSH_ERR);
	else
		keep(wr);
	return 0;
}

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	for (; wr != NULL; wr = wr->next) {
		unsigned i = (fake.receives_head + fake.nreceives) % FAKE_QUEUE;

		if (fake.post_recv_fails != 0) {
			*bad = wr;
			return fake.post_recv_fails;
		}
		fake.receives[i] = wr->wr_id;
		places[i] = (void *)(uintptr_t)wr->sg_list[0].addr;
		fake.nreceives++;
	}
	return 0;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = made(&fake.lists, 2 * sizeof(*list));

	device.transport_type = fake.transport;
	list[0] = fake.no_device ? NULL : &device;
	*n = fake.no_device ? 0 : 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	unmade(&fake.lists, list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct ibv_context *ctx = made(&fake.contexts, sizeof(*ctx));

	ctx->device = d;
	ctx->async_fd = fake.async[0];
	ctx->ops.poll_cq = fake_poll_cq;
	ctx->ops.req_notify_cq = fake_notify_cq;
	ctx->ops.post_send = fake_post_send;
	ctx->ops.post_recv = fake_post_recv;
	return ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	return unmade(&fake.contexts, ctx);
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	(void)ctx;
	*attr = (struct ibv_device_attr){
		.vendor_id = fake.vendor,
		.max_mr_size = 1 << 30,
		.max_qp_wr = 1024,
		.max_cqe = 32767,
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
	((struct ibv_port_attr *)(void *)attr)->max_msg_sz = 1 << 23;
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = made(&fake.pds, sizeof(*pd));

	pd->context = ctx;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return unmade(&fake.pds, pd);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *c = made(&fake.channels, sizeof(*c));

	c->context = ctx;
	c->fd = fake.comp[0];
	return c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	return unmade(&fake.channels, c);
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
	mr = made(&fake.mrs, sizeof(*mr));
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
	return unmade(&fake.mrs, mr);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *c, int vector)
{
	struct ibv_cq *cq;

	(void)vector;
	if (fake.cq_fails != 0) {
		errno = fake.cq_fails;
		return NULL;
	}
	cq = made(&fake.cqs, sizeof(*cq));
	cq->context = ctx;
	cq->channel = c;
	cq->cq_context = context;
	cq->cqe = cqe;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return unmade(&fake.cqs, cq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;

	if (fake.qp_fails != 0 || attr->cap.max_inline_data > fake.inline_max) {
		errno = fake.qp_fails != 0 ? fake.qp_fails : EINVAL;
		return NULL;
	}
	qp = made(&fake.qps, sizeof(*qp));
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
	fake.state = attr->qp_state;
	if (fake.state == IBV_QPS_ERR && !fake.stop_fails)
		fake_flush();
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	fake.nreceives = 0;
	return unmade(&fake.qps, qp);
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	(void)e;
	fake.nacked++;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
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

/* ---- librdmacm ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *c;

	if (fake.no_rdma_cm) {
		errno = ENOENT;
		return NULL;
	}
	c = made(&fake.cms, sizeof(*c));
	c->fd = fake.comp[0]; /* anything that can be polled */
	return c;
}

void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	unmade(&fake.cms, c);
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	*id = made(&fake.ids, sizeof(**id));
	(*id)->channel = c;
	(*id)->context = context;
	(*id)->ps = ps;
	fake.id = *id;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	free(id->verbs);
	return unmade(&fake.ids, id);
}

static void on_device(struct rdma_cm_id *id)
{
	id->verbs = calloc(1, sizeof(*id->verbs));
	id->verbs->device = &device;
	id->port_num = 1;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	(void)addr;
	on_device(id);
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)backlog;
	errno = fake.listen_fails;
	fake.listener = id;
	return fake.listen_fails != 0 ? -1 : 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	(void)id;
	return 0x1234;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	(void)src;
	(void)dst;
	(void)timeout_ms;
	on_device(id);
	if (fake.elsewhere)
		id->verbs->device = &other_device;
	fake_event(RDMA_CM_EVENT_ADDR_RESOLVED, id, 0, NULL, 0);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	fake_event(RDMA_CM_EVENT_ROUTE_RESOLVED, id, 0, NULL, 0);
	return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_INIT)
		*mask |= IBV_QP_ACCESS_FLAGS;
	if (attr->qp_state == IBV_QPS_RTR)
		*mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC;
	if (attr->qp_state == IBV_QPS_RTS)
		*mask |= IBV_QP_TIMEOUT | IBV_QP_MAX_QP_RD_ATOMIC;
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	errno = fake.connect_fails;
	if (fake.connect_fails != 0)
		return -1;
	memcpy(fake.private_data, param->private_data, param->private_data_len);
	fake_event(fake.transport == IBV_TRANSPORT_IWARP ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE,
	           id, 0, NULL, 0);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id;
	(void)param;
	errno = fake.accept_fails;
	return fake.accept_fails != 0 ? -1 : 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	(void)id;
	(void)data;
	(void)len;
	fake.nrejected++;
	return 0;
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	(void)id;
	(void)event;
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **event)
{
	(void)c;
	if (fake.event_head == fake.event_tail) {
		errno = EAGAIN;
		return -1;
	}
	*event = &fake.events[fake.event_head++ % FAKE_EVENTS];
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	(void)event;
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type type)
{
	return type == RDMA_CM_EVENT_REJECTED ? "RDMA_CM_EVENT_REJECTED" : "an event of rdma_cm";
}

/* ---- libc: the addresses of the machine, and when a descriptor has something ---- */

int getifaddrs(struct ifaddrs **all)
{
	static struct sockaddr_in in = {.sin_family = AF_INET};
	static struct ifaddrs one = {.ifa_name = (char *)"eth0", .ifa_flags = IFF_UP};

	in.sin_addr.s_addr = 0x0100000a;
	one.ifa_addr = fake.no_address ? NULL : (struct sockaddr *)&in;
	*all = &one;
	return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
	(void)all;
}

/* The first is rdma_cm's, the second the device's. */
int poll(struct pollfd *p, nfds_t n, int timeout)
{
	(void)timeout;
	for (nfds_t i = 0; i < n; i++)
		p[i].revents = 0;
	p[0].revents = fake.event_head != fake.event_tail ? POLLIN : 0;
	p[1].revents = POLLIN;
	return 1;
}
