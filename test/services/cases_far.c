/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_far.c - memory of several lenders as one. Role 0 uses it, the others lend. */
#include <inttypes.h>

#include "conform/harness.h"
#include "services/far.h"
#include "services/far_user.h"
#include "services/lease_wire.h"
#include "services/msgq.h"
#include "services/services.h"

#define FAR_TAG UINT64_C(0x78706f7266617200)

/* ---- a block at two lenders ---- */

static void far_user(struct h *h)
{
	struct xport_far_args args = far_args(PIECES + 8, (int)h->param);
	uint8_t *buf = h_buf(h, PIECE);
	struct xport_far_event e;
	xport_far_block *b;
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	far_add(&u, 2, XPORT_OK);
	H_EQ(2 * LEND, far_info(&u).capacity);
	H_EQ(2 * LEND, far_info(&u).free);
	H_TRUE(far_lender(&u, 1).round_trip_ns > 0);
	args.context = &args;
	/* More than any one of them has. */
	H_OK(xport_far_alloc(u.f, &args, &b));
	H_STATUS(XPORT_ERR_BUSY, xport_far_free(b));
	e = FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_TRUE(e.block == b && e.context == &args);
	H_EQ((PIECES + 8) * PIECE, far_block(&u, b).length);
	H_EQ((PIECES + 8) * PIECE, far_info(&u).bytes);
	if (h->param == XPORT_FAR_NEAREST) { /* one of them is full */
		H_TRUE(far_lender(&u, 1).bytes == LEND || far_lender(&u, 2).bytes == LEND);
	} else {
		H_EQ(12 * PIECE, far_lender(&u, 1).bytes);
		H_EQ(12 * PIECE, far_lender(&u, 2).bytes);
	}
	H_EQ(0, far_info(&u).lent);
	H_OK(far_access(&u, b, 5 * PIECE, buf, PIECE, false));
	H_BYTES(buf, PIECE, 0);
	far_fill(&u, b, 0, PIECES + 8);
	H_OK(xport_far_resize(b, 30 * PIECE));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	far_fill(&u, b, PIECES + 8, 30);
	/* There is not so much: it is as before. */
	H_OK(xport_far_resize(b, 33 * PIECE));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_ERR_NO_MEMORY);
	H_EQ(30 * PIECE, far_block(&u, b).length);
	far_check(&u, b, 0, 30);
	H_OK(xport_far_resize(b, 10 * PIECE - 5));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_STATUS(XPORT_ERR_BOUNDS, xport_far_get(b, 10 * PIECE, buf, 1, NULL));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_far_get", "of a block of");
	H_STATUS(XPORT_ERR_BOUNDS, xport_far_put(b, PIECE - 1, buf, 2, NULL));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_far_put", "more than one piece");
	/* All of it to one, and then from there by the policy. */
	H_OK(xport_far_move(b, 0, 10 * PIECE, h->ep[2]));
	e = FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_EQ(10 * PIECE, e.length);
	H_EQ(10 * PIECE, far_lender(&u, 2).bytes);
	far_check(&u, b, 0, 10);
	H_OK(xport_far_move(b, PIECE, 1, NULL));
	e = FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_EQ(PIECE, e.length);
	H_EQ(PIECE, far_lender(&u, 1).bytes);
	far_check(&u, b, 0, 10);
	H_OK(xport_far_free(b));
	for (int64_t end = h_now_us() + (int64_t)h_ms(5000) * 1000; far_info(&u).free < 2 * LEND;) {
		H_CHECK(h_now_us() < end, "the memory did not come back");
		H_OK(xport_far_look(u.f));
		far_turn(&u);
	}
	H_EQ(0, far_info(&u).blocks);
	h_tell_u64(h, 1, 1);
	h_tell_u64(h, 2, 1);
	far_end(&u);
	h_sync(h);
}

/* ---- lenders that lie ---- */

enum { IMPOSSIBLE, NO_STATE, OTHER_VERSION, TOO_MUCH, OTHER_LENGTH, A_WHILE, FOR_EVER };

/* Fills in the grant for a request of `length` bytes, the asks-th. */
typedef void (*far_answer)(struct h *h, uint64_t asks, uint64_t length, struct svc_lease_message *grant);

