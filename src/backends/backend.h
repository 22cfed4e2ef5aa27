/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * backend.h - the contract between the core and a back end.
 *
 * A back end connects the core to one network stack. This header is all that its author needs: read it from top to
 * bottom. src/backends/shm/ is the example to copy, and contrib/NEW-BACKEND.md walks through it.
 *
 * Threads
 *   - The core calls one opened back end (struct xpi_be) from one thread at a time, not always from the same one.
 *   - A back end calls the core only from within a call of the core. It starts no threads.
 *   - An opened back end needs no locks for its own state. Data that several opened back ends share needs a lock: two
 *     threads may call two opened back ends at the same time.
 *   - `list` may run concurrently with every other slot.
 *
 * Callbacks (struct xpi_core_ops)
 *   - am_recv              from within poll, and from within arm if arm then returns XPORT_ERR_AGAIN
 *   - done                 from there, and from within address, ep_connect and ep_quiesce
 *   - ep_failed            from where done may be called, and from within ep_destroy
 *   - back_end             from within open only
 *   - same_user            from within ep_connect only
 *   - am_send, am_send_two, put, get, atomic and drain never call back: their return value says everything.
 *   - From within a callback the core may call am_send, am_send_two and rkey_destroy. It never calls poll, ep_quiesce
 *     or ep_destroy there. So finish the changes to your own state first, and hold no resource that sending needs.
 *
 * Blocking
 *   - list, open, close and the mr_* slots may block, for as long as the system calls that they make.
 *   - No other slot waits for the peer, for the network or for a device. Return XPORT_ERR_AGAIN where the slot may.
 *
 * Arguments
 *   - The core checks its arguments. A back end may rely on them.
 *   - Bytes from a peer (`addr` of ep_connect, `buf` of rkey_unpack) may be anything: check lengths.
 *
 * Memory
 *   - query reports how large the back end's state of an endpoint, a region and a remote key is.
 *   - The core allocates this state, zeroed and aligned to 16, before the call that sets it up (address; mr_reg or
 *     mr_alloc; rkey_unpack). It frees the state after the call that ends it. The back end must not free it.
 *
 * Status
 *   - Each int returned is an enum xport_status, or XPI_PENDING where the slot says so. poll and fds return counts.
 *   - The function that detects an error describes it, with xpi_fail() on xpi_be_open_args.err.
 *     XPORT_ERR_AGAIN needs no description.
 *
 * Life of an endpoint
 *
 *   address -> ep_connect+ -> [ am_send am_send_two put get atomic drain ]* -> ep_quiesce+ -> ep_destroy
 *
 *   +  repeated while it returns XPORT_ERR_AGAIN      *  any number of times, in any order
 *
 *   - If address fails, no other slot is called for this endpoint: address must undo what it did.
 *   - ep_quiesce may come at any time after address: also before ep_connect, while it is in progress, or after it failed.
 *   - Data slots are called only after ep_connect has returned XPORT_OK.
 *   - After the first call of ep_quiesce only ep_quiesce, rkey_destroy and ep_destroy are called for this endpoint.
 *   - All remote keys of an endpoint are destroyed before ep_destroy.
 */
#ifndef XPI_BACKEND_H
#define XPI_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "xport.h"

#define XPI_BACKEND_ABI 12

/* Bytes of the longest frame, at least. */
#define XPI_FRAME_LEAST 4096
/* Bytes of a second piece that the peer may still change (am_recv), at least. */
#define XPI_SECOND_CHANGES 2048
/* Bytes of the longest frame that is sent without a credit. */
#define XPI_CONTROL_MAX 760

/* The rights that let peers change a region. */
#define XPI_RIGHTS_TO_CHANGE (XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC)

enum { XPI_CREDITS_MAX = 16384 }; /* the largest xpi_be_caps.am_credits_max */
enum { XPI_PENDING = 1 };         /* accepted; done() follows */

struct xpi_core;    /* the instance; opaque to a back end */
struct xpi_core_ep; /* the endpoint; opaque to a back end */
struct xpi_be;      /* each back end defines its own */
struct xpi_backend;
struct xpi_be_open_args;

