/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_session.c - two instances of one process over `loop`, with real connections between them, and a program of
 * steps: connect, register and share, move data both ways, cancel, deregister, hostile frames, a back end that refuses
 * and delays frames, control channels that are cut, closing. For every program: each operation completes once, no guard
 * around a region is written, and nothing is left at the end.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "core/cm/handshake.h"
#include "core/liveness/monitor.h"
#include "core/object/instance.h"
#include "core/object/match.h"
#include "core/object/mr.h"
#include "core/object/rkey.h"
#include "core/object/transport.h"
#include "core/protocol/rx.h"
#include "core/wire/frame.h"
#include "core/wire/rkey_format.h"
#include "fuzz/fuzz.h"
#include "fuzz/ledger.h"
#include "loop/loop.h"

enum { EPS = 2, REGIONS = 3, ROOM = 9000, GUARD = 64, PAINT = 0x3c, WAYS = 4, STEPS_MAX = 200, SETTLE = 200 };

struct side {
	struct xport *x;
	struct xport_ep *ep[EPS]; /* the same place at both sides; NULL: none */
	struct ledger ledger;
};

/* [0] connects, [1] listens and has the regions. */
struct session {
	struct side side[2];
	struct xport_listener *listener;
	char name[64];
	struct xport_mr *mr[REGIONS];
	struct xport_rkey *key[EPS][REGIONS];
	uint8_t memory[REGIONS][GUARD + ROOM + GUARD];
};

static struct session *session(unsigned way)
{
	static const char *const backends[WAYS] = {"loop:message", "loop:native", "loop:rdma", "loop:rdma"};
	static struct session sessions[WAYS];
	struct session *s = &sessions[way];

	if (s->side[0].x != NULL)
		return s;
	s->side[0].x = fuzz_open(backends[way], way == 3 ? "all" : NULL, 32);
	s->side[1].x = fuzz_open(backends[way], way == 3 ? "all" : NULL, 32);
	FUZZ_CHECK(xport_listen(s->side[1].x, "127.0.0.1:0", NULL, &s->listener) == XPORT_OK);
	FUZZ_CHECK(xport_listener_name(s->listener, s->name, sizeof(s->name)) == XPORT_OK);
	return s;
}

static void poll_one(struct side *side)
{
	struct xport_completion c[16];
	int n;

	xpi_live_step(side->x->live);
	do {
		n = xport_poll(side->x, c, 16);
		ledger_reap(&side->ledger, c, n);
	} while (n == 16);
}

static void poll_both(struct session *s, unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		poll_one(&s->side[0]);
		poll_one(&s->side[1]);
	}
}

/* ---- steps ---- */

static void connect_step(struct session *s, unsigned at)
{
	struct side *a = &s->side[0], *b = &s->side[1];

	if (a->ep[at] != NULL || b->ep[at] != NULL)
		return;
	FUZZ_CHECK(xport_connect(a->x, s->name, NULL, 0, &a->ep[at]) == XPORT_OK);
	for (int i = 0; i < SETTLE && b->ep[at] == NULL; i++) {
		poll_both(s, 1);
		(void)!xport_accept(s->listener, 0, &b->ep[at]);
	}
	FUZZ_CHECK(b->ep[at] != NULL);
}

static void share_step(struct session *s, unsigned at, unsigned region, uint32_t rights)
{
	uint8_t key[XPI_RKEY_LEN];
	size_t len = sizeof(key);

	if (s->mr[region] == NULL)
		FUZZ_CHECK(xport_mr_reg(s->side[1].x, s->memory[region] + GUARD, ROOM, rights & 7, &s->mr[region]) ==
		           XPORT_OK);
	FUZZ_CHECK(xport_rkey_pack(s->mr[region], key, &len) == XPORT_OK);
	if (s->side[0].ep[at] != NULL && s->key[at][region] == NULL &&
	    xport_rkey_unpack(s->side[0].ep[at], key, len, &s->key[at][region]) != XPORT_OK)
		s->key[at][region] = NULL;
}

static void forget_key(struct session *s, unsigned at, unsigned region)
{
	if (s->key[at][region] != NULL)
		xport_rkey_destroy(s->key[at][region]);
	s->key[at][region] = NULL;
}

/* Deregistering waits for the peers that may use a native key, and here nobody would poll for them meanwhile. */
static void dereg_step(struct session *s, unsigned region)
{
	struct xport_mr *mr = s->mr[region];

	if (mr == NULL)
		return;
	poll_both(s, 8);
	xpi_list_for(l, &s->side[1].x->eps) {
		const struct xport_ep *ep = xpi_container(l, struct xport_ep, link);

		if (!xpi_list_empty(&ep->keys.holds) || !xpi_list_empty(&ep->part_holds))
			return;
	}
	if (mr->serving > 0 || mr->busy > 0)
		return;
	FUZZ_CHECK(xport_mr_dereg(mr) == XPORT_OK);
	s->mr[region] = NULL;
}

