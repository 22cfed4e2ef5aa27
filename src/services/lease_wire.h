/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lease_wire.h - messages about leases.
 *
 *	0   "XPL", version 2
 *	4   type
 *	8   the receiver's number of the lease, 8 bytes; 0: none yet
 *	16  the sender's number of the lease, 8 bytes
 *	24  status, 4 bytes
 *	28  rights, 4 bytes
 *	32  length, 8 bytes
 *	40  the key
 *
 *	ASK and GIVE, RETURN, REVOKE and HAND are requests. GRANT answers ASK, TAKEN answers GIVE, RETURNED, REVOKED and
 *	HANDED answer the others; each has a status. BYE: all leases of the sender end; it has no answer.
 */
#ifndef SVC_LEASE_WIRE_H
#define SVC_LEASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum svc_lease_type {
	SVC_LEASE_ASK = 1,
	SVC_LEASE_GRANT = 2,
	SVC_LEASE_GIVE = 3,
	SVC_LEASE_TAKEN = 4,
	SVC_LEASE_RETURN = 5,
	SVC_LEASE_RETURNED = 6,
	SVC_LEASE_REVOKE = 7,
	SVC_LEASE_REVOKED = 8,
	SVC_LEASE_BYE = 9,
	SVC_LEASE_HAND = 10,
	SVC_LEASE_HANDED = 11
};

enum { SVC_LEASE_HEAD = 40, SVC_LEASE_KEY_MAX = 2048, SVC_LEASE_MAX = SVC_LEASE_HEAD + SVC_LEASE_KEY_MAX };

struct svc_lease_message {
	int type;
	uint64_t to, from;
	int32_t status;
	uint32_t rights;
	uint64_t length;
	const uint8_t *key;
	size_t key_len;
};

/* Encodes into at most SVC_LEASE_MAX bytes, and returns how many. A message without a key needs SVC_LEASE_HEAD. */
size_t svc_lease_encode(const struct svc_lease_message *m, uint8_t *bytes);
/* False: they are no message.  The key lies in the bytes. */
bool svc_lease_decode(const uint8_t *bytes, size_t len, struct svc_lease_message *m);

#endif