/*
 * A request: what the core waits for. The core owns it. The back end may use `priv` from the call that was given the
 * request until done().
 */
struct xpi_req {
	void *priv;
};

/* The functions of the core that a back end calls. "Callbacks" above says from where. */
struct xpi_core_ops {
	/*
	 * am_recv - deliver one frame.
	 *
	 * The frame has exactly the bytes of one am_send or am_send_two. Deliver it in one piece (data NULL, dlen 0),
	 * or in two pieces, cut where the sender cut it. The core reads the bytes during the call only.
	 * The peer must no longer be able to change them. Exception: a second piece of XPI_SECOND_CHANGES or more,
	 * which the core copies once, and never interprets.
	 *
	 * from  the endpoint on whose channel the frame came, as given to `address`. Pass it if only the peer that this
	 *       endpoint is connected to can send on that channel: the endpoint fails if the frame is for another one.
	 *       The endpoint may be quiesced, but must not be destroyed.
	 *       NULL: any process may have sent the frame, or the stack does not report the sender. Then the core goes
	 *       by the frame's session, a random number that only the peer knows. Never derive `from` from
	 *       the bytes of the frame: its sender wrote them.
	 */
	void (*am_recv)(struct xpi_core *core, struct xpi_core_ep *from, const void *hdr, size_t hlen, const void *data,
	                size_t dlen);
	/*
	 * done - complete a request for which a slot returned XPI_PENDING.
	 *
	 * Once for each such request. If ep_quiesce returns XPORT_OK first, not at all: the core ends the rest itself.
	 *
	 * status  XPORT_OK, or an error; the core then fails the endpoint.
	 */
	void (*done)(struct xpi_core *core, struct xpi_req *req, int status);
	/*
	 * ep_failed - report that the network considers this peer gone or unusable.
	 *
	 * A hint: the core decides. Do not tear down anything, since ep_quiesce follows if the core agrees.
	 *
	 * native_code  the stack's own error number
	 * why          a text for people; read during the call only
	 */
	void (*ep_failed)(struct xpi_core *core, struct xpi_core_ep *ep, int64_t native_code, const char *why);
	/*
	 * back_end - find another back end, for a back end that wraps it. From within open only.
	 *
	 * Loads the back end if necessary. In *ops all slots are set, optional ones included. The opener acts as
	 * its core.
	 *
	 * Returns XPORT_OK, or, described,
	 *   XPORT_ERR_NO_BACKEND    no back end of that name, or its module cannot be loaded
	 *   XPORT_ERR_INCOMPATIBLE  its module does not fit this library or this contract
	 *   XPORT_ERR_NO_MEMORY     too many back ends are loaded
	 */
	int (*back_end)(const struct xpi_be_open_args *args, const char *name, const struct xpi_backend **ops);
	/*
	 * same_user - check that the peer is a process of our user on this host. From within ep_connect only.
	 *
	 * Required if the stack maps memory that a peer's address names. Call it before the stack gets
	 * that address.
	 *
	 * Returns XPORT_OK if the kernel confirms it, XPORT_ERR_AGAIN if ep_connect is to return that too and to ask again at its
	 * next call, or, described,
	 *   XPORT_ERR_AUTH    the peer belongs to another user, or the kernel does not report the user
	 *   XPORT_ERR_SYSTEM  called outside the handshake
	 */
	int (*same_user)(struct xpi_core *core, struct xpi_core_ep *ep);
};

/* The arguments of open. `core`, `up`, `log` and `err` are valid until close; the strings during the call only. */
struct xpi_be_open_args {
	const char *provider; /* the part after the colon in XPORT_BACKEND; NULL: the back end chooses */
	struct xpi_core *core;
	const struct xpi_core_ops *up;
	const struct xpi_log *log;
	struct xport_error *err; /* where the back end describes its errors, with xpi_fail() */
	int peer_timeout_ms;
	const char *options; /* the value of XPORT_CHAOS, for the back end of that name; may be NULL */
	const char *shm_dir; /* the value of XPORT_SHM_DIR; may be NULL */
	int traffic_class; /* enum xport_traffic: what XPI_TRAFFIC_OPEN is for */
};

