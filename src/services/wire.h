/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.h - the common part of the messages of the services. */
#ifndef SVC_WIRE_H
#define SVC_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <xport.h>

#include "base/bytes.h"

/* The rights of enum xport_rights that a key can have.  libxport checks which of them can be combined. */
enum { SVC_RIGHTS = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC };

/* Whether a peer may send this status: the application is going to see it. */
static inline bool svc_status_valid(int32_t status)
{
	return status <= XPORT_OK && status >= XPORT_ERR_BUSY;
}

#endif
