/* SPDX-License-Identifier: BSD-3-Clause */
/* end.h - how a victim ends itself, and what is needed to cut one off. */
#ifndef TEST_KILL_END_H
#define TEST_KILL_END_H

#include "actor.h"

/* Ends this process as ordered, or stops it, or takes its connection away.  Writes down when. */
void end_self(struct actor *a);
/* Forks a child that holds all descriptors and lives until it is killed. */
void end_leave_child(struct h *h, struct kl_board *b);

/* A network of this process's own with nothing but loopback, and a filter that drops what is from or to some ports. */
bool end_own_network(char *why, size_t len);
/* Drops from now on what is from or to the TCP ports of the process. */
void end_cut_off(struct h *h, int pid);
/* Drops nothing any more. */
bool end_mend(void);

#endif
