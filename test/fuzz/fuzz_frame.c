/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_frame.c - frames of a malicious peer, sent to an instance over `loop` that has operations of its own in flight.
 *
 * The endpoint is made without a handshake. The input is a list of steps: each is a frame, or a call of the
 * application. If a record names a region or an operation by a small number, its real id is inserted; otherwise nothing
 * would pass the lookup. For every input: the regions' guards and a read-only region do not change; each operation
 * completes once; and nothing is left when the endpoint has ended.
 */
#include <stddef.h>

#include "core/cm/handshake.h"
#include "core/object/ep.h"
#include "core/object/instance.h"
#include "core/object/match.h"
#include "core/object/mr.h"
#include "core/object/op.h"
#include "core/object/rkey.h"
#include "core/object/transport.h"
#include "core/protocol/rx.h"
#include "core/wire/frame.h"
#include "core/wire/hello.h"
#include "core/wire/rkey_format.h"
#include "fuzz/fuzz.h"
#include "fuzz/ledger.h"

enum { REGIONS = 3, GUARD = 64, ROOM = 256, REMOTE = 4096, PAINT = 0x5a, WAYS = 4, STEPS_MAX = 300 };
enum { READ_ONLY = 1 };

/* How a region that the peer may name is granted. */
static const struct {
	size_t length;
	uint32_t rights;
} grants[REGIONS] = {{ROOM, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC | XPORT_REMOTE_RECV},
                     {128, XPORT_REMOTE_READ},
                     {61, XPORT_REMOTE_WRITE}};

/* The instance under attack and the one whose name the attacker bears, for each way of `loop`; kept between inputs. */
struct world {
	struct xport *x, *peer;
	struct xport_ep *ep, *other; /* of x; of the peer, where puts of ours arrive */
	struct xport_rkey *key;
	struct xport_mr *mr[REGIONS], *remote;
	uint8_t memory[REGIONS][GUARD + ROOM + GUARD] __attribute__((aligned(64)));
	uint8_t remote_memory[REMOTE];
	struct ledger ledger;
};

/* ---- the world ---- */

static void paint(struct world *w)
{
	for (int i = 0; i < REGIONS; i++)
		memset(w->memory[i], PAINT, sizeof(w->memory[i]));
}

static struct world *world(unsigned way)
{
	static const char *const backends[WAYS] = {"loop:message", "loop:native", "loop:rdma", "loop:native"};
	static struct world worlds[WAYS];
	struct world *w = &worlds[way];

	if (w->x != NULL)
		return w;
	w->x = fuzz_open(backends[way], way == 3 ? "all" : NULL, 64);
	w->peer = fuzz_open(backends[way], NULL, 64);
	for (int i = 0; i < REGIONS; i++)
		FUZZ_CHECK(xport_mr_reg(w->x, w->memory[i] + GUARD, grants[i].length, grants[i].rights, &w->mr[i]) ==
		           XPORT_OK);
	FUZZ_CHECK(xport_mr_reg(w->peer, w->remote_memory, REMOTE,
	                        XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC, &w->remote) == XPORT_OK);
	return w;
}

