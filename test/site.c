/* SPDX-License-Identifier: BSD-3-Clause */
/* site.c - for the tests: modules from the build tree, and the back ends `loop` and, where it is no module, `chaos`. */
#include "core/config/module_path.h"

#include <stdio.h>

extern const struct xpi_backend xpi_backend_loop;

int xpi_site_module(const char *name, char *buf, size_t len)
{
	int n = snprintf(buf, len, "%s/src/backends/%s/.libs/libxport_%s.so", XPI_BUILD_DIR, name, name);

	return n > 0 && (size_t)n < len ? XPORT_OK : XPORT_ERR_BOUNDS;
}

#ifdef XPI_SITE_CHAOS
extern const struct xpi_backend xpi_backend_chaos;

const struct xpi_backend *const xpi_site_backends[] = {&xpi_backend_loop, &xpi_backend_chaos, NULL};
#else
const struct xpi_backend *const xpi_site_backends[] = {&xpi_backend_loop, NULL};
#endif
