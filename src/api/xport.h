/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport.h - put, get and send over UCX, verbs or libfabric, chosen at run time.
 *
 * This header is the whole interface and its manual.
 *
 * The shape of a program
 * ----------------------
 *   open an instance    xport_open           the variable XPORT_BACKEND selects the transport
 *   connect endpoints   xport_listen / xport_accept on one side, xport_connect on the other
 *   register memory     xport_mr_reg or xport_mr_alloc, xport_rkey_pack, xport_rkey_unpack at the peer
 *   post operations     xport_put, xport_get, xport_put_notify, xport_atomic, xport_send, xport_recv;
 *                       with lists of pieces: xport_putv, xport_getv, xport_sendv, xport_recvv
 *   reap completions    xport_poll, or xport_wait, or xport_fd in an event loop of the application
 *   end                 xport_ep_close, xport_ep_destroy, xport_mr_dereg, xport_close
 *
 * Completion rule.  A posting function that returns XPORT_OK has accepted the operation.  Exactly one completion for
 * it is then returned by xport_poll or xport_wait, even if the peer dies, the network fails, or the endpoint is
 * closed.  XPORT_QUIET operations have no completion.  xport_close drops completions that were not reaped.  A
 * posting function that returns an error has not accepted the operation, and no completion follows.  After the
 * completion, even one in error, nothing accesses the buffers of the operation.
 *
 * Progress rule.  Operations make progress only while the applications at both ends call xport_poll or xport_wait.  In
 * an instance opened with XPORT_PROGRESS=thread, a thread of the library makes progress instead.
 *   - If xport_info.passive_target is 1 at the target, native puts and gets need no calls by the target's application.
 *     Query it on the target: it describes the local instance.
 *   - xport_rkey_info.put and .get, at the initiator, show whether they are native for a region.  They become native
 *     when the target has confirmed the key.  Until then the target must poll, or have a progress thread.
 *
 * Thread rule.  Only one thread at a time may be in a call on an instance, or on an object that belongs to it.  The
 * library locks by itself if the instance was opened with XPORT_THREAD_MULTIPLE or with the progress thread.
 * Different instances are independent.  A function with a different rule says so in its comment.  With
 * XPORT_STRICT=1 concurrent calls are detected and fail.
 *
 * Fork rule.  A forked child may only call exec or _exit.  A call on an instance of its parent returns
 * XPORT_ERR_FORK.
 *
 * Ownership rule.  Memory that the application passes by pointer belongs to the application.  Parameter structs and
 * strings are read during the call only.  The buffers of an operation belong to the library from a successful post
 * to the completion.
 *
 * Parameter structs begin with `size`: set it to sizeof the struct, and set unused fields to zero.  A zero field
 * means the default.  Later versions may add fields to the end of a struct.  A parameter struct is refused if a field
 * that this version does not know is not zero.  The status is then XPORT_ERR_NOT_SUPPORTED, or XPORT_ERR_CONFIG for
 * struct xport_attr.  In a struct that the library fills, fields unknown to this version are zeroed.
 *
 * Errors.  A function that can fail returns a negative xport_status.  xport_last_error has the cause, and what to do
 * about it.  On an error no result is stored through a pointer, unless the function's comment says so.  The comment
 * of each function lists its errors.  In addition, every call on an instance, or on an object of it, can return:
 *   XPORT_ERR_FORK     the process is a forked child of the process that opened the instance
 *   XPORT_ERR_INVALID  XPORT_STRICT=1 is set, the instance has no lock (see the thread rule), and another thread is
 *                      in a call on it
 * A function that returns no status does nothing in these cases.  Exceptions: xport_close does not detect concurrent
 * calls, and xport_last_error reports them in its result.
 *
 * Units.  Sizes and offsets are in bytes.  Times are in milliseconds.  A time limit of -1 means no limit, unless
 * the function's comment gives another meaning; one below -1 is refused with XPORT_ERR_INVALID.
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

/* An instance: an opened back end, with its endpoints, memory and progress. */
typedef struct xport xport;
/* An endpoint: a connection to one peer. */
typedef struct xport_ep xport_ep;
/* A listener: an address that peers connect to. */
typedef struct xport_listener xport_listener;
/* A region: registered local memory. */
typedef struct xport_mr xport_mr;
/* The unpacked key of a peer's region. */
typedef struct xport_rkey xport_rkey;

/* ---- Status ------------------------------------------------------------------------------------------------- */

/* Result of a call or of an operation.  xport_status(7) has the usual cause of each, and what to do. */
typedef enum xport_status {
	XPORT_OK = 0, /* success; of a posting function: the operation was accepted */
	/* The queue is full.  Poll, then try again.  The descriptor of xport_fd is readable when there is space. */
	XPORT_ERR_AGAIN = -1,
	XPORT_ERR_INVALID = -2,       /* an argument that is never allowed, or a call that is not allowed now */
	XPORT_ERR_NO_MEMORY = -3,     /* out of memory, or over the limit of locked memory */
	XPORT_ERR_NOT_SUPPORTED = -4, /* not supported by this back end or this build */
	XPORT_ERR_CONFIG = -5,        /* a bad value in the environment or in struct xport_attr */
	XPORT_ERR_NO_BACKEND = -6,    /* no back end has that name, or none is usable */
	XPORT_ERR_FAULT = -7,         /* memory is not mapped, or does not allow the needed access */
	XPORT_ERR_BOUNDS = -8,        /* outside the remote region; or a buffer for a name or key is too small */
	XPORT_ERR_ACCESS = -9,        /* the remote region does not grant the right that is needed */
	XPORT_ERR_STALE_KEY = -10,    /* the region was deregistered, or the process that owned it has ended */
	XPORT_ERR_BAD_KEY = -11,      /* damaged bytes, or not a key */
	XPORT_ERR_TRUNCATED = -12,    /* the message was longer than its receive; length is its full length */
	XPORT_ERR_CANCELED = -13,     /* cancelled by xport_cancel, or its sender withdrew the message */
	XPORT_ERR_PEER_LOST = -14,    /* the peer died, was suspended for too long, or is cut off */
	XPORT_ERR_PEER_CLOSED = -15,  /* the peer closed the endpoint */
	XPORT_ERR_CLOSED = -16,       /* this side closed the endpoint, listener or instance */
	XPORT_ERR_TIMEOUT = -17,      /* the time limit of the call, the deadline of an operation, or XPORT_OP_TIMEOUT */
	XPORT_ERR_REFUSED = -18,      /* nobody listens at the address, or the peer refused the connection */
	XPORT_ERR_UNREACHABLE = -19,  /* no route, or a name that does not resolve */
	XPORT_ERR_INCOMPATIBLE = -20, /* the peer runs another back end, provider or version */
	XPORT_ERR_ADDRESS = -21,      /* malformed host:port, or an address that cannot be bound */
	XPORT_ERR_AUTH = -22,         /* authentication is missing or failed */
	XPORT_ERR_FORK = -23,         /* called in a forked child */
	XPORT_ERR_SYSTEM = -24,       /* a system call failed; xport_error.native_code is its errno */
	XPORT_ERR_PROTOCOL = -25,     /* the peer violated the protocol of the library */
	XPORT_ERR_BUSY = -26          /* the receive has matched already, or posted receives use the region */
} xport_status;

/*
 * xport_strerror - get the text of a status, in English.
 *
 * Any thread may call it at any time.
 *
 * Returns a static string: do not free it.  It is never NULL, even if `status` is not a valid status.
 */
const char *xport_strerror(int status);

/*
 * xport_status_name - get the name of a status, such as "XPORT_ERR_BOUNDS".
 *
 * Any thread may call it at any time.
 *
 * Returns a static string: do not free it.  It is never NULL, even if `status` is not a valid status.
 */
const char *xport_status_name(int status);

/*
 * xport_version - get the version of the library that is loaded, such as "0.1.0".
 *
 * Any thread may call it at any time.
 *
 * Returns a static string: do not free it.
 */
const char *xport_version(void);

/* The last failure.  Strings are terminated by NUL. */
struct xport_error {
	size_t size;         /* in: sizeof(struct xport_error) */
	int status;          /* enum xport_status: the status that the function returned */
	int64_t native_code; /* errno, or the code of the network's library; 0: none */
	char operation[32];  /* the function, such as "xport_connect" */
	char peer[64];       /* the peer that the failure is about, such as "127.0.0.1:7000"; "": none */
	char native[64];     /* the name of native_code; "": none */
	char text[512];      /* what went wrong and why, a sentence */
	char hint[256];      /* what to do about it; "": nothing */
};

/*
 * xport_last_error - get the cause of the last failure.
 *
 * Copies the last failure of the instance `x` to *error.  With `x` NULL it copies the last failure of xport_open,
 * xport_list or xport_variables in the calling thread.  A failed operation that was accepted is reported by its
 * completion, not here.
 *
 * Any thread may call it with `x` NULL.  Set error->size before the call.  Call it right after the failure: any
 * later call may replace or clear the error, even one that succeeds.
 *
 * If XPORT_STRICT=1 is set and another thread is in a call on the instance, the call returns XPORT_OK and *error
 * reports the concurrent call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    error is NULL; error->size is wrong
 */
int xport_last_error(const xport *x, struct xport_error *error);

/* ---- Instance ----------------------------------------------------------------------------------------------- */

/* The level of a log line.  Lines of the chosen level and of those with a lower number are written. */
typedef enum xport_log_level {
	XPORT_LOG_ERROR = 1, /* an operation, endpoint or instance failed, and the application may not know why */
	XPORT_LOG_WARN = 2,  /* the library continues, but not as requested, or not as well as it could */
	XPORT_LOG_INFO = 3,  /* opened, connected, closed, lost: a few lines for each endpoint */
	XPORT_LOG_DEBUG = 4  /* for readers of the source */
} xport_log_level;

/*
 * Receives one log line.  `arg` is xport_attr.log_arg, and `level` is enum xport_log_level.  `id` is a stable id,
 * such as "XP-0012".  `line` has no newline.  Any thread may call the function, including threads of the library.
 * The function must not call the library.
 */
typedef void (*xport_log_fn)(void *arg, int level, const char *id, const char *line);

/* Who ensures that only one thread is in a call on an instance. */
typedef enum xport_thread_mode {
	XPORT_THREAD_DEFAULT = 0,    /* the default, which is XPORT_THREAD_SERIALIZED */
	XPORT_THREAD_SERIALIZED = 1, /* the application */
	XPORT_THREAD_MULTIPLE = 2    /* the library, by a lock */
} xport_thread_mode;

/*
 * How urgent the packets of a connection are to the network.  Both directions of a connection have the same class: that of the
 * side that connects, or that of the listening side if the connecting side has the default.
 */
typedef enum xport_traffic {
	XPORT_TRAFFIC_DEFAULT = 0, /* packets are marked as the system does */
	XPORT_TRAFFIC_BULK = 1,    /* gives way to everything else: the code point LE of RFC 8622 */
	XPORT_TRAFFIC_NORMAL = 2,  /* best effort, also where the system has another default: the code point DF */
	XPORT_TRAFFIC_URGENT = 3   /* goes first: the code point EF of RFC 3246 */
} xport_traffic;

