/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_user.c - whether UCX may be given a peer's address, if UCX maps memory of the processes that addresses name.
 *
 * An address names queues in shared memory: by a process and its descriptor, by a file, or by a System V number. UCX
 * maps them without looking at their owner, and uses the lengths and offsets in them. So this is only for processes of one user.
 *
 * Plain ucx uses none of these transports unless UCX_TLS asks for them. If it does, peers may still be on other
 * hosts, where the kernel does not know them. UCX maps nothing for an address without the ID of this host, so such
 * an address is accepted.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "ucx.h"

/* UCX's ID for this host (1.12 and later), a digest of the boot ID. 0: unknown. */
static uint64_t host_id(void)
{
	char text[64] = "";
	uint64_t first, second, third, fourth, last;
	int fd = xpi_fd_up(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	if (sscanf(text, "%8" SCNx64 "-%4" SCNx64 "-%4" SCNx64 "-%4" SCNx64 "-%12" SCNx64, &first, &second, &third,
	           &fourth, &last) != 5)
		return 0;
	/* UCX reads the last six bytes one by one, the lowest first. */
	last = __builtin_bswap64(last << 16);
	return (first | second << 32 | third << 48) ^ (fourth | last << 16);
}

/* Whether an address contains the ID, whose highest bit is a flag there. */
static bool carries(const uint8_t *address, size_t len, uint64_t id)
{
	uint64_t there;

	for (size_t i = 0; i + sizeof(there) <= len; i++) {
		memcpy(&there, address + i, sizeof(there));
		if (((there ^ id) & ~(UINT64_C(1) << 63)) == 0)
			return true;
	}
	return false;
}

int ucx_may_map(struct ucx_ep *ep, const uint8_t *address, size_t len)
{
	struct xpi_be *be = ep->be;
	uint64_t id;
	int rc;

	if (!be->reaches)
		return XPORT_OK;
	rc = be->up->same_user(be->core, ep->core_ep);
	if (rc == XPORT_OK || be->provider->tls != NULL)
		return rc;
	/* Our own address must contain the ID. If it does not, this UCX uses another ID, and the peer's address cannot be judged. */
	id = host_id();
	return id != 0 && carries((const uint8_t *)be->address, be->address_len, id) && !carries(address, len, id)
	               ? XPORT_OK
	               : rc;
}