/* Whether the packets with data can be marked with a traffic class (enum xport_traffic). */
enum xpi_traffic {
	XPI_TRAFFIC_NONE,  /* no */
	XPI_TRAFFIC_OPEN,  /* only those of all endpoints, with xpi_be_open_args.traffic_class */
	XPI_TRAFFIC_EACH,  /* those of each endpoint, by the slot ep_mark */
	XPI_TRAFFIC_LOCAL  /* no packet leaves the host: every class is as good as marked */
};

/*
 * The capabilities of an opened back end: what was probed, not what the stack claims. Zero means no, or none.
 *
 * When an instance is opened, the core rejects contradictions with XPORT_ERR_INCOMPATIBLE: a capability without what
 * the comment says that it needs.
 */
struct xpi_be_caps {
	char provider[48], device[64], stack[64]; /* as in struct xport_info */
	char protocol[48];   /* must be equal at both ends, like back end and provider: "ucp-am 1 / 1.13" */
	bool local_provider; /* the provider's name has a meaning on this machine only: the peer's may differ */
	/* frames */
	size_t am_max; /* longest frame, hlen + dlen; at least XPI_FRAME_LEAST. Small operations are packed up to 8 KiB, lists up to am_max */
	unsigned
		am_credits; /* frames of one peer in flight; at least 4. Have buffers for 2 * am_credits + 8, and that in am_recv.
	                      am_credits + 8 of them have at most XPI_CONTROL_MAX bytes */
	unsigned
		am_credits_max; /* so many, if XPORT_FLIGHT asks for more; they need no buffers. 0: am_credits is the limit */
	bool am_cheap; /* a frame costs neither a system call nor device work: few records do not wait for more */
	/*
	 * All peers are on this host: data of this length or more is read from the sender's memory by
	 * process_vm_readv(2), and does not come by am_send. 0: peers may be on other hosts.
	 */
	size_t cma_min;
	/* memory */
	size_t ep_size, mr_size, rkey_size; /* of the back end's state; beside others ep_size is at most 2048 */
	size_t rkey_native_max;             /* longest native key; at most 1024, with lends 192. Needs rkey_pack */
	/*
	 * Rendezvous messages may be put directly into posted receives (XPORT_REMOTE_RECV). Needs put and rma_reg. Then
	 *   - rkey_unpack is also called for keys that the application did not unpack
	 *   - no put that the peer posts over an endpoint may land after ep_quiesce returned XPORT_OK for it
	 */
	bool lends;
	/* put, get */
	bool rma_reg;       /* put and get reach memory from mr_reg; else from mr_alloc only. Needs mr_reg */
	bool put_placed;    /* a completed put is visible to the target's CPU */
	bool am_after_put;  /* a frame, put or get finds earlier puts visible, without drain. Else put needs drain */
	bool drain_places;  /* drained puts are visible to the target's CPU, without calls there. Needs drain */
	bool target_bounds; /* the target, or its hardware, checks the bounds of put and get */
	/*
	 * put, flush and get complete without calls at the target: by mapped memory, put_placed or drain_places. Needs
	 * native keys (rkey_native_max).
	 */
	bool passive_target;
	size_t put_short; /* puts of up to here are never XPI_PENDING; 0: none. Needs put and am_after_put */
	uint64_t rma_max; /* longest put or get, at least 128; 0: any. The core splits, into pieces of at least 64 */
	bool nic_atomic;  /* the slot atomic is usable. Needs atomic, rma_reg, and drain or am_after_put */
	enum xpi_traffic traffic; /* XPI_TRAFFIC_EACH needs ep_mark */
	/* waiting */
	unsigned stack_threads; /* threads that the stack runs for each instance and that cannot be avoided */
	bool by_clock;          /* a descriptor becomes readable from time to time although nothing happened */
	unsigned poll_ms;       /* 0: fds and arm are reliable; else no descriptors: the core polls at this interval */
};

/* Reports one candidate to `list`'s caller; see struct xport_candidate. `c` is read during the call only. */
typedef void (*xpi_candidate_fn)(void *arg, const struct xport_candidate *c);

