/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * locked.h - xpi_assert_locked, at the heads of functions whose caller holds the instance's lock.
 *
 * It checks in builds with a sanitizer, and costs nothing in others.  An instance without a lock is used by one thread at a
 * time, which xport.h asks of the application: there is nothing to check.
 */
#ifndef XPI_CORE_OBJECT_LOCKED_H
#define XPI_CORE_OBJECT_LOCKED_H

#include "core/object/instance.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define XPI_CHECKS_LOCKS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define XPI_CHECKS_LOCKS 1
#endif

/* xpi_assert_locked - end the process if no thread holds the lock of `x`. */
#ifdef XPI_CHECKS_LOCKS
#include <assert.h>

static inline void xpi_assert_locked(struct xport *x)
{
	bool held = (x->slow & XPI_SLOW_LOCK) == 0 || pthread_mutex_trylock(&x->lock) != 0;

	assert(held);
	(void)held;
}
#else
static inline void xpi_assert_locked(struct xport *x)
{
	(void)x;
}
#endif

#endif
