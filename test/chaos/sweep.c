/* SPDX-License-Identifier: BSD-3-Clause */
#include "chaos/sweep.h"

#include "conform/harness.h"
#include "conform/shared.h"

enum { LIVES = 3, TRIES = 40, NOPS = 9, NSENDS = 3, REGION = 64 << 10, BIG = 50000 };
enum { KEY_TAG = 1, DATA_TAG = 2, SEED = 70 };

/* The messages of a round, in the order in which they are posted: parts of the source. */
static const struct {
	size_t at, len;
} sends[NSENDS] = {{0, 10}, {100, 3000}, {5000, BIG}};

const char *sweep_mortal = "";

/* One side, and what it has of one connection. */
struct side {
	struct h *h;
	struct h_mem region, source, sink;
	uint8_t *inbox;
	xport_ep *ep;
	bool ended;
	struct h_rkey key;
	struct h_key key_in;
};

/* An endpoint may end so, and operations with it. */
static bool may_be(int status)
{
	return status == XPORT_OK || status == XPORT_ERR_PEER_LOST || status == XPORT_ERR_PEER_CLOSED ||
	       status == XPORT_ERR_CLOSED || status == XPORT_ERR_STALE_KEY;
}

/* ---- events ---- */

static void look(struct side *s)
{
	struct xport_completion c;
	struct h *h = s->h;

	while (h->nqueue > 0) {
		c = h->queue[0];
		memmove(h->queue, h->queue + 1, (size_t)--h->nqueue * sizeof(c));
		if (c.type != XPORT_EVENT_CLOSED && c.type != XPORT_EVENT_LOST)
			continue;
		if (c.ep != s->ep) {
			if (h->role == 0) /* it ended before it was accepted */
				xport_ep_destroy(c.ep);
			continue;
		}
		H_CHECK(!s->ended, "an endpoint ended twice, now as %s", xport_status_name(c.status));
		H_CHECK(may_be(c.status), "an endpoint ended as %s", xport_status_name(c.status));
		s->ended = true;
	}
}

static void breathe(struct side *s)
{
	h_breathe(s->h);
	look(s);
}

/* ---- operations ---- */

static int call(struct side *s, int kind, struct xport_opt *o)
{
	struct xport_atomic_args a = {
		.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1, .result = s->sink.p};
	uint8_t *from = s->source.p, *to = s->sink.p;

	o->mr = kind == 2 ? s->sink.mr : kind == 3 || kind == 8 ? NULL : s->source.mr;
	switch (kind) {
	case 0:
		return xport_put(s->ep, from, 200, s->key.k, s->key.offset + 64, o);
	case 1:
		return xport_put(s->ep, from, 30000, s->key.k, s->key.offset + 1000, o);
	case 2:
		return xport_get(s->ep, to + 64, 5000, s->key.k, s->key.offset, o);
	case 3:
		return xport_atomic(s->ep, &a, s->key.k, s->key.offset, o);
	case 4:
		return xport_put_notify(s->ep, from, 300, s->key.k, s->key.offset + 40000, o);
	case 5:
	case 6:
	case 7:
		return xport_send(s->ep, from + sends[kind - 5].at, sends[kind - 5].len, DATA_TAG, o);
	default:
		return xport_flush(s->ep, o);
	}
}

/* False: the endpoint has ended. */
static bool post(struct side *s, int kind)
{
	static const int type[NOPS] = {XPORT_OP_PUT,    XPORT_OP_PUT,        XPORT_OP_GET,
	                               XPORT_OP_ATOMIC, XPORT_OP_PUT_NOTIFY, XPORT_OP_SEND,
	                               XPORT_OP_SEND,   XPORT_OP_SEND,       XPORT_OP_FLUSH};
	struct h *h = s->h;
	struct h_op *op = h_op(h, type[kind]);
	struct xport_opt o = {.size = sizeof(o), .context = op, .value = 7};
	int r;

	while ((r = call(s, kind, &o)) == XPORT_ERR_AGAIN && !s->ended)
		breathe(s);
	if (r == XPORT_OK)
		return true;
	h_op_drop(h, op);
	H_CHECK(r == XPORT_ERR_AGAIN || may_be(r), "operation %d was refused as %s", kind, xport_status_name(r));
	return false;
}

