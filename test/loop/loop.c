/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop - the reference back end: instances of one process that communicate through memory. It is the example to copy.
 *
 *   loop:message  only the required slots; the core carries everything
 *   loop:native   also puts and gets, which behave as over a real network: they are done at a later poll, and a frame
 *                 sent after a put may overtake it, so that the core has to drain
 *   loop:rdma     the same, with the behaviour of verbs: short puts are done when posted, nothing overtakes a put, a
 *                 completed drain proves that they are placed, and atomics are not atomic with those of the CPU
 *
 * Frames are copied into the inbox of the other instance, which finds them in its next poll.
 */
#include "loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/nearest.h"

enum { AM_MAX = 8192, CREDITS = 32, POLL_MAX = 64 };

pthread_mutex_t loop_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpi_list table = {&table, &table};
static uint64_t last_id;

struct xpi_be *loop_find(uint64_t id)
{
	xpi_list_for(l, &table)
		if (xpi_container(l, struct xpi_be, link)->id == id)
			return xpi_container(l, struct xpi_be, link);
	return NULL;
}

/* ---- open ---- */

static const char *const providers[] = {"native", "rdma", "message"};

static int loop_list(const struct xpi_log *log, xpi_candidate_fn emit, void *arg)
{
	(void)log;
	for (int i = 0; i < 3; i++) {
		struct xport_candidate c = {.state = XPORT_READY, .reason = "instances of this process"};

		snprintf(c.name, sizeof(c.name), "loop:%s", providers[i]);
		emit(arg, &c);
	}
	return XPORT_OK;
}

static bool known(const char *provider)
{
	for (int i = 0; i < 3; i++)
		if (strcmp(provider, providers[i]) == 0)
			return true;
	return false;
}

static int unknown(const char *provider, struct xport_error *err)
{
	struct xpi_nearest near = xpi_nearest(provider);

	for (int i = 0; i < 3; i++)
		xpi_nearest_look(&near, providers[i]);
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, NULL,
	                "loop has no provider %s: it has native, rdma and message%s%s", provider,
	                near.name != NULL ? "; the nearest is loop:" : "", near.name != NULL ? near.name : "");
}

static const char *provider_of(const struct xpi_be *be)
{
	return be->ordered ? "rdma" : be->native ? "native" : "message";
}

static bool is_named(const struct xpi_be *be, const char *name)
{
	return name != NULL && strcmp(name, provider_of(be)) == 0;
}