static void rma_step(struct session *s, struct fuzz_in *in, unsigned kind, unsigned at)
{
	struct side *a = &s->side[0];
	unsigned how = fuzz_u8(in), region = how % REGIONS;
	size_t len = fuzz_u16(in) % (ROOM + 4), offset = fuzz_u16(in) % (ROOM + 4);
	struct xport_opt opt = {.size = sizeof(opt), .context = ledger_context(&a->ledger), .value = how};
	struct xport_rkey *key = s->key[at][region];
	uint8_t *buf;
	int rc;

	if (key == NULL || a->ep[at] == NULL)
		return;
	buf = ledger_buffer(&a->ledger, len);
	if (buf == NULL)
		return;
	opt.flags = kind == XPORT_OP_GET ? 0 : how >> 6;
	rc = kind == XPORT_OP_PUT   ? xport_put(a->ep[at], buf, len, key, offset, &opt)
	     : kind == XPORT_OP_GET ? xport_get(a->ep[at], buf, len, key, offset, &opt)
	                            : xport_put_notify(a->ep[at], buf, len, key, offset, &opt);
	ledger_enter(&a->ledger, kind, (opt.flags & XPORT_QUIET) != 0, 0, rc);
}

static void atomic_step(struct session *s, struct fuzz_in *in, unsigned at)
{
	struct side *a = &s->side[0];
	unsigned how = fuzz_u8(in), region = (how >> 6) % REGIONS;
	struct xport_opt opt = {.size = sizeof(opt), .context = ledger_context(&a->ledger)};
	struct xport_atomic_args args = {
		.size = sizeof(args), .op = how % 6, .width = (how & 8) != 0 ? 4 : 8, .operand = how};
	uint64_t offset = fuzz_u8(in);
	uint8_t *buf;

	if (s->key[at][region] == NULL || a->ep[at] == NULL)
		return;
	buf = ledger_buffer(&a->ledger, 8);
	if (buf == NULL)
		return;
	args.result = (how & 16) != 0 ? NULL : buf;
	ledger_enter(&a->ledger, XPORT_OP_ATOMIC, false, 0,
	             xport_atomic(a->ep[at], &args, s->key[at][region], offset, &opt));
}

static void send_step(struct side *side, struct fuzz_in *in, unsigned at)
{
	size_t len = fuzz_u16(in) % 30000;
	struct xport_opt opt = {.size = sizeof(opt), .context = ledger_context(&side->ledger)};
	uint8_t *buf = side->ep[at] != NULL ? ledger_buffer(&side->ledger, len) : NULL;
	unsigned how;
	uint64_t id = 0;
	int rc;

	if (buf == NULL)
		return;
	how = fuzz_u8(in);
	opt.flags = (how & 4) != 0 ? XPORT_CANCELABLE : 0;
	opt.id = &id;
	rc = xport_send(side->ep[at], buf, len, how & 3, &opt);
	ledger_enter(&side->ledger, XPORT_OP_SEND, false, (how & 4) != 0 ? id : 0, rc);
}

static void recv_step(struct side *side, struct fuzz_in *in, unsigned at)
{
	unsigned how = fuzz_u8(in);
	size_t len = fuzz_u16(in) % 30000;
	uint64_t id = 0;
	struct xport_opt opt = {.size = sizeof(opt), .context = ledger_context(&side->ledger), .id = &id};
	uint8_t *buf = ledger_buffer(&side->ledger, len);
	int rc;

	if (buf == NULL)
		return;
	opt.source = (how & 64) != 0 ? side->ep[at] : NULL;
	rc = xport_recv(side->x, buf, len, how & 3, (how & 128) != 0 ? 0 : UINT64_MAX, &opt);
	ledger_enter(&side->ledger, XPORT_OP_RECV, false, id, rc);
}

static void flush_step(struct side *side, unsigned at, bool fence)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = ledger_context(&side->ledger)};

	if (side->ep[at] == NULL)
		return;
	if (fence)
		(void)!xport_fence(side->ep[at]);
	else if (ledger_buffer(&side->ledger, 0) != NULL)
		ledger_enter(&side->ledger, XPORT_OP_FLUSH, false, 0, xport_flush(side->ep[at], &opt));
}

/* From the peer's side, as far as the receiver can tell. */
static void hostile_step(struct side *side, struct fuzz_in *in, unsigned at)
{
	struct xport_ep *ep = side->ep[at];
	size_t len, want = fuzz_u8(in);
	uint8_t *body = fuzz_block(in, want, &len), *frame = malloc(sizeof(struct xpi_frame_head) + len);
	struct xpi_frame_head h = {0};
	/* Now and then on the other's channel, or on one that is not known. */
	struct xport_ep *from = want % 8 == 7 && side->ep[!at] != NULL ? side->ep[!at] : want % 8 == 6 ? NULL : ep;

	FUZZ_CHECK(frame != NULL);
	if (ep != NULL) {
		h = (struct xpi_frame_head){.session = ep->session,
		                            .slot = (uint16_t)ep->id,
		                            .seq = ep->rx.state.ack + 1,
		                            .seen = {ep->tx.acked, ep->msg.freed}};
		memcpy(frame, &h, sizeof(h));
		memcpy(frame + sizeof(h), body, len);
		xpi_rx_frame((struct xpi_core *)side->x->tp, (struct xpi_core_ep *)from, frame, sizeof(h) + len, NULL,
		             0);
	}
	free(frame);
	free(body);
}

