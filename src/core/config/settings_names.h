/* SPDX-License-Identifier: BSD-3-Clause */
/* settings_names.h - misspelt names of variables. */
#ifndef XPI_CORE_CONFIG_SETTINGS_NAMES_H
#define XPI_CORE_CONFIG_SETTINGS_NAMES_H

#include "core/config/settings.h"

/*
 * xpi_settings_names - look for unknown names XPORT_... in the environment.
 *
 * They are reserved for the library, so an unknown one is probably misspelt: a warning with the nearest name, or
 * XPORT_ERR_CONFIG if `s` is strict.
 */
int xpi_settings_names(struct xpi_settings *s, struct xport_error *err);

#endif
