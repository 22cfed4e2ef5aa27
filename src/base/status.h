/* SPDX-License-Identifier: BSD-3-Clause */
/* status.h - the one table of every xport_status: its name and its text. */
#ifndef XPI_BASE_STATUS_H
#define XPI_BASE_STATUS_H

#include "xport.h"

/* In the order of enum xport_status; a status that is missing here does not compile. */
#define XPI_STATUS_LIST(X) \
	X(XPORT_OK, "success") \
	X(XPORT_ERR_AGAIN, "the queue is full: poll, then try again") \
	X(XPORT_ERR_INVALID, "invalid argument") \
	X(XPORT_ERR_NO_MEMORY, "out of memory") \
	X(XPORT_ERR_NOT_SUPPORTED, "not supported by this back end or this build") \
	X(XPORT_ERR_CONFIG, "bad value in the configuration") \
	X(XPORT_ERR_NO_BACKEND, "no such back end, or none that is usable here") \
	X(XPORT_ERR_FAULT, "memory that is not mapped, or not with the rights asked for") \
	X(XPORT_ERR_BOUNDS, "outside the bounds") \
	X(XPORT_ERR_ACCESS, "the remote region does not grant this access") \
	X(XPORT_ERR_STALE_KEY, "the key's registration or its process is gone") \
	X(XPORT_ERR_BAD_KEY, "damaged bytes, or not a key") \
	X(XPORT_ERR_TRUNCATED, "the message is longer than its receive") \
	X(XPORT_ERR_CANCELED, "canceled") \
	X(XPORT_ERR_PEER_LOST, "the peer is lost") \
	X(XPORT_ERR_PEER_CLOSED, "the peer closed the endpoint") \
	X(XPORT_ERR_CLOSED, "closed by this side") \
	X(XPORT_ERR_TIMEOUT, "the time limit passed") \
	X(XPORT_ERR_REFUSED, "connection refused") \
	X(XPORT_ERR_UNREACHABLE, "no route to the peer, or its name does not resolve") \
	X(XPORT_ERR_INCOMPATIBLE, "the peer runs another back end, provider or version") \
	X(XPORT_ERR_ADDRESS, "malformed address, or one that cannot be bound") \
	X(XPORT_ERR_AUTH, "authentication is missing or failed") \
	X(XPORT_ERR_FORK, "used in a forked child") \
	X(XPORT_ERR_SYSTEM, "a system call failed") \
	X(XPORT_ERR_PROTOCOL, "the peer broke the protocol") \
	X(XPORT_ERR_BUSY, "too late: already matched")

/* Never NULL, also for a number that is no status. */
const char *xpi_status_text(int status);
const char *xpi_status_name(int status);

#endif
