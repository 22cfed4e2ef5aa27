/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * backend.h - THE contract between the core and a back end.
 *
 * Read it from top to bottom: it is all a back-end author needs; test/loop/ is the example to copy and
 * contrib/NEW-BACKEND.md walks through it.
 *
 * Locking law.  The core calls into one opened back end (struct xpi_be) from one thread at a time, not always the same,
 * and a back end calls the core only from within such a call.  A back end needs no locks and starts no threads.  Only
 * `list` may run concurrently with anything else.
 *
 * Calling back.  am_recv, done and ep_failed may be called from within `poll`, and done and ep_failed from within any
 * data or endpoint call except am_send, am_send_two, put, get, atomic and drain, whose return value says it all.  From within
 * am_recv the core sends; it never calls poll, ep_quiesce or ep_destroy from within a callback.
 *
 * Arguments are checked by the core; a back end may take them as good.  Bytes that come from a peer (address, packed
 * key) are authentic to the extent of a checksum: check lengths.
 *
 * Memory.  A back end says how large its state of an endpoint, a region and a remote key is; the core allocates it,
 * zeroed, aligned to 16, before the call that sets it up, and frees it after the call that ends it.
 *
 * Status.  Every int returned is an enum xport_status, or XPI_PENDING where the slot says so.  Whoever first sees an
 * error describes it with xpi_fail() on xpi_be_open_args.err.
 */
#ifndef XPI_BACKEND_H
#define XPI_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "xport.h"

#define XPI_BACKEND_ABI 8

/* What of a region's rights lets peers change it. */
#define XPI_RIGHTS_TO_CHANGE (XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC)

enum { XPI_PENDING = 1 }; /* accepted; done() will be called */

struct xpi_core;    /* the instance, seen from below: opaque */
struct xpi_core_ep; /* the endpoint, seen from below: opaque */
struct xpi_be;      /* each back end defines its own */
struct xpi_backend;
struct xpi_be_open_args;

/* The head of whatever the core waits for; the back end may use `priv` between the call that was given it and done(). */
struct xpi_req {
	void *priv;
};

/* What the core offers to a back end. */
struct xpi_core_ops {
	/*
	 * A frame arrived: exactly the bytes of one am_send, in one piece (data NULL, dlen 0) or cut where the sender's
	 * was.  The bytes are read during the call only.
	 */
	void (*am_recv)(struct xpi_core *core, const void *hdr, size_t hlen, const void *data, size_t dlen);
	/* What returned XPI_PENDING is done: status XPORT_OK, or an error after which the endpoint will be failed. */
	void (*done)(struct xpi_core *core, struct xpi_req *req, int status);
	/* The network says that this peer is gone or unusable.  A hint: the core decides.  `why` is for people. */
	void (*ep_failed)(struct xpi_core *core, struct xpi_core_ep *ep, int64_t native_code, const char *why);
	/*
	 * For a back end that wraps another one, from within `open` alone: the slots of the back end of that name, loaded if
	 * need be, none of them NULL.  Whoever opens it is its core.  NO_BACKEND, INCOMPATIBLE and NO_MEMORY say why.
	 */
	int (*back_end)(const struct xpi_be_open_args *args, const char *name, const struct xpi_backend **ops);
};

struct xpi_be_open_args {
	const char *provider; /* what stood after the colon in XPORT_BACKEND; NULL: the back end's own choice */
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	const struct xpi_log *log;
	struct xport_error *err; /* filled by whoever fails, through xpi_fail() */
	int peer_timeout_ms;
	const char *options; /* XPORT_CHAOS, for the back end of that name; may be NULL.  Read during the call only */
};

