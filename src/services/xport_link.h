/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xport_link.h - an endpoint that comes back.  Included by xport_services.h.
 *
 * A link has a list of addresses of one peer.  It connects, and connects again when its endpoint has ended: after a
 * restart of the peer, after a loss of the network, over another address or another transport.  Between the attempts it
 * waits, longer each time, and by a random part, so that the clients of one server do not come back all at once.
 *
 * The application drives the links of an instance as it drives xport_leases: by step, timeout and next.  A link has no
 * thread, and these calls never wait.
 *
 *   XPORT_LINK_UP        connected: for the first time, or to the same instance of the peer as before
 *   XPORT_LINK_PEER_NEW  connected to another instance of the peer.  What it had in memory is gone, and its keys are void.
 *   XPORT_LINK_DOWN      the endpoint has ended; the link connects again
 *   XPORT_LINK_GIVEN_UP  the limit is reached, or the errors do not pass by waiting; xport_link_retry begins again
 *   XPORT_LINK_DONE      an operation that was posted through the link has ended
 *   XPORT_LINK_CLOSED    the last event of a link: call xport_link_free
 *
 * Endpoint.  xport_link_ep returns the endpoint.  It belongs to the link.  The application may post on it, and may start
 * its close by xport_ep_close_start; then the link connects again.  It must not call xport_ep_close or xport_ep_destroy
 * for it.  An endpoint that has ended stays valid until both are true: the application has called xport_links_next again
 * after the event XPORT_LINK_DOWN or XPORT_LINK_CLOSED, and all completions of the endpoint are reaped.  Only then does
 * the link connect again.
 *
 * Keys.  xport_link_rkey_add keeps the packed bytes of a key.  The link unpacks them on each new endpoint.  If the peer is
 * another instance, the bytes are stale, and the key is void until it gets new bytes: by xport_link_rkey_set, or by name
 * from a directory (xport_links_entry).
 *
 * Operations.  The link never repeats an operation by itself.  One that was posted by xport_link_put, xport_link_get,
 * xport_link_put_notify or xport_link_send with XPORT_LINK_REPEATABLE is posted again when its endpoint was lost and the
 * link is up again with the same instance of the peer.  Until then the link keeps it.  Each accepted operation has exactly
 * one XPORT_LINK_DONE.  Operations posted on the endpoint itself have their completion, and are not repeated.
 *
 * Thread rule.  That of the instance.  If the instance locks, any thread may call, but only one thread may poll and pass
 * completions to xport_links_step.
 */
#ifndef XPORT_LINK_H
#define XPORT_LINK_H

#ifndef XPORT_SERVICES_H
#error include xport_services.h
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The links of an instance. */
typedef struct xport_links xport_links;
/* One link. */
typedef struct xport_link xport_link;
/* A key that a link keeps. */
typedef struct xport_link_rkey xport_link_rkey;

enum {
	XPORT_LINK_ADDRESSES_MAX = 16, /* addresses of a link */
	XPORT_LINK_ADDRESS_MAX = 255,  /* length of an address */
	XPORT_LINK_KEY_MAX = 2048,     /* length of a key */
	XPORT_LINK_NAME_MAX = 255      /* length of the name of a key; any bytes are allowed */
};

/* Flags of xport_link_attr. */
enum {
	/* Repeat attempts after every error.  Otherwise a link gives up when each address has failed with one of
	   XPORT_ERR_ADDRESS, XPORT_ERR_AUTH, XPORT_ERR_INCOMPATIBLE, XPORT_ERR_INVALID, XPORT_ERR_NOT_SUPPORTED: they do
	   not pass by waiting. */
	XPORT_LINK_ALL_ERRORS = 1
};

/* Flags of an operation. */
enum {
	XPORT_LINK_REPEATABLE = 1 /* the link may post it again: twice has the same effect as once */
};