static bool receive(struct side *s, void *buf, size_t len, uint64_t tag, struct h_op **opp)
{
	struct h *h = s->h;
	struct h_op *op = h_op(h, XPORT_OP_RECV);
	struct xport_opt o = {.size = sizeof(o), .context = op, .source = s->ep};
	int r = xport_recv(h->x, buf, len, tag, UINT64_MAX, &o);

	*opp = op;
	if (r == XPORT_OK)
		return true;
	h_op_drop(h, op);
	H_CHECK(may_be(r), "a receive was refused as %s", xport_status_name(r));
	return false;
}

/* Its completion, or the end of everything: the harness counts what does not come. */
static bool done(struct side *s, const struct h_op *op)
{
	struct h *h = s->h;
	int64_t end = h_now_us() + (int64_t)h_ms(h->limit_ms) * 1000;

	while (!op->done) {
		H_CHECK(h_now_us() < end, "an operation of type %d does not complete", op->type);
		breathe(s);
	}
	H_CHECK(may_be(op->c.status), "an operation of type %d completed as %s", op->type,
	        xport_status_name(op->c.status));
	return op->c.status == XPORT_OK;
}

/* Each tells the other its key over the connection itself. */
static bool swap_keys(struct side *s)
{
	struct h *h = s->h;
	struct h_key own = h_key_pack(h, &s->region);
	struct h_op *in, *out = h_op(h, XPORT_OP_SEND);
	struct xport_opt o = {.size = sizeof(o), .context = out};
	int r;

	if (!receive(s, &s->key_in, sizeof(s->key_in), KEY_TAG, &in)) {
		h_op_drop(h, out);
		return false;
	}
	while ((r = xport_send(s->ep, &own, sizeof(own), KEY_TAG, &o)) == XPORT_ERR_AGAIN && !s->ended)
		breathe(s);
	if (r != XPORT_OK) {
		h_op_drop(h, out);
		done(s, in);
		return false;
	}
	if (!(done(s, in) & done(s, out)))
		return false;
	r = xport_rkey_unpack(s->ep, s->key_in.bytes, s->key_in.len, &s->key.k);
	s->key.offset = s->key_in.offset;
	s->key.length = s->key_in.length;
	H_CHECK(may_be(r), "the key was refused as %s", xport_status_name(r));
	return r == XPORT_OK;
}

/* What came is what the other side sends, whole and in order. */
static void compare(struct side *s, const struct h_op *op, int i)
{
	const uint8_t *sent = s->source.p + sends[i].at; /* both sides' is the same */
	struct h *h = s->h;

	H_EQ(sends[i].len, op->c.length);
	H_CHECK(!memcmp(s->inbox + i * BIG, sent, sends[i].len), "message %d of a round came with other bytes", i);
}

static bool round_of_all(struct side *s, struct h_op **ops, int *nops)
{
	struct h_op *in[NSENDS];

	memset(s->inbox, 0x3c, NSENDS * BIG);
	for (int i = 0; i < NSENDS; i++) {
		if (!receive(s, s->inbox + i * BIG, BIG, DATA_TAG, &in[i]))
			return false;
		ops[(*nops)++] = in[i];
	}
	for (int kind = 0; kind < NOPS; kind++)
		if (!post(s, kind))
			return false;
	for (int i = 0; i < NSENDS; i++) {
		if (!done(s, in[i]))
			return false;
		compare(s, in[i], i);
	}
	return true;
}

/* ---- a connection ---- */

/* All has completed: nobody writes to what was lent any more. */
static void hands_off(struct side *s)
{
	struct h *h = s->h;

	memset(s->sink.p, 0x3c, s->sink.len);
	memset(s->inbox, 0x3c, NSENDS * BIG);
	h_run_for(h, 10);
	look(s);
	H_BYTES(s->sink.p, s->sink.len, 0x3c);
	H_BYTES(s->inbox, NSENDS * BIG, 0x3c);
	H_GUARDS(s->sink);
	H_GUARDS(s->source);
	H_GUARDS(s->region);
}