/* An endpoint as a handshake with the attacker leaves it, but for the control channel. */
static void connect_to(struct world *w, struct fuzz_in *in)
{
	static struct xpi_hello h;
	uint8_t key[XPI_RKEY_LEN], address[XPI_ADDRESS_MAX];
	struct xport *x = w->x;
	size_t len = sizeof(address);
	unsigned limits = fuzz_u8(in);

	xpi_conn_identity(w->peer, w->peer->tp, 0, &h);
	h.credits = 1 + (limits & 15) * 3;
	h.requests = 1 + (limits >> 4);
	h.frame_max = (limits & 1) != 0 ? 4096 : 8192;
	w->ep = xpi_ep_new(x, x->tp, NULL);
	w->other = xpi_ep_new(w->peer, w->peer->tp, NULL);
	FUZZ_CHECK(w->ep != NULL && w->other != NULL);
	FUZZ_CHECK(w->peer->tp->ops->address(w->peer->be, xpi_ep_be(w->other), (struct xpi_core_ep *)w->other, address,
	                                     &len) == XPORT_OK);
	w->other->prepared = true;
	FUZZ_CHECK(x->tp->ops->ep_connect(x->be, xpi_ep_be(w->ep), XPI_PASSIVE, address, len) == XPORT_OK);
	FUZZ_CHECK(x->tp->ops->address(x->be, xpi_ep_be(w->ep), (struct xpi_core_ep *)w->ep, address,
	                               &(size_t){sizeof(address)}) == XPORT_OK);
	w->ep->prepared = true;
	FUZZ_CHECK(xpi_ep_set_peer(w->ep, &h));
	w->ep->state = XPI_EP_OPEN;
	len = sizeof(key);
	FUZZ_CHECK(xport_rkey_pack(w->remote, key, &len) == XPORT_OK);
	FUZZ_CHECK(xport_rkey_unpack(w->ep, key, len, &w->key) == XPORT_OK);
}

static void poll_both(struct world *w)
{
	struct xport_completion c[16];
	int n;

	do {
		n = xport_poll(w->x, c, 16);
		ledger_reap(&w->ledger, c, n);
	} while (n == 16);
	FUZZ_CHECK(xport_poll(w->peer, NULL, 0) >= 0);
}

/* ---- hostile frames ---- */

static const struct {
	size_t size;
	size_t region, op; /* where a name stands; 0: nowhere */
} forms[] = {
	[XPI_REC_PUT] = {sizeof(struct xpi_rec_put), offsetof(struct xpi_rec_put, region), 0},
	[XPI_REC_GET] = {sizeof(struct xpi_rec_get), offsetof(struct xpi_rec_get, region), 0},
	[XPI_REC_GETDATA] = {sizeof(struct xpi_rec_getdata), 0, offsetof(struct xpi_rec_getdata, op)},
	[XPI_REC_ATOMIC] = {sizeof(struct xpi_rec_atomic), offsetof(struct xpi_rec_atomic, region), 0},
	[XPI_REC_VALUE] = {sizeof(struct xpi_rec_value), 0, offsetof(struct xpi_rec_value, op)},
	[XPI_REC_FAILED] = {sizeof(struct xpi_rec_failed), 0, offsetof(struct xpi_rec_failed, op)},
	[XPI_REC_SEND] = {sizeof(struct xpi_rec_send), 0, 0},
	[XPI_REC_RTS] = {sizeof(struct xpi_rec_rts), 0, 0},
	[XPI_REC_CTS] = {sizeof(struct xpi_rec_cts), 0, offsetof(struct xpi_rec_cts, op)},
	[XPI_REC_DATA] = {sizeof(struct xpi_rec_data), 0, offsetof(struct xpi_rec_data, into)},
	[XPI_REC_NOTIFY] = {sizeof(struct xpi_rec_notify), offsetof(struct xpi_rec_notify, region), 0},
	[XPI_REC_FLUSH] = {sizeof(struct xpi_rec), 0, 0},
	[XPI_REC_BYE] = {sizeof(struct xpi_rec), 0, 0},
	[XPI_REC_CLAIM] = {sizeof(struct xpi_rec_key), offsetof(struct xpi_rec_key, region), 0},
	[XPI_REC_GRANT] = {sizeof(struct xpi_rec_key), offsetof(struct xpi_rec_key, region), 0},
	[XPI_REC_REVOKE] = {sizeof(struct xpi_rec_key), offsetof(struct xpi_rec_key, region), 0},
	[XPI_REC_REVOKED] = {sizeof(struct xpi_rec_key), offsetof(struct xpi_rec_key, region), 0},
	[XPI_REC_CMA_ASK] = {sizeof(struct xpi_rec), 0, 0},
	[XPI_REC_CMA_ANSWER] = {sizeof(struct xpi_rec_key), 0, 0},
	[XPI_REC_CMA] = {sizeof(struct xpi_rec_cma), offsetof(struct xpi_rec_cma, region),
                         offsetof(struct xpi_rec_cma, op)},
	[XPI_REC_LEND] = {sizeof(struct xpi_rec_lend), offsetof(struct xpi_rec_lend, region), 0},
	[XPI_REC_PLACED] = {sizeof(struct xpi_rec_placed), 0, offsetof(struct xpi_rec_placed, into)},
	[XPI_REC_PUT_AHEAD] = {sizeof(struct xpi_rec_put), offsetof(struct xpi_rec_put, region), 0},
	[XPI_REC_WITHDRAW] = {sizeof(struct xpi_rec_withdraw), 0, offsetof(struct xpi_rec_withdraw, op)},
	[XPI_REC_ACCEPTED] = {sizeof(struct xpi_rec), 0, 0},
};

