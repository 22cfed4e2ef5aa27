/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - an endpoint as xport_cp uses it: messages both ways, and slots of one side into which the other puts.
 *
 * The owner of a link gets messages and blocks by its callbacks, from cp_hub_poll. A failed link delivers nothing more.
 * It is freed when all of its operations have completed.
 *
 * ERRORS: the first failure stays in link->text, and link->failed is set.
 */
#ifndef CP_LINK_H
#define CP_LINK_H

#include <stdbool.h>
#include <xport.h>

#include "tools/cp/wire.h"

enum { CP_LINKS = 16, CP_RECEIVES = 4 };

struct cp_link;

struct cp_links_calls {
	void (*message)(void *arg, const struct cp_msg *m);
	void (*block)(void *arg, unsigned slot); /* the peer's put into this slot is here */
	void (*sent)(void *arg, unsigned slot);  /* the put from this slot is out: it may be written again */
};

/* What a completion belongs to. */
struct cp_token {
	struct cp_link *link;
	enum { CP_TOKEN_RECEIVE, CP_TOKEN_LETTER, CP_TOKEN_PUT } kind;
	unsigned slot;
};

struct cp_letter {
	struct cp_token token;
	struct cp_letter *next; /* of those that wait to be posted */
	size_t len;
	uint8_t bytes[];
};

struct cp_hub {
	xport *x;
	int wake;      /* an eventfd, by which other threads end a wait */
	struct cp_link *links[CP_LINKS];
};

struct cp_link {
	struct cp_hub *hub;
	xport_ep *ep;
	const struct cp_links_calls *calls;
	void *arg;
	bool failed, closed;
	int status; /* of the library, where it was that which failed */
	char peer[64];
	char text[CP_TEXT];
	char hint[256]; /* what its user can do about it, or "" */
	unsigned pending; /* operations that have not completed */
	unsigned letters; /* that have not left */
	struct cp_letter *first, **last;
	xport_mr *mr;     /* the slots: written here by the source, by the peer at the sink */
	uint8_t *slots;
	xport_rkey *rkey; /* the source: to the peer's slots */
	uint64_t bytes;   /* put, or arrived */
	struct cp_token receives[CP_RECEIVES], puts[CP_SLOTS];
	uint8_t *in[CP_RECEIVES];
};

bool cp_hub_open(struct cp_hub *hub, const char *backend);
void cp_hub_close(struct cp_hub *hub);
/* Ends the wait that is under way, or the next one.  Any thread. */
void cp_hub_wake(struct cp_hub *hub);
/* Waits up to so long for something to come, and lets the links' owners have it; false: the instance failed. */
bool cp_hub_poll(struct cp_hub *hub, int timeout_ms);

/* Takes over the endpoint, also if it fails.  NULL: too many links, or no memory. */
struct cp_link *cp_link_new(struct cp_hub *hub, xport_ep *ep, const struct cp_links_calls *calls, void *arg);
/* Closes, waiting up to so long for what was sent, and forgets the owner; the link frees itself. */
void cp_link_end(struct cp_link *l, int timeout_ms);
/* Says on standard error why a call of the library failed, and what its user can do about it. */
void cp_complain(const struct xport_error *e);
__attribute__((format(printf, 2, 3))) bool cp_link_fail(struct cp_link *l, const char *format, ...);
/* The same, with what the library says. */
bool cp_link_library(struct cp_link *l, int status, const char *what);

/* Makes the slots; `key` gets the key to them, *len its length (in: the room). */
bool cp_link_slots(struct cp_link *l, uint32_t rights, void *key, size_t *len);
bool cp_link_key(struct cp_link *l, const struct cp_bytes *key);
uint8_t *cp_link_data(struct cp_link *l, unsigned slot);
/* The head that came with a block; what the peer does to it afterwards changes nothing. */
void cp_link_head(struct cp_link *l, unsigned slot, struct cp_head *h);
/* Puts the slot's head and data into the peer's slot of the same number.  False without a failure: try again. */
bool cp_link_put(struct cp_link *l, unsigned slot, const struct cp_head *h);
bool cp_link_send(struct cp_link *l, const struct cp_msg *m);

#endif
