/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdma.c - opens what librdmacm keeps until the process ends, before descriptors are counted: it is not a leak of
 * libxport.
 */
#include <rdma/rdma_cma.h>

#include "inject.h"

void inject_keep_devices(void)
{
	rdma_free_devices(rdma_get_devices(NULL));
}
