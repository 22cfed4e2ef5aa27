/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_status.c - describing failures.
 *
 * No code of the stack is passed on unchanged: for one lost peer the devices report RETRY_EXC, FLUSH, REM_OP, or
 * success. Whatever ends a connection is PEER_LOST, and the core's control channel may know more.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "verbs.h"

int vrb_fail(struct xpi_be *be, int status, int error, const char *hint, const char *what)
{
	errno = error < 0 ? -error : error; /* siw returns them negated */
	return xpi_fail_errno(be->err, status, hint, "%s: %s failed", be->name, what);
}

int vrb_fail_locked(struct xpi_be *be, int error, size_t length)
{
	struct rlimit lim;

	errno = error;
	if (error == EINVAL && ibv_is_fork_initialized() == IBV_FORK_ENABLED)
		return xpi_fail_errno(be->err, XPORT_ERR_NO_MEMORY,
		                      "if the memory is in huge pages, set RDMAV_HUGEPAGES_SAFE=1",
		                      "%s: cannot register %zu bytes", be->name, length);
	if ((error != ENOMEM && error != EPERM && error != EAGAIN) || getrlimit(RLIMIT_MEMLOCK, &lim) != 0 ||
	    lim.rlim_cur == RLIM_INFINITY)
		return xpi_fail_errno(be->err, XPORT_ERR_NO_MEMORY, NULL, "%s: cannot register %zu bytes", be->name,
		                      length);
	return xpi_fail_errno(be->err, XPORT_ERR_NO_MEMORY,
	                      "raise the limit: ulimit -l unlimited; for a service LimitMEMLOCK=infinity; for a "
	                      "container --ulimit memlock=-1",
	                      "%s: cannot register %zu bytes: the limit of locked memory is %llu KiB", be->name, length,
	                      (unsigned long long)lim.rlim_cur / 1024);
}

void vrb_broke(struct vrb_ep *ep, int64_t code, const char *why)
{
	ep->room = 0;
	ep->broken = true;
	if (ep->failure[0] == '\0')
		snprintf(ep->failure, sizeof(ep->failure), "%s", why);
	if (ep->told || ep->state != VRB_UP)
		return; /* ep_connect returns it, or the core asked for it */
	ep->told = true;
	ep->be->up->ep_failed(ep->be->core, ep->core_ep, code, why);
}

void vrb_all_broke(struct xpi_be *be, int64_t code, const char *why)
{
	xpi_list_for(l, &be->eps)
		vrb_broke(xpi_container(l, struct vrb_ep, link), code, why);
}
