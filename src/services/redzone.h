/* SPDX-License-Identifier: BSD-3-Clause */
/* redzone.h - the patterns that XPORT_POOL_DEBUG writes into blocks, and checks later. */
#ifndef SVC_REDZONE_H
#define SVC_REDZONE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes past the end of what was asked for that a block has at least. */
enum { SVC_REDZONE = 16 };

/* Fills the bytes past the end.  They are still so; else *at is the first that is not, from the block's beginning. */
void svc_redzone_end(void *block, size_t asked, size_t length);
bool svc_redzone_end_whole(const void *block, size_t asked, size_t length, size_t *at);
/* Fills a block that was freed; and the same question. */
void svc_redzone_freed(void *block, size_t length);
bool svc_redzone_freed_whole(const void *block, size_t length, size_t *at);

#endif
