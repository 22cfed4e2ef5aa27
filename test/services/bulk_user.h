/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk_user.h - a role that pulls and pushes, and the memory of the role that owns it. The harness makes no progress for the
 * former meanwhile (h->idle).
 */
#ifndef TEST_BULK_USER_H
#define TEST_BULK_USER_H

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { BULK_SMALL = 65536, BULK_LARGE = 2 << 20, BULK_BYTES = 2048 };

/* Memory in pieces: of a small region (seed 1) and a large one (seed 2). */
struct bulk_owner {
	struct h *h;
	struct h_mem small, large;
	struct xport_bulk_run run[6];
	size_t nruns;
	xport_bulk *bulk;
};

/* Registers the memory, and describes it. Runs with gaps, in no order, of both regions. */
void bulk_own(struct bulk_owner *o, struct h *h, uint32_t rights, uint32_t flags);
/* The same with a single piece: the large region. */
void bulk_own_plain(struct bulk_owner *o, struct h *h, uint32_t rights, uint32_t flags);
/* Sends the packed descriptor to the role. */
void bulk_tell(struct h *h, int role, const xport_bulk *bulk);
/* Frees it all, checking the guards. */
void bulk_disown(struct bulk_owner *o);

struct bulk_user {
	struct h *h;
	xport_bulks *b;
	int gone;                  /* LOST and CLOSED events */
	uint8_t bytes[BULK_BYTES]; /* the last descriptor that was heard */
	size_t len;
};

/* Opens, connects to all other roles, and makes transfers. */
void bulk_begin(struct bulk_user *u, struct h *h, const struct xport_bulks_attr *attr);
void bulk_end(struct bulk_user *u);
void bulk_other(void *arg, const struct xport_completion *c);
void bulk_turn(struct bulk_user *u);
void bulk_turn_for(struct bulk_user *u, int ms);
/* Hears a descriptor from the role, and unpacks it on the endpoint to it. */
xport_bulk *bulk_hear(struct bulk_user *u, int role);
struct xport_bulk_info bulk_info(struct h *h, const xport_bulk *bulk);
struct xport_bulks_info bulks_info(struct bulk_user *u);

/* A range, and one piece of local memory, which becomes *iov; the deadline is 20 s. */
struct xport_bulk_args bulk_args(uint64_t offset, void *buf, size_t len, struct xport_iov *iov);
/* Starts a pull of one piece and returns its id. */
uint64_t bulk_pull(struct bulk_user *u, xport_bulk *bulk, uint64_t offset, void *buf, size_t len);
/* The next event, which must be of this type. */
struct xport_bulk_event bulk_next(struct bulk_user *u, const char *file, int line, int type);
#define BULK_NEXT(u, type) bulk_next(u, __FILE__, __LINE__, type)
/* DONE with this status, and nothing in flight. */
struct xport_bulk_event bulk_done(struct bulk_user *u, const char *file, int line, int status);
#define BULK_DONE(u, status) bulk_done(u, __FILE__, __LINE__, status)

/* The bytes of the descriptor of bulk_own, or of bulk_own_plain, as they are at its owner. Returns how many. */
size_t bulk_expected(struct h *h, bool plain, uint8_t **bytes);

#endif