enum xpi_role { XPI_ACTIVE, XPI_PASSIVE }; /* the side of xport_connect, the side of the listener */

/*
 * The slots.
 *
 *   slot                     required                        PENDING / AGAIN   may call back
 *   list                     yes                             no                emit
 *   open                     yes                             no                back_end
 *   close, query             yes                             no                no
 *   mr_reg                   with caps.rma_reg               no                no
 *   mr_alloc, mr_dereg       no                              no                no
 *   rkey_pack, rkey_unpack   both or none; with put or       AGAIN (pack)      no
 *                            caps.rkey_native_max
 *   rkey_destroy             no                              no                no
 *   address                  yes                             no                done, ep_failed
 *   ep_connect               yes                             AGAIN             done, ep_failed, same_user
 *   ep_mark                  with XPI_TRAFFIC_EACH           AGAIN             no
 *   ep_quiesce               yes                             AGAIN             done, ep_failed
 *   ep_destroy               yes                             no                ep_failed
 *   am_send, am_send_two     yes                             both              no
 *   put, get                 both or none                    both              no
 *   atomic                   with caps.nic_atomic            both              no
 *   drain                    with put or caps.nic_atomic     both              no
 *                            unless caps.am_after_put; with
 *                            caps.drain_places
 *   poll                     yes                             no                am_recv, done, ep_failed
 *   fds                      no                              no                no
 *   arm                      no                              AGAIN             as poll, if it returns AGAIN
 *
 * A missing optional slot is filled in once, when the back end is registered. It then returns XPORT_ERR_NOT_SUPPORTED;
 * fds returns 0, arm XPORT_OK, mr_dereg and rkey_destroy do nothing. A missing required slot is XPORT_ERR_INCOMPATIBLE.
 */
struct xpi_backend {
	unsigned abi; /* XPI_BACKEND_ABI */
	const char *name;

	/* ---- open ---- */

	/*
	 * list - report the providers.
	 *
	 * When: in xport_list, whether or not a back end is open; concurrent with every other slot.
	 * Blocks: may. Owns: nothing; it must leave nothing open.
	 *
	 * Calls `emit` once for each provider, in order of preference. A provider that is not usable is included, with
	 * its reason. Names are "NAME:PROVIDER".
	 *
	 * Returns XPORT_OK, or
	 *   any error  the providers cannot be listed: the core skips the back end
	 */
	int (*list)(const struct xpi_log *log, xpi_candidate_fn emit, void *arg);
	/*
	 * open - open one provider.
	 *
	 * When: in xport_open; of several transports, when a peer needs it. Blocks: may. Owns: *be, until close.
	 *
	 * Opens exactly args->provider, never another one in its place.
	 *
	 * Returns XPORT_OK and *be, or, described, with nothing left open,
	 *   XPORT_ERR_NO_BACKEND  no such provider; the text names the nearest one
	 *   any other error       the provider cannot be opened: the core tries the next candidate of XPORT_BACKEND
	 */
	int (*open)(const struct xpi_be_open_args *args, struct xpi_be **be);
	/*
	 * close - free everything.
	 *
	 * When: in xport_close, or after query if the core rejects the capabilities. All endpoints, regions and keys
	 * are gone, and the descriptors are no longer watched. Blocks: may.
	 */
	void (*close)(struct xpi_be *be);
	/*
	 * query - fill in the capabilities.
	 *
	 * When: once, after open. Blocks: no. *caps is zeroed: leave fields zero that were not probed.
	 */
	void (*query)(struct xpi_be *be, struct xpi_be_caps *caps);

	/* ---- memory ---- */