/* A lender without a library: it answers requests, until role 0 has heard enough, and says how many there were. */
static void lend_by_hand(struct h *h, far_answer fn)
{
	enum { ROOM = SVC_MSGQ_HEAD + SVC_LEASE_MAX };
	uint8_t *in = h_buf(h, ROOM), *out = h_buf(h, ROOM);
	struct svc_lease_message m, answer = {0};
	uint64_t asks = 0;
	struct h_op *op;

	for (uint32_t number = 0;;) {
		op = h_recv(h, h->ep[0], in, ROOM, FAR_TAG, UINT64_MAX);
		while (!op->done && !h_heard(h, 0))
			h_progress(h);
		if (!op->done)
			break;
		H_OK(op->c.status);
		H_TRUE(svc_lease_decode(in + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, &m));
		if (m.type != SVC_LEASE_ASK && m.type != SVC_LEASE_RETURN)
			continue;
		answer = (struct svc_lease_message){.type = SVC_LEASE_RETURNED, .to = m.from};
		if (m.type == SVC_LEASE_ASK) {
			answer = (struct svc_lease_message){SVC_LEASE_GRANT, m.from, ++asks, .rights = m.rights};
			fn(h, asks, m.length, &answer);
		}
		svc_msgq_head(out, 1, number++, 0);
		H_DONE(h_send(h, h->ep[0], out, SVC_MSGQ_HEAD + svc_lease_encode(&answer, out + SVC_MSGQ_HEAD),
		              FAR_TAG));
	}
	h_hear_u64(h, 0);
	h_tell_u64(h, 0, asks);
}

static void longer(struct h *h, uint64_t asks, uint64_t length, struct svc_lease_message *grant)
{
	static const uint8_t key[] = "this is no key";

	(void)h, (void)asks;
	grant->length = length + 1;
	grant->key = key;
	grant->key_len = sizeof(key);
}

static void refuse_first(struct h *h, uint64_t asks, uint64_t length, struct svc_lease_message *grant)
{
	static uint8_t key[SVC_LEASE_KEY_MAX];

	if (h->param == FOR_EVER || asks <= SVC_FAR_AGAIN) {
		grant->status = XPORT_ERR_NO_MEMORY;
		return;
	}
	grant->length = length;
	grant->key = key;
	grant->key_len = sizeof(key);
	H_OK(xport_rkey_pack(h_mem_target(h, length, 0, grant->rights).mr, key, &grant->key_len));
}

/* Role 1 claims more than it lends. */
static void liar(struct h *h)
{
	struct xport_far_attr a = {.size = sizeof(a), .lend = PIECE};
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	struct xport_mr_info info = {.size = sizeof(info)};
	uint64_t claim = h->param == IMPOSSIBLE ? 5 : 1 << 30;
	struct far u;
	xport_mr *mr;

	if (h->param >= OTHER_LENGTH)
		h_mesh(h, NULL);
	else
		far_begin(&u, h, &a);
	H_OK(xport_mr_alloc(h->x, SVC_FAR_STATE, XPORT_REMOTE_READ, &mr));
	H_OK(xport_mr_query(mr, &info));
	if (h->param != NO_STATE)
		svc_far_state_write(info.base, claim, 1 << 30);
	if (h->param == OTHER_VERSION)
		((uint8_t *)info.base)[7] ^= 3; /* of "XP-Tfar1" */
	H_OK(xport_directory_region(mr, 0, SVC_FAR_STATE, &entry));
	h_tell(h, 0, &entry, sizeof(entry));
	if (h->param >= OTHER_LENGTH) {
		lend_by_hand(h, h->param == OTHER_LENGTH ? longer : refuse_first);
	} else {
		far_await(&u, 0);
		far_end(&u);
	}
	h_sync(h);
}

static void lied_to(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_MOST_FREE);
	xport_far_block *b;
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, 1, h->param >= TOO_MUCH ? XPORT_OK : XPORT_ERR_PROTOCOL);
	far_add(&u, 2, XPORT_OK);
	H_EQ(h->param >= TOO_MUCH ? 2 : 1, far_info(&u).lenders);
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_TRUE(far_lender(&u, 1).bytes <= PIECE);
	if (h->param != TOO_MUCH)
		H_STATUS(XPORT_ERR_PROTOCOL, far_lender(&u, 1).status);
	H_TRUE(far_lender(&u, 2).bytes >= (PIECES - 1) * PIECE);
	far_fill(&u, b, 0, PIECES);
	far_check(&u, b, 0, PIECES);
	/* It cannot be placed, whatever was claimed. */
	H_OK(xport_far_resize(b, 4 * PIECES * PIECE));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_ERR_NO_MEMORY);
	far_check(&u, b, 0, PIECES);
	h_tell_u64(h, 2, 1);
	if (h->param != OTHER_LENGTH)
		h_tell_u64(h, 1, 1);
	far_end(&u);
	if (h->param == OTHER_LENGTH) { /* it was asked for the first pieces, and never again */
		h_tell_u64(h, 1, 1);
		H_EQ(SVC_FAR_ASKS, h_hear_u64(h, 1));
	}
	h_sync(h);
}

