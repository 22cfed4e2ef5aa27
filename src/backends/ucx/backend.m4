# SPDX-License-Identifier: BSD-3-Clause
XPORT_STACK([ucx], [ucx >= 1.13], [-lucp -luct -lucs],
  [[#include <ucp/api/ucp.h>
    #if UCP_API_VERSION < UCP_VERSION(1, 13)
    #error "UCX 1.13 or later is needed"
    #endif]],
  [[ucp_worker_h worker = NULL;
    ucp_am_handler_param_t param = {0};
    return ucp_worker_set_am_recv_handler(worker, &param);]],
  [libucx-dev])
# Without these, UCX leaves its own handlers of SIGSEGV and others behind, and with UCX_LOG_LEVEL=debug has its lines
# among the application's output from the moment that it is loaded; one with fuse starts a thread.  For memory events it
# rewrites the code of munmap, madvise and others in the running C library, which crashes threads under ThreadSanitizer.
# Only its registration cache needs these events; without them UCX goes without the cache (ucs_rcache_create fails).
ucx_load_env="UCX_HANDLE_ERRORS=none UCX_DEBUG_SIGNO=0 UCX_LOG_FILE=stderr UCX_VFS_ENABLE=n UCX_MEM_EVENTS=n"