static int loop_open(const struct xpi_be_open_args *args, struct xpi_be **out)
{
	const char *provider = args->provider != NULL ? args->provider : "native";
	struct xpi_be *be;

	if (!known(provider))
		return unknown(provider, args->err);
	if (loop_manners.absent != NULL && strcmp(provider, loop_manners.absent) == 0 &&
	    (loop_manners.present == 0 || loop_manners.present-- == 0))
		return xpi_fail(args->err, loop_manners.absent_status ?: XPORT_ERR_NO_BACKEND, 0, NULL, NULL,
		                "loop:%s is not here", provider);
	loop_manners.opened++;
	be = calloc(1, sizeof(*be));
	if (be == NULL)
		return xpi_fail(args->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory for an instance of loop");
	be->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (be->fd < 0) {
		free(be);
		return xpi_fail_errno(args->err, XPORT_ERR_SYSTEM, NULL, "no descriptor for an instance of loop");
	}
	be->native = provider[0] != 'm';
	be->ordered = provider[0] == 'r';
	be->core = args->core;
	be->up = args->up;
	be->err = args->err;
	xpi_list_init(&be->inbox);
	xpi_list_init(&be->own);
	xpi_list_init(&be->regions);
	xpi_list_init(&be->eps);
	pthread_mutex_lock(&loop_lock);
	be->id = ++last_id;
	xpi_list_push(&table, &be->link);
	pthread_mutex_unlock(&loop_lock);
	*out = be;
	return XPORT_OK;
}

static void loop_close(struct xpi_be *be)
{
	pthread_mutex_lock(&loop_lock);
	xpi_list_del(&be->link);
	pthread_mutex_unlock(&loop_lock);
	while (!xpi_list_empty(&be->inbox))
		free(xpi_container(xpi_list_pop(&be->inbox), struct loop_item, link));
	while (!xpi_list_empty(&be->own))
		loop_item_free(xpi_container(xpi_list_pop(&be->own), struct loop_item, link));
	close(be->fd);
	free(be);
}

static void loop_query(struct xpi_be *be, struct xpi_be_caps *c)
{
	*c = (struct xpi_be_caps){
		.device = "memory",
		.stack = "loop 1",
		.protocol = "loop 1",
		.am_max = AM_MAX,
		.ep_size = sizeof(struct loop_ep),
	};
	c->am_credits = loop_manners.wrong_caps ? 3 : CREDITS;
	c->cma_min = loop_manners.cma_min;
	c->am_cheap = loop_manners.am_cheap;
	if (is_named(be, loop_manners.brief))
		c->am_max = XPI_FRAME_LEAST;
	snprintf(c->provider, sizeof(c->provider), "%s", provider_of(be));
	if (!be->native)
		return;
	c->mr_size = sizeof(struct loop_mr);
	c->rkey_size = sizeof(struct loop_rkey_state);
	c->rkey_native_max = sizeof(struct loop_rkey);
	c->rma_reg = true;
	c->lends = true;
	c->target_bounds = true;
	c->passive_target = be->ordered;
	c->drain_places = be->ordered;
	c->rma_max = 1 << 20;
	c->am_after_put = be->ordered;
	c->nic_atomic = be->ordered;
	c->put_short = be->ordered ? LOOP_PUT_SHORT : 0;
}

/* ---- connect ---- */

static int loop_address(struct xpi_be *be, void *ep_state, struct xpi_core_ep *core_ep, void *buf, size_t *len)
{
	static uint64_t last;
	struct loop_ep *ep = ep_state;
	struct loop_address address = {.instance = be->id};

	ep->core_ep = core_ep;
	if (is_named(be, loop_manners.lost))
		return xpi_fail(be->err, XPORT_ERR_SYSTEM, 0, NULL, NULL, "loop:%s was taken out", provider_of(be));
	if (*len < sizeof(address))
		return xpi_fail(be->err, XPORT_ERR_BOUNDS, 0, NULL, NULL, "an address of loop has %zu bytes",
		                sizeof(address));
	pthread_mutex_lock(&loop_lock);
	ep->serial = address.ep = ++last;
	xpi_list_push(&be->eps, &ep->link);
	pthread_mutex_unlock(&loop_lock);
	memcpy(buf, &address, sizeof(address));
	*len = sizeof(address);
	return XPORT_OK;
}

static int loop_ep_connect(struct xpi_be *be, void *ep_state, enum xpi_role role, const void *addr, size_t len)
{
	struct loop_ep *ep = ep_state;
	struct loop_address address;
	bool found;

	if (is_named(be, loop_manners.mute))
		return XPORT_ERR_AGAIN;
	if (is_named(be, loop_manners.cut) && (loop_manners.cut_role < 0 || loop_manners.cut_role == (int)role))
		return xpi_fail(be->err, XPORT_ERR_UNREACHABLE, 0, NULL, NULL, "the cable of loop:%s is cut",
		                provider_of(be));
	if (len != sizeof(address))
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL, "an address of loop has %zu bytes, not %zu",
		                sizeof(address), len);
	memcpy(&address, addr, sizeof(address));
	pthread_mutex_lock(&loop_lock);
	found = loop_find(address.instance) != NULL;
	pthread_mutex_unlock(&loop_lock);
	if (!found)
		return xpi_fail(be->err, XPORT_ERR_UNREACHABLE, 0, NULL, "connect within one process",
		                "loop reaches instances of this process only");
	ep->peer = address.instance;
	ep->peer_ep = address.ep;
	return XPORT_OK;
}