/*
 * Options of xport_open.  If attr is NULL or a field is zero, the environment variable applies.  If that is not set,
 * the default applies.  xport_env(7) describes the variables named here.
 */
struct xport_attr {
	size_t size; /* sizeof(struct xport_attr) */
	/* XPORT_BACKEND: "auto", "NAME", "NAME:PROVIDER", or a list of these in order of preference, separated by
	   commas: the first that is usable.  "A+B+C": all of these that are usable; each connection goes over the best
	   one that both sides have.  "auto" is such a set, of all that this build has. */
	const char *backend;
	/* XPORT_REQUIRE: required capabilities: "target_bounds", "passive_target", "traffic_class", or several,
	   separated by commas.  Opening fails if the provider lacks one. */
	const char *require;
	/* XPORT_EMULATE: operations to emulate over messages even where the network or the host supports them natively.
	   Any of "put,get,atomic,cma", or "all". */
	const char *emulate;
	const char *progress; /* XPORT_PROGRESS: "poll", "thread", "thread@CORES" or "thread@device" */
	int thread_mode;      /* enum xport_thread_mode */
	/* XPORT_PEER_TIMEOUT: silence after which a peer is lost.  The loss is reported after at most 1.5 times this;
	   later, up to 3 times for an endpoint, if this process itself was stopped or starved.  200 to 3600000, default 5000. */
	int peer_timeout_ms;
	/* XPORT_OP_TIMEOUT: age at which an unfinished operation ends its endpoint with XPORT_ERR_TIMEOUT.  Default
	   -1: never (in the variable: 0). */
	int op_timeout_ms;
	/* XPORT_QUEUE_DEPTH: operations of an endpoint that may be in flight or not reaped; further posts return
	   XPORT_ERR_AGAIN.  1 to 1048576, default 16384. */
	uint32_t queue_depth;
	xport_log_fn log_fn; /* receives log lines; NULL: standard error, or the file named by XPORT_LOG */
	void *log_arg;       /* first argument of log_fn */
	int log_level;       /* XPORT_LOG: enum xport_log_level; default XPORT_LOG_WARN */
	/* XPORT_TRAFFIC_CLASS: enum xport_traffic, of connections that have no class of their own.  The control channel
	   is marked in any case; xport_info.traffic_marked shows whether the data is. */
	int64_t traffic_class;
};

/*
 * xport_open - open an instance.
 *
 * Selects a back end and provider, and opens it.  *x is set on success only.  The call never substitutes another back
 * end or provider for the requested one.  If none of those requested can be opened, it fails, and the error gives the
 * reason for each candidate.  xport_last_error with NULL has the error.
 *
 * The environment is read now and never again; only a stack that is opened later, for a set of transports, reads its
 * own variables then.  In a set-user-ID program it is not read at all.
 *
 * Any thread may call it.  The first call that loads a stack (UCX, rdma-core or libfabric) sets environment variables
 * for that stack, and restores them afterwards.  Meanwhile other threads may read the environment (getenv, localtime
 * and getaddrinfo do), but must not change it.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       x is NULL
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED XPORT_AUTH_KEY_FILE is set, and this build has no authentication
 *   XPORT_ERR_CONFIG        a variable or a field of attr has a value that is not allowed; attr->size is wrong; a field
 *                           of attr that this version does not know is not zero
 *   XPORT_ERR_NO_BACKEND    no back end of that name; none is usable here; none has what `require` asks for
 *   XPORT_ERR_INCOMPATIBLE  the back end reports capabilities that contradict each other, a defect of the back end
 *   XPORT_ERR_FORK          a process that this one was forked from had an instance open
 *   XPORT_ERR_SYSTEM        a system call failed; xport_error.native_code is its errno
 */
int xport_open(const struct xport_attr *attr, xport **x) XPORT_CHECK;

/*
 * xport_close - close an instance and everything that belongs to it.
 *
 * Open endpoints are closed without waiting: their peers get XPORT_ERR_PEER_CLOSED.  Completions that were not
 * reaped are dropped.  Memory is deregistered.  All handles become invalid.
 *
 * No other thread may be in a call on the instance.  In a forked child the call does nothing.  NULL is allowed.
 */
void xport_close(xport *x);

/* Who carries out an operation. */
typedef enum xport_path {
	XPORT_EMULATED = 0, /* the library of the target, after a message */
	XPORT_NATIVE = 1    /* the network or the CPU, without the program of the target */
} xport_path;

/*
 * What an instance is and can do.  The library has probed it, and does not rely on what the stack claims.
 * Strings are terminated by NUL.
 */
struct xport_info {
	size_t size;             /* in: sizeof(struct xport_info) */
	char backend[16];        /* the back end, such as "ucx"; of several transports, the one that was opened first */
	char provider[48];       /* the provider, such as "tcp" */
	char device[64];         /* the device, "rxe0", or those that the stack chose among, "lo, eth0" */
	char stack[64];          /* the stack and its version, such as "UCX 1.13.1" */
	int put, get, notify;    /* enum xport_path of these operations on memory from xport_mr_alloc */
	int atomic, send, flush; /* enum xport_path of these operations */
	int put_reg, get_reg;    /* enum xport_path of puts and gets on memory from xport_mr_reg */
	int target_bounds;       /* 1: every remote access is checked at the target as well */
	/* 1: peers' native puts and gets need no calls by this application, see the progress rule.  With the progress
	   thread emulated ones need none either.  Describes this instance. */
	int passive_target;
	int stack_threads;    /* threads of the stack for this instance, without libxport's own thread */
	int thread_mode;      /* enum xport_thread_mode in force */
	int peer_timeout_ms;  /* peer timeout in force */
	uint32_t queue_depth; /* queue depth in force */
	/* Bytes of the longest message that is sent eagerly: its send may complete before a receive matches it.  On a
	   connection the smaller value of the two sides applies.  With several transports: what each of them takes; a
	   connection may then send longer messages eagerly as well. */
	uint64_t eager_max;
	uint64_t frame_max;   /* bytes of the longest frame of the library's protocol */
	uint64_t message_max; /* bytes of the longest send, put or get */
	uint64_t window;      /* bytes of unmatched messages and unreaped notifications an endpoint may have sent */
	uint64_t rkey_max;    /* bytes of the longest packed key */
	uint64_t private_max; /* bytes of the longest private data of a connection */
	int nic_atomic;       /* enum xport_path of atomics on this instance's regions with XPORT_ATOMIC_NIC */
	uint32_t iov_max;     /* pieces of the longest list of xport_putv and the other calls with lists */
	/* Bit 1 << T is set if an operation of enum xport_type T ends its endpoint when its deadline is over while the
	   network carries it out.  0: operations of this type are withdrawn alone. */
	uint32_t deadline_ends;
	uint64_t incarnation; /* a random number of this instance; peers see it as xport_ep_info.peer_incarnation */
	int traffic_class;    /* enum xport_traffic in force for connections that have no class of their own */
	/* 1: the data of connections can be marked with that class.  0: the stack cannot do this, or not for this
	   provider.  It is 1 as well if no data leaves the host. */
	int traffic_marked;
};

/*
 * xport_query - get the properties of an instance.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    x or info is NULL; info->size is wrong
 */
int xport_query(xport *x, struct xport_info *info) XPORT_CHECK;

/* Whether a candidate can be opened. */
typedef enum xport_state {
	XPORT_READY = 0,         /* it can be opened here and now */
	XPORT_ABSENT = 1,        /* it is built, but this machine lacks the stack or the device */
	XPORT_MISCONFIGURED = 2, /* it is present, but cannot be opened; the reason and the hint say why */
	XPORT_NOT_BUILT = 3      /* it was left out when this library was configured */
} xport_state;

/* One value that XPORT_BACKEND can have.  Strings are terminated by NUL. */
struct xport_candidate {
	char name[64];    /* the value, such as "ucx:tcp" */
	int state;        /* enum xport_state */
	char reason[192]; /* why it cannot be opened; of one that can: what it is */
	char hint[192];   /* what to do about it; "": nothing */
};

/*
 * xport_list - list the candidates for XPORT_BACKEND.
 *
 * The list is ordered by back end.  The call asks the stacks, and so loads them
 * into the process.  `attr` is used as by xport_open, but attr->backend does not shorten the list.
 *
 * Writes at most `max` entries to `list`, each of `entry_size` = sizeof(struct xport_candidate) bytes.  With `max` 0
 * it only counts.  xport_last_error with NULL has the error.
 *
 * Any thread may call it, under the rules of xport_open.
 *
 * Returns the number of candidates, which may be greater than `max`, or
 *   XPORT_ERR_INVALID       max is negative; max is not 0, and list is NULL or entry_size is wrong
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED, XPORT_ERR_CONFIG, XPORT_ERR_SYSTEM
 *                           as for xport_open
 */
int xport_list(const struct xport_attr *attr, struct xport_candidate *list, size_t entry_size, int max) XPORT_CHECK;

/*
 * One variable that the library reads from the environment.  The strings belong to the library.  Only `value`
 * belongs to the environment, and is valid until the environment changes.
 */
struct xport_variable {
	const char *name;     /* the name, such as "XPORT_PEER_TIMEOUT" */
	const char *type;     /* the type of the value, such as "time" */
	const char *range;    /* the values allowed, such as "200ms to 1h" */
	const char *standard; /* the default, such as "5s"; "": none */
	const char *text;     /* the purpose of the variable */
	const char *value;    /* the value that is set; NULL: not set, empty, or not read (set-user-ID program) */
	char problem[192];    /* why xport_open would refuse the value; "": it would not */
};

/*
 * xport_variables - list the variables that xport_open reads from the environment.
 *
 * The list has all variables, in the order in which they are read.  Writes at most `max` entries to `list`, each of
 * `entry_size` = sizeof(struct xport_variable) bytes.  With `max` 0 it only counts.  xport_last_error with NULL has
 * the error.
 *
 * Any thread may call it while no thread changes the environment.
 *
 * Returns the number of variables, which may be greater than `max`, or
 *   XPORT_ERR_INVALID       max is negative; max is not 0, and list is NULL or entry_size is wrong
 */
int xport_variables(struct xport_variable *list, size_t entry_size, int max) XPORT_CHECK;

/* ---- Connections -------------------------------------------------------------------------------------------- */

/*
 * Options of xport_listen, xport_connect and xport_accept_with.  NULL instead of a struct: all defaults.  Read during the
 * call only.
 */
struct xport_conn_attr {
	size_t size;              /* sizeof(struct xport_conn_attr) */
	const void *private_data; /* bytes that the peer gets with the connection; copied; NULL: none */
	size_t private_len;       /* number of these bytes, at most xport_info.private_max */
	void *context;            /* xport_ep_info.context of the new endpoint; xport_listen: of each accepted one */
	int backlog;              /* xport_listen: connections that may wait for xport_accept; 0: 64 */
	/* The only transports of this instance that the connection may use, such as "verbs+ofi:tcp"; "verbs" means all
	   of this back end; NULL: all of the instance. */
	const char *transports;
	/* xport_connect with timeout_ms 0: milliseconds within which XPORT_EVENT_CONNECTED or XPORT_EVENT_LOST comes;
	   0: 30000. */
	int connect_ms;
	/* enum xport_traffic of the connection, or of those that the listener accepts; 0: that of the instance.  With
	   XPORT_REQUIRE=traffic_class a connection whose data cannot be marked fails. */
	int64_t traffic_class;
};

