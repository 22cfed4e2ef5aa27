/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * candidates.h - the transports that XPORT_BACKEND allows an instance to open.
 *
 *   value   "A,B": alternatives. The first of which something is usable is taken
 *   each    "NAME" or "NAME:PROVIDER": this transport
 *           "A+B+C": a set. All that are usable, in order of preference
 *           "auto": the set of all that this build has
 *
 * A set is opened step by step: the first usable transport with the instance, the others when a peer needs them.
 */
#ifndef XPI_CORE_CONFIG_CANDIDATES_H
#define XPI_CORE_CONFIG_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"

enum { XPI_CANDIDATES_MAX = 16 };

enum xpi_candidate_state { XPI_CANDIDATE_UNOPENED, XPI_CANDIDATE_OPEN, XPI_CANDIDATE_FAILED };

struct xpi_candidate {
	char name[64];      /* as in XPORT_BACKEND: "ucx:tcp" */
	char backend[16];
	char provider[48];  /* "": the back end chooses */
	bool any_provider;  /* the peer's provider may have another name. Before it is open: known by the name */
	bool shares_memory; /* for processes of one host only. Before it is open: known by the name */
	uint8_t state;      /* enum xpi_candidate_state */
	int status;         /* FAILED: why, */
	char reason[200];   /* a sentence, */
	int64_t failed_ms;  /* and when */
};

struct xpi_candidates {
	int n;
	struct xpi_candidate list[XPI_CANDIDATES_MAX];
};

/* xpi_candidates_next - cut the next alternative off *list into `item`. False at the end. Items fit if the list does. */
bool xpi_candidates_next(const char **list, char *item, size_t size);

/*
 * xpi_candidates_check - check the value of XPORT_BACKEND.
 *
 * Returns XPORT_OK, or, described,
 *   XPORT_ERR_CONFIG      an item is empty or malformed; in a set: an item is there twice, is "auto", or there are too many
 *   XPORT_ERR_NO_BACKEND  a set has a name that no back end has
 */
int xpi_candidates_check(const char *list, struct xport_error *err);

/* xpi_candidates_fill - list the candidates of one alternative that was checked, none of them opened. */
void xpi_candidates_fill(struct xpi_candidates *c, const char *alternative);

/*
 * xpi_candidates_forbid - set the bits of the candidates that a list "NAME+NAME:PROVIDER" does not name.
 *
 * Returns XPORT_OK, or, described, XPORT_ERR_INVALID: an item names none of them.
 */
int xpi_candidates_forbid(const struct xpi_candidates *c, const char *allowed, uint32_t *forbidden,
                          struct xport_error *err);

/* xpi_candidate_failed - note that a candidate cannot be used, and why. */
void xpi_candidate_failed(struct xpi_candidate *c, int status, const char *reason);

/* xpi_candidates_unknown - describe a name that no back end has, with the nearest. Returns XPORT_ERR_NO_BACKEND. */
int xpi_candidates_unknown(const char *name, struct xport_error *err);

struct xpi_registry_entry;
/* xpi_candidates_entry - find the registry entry with this name. Returns NULL if no back end has the name. */
const struct xpi_registry_entry *xpi_candidates_entry(const char *name, size_t len);

#endif