/* ---- a lender has less than its state says, for a while or for ever ---- */

/* The user reads its state and asks it SVC_FAR_AGAIN more times at most. */
static void far_again(struct h *h)
{
	struct xport_far_args args = far_args(1, XPORT_FAR_MOST_FREE);
	xport_far_block *b;
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, h->param == A_WHILE ? XPORT_OK : XPORT_ERR_NO_MEMORY);
	H_EQ(h->param == A_WHILE ? PIECE : 0, far_block(&u, b).length);
	far_fill(&u, b, 0, h->param == A_WHILE);
	far_check(&u, b, 0, h->param == A_WHILE);
	H_STATUS(XPORT_OK, far_lender(&u, 1).status);
	H_OK(xport_far_free(b));
	far_end(&u);
	h_tell_u64(h, 1, 1);
	H_EQ(SVC_FAR_AGAIN + 1, h_hear_u64(h, 1));
	h_sync(h);
}

/* ---- a lender dies ---- */

static void far_lost(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_SPREAD);
	uint8_t *buf = h_buf(h, PIECE);
	struct xport_far_event e = {.size = sizeof(e)};
	bool lost[PIECES] = {0}, gone = false;
	uint64_t bytes = 0;
	xport_far_block *b;
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	far_add(&u, 2, XPORT_OK);
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	far_fill(&u, b, 0, PIECES);
	h_kill(h, 2, SIGKILL);
	for (int64_t end = h_now_us() + (int64_t)h_ms(20000) * 1000; bytes < PIECES / 2 * PIECE || !gone;) {
		H_CHECK(h_now_us() < end, "%" PRIu64 " bytes were lost", bytes);
		if (xport_far_next(u.f, &e) == 0) {
			far_turn(&u);
			continue;
		}
		H_STATUS(XPORT_ERR_PEER_LOST, e.status);
		gone |= e.type == XPORT_FAR_GONE;
		if (e.type != XPORT_FAR_LOST)
			continue;
		H_TRUE(e.block == b);
		bytes += e.length;
		for (uint64_t at = e.offset; at < e.offset + e.length; at += PIECE)
			lost[at / PIECE] = true;
	}
	H_EQ(PIECES / 2 * PIECE, bytes);
	H_EQ(bytes, far_block(&u, b).lost);
	H_EQ(bytes, far_info(&u).lost);
	H_EQ(1, far_info(&u).lenders);
	for (size_t i = 0; i < PIECES; i++) {
		if (!lost[i]) {
			far_check(&u, b, i, i + 1);
			continue;
		}
		H_STATUS(XPORT_ERR_PEER_LOST, xport_far_get(b, i * PIECE, buf, 1, NULL));
		SVC_ERROR(XPORT_ERR_PEER_LOST, "xport_far_get", "xport_far_resize");
	}
	/* What is left has room for the rest. */
	H_OK(xport_far_resize(b, PIECES * PIECE));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_EQ(0, far_block(&u, b).lost);
	for (size_t i = 0; i < PIECES; i++) {
		H_OK(far_access(&u, b, i * PIECE, buf, PIECE, false));
		if (lost[i])
			H_BYTES(buf, PIECE, 0);
		else
			H_FILLED(buf, PIECE, i);
	}
	h_tell_u64(h, 1, 1);
	far_end(&u);
	h_sync(h);
}

/* ---- a lender stops in the middle of a move ---- */

enum { TARGET_STOPS, SOURCE_STOPS };