/*
 * xport_listen - listen for connections.
 *
 * `address` is "host:port".  The host is one of:
 *   - an IPv4 address
 *   - an IPv6 address in brackets; a link-local one needs its zone, as in "[fe80::1%eth0]:7000"
 *   - a name, which is looked up within the call; that may take long
 *   - "*", which means all addresses of this host
 * With port 0 the system chooses the port, and xport_listener_name returns it.  An address that other hosts can
 * reach needs XPORT_AUTH_KEY_FILE, or XPORT_AUTH=none.
 *
 * Connections arrive while the application polls.  The library checks each one, and refuses a peer that is not
 * compatible.  The others become ready for xport_accept.  At most 128 handshakes may be in progress; each times out
 * after 5 s.  If the backlog is full, a client waits in the handshake, and is refused after 5 s.
 *
 * *listener is set on success only.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       x, address or listener is NULL; attr->size is wrong; the private data is too long, or is
 *                           NULL although private_len is not 0; the backlog or connect_ms is negative;
 *                           traffic_class is not one of enum xport_traffic; attr->transports has a name that is not in
 *                           this instance
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED a field of attr that this version does not know is not zero
 *   XPORT_ERR_UNREACHABLE   the name does not resolve
 *   XPORT_ERR_ADDRESS       address is malformed or not an address of this host; the port is in use or not permitted
 *   XPORT_ERR_AUTH          other hosts can reach the address, and there is neither an authentication key nor
 *                           XPORT_AUTH=none
 *   XPORT_ERR_SYSTEM        a system call failed
 */
int xport_listen(xport *x, const char *address, const struct xport_conn_attr *attr,
                 xport_listener **listener) XPORT_CHECK;

/*
 * xport_listener_name - get the address of a listener.
 *
 * Writes "host:port" with the real port to the `len` bytes at `buf`, terminated by NUL.  64 bytes are enough.
 *
 * For a listener on all addresses ("*", 0.0.0.0 or [::]) the host is the first address of this host that is not
 * loopback.  IPv4 is preferred if the listener has it.  If there is no such address, the host is the loopback
 * address.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    listener or buf is NULL
 *   XPORT_ERR_BOUNDS     len is too small
 */
int xport_listener_name(const xport_listener *listener, char *buf, size_t len) XPORT_CHECK;

/*
 * xport_listener_set_private_data - change the private data of a listener.
 *
 * Each peer whose handshake begins later gets these `len` bytes with its connection, instead of those of
 * xport_listen.  For example, they may contain the listener's port.  The bytes are copied.  len 0: none.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    listener is NULL; len is above xport_info.private_max; data is NULL although len is not 0
 *   XPORT_ERR_NO_MEMORY  out of memory: the listener is unchanged
 */
int xport_listener_set_private_data(xport_listener *listener, const void *data, size_t len) XPORT_CHECK;

/*
 * xport_accept - take the next ready connection.
 *
 * Waits up to `timeout_ms` for a connection, and makes progress while it waits.  *ep is set to its open endpoint, on
 * success only.
 *
 * When a connection becomes ready, XPORT_EVENT_INCOMING is returned by xport_poll, unless xport_accept took the
 * connection first.
 *
 * If a connection is lost before it is accepted, it is dropped together with its messages, and no event comes.
 * Exception: if xport_poll has already returned a message or notification from it, XPORT_EVENT_LOST comes.  The
 * application must then destroy the endpoint.  A connection that the peer closed is not dropped: its messages can be
 * received.
 *
 * timeout_ms  -1: no limit.  0: do not wait.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    listener or ep is NULL; timeout_ms is below -1
 *   XPORT_ERR_CLOSED     another thread closed the listener while this call waited
 *   XPORT_ERR_TIMEOUT    no connection was ready in time
 *   XPORT_ERR_SYSTEM, or another status that the stack caused
 *                        the back end failed, see xport_poll
 */
int xport_accept(xport_listener *listener, int timeout_ms, xport_ep **ep) XPORT_CHECK;

/*
 * xport_accept_with - take the next ready connection, and answer it.
 *
 * Does what xport_accept does.  In addition the connecting side gets XPORT_EVENT_ACCEPTED, and finds the private data of
 * `attr` in xport_ep_info.accept_data.  The event comes before all messages and notifications that this side posts on
 * the endpoint after the call.
 *
 * The connection is open at both ends before it is accepted: the connecting side may use it before the event.  A peer
 * that has closed its endpoint gets no event.
 *
 * attr  private_data and private_len: the bytes for the connecting side, which are copied; 0 bytes: the event alone.
 *       context, if not NULL: replaces the pointer of xport_listen as xport_ep_set_context does.  backlog, connect_ms
 *       and traffic_class must be 0, transports must be NULL.  NULL instead of a struct: as xport_accept
 *
 * Returns what xport_accept returns, or
 *   XPORT_ERR_INVALID       attr->size is wrong; the private data is too long, or is NULL although private_len is not
 *                           0; a member that does not apply is set
 *   XPORT_ERR_NO_MEMORY     out of memory: no connection was taken
 *   XPORT_ERR_NOT_SUPPORTED a field of attr that this version does not know is not zero
 */
int xport_accept_with(xport_listener *listener, const struct xport_conn_attr *attr, int timeout_ms,
                      xport_ep **ep) XPORT_CHECK;

/*
 * xport_listener_close - stop listening.
 *
 * Closes the connections that were not accepted.  Accepted endpoints are not affected.  NULL is allowed.
 *
 * A message, a notification or XPORT_EVENT_CLOSED may have named an endpoint that was not accepted.  The application
 * must destroy such an endpoint.  If it has not ended yet, XPORT_EVENT_LOST comes first.
 *
 * XPORT_EVENT_INCOMING of this listener no longer comes.  The handle is invalid after the call.  Another
 * thread that waits in xport_accept gets XPORT_ERR_CLOSED.  No thread may enter xport_accept after that.
 */
void xport_listener_close(xport_listener *listener);

/*
 * xport_connect - connect to a listener.
 *
 * `address` is "host:port" as for xport_listen, but not "*".  Waits up to `timeout_ms` and makes progress while it
 * waits.  *ep is set on success only.
 *
 * With timeout_ms 0 the call does not wait for the peer.  It returns an error if one is already known.  Otherwise it
 * returns XPORT_OK, and XPORT_EVENT_CONNECTED or XPORT_EVENT_LOST follows within attr->connect_ms.  Until
 * XPORT_EVENT_CONNECTED no operation may be posted on the endpoint, and no key unpacked.
 *
 * A name is looked up by a thread of the library, within the time limit.  That thread may go on after the call, for as
 * long as the system's resolver does.  Until then the application must not change the environment.
 *
 * For a peer on another host, both sides need the same authentication key (XPORT_AUTH_KEY_FILE), or XPORT_AUTH=none.
 *
 * timeout_ms  -1: 30 s.  0: do not wait.
 *
 * Returns XPORT_OK, or one of the following.  With timeout_ms 0 an error that is found later is the status of
 * XPORT_EVENT_LOST.
 *   XPORT_ERR_INVALID       x, address or ep is NULL; timeout_ms is below -1; attr->size is wrong; the private data is
 *                           too long, or is NULL although private_len is not 0; the backlog or connect_ms is
 *                           negative; traffic_class is not one of enum xport_traffic;
 *                           attr->transports has a name that is not in this instance
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED a field of attr that this version does not know is not zero; XPORT_REQUIRE has
 *                           "traffic_class", and the data of this connection cannot be marked
 *   XPORT_ERR_TIMEOUT       the time limit expired
 *   XPORT_ERR_REFUSED       nobody listens at the address; the backlog of the listener is full; the peer refused, or
 *                           went away during the handshake
 *   XPORT_ERR_UNREACHABLE   the name does not resolve; there is no route; the network did not connect
 *   XPORT_ERR_INCOMPATIBLE  the peer runs another back end, provider or version; the text names both
 *   XPORT_ERR_ADDRESS       address is malformed
 *   XPORT_ERR_AUTH          the two sides do not have the same authentication key; the peer is on another host, and
 *                           there is neither such a key nor XPORT_AUTH=none; a third party changed the handshake on
 *                           its way; the provider shares memory, and the two processes do not run as the same user
 *   XPORT_ERR_SYSTEM        a system call failed
 *   XPORT_ERR_PROTOCOL      the peer does not speak the protocol of this library
 *   another status that the stack caused: the back end failed, see xport_poll
 */
int xport_connect(xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms,
                  xport_ep **ep) XPORT_CHECK;

/*
 * xport_ep_close - flush and close an endpoint.
 *
 * Rejects new operations, and waits up to `timeout_ms` for the posted ones to complete.  Then it notifies the peer,
 * which gets XPORT_EVENT_CLOSED after all data that was sent earlier.  Operations that have not completed by then, and
 * receives posted for this peer, complete with XPORT_ERR_CLOSED.  If the peer's own close interrupted them, they
 * complete with XPORT_ERR_PEER_CLOSED.
 *
 * The handle stays valid until xport_ep_destroy.  Posts on it return XPORT_ERR_CLOSED.  xport_recv with this
 * endpoint as source still takes messages that had arrived.
 *
 * timeout_ms  -1: no limit.  0: close at once.  With 0, or if the time limit expires, data that has not been sent is
 *             dropped.  This includes sends that had completed: completion only means that the buffer may be reused.
 *
 * XPORT_OK with a timeout_ms other than 0 means that the peer's library has received everything posted.  The peer's
 * application may not have received it.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID     ep is NULL; timeout_ms is below -1: the endpoint is not closed
 *   XPORT_ERR_TIMEOUT     the time limit expired first; never with timeout_ms 0
 *   XPORT_ERR_PEER_LOST   the peer was lost before it had received everything
 *   XPORT_ERR_PEER_CLOSED the peer closed before it had received everything
 *   XPORT_ERR_CLOSED      the endpoint was closed already
 *   XPORT_ERR_NO_MEMORY, or another status of an ended endpoint, or an error of xport_connect
 *                         the endpoint had already ended for this reason
 * The endpoint is closed after each of these except XPORT_ERR_INVALID.
 */
int xport_ep_close(xport_ep *ep, int timeout_ms);

/*
 * xport_ep_close_start - start to close an endpoint, without waiting.
 *
 * Like xport_ep_close, but the call returns at once, and several endpoints may close at the same time.  New operations
 * are rejected from now on.  The posted ones complete while the application polls.  Exactly one event ends the close:
 *   - XPORT_EVENT_CLOSED with XPORT_OK: the peer's library has received everything posted; not with timeout_ms 0
 *   - XPORT_EVENT_CLOSED with XPORT_ERR_TIMEOUT: the time limit expired first
 *   - XPORT_EVENT_CLOSED with XPORT_ERR_PEER_CLOSED: the peer closed before it had received everything
 *   - XPORT_EVENT_LOST: the peer was lost first
 * All completions of the endpoint come before this event.  xport_ep_destroy before the event cuts the close short,
 * and no event comes unless it is queued already.
 *
 * timeout_ms  -1: no limit; two peers may then wait for each other forever, if each has a send that the other never
 *             receives.  0: drop unsent data and close at once; the event reports the end with XPORT_OK.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID     ep is NULL; timeout_ms is below -1; the endpoint is not connected yet
 *   XPORT_ERR_CLOSED      this side closes the endpoint already, or has closed it
 *   a status of an ended endpoint, see Operations: its event has come, or will come
 */
