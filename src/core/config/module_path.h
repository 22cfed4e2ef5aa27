/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * module_path.h - what differs between the library as installed and as tested: where its modules lie, and which back ends are
 * linked in.  module_path.c is the installed library's answer, test/site.c that of the tests.
 */
#ifndef XPI_CORE_CONFIG_MODULE_PATH_H
#define XPI_CORE_CONFIG_MODULE_PATH_H

#include <stddef.h>

#include "backends/backend.h"

/* Writes the path of the module of back end `name`; XPORT_ERR_BOUNDS if it does not fit. */
int xpi_site_module(const char *name, char *buf, size_t len);

/* Back ends that are linked in beside those of the configuration, ended by NULL. */
extern const struct xpi_backend *const xpi_site_backends[];

#endif
