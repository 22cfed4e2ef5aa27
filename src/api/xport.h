/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport.h - put, get and send over UCX, verbs or libfabric, chosen at run time.
 *
 * This header is the whole interface and its manual.
 *
 * The shape of a program
 * ----------------------
 *   open an instance    xport_open           the environment (XPORT_BACKEND) decides what it travels over
 *   connect endpoints   xport_listen / xport_accept on one side, xport_connect on the other
 *   register memory     xport_mr_reg or xport_mr_alloc, xport_rkey_pack, xport_rkey_unpack at the peer
 *   post operations     xport_put, xport_get, xport_put_notify, xport_atomic, xport_send, xport_recv
 *   reap completions    xport_poll, or xport_wait, or xport_fd in an event loop of your own
 *   end                 xport_ep_close, xport_ep_destroy, xport_mr_dereg, xport_close
 *
 * Completion rule.  A posting function that returns XPORT_OK has accepted the operation, and exactly one completion
 * for it will come out of xport_poll or xport_wait, whatever happens to the peer, the network, or by closing
 * (XPORT_QUIET operations have none).  A posting function that returns an error has not accepted the operation, and
 * no completion comes.  After the completion, also one in error, nothing touches the operation's buffers again.
 *
 * Progress rule.  Operations move while the application calls xport_poll or xport_wait, at both ends; with
 * XPORT_PROGRESS=thread a thread of the library calls for it.  Where xport_info.passive_target is 1 at the target, its
 * application need not call anything for puts and gets: the network itself carries them, once the target has confirmed the
 * key (xport_rkey_info; until then it must poll), or its thread calls.  It says this of its own instance, not of a peer's.
 *
 * Thread rule.  Calls on one instance, and on whatever belongs to it, are made by one thread at a time, unless the
 * instance was opened with XPORT_THREAD_MULTIPLE, or with the progress thread, which imply a lock.  Different
 * instances are independent.  A function says so where its rule differs.  XPORT_STRICT=1 finds out who breaks it.
 *
 * Fork rule.  A forked child may only call exec or _exit; a call on an instance of its parent returns XPORT_ERR_FORK.
 *
 * Ownership rule.  What the application passes by pointer stays its own.  Parameter structs and strings are read
 * during the call only.  Buffers of an operation belong to the library from a successful post to the completion.
 *
 * Parameter structs begin with `size`: set it to sizeof the struct and zero the rest; a zero field means the default.
 * Later versions may add to their ends: a library that does not know a field refuses it unless it is zero
 * (XPORT_ERR_NOT_SUPPORTED), and zeroes one that it should have filled.
 * Functions that can fail return a negative xport_status; xport_last_error tells what, why, and what to do.
 * Sizes and offsets are in bytes; times in milliseconds, -1 meaning without limit.
 */
#ifndef XPORT_H
#define XPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define XPORT_CHECK __attribute__((warn_unused_result))
#else
#define XPORT_CHECK
#endif

/* An opened back end and its progress. */
typedef struct xport xport;
/* A connected peer. */
typedef struct xport_ep xport_ep;
/* A listening address. */
typedef struct xport_listener xport_listener;
/* Registered local memory. */
typedef struct xport_mr xport_mr;
/* The unpacked key of a peer's memory. */
typedef struct xport_rkey xport_rkey;

/* ---- Status ------------------------------------------------------------------------------------------------- */