static void end_step(struct session *s, struct side *side, unsigned at, unsigned how)
{
	struct xport_ep *ep = side->ep[at];

	if (ep == NULL)
		return;
	if (how % 4 == 0 && ep->chan.started) { /* the connection breaks */
		shutdown(ep->chan.fd, SHUT_RDWR);
		return;
	}
	if (how % 4 == 1) {
		(void)!xport_ep_close(ep, 0);
		return;
	}
	if (how % 4 == 2 && side == &s->side[0])
		for (unsigned r = 0; r < REGIONS; r++)
			forget_key(s, at, r);
	if (how % 4 == 2) {
		xport_ep_destroy(ep);
		side->ep[at] = NULL;
	}
}

static void step(struct session *s, struct fuzz_in *in)
{
	unsigned head = fuzz_u8(in), at = head >> 6 & 1;
	struct side *side = &s->side[head >> 7];

	switch (head % 16) {
	case 0:
		connect_step(s, at);
		break;
	case 1:
		share_step(s, at, (head >> 4) % REGIONS, fuzz_u8(in));
		break;
	case 2:
		rma_step(s, in, XPORT_OP_PUT, at);
		break;
	case 3:
		rma_step(s, in, XPORT_OP_GET, at);
		break;
	case 4:
		rma_step(s, in, XPORT_OP_PUT_NOTIFY, at);
		break;
	case 5:
		atomic_step(s, in, at);
		break;
	case 6:
		send_step(side, in, at);
		break;
	case 7:
		recv_step(side, in, at);
		break;
	case 8:
		flush_step(side, at, (head & 16) != 0);
		break;
	case 9:
		hostile_step(side, in, at);
		break;
	case 10:
		end_step(s, side, at, head >> 4);
		break;
	case 11:
		dereg_step(s, (head >> 4) % REGIONS);
		break;
	case 12:
		ledger_cancel(&side->ledger, side->x);
		break;
	case 13:
		forget_key(s, at, (head >> 4) % REGIONS);
		break;
	case 14:
		loop_manners.refuse = head >> 4 & 3;
		loop_manners.keep = fuzz_u8(in) & 3;
		break;
	default:
		poll_one(side);
	}
}

/* ---- the end ---- */

static void check_side(const struct side *side)
{
	const struct xport *x = side->x;

	FUZZ_CHECK(xpi_list_empty(&x->eps) && xpi_list_empty(&x->cm.conns) && xpi_list_empty(&x->ending.eps));
	FUZZ_CHECK(x->nreceives == 0 && x->nmr == 0 && xpi_match_waiting(x->match, NULL) == 0);
	FUZZ_CHECK(ledger_in_use(&x->op_pool) == 0);
	FUZZ_CHECK(ledger_in_use(&x->lone_pool) == 0 && ledger_in_use(&x->tp->frame_pool) == 0);
	for (unsigned i = 0; i < XPI_UNEXPECTED_CLASSES; i++)
		FUZZ_CHECK(ledger_in_use(&x->unexpected_pools[i]) == 0);
}

static void check_guards(const struct session *s)
{
	for (int r = 0; r < REGIONS; r++)
		for (size_t k = 0; k < GUARD; k++)
			FUZZ_CHECK(s->memory[r][k] == PAINT && s->memory[r][GUARD + ROOM + k] == PAINT);
}

static bool settled(const struct session *s)
{
	return xpi_list_empty(&s->side[0].x->eps) && xpi_list_empty(&s->side[1].x->eps) &&
	       xpi_list_empty(&s->side[1].x->cm.conns);
}

static void end(struct session *s)
{
	struct xport_ep *ep;

	loop_manners = (struct loop_manners){0};
	for (unsigned at = 0; at < EPS; at++)
		for (unsigned r = 0; r < REGIONS; r++)
			forget_key(s, at, r);
	for (int i = 0; i < 2; i++) {
		ledger_cancel(&s->side[i].ledger, s->side[i].x);
		for (unsigned at = 0; at < EPS; at++) {
			if (s->side[i].ep[at] != NULL)
				xport_ep_destroy(s->side[i].ep[at]);
			s->side[i].ep[at] = NULL;
		}
	}
	for (int i = 0; i < SETTLE && !settled(s); i++) {
		poll_both(s, 1);
		while (xport_accept(s->listener, 0, &ep) == XPORT_OK)
			xport_ep_destroy(ep);
	}
	poll_both(s, 2);
	for (unsigned r = 0; r < REGIONS; r++)
		dereg_step(s, r);
	poll_both(s, 2);
	check_guards(s);
	for (int i = 0; i < 2; i++) {
		check_side(&s->side[i]);
		ledger_end(&s->side[i].ledger);
	}
}

int FUZZ_ENTRY(session)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	struct session *s = session(fuzz_u8(&in) % WAYS);

	memset(s->memory, PAINT, sizeof(s->memory));
	for (int i = 0; in.left > 0 && i < STEPS_MAX; i++)
		step(s, &in);
	end(s);
	return 0;
}
