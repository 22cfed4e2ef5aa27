/* SPDX-License-Identifier: BSD-3-Clause */
/* member.h - one worker, as the server sees it. */
#ifndef PS_MEMBER_H
#define PS_MEMBER_H

#include "crew.h"

/* Takes over the endpoint of one that has come, and welcomes it. */
void ps_member_begin(struct ps_crew *crew, xport_ep *ep);
/* Gives it m->order, after its parameters if `broadcast`. */
void ps_member_order(struct ps_member *m, bool broadcast);
/* The end of a call, a completion of a put, and an event of its endpoint. */
void ps_member_replied(struct ps_member *m, const struct xport_rpc_event *e);
void ps_member_completed(struct ps_member *m, const struct xport_completion *c);
void ps_member_event(struct ps_member *m, const struct xport_completion *c);
/* Gives back all that it has. */
void ps_member_end(struct ps_member *m);

#endif
