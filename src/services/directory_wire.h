/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * directory_wire.h - messages between a directory and its users.
 *
 *	0   "XPD", version 1          20  flags, 4          32  version, 8
 *	4   type, 4 bytes             24  rights, 4         40  length, 8
 *	8   request, 8                28  lengths of node, 1, and name, 1
 *	16  status, 4                 30  length of key, 2   48  offset, 8
 *	56  node, name, key
 *
 *	PUT, FIND, REMOVE, WATCH, JOIN are requests of a user. ANSWER with the same number answers each. CHANGED, GONE,
 *	MISSED are requests of the directory; HEARD answers them. BYE: the sender ends; it has no answer.
 */
#ifndef SVC_DIRECTORY_WIRE_H
#define SVC_DIRECTORY_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum svc_directory_type {
	SVC_DIR_PUT = 1,
	SVC_DIR_FIND = 2,
	SVC_DIR_REMOVE = 3,
	SVC_DIR_WATCH = 4,
	SVC_DIR_JOIN = 5,
	SVC_DIR_ANSWER = 6,
	SVC_DIR_CHANGED = 7,
	SVC_DIR_GONE = 8,
	SVC_DIR_MISSED = 9,
	SVC_DIR_HEARD = 10,
	SVC_DIR_BYE = 11
};

enum { SVC_DIR_HEAD = 56, SVC_DIR_NODE_MAX = 63, SVC_DIR_KEY_MAX = 2048 };
enum { SVC_DIR_MAX = SVC_DIR_HEAD + SVC_DIR_NODE_MAX + 255 + SVC_DIR_KEY_MAX };

struct svc_dir_message {
	int type;
	uint64_t request;
	int32_t status;
	uint32_t flags, rights;
	uint64_t version, length, offset;
	const uint8_t *node, *name, *key;
	size_t node_len, name_len, key_len;
};

/* Encodes into at most SVC_DIR_MAX bytes, and returns how many. A message without name and key needs SVC_DIR_HEAD. */
size_t svc_dir_encode(const struct svc_dir_message *m, uint8_t *bytes);
/* False: they are no message.  Node, name and key lie in the bytes. */
bool svc_dir_decode(const uint8_t *bytes, size_t len, struct svc_dir_message *m);

#endif
