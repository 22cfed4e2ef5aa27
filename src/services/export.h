/* SPDX-License-Identifier: BSD-3-Clause */
/* export.h - exports what xport_services.h declares. The compiler includes it before each source of this library. */
#pragma GCC visibility push(default)
#include "services/xport_services.h"
#pragma GCC visibility pop