/* What the peer would call the operation that was entered as the so-manieth. */
static uint32_t name_of(struct world *w, uint32_t nth)
{
	const struct xpi_pool *p = &w->x->op_pool;

	for (uint32_t i = 0; i < p->nslabs << p->shift; i++) {
		const struct xpi_op *op = xpi_pool_at(p, i);

		if (op != NULL && op->alive && op->ep == w->ep && op->kind < XPORT_EVENT_NOTIFY &&
		    op->context == (void *)(uintptr_t)nth)
			return i + 1;
	}
	return nth;
}

static void name_op(struct world *w, uint8_t *rec, size_t at)
{
	uint32_t op;

	if (at == 0)
		return;
	memcpy(&op, rec + at, sizeof(op));
	if (op > 0 && op <= LEDGER_MAX)
		op = name_of(w, op);
	memcpy(rec + at, &op, sizeof(op));
}

static void name_things(struct world *w, uint8_t *rec, unsigned type)
{
	uint64_t region;

	if (forms[type].region != 0) {
		memcpy(&region, rec + forms[type].region, sizeof(region));
		region = region < REGIONS ? w->mr[region]->id : region == REGIONS ? w->remote->id : region;
		memcpy(rec + forms[type].region, &region, sizeof(region));
	}
	name_op(w, rec, forms[type].op);
	if (type == XPI_REC_WITHDRAW)
		name_op(w, rec, offsetof(struct xpi_rec_withdraw, into));
}

static bool has_data(unsigned type)
{
	return type == XPI_REC_PUT || type == XPI_REC_GETDATA || type == XPI_REC_SEND || type == XPI_REC_DATA ||
	       type == XPI_REC_NOTIFY || type == XPI_REC_CMA_ASK || type == XPI_REC_LEND || type == XPI_REC_PUT_AHEAD ||
	       type == XPI_REC_ACCEPTED;
}

/* Puts real names into the records; with `trim` the first that may have data gets all of the rest. */
static void mend(struct world *w, uint8_t *p, size_t left, bool trim)
{
	while (left >= sizeof(struct xpi_rec)) {
		struct xpi_rec r;

		memcpy(&r, p, sizeof(r));
		if (r.type == 0 || r.type >= sizeof(forms) / sizeof(forms[0]) || left < forms[r.type].size)
			return;
		name_things(w, p, r.type);
		left -= forms[r.type].size;
		if (trim && has_data(r.type)) {
			r.len = (uint32_t)left;
			memcpy(p, &r, sizeof(r));
		}
		if (r.len > left)
			return;
		p += forms[r.type].size + r.len;
		left -= r.len;
	}
}

