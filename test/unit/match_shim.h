/* SPDX-License-Identifier: BSD-3-Clause */
/* match_shim.h - core/match.h for C++: numbered receives and messages of peers without a network. */
#ifndef MATCH_SHIM_H
#define MATCH_SHIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SHIM_ANY = -1, SHIM_NONE = -1 };

struct match_shim;

struct match_shim *match_shim_new(int peers);
/* With all that is still in it. */
void match_shim_free(struct match_shim *s);

/* Receive number `id`: takes the message that fits and returns its number, or is posted: SHIM_NONE. */
int match_shim_receive(struct match_shim *s, int id, int peer, uint64_t tag, uint64_t mask);
/* Message number `id`: goes to the receive whose number is returned, or waits: SHIM_NONE. */
int match_shim_message(struct match_shim *s, int id, int peer, uint64_t tag);
/* Takes a posted receive out. */
void match_shim_cancel(struct match_shim *s, int id);
/* Drops the messages of a peer; returns how many. */
int match_shim_forget(struct match_shim *s, int peer);
uint64_t match_shim_waiting(const struct match_shim *s, int peer);
/* The most messages that share a list. */
uint64_t match_shim_longest(const struct match_shim *s);

#ifdef __cplusplus
}
#endif

#endif
