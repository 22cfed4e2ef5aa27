/* SPDX-License-Identifier: BSD-3-Clause */
/* far_user.h - a role with far memory. The harness makes no progress for it meanwhile (h->idle). */
#ifndef TEST_FAR_USER_H
#define TEST_FAR_USER_H

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { PIECE = 4096, PIECES = 16, LEND = PIECE * PIECES };

struct far {
	struct h *h;
	xport_far *f;
	int gone;       /* LOST and CLOSED events */
	const void *op; /* that completed last, and how */
	int status;
};

/* Lets it move for a moment. */
void far_turn(struct far *u);
/* The next event, which must be of this type and have this status. */
struct xport_far_event far_event(struct far *u, const char *file, int line, int type, int status);
#define FAR_EVENT(u, type, status) far_event(u, __FILE__, __LINE__, type, status)
/* Opens, connects to all other roles, makes the far memory. */
void far_begin(struct far *u, struct h *h, const struct xport_far_attr *attr);
void far_end(struct far *u);
/* Hears from the role that it may go on. */
void far_await(struct far *u, int role);
/* Adds the role, which tells its entry. JOINED has this status. */
void far_add(struct far *u, int role, int status);
struct xport_far_info far_info(struct far *u);
struct xport_far_lender_info far_lender(struct far *u, int role);
struct xport_far_block_info far_block(struct far *u, const xport_far_block *b);
/* For a block of so many pieces of PIECE bytes. */
struct xport_far_args far_args(uint64_t pieces, int policy);
/* Put or get; returns how it ended. */
int far_access(struct far *u, xport_far_block *b, uint64_t offset, void *buf, size_t len, bool put);
/* Fills and checks pieces: each has bytes of its own. */
void far_fill(struct far *u, xport_far_block *b, size_t from, size_t to);
void far_check(struct far *u, xport_far_block *b, size_t from, size_t to);
/* A lender of LEND bytes, which tells role 0 its entry. */
void lend_begin(struct far *u, struct h *h);
/* Lends until role 0 says that it may end. */
void far_lender_role(struct h *h);
/* Lends until it is killed. */
void far_dying_lender(struct h *h);

#endif
