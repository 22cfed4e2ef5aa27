/* SPDX-License-Identifier: BSD-3-Clause */
/* registry.h - the back ends there are, loaded when first needed. */
#ifndef XPI_CORE_CONFIG_REGISTRY_H
#define XPI_CORE_CONFIG_REGISTRY_H

#include "backends/backend.h"

/* One entry of the table, in order of preference. */
struct xpi_registry_entry {
	const char *name;
	const char *why_not;  /* not built: the reason; else NULL */
	const char *load_env; /* "NAME=value NAME=value", set while the module is loaded unless the user set them */
	const struct xpi_backend *builtin;
};

/*
 * Opening, listing, and whatever else reads the environment take turns in a process: modules are loaded with variables set
 * (base/env.h).  May be nested.  What the stacks read goes by it as well.
 */
void xpi_registry_enter(void);
void xpi_registry_leave(void);

/* The table, ended by a NULL name: those of the configuration, those not built, then the site's own. */
const struct xpi_registry_entry *xpi_registry(void);

/*
 * Loads a back end (once a process), checks that its required slots are there, fills the optional ones with functions
 * that answer XPORT_ERR_NOT_SUPPORTED, and restores the signal actions that the stack below changed while loading.
 * NO_BACKEND: not built, or cannot be loaded; INCOMPATIBLE: it does not fit this library; NO_MEMORY.  The text says
 * why.  A failure is not remembered.  The module stays for the life of the process: the stacks below leave threads,
 * hooks and exit handlers behind that must not lose their code.  Any thread.
 */
int xpi_registry_load(const struct xpi_registry_entry *entry, const struct xpi_log *log, struct xport_error *err,
                      const struct xpi_backend **be);

/* What an opened back end says of itself that contradicts backend.h or its own slots; NULL: nothing. */
const char *xpi_registry_contradiction(const struct xpi_backend *ops, const struct xpi_be_caps *caps);

#endif
