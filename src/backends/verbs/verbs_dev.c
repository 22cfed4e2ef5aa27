/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_dev.c - finding the devices.
 *
 * A device is usable if it has an active port, and an IP address on its network interface. rdma_cm connects by
 * address on RoCE and iWARP, and through IPoIB on InfiniBand. Only rdma_cm knows on all three which address belongs
 * to which device, so each address is bound for a moment.
 */
#include "verbs_dev.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"

const char *vrb_kind_name(enum vrb_kind kind)
{
	static const char *const names[] = {"RoCE", "iWARP", "InfiniBand", "another transport"};

	return names[kind];
}

const char *vrb_ip_text(const union vrb_ip *ip, char *buf, size_t size)
{
	const void *a = ip->sa.sa_family == AF_INET ? (const void *)&ip->in.sin_addr : &ip->in6.sin6_addr;

	if (inet_ntop(ip->sa.sa_family, a, buf, (socklen_t)size) == NULL)
		snprintf(buf, size, "no address");
	return buf;
}

static void unusable(struct vrb_dev *dev, int state, const char *hint, const char *reason)
{
	dev->state = state;
	snprintf(dev->reason, sizeof(dev->reason), "%s", reason);
	snprintf(dev->hint, sizeof(dev->hint), "%s", hint);
}

/* ---- addresses ---- */

/* Converts an address of an interface. False: peers could not use it. */
static bool take_ip(const struct sockaddr *sa, union vrb_ip *ip)
{
	memset(ip, 0, sizeof(*ip));
	if (sa != NULL && sa->sa_family == AF_INET) {
		memcpy(&ip->in, sa, sizeof(ip->in));
		ip->in.sin_port = 0;
		return true;
	}
	if (sa != NULL && sa->sa_family == AF_INET6) {
		memcpy(&ip->in6, sa, sizeof(ip->in6));
		ip->in6.sin6_port = 0;
		return !IN6_IS_ADDR_LINKLOCAL(&ip->in6.sin6_addr);
	}
	return false;
}

/*
 * Assigns the address to the device that rdma_cm binds it to, if any. IPv4 is preferred to IPv6, and the first
 * address to others. An address of an interface without a carrier is better than none.
 */
static void give_ip(struct vrb_devs *d, struct rdma_event_channel *channel, union vrb_ip *ip, bool carrier)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
		return;
	if (rdma_bind_addr(id, &ip->sa) == 0 && id->verbs != NULL)
		for (int i = 0; i < d->n; i++) {
			struct vrb_dev *dev = &d->dev[i];
			bool better = carrier && ip->sa.sa_family == AF_INET && dev->ip.sa.sa_family == AF_INET6;

			if (strcmp(ibv_get_device_name(id->verbs->device), dev->name) == 0 &&
			    (dev->ip.sa.sa_family == 0 || better)) {
				dev->ip = *ip;
				dev->port = id->port_num;
			}
		}
	rdma_destroy_id(id);
}

static void give_ips(struct vrb_devs *d, struct rdma_event_channel *channel)
{
	struct ifaddrs *all = NULL;
	union vrb_ip ip;

	if (getifaddrs(&all) != 0)
		return;
	for (int carrier = 1; carrier >= 0; carrier--)
		for (struct ifaddrs *a = all; a != NULL; a = a->ifa_next)
			if ((a->ifa_flags & IFF_UP) != 0 && (a->ifa_flags & IFF_LOOPBACK) == 0 &&
			    ((a->ifa_flags & IFF_RUNNING) != 0) == carrier && take_ip(a->ifa_addr, &ip))
				give_ip(d, channel, &ip, carrier != 0);
	freeifaddrs(all);
}

/* ---- a device ---- */

static enum vrb_kind kind_of(const struct ibv_device *ibv, const struct ibv_port_attr *port)
{
	if (ibv->transport_type == IBV_TRANSPORT_IWARP)
		return VRB_IWARP;
	if (ibv->transport_type != IBV_TRANSPORT_IB)
		return VRB_OTHER;
	return port->link_layer == IBV_LINK_LAYER_ETHERNET ? VRB_ROCE : VRB_IB;
}

