/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_cache.h - registrations that are kept for buffers used again.  Included by xport_services.h.
 *
 * The buffers belong to the application.  The cache does not watch the memory: call xport_cache_invalidate before memory
 * is unmapped, or freed to the system.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may call.
 */
#ifndef XPORT_CACHE_H
#define XPORT_CACHE_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A cache of registrations. */
typedef struct xport_cache xport_cache;

/* Options of xport_cache_create.  NULL instead of the struct: all defaults. */
struct xport_cache_attr {
	size_t size;
	/* Of the registrations, enum xport_rights without XPORT_ATOMIC_NIC: overlapping buffers are registered twice. */
	uint32_t rights;
	uint32_t max_entries; /* limit of registrations; default 1024 */
	size_t max_bytes;     /* limit of registered memory; 0: none */
};

/* A registration in use: the buffer begins at `offset` of `mr`. */
struct xport_cached {
	xport_mr *mr;
	uint64_t offset;
	void *entry; /* for the cache */
};

/*
 * xport_cache_create - make an empty cache.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        x or cache is NULL; a field of *attr is not allowed
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field
 */
int xport_cache_create(xport *x, const struct xport_cache_attr *attr, xport_cache **cache) XPORT_CHECK;

/*
 * xport_cache_destroy - deregister all buffers, including those in use, and free the cache.
 *
 * `cache` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY    a posted receive uses a registration: cancel it, then call xport_cache_destroy again, and nothing
 *                     else
 */
int xport_cache_destroy(xport_cache *cache);

/*
 * xport_cache_get - find or make a registration that covers a buffer.
 *
 * The caller is a user of the registration until xport_cache_put.  With xport_cache_attr.rights 0 whole pages are
 * registered, otherwise only the buffer.  Registrations without users are deregistered to make space, the least recently
 * used first.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN      registrations in use reach max_entries or max_bytes: call xport_cache_put for some
 *   XPORT_ERR_INVALID    address or cached is NULL; length is 0, or more than max_bytes
 *   XPORT_ERR_NO_MEMORY  out of memory; over the limit of locked memory
 *   another error of xport_mr_reg
 */
int xport_cache_get(xport_cache *cache, void *address, size_t length, struct xport_cached *cached) XPORT_CHECK;

/*
 * xport_cache_put - end the use of a registration.
 *
 * Call it after the completions of the operations that use the registration.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    *cached is not from xport_cache_get; the registration has no users
 */
int xport_cache_put(xport_cache *cache, const struct xport_cached *cached);

/*
 * xport_cache_invalidate - drop every registration that has a byte of this memory.
 *
 * xport_cache_get no longer finds them.  Those without users are deregistered now.  The others are deregistered by
 * their last xport_cache_put: keep the memory mapped until then.
 *
 * Returns the number of dropped registrations that still have users, or
 *   XPORT_ERR_INVALID    the memory would end past the address space
 *   XPORT_ERR_BUSY       a posted receive uses a registration whose user called xport_cache_put too early: cancel the
 *                        receive, then call again
 */
int xport_cache_invalidate(xport_cache *cache, const void *address, size_t length);

/* The state of a cache. */
struct xport_cache_info {
	size_t size;
	uint64_t entries;       /* registrations, including dropped ones with users */
	uint64_t bytes;         /* registered by them */
	uint64_t in_use;        /* registrations with users */
	uint64_t hits, misses;  /* of xport_cache_get */
	uint64_t evictions;     /* deregistered to make space */
	uint64_t invalidations; /* dropped by xport_cache_invalidate */
};

/*
 * xport_cache_query - get the state of a cache.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    info is NULL; info->size is wrong
 */
int xport_cache_query(xport_cache *cache, struct xport_cache_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
