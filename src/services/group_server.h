/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_server.h - the root of a group: takes a card of each member over TCP, and then sends all cards to all.
 *
 *	member                             root
 *	HELLO name, card         ------->
 *	                         <-------  WAIT text      (twice a second: the ranks that are missing)
 *	                         <-------  CARDS all      or REFUSED status, text
 *
 * A frame is its length in 4 bytes, then a type, then the fields. The server has no thread: svc_server_turn moves it.
 */
#ifndef SVC_GROUP_SERVER_H
#define SVC_GROUP_SERVER_H

#include "services/group_card.h"

enum {
	SVC_ROOT_MAGIC = 0x52475058, /* "XPGR" */
	SVC_ROOT_HELLO = 1,
	SVC_ROOT_WAIT = 2,
	SVC_ROOT_CARDS = 3,
	SVC_ROOT_REFUSED = 4,
	SVC_ROOT_HEAD = 9,          /* length (of what follows), magic, type */
	SVC_ROOT_SMALL_MAX = 1024,  /* bytes of a frame, but of CARDS */
};

struct svc_server;

/* Listens. ADDRESS with *taken: the address is in use, or of another host. */
int svc_server_open(const char *address, int members, const char *name, struct svc_server **server, bool *taken,
                    const char *operation);
/* Waits up to `ms` for something to do, and does it. Returns XPORT_OK when all members have all cards, AGAIN, or an error. */
int svc_server_turn(struct svc_server *s, int ms, const char *operation);
void svc_server_missing(const struct svc_server *s, char *text, size_t size);
void svc_server_close(struct svc_server *s);

#endif
