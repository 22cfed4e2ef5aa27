/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/inside.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/copy.h"
#include "core/cm/handshake.h"
#include "core/object/cma_window.h"
#include "core/object/completion.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/op_life.h"
#include "core/object/rkey.h"
#include "core/progress/progress.h"
#include "core/protocol/cma.h"
#include "core/protocol/keys.h"
#include "core/protocol/rx.h"
#include "core/protocol/target.h"
#include "core/wire/frame.h"
#include "core/wire/hello.h"
#include "core/wire/rkey_format.h"
#include "loop/loop.h"

/* `change`: of the endpoint's session; `freed` is added to what it says was consumed; `cut` bytes are a piece of their own. */
static void deliver(xport_ep *ep, const xport_ep *from, uint64_t change, const void *records, size_t len, int freed,
                    size_t cut)
{
	struct xpi_frame_head h = {.session = htole64(ep->session ^ change),
	                           .slot = htole16((uint16_t)ep->id),
	                           .seq = htole32(ep->rx.state.ack + 1),
	                           .seen = {htole32(ep->tx.acked), htole32(ep->msg.freed + (uint32_t)freed)}};
	uint8_t *frame = malloc(sizeof(h) + len);

	if (frame == NULL)
		abort();
	memcpy(frame, &h, sizeof(h));
	memcpy(frame + sizeof(h), records, len);
	xpi_rx_frame((struct xpi_core *)ep->tp, (struct xpi_core_ep *)(uintptr_t)from, frame, sizeof(h) + len - cut,
	             cut > 0 ? frame + sizeof(h) + len - cut : NULL, cut);
	free(frame);
}

void inside_frame(xport_ep *ep, const void *records, size_t len, int freed)
{
	deliver(ep, ep, 0, records, len, freed, 0);
}

void inside_frame_cut(xport_ep *ep, const void *records, size_t len, size_t cut)
{
	deliver(ep, ep, 0, records, len, 0, cut);
}

void inside_frame_by(xport_ep *ep, const xport_ep *from, uint64_t change, const void *records, size_t len)
{
	deliver(ep, from, change, records, len, 0, 0);
}

void inside_frame_late(xport *x, uint32_t id, uint64_t session, const void *records, size_t len)
{
	struct xpi_frame_head h = {.session = htole64(session), .slot = htole16((uint16_t)id), .seq = htole32(1)};

	xpi_rx_frame((struct xpi_core *)x->tp, NULL, &h, sizeof(h), records, len);
}

uint32_t inside_id(const xport_ep *ep)
{
	return ep->id;
}

uint64_t inside_session(const xport_ep *ep)
{
	return ep->session;
}

void inside_runt(xport_ep *ep, bool named)
{
	static const uint8_t bytes[sizeof(struct xpi_frame_head) - 1];

	xpi_rx_frame((struct xpi_core *)ep->tp, named ? (struct xpi_core_ep *)ep : NULL, bytes, sizeof(bytes), NULL, 0);
}

uint64_t inside_strays(const xport *x)
{
	return x->strays;
}

void inside_pretend(xport_ep *ep, const xport_ep *other, uint64_t change)
{
	ep->peer.id = other->id;
	ep->peer.session = other->session ^ change;
	if (ep->tx.lone != NULL)
		xpi_pool_put(&ep->x->lone_pool, ep->tx.lone);
	ep->tx.lone = NULL;
	ep->fast_left = 0;
}

uint32_t inside_name(xport_ep *ep, const void *context)
{
	const struct xpi_pool *p = &ep->x->op_pool;

	for (uint32_t i = 0; i < p->nslabs << p->shift; i++) {
		const struct xpi_op *op = xpi_pool_at(p, i);

		if (op != NULL && op->alive && op->ep == ep && op->context == context)
			return i + 1;
	}
	return 0;
}

uint32_t inside_requests(void)
{
	return XPI_REQUESTS;
}

uint32_t inside_at_once(void)
{
	return XPI_COPY_MAX;
}

uint32_t inside_unexpected(const xport_ep *ep)
{
	return xpi_unexpected_max(ep);
}

uint64_t inside_region(const xport_mr *mr)
{
	return mr->id;
}

void inside_refuse(unsigned frames)
{
	loop_manners.refuse = frames;
}

void inside_cheap(bool yes)
{
	loop_manners.am_cheap = yes;
}