int xport_ep_close_start(xport_ep *ep, int timeout_ms) XPORT_CHECK;

/*
 * xport_ep_destroy - free an endpoint.
 *
 * Closes the endpoint first, without waiting, if it is still open.  NULL is allowed.
 *
 * Completions of the endpoint can still be reaped.  Their ep is NULL for messages and notifications.  In other
 * completions ep is a stale handle: do not use it.
 *
 * A handle from a completion that was reaped earlier can be queried until the next xport_poll or xport_wait of any
 * thread.  xport_ep_query then reports that the endpoint has ended.
 *
 * A new endpoint of the instance is not given the same handle soon: before that, 64 other endpoints of the instance are
 * destroyed and freed.  So an application that compares handles does not take a stale one for a new endpoint.
 *
 * Keys that were unpacked on the endpoint must still be freed by xport_rkey_destroy.  Until
 * then the memory of the endpoint is not freed.
 */
void xport_ep_destroy(xport_ep *ep);

/*
 * xport_ep_destroy_start - free an endpoint, and report when nothing of it is left to deliver.
 *
 * Does what xport_ep_destroy does.  In addition XPORT_EVENT_DESTROYED comes, once, after all completions and events of
 * the endpoint have been reaped.  No completion that is reaped later names the endpoint: the application may free its own
 * state of the endpoint.  If several threads poll, another thread may still handle completions that it reaped before the
 * event: the application must wait for that thread first.
 *
 * The handle must no longer be used, as after xport_ep_destroy.  The event has it in `ep`, to be compared only: no other
 * endpoint has an equal handle until the event was reaped.  Keys must still be freed by
 * xport_rkey_destroy, before or after the event.
 *
 * The event does not come if xport_close is called first.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    ep is NULL
 *   XPORT_ERR_NO_MEMORY  no memory for the event: the endpoint is unchanged
 */
int xport_ep_destroy_start(xport_ep *ep) XPORT_CHECK;

/* The state of an endpoint. */
typedef enum xport_ep_state {
	XPORT_EP_CONNECTING = 0, /* xport_connect with timeout_ms 0 is in progress; no operations yet */
	XPORT_EP_OPEN = 1,       /* operations may be posted */
	XPORT_EP_CLOSED = 2,     /* closed by this side or by the peer */
	XPORT_EP_LOST = 3        /* ended for another reason: the peer was lost, or the connection failed */
} xport_ep_state;

/* What an endpoint is.  Strings are terminated by NUL. */
struct xport_ep_info {
	size_t size;              /* in: sizeof(struct xport_ep_info) */
	int state;                /* enum xport_ep_state */
	int reason;               /* enum xport_status: why the endpoint ended; XPORT_OK before its end */
	char peer[64];            /* "host:port" of the peer's end of the control channel */
	char local[64];           /* "host:port" of this end of the control channel */
	char peer_host[64];       /* host name of the peer, as the peer reported it */
	int64_t peer_pid;         /* process id of the peer, as the peer reported it */
	const void *private_data; /* private data of the peer; owned by the library, valid until xport_ep_destroy */
	size_t private_len;       /* number of these bytes */
	void *context;            /* xport_conn_attr.context, or that of xport_ep_set_context */
	uint64_t in_flight;       /* operations accepted and not reaped yet, and events not reaped yet */
	char why[160];            /* why the endpoint ended, a sentence, until xport_ep_destroy; "" before its end */
	/* The transport in use; "" while the endpoint connects and the peers have not agreed. */
	char backend[16];      /* as in struct xport_info */
	char provider[48];
	char device[64];
	char passed_over[256]; /* with several transports: why no better one is used, or "" */
	/* A random number of the peer's instance.  Two endpoints with the same number lead to the same instance; after a
	   restart the peer has another one, and its old keys are stale.  0: not connected yet. */
	uint64_t peer_incarnation;
	/* At the connecting side: private data that the peer gave to xport_accept_with.  NULL before
	   XPORT_EVENT_ACCEPTED, or if the peer gave none.  Owned by the library, valid until xport_ep_destroy. */
	const void *accept_data;
	size_t accept_len; /* number of these bytes */
	int traffic_class; /* enum xport_traffic that the two sides agreed on */
	/* 1: the packets with this side's data have the class, or none leave the host.  0: the data does not have it, or no
	   class was asked for. */
	int traffic_marked;
};

/*
 * xport_ep_query - get the state, the addresses and the private data of an endpoint.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    ep or info is NULL; info->size is wrong
 */
int xport_ep_query(const xport_ep *ep, struct xport_ep_info *info) XPORT_CHECK;

/*
 * xport_ep_peer - get the number of the peer's instance.
 *
 * Returns xport_ep_info.peer_incarnation, for programs that know their peers by this number: in a completion that has
 * no xport_completion.peer, the peer is xport_ep_peer(c.ep).  The call only reads one word: it takes no lock, and any thread
 * may call it on a connected endpoint that is not destroyed.  Before the endpoint is connected, only a thread that may use the
 * endpoint may call.  It is also allowed in a forked child.
 *
 * Returns the number, or 0 if ep is NULL.  The value is unspecified while the endpoint is not connected.
 */
uint64_t xport_ep_peer(const xport_ep *ep);

/*
 * xport_ep_set_context - replace the application's pointer of an endpoint.
 *
 * Sets xport_ep_info.context, and the context of later events of the endpoint.  For example, a server gives each
 * accepted endpoint the pointer to its own state.  Events that are queued already keep the previous pointer.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    ep is NULL
 */
int xport_ep_set_context(xport_ep *ep, void *context) XPORT_CHECK;

/*
 * Counters of an endpoint since it was made, or of an instance.  They are always counted.  Later versions add fields
 * to the end.
 */
struct xport_counters {
	size_t size;                                                /* in: sizeof(struct xport_counters) */
	uint64_t puts, gets, put_notifies, atomics, sends, flushes; /* operations accepted, by kind */
	uint64_t receives;                                          /* receives that a message has matched */
	uint64_t notifications;                                     /* notifications that have arrived */
	uint64_t bytes_out;       /* bytes of accepted puts, notified puts and sends */
	uint64_t bytes_in;        /* bytes of accepted gets, and of messages stored in their receives */
	uint64_t again;           /* posts refused with XPORT_ERR_AGAIN; receives count for the instance only */
	uint64_t in_flight;       /* operations accepted and not reaped yet, and events not reaped yet */
	uint64_t in_flight_max;   /* highest in_flight so far; of an instance: the highest of a single endpoint */
	uint64_t unmatched;       /* messages that have arrived and wait for a receive */
	uint64_t posted_receives; /* receives that wait for a message; of an endpoint: those with it as opt->source */
	uint64_t frames_out;      /* frames sent; several small operations may share one */
	uint64_t frames_in;       /* frames received */
	uint64_t frames_acked;    /* frames of frames_out that the peer has acknowledged */
	uint64_t acks_out;        /* frames sent in addition that carry only acknowledgements or reports of failures */
	uint64_t acks_in;         /* such frames received */
	uint64_t errors[32];      /* operations that ended in error, by status: errors[-XPORT_ERR_PEER_LOST] */
	/* Puts, gets, notified puts, atomics and sends, by the path of their data.  Each operation is counted once,
	   when its last part is passed on.  An operation without data may not be counted at all. */
	uint64_t by_copy;    /* copied to or from mapped memory of the peer, on the same host */
	uint64_t by_network; /* native operations of the network */
	uint64_t by_message; /* data in frames of this library: messages, and emulated operations */
	uint64_t by_cma;     /* long data that the receiver copied from the sender's memory, on the same host */
	uint64_t coalesced;  /* operations whose data or request shared a frame with others */
	/* With XPORT_LATENCY=1, else 0: successful operations by kind, enum xport_type, and by the time from their posting until
	   progress found them complete.  Bucket i counts times of at most 256 ns << i, and the last one all longer times.  Receives and
	   XPORT_QUIET operations are not measured.  Then the sum of these times in nanoseconds. */
	uint64_t latency[8][24];
	uint64_t latency_ns[8];
};

/*
 * xport_stats - get the counters of an endpoint or an instance.
 *
 * With `ep` NULL it returns the sums over all endpoints that the instance has had, and what belongs to no endpoint.
 * The counters of an endpoint remain available after its end, until xport_ep_destroy.  Set counters->size before the
 * call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    x or counters is NULL; counters->size is wrong; ep belongs to another instance
 */
int xport_stats(xport *x, const xport_ep *ep, struct xport_counters *counters) XPORT_CHECK;

/* ---- Memory ------------------------------------------------------------------------------------------------- */

/* What peers may do with a region by means of its key.  Combined by |. */
typedef enum xport_rights {
	XPORT_REMOTE_READ = 1,   /* xport_get */
	XPORT_REMOTE_WRITE = 2,  /* xport_put, xport_put_notify */
	XPORT_REMOTE_ATOMIC = 4, /* xport_atomic */
	XPORT_ATOMIC_NIC = 8,    /* with XPORT_REMOTE_ATOMIC: the adapter may apply the atomics, see xport_atomic */
	/* Allows a sender's adapter to write long messages directly into the region.  It does not allow xport_put.
	   See xport_recv, Direct placement, for the peers that must be trusted. */
	XPORT_REMOTE_RECV = 16
} xport_rights;

/*
 * xport_mr_reg - register memory of the application.
 *
 * Registers the `length` bytes at `base`.  The memory must stay mapped until xport_mr_dereg has returned.  *mr is
 * set on success only.
 *
 * `rights` is any combination of enum xport_rights, or 0 for a region that is only a local buffer.  If no right lets
 * peers write, the memory may be read-only.  An operation that would write to read-only memory, with the region as
 * opt->mr, is refused with XPORT_ERR_FAULT when it is posted.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    x, base or mr is NULL; length is 0; base plus length overflows; rights has unknown bits, or
 *                        XPORT_ATOMIC_NIC without XPORT_REMOTE_ATOMIC
 *   XPORT_ERR_NO_MEMORY  out of memory, or over the limit of locked memory (ulimit -l)
 *   XPORT_ERR_FAULT      part of the memory is not mapped, or is not writable although rights has XPORT_REMOTE_WRITE,
 *                        XPORT_REMOTE_ATOMIC or XPORT_REMOTE_RECV; the text has the address
 *   XPORT_ERR_SYSTEM     /proc/self/maps cannot be read, or another system call failed
 */
int xport_mr_reg(xport *x, void *base, size_t length, uint32_t rights, xport_mr **mr) XPORT_CHECK;

