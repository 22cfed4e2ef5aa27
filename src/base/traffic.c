/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/traffic.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>

enum { CODE_LE = 1, CODE_DF = 0, CODE_EF = 46, CODE_SHIFT = 2 };

static const struct {
	const char *name;
	uint8_t code;
	int priority; /* within this host, as in pfifo_fast and mqprio; TC_PRIO_* of linux/pkt_sched.h */
} classes[] = {
	[XPORT_TRAFFIC_DEFAULT] = {"default", CODE_DF, 0},
	[XPORT_TRAFFIC_BULK] = {"bulk", CODE_LE, 2},
	[XPORT_TRAFFIC_NORMAL] = {"normal", CODE_DF, 0},
	[XPORT_TRAFFIC_URGENT] = {"urgent", CODE_EF, 6},
};

bool xpi_traffic_valid(int64_t traffic_class)
{
	return traffic_class >= 0 && traffic_class < (int)(sizeof(classes) / sizeof(classes[0]));
}

const char *xpi_traffic_name(int traffic_class)
{
	return classes[traffic_class].name;
}

uint8_t xpi_traffic_tos(int traffic_class)
{
	return (uint8_t)(classes[traffic_class].code << CODE_SHIFT);
}

bool xpi_traffic_mark(int fd, int traffic_class)
{
	int tos = xpi_traffic_tos(traffic_class), family = AF_UNSPEC;
	socklen_t len = sizeof(family);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) != 0)
		return false;
	/* Of a socket of both families it marks packets of IPv4. It changes the priority, too: so that is set last. */
	if (setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)) != 0)
		return false;
	if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos)) != 0)
		return false;
	return setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &classes[traffic_class].priority,
	                  sizeof(classes[traffic_class].priority)) == 0;
}