/* flags: 1, 2 the frame's; 4 wrong number; 8, 16 ack and freed of the input's; 32 in two pieces; 64 trim; 128 no head */
static void frame_step(struct world *w, struct fuzz_in *in)
{
	struct xport_ep *ep = w->ep;
	unsigned how = fuzz_u8(in);
	struct xpi_frame_head h = {.session = ep->session,
	                           .slot = (uint16_t)ep->id,
	                           .seq = ep->rx.state.ack + ((how & 4) != 0 ? fuzz_u8(in) : 1),
	                           .seen.ack = (how & 8) != 0 ? (uint32_t)fuzz_le(in, 4) : ep->tx.seq,
	                           .seen.freed = (how & 16) != 0 ? (uint32_t)fuzz_le(in, 4) : ep->msg.used,
	                           .flags = how & 3};
	size_t cut = (how & 32) != 0 ? fuzz_u16(in) : SIZE_MAX, want = fuzz_u16(in), len;
	size_t head = (how & 128) != 0 ? 0 : sizeof(h);
	uint8_t *body = fuzz_block(in, want < w->x->tp->caps.am_max ? want : w->x->tp->caps.am_max - head, &len);
	struct xpi_core_ep *from = (how & 3) == 3 ? NULL : (struct xpi_core_ep *)ep;
	uint8_t *first, *second;

	mend(w, body, len, (how & 64) != 0);
	cut = cut < len ? cut : len;
	first = malloc(head + cut + 1);
	second = malloc(len - cut + 1);
	FUZZ_CHECK(first != NULL && second != NULL);
	/* Exactly as long as they are: what lies behind is not to be read. */
	first = realloc(first, head + cut > 0 ? head + cut : 1);
	second = realloc(second, len - cut > 0 ? len - cut : 1);
	memcpy(first, &h, head);
	memcpy(first + head, body, cut);
	memcpy(second, body + cut, len - cut);
	xpi_rx_frame((struct xpi_core *)w->x->tp, from, first, head + cut, len > cut ? second : NULL, len - cut);
	free(first);
	free(second);
	free(body);
}

/* ---- what the application does meanwhile ---- */

static struct xport_opt options(struct world *w, unsigned flags)
{
	return (struct xport_opt){.size = sizeof(struct xport_opt),
	                          .context = ledger_context(&w->ledger),
	                          .flags = flags & (XPORT_LOCAL | XPORT_QUIET),
	                          .value = flags};
}

static void recv_step(struct world *w, struct fuzz_in *in)
{
	uint64_t tag = fuzz_u8(in) & 7, mask = fuzz_u8(in), id = 0;
	size_t len = fuzz_u16(in) % 20000;
	bool many = (mask & 32) != 0 && len > 0;
	bool lent = !many && (mask & 64) != 0; /* into a region that it may be put into, which has guards of its own */
	uint8_t *buf = ledger_buffer(&w->ledger, lent ? 0 : len);
	struct xport_opt opt = options(w, 0);
	int rc;

	if (buf == NULL)
		return;
	if (lent) {
		buf = w->memory[0] + GUARD;
		len %= ROOM + 1;
		opt.mr = w->mr[0];
	}
	opt.source = (mask & 128) != 0 ? w->ep : NULL;
	opt.id = &id;
	if (many) {
		opt.flags = XPORT_MULTI;
		opt.value = 1 + len / (1 + (mask >> 1 & 15));
		opt.value = opt.value < len ? opt.value : len;
	}
	rc = xport_recv(w->x, buf, len, tag, (mask & 1) != 0 ? 0 : UINT64_MAX, &opt);
	ledger_enter(&w->ledger, many ? XPORT_OP_RECV_END : XPORT_OP_RECV, false, id, rc);
}

static void rma_step(struct world *w, struct fuzz_in *in, uint32_t type)
{
	unsigned flags = fuzz_u8(in);
	size_t len = fuzz_u16(in) % (REMOTE + 8), offset = fuzz_u16(in) % (REMOTE + 8);
	uint8_t *buf = ledger_buffer(&w->ledger, len);
	struct xport_opt opt;
	int rc;

	if (buf == NULL)
		return;
	opt = options(w, type == XPORT_OP_GET ? 0 : flags);
	rc = type == XPORT_OP_PUT   ? xport_put(w->ep, buf, len, w->key, offset, &opt)
	     : type == XPORT_OP_GET ? xport_get(w->ep, buf, len, w->key, offset, &opt)
	                            : xport_put_notify(w->ep, buf, len, w->key, offset, &opt);
	ledger_enter(&w->ledger, type, (opt.flags & XPORT_QUIET) != 0, 0, rc);
}