/* Returns how many rounds were whole. */
static int life(struct side *s)
{
	struct h_op *ops[NSENDS * SWEEP_ROUNDS];
	struct h *h = s->h;
	int nops = 0, whole = 0;

	s->ended = false;
	s->key.k = NULL;
	if (swap_keys(s))
		while (whole < SWEEP_ROUNDS && round_of_all(s, ops, &nops))
			whole++;
	/* The one closes, the other waits to hear of it; what has broken ends by itself. */
	if (h->role == 1)
		xport_ep_close(s->ep, h_ms(5000));
	for (int64_t end = h_now_us() + (int64_t)h_ms(15000) * 1000; h->role == 0 && !s->ended; breathe(s))
		H_CHECK(h_now_us() < end, "an endpoint does not end");
	h_settle(h);
	look(s);
	hands_off(s);
	xport_rkey_destroy(s->key.k);
	xport_ep_destroy(s->ep);
	s->ep = NULL;
	return whole;
}

/* Serves until the other side says that it has done, or is no more. */
static void serve(struct side *s)
{
	struct h *h = s->h;

	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	while (!h_heard(h, 1) && atomic_load(&h->shared->role[1].state) != H_ENDED) {
		int r = xport_accept(h->listener, 20, &s->ep);

		H_CHECK(r == XPORT_OK || r == XPORT_ERR_TIMEOUT, "accepting: %s", xport_status_name(r));
		if (r == XPORT_OK)
			life(s);
		look(s);
	}
	if (h->param == SWEEP_BOTH_LIVE)
		h_hear_u64(h, 1);
}

/* Where a connection may be cut off, trying again is what is left. */
void sweep_connect(struct h *h, const char *address, int (*use)(void *arg, xport_ep *ep), void *arg)
{
	int made = 0, broken = 0, whole = 0;
	bool again = false; /* after one broke, another had a whole round */

	for (int i = 0; i < TRIES && (made < LIVES || (broken && !again)); i++) {
		xport_ep *ep;
		int rounds, r = xport_connect(h->x, address, NULL, h_ms(10000), &ep);

		H_CHECK(r == XPORT_OK || r == XPORT_ERR_PROTOCOL || r == XPORT_ERR_UNREACHABLE ||
		                r == XPORT_ERR_REFUSED || r == XPORT_ERR_PEER_LOST,
		        "connecting: %s", xport_status_name(r));
		if (r != XPORT_OK)
			continue;
		rounds = use(arg, ep);
		made++;
		again = again || (broken && rounds > 0);
		whole += rounds > 0;
		broken += rounds < SWEEP_ROUNDS;
	}
	H_CHECK(made > 0, "no connection in %d tries", TRIES);
	H_CHECK(again || !broken, "of %d connections %d broke, and after that not one had a whole round", made, broken);
	h_record(h, "connections", (uint64_t)made);
	h_record(h, "with_a_whole_round", (uint64_t)whole);
}

static int life_of(void *arg, xport_ep *ep)
{
	struct side *s = arg;

	s->ep = ep;
	return life(s);
}

static void connect_and_use(struct side *s)
{
	char address[80];

	h_hear(s->h, 0, address, sizeof(address));
	sweep_connect(s->h, address, life_of, s);
}

static void side(struct h *h)
{
	struct side *s = h_buf(h, sizeof(*s));

	s->h = h;
	h->kind = H_REG;
	if (h->role == 1 && h->param == SWEEP_MAY_DIE) {
		setenv("XPORT_CHAOS", sweep_mortal, 1);
		atomic_store(&h->shared->role[1].gone, H_MAY_GO);
	}
	h_open(h, NULL);
	s->region = h_mem_target(h, REGION, 0, H_ALL);
	s->source = h_mem_local(h, REGION, 0);
	h_fill(s->source.p, REGION, SEED);
	s->sink = h_mem_local(h, REGION, 0);
	s->inbox = h_buf(h, NSENDS * BIG);
	if (h->role == 0)
		serve(s);
	else
		connect_and_use(s);
	h_mem_free(h, &s->sink);
	h_mem_free(h, &s->source);
	h_mem_free(h, &s->region);
	if (h->role == 1 && h->param == SWEEP_BOTH_LIVE)
		h_tell_u64(h, 0, 1);
	if (h->role == 1 && h->param == SWEEP_MAY_DIE) {
		xport_close(h->x); /* a step of this, too, may be its last */
		h_exit(h, false);
	}
}

const struct h_scenario sweep_scenario = {.name = "sweep", .role = {side, side}, .timeout_s = 60};
