/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_services.h - services on top of xport.h, in a library of their own: libxport_services.
 *
 * Include this header: it includes one header for each service.
 *
 *   xport_pool.h        blocks of registered memory
 *   xport_cache.h       registrations that are kept for buffers used again
 *   xport_batch.h       many operations with one completion
 *   xport_prepared.h    strided transfers that are posted many times
 *   xport_versioned.h   objects that peers read without tearing
 *   xport_leases.h      memory that one process lends to another
 *   xport_directory.h   names of regions on many machines
 *   xport_link.h        endpoints that come back
 *   xport_rpc.h         remote procedure calls
 *   xport_bulk.h        bulk transfer of non-contiguous registered memory
 *   xport_far.h         memory of many processes as one
 *   xport_group.h       the processes of a job: ranks, endpoints, collective operations
 *   xport_metrics.h     counters as text, and in a directory for xport_exporter
 *
 * The rules of xport.h hold here, too: fork rule, ownership rule, and the rules for structs that begin with `size`.
 *
 * Life rule.  Destroy an object that was made for an instance before xport_close of the instance.
 *
 * Errors.  A function that can fail returns a negative xport_status.  xport_services_last_error has the cause, and
 * what to do about it.  An error of libxport keeps libxport's own text.  The comment of each function lists its errors.
 * Not listed there are the two that every call on an instance returns (see xport.h).
 *
 * Units.  Sizes and offsets are in bytes.  Times are in milliseconds, and -1 means no limit.  A time limit below -1 is
 * refused with XPORT_ERR_INVALID.
 */
#ifndef XPORT_SERVICES_H
#define XPORT_SERVICES_H

#include <xport.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * xport_services_last_error - get the cause of the calling thread's last failure in libxport_services.
 *
 * error->operation is the function.  error->text and error->hint say what went wrong, and what to do about it.  Set
 * error->size before the call.
 *
 * Any thread may call it at any time.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    error is NULL; error->size is wrong
 */
int xport_services_last_error(struct xport_error *error);

/* Receives a completion that does not belong to the service that polled it.  `arg` is the argument of that call. */
typedef void (*xport_completion_fn)(void *arg, const struct xport_completion *completion);

#ifdef __cplusplus
}
#endif

#include "xport_pool.h"

#include "xport_cache.h"

#include "xport_batch.h"

#include "xport_prepared.h"

#include "xport_versioned.h"

#include "xport_leases.h"

#include "xport_directory.h"

#include "xport_link.h"

#include "xport_bulk.h"

#include "xport_rpc.h"

#include "xport_far.h"

#include "xport_group.h"

#include "xport_metrics.h"

#endif
