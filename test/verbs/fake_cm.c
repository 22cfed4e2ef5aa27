/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_cm.c - see fake.h: the functions of librdmacm, and those of libc that tell the addresses of the machine and when a
 * descriptor has something.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "fake_parts.h"

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *c;

	if (fake.no_rdma_cm) {
		errno = ENOENT;
		return NULL;
	}
	c = fake_made(&fake.cms, sizeof(*c));
	c->fd = fake.comp[0]; /* anything that can be polled */
	return c;
}

void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	fake_unmade(&fake.cms, c);
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	*id = fake_made(&fake.ids, sizeof(**id));
	(*id)->channel = c;
	(*id)->context = context;
	(*id)->ps = ps;
	fake.id = *id;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	free(id->verbs);
	return fake_unmade(&fake.ids, id);
}

static void on_device(struct rdma_cm_id *id)
{
	id->verbs = calloc(1, sizeof(*id->verbs));
	id->verbs->device = &fake_device;
	id->port_num = 1;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	(void)addr;
	on_device(id);
	return 0;
}

/* Whether TCP has the port that was chosen. */
static bool port_taken(void)
{
	if (fake.ports_taken == 0)
		return false;
	/* The other one: by a connection of ours to the same place. */
	errno = fake.ports_taken-- % 2 != 0 ? EADDRINUSE : EADDRNOTAVAIL;
	return true;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)backlog;
	if (port_taken()) {
		errno = EADDRINUSE;
		return -1;
	}
	errno = fake.listen_fails;
	fake.listener = id;
	return fake.listen_fails != 0 ? -1 : 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	(void)id;
	return 0x1234;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	(void)id;
	if (level != RDMA_OPTION_ID || optname != RDMA_OPTION_ID_TOS || optlen != 1)
		abort();
	fake.route_tos = *(const uint8_t *)optval;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	(void)src;
	(void)dst;
	(void)timeout_ms;
	on_device(id);
	if (fake.elsewhere)
		id->verbs->device = &fake_other_device;
	fake_event(RDMA_CM_EVENT_ADDR_RESOLVED, id, 0, NULL, 0);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	if (fake.routes_late > 0)
		fake_event(RDMA_CM_EVENT_ROUTE_ERROR, id, -ETIMEDOUT, NULL, 0);
	else
		fake_event(RDMA_CM_EVENT_ROUTE_RESOLVED, id, 0, NULL, 0);
	fake.routes_late -= fake.routes_late > 0;
	return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_INIT)
		*mask |= IBV_QP_ACCESS_FLAGS;
	if (attr->qp_state == IBV_QPS_RTR) {
		*mask |= IBV_QP_AV | IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC;
		attr->ah_attr.is_global = 1;
		attr->ah_attr.grh.traffic_class = fake.route_tos;
	}
	if (attr->qp_state == IBV_QPS_RTS)
		*mask |= IBV_QP_TIMEOUT | IBV_QP_MAX_QP_RD_ATOMIC;
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	if (port_taken())
		return -1;
	errno = fake.connect_fails;
	if (fake.connect_fails != 0)
		return -1;
	fake.ncalls++;
	fake.retries = param->retry_count;
	if (fake.silent)
		return 0;
	memcpy(fake.private_data, param->private_data, param->private_data_len);
	fake_event(fake.transport == IBV_TRANSPORT_IWARP ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE,
	           id, 0, NULL, 0);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id;
	fake.retries = param->retry_count;
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
	fake.ndisconnected++;
	fake.disconnected_in = fake.state;
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

/* ---- libc ---- */

int getifaddrs(struct ifaddrs **all)
{
	static struct sockaddr_in in = {.sin_family = AF_INET};
	static struct sockaddr_in with = {.sin_family = AF_INET};
	static struct ifaddrs two = {.ifa_name = (char *)"eth1", .ifa_flags = IFF_UP | IFF_RUNNING};
	static struct ifaddrs one = {.ifa_name = (char *)"eth0", .ifa_flags = IFF_UP};

	in.sin_addr.s_addr = 0x0100000a;
	with.sin_addr.s_addr = 0x0200000a;
	one.ifa_addr = fake.no_address ? NULL : (struct sockaddr *)&in;
	two.ifa_addr = (struct sockaddr *)&with;
	one.ifa_next = fake.carrier ? &two : NULL;
	*all = &one;
	return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
	(void)all;
}

/* The first is rdma_cm's, the second the device's, the third a timer. */
int poll(struct pollfd *p, nfds_t n, int timeout)
{
	(void)timeout;
	for (nfds_t i = 0; i < n; i++)
		p[i].revents = 0;
	p[0].revents = fake.event_head != fake.event_tail ? POLLIN : 0;
	p[1].revents = p[2].revents = POLLIN;
	return 1;
}
