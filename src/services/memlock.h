/* SPDX-License-Identifier: BSD-3-Clause */
/* memlock.h - checks the limit of locked memory in advance, because the errors of the stacks do not name it. */
#ifndef SVC_MEMLOCK_H
#define SVC_MEMLOCK_H

#include <stdbool.h>

#include "services/xport_services.h"

struct svc_memlock {
	uint64_t limit;  /* bytes; UINT64_MAX: none */
	uint64_t locked; /* by this process already */
	bool exempt;     /* CAP_IPC_LOCK: the limit is not for it */
};

/* Registering locks memory on this network. */
bool svc_memlock_network(const struct xport_info *info);
void svc_memlock_now(struct svc_memlock *m);
/* XPORT_OK, or NO_MEMORY with what to do about it. */
int svc_memlock_check(const struct svc_memlock *m, uint64_t more, const char *operation);

#endif