/* The port of its address, or else the first active one, or the first. */
static void look_at_port(struct vrb_dev *dev, struct ibv_context *ctx)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port = {0};
	char why[128];

	if (ibv_query_device(ctx, &attr) != 0 || attr.phys_port_cnt == 0) {
		unusable(dev, XPORT_MISCONFIGURED, "", "querying it failed");
		return;
	}
	for (uint8_t p = 1; dev->port == 0 && p <= attr.phys_port_cnt; p++)
		if (ibv_query_port(ctx, p, &port) == 0 && port.state == IBV_PORT_ACTIVE)
			dev->port = p;
	if (dev->port == 0)
		dev->port = 1;
	if (ibv_query_port(ctx, dev->port, &port) != 0) {
		unusable(dev, XPORT_MISCONFIGURED, "", "querying its port failed");
		return;
	}
	dev->kind = kind_of(dev->ibv, &port);
	if (dev->kind == VRB_OTHER) {
		unusable(dev, XPORT_ABSENT, "", "it is not an InfiniBand, RoCE or iWARP device");
	} else if (port.state != IBV_PORT_ACTIVE) {
		snprintf(why, sizeof(why), "its port %u is not active: %s", dev->port, ibv_port_state_str(port.state));
		unusable(dev, XPORT_MISCONFIGURED,
		         "bring the link up: `ip link set ... up`; `rdma link` shows its state", why);
	} else if (dev->ip.sa.sa_family == 0) {
		unusable(dev, XPORT_MISCONFIGURED,
		         "`rdma link` shows its network interface; give that an address: `ip addr add ...`",
		         "it has no IP address");
	}
}

static void look(struct vrb_dev *dev)
{
	struct ibv_context *ctx = ibv_open_device(dev->ibv);
	char why[128], ip[INET6_ADDRSTRLEN];

	if (ctx == NULL) {
		snprintf(why, sizeof(why), "it cannot be opened: %s", strerror(errno));
		unusable(dev, errno == EACCES || errno == EPERM ? XPORT_MISCONFIGURED : XPORT_ABSENT,
		         "load ib_uverbs, and give the user read and write access to /dev/infiniband/uverbs*", why);
		return;
	}
	look_at_port(dev, ctx);
	ibv_close_device(ctx);
	if (dev->state == XPORT_READY)
		snprintf(dev->reason, sizeof(dev->reason), "%s, port %u, %s", vrb_kind_name(dev->kind), dev->port,
		         vrb_ip_text(&dev->ip, ip, sizeof(ip)));
}

/* ---- all of them ---- */

/* Why libibverbs finds no device. */
static void none(struct vrb_devs *d, int error)
{
	DIR *dir = xpi_fd_dir("/sys/class/infiniband");
	struct dirent *e;
	bool any = false;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		any = any || e->d_name[0] != '.';
	if (dir == NULL)
		snprintf(d->reason, sizeof(d->reason), "the running kernel has no RDMA support loaded");
	else if (!any)
		snprintf(d->reason, sizeof(d->reason), "there is no RDMA device");
	else
		snprintf(d->reason, sizeof(d->reason), "there are RDMA devices, but libibverbs finds none%s%s",
		         error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
	snprintf(d->hint, sizeof(d->hint), "%s",
	         any ? "install ibverbs-providers, load ib_uverbs, and check that /dev/infiniband/uverbs* exists"
	             : "load the driver of the adapter; in software: rdma link add rxe0 type rxe netdev ETH");
	if (dir != NULL)
		closedir(dir);
}

void vrb_devs_look(struct vrb_devs *d)
{
	struct rdma_event_channel *channel;
	char why[128];
	int n = 0;

	memset(d, 0, sizeof(*d));
	d->list = ibv_get_device_list(&n);
	if (d->list == NULL || n == 0) {
		none(d, d->list == NULL ? errno : 0);
		return;
	}
	for (d->n = 0; d->n < n && d->n < VRB_DEVS_MAX; d->n++) {
		d->dev[d->n].ibv = d->list[d->n];
		d->dev[d->n].name = ibv_get_device_name(d->list[d->n]);
	}
	channel = rdma_create_event_channel();
	if (channel == NULL) {
		snprintf(why, sizeof(why), "/dev/infiniband/rdma_cm cannot be opened: %s", strerror(errno));
		for (int i = 0; i < d->n; i++)
			unusable(&d->dev[i], XPORT_MISCONFIGURED,
			         "load rdma_ucm, and give the user read and write access to it", why);
		return;
	}
	give_ips(d, channel);
	rdma_destroy_event_channel(channel);
	for (int i = 0; i < d->n; i++)
		look(&d->dev[i]);
}

void vrb_devs_forget(struct vrb_devs *d)
{
	if (d->list != NULL)
		ibv_free_device_list(d->list);
	d->list = NULL;
	d->n = 0;
}