/* Options of xport_link_open.  NULL instead of the struct: all defaults. */
struct xport_link_attr {
	size_t size;
	/* Options of each connection; copied.  conn->connect_ms is the time limit of one attempt, 0: 5000. */
	const struct xport_conn_attr *conn;
	int first_ms; /* the first wait between two rounds of attempts; default 100 */
	int max_ms;   /* the longest wait; the wait doubles up to this; default 10000 */
	/* Limits since the link was last up for longer than its last wait and first_ms; 0: no limit. */
	uint32_t rounds;   /* give up after this number of failed rounds, and connections that were up for less */
	int give_up_ms;    /* give up after this time */
	uint32_t max_ops;  /* limit of operations whose XPORT_LINK_DONE was not taken yet; default 256, at most 65535 */
	uint32_t repeats;  /* how often an operation is posted again; default 8 */
	uint32_t flags;    /* XPORT_LINK_ALL_ERRORS */
	const char *label; /* for the application's logs; copied, at most 63 bytes */
	void *context;     /* of the link's events */
	uint64_t seed;     /* of the random part of the waits; 0: chosen by the library */
};

/*
 * xport_links_create - make the links of an instance.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    x or links is NULL
 *   XPORT_ERR_NO_MEMORY  out of memory
 */
int xport_links_create(xport *x, xport_links **links) XPORT_CHECK;

/*
 * xport_links_destroy - close all links, and free all.
 *
 * Events that were not taken are dropped.  It polls until the links are closed.  Other completions go to `other`; NULL
 * drops them.  Closes that have not ended when `timeout_ms` has passed are cut short, those of xport_link_close, too; at most
 * one more second is then spent on the remaining completions.  `links` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    completions of the endpoints have not come in this time; call again: no other call is allowed
 *   an error of xport_wait
 */
int xport_links_destroy(xport_links *links, xport_completion_fn other, void *arg, int timeout_ms);

/*
 * xport_links_step - take a completion, and continue.
 *
 * Call it with each polled completion, and with NULL when the time of xport_links_timeout has passed.  Call the step
 * functions of other services first: they do not get the events of endpoints that this call takes.
 *
 * Returns 1 if the completion belongs to a link: an operation posted through it, or XPORT_EVENT_CONNECTED,
 * XPORT_EVENT_CLOSED or XPORT_EVENT_LOST of its endpoint; 0 if it belongs to the application, or
 *   XPORT_ERR_INVALID    links is NULL
 */
int xport_links_step(xport_links *links, const struct xport_completion *completion);

/*
 * xport_links_timeout - get the time until xport_links_step must be called with NULL.
 *
 * Returns milliseconds, or -1 if no call is needed before the next completion.
 */
int xport_links_timeout(xport_links *links);

/* The type of an event. */
typedef enum xport_link_event_type {
	XPORT_LINK_UP = 1,       /* `ep` is open, to the same instance of the peer as before, or for the first time */
	XPORT_LINK_PEER_NEW = 2, /* `ep` is open, to another instance of the peer: void_keys need new bytes */
	XPORT_LINK_DOWN = 3,     /* `ep` has ended, for the reason `status` */
	XPORT_LINK_GIVEN_UP = 4, /* no more attempts; status is the last error, and text has those of all addresses */
	XPORT_LINK_DONE = 5,     /* an operation has ended */
	XPORT_LINK_CLOSED = 6    /* the last event; status is that of XPORT_EVENT_CLOSED */
} xport_link_event_type;