/*
 * xport_mr_alloc - allocate and register memory.
 *
 * The memory is zeroed and page-aligned.  It is the fastest memory that the back end offers.  xport_mr_dereg frees
 * it.  *mr is set on success only.  xport_mr_query returns the address.
 *
 * Over shared memory, peers map the region (xport_rkey_info.direct): their puts are plain copies, and their atomics
 * are CPU instructions.  A peer that was suspended and reported lost can still write to the region after it resumes,
 * until it notices the loss.  Use xport_mr_reg for memory that must not change after XPORT_EVENT_LOST: peers never
 * map it.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    x or mr is NULL; length is 0; rights has unknown bits, or XPORT_ATOMIC_NIC without
 *                        XPORT_REMOTE_ATOMIC
 *   XPORT_ERR_NO_MEMORY  out of memory, or over the limit of locked memory (ulimit -l)
 *   XPORT_ERR_SYSTEM     a system call failed
 */
int xport_mr_alloc(xport *x, size_t length, uint32_t rights, xport_mr **mr) XPORT_CHECK;

/*
 * xport_mr_dereg - end a registration.
 *
 * Waits until no peer can access the memory, and until operations of this side that use it have completed.  It makes
 * progress while it waits, and has no time limit.  Memory from xport_mr_alloc is freed.  NULL is allowed.
 *
 * Afterwards all keys to the region are stale.  An operation with such a key fails with XPORT_ERR_STALE_KEY.  It fails
 * when it is posted if the initiator already knows of the deregistration, otherwise in the completion.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    another thread is in xport_mr_dereg of this region
 *   XPORT_ERR_BUSY       posted receives use the region: cancel them, or wait until they complete.  The region is
 *                        unchanged.
 */
int xport_mr_dereg(xport_mr *mr);

/* What a region is. */
struct xport_mr_info {
	size_t size;     /* in: sizeof(struct xport_mr_info) */
	void *base;      /* start of the memory */
	size_t length;   /* its length in bytes */
	uint32_t rights; /* enum xport_rights, combined by | */
	int allocated;   /* 1: the region is from xport_mr_alloc; 0: from xport_mr_reg */
	int exact_parts; /* 1: this process checks each access by a key of xport_rkey_pack_range */
	uint64_t incarnation; /* xport_info.incarnation of the instance whose region it is */
};

/*
 * xport_mr_query - get the address, length and rights of a region.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    mr or info is NULL; info->size is wrong
 */
int xport_mr_query(const xport_mr *mr, struct xport_mr_info *info) XPORT_CHECK;

/*
 * xport_rkey_pack - write the key of a region.
 *
 * Writes opaque bytes to `buf`.  The application sends them to peers by any means, for example as private data of a
 * connection.  A key belongs to one registration in one process.
 *
 * *len is the size of `buf` before the call, and the number of bytes written after it.  xport_info.rkey_max bytes
 * are always enough.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    mr or len is NULL
 *   XPORT_ERR_BOUNDS     buf is NULL or too small; *len is set to the number of bytes needed
 */
int xport_rkey_pack(const xport_mr *mr, void *buf, size_t *len) XPORT_CHECK;

/*
 * xport_rkey_pack_range - write the key of a part of a region.
 *
 * Does what xport_rkey_pack does, for the `length` bytes from `offset` on.  Peers use the key like the key of a region of
 * `length` bytes: their offsets count from the start of the part.
 *
 * XPORT_EVENT_NOTIFY has the region, and the offset in the region.  If the region ended before the notification arrived,
 * `mr` is NULL, and the offset counts from the start of the part.
 *
 * rights  what the key grants: rights of the region, combined by |; 0: all that the region has
 *
 * The library refuses an access outside the part when it is posted.  A malicious peer may use another program.  Then
 * xport_mr_info.exact_parts tells who checks the access:
 *   - 1: this process, against the part and the rights of the key
 *   - 0: the network, against the region and its rights; some networks check less (doc/threat-model.md)
 * Over ucx:tcp exact_parts is 1, but a malicious peer can write to any memory of this process without a key.
 *
 * Each call makes a key of its own, also to the same part.  The key is valid until xport_rkey_revoke, or until the region is
 * deregistered.  Until then it takes about 300 bytes of memory here.  An instance has at most about a million regions and
 * such keys.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    mr or len is NULL; length is 0; the region does not grant all of `rights`; XPORT_ATOMIC_NIC
 *                        without XPORT_REMOTE_ATOMIC; another thread is in xport_mr_dereg of this region
 *   XPORT_ERR_NO_MEMORY  out of memory; there are 524288 regions and parts
 *   XPORT_ERR_BOUNDS     the part is not inside the region; buf is NULL or too small, and *len is then set to the number
 *                        of bytes needed
 */
int xport_rkey_pack_range(xport_mr *mr, uint64_t offset, uint64_t length, uint32_t rights, void *buf,
                          size_t *len) XPORT_CHECK;

/*
 * xport_rkey_revoke - end the key of a part of a region, as its owner.
 *
 * `buf` and `len` are the bytes that xport_rkey_pack_range wrote.  Other keys to the same part stay valid.  The call does
 * not wait.  After it, accesses with the key fail with XPORT_ERR_STALE_KEY:
 *   - with xport_mr_info.exact_parts 1, all accesses that begin later; the answer to an earlier get may still be sent
 *   - with xport_mr_info.exact_parts 0, those of a peer as soon as it hears of the end.  A malicious peer may go on until
 *     the region is deregistered.
 * xport_mr_dereg of the region waits for the peers.  A peer that does not answer the end of 65536 keys is lost, with
 * XPORT_ERR_PROTOCOL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    x is NULL; the key is to a whole region
 *   XPORT_ERR_BAD_KEY    buf is NULL; the bytes are damaged, or are not a key
 *   XPORT_ERR_STALE_KEY  the key has ended already, or belongs to another instance
 */
int xport_rkey_revoke(xport *x, const void *buf, size_t len);

/*
 * xport_rkey_unpack - make a peer's key usable on an endpoint.
 *
 * `ep` is the endpoint that leads to the owner of the region.  The `len` bytes at `buf` need not be
 * trusted: any bytes are safe to pass.  They are not needed after the call.  *rkey is set on success only.  The key
 * is valid on this endpoint only.  xport_rkey_destroy frees it.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    ep or rkey is NULL; the endpoint is not connected yet
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   XPORT_ERR_STALE_KEY  the key belongs to a process other than this peer, or to an earlier run of this peer
 *   XPORT_ERR_BAD_KEY    buf is NULL; the bytes are damaged, or are not a key
 *   a status of an ended endpoint, see Operations
 */
int xport_rkey_unpack(xport_ep *ep, const void *buf, size_t len, xport_rkey **rkey) XPORT_CHECK;

/*
 * xport_rkey_destroy - free an unpacked key.
 *
 * Operations in flight that use the key are not affected.  NULL is allowed.
 */
void xport_rkey_destroy(xport_rkey *rkey);

/* What an unpacked key allows, and how its region is accessed. */
struct xport_rkey_info {
	size_t size;     /* in: sizeof(struct xport_rkey_info) */
	uint64_t length; /* bytes of the region, or of the part that the key is to */
	uint32_t rights; /* enum xport_rights, combined by |; never XPORT_REMOTE_RECV */
	/* enum xport_path of puts and gets to this region on this endpoint.  XPORT_NATIVE only after the owner has
	   confirmed the key, which needs progress at both ends; until then XPORT_EMULATED. */
	int put, get;
	int direct; /* 1: the memory is mapped in this process: puts and gets are copies, atomics CPU instructions */
	int atomic; /* enum xport_path of atomics: XPORT_NATIVE if the owner's adapter applies them */
	/* 0: the key is to a part of a region, and xport_mr_info.exact_parts of the region is 0.  The library still refuses
	   accesses outside the part.  1: in all other cases */
	int exact;
	/* Operations posted with the key that have not completed; each piece of a list counts.  Operations that were
	   complete when their call returned, and puts with XPORT_LOCAL or XPORT_QUIET, may be left out.  Operations that
	   go by message count for all keys of the endpoint to the same region. */
	uint64_t in_flight;
};

/*
 * xport_rkey_query - get the length, the rights and the path of a key.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    rkey or info is NULL; info->size is wrong
 */
int xport_rkey_query(const xport_rkey *rkey, struct xport_rkey_info *info) XPORT_CHECK;

/* ---- Operations --------------------------------------------------------------------------------------------- */

/*
 * Rules for xport_put, xport_get, xport_put_notify, xport_atomic, xport_send, xport_recv and xport_flush
 *
 * Each call posts one operation and returns without waiting for it.  XPORT_OK means that the operation was accepted.
 * Its completion is returned by xport_poll or xport_wait.  After an error no completion follows.
 *
 * A post refused with XPORT_ERR_AGAIN can be repeated when the queue has space.  xport_wait then returns 0, and the
 * descriptor of xport_fd becomes readable.
 *
 * Statuses of an ended endpoint.  A post on an endpoint that has ended returns one of these.  Operations that are
 * outstanding when an endpoint ends complete with one of these, and may or may not have taken effect:
 *   XPORT_ERR_CLOSED       this side closed the endpoint
 *   XPORT_ERR_PEER_CLOSED  the peer closed the endpoint
 *   XPORT_ERR_PEER_LOST    the peer died, was suspended for too long, or is cut off; or the back end failed
 *   XPORT_ERR_TIMEOUT      an operation was older than XPORT_OP_TIMEOUT, or its deadline was over (see Deadlines)
 *   XPORT_ERR_NO_MEMORY    memory to go on with the endpoint could not be allocated
 *   XPORT_ERR_PROTOCOL     the peer violated the protocol of the library
 * xport_ep_info.why has the cause as a sentence.  If xport_connect with timeout_ms 0 failed, the status can also be
 * any error of xport_connect.
 */

/*
 * Deadlines
 *
 * An operation with xport_opt.deadline_ms that is not complete when the time is over ends with XPORT_ERR_TIMEOUT.  The
 * time counts from the call, also while the operation waits to be sent.  It ends in an xport_poll or
 * xport_wait soon after that, never before.  Its buffer is free then, as after every completion.  It may or may not
 * have taken effect, in part or as a whole.  A failed quiet operation is reported by the next flush.
 *
 * The endpoint goes on, and its other operations are not affected, if this library carries the operation: messages,
 * flushes, emulated puts, gets and atomics, and everything that still waits for its turn.  So that it can be withdrawn,
 * such an operation is copied through the library's frames: it is never lent to the network or to the peer.  That costs
 * bandwidth for long data.
 *
 * The peer has to take the withdrawal, too.  If the peer has closed before that, xport_ep_close returns
 * XPORT_ERR_PEER_CLOSED although all operations have completed.
 *
 * No network can withdraw a put, get or atomic that it is carrying out.  If the network still holds the operation, its
 * endpoint ends: XPORT_EVENT_LOST with XPORT_ERR_TIMEOUT.  That is the only way to free the buffer for certain.
 * xport_info.deadline_ends tells which operations can end their endpoint.
 *
 * If the message of a receive was withdrawn by its sender after the match, the receive completes with
 * XPORT_ERR_CANCELED.
 *
 * A deadline_ms above 2147483647 is refused with XPORT_ERR_INVALID.
 */