typedef enum xport_status {
	XPORT_OK = 0,
	XPORT_ERR_AGAIN = -1,     /* queue full: poll, then try again; the fd becomes readable when it is worth it */
	XPORT_ERR_INVALID = -2,   /* an argument that can never be right */
	XPORT_ERR_NO_MEMORY = -3, /* out of memory, or out of memory that may be locked; xport_status(7) */
	XPORT_ERR_NOT_SUPPORTED = -4, /* not on this back end, or not in this build */
	XPORT_ERR_CONFIG = -5,        /* a bad value in the environment or in xport_attr */
	XPORT_ERR_NO_BACKEND = -6,    /* no back end of that name, or none that is usable here */
	XPORT_ERR_FAULT = -7,         /* memory that is not mapped, or not with the rights asked for */
	XPORT_ERR_BOUNDS = -8,        /* outside the remote region */
	XPORT_ERR_ACCESS = -9,        /* a right that the remote region does not grant */
	XPORT_ERR_STALE_KEY = -10,    /* the key's registration, or its process, is gone */
	XPORT_ERR_BAD_KEY = -11,      /* damaged bytes, or not a key */
	XPORT_ERR_TRUNCATED = -12,    /* a message longer than its receive; length tells the true one */
	XPORT_ERR_CANCELED = -13,     /* by xport_cancel */
	XPORT_ERR_PEER_LOST = -14,    /* the peer died, stopped, or is cut off */
	XPORT_ERR_PEER_CLOSED = -15,  /* the peer closed the endpoint */
	XPORT_ERR_CLOSED = -16,       /* this side closed the endpoint, listener or instance */
	XPORT_ERR_TIMEOUT = -17,      /* the time limit of the call passed */
	XPORT_ERR_REFUSED = -18,      /* nobody listens there, or the peer refused */
	XPORT_ERR_UNREACHABLE = -19,  /* no route, or a name that does not resolve */
	XPORT_ERR_INCOMPATIBLE = -20, /* the peer runs another back end, provider or version */
	XPORT_ERR_ADDRESS = -21,      /* malformed host:port, or an address that cannot be bound */
	XPORT_ERR_AUTH = -22,         /* authentication is missing or failed */
	XPORT_ERR_FORK = -23,         /* used in a forked child */
	XPORT_ERR_SYSTEM = -24,       /* a system call failed; the native code is its errno */
	XPORT_ERR_PROTOCOL = -25,     /* the peer sent what it must not send */
	XPORT_ERR_BUSY = -26          /* too late to cancel: already matched */
} xport_status;

/* The text of a status, in English; never NULL, also for numbers that are none.  Any thread. */
const char *xport_strerror(int status);
/* The name of a status, "XPORT_ERR_BOUNDS"; never NULL.  Any thread. */
const char *xport_status_name(int status);
/* The version of the library that is loaded, "0.1.0".  Any thread. */
const char *xport_version(void);

/* What is known about the last failure. */
struct xport_error {
	size_t size;         /* in: sizeof(struct xport_error) */
	int status;          /* the status that was returned */
	int64_t native_code; /* errno or the stack's own code; 0: none */
	char operation[32];  /* "xport_connect" */
	char peer[64];       /* "127.0.0.1:7000", or "" */
	char native[64];     /* the stack's own name for it, or "" */
	char text[512];      /* what went wrong and why, a sentence */
	char hint[256];      /* what to do about it, or "" */
};

/*
 * Copies the last failure of the instance, or, with x NULL, of the calling thread's last failed call that had no
 * instance (xport_open, xport_list, xport_variables).  Ask right after the call: the next one, also one that succeeds, may
 * forget it.  Beside another thread's call XPORT_STRICT=1 has it say just that.  Returns XPORT_OK; XPORT_ERR_INVALID if `error` is NULL or of a
 * wrong size; XPORT_ERR_FORK in a forked child, of an instance of its parent's.
 */
int xport_last_error(const xport *x, struct xport_error *error);

/* ---- Instance ----------------------------------------------------------------------------------------------- */

typedef enum xport_log_level {
	XPORT_LOG_ERROR = 1, /* an operation, endpoint or instance failed and the application may not have seen why */
	XPORT_LOG_WARN = 2,  /* it goes on, but not as asked or not as well as it could */
	XPORT_LOG_INFO = 3,  /* opened, connected, closed, lost: a few lines an endpoint */
	XPORT_LOG_DEBUG = 4  /* for those who read the source */
} xport_log_level;

/*
 * Receives log lines: a stable id ("XP-0012"), a line without newline.  May be called by any thread, also the
 * library's own; must not call the library.
 */
typedef void (*xport_log_fn)(void *arg, int level, const char *id, const char *line);

typedef enum xport_thread_mode {
	XPORT_THREAD_DEFAULT = 0,
	XPORT_THREAD_SERIALIZED = 1, /* the application lets in one thread at a time (the default) */
	XPORT_THREAD_MULTIPLE = 2    /* the library locks */
} xport_thread_mode;