/* An event.  The strings are valid until the next call of xport_links_next, _wait or _step, or xport_link_free. */
struct xport_link_event {
	size_t size;
	int type;   /* enum xport_link_event_type */
	int status; /* enum xport_status; UP and PEER_NEW: XPORT_OK */
	xport_link *link;
	/* Of the link; DONE: of the operation. */
	void *context;
	xport_ep *ep;          /* UP, PEER_NEW, DOWN: the endpoint, NULL if a close was cut short; otherwise NULL */
	const char *address;   /* UP, PEER_NEW, DOWN: the address of the endpoint; otherwise "" */
	const char *transport; /* UP, PEER_NEW, DOWN: such as "ucx:tcp"; otherwise "" */
	const char *text;      /* DOWN, GIVEN_UP: the cause, a sentence; otherwise "" */
	uint64_t incarnation;  /* UP, PEER_NEW: xport_ep_info.peer_incarnation */
	uint32_t void_keys;    /* UP, PEER_NEW: keys of the link without usable bytes */
	uint32_t attempts;     /* DONE: how often it was posted; 0: never, and it had no effect */
	uint32_t operation;    /* DONE: XPORT_OP_PUT, XPORT_OP_GET, XPORT_OP_PUT_NOTIFY or XPORT_OP_SEND */
	uint64_t length;       /* DONE: of the operation */
};

/*
 * xport_links_next - get the next event.
 *
 * Set event->size before the call.
 *
 * Returns 1, 0 if there is no event, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong
 */
int xport_links_next(xport_links *links, struct xport_link_event *event) XPORT_CHECK;

/*
 * xport_links_wait - poll until there is an event, and get it.
 *
 * Other completions go to `other`; NULL drops them.  Set event->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; event->size is wrong; timeout_ms is below -1
 *   XPORT_ERR_TIMEOUT    `timeout_ms` passed
 *   an error of xport_wait
 */
int xport_links_wait(xport_links *links, struct xport_link_event *event, xport_completion_fn other, void *arg,
                     int timeout_ms) XPORT_CHECK;

/*
 * xport_link_open - make a link, and start to connect.
 *
 * `addresses` are `count` addresses of the peer, "host:port" as for xport_connect.  A round tries one after the other,
 * beginning with the one that answered last.  XPORT_LINK_UP or XPORT_LINK_GIVEN_UP follows.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID        an argument is NULL; no address, more than 16, or one that is empty or longer than 255
 *                            bytes; a field of *attr is not allowed; the private data is too long; the links are being destroyed
 *   XPORT_ERR_NO_MEMORY      out of memory
 *   XPORT_ERR_NOT_SUPPORTED  *attr or *attr->conn sets an unknown field
 */
int xport_link_open(xport_links *links, const char *const *addresses, size_t count, const struct xport_link_attr *attr,
                    xport_link **link) XPORT_CHECK;

/*
 * xport_link_ep - get the endpoint of a link.
 *
 * Returns the endpoint.  NULL: the link is NULL, or is not up, or its XPORT_LINK_UP or XPORT_LINK_PEER_NEW was not taken
 * yet.
 */
xport_ep *xport_link_ep(xport_link *link);

/*
 * xport_link_retry - try now.
 *
 * A link that waits tries its addresses at once.  One that has given up begins again, with its limits as new, but not
 * before XPORT_LINK_GIVEN_UP was taken.  On a link that connects or is up the call has no effect.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     the link is closed, or is closing
 *   XPORT_ERR_INVALID    link is NULL
 */
int xport_link_retry(xport_link *link);

/*
 * xport_link_close - start to close a link, without waiting.
 *
 * Closes the endpoint as xport_ep_close_start does with `timeout_ms`.  Operations that the link keeps end with their error.
 * XPORT_LINK_CLOSED follows.
 *
 * On a link that is closing already, timeout_ms 0 ends the wait for the peer: the endpoint is destroyed at once and
 * must not be used.  The status of XPORT_LINK_CLOSED is then XPORT_ERR_TIMEOUT.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_CLOSED     the link is closed; or is closing, and timeout_ms is not 0
 *   XPORT_ERR_INVALID    link is NULL; timeout_ms is below -1
 */
int xport_link_close(xport_link *link, int timeout_ms);

/*
 * xport_link_free - free a link that has closed, with its keys.
 *
 * `link` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY    XPORT_LINK_CLOSED or a DONE of it was not taken; completions of its endpoint were not reaped
 */
