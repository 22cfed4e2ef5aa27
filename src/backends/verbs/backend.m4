# SPDX-License-Identifier: BSD-3-Clause
XPORT_STACK([verbs], [libibverbs >= 1.8 librdmacm >= 1.3], [-lrdmacm -libverbs],
  [[#include <infiniband/verbs.h>
    #include <rdma/rdma_cma.h>]],
  [[struct rdma_event_channel *channel = rdma_create_event_channel();
    return ibv_fork_init() + (channel == NULL);]],
  [libibverbs-dev librdmacm-dev])