void inside_no_keys(int status)
{
	loop_manners.keys = status;
}

void inside_mapped(void *memory)
{
	loop_manners.mapped = memory;
}

void inside_one_host(bool yes)
{
	loop_manners.cma_min = yes ? 16 << 10 : 0;
}

uint32_t inside_offer(xport_ep *ep, const void *context)
{
	uint32_t name = inside_name(ep, context);
	const struct xpi_op *op = name != 0 ? xpi_pool_at(&ep->x->op_pool, name - 1) : NULL;

	return op != NULL ? op->offer : 0;
}

uint32_t inside_offered(const xport_ep *ep)
{
	return ep->cma.offers;
}

void inside_outbox(xport_ep *ep, void *key, bool other)
{
	xpi_cma_key(ep->x, key);
	if (other)
		((uint8_t *)key)[3] ^= 1;
}

static size_t pool_bytes(const struct xpi_pool *p)
{
	return (p->stride << p->shift) * p->nslabs;
}

size_t inside_unexpected_bytes(const xport *x)
{
	size_t n = pool_bytes(&x->tp->frame_pool);

	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		n += pool_bytes(&x->unexpected_pools[i]);
	return n;
}

static void no_more(struct xpi_pool *pool, struct xpi_pool *kept, bool none)
{
	if (!none) {
		*pool = *kept;
		return;
	}
	*kept = *pool;
	pool->free = NULL;
	pool->nslabs = UINT32_MAX; /* more are not allowed */
}

void inside_no_frames(xport *x, bool none)
{
	static struct xpi_pool kept;

	no_more(&x->tp->frame_pool, &kept, none);
}

void inside_no_operations(xport *x, bool none)
{
	static struct xpi_pool kept;

	no_more(&x->op_pool, &kept, none);
}

void inside_some_operations(xport *x, unsigned n)
{
	struct xpi_op *op[8];

	for (unsigned i = 0; i < n; i++)
		op[i] = xpi_op_get(x, NULL, XPORT_OP_RECV);
	inside_no_operations(x, true);
	for (unsigned i = 0; i < n; i++)
		xpi_op_put(x, op[i]);
}

xport_ep *inside_connecting(xport *x)
{
	xpi_list_for(l, &x->eps) {
		xport_ep *ep = xpi_container(l, xport_ep, link);

		if (ep->state == XPI_EP_CONNECTING && ep->conn != NULL && ep->conn->listener != NULL &&
		    ep->conn->step == XPI_CONN_READY)
			return ep;
	}
	return NULL;
}

void inside_claim(xport_ep *ep, const xport_mr *mr)
{
	xpi_serve_key(ep, XPI_REC_CLAIM, mr->id);
}

static uint64_t region_of(const void *key, size_t len)
{
	struct xpi_key k;

	return xpi_key_decode(key, len, &k) ? k.region : 0;
}

bool inside_hold(xport_ep *ep, const void *key, size_t len)
{
	return xpi_mr_claim(ep, region_of(key, len));
}

size_t inside_granted(xport_ep *ep, const void *key, size_t len)
{
	uint8_t native[XPI_NATIVE_KEY_MAX];
	size_t n = sizeof(native);

	return xpi_mr_granted(ep, region_of(key, len), native, &n) == XPORT_OK ? n : 0;
}

size_t inside_other_key(const void *key, size_t len, void *out, size_t room)
{
	struct xpi_key k;

	if (!xpi_key_decode(key, len, &k))
		return 0;
	k.incarnation++;
	return xpi_key_encode(&k, out, room);
}

size_t inside_encode(size_t room)
{
	struct xpi_key k = {.length = 1};
	uint8_t *out = calloc(1, room + 1);
	size_t n;

	if (out == NULL)
		abort();
	n = xpi_key_encode(&k, out, room);
	free(out);
	return n;
}

bool inside_text_fits(size_t len)
{
	char *text = malloc(len + 1);
	uint8_t *out = malloc(len + 8);
	struct xpi_wr w;

	if (text == NULL || out == NULL)
		abort();
	memset(text, 'x', len);
	text[len] = '\0';
	w = xpi_wr(out, len + 8);
	xpi_wr_str(&w, text);
	free(text);
	free(out);
	return !w.bad;
}

/* ---- handshakes ---- */

struct inside_conn {
	struct xpi_conn *conn;
};