static void atomic_step(struct world *w, struct fuzz_in *in)
{
	unsigned how = fuzz_u8(in);
	uint8_t *buf = ledger_buffer(&w->ledger, 8);
	struct xport_opt opt = options(w, how >> 6 == 2 ? XPORT_QUIET : 0);
	struct xport_atomic_args args = {
		.size = sizeof(args), .op = how % 6, .width = (how & 8) != 0 ? 4 : 8, .operand = how};

	if (buf == NULL)
		return;
	args.result = (opt.flags & XPORT_QUIET) != 0 || (how & 16) != 0 ? NULL : buf;
	ledger_enter(&w->ledger, XPORT_OP_ATOMIC, (opt.flags & XPORT_QUIET) != 0, 0,
	             xport_atomic(w->ep, &args, w->key, fuzz_u8(in) & ~7u, &opt));
}

static void send_step(struct world *w, struct fuzz_in *in)
{
	size_t len = fuzz_u16(in) % 20000;
	uint8_t *buf = ledger_buffer(&w->ledger, len);
	struct xport_opt opt = options(w, 0);
	unsigned tag = fuzz_u8(in);
	uint64_t id = 0;
	int rc;

	if (buf == NULL)
		return;
	opt.flags = (tag & 64) != 0 ? XPORT_CANCELABLE : 0;
	opt.id = &id;
	rc = xport_send(w->ep, buf, len, tag, &opt);
	ledger_enter(&w->ledger, XPORT_OP_SEND, false, (tag & 64) != 0 ? id : 0, rc);
}

static void flush_step(struct world *w)
{
	struct xport_opt opt = options(w, 0);

	if (ledger_buffer(&w->ledger, 0) != NULL)
		ledger_enter(&w->ledger, XPORT_OP_FLUSH, false, 0, xport_flush(w->ep, &opt));
}

static void step(struct world *w, struct fuzz_in *in)
{
	unsigned what = fuzz_u8(in) % 16;

	switch (what) {
	case 8:
		recv_step(w, in);
		break;
	case 9:
		rma_step(w, in, XPORT_OP_PUT);
		break;
	case 10:
		rma_step(w, in, XPORT_OP_GET);
		break;
	case 11:
		rma_step(w, in, XPORT_OP_PUT_NOTIFY);
		break;
	case 12:
		atomic_step(w, in);
		break;
	case 13:
		send_step(w, in);
		break;
	case 14:
		what = fuzz_u8(in) % 4;
		if (what == 3)
			ledger_cancel(&w->ledger, w->x);
		else if (what == 1)
			(void)!xport_fence(w->ep);
		else
			flush_step(w);
		break;
	case 15:
		poll_both(w);
		break;
	default:
		frame_step(w, in);
		if (what % 2 == 0)
			poll_both(w);
	}
}

/* ---- the end ---- */

static void check_memory(const struct world *w)
{
	for (int i = 0; i < REGIONS; i++) {
		for (size_t k = 0; k < GUARD; k++)
			FUZZ_CHECK(w->memory[i][k] == PAINT);
		for (size_t k = GUARD + grants[i].length; k < sizeof(w->memory[i]); k++)
			FUZZ_CHECK(w->memory[i][k] == PAINT);
	}
	for (size_t k = 0; k < grants[READ_ONLY].length; k++)
		FUZZ_CHECK(w->memory[READ_ONLY][GUARD + k] == PAINT);
}

