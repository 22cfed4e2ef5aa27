/* SPDX-License-Identifier: BSD-3-Clause */
/* fabric.c - the calls behind the injector: libfabric's inline functions, and the three that are not inline. */
#define INJECT_FABRIC_REAL
#include "fabric.h"

/* clang-format off */
#define EXPORTED_CALLS(X) \
	X(fi_dupinfo, (const struct fi_info *i), (i)) \
	X(fi_fabric, (struct fi_fabric_attr *a, struct fid_fabric **f, void *c), (a, f, c)) \
	X(fi_getinfo, (uint32_t v, const char *n, const char *s, uint64_t f, const struct fi_info *h, struct fi_info **i), \
	              (v, n, s, f, h, i))

#define REAL(name, parameters, arguments) \
	long real_##name parameters; \
	long real_##name parameters { return (long)name arguments; }
INLINE_CALLS(REAL)
EXPORTED_CALLS(REAL)