/* What an opened back end is: probed, not claimed.  Zero means no, or none. */
struct xpi_be_caps {
	char provider[48], device[64], stack[64]; /* as in struct xport_info */
	char protocol[48]; /* must be equal at both ends, beside back end and provider: "ucp-am 1 / 1.13" */
	bool local_provider; /* the provider names a thing of this machine: the peer's need not be equal */
	/* am */
	size_t am_max;       /* longest frame, hlen + dlen, at least 4096; small operations are packed up to 8 KiB */
	unsigned am_credits; /* frames of a peer that may be under way; prepare for twice as many and eight more */
	bool am_cheap;       /* a frame costs neither a system call nor a device's work: few records do not wait for each other */
	size_t cma_min;      /* peers are processes of this host: data so long goes by core/cma.h; 0: none does */
	/* memory */
	size_t ep_size, mr_size, rkey_size; /* bytes of the back end's own state in the core's objects */
	size_t rkey_native_max;             /* longest packed native key, at most 1024; with lends, 192 */
	/* Messages may be put where they are received.  Such keys come from the peer without the application: rkey_unpack
	 * bears any bytes.  And no put of the peer's over an endpoint lands once ep_quiesce returned XPORT_OK there. */
	bool lends;
	/* put, get */
	bool rma_reg;        /* put and get reach memory from mr_reg; else only memory from mr_alloc */
	bool put_placed;     /* a put that is done is visible to the target's CPU */
	bool am_after_put;   /* what follows puts, a frame, put or get, finds them visible, without drain */
	bool drain_places;   /* what is drained is visible to the target's CPU, which calls nothing for that */
	bool target_bounds;  /* the target, or its hardware, checks put and get */
	bool passive_target; /* put, flush and get end without calls at the target: by mapping, put_placed or drain_places */
	size_t put_short;    /* a put of up to here is XPORT_OK or not accepted, never pending; needs am_after_put; 0: none */
	uint64_t rma_max;    /* longest single put or get; 0: any; at least 128 (the core splits, in no pieces below 64) */
	bool nic_atomic;     /* the slot atomic can be used */
	/* waiting */
	unsigned stack_threads; /* that the stack runs for each instance, and that cannot be avoided */
	bool by_clock;       /* a descriptor is readable now and then, and not because of what happened */
	unsigned poll_ms;    /* 0: fds and arm can be relied on; else poll must be called this often, there is no fd */
};

/* Whether a candidate can be opened; see struct xport_candidate. */
typedef void (*xpi_candidate_fn)(void *arg, const struct xport_candidate *c);

enum xpi_role { XPI_ACTIVE, XPI_PASSIVE }; /* who called xport_connect, who accepted */

struct xpi_backend {
	unsigned abi; /* XPI_BACKEND_ABI */
	const char *name;

	/* ---- open: required ---- */

	/* Calls `emit` once for each provider there is, in order of preference, absent ones with their reason included.
	 * Must not leave anything open.  Names are "NAME:PROVIDER". */
	int (*list)(const struct xpi_log *log, xpi_candidate_fn emit, void *arg);
	/* Opens a provider.  NO_BACKEND if there is no such provider (the text names the nearest); never another one. */
	int (*open)(const struct xpi_be_open_args *args, struct xpi_be **be);
	/* Frees everything.  All endpoints, regions and keys are gone already. */
	void (*close)(struct xpi_be *be);
	void (*query)(struct xpi_be *be, struct xpi_be_caps *caps);

	/* ---- memory ---- */

