/* SPDX-License-Identifier: BSD-3-Clause */
/* select.h - choosing the back end: never silently another than the one asked for. */
#ifndef XPI_CORE_CONFIG_SELECT_H
#define XPI_CORE_CONFIG_SELECT_H

#include "backends/backend.h"
#include "core/config/candidates.h"
#include "core/config/settings.h"

struct xpi_choice {
	const struct xpi_backend *ops;
	struct xpi_be *be;
	struct xpi_be_caps caps;
	int candidate; /* its place in the set */
};

/*
 * xpi_select - open the first usable transport of settings->backend.
 *
 * A transport that is open but lacks a required capability is closed again, and counts as not usable.
 *
 * args        complete but for the provider
 * candidates  the set that it belongs to; those before it have failed, those after it are not opened
 *
 * Returns XPORT_OK, or, described,
 *   XPORT_ERR_NO_BACKEND  none is usable. The text lists each that was tried with its reason, and for a name that does not
 *                         exist the nearest that does
 *   XPORT_ERR_CONFIG      the value of XPORT_BACKEND is malformed
 *   XPORT_ERR_NO_MEMORY   out of memory
 */
int xpi_select(const struct xpi_settings *settings, const struct xpi_be_open_args *args, struct xpi_choice *choice,
               struct xpi_candidates *candidates);

/* xpi_select_candidate - open one candidate of a set, and note the outcome in it. Returns XPORT_OK, or why not. */
int xpi_select_candidate(const struct xpi_settings *settings, const struct xpi_be_open_args *args,
                         struct xpi_candidate *candidate, struct xpi_choice *choice);

/* Whether every remote access is checked at the target too: by the back end, or because the core carries them all. */
bool xpi_choice_target_bounds(const struct xpi_settings *settings, const struct xpi_be_caps *caps);
/* Whether puts and gets need no calls of the target's application. */
bool xpi_choice_passive_target(const struct xpi_settings *settings, const struct xpi_be_caps *caps);

/* Whether atomics on regions with XPORT_ATOMIC_NIC are the adapter's. */
bool xpi_choice_nic_atomic(const struct xpi_settings *settings, const struct xpi_be_caps *caps);

/* Whether the network may put long messages into regions with XPORT_REMOTE_RECV. */
bool xpi_choice_lend(const struct xpi_settings *settings, const struct xpi_be_caps *caps);

/* xpi_core_ops.back_end. */
int xpi_select_back_end(const struct xpi_be_open_args *args, const char *name, const struct xpi_backend **ops);

/* Lists all candidates; returns how many, or a status. */
int xpi_select_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg);

#endif