	/*
	 * mr_reg - register memory of the application.
	 *
	 * When: in xport_mr_reg; in xport_mr_alloc if mr_alloc does not provide the memory; after open, for regions that
	 * exist. Only with caps.rma_reg and caps.rkey_native_max. Blocks: may.
	 * Owns: `mr` (mr_size bytes), until mr_dereg; not the memory.
	 *
	 * rights  XPORT_ATOMIC_NIC is set only with caps.nic_atomic: atomics on the region then use the slot atomic and
	 *         no other path.
	 *
	 * Returns XPORT_OK, also for a region that only messages can reach (rkey_pack then writes 0 bytes), or
	 *   XPORT_ERR_NO_MEMORY  out of memory, or over a limit; the text names the limit
	 *   any other error      the application gets it
	 */
	int (*mr_reg)(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights);
	/*
	 * mr_alloc - allocate and register the memory that peers reach best.
	 *
	 * When: in xport_mr_alloc; only with caps.rkey_native_max, and never with XPORT_ATOMIC_NIC. Blocks: may.
	 * Owns: `mr` and the memory, until mr_dereg.
	 *
	 * The memory is zeroed and page-aligned. *base is its address.
	 *
	 * Returns XPORT_OK, or
	 *   XPORT_ERR_NOT_SUPPORTED  the core allocates the memory, and registers it with mr_reg if caps.rma_reg
	 *   XPORT_ERR_NO_MEMORY      out of memory, or over a limit; the text names the limit
	 *   any other error          the application gets it
	 */
	int (*mr_alloc)(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base);
	/*
	 * mr_dereg - undo mr_reg or mr_alloc.
	 *
	 * When: no operation uses the region. Blocks: may. Frees the memory of mr_alloc.
	 */
	void (*mr_dereg)(struct xpi_be *be, void *mr);
	/*
	 * rkey_pack - write the native key of a region: the bytes that a peer's rkey_unpack needs.
	 *
	 * When: at any time between mr_reg or mr_alloc and mr_dereg, also repeatedly. Blocks: no.
	 *
	 * ep    the connected endpoint whose peer gets the key next: the back end may send it what does not fit a key, as
	 *       a descriptor. NULL: nobody gets this key, the core only asks whether there is one
	 * *len  in: space in buf, rkey_native_max or more. Out: bytes written; 0: no native key, peers use messages.
	 *
	 * Returns XPORT_OK, or
	 *   XPORT_ERR_AGAIN  only with ep: the core calls again after a poll
	 *   any other error  no key: peers use messages
	 */
	int (*rkey_pack)(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len);
	/*
	 * rkey_unpack - prepare a peer's native key for put, get and atomic over one endpoint.
	 *
	 * When: after ep_connect, once the owner has confirmed that the region exists or (caps.lends) has sent the key.
	 * Never within a callback. Blocks: no. Owns: `rkey` (rkey_size bytes), until rkey_destroy.
	 * `buf` is valid during the call.
	 *
	 * start           where the part begins that the key is to, in the region: offset 0 of put, get and atomic. 0 for a
	 *                 key to the whole region. start + length does not overflow.
	 * length, rights  those of the part
	 * *direct         NULL. Set it to the part's address in this process if `length` bytes of it are mapped here
	 *                 with these rights (writable if any of XPI_RIGHTS_TO_CHANGE). Verify this, whatever the native
	 *                 key says. The core then copies and changes words itself, and calls neither put nor get for
	 *                 this key.
	 *
	 * Returns XPORT_OK, or, with nothing left to destroy,
	 *   XPORT_ERR_BAD_KEY  malformed bytes
	 *   any other error    not usable; in both cases the core reaches the region by messages
	 */
	int (*rkey_unpack)(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
	                   uint64_t length, uint32_t rights, void **direct);
	/*
	 * rkey_destroy - end what rkey_unpack prepared.
	 *
	 * When: no operation uses the key; before ep_destroy of its endpoint. Also within a callback.
	 * Blocks: no.
	 */
	void (*rkey_destroy)(struct xpi_be *be, void *rkey);

	/* ---- connect ---- */