struct inside_conn *inside_conn_new(xport *x, int fd, enum inside_step step)
{
	static const enum xpi_conn_step steps[] = {XPI_CONN_TCP, XPI_CONN_HELLO, XPI_CONN_NATIVE, XPI_CONN_REFUSING};
	struct inside_conn *c = calloc(1, sizeof(*c));

	if (c == NULL)
		abort();
	c->conn = xpi_conn_new(x, &xpi_conn_client);
	if (c->conn == NULL)
		abort();
	c->conn->fd = fd;
	c->conn->step = steps[step];
	strcpy(c->conn->remote, "somebody");
	return c;
}

void inside_conn_free(struct inside_conn *c)
{
	xpi_conn_discard(c->conn);
	free(c);
}

int inside_flush(struct inside_conn *c, size_t word, size_t hello)
{
	c->conn->word_len = word;
	c->conn->out_len = hello;
	return xpi_conn_flush(c->conn);
}

int inside_fill(struct inside_conn *c, size_t want)
{
	return xpi_conn_fill(c->conn, want);
}

int inside_same_user(struct inside_conn *c, int64_t after_ms)
{
	struct xport_ep ep = {.x = c->conn->x, .tp = c->conn->x->tp, .conn = c->conn};

	c->conn->native_ms = xpi_now_ms() - after_ms;
	return xpi_conn_same_user((struct xpi_core *)ep.tp, (struct xpi_core_ep *)&ep);
}

int inside_watch(struct inside_conn *c, int64_t deadline_ms, int64_t addr_deadline_ms, uint32_t *events,
                 int64_t *until_ms)
{
	int64_t now = xpi_now_ms();
	int rc;

	c->conn->deadline_ms = now + deadline_ms;
	c->conn->addr_deadline_ms = now + addr_deadline_ms;
	rc = xpi_conn_watch(c->conn);
	*events = c->conn->watch.events;
	*until_ms = c->conn->watch.deadline_ms - now;
	return rc;
}

/* ---- peers that are made up ---- */

size_t inside_hello(xport *x, void *buf, size_t room)
{
	struct xpi_hello h;

	xpi_conn_identity(x, x->tp, 0, &h);
	h.theirs = 0; /* as a server says */
	h.ep_id = h.session = 1;
	h.address_len = sizeof(struct loop_address);
	memcpy(h.address, &(struct loop_address){.instance = x->be->id}, sizeof(struct loop_address));
	return xpi_hello_encode(&h, buf, room);
}

/* The serial number of the endpoint by whose channel its peer's frames come. */
static uint64_t channel(xport *x, uint64_t session)
{
	uint64_t serial = 0;

	pthread_mutex_lock(&loop_lock);
	xpi_list_for(l, &x->be->eps) {
		const struct loop_ep *ep = xpi_container(l, struct loop_ep, link);

		if (((struct xport_ep *)ep->core_ep)->session == session)
			serial = ep->serial;
	}
	pthread_mutex_unlock(&loop_lock);
	return serial;
}

void inside_frame_to(xport *x, uint32_t id, uint64_t session, uint32_t seq, const void *records, size_t len)
{
	struct xpi_frame_head h = {.session = htole64(session), .slot = htole16((uint16_t)id), .seq = htole32(seq)};
	struct loop_ep to = {.peer = x->be->id, .peer_ep = channel(x, session)};

	if (loop_deliver(x->be, &to, NULL, &h, sizeof(h), records, len) != XPORT_OK)
		abort();
}

void inside_ep_failed(xport_ep *ep)
{
	ep->tp->be->up->ep_failed(ep->tp->be->core, (struct xpi_core_ep *)ep, 5, "a cable was pulled");
}

void inside_broken_long(xport_ep *ep)
{
	inside_ep_failed(ep);
	ep->end.broken_ms -= 1000;
	xpi_ep_attend(ep);
}

void inside_alone(xport *x, bool yes)
{
	static unsigned before;

	if (yes) {
		pthread_mutex_lock(&x->lock);
		before = x->slow;
		x->slow = 0;
	} else {
		xpi_cq_close(&x->cq);
		x->slow = before;
		pthread_mutex_unlock(&x->lock);
	}
}

unsigned inside_endpoints(xport *x)
{
	unsigned n = 0;

	xpi_list_for(l, &x->eps)
		n++;
	return n;
}
