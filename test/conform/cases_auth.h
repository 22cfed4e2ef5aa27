/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_auth.h - between cases_auth.c and cases_auth_strangers.c: who has the key. */
#ifndef CASES_AUTH_H
#define CASES_AUTH_H

#include "harness_net.h"

enum { START_LEN = 40, PROOF_LEN = 33 };

extern const char auth_key[];

/* Opens with that key; NULL: with none.  Skips where keys are not built in.  All roles call it. */
void auth_open(struct h *h, const char *key, const struct xport_attr *attr);
/* Role 0: a server for as long as role 1 wishes, which says by auth_count how many it must have let in. */
void auth_server(struct h *h);
void auth_count(struct h *h, uint64_t least, uint64_t most);
/* Connects, sends a word, hears it, leaves; microseconds. */
int64_t auth_client(struct h *h, const char *address);

#endif