	/*
	 * address - prepare an endpoint and write the native address that its peer needs.
	 *
	 * When: once, first for each endpoint. Blocks: no. Owns: `ep` (ep_size bytes), until ep_destroy.
	 *
	 * core_ep  names the endpoint in am_recv and ep_failed
	 * *len     in: space in buf, 2048. Out: bytes written
	 *
	 * Returns XPORT_OK, or
	 *   any error  the connection fails with it; neither ep_quiesce nor ep_destroy follows
	 */
	int (*address)(struct xpi_be *be, void *ep, struct xpi_core_ep *core_ep, void *buf, size_t *len);
	/*
	 * ep_connect - connect to the peer with this address.
	 *
	 * When: after address, when the peer's address is known. Blocks: no. `addr` is valid during the call.
	 *
	 * Frames may arrive as soon as the peer has connected, before this side has.
	 *
	 * Returns XPORT_OK (usable), or
	 *   XPORT_ERR_AGAIN     in progress: the core polls and calls again with the same arguments
	 *   XPORT_ERR_PROTOCOL  malformed address
	 *   any other error     the connection fails with it; ep_quiesce follows
	 */
	int (*ep_connect)(struct xpi_be *be, void *ep, enum xpi_role role, const void *addr, size_t len);
	/*
	 * ep_mark - mark the packets of an endpoint with a traffic class: see base/traffic.h.
	 *
	 * When: only with XPI_TRAFFIC_EACH, and unless the class is XPORT_TRAFFIC_DEFAULT. Before the first call of
	 * ep_connect; if it returned XPORT_ERR_AGAIN, once more after ep_connect has returned XPORT_OK. Blocks: no.
	 *
	 * Returns XPORT_OK (data of this endpoint is marked), or
	 *   XPORT_ERR_AGAIN  only before ep_connect: it is known when the endpoint is connected
	 *   any other error  data is not marked; the endpoint works without
	 */
	int (*ep_mark)(struct xpi_be *be, void *ep, int traffic_class);
	/*
	 * ep_quiesce - stop an endpoint.
	 *
	 * When: at any time after address. Blocks: no.
	 *
	 * After XPORT_OK the network touches no buffer of the endpoint, and done() is called for none of its requests.
	 * Operations cannot be cancelled otherwise: wait until the stack has released the buffers.
	 *
	 * Returns XPORT_OK, or
	 *   XPORT_ERR_AGAIN  in progress: the core polls and calls again, after the first second 50 times a second. This
	 *                    must end, even if the peer is gone and even if poll fails.
	 */
	int (*ep_quiesce)(struct xpi_be *be, void *ep);
	/*
	 * ep_destroy - free what belongs to an endpoint.
	 *
	 * When: once, after ep_quiesce returned XPORT_OK. Blocks: no. The core frees `ep` itself.
	 */
	void (*ep_destroy)(struct xpi_be *be, void *ep);

	/* ---- move data ---- */

