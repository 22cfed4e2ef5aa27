/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_dev.h - the RDMA devices there are, and for each one whether it can be used and why not. */
#ifndef VERBS_DEV_H
#define VERBS_DEV_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "xport.h"

enum { VRB_DEVS_MAX = 128 /* virtual functions count, too */ };

enum vrb_kind { VRB_ROCE, VRB_IWARP, VRB_IB, VRB_OTHER };

/* An address that rdma_cm takes; IPv4 or IPv6. */
union vrb_ip {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

struct vrb_dev {
	struct ibv_device *ibv; /* valid until vrb_devs_forget */
	const char *name;
	uint8_t port;
	enum vrb_kind kind;
	union vrb_ip ip; /* of the network interface it belongs to; family 0: none */
	int state;       /* enum xport_state */
	char reason[192], hint[192];
};

struct vrb_devs {
	struct ibv_device **list;
	struct vrb_dev dev[VRB_DEVS_MAX];
	int n;
	char reason[192], hint[192]; /* why there is none at all */
};

/* Looks at all of them; leaves nothing open but the list. */
void vrb_devs_look(struct vrb_devs *d);
void vrb_devs_forget(struct vrb_devs *d);

const char *vrb_kind_name(enum vrb_kind kind);
/* "10.0.0.1", without the port. */
const char *vrb_ip_text(const union vrb_ip *ip, char *buf, size_t size);

#endif
