# SPDX-License-Identifier: BSD-3-Clause
XPORT_STACK([ofi], [libfabric >= 1.17], [-lfabric],
  [[#include <rdma/fabric.h>
    #include <rdma/fi_endpoint.h>
    #if FI_VERSION_LT(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 17))
    #error "libfabric 1.17 or later is needed"
    #endif]],
  [[return (int)fi_version();]],
  [libfabric-dev])
# Without these, the psm libraries that libfabric brings along leave their own signal handlers behind.
ofi_load_env="HFI_NO_BACKTRACE=1 IPATH_NO_BACKTRACE=1"