int xport_link_free(xport_link *link);

/* The state of a link. */
typedef enum xport_link_state {
	XPORT_LINK_WAITING = 0,    /* for the next round; or for the application to take XPORT_LINK_DOWN */
	XPORT_LINK_CONNECTING = 1, /* an attempt is in progress */
	XPORT_LINK_OPEN = 2,
	XPORT_LINK_STOPPED = 3, /* it has given up */
	XPORT_LINK_ENDING = 4,
	XPORT_LINK_OVER = 5
} xport_link_state;

/* A link.  The strings belong to the link; `text` and `address` are valid until the next call on it. */
struct xport_link_info {
	size_t size;
	int state;  /* enum xport_link_state */
	int status; /* enum xport_status: the last error since it was up; XPORT_OK: none */
	const char *label;
	const char *address; /* the one that is connected or tried, or was last */
	const char *text;    /* of the last error */
	void *context;
	uint64_t incarnation; /* of the peer, when it was last up; 0: it was not */
	uint64_t ups;         /* how often it came up */
	uint32_t rounds;      /* failed rounds, as counted for xport_link_attr.rounds */
	int wait_ms;          /* WAITING: until the next round; -1: XPORT_LINK_DOWN must be taken first */
	uint32_t ops;         /* operations without a DONE that was taken */
	uint32_t kept;        /* of these, waiting to be posted again */
	uint32_t keys;
	uint32_t void_keys;
};

/*
 * xport_link_query - get the state of a link.
 *
 * Set info->size before the call.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; info->size is wrong
 */
int xport_link_query(xport_link *link, struct xport_link_info *info) XPORT_CHECK;

/* ---- Keys --------------------------------------------------------------------------------------------------- */

/*
 * xport_link_rkey_add - keep a key of the peer.
 *
 * `bytes` are the packed key; with len 0 the key is void until it gets bytes.  `name` is its name in a directory, for
 * xport_links_entry; with name_len 0 it has none.  If the link is not up, the bytes are unpacked when it is.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BAD_KEY    the bytes are damaged, or are not a key
 *   XPORT_ERR_CLOSED     the link is closed, or is closing
 *   XPORT_ERR_INVALID    link or key is NULL; bytes or name is NULL although its length is not 0; a length is above its
 *                        maximum
 *   XPORT_ERR_NO_MEMORY  out of memory
 *   XPORT_ERR_STALE_KEY  the key belongs to another process than this peer, or to an earlier run of this peer
 */
int xport_link_rkey_add(xport_link *link, const void *name, size_t name_len, const void *bytes, size_t len,
                        xport_link_rkey **key) XPORT_CHECK;

/*
 * xport_link_rkey_set - give a key new bytes.
 *
 * After an error the key is as it was.  Operations with the key that are kept and were posted before end with
 * XPORT_ERR_STALE_KEY if the bytes differ from the ones before: they may have had their effect on another region.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    key or bytes is NULL; len is 0 or above its maximum
 *   the other errors of xport_link_rkey_add
 */
int xport_link_rkey_set(xport_link_rkey *key, const void *bytes, size_t len) XPORT_CHECK;

/*
 * xport_link_rkey_get - get the unpacked key, for operations on the endpoint of xport_link_ep.
 *
 * *rkey belongs to the link.  It is valid as long as the endpoint, and until the key gets new bytes or is removed.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_INVALID    an argument is NULL; the link has not been up yet
 *   XPORT_ERR_NO_MEMORY  out of memory: the key could not be unpacked yet; call again
 *   XPORT_ERR_STALE_KEY  the key is void: give it the bytes of the peer's present instance
 *   the reason why the link is not up
 */
int xport_link_rkey_get(xport_link_rkey *key, xport_rkey **rkey) XPORT_CHECK;

