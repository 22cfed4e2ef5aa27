/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "services/last_error.h"

int svc_load(const char *library, const char *package, const struct svc_symbol *symbols, size_t n, const char *source,
             const char *operation)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	char hint[128];

	snprintf(hint, sizeof(hint), "install it (Debian: %s), or choose another source", package);
	if (handle == NULL)
		return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation, hint, "the source %s needs %s: %s", source, library,
		                dlerror());
	for (size_t i = 0; i < n; i++) {
		void *address = dlsym(handle, symbols[i].name);

		if (address == NULL) {
			dlclose(handle);
			return svc_fail(XPORT_ERR_NOT_SUPPORTED, operation, hint,
			                "the source %s needs another version of %s: it has no %s", source, library,
			                symbols[i].name);
		}
		memcpy(symbols[i].pointer, &address, sizeof(address));
	}
	return XPORT_OK;
}