/* How to open.  NULL instead of a struct, or a zero field: from the environment, else the default. */
struct xport_attr {
	size_t size;
	const char *backend;  /* XPORT_BACKEND: "auto", "NAME", "NAME:PROVIDER", or a list in order of preference */
	const char *require;  /* XPORT_REQUIRE: capabilities without which open fails, "target_bounds,passive_target" */
	const char *emulate;  /* XPORT_EMULATE: carried by the core: of "put,get,atomic,cma", or "all" */
	const char *progress; /* XPORT_PROGRESS: "poll" or "thread" or "thread@CORE" */
	int thread_mode;      /* enum xport_thread_mode */
	int peer_timeout_ms;  /* XPORT_PEER_TIMEOUT: silence after which a peer is lost; 200 to 3600000, default 5000 */
	int op_timeout_ms;    /* XPORT_OP_TIMEOUT: an operation older than this fails its endpoint; -1: never */
	uint32_t queue_depth; /* XPORT_QUEUE_DEPTH: operations in flight or unreaped an endpoint, then AGAIN */
	xport_log_fn log_fn;  /* NULL: standard error, or the file named by XPORT_LOG */
	void *log_arg;
	int log_level; /* XPORT_LOG: enum xport_log_level; default XPORT_LOG_WARN */
};

/*
 * Opens an instance.  Reads the environment now and never again (not at all in a set-user-ID program).
 * *x is set on success only.  Errors: CONFIG, NO_BACKEND (the text lists each candidate and its reason), NO_MEMORY,
 * SYSTEM.  Any thread; others may read the environment meanwhile (getenv, localtime, getaddrinfo), but none may change
 * it: the first to load a stack sets variables that it reads.
 */
int xport_open(const struct xport_attr *attr, xport **x) XPORT_CHECK;

/*
 * Closes the instance and all that belongs to it: endpoints that are still open are closed at once (the peers see
 * XPORT_ERR_PEER_CLOSED), unreaped completions are dropped, memory is deregistered, handles become invalid.  NULL is
 * allowed.  No other thread may be in a call on the instance.
 */
void xport_close(xport *x);

/* Whether an operation is carried by the network's own means or by the library's protocol over messages. */
typedef enum xport_path { XPORT_EMULATED = 0, XPORT_NATIVE = 1 } xport_path;

/* What an opened instance is and can do.  Filled by what was probed, not by what a stack claims. */
struct xport_info {
	size_t size;
	char backend[16];        /* "ucx" */
	char provider[48];       /* "tcp" */
	char device[64];         /* "lo", "rxe0", or what the stack chose among, "lo,eth0" */
	char stack[64];          /* "UCX 1.13.1" */
	int put, get, notify;    /* enum xport_path, for memory from xport_mr_alloc */
	int atomic, send, flush; /* enum xport_path */
	int put_reg, get_reg;    /* enum xport_path, for memory from xport_mr_reg */
	int target_bounds;       /* 1: every remote access is checked at the target as well */
	int passive_target;      /* 1: peers' puts and gets need no calls here, see the progress rule */
	int stack_threads;       /* threads that the stack runs for this instance beside the helper thread */
	int thread_mode;         /* enum xport_thread_mode in force */
	int peer_timeout_ms;
	uint32_t queue_depth;
	uint64_t eager_max; /* longest send that may complete before it is matched; the smaller of both sides' counts */
	uint64_t frame_max; /* longest frame of the core's protocol */
	uint64_t message_max; /* longest send, put or get */
	uint64_t window;      /* bytes of unmatched messages and unreaped notifications an endpoint may have sent */
	uint64_t rkey_max;    /* longest packed key */
	uint64_t private_max; /* longest private data of a connection */
	int nic_atomic;       /* enum xport_path of atomics, for regions registered with XPORT_ATOMIC_NIC */
};

int xport_query(xport *x, struct xport_info *info) XPORT_CHECK;

typedef enum xport_state {
	XPORT_READY = 0,         /* can be opened here and now */
	XPORT_ABSENT = 1,        /* built, but the stack or the device is not on this machine */
	XPORT_MISCONFIGURED = 2, /* there, but something stops it: the reason and the hint say what */
	XPORT_NOT_BUILT = 3      /* left out when this library was configured */
} xport_state;

/* One thing that XPORT_BACKEND could name. */
struct xport_candidate {
	char name[64];    /* "ucx:tcp" */
	int state;        /* enum xport_state */
	char reason[192]; /* why not, or what it is */
	char hint[192];   /* what to do about it, or "" */
};

/*
 * Lists the candidates in the order in which "auto" tries them, by really asking the stacks.  Writes at most `max`
 * entries of `entry_size` = sizeof(struct xport_candidate) bytes and returns how many there are, or an error.
 * `attr` as for xport_open.  Threads: as xport_open.
 */
