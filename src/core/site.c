/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/site.h"

#include <stdio.h>

int xpi_site_module(const char *name, char *buf, size_t len)
{
	int n = snprintf(buf, len, "%s/libxport_%s.so", XPI_MODULE_DIR, name);

	return n > 0 && (size_t)n < len ? XPORT_OK : XPORT_ERR_BOUNDS;
}

const struct xpi_backend *const xpi_site_backends[] = {NULL};
