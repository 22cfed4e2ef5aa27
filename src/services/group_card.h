/* SPDX-License-Identifier: BSD-3-Clause */
/* group_card.h - the card of a member: what the others need to know to connect to it. A source carries it as bytes. */
#ifndef SVC_GROUP_CARD_H
#define SVC_GROUP_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SVC_CARD_MAX = 512, SVC_GROUP_NAME_MAX = 63, SVC_GROUP_MEMBERS_MAX = 1 << 20 };

struct svc_group_card {
	int rank, members;
	uint64_t own;     /* a random number of this member; that of rank 0 is the group's */
	uint64_t group;   /* the group's, if the member knew it; else 0 */
	int64_t pid;      /* the process, and when it started, in clock ticks since boot */
	uint64_t started;
	uint64_t pid_space; /* the inode of the PID namespace; 0: unknown */
	char address[64]; /* of its listener */
	char host[64];
};

/* Fills in all that describes this process: own, pid, started, pid_space and host. */
void svc_card_begin(struct svc_group_card *card);
/* Encodes at most SVC_CARD_MAX bytes; returns how many. */
size_t svc_card_encode(const struct svc_group_card *card, uint8_t *bytes);
/* False: the bytes are no card. */
bool svc_card_decode(struct svc_group_card *card, const uint8_t *bytes, size_t len);
/* Whether the process of the card has ended for certain: it was on this host, in this PID namespace. */
bool svc_card_dead(const struct svc_group_card *card);
/* A random number, not 0. */
uint64_t svc_group_random(void);

#endif