int xport_list(const struct xport_attr *attr, struct xport_candidate *list, size_t entry_size, int max) XPORT_CHECK;

/* One variable that the library reads from the environment.  The strings are the library's, but `value`, which is the
 * environment's. */
struct xport_variable {
	const char *name;     /* "XPORT_PEER_TIMEOUT" */
	const char *type;     /* "time" */
	const char *range;    /* "200ms to 1h" */
	const char *standard; /* what holds where it is not set: "5s", or "" for nothing */
	const char *text;     /* what it is for */
	const char *value;    /* as the environment has it; NULL: not set, empty, or not read (set-user-ID program) */
	char problem[192];    /* why xport_open would refuse this value, or "" */
};

/*
 * Lists the variables, all of them, in the order in which they are read.  Writes at most `max` entries of `entry_size` =
 * sizeof(struct xport_variable) bytes and returns how many there are.  INVALID as for xport_list.  Any thread, while
 * none changes the environment.
 */
int xport_variables(struct xport_variable *list, size_t entry_size, int max) XPORT_CHECK;

/* ---- Connections -------------------------------------------------------------------------------------------- */

/* Options of xport_listen and xport_connect.  NULL: all defaults. */
struct xport_conn_attr {
	size_t size;
	const void *private_data; /* handed to the peer with the connection; copied */
	size_t private_len;       /* at most xport_info.private_max */
	void *context;            /* xport_ep_info.context of the new endpoint (listen: of each accepted one) */
	int backlog;              /* listen: connections that may wait for xport_accept; 0: 64 */
};

/*
 * Listens on "host:port": an IPv4 address, an IPv6 address in brackets, a name, or "*" for all addresses; port 0 lets
 * the system choose.  While the application polls, incoming connections are checked, refused if they do not fit, and
 * made ready for xport_accept; at most 64 may be half made, each at most 5 s long.  A name is looked up within the call,
 * which may take long.  An address off loopback needs
 * XPORT_AUTH_KEY_FILE, or XPORT_AUTH=none.  Errors: ADDRESS, UNREACHABLE (the name does not resolve), AUTH, INVALID,
 * NO_MEMORY, SYSTEM.
 */
int xport_listen(xport *x, const char *address, const struct xport_conn_attr *attr,
                 xport_listener **listener) XPORT_CHECK;

/* Writes the listener's own "host:port" with the real port, NUL-terminated.  BOUNDS if `len` is too short. */
int xport_listener_name(const xport_listener *listener, char *buf, size_t len) XPORT_CHECK;

/*
 * Takes the next ready connection, waiting up to `timeout_ms` (0: only look); makes progress while it waits.  When
 * one becomes ready, XPORT_EVENT_INCOMING tells, unless this call has taken it before the event was reaped.
 * Errors: TIMEOUT, CLOSED, SYSTEM.
 */
int xport_accept(xport_listener *listener, int timeout_ms, xport_ep **ep) XPORT_CHECK;

/*
 * Stops listening and closes connections that nobody accepted.  Those of which a completion or event has told are to be
 * destroyed by the application, after XPORT_EVENT_LOST unless their end was told before.  Another thread that waits in
 * xport_accept is told CLOSED; none may begin to.  NULL is allowed.
 */
void xport_listener_close(xport_listener *listener);

/*
 * Connects to a listener.  Waits up to `timeout_ms` (-1: 30 s) and makes progress while it waits.  With 0 it returns
 * at once, with an error if it is already known, else XPORT_EVENT_CONNECTED or XPORT_EVENT_LOST follows; operations may
 * be posted only after CONNECTED.  A name that is no number is looked up within the call, also with 0, and no limit ends
 * that: event loops pass numbers.
 * Errors: ADDRESS, UNREACHABLE, REFUSED, TIMEOUT, INCOMPATIBLE, AUTH, PROTOCOL, NO_MEMORY, SYSTEM.
 */
int xport_connect(xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms,
                  xport_ep **ep) XPORT_CHECK;