	/*
	 * am_send - send one frame to the peer, reliably and in the order of the calls.
	 *
	 * When: at any time between ep_connect and ep_quiesce, also within a callback. Blocks: no.
	 * Owns: the buffer, until done(), if it returns XPI_PENDING. The buffer may be in any memory.
	 *
	 * Returns XPORT_OK    sent or copied: the core may reuse the buffer at once; there is no done()
	 *         XPI_PENDING accepted: the buffer belongs to the back end until done(req)
	 * or, with nothing accepted,
	 *   XPORT_ERR_AGAIN      no queue space: the core tries again after a poll
	 *   XPORT_ERR_NO_MEMORY  likewise; the core fails the endpoint if this lasts for the peer timeout
	 *   any other error      the core fails the endpoint soon; until then it may offer the same again
	 *
	 * put, get, atomic and drain return the same.
	 */
	int (*am_send)(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
	/*
	 * am_send_two - send one frame that is in two buffers.
	 *
	 * As am_send, and in one order with it. Frames with long data come by am_send_two; those that were packed, or
	 * gathered from the pieces of a list, by am_send. Both have any length up to am_max.
	 */
	int (*am_send_two)(struct xpi_be *be, void *ep, const void *hdr, size_t hlen, const void *data, size_t dlen,
	                   struct xpi_req *req);
	/*
	 * put, get - write to, or read from, a peer's region.
	 *
	 * When: between ep_connect and ep_quiesce. Blocks: no. Owns: `buf`, until done(), if it returns XPI_PENDING.
	 *
	 * len     never 0, at most caps.rma_max
	 * mr      the state of the local region that contains `buf`; NULL: `buf` is not registered
	 * rkey    from rkey_unpack on this endpoint
	 * offset  counts from the base of the peer's region
	 * req     NULL for some puts of up to caps.put_short, which are never PENDING
	 *
	 * Complete means, for put: the source may be reused, and with caps.put_placed the bytes are visible at the
	 * target. For get: the bytes are in `buf`.
	 *
	 * A put of up to caps.put_short may be held back after XPORT_OK, to leave together with others. It must leave
	 * at the next poll, or when anything else is accepted for this endpoint. While one is held, arm returns
	 * XPORT_ERR_AGAIN.
	 *
	 * Returns as am_send, or
	 *   XPORT_ERR_NOT_SUPPORTED  the core carries this operation by messages. Only for the first piece of an
	 *                            operation: for example, because `mr` is NULL
	 */
	int (*put)(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
	           struct xpi_req *req);
	int (*get)(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
	           struct xpi_req *req);

	/*
	 * atomic - have the adapter execute an atomic on 8 bytes of a peer's region.
	 *
	 * When: between ep_connect and ep_quiesce, for regions that were registered with XPORT_ATOMIC_NIC. Blocks: no.
	 * Owns: the memory at args->result, until done(), if it returns XPI_PENDING. `args` is valid during the call.
	 *
	 * args->op is XPORT_ATOMIC_ADD or XPORT_ATOMIC_CAS, in the target's byte order. Complete means: executed, and
	 * the old value is in args->result, unless that is NULL. What the capabilities and drain promise for puts holds
	 * for atomics.
	 *
	 * Returns as am_send, or
	 *   XPORT_ERR_NOT_SUPPORTED  the operation ends with this error: the core never executes it by messages
	 */
	int (*atomic)(struct xpi_be *be, void *ep, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
	              struct xpi_req *req);

	/* ---- order ---- */

	/*
	 * drain - order later frames behind earlier puts.
	 *
	 * When: between ep_connect and ep_quiesce, one at a time for each endpoint. Blocks: no.
	 *
	 * Complete means: a frame sent from now on arrives after all earlier puts are visible. With caps.drain_places:
	 * they are visible. It completes with an error if one of these puts failed.
	 *
	 * Returns as am_send.
	 */
	int (*drain)(struct xpi_be *be, void *ep, struct xpi_req *req);

	/* ---- complete ---- */

	/*
	 * poll - make progress and call back.
	 *
	 * When: in each turn of the instance, never within a callback. Blocks: no. At most about 100 events a call.
	 *
	 * Returns the number of events (0: none), or
	 *   any error  the whole back end is unusable: the core fails all endpoints. It goes on calling poll and
	 *              ep_quiesce until they have ended.
	 */
	int (*poll)(struct xpi_be *be);
	/*
	 * fds - write the descriptors that become readable when poll has work to do (after arm).
	 *
	 * When: after open; the core may ask only once. Blocks: no. Owns: the descriptors, unchanged until close.
	 *
	 * Returns how many were written, at most `max`.
	 */
	int (*fds)(struct xpi_be *be, int *fds, int max);
	/*
	 * arm - prepare for sleep on the descriptors.
	 *
	 * When: before a thread sleeps on them, and never within a callback. Blocks: no.
	 *
	 * Returns XPORT_OK  the next event makes a descriptor readable. This holds until any slot but `fds` is called;
	 *                   the core wakes a thread that sleeps then
	 * or
	 *   XPORT_ERR_AGAIN  do not sleep, poll. arm may have polled and called back itself
	 *   any other error  as XPORT_ERR_AGAIN
	 */
	int (*arm)(struct xpi_be *be);
};

/* The one symbol that a back end exports: xpi_backend from a module, xpi_backend_NAME in a static build. */
#ifdef XPI_BUILTIN_BACKENDS
#define XPI_EXPORT_BACKEND(name) const struct xpi_backend xpi_backend_##name
#else
#define XPI_EXPORT_BACKEND(name) \
	extern const struct xpi_backend xpi_backend; \
	const struct xpi_backend xpi_backend __attribute__((visibility("default")))
#endif

#endif
