/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hub.h - an instance, its endpoints, and messages over them; the loop that each program here turns.
 *
 * ERRORS: what cannot be opened is said on standard error.  A peer that is lost, or sends what is no message, is told of
 * by `lost`, after which it is gone.
 */
#ifndef STORAGE_HUB_H
#define STORAGE_HUB_H

#include <xport.h>

#include "wire.h"

enum { SH_RECEIVES = 32 };

struct sh_hub;

struct sh_letter {
	struct sh_letter *next;
	size_t len;
	uint8_t bytes[];
};

struct sh_peer {
	struct sh_hub *hub;
	struct sh_peer *next;
	xport_ep *ep;
	uint32_t node; /* for whoever uses the hub: which node it is, else SW_NONE */
	bool bad;      /* is to be closed: sent what is no message, or is of no use any more */
	int64_t closed_ms; /* when it ended; what it had sent is still to be reaped, and dropped.  0: it is open */
	struct sh_letter *first, **last; /* that wait to be posted */
};

struct sh_calls {
	void (*message)(void *arg, struct sh_peer *peer, const struct sw_message *m);
	void (*lost)(void *arg, struct sh_peer *peer);
};

/* A message that has come. */
struct sh_held {
	xport_ep *ep;
	int status;
	size_t len;
	uint8_t *in;
};

struct sh_hub {
	const char *name; /* of the program */
	xport *x;
	xport_listener *listener;
	char address[SW_ADDRESS];
	const struct sh_calls *calls;
	void *arg;
	struct sh_peer *peers;
	struct sw_message message; /* the one that is handed out */
	struct sh_held held[SH_RECEIVES]; /* it may come before its endpoint can be accepted, and waits for that */
	int helds;
	uint8_t in[SH_RECEIVES][SW_MESSAGE];
};

/* Waits for a get. */
struct sh_get {
	bool done;
	int status;
};

/* `listen`: where, or NULL.  NULL is returned if that cannot be had. */
struct sh_hub *sh_hub_open(const char *name, const char *listen, const struct sh_calls *calls, void *arg);
void sh_hub_close(struct sh_hub *hub);

/* Says what the library knows of its last failure. */
void sh_complain(struct sh_hub *hub, const char *what);

/* Goes on for up to `timeout_ms`, or until something came. */
void sh_hub_poll(struct sh_hub *hub, int timeout_ms);
/* One completion; an xport_completion_fn. */
void sh_hub_take(void *hub, const struct xport_completion *c);

/* NULL: nobody is there. */
struct sh_peer *sh_connect(struct sh_hub *hub, const char *address);
/* Takes a copy.  What cannot be sent is dropped; `lost` tells. */
void sh_send(struct sh_peer *peer, const struct sw_message *m);
/* Reads, and waits for it; false: the peer is lost, or about to be. */
bool sh_get(struct sh_peer *peer, void *to, size_t len, xport_rkey *rkey, uint64_t offset, xport_mr *mr);

/* Makes the region's key a part of the member. */
bool sh_describe(struct sh_hub *hub, xport_mr *mr, struct sw_member *member);

int64_t sh_now_ms(void);

#endif