static void check_nothing_left(const struct world *w)
{
	const struct xport *x = w->x;

	FUZZ_CHECK(xpi_list_empty(&x->eps) && xpi_list_empty(&x->ending.eps) && xpi_list_empty(&x->work));
	FUZZ_CHECK(x->nreceives == 0 && xpi_match_waiting(x->match, NULL) == 0);
	FUZZ_CHECK(ledger_in_use(&x->op_pool) == 0);
	FUZZ_CHECK(ledger_in_use(&x->lone_pool) == 0);
	FUZZ_CHECK(ledger_in_use(&x->tp->frame_pool) == 0);
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		FUZZ_CHECK(ledger_in_use(&x->unexpected_pools[i]) == 0);
	for (int i = 0; i < REGIONS; i++) {
		const struct xport_mr *mr = w->mr[i];

		FUZZ_CHECK(mr->busy == 0 && mr->serving == 0 && mr->posted == 0 && mr->revoking == 0);
	}
}

static void end(struct world *w)
{
	xport_rkey_destroy(w->key);
	xport_ep_destroy(w->ep);
	xport_ep_destroy(w->other);
	for (int i = 0; i < 20 && !xpi_list_empty(&w->x->eps); i++)
		poll_both(w);
	ledger_cancel(&w->ledger, w->x);
	for (int i = 0; i < 4; i++)
		poll_both(w);
	check_memory(w);
	check_nothing_left(w);
	ledger_end(&w->ledger);
}

int FUZZ_ENTRY(frame)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	struct world *w = world(fuzz_u8(&in) % WAYS);

	paint(w);
	connect_to(w, &in);
	for (int i = 0; in.left > 0 && i < STEPS_MAX; i++)
		step(w, &in);
	poll_both(w);
	end(w);
	return 0;
}

#ifndef FUZZ_ALONE
/* Frames full of one request, and never an acknowledgement, so that no answer leaves: how many operations they cost. */
static unsigned flood(const void *rec, size_t size)
{
	struct fuzz_in none = {0};
	struct world *w = world(1);
	uint8_t frame[8192];
	const size_t head = sizeof(struct xpi_frame_head), n = (sizeof(frame) - head) / size;
	unsigned held = 0;

	paint(w);
	connect_to(w, &none);
	for (int i = 0; i < 2000 && w->ep->state == XPI_EP_OPEN; i++) {
		struct xpi_frame_head h = {.session = w->ep->session,
		                           .slot = (uint16_t)w->ep->id,
		                           .seq = w->ep->rx.state.ack + 1,
		                           .seen = {w->ep->tx.acked, w->ep->msg.freed}};

		memcpy(frame, &h, head);
		for (size_t k = 0; k < n; k++)
			memcpy(frame + head + k * size, rec, size);
		xpi_rx_frame((struct xpi_core *)w->x->tp, (struct xpi_core_ep *)w->ep, frame, head + n * size, NULL, 0);
		held = ledger_in_use(&w->x->op_pool);
		poll_both(w);
	}
	if (w->ep->state == XPI_EP_OPEN)
		held = UINT32_MAX;
	end(w);
	return held;
}

unsigned frame_floods(void)
{
	struct world *w = world(1);
	uint64_t id = w->mr[0]->id;
	struct xpi_rec_get get = {.r.type = XPI_REC_GET, .region = id, .length = 8, .op = 5};
	struct xpi_rec_atomic atomic = {
		.r = {.type = XPI_REC_ATOMIC, .b = 8 | XPI_ATOMIC_FETCH}, .region = id, .operand = 1, .op = 5};
	struct xpi_rec_key claim = {.r.type = XPI_REC_CLAIM, .region = id};
	struct xpi_rec_key revoke = {.r.type = XPI_REC_REVOKE, .region = 1};
	unsigned most = 0, held[] = {flood(&get, sizeof(get)), flood(&atomic, sizeof(atomic)),
	                             flood(&claim, sizeof(claim)), flood(&revoke, sizeof(revoke))};

	for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		most = held[i] > most ? held[i] : most;
	return most;
}
#endif
