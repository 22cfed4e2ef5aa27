/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_directory.h - names of regions on many machines.  Included by xport_services.h.
 *
 * One process serves the directory.  The others have an endpoint to it, and find regions by name.  An entry has the node
 * of the region, and its key.  With an endpoint to that node, xport_rkey_unpack, put and get do not need the directory.
 *
 * There is one copy, at the process that serves, and no consensus.  If that process dies, the entries are gone.  Everybody
 * who joined gets XPORT_DIRECTORY_LOST.  Entries that were found stay usable.  The users may join another directory, and
 * put their entries there.  Entries of a process that dies or leaves are removed.  The directory does not know whether a key
 * is still valid: after XPORT_ERR_STALE_KEY look the name up again.
 *
 * With etcd as the source nobody serves: the entries are in an etcd cluster (3.4 or later), each under a lease of its owner.
 * `serve` and xport_directory_join have no effect, and XPORT_DIRECTORY_LOST does not come.  Requests end within 10 s, or
 * within 10 s after the answer to one before.  After XPORT_ERR_TIMEOUT a put or removal may have happened, or may not.
 * At most 8192 requests wait; then the functions return XPORT_ERR_AGAIN.  A watch that replaces that of entries for all
 * may begin with XPORT_DIRECTORY_MISSED.  An event with an error has its text in xport_services_last_error of the thread
 * that takes it.  Call step in time, at least every ttl_s / 3 seconds, or the entries of this process vanish.  After an
 * expired lease they are put again by themselves; if another process has a name by then, XPORT_DIRECTORY_GONE with the
 * status XPORT_ERR_BUSY follows.
 *
 * The application drives it as it drives xport_leases: by step, timeout and next.  It has a tag of its own, which the
 * application must not use (see xport_leases.h).  A process has one directory for an instance; the process that serves may
 * use it, too.  A user that breaks the protocol is muted.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may call.
 */
#ifndef XPORT_DIRECTORY_H
#define XPORT_DIRECTORY_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A directory: at the process that serves it, or at a user. */
typedef struct xport_directory xport_directory;

enum {
	XPORT_DIRECTORY_NAME_MAX = 255, /* length of a name; any bytes are allowed */
	XPORT_DIRECTORY_KEY_MAX = 2048, /* length of a key */
	/* Flag of xport_directory_put: all who joined get the event, even if they do not watch. */
	XPORT_DIRECTORY_BROADCAST = 1
};

/* Options of xport_directory_create.  NULL instead of the struct: a user without a node. */
struct xport_directory_attr {
	size_t size;
	uint64_t tag;        /* of the messages; default 0x78706f7274647200 */
	int serve;           /* 1: this process serves the directory */
	const char *node;    /* in the entries of this process, such as its listener's address; at most 63 bytes */
	uint32_t max_names;  /* serving: limit of names; default 65536 */
	uint32_t peer_names; /* serving: limit of names of one peer; etcd: of this process; default 4096 */
	const char *source;  /* "embedded", or "etcd:URL,URL..."; default: XPORT_DIRECTORY, else embedded */
	const char *name;    /* etcd: of the directory; default: XPORT_DIRECTORY_NAME, else "directory" */
	int ttl_s;           /* etcd: seconds until the entries of a dead process vanish; default 10 */
};

/* A region, or a part of one.  xport_directory_region fills it in for a put.  This struct does not grow. */
struct xport_directory_entry {
	size_t size;
	char node[64];    /* of the owner; put: ignored */
	uint64_t version; /* higher with each put of any name, while the same process serves; put: ignored */
	uint64_t length;
	uint64_t offset; /* in the region of the key */
	uint32_t rights;
	uint32_t key_len;
	uint8_t key[2048]; /* for xport_rkey_unpack */
};

/*
 * xport_directory_region - fill in an entry for a part of a region.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BOUNDS     the region does not have `length` bytes at `offset`
 *   XPORT_ERR_INVALID    an argument is NULL; the region grants peers no rights; its key cannot be packed
 */
int xport_directory_region(const xport_mr *mr, uint64_t offset, uint64_t length,
                           struct xport_directory_entry *entry) XPORT_CHECK;

/*
 * xport_directory_create - make a directory, or a user of one.
 *
 * It posts receives as xport_leases_create does.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN          no receive could be posted: too many are posted already
 *   XPORT_ERR_CONFIG         XPORT_DIRECTORY, XPORT_DIRECTORY_NAME or a variable XPORT_ETCD_* has a wrong value
 *   XPORT_ERR_INVALID        x or directory is NULL; attr->node is too long; attr->name, ttl_s or size is wrong
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr sets an unknown field; there is no such source; libcurl or libjansson is missing
 */
int xport_directory_create(xport *x, const struct xport_directory_attr *attr, xport_directory **directory) XPORT_CHECK;

/*
 * xport_directory_destroy - leave the directory, or end it.
 *
 * The entries of this process are removed.  If it serves, all entries are.  It polls until its own operations have ended.
 * Other completions go to `other`; NULL drops them.  `directory` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed; a message to a peer is still in flight: close that endpoint or call again;
 *                        no other call is allowed
 *   an error of xport_wait
 */
int xport_directory_destroy(xport_directory *directory, xport_completion_fn other, void *arg, int timeout_ms);

/*
 * xport_directory_join - use the directory of the peer.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY       a directory was joined before: xport_directory_forget its endpoint
 *   XPORT_ERR_INVALID    an argument is NULL; ep is not a connected endpoint; this process serves the directory, or destroys it
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   XPORT_ERR_PROTOCOL   the peer was muted
 *   the reason why the endpoint is not open
 */
