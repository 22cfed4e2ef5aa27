/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * export.h - what xport.h declares is exported.  The compiler puts this before each source of the library, which is
 * otherwise hidden (-fvisibility=hidden), so that the header itself needs no macros for it.
 */
#pragma GCC visibility push(default)
#include "xport.h"
#pragma GCC visibility pop