static void far_move_stops(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_SPREAD);
	int victim = 2, other = 1;
	struct xport_far_event e = {.size = sizeof(e)};
	bool kept = h->param == TARGET_STOPS;
	uint8_t *buf = h_buf(h, PIECE);
	xport_far_block *b;
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, kept ? other : victim, XPORT_OK); /* the only one: all is there */
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	far_fill(&u, b, 0, PIECES);
	far_add(&u, kept ? victim : other, XPORT_OK);
	H_OK(xport_far_move(b, 0, PIECES * PIECE, h->ep[kept ? victim : other]));
	while (far_lender(&u, kept ? victim : other).bytes < 2 * PIECE)
		far_turn(&u);
	h_stop(h, victim);
	for (int i = 0; i < 5; i++)
		far_turn(&u);
	H_EQ(1, far_block(&u, b).busy);
	h_kill(h, victim, SIGKILL);
	do {
		for (int64_t end = h_now_us() + (int64_t)h_ms(20000) * 1000; xport_far_next(u.f, &e) == 0;) {
			H_CHECK(h_now_us() < end, "the move did not end");
			far_turn(&u);
		}
		/* Mapped memory can be read although its owner has stopped: then the move succeeds. */
		H_TRUE(e.status == XPORT_ERR_PEER_LOST || (!kept && e.type == XPORT_FAR_DONE && e.status == XPORT_OK));
	} while (e.type != XPORT_FAR_DONE);
	H_TRUE(e.status == XPORT_OK || e.length < PIECES * PIECE);
	/* Each piece has its bytes, or is lost. */
	for (size_t i = 0; i < PIECES; i++) {
		int r = far_access(&u, b, i * PIECE, buf, PIECE, false);

		H_CHECK(r == XPORT_OK || r == XPORT_ERR_PEER_LOST, "%s", xport_status_name(r));
		H_TRUE(r == XPORT_OK || (i < e.length / PIECE) == kept);
		if (r == XPORT_OK)
			H_FILLED(buf, PIECE, i);
	}
	h_tell_u64(h, other, 1);
	far_end(&u);
	h_sync(h);
}

/* It does not answer when it is asked: others are used, and nobody waits for it. */
static void far_silent(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_MOST_FREE);
	struct xport_far_event e = {.size = sizeof(e)};
	struct xport_info info = {.size = sizeof(info)};
	xport_far_block *b;
	struct far u;
	int64_t begun;

	far_begin(&u, h, NULL);
	H_OK(xport_query(h->x, &info));
	far_add(&u, 1, XPORT_OK);
	far_add(&u, 2, XPORT_OK);
	h_stop(h, 2);
	begun = h_now_us();
	H_OK(xport_far_alloc(u.f, &args, &b));
	do {
		while (xport_far_next(u.f, &e) == 0) {
			H_CHECK(h_now_us() - begun < (int64_t)h_ms(20000) * 1000, "the block was not allocated");
			far_turn(&u);
		}
	} while (e.type == XPORT_FAR_GONE);
	H_EQ(XPORT_FAR_DONE, e.type);
	H_STATUS(XPORT_OK, e.status);
	/* If its state can still be read, it is asked, and waited for until it is lost. */
	H_TRUE(info.passive_target ? u.gone > 0 || h_now_us() - begun < (int64_t)h_ms(4000) * 1000 : u.gone == 0);
	far_fill(&u, b, 0, 1);
	h_kill(h, 2, SIGKILL);
	h_tell_u64(h, 1, 1);
	while (u.gone == 0)
		far_turn(&u);
	far_end(&u);
	h_sync(h);
}

static const struct h_param policies[] = {
	{"most_free", XPORT_FAR_MOST_FREE}, {"nearest", XPORT_FAR_NEAREST}, {"spread", XPORT_FAR_SPREAD}, {NULL, 0}};
static const struct h_param lies[] = {{"impossible", IMPOSSIBLE},       {"no_state", NO_STATE},
                                      {"other_version", OTHER_VERSION}, {"too_much", TOO_MUCH},
                                      {"other_length", OTHER_LENGTH},   {NULL, 0}};
static const struct h_param refusals[] = {{"a_while", A_WHILE}, {"for_ever", FOR_EVER}, {NULL, 0}};
static const struct h_param stops[] = {{"target", TARGET_STOPS}, {"source", SOURCE_STOPS}, {NULL, 0}};

const struct h_scenario svc_cases_far[] = {
	{"far_use", {far_user, far_lender_role, far_lender_role}, policies, H_ONCE, 0},
	{"far_liar", {lied_to, liar, far_lender_role}, lies, H_ONCE, 0},
	{"far_again", {far_again, liar}, refusals, H_ONCE, 0},
	{"far_lost", {far_lost, far_lender_role, far_dying_lender}, NULL, H_KILLS | H_ONCE, 0},
	{"far_move_stops", {far_move_stops, far_lender_role, far_dying_lender}, stops, H_KILLS | H_ONCE, 0},
	{"far_silent", {far_silent, far_lender_role, far_dying_lender}, NULL, H_KILLS | H_ONCE, 0},
	{0},
};
