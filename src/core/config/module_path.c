/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/config/module_path.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * The modules of the library that is running lie beside it, also where the whole tree was moved; another installation's
 * are not for it.  A relative name would mean something else after a chdir.
 */
static int beside(const char *name, char *buf, size_t len)
{
	const char *slash;
	Dl_info self;
	int n;

	if (dladdr((void *)xpi_site_backends, &self) == 0 || self.dli_fname == NULL || self.dli_fname[0] != '/')
		return 0;
	slash = strrchr(self.dli_fname, '/');
	n = snprintf(buf, len, "%.*s/" PACKAGE_NAME "/libxport_%s.so", (int)(slash - self.dli_fname), self.dli_fname,
	             name);
	return n > 0 && (size_t)n < len && access(buf, R_OK) == 0;
}

int xpi_site_module(const char *name, char *buf, size_t len)
{
	int n;

	if (beside(name, buf, len))
		return XPORT_OK;
	n = snprintf(buf, len, "%s/libxport_%s.so", XPI_MODULE_DIR, name);
	return n > 0 && (size_t)n < len ? XPORT_OK : XPORT_ERR_BOUNDS;
}

const struct xpi_backend *const xpi_site_backends[] = {NULL};
