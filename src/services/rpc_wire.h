/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc_wire.h - messages of remote procedure calls.
 *
 *	0   "XPR", the sender's version      24  status, 4 bytes
 *	4   type, 1 byte                     28  milliseconds, 4
 *	5   flags, 1                         32  size, 4
 *	6   ran, 1                           36  credits, 4
 *	7   0                                40  trace context, 24
 *	8   number of the call, 8            64  payload
 *	16  method, 8
 *
 *	HELLO   request: the sender's limit of a payload (size). Sent before the first call.
 *	WELCOME answers HELLO: status, limit of a payload (size), calls that may be unanswered (credits).
 *	CALL    request: flags, method, time left (milliseconds), trace context, payload. The payload begins with the
 *	        descriptors of memory: how many (credits), and their bytes in all (size). Each is its length, 4 bytes, and as
 *	        many bytes. A call with descriptors has XPORT_RPC_LENT.
 *	REPLY   answers CALL: status, ran, payload; with XPORT_ERR_BUSY the time to wait (milliseconds). Flag 1: a process that
 *	        the callee has passed descriptors to may still access the memory. It then ran.
 *	CANCEL  the caller does not want the reply any more. REPLY still answers the call. It has no answer of its own.
 *	BYE     the sender ends; it has no answer.
 *
 * HELLO, WELCOME and BYE have this form in every version, so that versions can refuse each other. Fields that a type does
 * not use are 0. The status of WELCOME is XPORT_OK or XPORT_ERR_INCOMPATIBLE. REPLY to a request that did not run has a
 * status other than XPORT_OK, and no payload.
 */
#ifndef SVC_RPC_WIRE_H
#define SVC_RPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum svc_rpc_type {
	SVC_RPC_HELLO = 1,
	SVC_RPC_WELCOME = 2,
	SVC_RPC_CALL = 3,
	SVC_RPC_REPLY = 4,
	SVC_RPC_CANCEL = 5,
	SVC_RPC_BYE = 6
};

/* Flag of a REPLY: a third process may still access the memory of the call's descriptors. */
enum { SVC_RPC_DOUBTFUL = 1 };

enum { SVC_RPC_VERSION = 2, SVC_RPC_HEAD = 64, SVC_RPC_TRACE = 24, SVC_RPC_BULK_HEAD = 4 };

struct svc_rpc_message {
	uint8_t version;
	uint8_t type;
	uint8_t flags;
	uint8_t ran;
	uint64_t id;
	uint64_t method;
	int32_t status;
	uint32_t ms;
	uint32_t size;
	uint32_t credits;
	uint8_t trace[SVC_RPC_TRACE];
	const uint8_t *payload;
	size_t len;
};

/* Encodes all but the payload, which follows: SVC_RPC_HEAD bytes. */
void svc_rpc_encode(const struct svc_rpc_message *m, uint8_t *bytes);
/* Returns false if the bytes are not a message. The payload lies in the bytes. */
bool svc_rpc_decode(const uint8_t *bytes, size_t len, struct svc_rpc_message *m);

#endif
