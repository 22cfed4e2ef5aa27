/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/memlock.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "services/last_error.h"

enum { CAP_IPC_LOCK_BIT = 14 };

bool svc_memlock_network(const struct xport_info *info)
{
	static const char *const rdma[] = {"verbs", "rc", "ud", "dc", "ib", "psm", "efa"};

	if (strcmp(info->backend, "verbs") == 0)
		return true;
	for (size_t i = 0; i < sizeof(rdma) / sizeof(rdma[0]); i++) {
		size_t n = strlen(rdma[i]);

		/* "ud", "ud_x", "psm2", but not "udp;ofi_rxd". */
		if (strncmp(info->provider, rdma[i], n) == 0 && !isalpha((unsigned char)info->provider[n]))
			return true;
	}
	return false;
}

static uint64_t kib(const char *line)
{
	uint64_t n = 0;

	return sscanf(line, "%*s %" SCNu64, &n) == 1 ? n << 10 : 0;
}

void svc_memlock_now(struct svc_memlock *m)
{
	struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
	uint64_t effective, locked = 0, pinned = 0;
	char line[256];
	FILE *f;

	memset(m, 0, sizeof(*m));
	getrlimit(RLIMIT_MEMLOCK, &r);
	m->limit = r.rlim_cur == RLIM_INFINITY ? UINT64_MAX : r.rlim_cur;
	f = fopen("/proc/self/status", "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, "VmLck:", 6) == 0)
			locked = kib(line);
		else if (strncmp(line, "VmPin:", 6) == 0)
			pinned = kib(line);
		else if (sscanf(line, "CapEff: %" SCNx64, &effective) == 1)
			m->exempt = effective >> CAP_IPC_LOCK_BIT & 1;
	}
	if (f != NULL)
		fclose(f);
	/* The kernel counts the two apart, and each against the limit. */
	m->locked = locked > pinned ? locked : pinned;
}

int svc_memlock_check(const struct svc_memlock *m, uint64_t more, const char *operation)
{
	if (m->exempt || m->limit == UINT64_MAX || (m->locked <= m->limit && more <= m->limit - m->locked))
		return XPORT_OK;
	return svc_fail(
		XPORT_ERR_NO_MEMORY, operation,
		"raise the limit: ulimit -l unlimited in the shell, memlock in /etc/security/limits.conf for logins, "
		"LimitMEMLOCK=infinity for a systemd service; or ask for less",
		"cannot lock %" PRIu64 " KiB more; the limit of locked memory is %" PRIu64 " KiB, and %" PRIu64
		" KiB are locked already",
		more >> 10, m->limit >> 10, m->locked >> 10);
}