/*
 * xport_link_rkey_remove - free a key.
 *
 * `key` may be NULL.
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_BUSY    a repeatable operation with this key has not ended
 */
int xport_link_rkey_remove(xport_link_rkey *key);

/*
 * xport_links_entry - give an entry of a directory to the keys with its name.
 *
 * Call it for XPORT_DIRECTORY_CHANGED, and for XPORT_DIRECTORY_DONE of xport_directory_find.  A key of that name takes the
 * entry's bytes, unless its link is up and they are not a key of that peer.  The entry may come before or after
 * XPORT_LINK_PEER_NEW.
 *
 * Returns the number of keys that took the bytes, or
 *   XPORT_ERR_INVALID    an argument is NULL; len is 0 or above its maximum; the entry has a wrong size or no key
 */
int xport_links_entry(xport_links *links, const void *name, size_t len, const struct xport_directory_entry *entry);

/* ---- Operations --------------------------------------------------------------------------------------------- */

/*
 * xport_link_put, xport_link_get, xport_link_put_notify, xport_link_send - post an operation through a link.
 *
 * They do what xport_put, xport_get, xport_put_notify and xport_send do.  XPORT_LINK_DONE with opt->context follows.  The
 * buffer belongs to the link until then.  `flags` is 0 or XPORT_LINK_REPEATABLE.
 *
 * Without XPORT_LINK_REPEATABLE the operation is refused while the link is not up, and ends with its error if the endpoint
 * is lost.  With it the operation is kept while the link is not up.  It ends with an error
 *   - if the link comes up with another instance of the peer than the one of the last XPORT_LINK_UP or XPORT_LINK_PEER_NEW
 *     that was taken before the call (attempts is 0 if it was never posted; then the status is XPORT_ERR_STALE_KEY, or
 *     XPORT_ERR_PEER_LOST of a send)
 *   - if it was posted again xport_link_attr.repeats times
 *   - if it was posted before, and its key has other bytes since then (XPORT_ERR_STALE_KEY)
 *   - if the link gives up or is closed
 *   - for every reason other than the end of the endpoint
 * A send that has completed is not repeated, even if the peer did not receive it.
 *
 * opt->flags  XPORT_LOCAL (put, put_notify), not with XPORT_LINK_REPEATABLE
 *
 * Returns XPORT_OK, or
 *   XPORT_ERR_AGAIN      max_ops operations have no DONE that was taken; kept operations must be posted before this one;
 *                        or as for xport_put: poll, and take events
 *   XPORT_ERR_CLOSED     the link is closed, or is closing
 *   XPORT_ERR_INVALID    an argument is NULL; the key belongs to another link; an unknown flag; opt->size or opt->flags
 *                        is not allowed; not repeatable: the link has not been up yet, or its XPORT_LINK_UP was not
 *                        taken
 *   XPORT_ERR_STALE_KEY  the key is void: give it the bytes of the peer's present instance
 *   the reason why the link is not up: not repeatable, or it has given up, or XPORT_LINK_PEER_NEW was not taken yet
 *   the other errors of xport_put, xport_get, xport_put_notify or xport_send
 */
int xport_link_put(xport_link *link, const void *buf, size_t len, xport_link_rkey *key, uint64_t offset,
                   const struct xport_opt *opt, uint32_t flags) XPORT_CHECK;
int xport_link_get(xport_link *link, void *buf, size_t len, xport_link_rkey *key, uint64_t offset,
                   const struct xport_opt *opt, uint32_t flags) XPORT_CHECK;
int xport_link_put_notify(xport_link *link, const void *buf, size_t len, xport_link_rkey *key, uint64_t offset,
                          const struct xport_opt *opt, uint32_t flags) XPORT_CHECK;
int xport_link_send(xport_link *link, const void *buf, size_t len, uint64_t tag, const struct xport_opt *opt,
                    uint32_t flags) XPORT_CHECK;

#ifdef __cplusplus
}
#endif

#endif