/*
 * Closes: refuses new operations, lets those already posted finish for up to `timeout_ms`, tells the peer (which sees
 * XPORT_EVENT_CLOSED after everything that was sent, if the time sufficed), then completes what is left, receives from this
 * peer included, with XPORT_ERR_CLOSED, or PEER_CLOSED where the peer's closing cut it off.  0: at once, and never TIMEOUT:
 * the completions tell what was cut off, but a send that had completed may be, too, since that it completed says no more
 * than that the buffer is free.  The handle stays valid until xport_ep_destroy; to post on it is XPORT_ERR_CLOSED, but a
 * receive still takes what had arrived.
 * Returns XPORT_OK, which says, but for 0, that the peer's library has taken all that was posted, also messages that had
 * completed (not, that its application has received them); TIMEOUT if not everything ended in time (the endpoint is closed
 * all the same); PEER_LOST or PEER_CLOSED if the peer was gone before all had ended or been taken; what ended it, if
 * something else did (an error of xport_connect's, NO_MEMORY); CLOSED if it was closed already.
 */
int xport_ep_close(xport_ep *ep, int timeout_ms);

/*
 * Closes at once if need be, and gives the handle back.  Its completions stay to be reaped: messages and notifications with
 * xport_completion.ep NULL, the others name what is no handle any more.  What was reaped before may be looked at: until the
 * next xport_poll or xport_wait, of any thread, xport_ep_query says that it is closed.  Keys that were unpacked on it are still
 * to be given back, and keep its memory until then.  NULL is allowed.
 */
void xport_ep_destroy(xport_ep *ep);

typedef enum xport_ep_state {
	XPORT_EP_CONNECTING = 0,
	XPORT_EP_OPEN = 1,
	XPORT_EP_CLOSED = 2, /* here, or by the peer */
	XPORT_EP_LOST = 3
} xport_ep_state;

struct xport_ep_info {
	size_t size;
	int state;                /* enum xport_ep_state */
	int reason;               /* why it ended: a status; XPORT_OK while it lives */
	char peer[64];            /* "host:port" of the peer's end of the control channel */
	char local[64];           /* of this end */
	char peer_host[64];       /* the peer's host name, as it gave it */
	int64_t peer_pid;         /* the peer's process id, as it gave it */
	const void *private_data; /* what the peer gave; valid until xport_ep_destroy */
	size_t private_len;
	void *context;
	uint64_t in_flight; /* operations accepted and not yet reaped */
};

int xport_ep_query(const xport_ep *ep, struct xport_ep_info *info) XPORT_CHECK;

/* What happened on an endpoint, ever, and how it stands.  Always counted.  Later versions add to the end. */
struct xport_counters {
	size_t size;
	uint64_t puts, gets, put_notifies, atomics, sends, flushes; /* accepted */
	uint64_t receives;                                          /* receives that a message was matched to */
	uint64_t notifications;                                     /* that arrived */
	uint64_t bytes_out;                                         /* of puts, notified puts and sends accepted */
	uint64_t bytes_in;        /* of gets accepted, and of messages into their receives */
	uint64_t again;           /* posts answered XPORT_ERR_AGAIN */
	uint64_t in_flight;       /* operations accepted and not yet reaped, and events */
	uint64_t in_flight_max;   /* the most that were so at a time; the instance's: the most of an endpoint */
	uint64_t unmatched;       /* messages that wait for a receive */
	uint64_t posted_receives; /* receives without a message; an endpoint's: those that name it as source */
	uint64_t frames_out;      /* frames sent; several small operations may share one */
	uint64_t frames_in;       /* frames received */
	uint64_t frames_acked;    /* of frames_out, acknowledged by the peer */
	uint64_t acks_out;        /* frames besides, which only acknowledge or tell of failures: sent */
	uint64_t acks_in;         /* and received */
	uint64_t errors[32];      /* operations that ended in error, by status: errors[-XPORT_ERR_PEER_LOST] */
};

/*
 * Fills in the endpoint's counters; with ep NULL the sums of all endpoints that the instance has had, and what belongs to
 * none.  An endpoint's stay until xport_ep_destroy.  What of the struct this library does not know is zeroed.  INVALID:
 * the size is too small, or the endpoint another instance's.
 */
int xport_stats(xport *x, const xport_ep *ep, struct xport_counters *counters) XPORT_CHECK;

/* ---- Memory ------------------------------------------------------------------------------------------------- */

typedef enum xport_rights {
	XPORT_REMOTE_READ = 1,   /* get */
	XPORT_REMOTE_WRITE = 2,  /* put */
	XPORT_REMOTE_ATOMIC = 4, /* atomic */
	XPORT_ATOMIC_NIC = 8,    /* with XPORT_REMOTE_ATOMIC: the adapter may carry it, see xport_atomic */
	XPORT_REMOTE_RECV = 16   /* senders' adapters may write messages received into it, see xport_recv */
} xport_rights;