int xport_directory_join(xport_directory *directory, xport_ep *ep) XPORT_CHECK;

/*
 * xport_directory_step - take a completion, and continue.
 *
 * As xport_leases_step.
 *
 * Returns 1 if the completion belongs to the directory, 0 if it belongs to the application, or
 *   XPORT_ERR_INVALID    directory is NULL
 */
int xport_directory_step(xport_directory *directory, const struct xport_completion *completion);

/*
 * xport_directory_timeout - get the time until xport_directory_step must be called with NULL.
 *
 * Returns milliseconds, or -1 if no call is needed before the next completion.
 */
int xport_directory_timeout(xport_directory *directory);

/*
 * xport_directory_forget - end what the directory has with an endpoint.
 *
 * Call it as xport_leases_forget.
 */
void xport_directory_forget(xport_directory *directory, xport_ep *ep);

/*
 * xport_directory_put - enter a name, or replace an entry of this process.
 *
 * A name has 1 to 255 bytes.  `flags` is 0 or XPORT_DIRECTORY_BROADCAST.  XPORT_DIRECTORY_DONE with `context` follows.  Its
 * status is
 *   XPORT_OK             done; entry.version is the version
 *   XPORT_ERR_BUSY       the name belongs to another process
 *   XPORT_ERR_NO_MEMORY  over max_names or peer_names; out of memory
 *   or, if the directory ended, the reason
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     no directory was joined, or it is lost
 *   XPORT_ERR_INVALID    an argument is NULL; a wrong length of the name; *entry or flags is not allowed
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   the reason why the endpoint has ended
 */
int xport_directory_put(xport_directory *directory, const void *name, size_t len,
                        const struct xport_directory_entry *entry, uint32_t flags, void *context) XPORT_CHECK;

/*
 * xport_directory_find - look a name up.
 *
 * A watcher that knows the name needs no message for it.  XPORT_DIRECTORY_DONE with `context` follows.  Its status is
 *   XPORT_OK               found; the event has the entry
 *   XPORT_ERR_UNREACHABLE  there is no such name
 *   or, if the directory ended, the reason
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     no directory was joined, or it is lost
 *   XPORT_ERR_INVALID    an argument is NULL; a wrong length of the name
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   the reason why the endpoint has ended
 */
int xport_directory_find(xport_directory *directory, const void *name, size_t len, void *context) XPORT_CHECK;

/*
 * xport_directory_remove - remove an entry of this process.
 *
 * XPORT_DIRECTORY_DONE with `context` follows.  Its status is
 *   XPORT_OK               removed
 *   XPORT_ERR_ACCESS       the name belongs to another process
 *   XPORT_ERR_UNREACHABLE  there is no such name
 *   or, if the directory ended, the reason
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     no directory was joined, or it is lost
 *   XPORT_ERR_INVALID    an argument is NULL; a wrong length of the name
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   the reason why the endpoint has ended
 */
int xport_directory_remove(xport_directory *directory, const void *name, size_t len, void *context) XPORT_CHECK;

/*
 * xport_directory_watch - get an event for every change.
 *
 * XPORT_DIRECTORY_DONE with `context` follows.  After it XPORT_DIRECTORY_CHANGED and XPORT_DIRECTORY_GONE come for every
 * entry, beginning with those that exist already.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     no directory was joined, or it is lost
 *   XPORT_ERR_INVALID    directory is NULL
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   the reason why the endpoint has ended
 */
int xport_directory_watch(xport_directory *directory, void *context) XPORT_CHECK;

/* The type of an event. */
typedef enum xport_directory_event_type {
	XPORT_DIRECTORY_DONE = 1,    /* a request has ended */
	XPORT_DIRECTORY_CHANGED = 2, /* entered or replaced; one event may stand for several changes of a name */
	XPORT_DIRECTORY_GONE = 3,    /* removed, or its owner is gone */
	XPORT_DIRECTORY_MISSED = 4,  /* changes were dropped for this process: look up what is needed */
	XPORT_DIRECTORY_LOST = 5     /* the process that serves is gone, for the reason `status` */
} xport_directory_event_type;

/* An event. */
struct xport_directory_event {
	size_t size;
	int type;   /* enum xport_directory_event_type */
	int status; /* enum xport_status */
	void *context;
	size_t name_len;
	uint8_t name[256];
	struct xport_directory_entry entry; /* DONE of find and put, CHANGED; key_len is 0 if there is none */
};

/*
 * xport_directory_next - get the next event.
 *
 * Set event->size before the call.
 *
 * Returns 1, 0 if there is no event, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong
 */
int xport_directory_next(xport_directory *directory, struct xport_directory_event *event) XPORT_CHECK;

/*
 * xport_directory_wait - poll until there is an event, and get it.
 *
 * Other completions go to `other`; NULL drops them.  Set event->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong; timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed
 *   an error of xport_wait
 */
int xport_directory_wait(xport_directory *directory, struct xport_directory_event *event, xport_completion_fn other,
                         void *arg, int timeout_ms) XPORT_CHECK;

/* The state of a directory. */
struct xport_directory_info {
	size_t size;
	uint64_t names;   /* serving: entries; otherwise the entries that a watcher knows */
	uint64_t peers;   /* serving: users that joined */
	uint64_t refused; /* serving: requests answered with an error; etcd: malformed entries; since it was made */
	uint64_t muted;   /* peers that were muted, since it was made */
	uint64_t hits;    /* finds that needed no message */
	char why[256];    /* etcd: why it does not answer; "": it does */
};

/*
 * xport_directory_query - get the state of a directory.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_directory_query(xport_directory *directory, struct xport_directory_info *info) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
