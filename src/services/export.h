/* SPDX-License-Identifier: BSD-3-Clause */
/* export.h - what xport_services.h declares is exported; the compiler puts this before each source of this library. */
#pragma GCC visibility push(default)
#include "services/xport_services.h"
#pragma GCC visibility pop