/*
 * Registers memory of the application's.  `rights`: any of enum xport_rights, or 0 for memory that is only a local
 * buffer.  The memory must stay mapped until xport_mr_dereg returned.  Errors: INVALID (NULL, zero length, base plus
 * length overflows), FAULT (not mapped, or not writable where writing is granted), NO_MEMORY.
 */
int xport_mr_reg(xport *x, void *base, size_t length, uint32_t rights, xport_mr **mr) XPORT_CHECK;

/*
 * Allocates memory, zeroed and page-aligned, and registers it: the fastest memory that the back end has.  Freed by
 * xport_mr_dereg.
 *
 * Over shared memory peers map it (xport_rkey_info.direct): their puts are plain copies, their atomics instructions.  So nothing keeps
 * a peer that was only stopped, and so was lost, from going on in it when it wakes, until it notices.  What
 * must not change after the event that told of the loss is memory for xport_mr_reg, which nobody maps.
 */
int xport_mr_alloc(xport *x, size_t length, uint32_t rights, xport_mr **mr) XPORT_CHECK;

/*
 * Ends a registration.  Waits until no peer can reach the memory any more, and for operations of this side that use
 * it; from then on its keys are XPORT_ERR_STALE_KEY everywhere: at once, or, where the peer has not heard of it yet, as
 * the operation's completion.  BUSY: a posted receive uses it; nothing was done.  NULL is allowed.
 */
int xport_mr_dereg(xport_mr *mr);

struct xport_mr_info {
	size_t size;
	void *base;
	size_t length;
	uint32_t rights;
	int allocated; /* 1: by xport_mr_alloc */
};

int xport_mr_query(const xport_mr *mr, struct xport_mr_info *info) XPORT_CHECK;

/*
 * Writes the region's key: opaque bytes to be sent to peers by any means.  `*len`: in, room in `buf`; out, bytes
 * written, or needed if the call returns XPORT_ERR_BOUNDS (also with `buf` NULL).
 */
int xport_rkey_pack(const xport_mr *mr, void *buf, size_t *len) XPORT_CHECK;

/*
 * Makes a key of the peer's usable on the endpoint that leads to it.  Errors: BAD_KEY (damaged, or no key),
 * STALE_KEY (of another process or incarnation than this peer), INVALID, NO_MEMORY, CLOSED and its like.
 */
int xport_rkey_unpack(xport_ep *ep, const void *buf, size_t len, xport_rkey **rkey) XPORT_CHECK;

/* Gives the key back; operations in flight that use it go on unharmed.  NULL is allowed. */
void xport_rkey_destroy(xport_rkey *rkey);

struct xport_rkey_info {
	size_t size;
	uint64_t length;
	uint32_t rights;
	int put, get; /* enum xport_path of this region on this endpoint: native once its owner has confirmed the key */
	int direct;   /* 1: the memory is mapped here: put and get are copies, an atomic is this CPU's */
	int atomic;   /* enum xport_path: native where the owner's adapter carries atomics on it */
};

int xport_rkey_query(const xport_rkey *rkey, struct xport_rkey_info *info) XPORT_CHECK;

/* ---- Operations --------------------------------------------------------------------------------------------- */

enum {
	XPORT_LOCAL = 1, /* put: complete when the source buffer is the caller's again, not when placed */
	XPORT_QUIET = 2, /* put, put_notify, get, atomic without result: no completion; once a later xport_flush
	                    completed, the buffer may be reused, and a get's holds the bytes; failures after the post
	                    are reported by that flush */
	XPORT_EAGER = 4  /* recv: takes whole messages of up to the eager_max (xport_info) of both sides alone, and so
	                    never waits for a sender; one that is longer completes it with XPORT_ERR_TRUNCATED and none of
	                    its bytes, however long the buffer is */
};

/* What an operation may carry beyond its own arguments.  NULL: none of it. */
struct xport_opt {
	size_t size;
	uint64_t flags;   /* XPORT_LOCAL, XPORT_QUIET, XPORT_EAGER */
	void *context;    /* xport_completion.context */
	xport_mr *mr;     /* the local region that holds the buffer; NULL: not registered (copied where need be) */
	uint64_t value;   /* xport_put_notify: the value that arrives */
	xport_ep *source; /* xport_recv: only from this peer; NULL: from any */
	uint64_t *id;     /* xport_recv: where to write the id that xport_cancel takes; NULL: nowhere */
};

