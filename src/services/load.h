/* SPDX-License-Identifier: BSD-3-Clause */
/* load.h - libraries that a source loads when it is used. None is ever unloaded: they have threads and exit handlers. */
#ifndef SVC_LOAD_H
#define SVC_LOAD_H

#include <stddef.h>

/* A function of the library, and the pointer that gets its address. */
struct svc_symbol {
	const char *name;
	void *pointer; /* to a function pointer */
};

/*
 * Loads `library`, and looks its functions up. Returns XPORT_OK, or XPORT_ERR_NOT_SUPPORTED, described for `operation`:
 * `package` is the one to install.
 */
int svc_load(const char *library, const char *package, const struct svc_symbol *symbols, size_t n, const char *source,
             const char *operation);

#endif