/* Flags of an operation, for xport_opt.flags. */
enum {
	/* xport_put, xport_put_notify, xport_atomic without a result: the operation completes as soon as the caller
	   may reuse the source buffer.  The completion does not mean that the bytes are placed. */
	XPORT_LOCAL = 1,
	/* xport_put, xport_put_notify, xport_get, xport_atomic without a result: the operation has no completion.
	   After a later xport_flush has completed, the buffer may be reused.  The buffer of a get then holds the
	   bytes.  The flush also reports a failure of the operation. */
	XPORT_QUIET = 2,
	/* xport_recv: the receive stores only messages that are sent eagerly, at most the smaller eager_max
	   (xport_info) of the two sides.  So it never waits for a sender.  If a longer message matches, the receive
	   completes with XPORT_ERR_TRUNCATED and without data, whatever the size of the buffer. */
	XPORT_EAGER = 4,
	/* xport_send, xport_sendv: xport_cancel can cancel the message until a receive has matched it.  The message is
	   copied, as one with a deadline is. */
	XPORT_CANCELABLE = 8,
	/* xport_recv: the buffer takes many messages, as long as opt->value bytes of it are free.  See xport_recv, Many
	   messages. */
	XPORT_MULTI = 16,
	/* xport_recv: opt->source stands for its peer.  The receive takes messages of all endpoints to the same instance, and
	   outlives them.  See xport_recv, Receives for a peer. */
	XPORT_PEER = 32
};

/*
 * Options of an operation.  The struct is read during the call only.  NULL instead of a struct: no flags, no
 * context, no region, value 0, receive from any peer.
 */
struct xport_opt {
	size_t size;    /* sizeof(struct xport_opt) */
	/* XPORT_LOCAL, XPORT_QUIET, XPORT_EAGER, XPORT_CANCELABLE, XPORT_MULTI, XPORT_PEER, combined by |, where they apply */
	uint32_t flags;
	/* Milliseconds from the call until the operation ends with XPORT_ERR_TIMEOUT, at most 2147483647; 0: no deadline.
	   See Deadlines. */
	uint32_t deadline_ms;
	void *context;  /* returned as xport_completion.context */
	/* The local region that holds the buffer.  The network can then access the buffer directly.  NULL: the buffer
	   is not registered, and the library copies it where the network needs registered memory. */
	xport_mr *mr;
	/* xport_put_notify: the value that the target receives.  xport_recv with XPORT_MULTI: the longest message that
	   must fit, 1 to the length of the buffer. */
	uint64_t value;
	xport_ep *source; /* receives: the only peer to receive from; NULL: any peer of the instance */
	/* Receives, and sends with XPORT_CANCELABLE: where the call stores the id for xport_cancel, 0 for a send that is
	   complete already; NULL: not stored */
	uint64_t *id;
};

/*
 * xport_put - write to a remote region.
 *
 * Writes the `len` bytes at `buf` to the region of `rkey`, starting `offset` bytes into the region.  Completes when
 * the bytes are visible to loads by the target's CPU.  With XPORT_LOCAL it completes when `buf` may be reused.
 *
 * Zero length is checked like any other length and transfers nothing.  Puts, gets and atomics are not ordered among
 * each other: xport_fence orders them.  Until a put has completed, its bytes become visible at the target in any
 * order.
 *
 * opt->flags  XPORT_LOCAL, XPORT_QUIET
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN         queue_depth operations of the endpoint are in flight or not reaped
 *   XPORT_ERR_INVALID       ep or rkey is NULL; buf is NULL and len is not 0; the key belongs to another endpoint; the
 *                           endpoint is not connected yet; opt->size or opt->deadline_ms is wrong; a flag does not
 *                           apply; buf is not inside opt->mr
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED a field of opt that this version does not know is not zero
 *   XPORT_ERR_BOUNDS        offset plus len is beyond the end of the region
 *   XPORT_ERR_ACCESS        the region does not grant XPORT_REMOTE_WRITE
 *   XPORT_ERR_STALE_KEY     the peer deregistered the region
 *   a status of an ended endpoint, see above
 *
 * The completion has XPORT_OK, or
 *   XPORT_ERR_STALE_KEY     the peer deregistered the region meanwhile; nothing is written after xport_mr_dereg
 *                           has returned
 *   XPORT_ERR_TIMEOUT       opt->deadline_ms is over: the bytes may or may not have been placed
 *   a status of an ended endpoint: the bytes may or may not have been placed
 */