static int loop_ep_quiesce(struct xpi_be *be, void *ep_state)
{
	struct loop_ep *ep = ep_state;

	if (loop_manners.holds)
		return XPORT_ERR_AGAIN;
	pthread_mutex_lock(&loop_lock);
	if (xpi_list_linked(&ep->link)) /* what the peer puts by it lands no more */
		xpi_list_del(&ep->link);
	pthread_mutex_unlock(&loop_lock);
	xpi_list_for_safe(l, &be->own) {
		struct loop_item *it = xpi_container(l, struct loop_item, link);

		if (it->ep == ep_state) {
			xpi_list_del(l);
			be->up->done(be->core, it->req, XPORT_ERR_PEER_LOST);
			loop_item_free(it);
		}
	}
	return XPORT_OK;
}

static void loop_ep_destroy(struct xpi_be *be, void *ep_state)
{
	(void)be;
	(void)ep_state; /* all of it lies in the core's memory */
}

/* ---- move data ---- */

int loop_deliver(struct xpi_be *be, struct loop_ep *ep, struct loop_item *room, const void *hdr, size_t hlen,
                 const void *data, size_t dlen)
{
	struct loop_item *it = room != NULL ? room : malloc(sizeof(*it) + hlen + dlen);
	struct xpi_be *peer;
	uint64_t one = 1;

	if (it == NULL)
		return XPORT_ERR_NO_MEMORY;
	it->kind = LOOP_FRAME;
	it->len = hlen + dlen;
	it->to = ep->peer_ep;
	memcpy(it->data, hdr, hlen);
	if (dlen > 0)
		memcpy(it->data + hlen, data, dlen);
	pthread_mutex_lock(&loop_lock);
	peer = loop_find(ep->peer);
	if (peer != NULL) {
		xpi_list_push(&peer->inbox, &it->link);
		if (write(peer->fd, &one, sizeof(one)) < 0) {
			/* full: it is readable all the same */
		}
	}
	pthread_mutex_unlock(&loop_lock);
	if (peer != NULL)
		return XPORT_OK;
	free(it);
	return xpi_fail(be->err, XPORT_ERR_PEER_LOST, 0, NULL, NULL, "the other instance is closed");
}

struct loop_manners loop_manners;

/* The frame stays where it is until the next poll.  Room for it is found now: it may not be refused later. */
static int keep(struct xpi_be *be, struct loop_ep *ep, const void *buf, size_t len, const void *rest, size_t rest_len,
                struct xpi_req *req)
{
	struct loop_item *it = calloc(1, sizeof(*it));

	if (it == NULL)
		return XPORT_ERR_NO_MEMORY;
	it->room = malloc(sizeof(*it) + len + rest_len);
	if (it->room == NULL) {
		free(it);
		return XPORT_ERR_NO_MEMORY;
	}
	ep->before++;
	it->kind = LOOP_KEPT;
	it->ep = ep;
	it->req = req;
	it->buf = (void *)(uintptr_t)buf;
	it->len = len;
	it->rest = rest;
	it->rest_len = rest_len;
	xpi_list_push(&be->own, &it->link);
	return XPI_PENDING;
}

static int loop_am_send(struct xpi_be *be, void *ep_state, const void *buf, size_t len, struct xpi_req *req)
{
	struct loop_ep *ep = ep_state;

	if (loop_manners.refuse > 0) {
		loop_manners.refuse--;
		return XPORT_ERR_AGAIN;
	}
	if (loop_manners.keep > 0 || ep->before > 0) {
		if (loop_manners.keep > 0) /* written only then: other threads send, too */
			loop_manners.keep--;
		return keep(be, ep, buf, len, NULL, 0, req);
	}
	return loop_deliver(be, ep, NULL, buf, len, NULL, 0);
}

