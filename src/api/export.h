/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * export.h - exports what xport.h declares. The compiler includes it before each source of the library, which is
 * otherwise hidden (-fvisibility=hidden). So the header itself needs no macros for it.
 */
#pragma GCC visibility push(default)
#include "xport.h"
#pragma GCC visibility pop
