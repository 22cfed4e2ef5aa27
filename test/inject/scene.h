/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scene.h - the steps of scenarios. Each accepts success, or a status that its manual page lists and xport_last_error
 * explains. It reports everything else by scene_bad.
 */
#ifndef TEST_INJECT_SCENE_H
#define TEST_INJECT_SCENE_H

#include "scenarios.h"

enum {
	PEER_TIMEOUT_MS = 2000,   /* nobody is to be lost because the machine is busy */
	CONNECT_LIMIT_MS = 32000, /* xport_connect has 30 s */
	OPS_LIMIT_MS = 10000,
	LOST_LIMIT_MS = 5000, /* a busy machine is slow: how fast a loss is seen is for the cases of P5 */
	MEMORY_LIMIT_MS = 1000,
	UNSEEN_MS = 100, /* of a time that nobody looked at the clock */
	REGION = 1 << 16,
	LONG = 1 << 18, /* a message longer than any eager one */
	PIECES = 4,     /* of a list */
	RIGHTS = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC
};

#define BIT(status) (1u << -(status))
/* What calls may return. */
enum {
	ON_OPEN = BIT(XPORT_ERR_CONFIG) | BIT(XPORT_ERR_NO_BACKEND) | BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM),
	ON_LISTEN = BIT(XPORT_ERR_ADDRESS) | BIT(XPORT_ERR_UNREACHABLE) | BIT(XPORT_ERR_AUTH) |
	            BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM),
	ON_CONNECT = BIT(XPORT_ERR_ADDRESS) | BIT(XPORT_ERR_UNREACHABLE) | BIT(XPORT_ERR_REFUSED) |
	             BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_AUTH) | BIT(XPORT_ERR_PROTOCOL) | BIT(XPORT_ERR_NO_MEMORY) |
	             BIT(XPORT_ERR_SYSTEM),
	ON_ACCEPT = BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_CLOSED) | BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM),
	ENDED = BIT(XPORT_ERR_PEER_LOST) | BIT(XPORT_ERR_PEER_CLOSED) | BIT(XPORT_ERR_CLOSED),
	ON_REG = BIT(XPORT_ERR_FAULT) | BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM),
	ON_UNPACK = BIT(XPORT_ERR_NO_MEMORY) | ENDED,
	ON_POST = BIT(XPORT_ERR_AGAIN) | BIT(XPORT_ERR_NO_MEMORY) | ENDED,
	ON_DONE = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | BIT(XPORT_ERR_TRUNCATED) |
	          BIT(XPORT_ERR_CANCELED) | ENDED,
	ON_CLOSE = BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_PEER_LOST) |
	           BIT(XPORT_ERR_PEER_CLOSED)
};

/* A region of side 0, and its key at side 1. */
struct region {
	xport_mr *mr;
	xport_rkey *key;
	uint8_t *base;
};

/* What side i receives into, or has others write to; and what it sends, puts, and gets (behind the first REGION bytes). */
extern uint8_t buffer[2][LONG + 64], local[2][LONG + 64];

/* The deadline of operations that are posted from now on, long enough for all of them; 0: none. */
extern uint32_t sc_deadline_ms;

int64_t sc_now_ms(void);
/* Something has not succeeded, as it may then, so that results are no longer looked at. */
bool sc_failing(const struct scene *s);
/* Whether the call succeeded; a failure must be one of `allowed`, and told by xport_last_error. */
bool sc_ok(struct scene *s, const xport *x, const char *what, int status, unsigned allowed);
/* The same for what libxport_services says. */
bool sc_served(struct scene *s, const char *what, int status, unsigned allowed);
/* An event told of this failure. */
void sc_note(struct scene *s, int status, unsigned allowed);
/* Polls both sides once, and takes what came. */
void sc_step(struct scene *s);
void sc_breathe(struct scene *s, int polls);
/* Polls until all but the receives have completed.  Without memory for good some wait for it; they go on once there is. */
void sc_settle(struct scene *s);

bool sc_open_side(struct scene *s, int side);
bool sc_query(struct scene *s, int side);
bool sc_open_both(struct scene *s);
/* Listens at `address` and connects side 1 to it, without blocking. */
void sc_connect_at(struct scene *s, const char *address);
void sc_connect_both(struct scene *s);
bool sc_connected(const struct scene *s);
void sc_ep_query(struct scene *s, int side);
/* What is left of its receives ends here. */
void sc_close_endpoint(struct scene *s, int side);
void sc_close_all(struct scene *s);

void sc_put(struct scene *s, xport_rkey *k, size_t len, uint64_t offset, uint64_t flags);
void sc_get(struct scene *s, xport_rkey *k, size_t len, uint64_t offset);
void sc_put_notify(struct scene *s, xport_rkey *k, size_t len, uint64_t value);
void sc_atomic(struct scene *s, xport_rkey *k, void *result);
void sc_flush(struct scene *s);
void sc_send_to(struct scene *s, int side, size_t len, uint64_t tag);
/* Into buffer[side], from its peer. */
struct scene_op *sc_receive(struct scene *s, int side, size_t len, uint64_t tag);
/* The same with XPORT_MULTI. */
struct scene_op *sc_receive_many(struct scene *s, int side, size_t len, size_t longest, uint64_t tag);
/* The same of lists of PIECES pieces of `len` bytes. A put and a get reverse the order of the pieces, and leave holes. */
void sc_putv(struct scene *s, xport_rkey *k, size_t len, uint64_t flags);
void sc_getv(struct scene *s, xport_rkey *k, size_t len);
void sc_sendv_to(struct scene *s, int side, size_t len, uint64_t tag);
struct scene_op *sc_receivev(struct scene *s, int side, size_t len, uint64_t tag);
/* From now on what the side sends and receives lies in regions; sc_disown: see sc_unshare. */
void sc_own(struct scene *s, int side);
void sc_disown(struct scene *s, int side);
void sc_share(struct scene *s, struct region *r, bool alloc);
/* Where nobody else makes progress for the other side: after the endpoints have ended, since nobody need answer then. */
void sc_unshare(struct scene *s, struct region *r);
/* All kinds of remote accesses, by this region. */
void sc_access(struct scene *s, struct region *r);

#endif