static int loop_am_send_two(struct xpi_be *be, void *ep_state, const void *hdr, size_t hlen, const void *data,
                            size_t dlen, struct xpi_req *req)
{
	struct loop_ep *ep = ep_state;

	if (loop_manners.keep_two > 0) {
		loop_manners.keep_two--;
		return keep(be, ep, hdr, hlen, data, dlen, req);
	}
	return ep->before > 0 ? XPORT_ERR_AGAIN : loop_deliver(be, ep, NULL, hdr, hlen, data, dlen);
}

static struct loop_item *next_frame(struct xpi_be *be)
{
	struct xpi_list *l;

	pthread_mutex_lock(&loop_lock);
	l = xpi_list_pop(&be->inbox);
	pthread_mutex_unlock(&loop_lock);
	return l != NULL ? xpi_container(l, struct loop_item, link) : NULL;
}

/* NULL: it was quiesced, and the frame is dropped. */
static struct xpi_core_ep *channel(struct xpi_be *be, const struct loop_item *it)
{
	struct xpi_core_ep *from = NULL;

	pthread_mutex_lock(&loop_lock);
	xpi_list_for(l, &be->eps)
		if (xpi_container(l, struct loop_ep, link)->serial == it->to)
			from = xpi_container(l, struct loop_ep, link)->core_ep;
	pthread_mutex_unlock(&loop_lock);
	return from;
}

static int loop_poll(struct xpi_be *be)
{
	int n = loop_manners.broken || is_named(be, loop_manners.breaks)
	                ? XPORT_ERR_SYSTEM
	                : loop_rma_poll(be) + __atomic_load_n(&loop_manners.busy, __ATOMIC_RELAXED);
	struct loop_item *it;

	if (n < 0)
		return xpi_fail(be->err, n, 0, NULL, NULL, "broken, as it was asked to be");
	while (n < POLL_MAX && (it = next_frame(be)) != NULL) {
		struct xpi_core_ep *from = channel(be, it);

		if (from != NULL)
			be->up->am_recv(be->core, from, it->data, it->len, NULL, 0);
		free(it);
		n++;
	}
	return n;
}

/* ---- wait ---- */

static int loop_fds(struct xpi_be *be, int *fds, int max)
{
	if (max < 1)
		return 0;
	fds[0] = be->fd;
	return 1;
}

static int loop_arm(struct xpi_be *be)
{
	uint64_t v;
	bool idle;

	if (read(be->fd, &v, sizeof(v)) < 0) {
		/* was not readable */
	}
	pthread_mutex_lock(&loop_lock);
	idle = xpi_list_empty(&be->inbox) && xpi_list_empty(&be->own);
	pthread_mutex_unlock(&loop_lock);
	return idle && !__atomic_load_n(&loop_manners.busy, __ATOMIC_RELAXED) ? XPORT_OK : XPORT_ERR_AGAIN;
}

extern const struct xpi_backend xpi_backend_loop;

XPI_EXPORT_BACKEND(loop) = {
	.abi = XPI_BACKEND_ABI,
	.name = "loop",
	.list = loop_list,
	.open = loop_open,
	.close = loop_close,
	.query = loop_query,
	.mr_reg = loop_mr_reg,
	.mr_dereg = loop_mr_dereg,
	.rkey_pack = loop_rkey_pack,
	.rkey_unpack = loop_rkey_unpack,
	.rkey_destroy = loop_rkey_destroy,
	.address = loop_address,
	.ep_connect = loop_ep_connect,
	.ep_quiesce = loop_ep_quiesce,
	.ep_destroy = loop_ep_destroy,
	.am_send = loop_am_send,
	.am_send_two = loop_am_send_two,
	.put = loop_put,
	.get = loop_get,
	.atomic = loop_atomic,
	.drain = loop_drain,
	.poll = loop_poll,
	.fds = loop_fds,
	.arm = loop_arm,
};