/*
 * Writes `len` bytes at `offset` of the remote region.  Completes when they are visible to loads by the target's CPU
 * (XPORT_LOCAL: when `buf` may be reused).  Zero length is checked like any other and moves nothing.
 * Errors at once: BOUNDS, ACCESS, STALE_KEY, AGAIN, INVALID, CLOSED, PEER_LOST, PEER_CLOSED.
 */
int xport_put(xport_ep *ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
              const struct xport_opt *opt) XPORT_CHECK;

/* Reads `len` bytes at `offset` of the remote region into `buf`; completes when they are there. */
int xport_get(xport_ep *ep, void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
              const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_put, and then XPORT_EVENT_NOTIFY with opt->value comes out of the target's xport_poll, after these bytes and
 * all earlier puts of this endpoint are visible there, in order with its sends.  Nothing need be posted for it.
 * Completes as xport_put does.
 */
int xport_put_notify(xport_ep *ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
                     const struct xport_opt *opt) XPORT_CHECK;

typedef enum xport_atomic_op {
	XPORT_ATOMIC_ADD = 0,
	XPORT_ATOMIC_AND = 1,
	XPORT_ATOMIC_OR = 2,
	XPORT_ATOMIC_XOR = 3,
	XPORT_ATOMIC_SWAP = 4,
	XPORT_ATOMIC_CAS = 5
} xport_atomic_op;

struct xport_atomic_args {
	size_t size;
	int op;           /* enum xport_atomic_op */
	int width;        /* 4 or 8 bytes; the word is in the target's byte order */
	uint64_t operand; /* CAS: the new value */
	uint64_t compare; /* CAS: the expected value */
	void *result;     /* where the old value goes, `width` bytes; NULL: not fetched (SWAP and CAS may do without) */
};

/*
 * Changes one naturally aligned word of the remote region, atomically against all other atomics on it and against
 * C11 atomics of the target's CPU.  After a lost peer it may or may not have been applied.  The target carries it out as it
 * makes progress; where the region is mapped here (xport_rkey_info.direct), this call does, as of a put.
 * Errors as xport_put; INVALID if misaligned.
 *
 * A region with XPORT_ATOMIC_NIC promises less, the same on every network, so that an adapter can carry its atomics
 * without the target's calls (xport_rkey_info.atomic tells whether one does): XPORT_ATOMIC_ADD and XPORT_ATOMIC_CAS of 8
 * bytes, others are NOT_SUPPORTED at once; atomic against each other, not against the target's CPU, which may read the
 * words, nor against puts to them.  Register no such word twice.
 */
int xport_atomic(xport_ep *ep, const struct xport_atomic_args *args, xport_rkey *rkey, uint64_t offset,
                 const struct xport_opt *opt) XPORT_CHECK;

/*
 * Sends a message.  Completes when `buf` is the caller's again: for a long one not before it is matched.  Messages
 * and notifications of one endpoint arrive in the order posted; a long one does so when it is matched, and its receive
 * completes once its bytes are there, which may be after what was posted later.  The peer's memory for messages that nobody
 * receives is bounded (xport_info.window): beyond it they wait here, and beyond the queue depth the call is AGAIN.
 */
int xport_send(xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt) XPORT_CHECK;

/*
 * Posts a receive for a message whose tag equals `tag` in all bits of `mask`, from opt->source or any peer.  Posted
 * receives match in the order posted.  A longer message completes it with XPORT_ERR_TRUNCATED: the first `len` bytes
 * and the true length.  One that is longer than eager_max (xport_info) of either side is fetched once it is matched, as fast as
 * its sender polls; a receive that is to wait for no sender has XPORT_EAGER.  A message may come before xport_accept or
 * xport_connect has handed out its endpoint: xport_completion.ep is the one that it will; or XPORT_EVENT_LOST comes for it,
 * and it is to be destroyed.
 * If the receive's opt->mr has XPORT_REMOTE_RECV and the sender gives its opt->mr, such a long message is not copied on the
 * way where the network can do without (verbs): the sender's adapter writes it.  Who has sent a long message into such a
 * region, or has a key to it with whatever right, has the means to write anywhere in it until it is deregistered, and is
 * trusted not to.  With XPORT_REQUIRE=target_bounds such messages are copied, as elsewhere.
 * Errors: AGAIN (queue_depth receives are posted), INVALID, and those of the source endpoint.
 */
int xport_recv(xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt) XPORT_CHECK;

/*
 * Cancels a posted receive: it completes with XPORT_ERR_CANCELED.  BUSY: already matched, it completes by itself.
 * INVALID: no such receive (any more).
 */
int xport_cancel(xport *x, uint64_t id);

/*
 * Orders: whatever is posted on the endpoint after it takes effect after the puts, gets and atomics posted before it.
 * Does not wait.
 */
int xport_fence(xport_ep *ep) XPORT_CHECK;

/*
 * Posts a flush: completes when every earlier put, notified put and atomic of the endpoint is placed and every quiet
 * operation's buffer is the caller's again, a get's with its bytes; in error on any doubt.  Sends need not have been
 * matched.
 */
int xport_flush(xport_ep *ep, const struct xport_opt *opt) XPORT_CHECK;

/* ---- Completions -------------------------------------------------------------------------------------------- */

typedef enum xport_type {
	XPORT_OP_PUT = 1,
	XPORT_OP_GET = 2,
	XPORT_OP_PUT_NOTIFY = 3,
	XPORT_OP_ATOMIC = 4,
	XPORT_OP_SEND = 5,
	XPORT_OP_RECV = 6,
	XPORT_OP_FLUSH = 7,
	XPORT_EVENT_NOTIFY = 16,    /* tag: the value; length, offset, mr: where the put went */
	XPORT_EVENT_CONNECTED = 17, /* ep is open (only after xport_connect with timeout 0) */
	XPORT_EVENT_CLOSED =
		18, /* the peer closed ep; if with time enough, everything it sent before has been delivered */
	XPORT_EVENT_LOST = 19,    /* ep is lost, or could not be connected; status tells */
	XPORT_EVENT_INCOMING = 20 /* a connection waits for xport_accept; context: the listener */
} xport_type;

/* One completion or event.  Its layout is fixed. */
struct xport_completion {
	int32_t status; /* xport_status */
	uint32_t type;  /* enum xport_type */
	void *context;  /* of the operation; of the endpoint for its events */
	xport_ep *
		ep; /* the endpoint; recv: the source; NULL: none, or (recv, notify) it was destroyed before this was reaped */
	uint64_t tag;    /* recv: the message's tag; notify: the value */
	uint64_t length; /* bytes of the operation; recv: true length of the message; notify: of the put */
	uint64_t offset; /* notify: where in mr the put went */
	xport_mr *mr;    /* notify: the region; NULL if it was deregistered since, or for zero bytes */
	uint64_t reserved;
};

/*
 * Makes progress and writes up to `max` completions; returns how many (0: none), or an error: INVALID (also with
 * XPORT_STRICT=1 beside another thread's call), FORK, or what broke the back end, SYSTEM or the like: then every endpoint is
 * lost, and all that is left is to reap and to close.
 * With `max` 0, `list` NULL: only progress.  Never blocks.  Of threads that poll side by side each sees its own in order,
 * and none knows the order among them.
 */
int xport_poll(xport *x, struct xport_completion *list, int max);

/*
 * xport_poll, waiting up to `timeout_ms` (-1: for ever) until there is at least one.  Returns 0 after the time limit,
 * when an operation that was answered AGAIN is worth trying again, and when a signal handler ran while it slept, or the
 * process was stopped meanwhile and went on (signal(7): the kernel makes no difference).  From its first sleep on it lets
 * signals in only while it sleeps, so that none goes unnoticed.  Before that it polls for a moment: where a handler that
 * runs then matters, block the signal and sleep in ppoll(2) on xport_fd.
 */
int xport_wait(xport *x, struct xport_completion *list, int max, int timeout_ms);

/*
 * The instance's one file descriptor, for poll(2), epoll(7) and their like: readable (level-triggered) when
 * xport_poll should be called.  Nothing need be armed, and it stays the same: ask once, or each time.  Owned by the library.
 * Returns it, or an error.
 */
int xport_fd(xport *x);

/* Writes the instance's endpoints and their operations in flight to the log sink, for somebody who has to find out
 * why nothing moves. */
void xport_dump(xport *x);

#ifdef __cplusplus
}
#endif

#endif
