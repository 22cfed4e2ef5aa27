/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr.h - registered local memory, and what peers may do with it.
 *
 * A region id is a table index and random bits. This instance never reuses it. Accesses by message are checked here,
 * each time. For access by the network or by mapped memory, peers are asked to stop before the region ends.
 */
#ifndef XPI_CORE_OBJECT_MR_H
#define XPI_CORE_OBJECT_MR_H

#include "core/object/instance.h"
#include "core/object/transport.h"
#include "core/wire/rkey_format.h"

enum { XPI_NATIVE_KEY_MAX = 1024 }; /* bytes of the longest native key of any back end */

struct xport_mr {
	struct xport *x;
	uint8_t *base;
	uint64_t length;
	uint64_t id;
	uint32_t rights;
	bool allocated;                    /* by xport_mr_alloc */
	bool mapped;                       /* of that, by ourselves */
	const struct xpi_transport *owner; /* of that, by this transport's back end; else NULL */
	bool by_adapter;                   /* its atomics are the adapter's alone */
	bool packed;                       /* somebody may have its key */
	uint32_t busy;                     /* the application's operations that use it */
	uint32_t serving;                  /* replies to peers that read it */
	uint32_t posted;                   /* receives into it that wait for a message */
	uint32_t revoking;                 /* holders of the native key that have not answered yet */
	bool dying;
	bool readonly;          /* some of it was not writable when it was registered: */
	uintptr_t ro_lo, ro_hi; /* no more than this part of it */
	struct xpi_list parts;  /* with a key of their own, see mr_part.c */
	struct xport_mr *whole; /* of a part: its region; else NULL */
	void *on[XPI_TRANSPORTS_MAX]; /* by xpi_transport.index: its back end's state; NULL: it does not know the region */
};

/* xpi_mr_on - what the back end of a transport keeps for the region. NULL: this transport does not know it. */
static inline void *xpi_mr_on(const struct xport_mr *mr, const struct xpi_transport *tp)
{
	return mr->on[tp->index];
}

/*
 * xpi_mr_holds - true if the buffer is in the region.
 *
 * The region must belong to the instance, and not be in deregistration.
 */
static inline bool xpi_mr_holds(const struct xport_mr *mr, const struct xport *x, const void *buf, size_t len)
{
	return mr->x == x && !mr->dying && len <= mr->length && (const uint8_t *)buf >= mr->base &&
	       (const uint8_t *)buf - mr->base <= (ptrdiff_t)(mr->length - len);
}

static inline void xpi_mr_idle(struct xport_mr *mr)
{
	mr->busy--;
}

/* xpi_mr_new - the body of xport_mr_reg and, with `alloc`, of xport_mr_alloc. */
int xpi_mr_new(struct xport *x, void *base, uint64_t length, uint32_t rights, bool alloc, struct xport_mr **mr);
/* xpi_mr_writable - true if [buf, buf + len) of a readonly region is writable now. Reads the process's memory map. */
bool xpi_mr_writable(const struct xport_mr *mr, const void *buf, size_t len) __attribute__((cold));
/* xpi_mr_know_all - register all regions on a transport that was opened after them. One that it refuses goes by messages. */
void xpi_mr_know_all(struct xpi_transport *tp);
/* xpi_mr_drop - deregister and free a region that no peer uses any more. */
void xpi_mr_drop(struct xport_mr *mr);
/*
 * xpi_mr_native_key - write the key by which peers over this transport reach the region without us.
 *
 * ep    whose peer gets it; NULL: nobody, the caller only asks
 * *len  in: space in buf. Out: bytes written; 0: there is none
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN          only with ep: not now
 *   XPORT_ERR_NOT_SUPPORTED  the transport does not know the region
 *   any other error          the back end's
 */
int xpi_mr_native_key(const struct xport_mr *mr, const struct xpi_transport *tp, struct xport_ep *ep, void *buf,
                      size_t *len);
/* xpi_mr_pack - the body of xport_rkey_pack. */
int xpi_mr_pack(const struct xport_mr *mr, void *buf, size_t *len);
/* xpi_mr_by_messages - true if peers reach the region through messages only: this process checks each access. */
bool xpi_mr_by_messages(const struct xport_mr *mr);
/* xpi_mr_enter - add an object with its random id to the table of regions. Returns XPORT_OK, or the refusal, described. */
int xpi_mr_enter(struct xport *x, struct xport_mr *mr, const char *operation);
/* xpi_mr_leave - remove it. */
void xpi_mr_leave(struct xport_mr *mr);
/* xpi_mr_key_rights - these rights as a key of the region or of a part has them. */
uint32_t xpi_mr_key_rights(const struct xport_mr *mr, uint32_t rights);
/* xpi_mr_pack_room - check the buffer for a key: XPORT_OK, or the refusal, described. *len is set to the key's length. */
int xpi_mr_pack_room(struct xport *x, const char *operation, const void *buf, size_t *len);
/* xpi_mr_key_write - write the key of a region or a part. `base` and `rights` are as in a packed key (rkey_format.h). */
void xpi_mr_key_write(const struct xport_mr *mr, uint64_t base, uint32_t rights, void *buf);

/* xpi_mr_at - the region or part with this id. NULL: not found. */
struct xport_mr *xpi_mr_at(struct xport *x, uint64_t id);
/* xpi_mr_find - the region with this id, also while it is being deregistered; of a part, its region. NULL: not found. */
struct xport_mr *xpi_mr_find(struct xport *x, uint64_t id);

/*
 * xpi_mr_check - check an access by message, at the target.
 *
 * *mr  set to the region, never to a part; NULL with XPORT_ERR_STALE_KEY
 * *at  set to the address if the access is allowed
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_STALE_KEY  the region is being deregistered, has ended, or never existed
 *   XPORT_ERR_ACCESS     the region does not grant this right
 *   XPORT_ERR_BOUNDS     the access is not inside the region
 */
int xpi_mr_check(struct xport *x, uint64_t id, uint64_t offset, uint64_t len, uint32_t right, struct xport_mr **mr,
                 uint8_t **at);

#endif
