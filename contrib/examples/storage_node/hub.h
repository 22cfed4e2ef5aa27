/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hub.h - an instance, its endpoints and its calls; the loop that each program here turns.
 *
 * Errors of opening are printed on standard error.  The end of an endpoint is reported by `lost`.  After that the endpoint
 * must not be used.
 */
#ifndef STORAGE_HUB_H
#define STORAGE_HUB_H

#include <xport.h>
#include <xport_services.h>

#include "wire.h"

/* The shortest time before something that failed is repeated. */
enum { SH_SOON_MS = 20 };

struct sh_peer {
	struct sh_peer *next;
	xport_ep *ep;
	bool bad;       /* to be closed */
	bool ended;     /* to be destroyed; `lost` has been called */
	bool destroyed; /* completions may still name it, until XPORT_EVENT_DESTROYED */
};

struct sh_method {
	const char *name; /* NULL: the end of the list */
	xport_rpc_fn fn;
};

struct sh_use {
	const char *program;
	const struct sh_method *methods; /* what peers may call; NULL: nothing */
	void (*done)(void *arg, const struct xport_rpc_event *e); /* a call of this process has ended */
	void (*lost)(void *arg, xport_ep *ep);
};

struct sh_hub {
	const struct sh_use *use;
	void *arg; /* of the methods, of `done` and `lost` */
	xport *x;
	xport_rpcs *rpcs;
	xport_listener *listener;
	char address[SW_ADDRESS];
	struct sh_peer *peers;
};

/* `listen`: the address, or NULL.  Returns NULL after an error. */
struct sh_hub *sh_hub_open(const struct sh_use *use, void *arg, const char *listen);
void sh_hub_close(struct sh_hub *hub);

/* Prints the last error of libxport. */
void sh_complain(struct sh_hub *hub, const char *what);
/* Prints the last error of libxport_services. */
void sh_complain_services(struct sh_hub *hub, const char *what);

/* Continues for up to `timeout_ms`, or until something came. */
void sh_hub_poll(struct sh_hub *hub, int timeout_ms);
/* Takes one completion; an xport_completion_fn. */
void sh_hub_take(void *hub, const struct xport_completion *c);

/* Returns NULL if nobody is there. */
xport_ep *sh_connect(struct sh_hub *hub, const char *address);
/* Closes the endpoint in the next turn of the loop. */
void sh_close(struct sh_hub *hub, const xport_ep *ep);

/* Calls a method.  Returns the id of the call; 0: it failed, and `done` does not follow.  Sets args.size and args.id. */
uint64_t sh_call(struct sh_hub *hub, xport_ep *ep, const char *method, struct xport_rpc_args args);
/* Copies the payload of a request.  Returns false, after a reply, if it has another length. */
bool sh_payload(struct sh_hub *hub, const struct xport_rpc_event *request, void *to, size_t len);
/* Replies to a request. */
void sh_reply(struct sh_hub *hub, uint64_t request, int status, const void *payload, size_t len);

/* Reads, and waits for it.  Returns false if the peer is lost, or about to be. */
bool sh_get(struct sh_hub *hub, xport_ep *ep, void *to, size_t len, xport_rkey *rkey, uint64_t offset, xport_mr *mr);

/* Stores the address and the region's key in *member. */
bool sh_describe(struct sh_hub *hub, xport_mr *mr, struct sw_member *member);

int64_t sh_now_ms(void);
/* The earliest time to repeat a call that has failed; `e` is NULL if it could not be made. */
int64_t sh_again_ms(const struct xport_rpc_event *e);

#endif
