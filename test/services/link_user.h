/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link_user.h - a role with a link, and the plain server that the link leads to. The harness makes no progress meanwhile
 * (h->idle).
 */
#ifndef TEST_LINK_USER_H
#define TEST_LINK_USER_H

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { L_LEN = 4096, L_BACK_MS = 30000 };

struct link_user {
	struct h *h;
	xport_links *l;
	xport_link *link;
	char address[2][80]; /* of the server; of nobody */
	xport_link_rkey *key;
	struct h_mem mem;
	xport_rkey *rkey;
	int dropped; /* completions that belong to no link */
};

/* What a client asks its server to do. */
enum link_ask {
	LINK_END = 1, /* end the role */
	LINK_CLOSE,   /* drop all endpoints, without a flush */
	LINK_SHUT,    /* stop listening, too */
	LINK_LISTEN,  /* listen again at the same address */
	LINK_REJECT,  /* from now on drop each endpoint soon after it was accepted */
	LINK_STOP,    /* make no progress until the next question */
	LINK_RECEIVE, /* take two messages of 100 KiB, of the seeds 1 and 2 in this order */
	LINK_READ     /* the first 8 bytes of the region */
};

/* Role 0: a server with L_LEN bytes, whose key is its private data. */
void link_server(struct h *h);
/* Asks it, and returns its answer. */
uint64_t link_ask(struct link_user *u, enum link_ask what);

/* Opens, makes links, learns the server's address. */
void link_begin(struct link_user *u, struct h *h);
void link_begin_with(struct link_user *u, struct h *h, const struct xport_attr *attr);
/* A link to the server; the waits are short. */
struct xport_link_attr link_attr(struct link_user *u);
void link_open(struct link_user *u, const struct xport_link_attr *a);
/* The server's key, of its private data. */
void link_key(struct link_user *u);
void link_end(struct link_user *u);
void link_turn(struct link_user *u);
void link_turn_for(struct link_user *u, int ms);

/* The next event, which must be of this type. */
struct xport_link_event link_next(struct link_user *u, const char *file, int line, int type);
#define LINK_NEXT(u, type) link_next(u, __FILE__, __LINE__, type)
/* DONE with this status, and posted so often. */
void link_done(struct link_user *u, const char *file, int line, int status, uint32_t attempts);
#define LINK_DONE(u, status, attempts) link_done(u, __FILE__, __LINE__, status, attempts)
/* No event comes for a while. */
void link_quiet(struct link_user *u, int ms);
struct xport_link_info link_info(struct link_user *u);
/* Puts 8 bytes at the beginning of the region, and looks at them there. */
void link_works(struct link_user *u, uint64_t value);

#endif