int xport_put(xport_ep *ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
              const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_get - read from a remote region.
 *
 * Reads `len` bytes from the region of `rkey`, starting `offset` bytes into the region, into `buf`.  Completes when
 * the bytes are in `buf`.
 *
 * Each byte is read at some moment between the post and the completion.  If the target's memory changes meanwhile,
 * old and new bytes may be mixed, even within an aligned word.
 *
 * opt->flags  XPORT_QUIET
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_FAULT         buf is in a read-only part of opt->mr
 *   XPORT_ERR_ACCESS        the region does not grant XPORT_REMOTE_READ
 *   XPORT_ERR_AGAIN, XPORT_ERR_INVALID, XPORT_ERR_NO_MEMORY, XPORT_ERR_NOT_SUPPORTED, XPORT_ERR_BOUNDS,
 *   XPORT_ERR_STALE_KEY, a status of an ended endpoint: as for xport_put
 *
 * The completion has XPORT_OK, or
 *   XPORT_ERR_STALE_KEY     the peer deregistered the region meanwhile
 *   XPORT_ERR_TIMEOUT       opt->deadline_ms is over: buf may hold some of the bytes
 *   a status of an ended endpoint: buf may hold some of the bytes
 */
int xport_get(xport_ep *ep, void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
              const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_put_notify - write to a remote region and notify the target.
 *
 * Does what xport_put does.  Then the target's xport_poll returns XPORT_EVENT_NOTIFY with the value opt->value, or 0
 * if opt is NULL.  The target posts nothing for it.
 *
 * When the event comes, these bytes and all earlier puts of the endpoint are visible at the target.  It is ordered
 * with the sends and other notifications of the endpoint.  If the bytes were refused, no event comes.  If the target
 * deregisters the region after the bytes were placed, the event still comes, and its mr is NULL.
 *
 * Completes as xport_put does.
 *
 * opt->flags  XPORT_LOCAL, XPORT_QUIET
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN         queue_depth operations of the endpoint are in flight or not reaped, or too many
 *                           notifications of it wait to be sent
 *   the other errors of xport_put
 *
 * The completion has the statuses of xport_put.
 */
int xport_put_notify(xport_ep *ep, const void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
                     const struct xport_opt *opt) XPORT_CHECK;

/* What an atomic stores in the word. */
typedef enum xport_atomic_op {
	XPORT_ATOMIC_ADD = 0,  /* word + operand */
	XPORT_ATOMIC_AND = 1,  /* word & operand */
	XPORT_ATOMIC_OR = 2,   /* word | operand */
	XPORT_ATOMIC_XOR = 3,  /* word ^ operand */
	XPORT_ATOMIC_SWAP = 4, /* operand */
	XPORT_ATOMIC_CAS = 5   /* operand if the word equals compare; otherwise the word is not changed */
} xport_atomic_op;

/* Arguments of xport_atomic.  The struct is read during the call only. */
struct xport_atomic_args {
	size_t size;      /* sizeof(struct xport_atomic_args) */
	int op;           /* enum xport_atomic_op */
	int width;        /* bytes of the word, 4 or 8; the word has the byte order of the target */
	uint64_t operand; /* the operand; XPORT_ATOMIC_CAS: the new value */
	uint64_t compare; /* XPORT_ATOMIC_CAS: the expected value */
	/* Where the old value is stored, `width` bytes.  The memory belongs to the library until the completion.
	   NULL: the old value is not fetched.  XPORT_ATOMIC_SWAP and XPORT_ATOMIC_CAS allow NULL as well. */
	void *result;
};

/*
 * xport_atomic - change one word of a remote region atomically.
 *
 * Changes the word at `offset` bytes into the region of `rkey`.  The word must be naturally aligned in the target's
 * memory.  Completes when the word was changed and the old value, if requested, is in args->result.
 *
 * The change is atomic against all other atomics on the word, by any peer, and against C11 atomics of the target's
 * CPU.  The target applies it when the target makes progress.  If the region is mapped in this process
 * (xport_rkey_info.direct), this call applies it, and the target need not make progress.
 *
 * Regions with XPORT_ATOMIC_NIC.  On such a region the owner's adapter may apply atomics, without calls by the
 * owner.  xport_rkey_info.atomic tells whether it does.  The guarantees are weaker, and the same on every network:
 *   - Only XPORT_ATOMIC_ADD and XPORT_ATOMIC_CAS with width 8 are supported.
 *   - Atomics are atomic against each other.  They are not atomic against the target's CPU, nor against puts to the
 *     same word.  The target's CPU may read the words, but must not change them while peers may.
 *   - Do not register such a word a second time: neither without XPORT_ATOMIC_NIC, nor in another instance.
 *
 * opt->flags  XPORT_LOCAL (ignored if args->result is set), XPORT_QUIET (only if args->result is NULL)
 * opt->mr     not needed; if set, the call checks that args->result is not in a read-only part of it
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       args is NULL; args->size, op or width is wrong; the word is not aligned; XPORT_QUIET with a
 *                           result; ep, rkey, opt->size or opt->flags is wrong as for xport_put
 *   XPORT_ERR_NOT_SUPPORTED the region has XPORT_ATOMIC_NIC, and op or width is not one of those above; a field of args
 *                           or opt that this version does not know is not zero
 *   XPORT_ERR_FAULT         args->result is in a read-only part of opt->mr
 *   XPORT_ERR_ACCESS        the region does not grant XPORT_REMOTE_ATOMIC
 *   XPORT_ERR_AGAIN, XPORT_ERR_NO_MEMORY, XPORT_ERR_BOUNDS, XPORT_ERR_STALE_KEY, a status of an ended endpoint:
 *   as for xport_put
 *
 * The completion has XPORT_OK, or
 *   XPORT_ERR_STALE_KEY     the peer deregistered the region meanwhile; the word was not changed
 *   XPORT_ERR_NOT_SUPPORTED the owner's adapter applies the atomics of the region, and this side's adapter cannot post
 *                           them; the word was not changed
 *   XPORT_ERR_TIMEOUT       opt->deadline_ms is over: the word may or may not have been changed
 *   a status of an ended endpoint: the word may or may not have been changed
 */
int xport_atomic(xport_ep *ep, const struct xport_atomic_args *args, xport_rkey *rkey, uint64_t offset,
                 const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_send - send a tagged message.
 *
 * Sends the `len` bytes at `buf` with the tag `tag`.  Completes when `buf` may be reused.  The completion does not
 * mean that the peer has received the message.  A message longer than eager_max (xport_info) completes only after a
 * receive has matched it.
 *
 * Messages and notifications of one endpoint arrive in the order posted.  A message longer than eager_max takes its
 * place in this order when it is matched.  Its receive completes when the bytes have arrived.  Receives of later
 * messages may complete first.
 *
 * The peer stores at most xport_info.window bytes of messages of an endpoint that have no receive.  Further messages
 * wait on this side.  Once queue_depth operations are in flight or not reaped, posts return XPORT_ERR_AGAIN.
 *
 * opt->flags  XPORT_CANCELABLE
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN         queue_depth operations of the endpoint are in flight or not reaped
 *   XPORT_ERR_INVALID       ep is NULL; buf is NULL and len is not 0; the endpoint is not connected yet; opt->size or
 *                           opt->deadline_ms is wrong; a flag does not apply; buf is not inside opt->mr
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED a field of opt that this version does not know is not zero
 *   a status of an ended endpoint, see above
 *
 * The completion has XPORT_OK, or
 *   XPORT_ERR_TIMEOUT       opt->deadline_ms is over: the message may arrive, unless it is longer than eager_max
 *   XPORT_ERR_CANCELED      xport_cancel cancelled the send: no receive gets the message
 *   a status of an ended endpoint: the message may or may not arrive
 */
int xport_send(xport_ep *ep, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_recv - post a receive for a tagged message.
 *
 * The receive takes one message whose tag equals `tag` in all bits of `mask`; with mask 0 any tag matches.  It takes
 * messages from opt->source only, or from any peer of the instance if opt->source is NULL.  At most `len` bytes are
 * stored in `buf`.  In the completion ep is the sender, tag the tag of the message, and length its full length.
 *
 * Matching.  Posted receives match in the order posted, and messages of one peer in the order sent.  Posted receives
 * are in keyed hash tables, one for each mask: peers cannot slow matching down by their choice of tags.  With a mask
 * other than all ones, posting the receive scans the waiting messages.  At most 8 such masks have a table at a time.
 * An arriving message is compared one by one with the posted receives of any further mask.
 *
 * Long messages.  A message longer than the eager_max (xport_info) of either side is fetched after it has matched,
 * as fast as its sender polls.  Meanwhile the receive cannot be cancelled.  A receive that must not wait for a
 * sender has the flag XPORT_EAGER.
 *
 * Endpoints not accepted yet.  Messages and notifications come after XPORT_EVENT_INCOMING or XPORT_EVENT_CONNECTED
 * of their endpoint.  xport_completion.ep may be used at once, even before xport_accept or xport_connect has
 * returned it.  If a message or notification of it was reaped, and it is lost before the call returns it,
 * XPORT_EVENT_LOST comes for it, and the application must destroy it.
 *
 * Direct placement.  If the receive's opt->mr has XPORT_REMOTE_RECV and the sender gave its opt->mr, a long message
 * is not copied where the network supports that (verbs): the sender's adapter writes into the region.  Until
 * the region is deregistered, a peer that has sent such a message, or that has any key to the region, is technically
 * able to write anywhere in it.  Use XPORT_REMOTE_RECV only with peers that are trusted not to do so.  With
 * XPORT_REQUIRE=target_bounds such messages are copied.
 *
 * Many messages.  With XPORT_MULTI the receive takes one message after the other.  Each has its own completion, of type
 * XPORT_OP_RECV, with the context of the receive.  Its bytes are at `offset` in buf, which is a multiple of 64.  A
 * message takes at least 64 bytes, or what is left.  Once less than opt->value bytes are free, the receive takes no more.
 * It then completes with XPORT_OP_RECV_END, after its messages, and only then does buf belong to the caller again.
 *   - In XPORT_OP_RECV_END length is the number of bytes used, and ep is opt->source.
 *   - A message longer than the free bytes is truncated.  One of up to opt->value bytes never is.
 *   - xport_cancel, the deadline and the end of opt->source end the receive with their status.  Messages that have
 *     arrived keep their completions.  A long message that is being fetched is completed first; the deadline ends it.
 *     Once it takes no more, xport_cancel returns XPORT_ERR_BUSY.
 *   - The receive keeps its place among the posted ones, and counts once against queue_depth.  Messages that are not
 *     reaped take memory and, at their endpoint, count against queue_depth.  Their sender waits once they fill its window.
 *
 * Receives for a peer.  With XPORT_PEER the receive takes a message of any endpoint whose xport_ep_info.peer_incarnation is
 * that of opt->source, also of one that is connected later.  opt->source must be open, or a message that matches must have
 * come.  The end of an endpoint does not end the receive: it waits for the peer to connect again.  It ends with
 * XPORT_ERR_PEER_LOST and ep NULL when the peer is gone.  All endpoints to it have ended then, and in addition one of these
 * holds:
 *   - the peer's process ran on this host, and has ended
 *   - this instance had reached the peer at an address, connected there again, and found another instance.  If several
 *     instances share one address (a load balancer, or a listener that was handed over), this can be wrong: the peer may
 *     live.  Give each instance its own address, or keep an endpoint to it open.
 * Otherwise it ends by a message, its deadline or xport_cancel.  A peer that was cut off, or has closed its endpoints, is not
 * gone.  A receive that has matched a long message ends with the endpoint of that message, with its status; ep is then not
 * NULL.  Only XPORT_ERR_PEER_LOST with ep NULL means that the peer is gone.
 *
 * In the completion `peer` has the number of the peer, also without a message.  Peers report this number themselves: one that
 * reports the number of another takes its messages' place.  Holders of one authentication key must trust each other.
 *
 * An arriving message is compared one by one with the receives for its own peer, and posting one scans the waiting messages.
 * While receives wait for a peer on this host whose endpoints have ended, the instance holds one descriptor for the peer.
 *
 * With XPORT_MULTI as well, the receive takes one message after the other of that peer.  opt->source must be open then.
 * XPORT_OP_RECV_END has ep NULL, and the number of the peer.
 *
 * opt->flags  XPORT_EAGER, XPORT_MULTI, XPORT_PEER
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN         queue_depth receives of the instance are posted
 *   XPORT_ERR_INVALID       x is NULL; buf is NULL and len is not 0; opt->source belongs to another instance or is not
 *                           connected yet; opt->size or opt->deadline_ms is wrong; a flag does not apply; buf is not
 *                           inside opt->mr; with XPORT_MULTI, opt->value is 0 or above len; XPORT_PEER without
 *                           opt->source
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED a field of opt that this version does not know is not zero
 *   XPORT_ERR_FAULT         buf is in a read-only part of opt->mr
 *   a status of an ended endpoint: opt->source has ended, and no message that it sent before matches
 *
 * The completion has XPORT_OK, or
 *   XPORT_ERR_TRUNCATED     the message is longer than `len`: the first `len` bytes are in buf, and length is its full
 *                           length.  With XPORT_EAGER, a message longer than eager_max: no bytes are in buf
 *   XPORT_ERR_CANCELED      xport_cancel cancelled the receive, or the sender withdrew the matched message
 *   XPORT_ERR_TIMEOUT       opt->deadline_ms is over; if a message had matched, ep, tag and length are set, and the
 *                           message is lost
 *   a status of an ended endpoint: opt->source, or the sender of the matched message, has ended
 * A receive from any peer stays posted when a peer is lost.
 */
int xport_recv(xport *x, void *buf, size_t len, uint64_t tag, uint64_t mask, const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_cancel - cancel a posted receive, or a send with XPORT_CANCELABLE.
 *
 * The operation completes with XPORT_ERR_CANCELED.  `id` is the number that the posting call stored in *opt->id.
 *
 * A send can be cancelled until this side knows that a receive has matched it.  If the receive matched at the same
 * moment, it completes with XPORT_ERR_CANCELED, too.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       x is NULL; no receive or send has this id; its completion was reaped already
 *   XPORT_ERR_NO_MEMORY     out of memory: the operation goes on
 *   XPORT_ERR_BUSY          a message and a receive have matched already, or the operation has completed: its
 *                           completion comes without this call
 */
int xport_cancel(xport *x, uint64_t id);

/*
 * xport_fence - order later operations behind earlier ones.
 *
 * Operations posted on the endpoint after the fence take effect after the puts, gets and atomics posted before it.
 * The call does not wait, and has no completion.
 *
 * Messages and notifications arrive in the order posted, without a fence.  A notification needs no fence after a put.
 * A message that must arrive after a put needs one: call xport_fence between them.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       ep is NULL, or the endpoint is not connected yet
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   a status of an ended endpoint, see above
 */
int xport_fence(xport_ep *ep) XPORT_CHECK;

/*
 * xport_flush - complete when all earlier operations are placed.
 *
 * Completes when both are true:
 *   - every earlier put, notified put and atomic of the endpoint is placed
 *   - the buffer of every earlier quiet operation may be reused, and the buffer of a quiet get holds its bytes
 * It completes in error if the library cannot prove this.  It does not wait until sends have been matched.
 *
 * opt  only context and deadline_ms are used
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN         queue_depth operations of the endpoint are in flight or not reaped
 *   XPORT_ERR_INVALID       ep is NULL; the endpoint is not connected yet; opt->size or
 *                           opt->deadline_ms is wrong; opt->flags is not 0
 *   XPORT_ERR_NO_MEMORY     out of memory
 *   XPORT_ERR_NOT_SUPPORTED a field of opt that this version does not know is not zero
 *   a status of an ended endpoint, see above
 *
 * The completion has XPORT_OK, or
 *   the status of an earlier quiet operation that failed
 *   XPORT_ERR_TIMEOUT       opt->deadline_ms is over: nothing is known of the operations before it
 *   a status of an ended endpoint
 */
int xport_flush(xport_ep *ep, const struct xport_opt *opt) XPORT_CHECK;

/* ---- Lists of pieces ---------------------------------------------------------------------------------------- */

/*
 * Rules for xport_putv, xport_getv, xport_sendv and xport_recvv
 *
 * The data lies in several pieces of memory. A call is one operation, with one completion, and follows all rules of the
 * call for a single buffer. Only the rules here are different.
 *
 *   - A list has 1 to xport_info.iov_max pieces. It is read during the call only. The memory of the pieces belongs to
 *     the library until the completion.
 *   - The pieces are in the order of the data. A local piece of 0 bytes is skipped, and its address and
 *     region are not checked.
 *   - The region of a piece is xport_iov.mr. If that is NULL, it is opt->mr. If both are NULL, the memory of the piece
 *     is not registered.
 *   - The whole call is checked before anything is sent. It is accepted as a whole, or not at all.
 *   - xport_completion.length is the sum of the pieces; of xport_recvv it is the full length of the message.  An
 *     operation counts once against queue_depth.
 *   - by_copy, by_network, by_message and by_cma of struct xport_counters may count a call of xport_putv or xport_getv
 *     several times: at most once for each place where a piece of either list ends.
 *
 * If one piece is wrong, the text of xport_last_error names it, counted from 0.
 */

/* A piece of local memory.  Its layout is fixed. */
struct xport_iov {
	void *addr;   /* where it begins; xport_putv and xport_sendv only read the memory */
	size_t len;   /* its bytes, 0 or more */
	xport_mr *mr; /* the local region that holds it; NULL: opt->mr */
};

/* A piece of a remote region.  Its layout is fixed. */
struct xport_riov {
	uint64_t offset; /* where it begins, from the start of the region */
	uint64_t len;    /* its bytes, 0 or more; a piece of 0 bytes must be inside the region, too */
};

/*
 * xport_putv - write pieces of local memory to pieces of a remote region.
 *
 * Does what xport_put does, from the `nlocal` pieces at `local` to the `nremote` pieces at `remote` of the region of
 * `rkey`. Both lists must have the same number of bytes. They need not be cut at the same places.
 *
 * The pieces are written in any order. Where remote pieces overlap, the bytes of any one of them remain.
 *
 * To notify the target, post xport_put_notify of 0 bytes after it: the notification arrives after the bytes.
 *
 * opt->flags  XPORT_LOCAL, XPORT_QUIET
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       a list is NULL, or has 0 or more than iov_max pieces; a piece of more than 0 bytes has the
 *                           address NULL, or is not inside its region; the two lists have different numbers of bytes,
 *                           or more than message_max; ep, rkey, opt->size or opt->flags is wrong as for xport_put
 *   XPORT_ERR_BOUNDS        a remote piece is beyond the end of the region
 *   the other errors of xport_put
 *
 * The completion has the type XPORT_OP_PUT and the statuses of xport_put. After an error some of the bytes may have been
 * placed.
 */
int xport_putv(xport_ep *ep, const struct xport_iov *local, size_t nlocal, xport_rkey *rkey,
               const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_getv - read pieces of a remote region into pieces of local memory.
 *
 * Does what xport_get does, from the `nremote` pieces at `remote` of the region of `rkey` to the `nlocal` pieces at
 * `local`. Both lists must have the same number of bytes. They need not be cut at the same places.
 *
 * The pieces are read in any order. Where local pieces overlap, the bytes of any one of them remain.
 *
 * opt->flags  XPORT_QUIET
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_FAULT         a local piece is in a read-only part of its region
 *   XPORT_ERR_ACCESS        the region does not grant XPORT_REMOTE_READ
 *   the other errors of xport_putv
 *
 * The completion has the type XPORT_OP_GET and the statuses of xport_get. After an error some of the bytes may be in the
 * pieces.
 */
int xport_getv(xport_ep *ep, const struct xport_iov *local, size_t nlocal, xport_rkey *rkey,
               const struct xport_riov *remote, size_t nremote, const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_sendv - send the bytes of several pieces as one tagged message.
 *
 * Does what xport_send does, with the `count` pieces at `list`. The receiver gets one message: it cannot tell that there
 * were pieces.
 *
 * A message of up to eager_max bytes is copied from its pieces once. The pieces of a longer one are sent, or read by the
 * peer, from where they are; short ones of them are copied. Long messages of lists are not placed directly (see
 * xport_recv).
 *
 * opt->flags  XPORT_CANCELABLE
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       the list is NULL, or has 0 or more than iov_max pieces; a piece of more than 0 bytes has the
 *                           address NULL, or is not inside its region; the message is longer than message_max; ep,
 *                           opt->size or opt->flags is wrong as for xport_send
 *   the other errors of xport_send
 *
 * The completion has the type XPORT_OP_SEND and the statuses of xport_send.
 */
int xport_sendv(xport_ep *ep, const struct xport_iov *list, size_t count, uint64_t tag,
                const struct xport_opt *opt) XPORT_CHECK;

/*
 * xport_recvv - post a receive for a tagged message, whose bytes go to several pieces.
 *
 * Does what xport_recv does, with the `count` pieces at `list`: the message fills the first piece, then the next one. It
 * makes no difference whether the message was sent from one buffer or from a list. xport_cancel cancels the receive.
 *
 * A message that is longer than all pieces together is truncated as by xport_recv. Where pieces overlap, the bytes of any
 * one of them remain. Long messages are not placed directly (see xport_recv).
 *
 * opt->flags  XPORT_EAGER, XPORT_PEER
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       the list is NULL, or has 0 or more than iov_max pieces; a piece of more than 0 bytes has the
 *                           address NULL, or is not inside its region; the pieces have more than message_max bytes; x,
 *                           opt->source, opt->size or opt->flags is wrong as for xport_recv
 *   XPORT_ERR_FAULT         a piece is in a read-only part of its region
 *   the other errors of xport_recv
 *
 * The completion has the type XPORT_OP_RECV and the statuses of xport_recv.
 */
int xport_recvv(xport *x, const struct xport_iov *list, size_t count, uint64_t tag, uint64_t mask,
                const struct xport_opt *opt) XPORT_CHECK;

/* ---- Completions -------------------------------------------------------------------------------------------- */

/* What a completion belongs to: an operation of this side (XPORT_OP_), or an event (XPORT_EVENT_). */
typedef enum xport_type {
	XPORT_OP_PUT = 1,        /* xport_put, xport_putv */
	XPORT_OP_GET = 2,        /* xport_get, xport_getv */
	XPORT_OP_PUT_NOTIFY = 3, /* xport_put_notify, at the side that posted it */
	XPORT_OP_ATOMIC = 4,     /* xport_atomic */
	XPORT_OP_SEND = 5,       /* xport_send, xport_sendv */
	XPORT_OP_RECV = 6,       /* xport_recv, xport_recvv */
	XPORT_OP_FLUSH = 7,      /* xport_flush */
	XPORT_OP_RECV_END = 8,   /* xport_recv with XPORT_MULTI: the buffer takes no more, and is the caller's again */
	/* A peer's xport_put_notify has arrived.  tag is the value; mr, offset and length tell where the put went. */
	XPORT_EVENT_NOTIFY = 16,
	/* ep is open.  Comes only after xport_connect with timeout_ms 0. */
	XPORT_EVENT_CONNECTED = 17,
	/* status XPORT_ERR_PEER_CLOSED: the peer closed ep.  If its xport_ep_close had enough time, everything sent
	   before has been delivered.  After xport_ep_close_start: the end of that close; status says how it went. */
	XPORT_EVENT_CLOSED = 18,
	/* ep is lost, or could not be connected.  status is the reason; xport_ep_info.why has the cause. */
	XPORT_EVENT_LOST = 19,
	/* A connection waits for xport_accept.  context is the listener. */
	XPORT_EVENT_INCOMING = 20,
	/* The peer's application has taken the connection of ep by xport_accept_with.  xport_ep_info.accept_data has its
	   private data. */
	XPORT_EVENT_ACCEPTED = 21,
	/* After xport_ep_destroy_start: nothing of ep is left to deliver.  ep is a stale handle, to be compared only. */
	XPORT_EVENT_DESTROYED = 22
} xport_type;

/* One completion or event.  Its layout is fixed. */
struct xport_completion {
	int32_t status; /* enum xport_status: XPORT_OK, or why the operation failed */
	uint32_t type;  /* enum xport_type */
	void *context;  /* of the operation; of the endpoint for its events; XPORT_EVENT_INCOMING: the listener */
	/* The endpoint; XPORT_OP_RECV: the sender.  NULL: the completion has no endpoint; or, for XPORT_OP_RECV,
	   XPORT_EVENT_NOTIFY and XPORT_EVENT_ACCEPTED, the endpoint was destroyed before the completion was reaped. */
	xport_ep *ep;
	uint64_t tag; /* XPORT_OP_RECV: the tag of the message; XPORT_EVENT_NOTIFY: the value */
	uint64_t
		length; /* of the operation; XPORT_OP_RECV: full length of the message; XPORT_EVENT_NOTIFY: of the put */
	/* XPORT_EVENT_NOTIFY: where in the region the put went; XPORT_OP_RECV: where in the buffer the message is, 0
	   without XPORT_MULTI */
	uint64_t offset;
	xport_mr *mr;    /* XPORT_EVENT_NOTIFY: the region; NULL: it was deregistered since, or the put had no bytes */
	/* The peer's xport_ep_info.peer_incarnation: in events of an endpoint, in XPORT_OP_RECV and XPORT_OP_RECV_END that have
	   a sender or an opt->source, and in every completion whose endpoint was destroyed before the completion was reaped.
	   0 in others: xport_ep_peer. */
	uint64_t peer;
};

/*
 * xport_poll - make progress and reap completions.
 *
 * Writes up to `max` completions to `list`, an array of the caller.  With `max` 0 and `list` NULL it only makes
 * progress.  It never blocks.
 *
 * Each of several threads that poll concurrently sees its own completions in order.  The order between threads is
 * unknown.
 *
 * Returns the number of completions written, which may be 0, or
 *   XPORT_ERR_INVALID       x is NULL; max is negative; list is NULL and max is not 0
 *   XPORT_ERR_SYSTEM, or another status that the stack caused
 *                           the back end failed, and every endpoint is lost.  Of several transports, all failed.
 *                           The error is returned once no completions are left to reap, and by each later call.  The
 *                           application can only close the instance.
 */
int xport_poll(xport *x, struct xport_completion *list, int max);

/*
 * xport_wait - wait for completions and reap them.
 *
 * Does what xport_poll does, and waits until there is at least one completion.  It polls for a short time, which it
 * adapts, and then sleeps.
 *
 * Signals.  After its first sleep begins, the call blocks signals except while it sleeps.  So no later signal is missed.
 * A handler that runs before the first sleep does not end the call.  If that matters, block the signal and wait in
 * ppoll(2) on the descriptor of xport_fd.
 *
 * timeout_ms  -1: no limit.  0: do not wait.
 *
 * Returns the number of completions written; or 0 if
 *   - the time limit expired
 *   - an operation that was refused with XPORT_ERR_AGAIN can be posted again
 *   - a signal handler ran while the call slept
 *   - the process was stopped and continued while the call slept; signal(7): the kernel reports both alike
 * or a negative status:
 *   XPORT_ERR_INVALID       timeout_ms is below -1; or as for xport_poll
 *   the other errors of xport_poll
 */
int xport_wait(xport *x, struct xport_completion *list, int max, int timeout_ms);

/*
 * xport_fd - get the file descriptor for an event loop.
 *
 * The descriptor is for poll(2), epoll(7) and similar calls.  It is readable, level-triggered, when xport_poll
 * should be called.  It need not be armed, and no wake-up is lost, unless the program calls xport_arm.  An instance has
 * one such descriptor: every call returns the same one.
 *
 * The library owns the descriptor.  Do not read from it, and do not close it.
 *
 * Returns the descriptor, which is 0 or greater, or
 *   XPORT_ERR_INVALID       x is NULL
 */
int xport_fd(xport *x);

/*
 * xport_arm - prepare to sleep on the descriptor of xport_fd.
 *
 * An event loop that uses this call makes fewer system calls.  From the first call on, xport_poll and xport_wait no
 * longer keep the descriptor up to date.  The loop then has three steps:
 *   1. Call xport_poll, and handle what it returns.
 *   2. Call xport_arm.  If it returns XPORT_ERR_AGAIN, go to step 1.
 *   3. Sleep in epoll_wait(2), or a similar call, until the descriptor is readable.  Then go to step 1.
 *
 * After XPORT_OK the descriptor becomes readable when there is something to do.  Another call on the instance, by this
 * or another thread, makes it readable if it starts work: so no wake-up is lost.  Exception: xport_poll and xport_wait
 * end what xport_arm has prepared.  Call it again before the next sleep.
 *
 * With the progress thread the descriptor stays readable while completions wait, and the call only says whether it is.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID       x is NULL
 *   XPORT_ERR_AGAIN         there is something to do: do not sleep, poll.  xport_last_error does not describe it: it
 *                           keeps the error before it
 */
int xport_arm(xport *x) XPORT_CHECK;

/*
 * xport_dump - log the endpoints and their operations in flight.
 *
 * Writes to the log of the instance, at level XPORT_LOG_ERROR.  Each operation has a line with its length, the path of
 * its data, and what it waits for.  It is meant for finding out why nothing moves.  NULL is allowed.
 */
void xport_dump(xport *x);

#ifdef __cplusplus
}
#endif

#endif