	/* All optional; without mr_reg the core needs none.  `mr` has mr_size bytes.  NO_MEMORY names the limit.
	 * XPORT_ATOMIC_NIC is among the rights only with caps.nic_atomic: then the slot atomic is used, and no other way. */
	int (*mr_reg)(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
	/* Allocates zeroed page-aligned memory that peers reach best, and registers it.  *base is set. */
	int (*mr_alloc)(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
	/* Undoes mr_reg or mr_alloc; nobody uses the region any more. */
	void (*mr_dereg)(struct xpi_be *be, void *mr);
	/* Writes the native key, at most rkey_native_max bytes; *len: in room, out written. */
	int (*rkey_pack)(struct xpi_be *be, const void *mr, void *buf, size_t *len);
	/* `rkey` has rkey_size bytes; `length` and `rights` are those of the region.  *direct: set to where that many bytes of it
	 * are mapped in this process with these rights (to be written to with XPI_RIGHTS_TO_CHANGE), if they are, whatever the
	 * native key says: then the core copies and changes words itself, and put and get are not called for it. */
	int (*rkey_unpack)(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t length,
	                   uint32_t rights, void **direct);
	void (*rkey_destroy)(struct xpi_be *be, void *rkey);

	/* ---- connect: required ---- */

	/* Prepares `ep` (ep_size bytes) and writes the native address that the peer needs, at most 2048 bytes;
	 * *len: in room, out written. */
	int (*address)(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
	/* Connects to the peer whose address this is.  XPORT_OK: usable.  XPORT_ERR_AGAIN: under way, the core polls and
	 * calls again with the same arguments.  Frames may arrive as soon as the peer has connected. */
	int (*ep_connect)(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
	/* Stops the endpoint so that afterwards the network touches no buffer of it and done() is called for none of its
	 * requests any more.  XPORT_ERR_AGAIN: under way, the core polls and calls again, after a second only 50 times in
	 * one; that has to end, also if the peer is gone and if poll fails.  After `address` at any time. */
	int (*ep_quiesce)(struct xpi_be *be, void *ep);
	/* Frees it.  Comes after ep_quiesce returned XPORT_OK. */
	void (*ep_destroy)(struct xpi_be *be, void *ep);

	/* ---- move data ---- */

	/*
	 * Required.  Sends one frame to the peer: ordered, reliable, never blocks.  XPORT_OK: sent or copied, the buffer is
	 * the core's again.  XPI_PENDING: it is the back end's until done(req).  XPORT_ERR_AGAIN: not accepted, the core
	 * tries again after a poll; so with XPORT_ERR_NO_MEMORY.  Any other status: not accepted, and the endpoint is failed
	 * soon; until then the same may be offered again.  So it is with put, get, atomic and drain.  The buffer may lie in any memory.
	 */
	int (*am_send)(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
	/* Required.  The same for a frame that lies in two pieces: small ones come by am_send, long ones by this. */
	int (*am_send_two)(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
	                   struct xpi_req *req);
	/*
	 * Optional, both or none.  Between registered memory; `offset` counts from the region's base.  `mr` is the local
	 * region's state that holds `buf`, or NULL if the buffer is not registered (then XPORT_ERR_NOT_SUPPORTED makes the
	 * core carry this one itself).  Returns as am_send does; done means: put, the source may be reused (caps.put_placed:
	 * and it is visible); get, the bytes are there.  Never zero bytes.  `req` is NULL for some puts of up to caps.put_short.
	 * A put of up to caps.put_short that was accepted may wait in the back end to leave together with others: until the
	 * next poll, or until something else is accepted for this endpoint.  As long as one waits, arm says AGAIN.
	 */
	int (*put)(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
	           struct xpi_req *req);
	int (*get)(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
	           struct xpi_req *req);

	/*
	 * Optional.  An atomic of the adapter's on 8 bytes of a region registered with XPORT_ATOMIC_NIC: XPORT_ATOMIC_ADD or
	 * XPORT_ATOMIC_CAS, in the target's byte order.  `args` is valid during the call.  Returns as am_send does; done means
	 * applied, and the old value stands in args->result, unless that is NULL.  What put promises of order to what follows,
	 * and drain, holds for it as well.
	 */
	int (*atomic)(struct xpi_be *be, void *ep, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
	              struct xpi_req *req);

	/* ---- order ---- */

	/* Required with put unless caps.am_after_put, and with caps.drain_places.  Done when a frame sent from then on arrives
	 * after all earlier puts are visible (drain_places: when they are); in error if one of them failed.  One at a time for
	 * an endpoint.  Returns as am_send does. */
	int (*drain)(struct xpi_be *be, void *ep, struct xpi_req *req);

	/* ---- complete ---- */

	/* Required.  Makes progress, calls back; returns how much happened (0: nothing), or a status if the whole back end
	 * broke.  Bounded: about a hundred events a call. */
	int (*poll)(struct xpi_be *be);
	/* Writes the descriptors that become readable when poll is worth calling (after arm); returns how many. */
	int (*fds)(struct xpi_be *be, int *fds, int max);
	/* Called before sleeping on the fds.  XPORT_OK: the next event makes one readable, until anything
	 * but `fds` is called; a thread that sleeps then is woken by the core.  XPORT_ERR_AGAIN: do not sleep, poll; it may
	 * have polled itself then. */
	int (*arm)(struct xpi_be *be);
};

/* A back end exports this one symbol: from its module, xpi_backend; in a static build, xpi_backend_NAME. */
#ifdef XPI_BUILTIN_BACKENDS
#define XPI_EXPORT_BACKEND(name) const struct xpi_backend xpi_backend_##name
#else
#define XPI_EXPORT_BACKEND(name) \
	extern const struct xpi_backend xpi_backend; \
	const struct xpi_backend xpi_backend __attribute__((visibility("default")))
#endif

#endif
