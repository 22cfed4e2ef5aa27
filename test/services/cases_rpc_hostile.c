/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_rpc_hostile.c - a peer that sends arbitrary messages under the tag of the calls, and one of another version. */
#include <endian.h>
#include <stdlib.h>

#include "services/msgq.h"
#include "services/rpc.h"
#include "services/rpc_user.h"

enum {
	PAYLOAD = 3900,
	TOO_LONG = SVC_MSGQ_HEAD + SVC_RPC_HEAD + PAYLOAD + 1,
	EARLY = 4 *
	        32 /* 32 calls, 32 replies, and CANCEL for the 32 calls that were replied to meanwhile and for the others */
};
#define TAG UINT64_C(0x78706f7272706300)

static uint32_t number; /* of the next message; the epoch is 1 */

enum craft {
	GARBAGE,
	EMPTY,
	LONG,
	MAGIC,
	TYPE,
	FLAGS,
	BOTH_FLAGS,
	RAN,
	STATUS,
	NO_DEADLINE,
	LONG_DEADLINE,
	NO_ID,
	RESERVED,
	NEWER,      /* calls with another version */
	NO_CREDITS, /* a WELCOME that grants none */
	UNGREETED,  /* calls without HELLO */
	FLOOD,      /* calls without end, and takes no reply */
	FLOOD_POLLS, /* the same, and makes progress: its limit of unmatched messages ends the replies */
	BULKS_ONE_WAY, /* descriptors that nobody would release */
	BULKS_SHORT,   /* their lengths go beyond them */
	BULKS_MANY,
	BULKS_NONE, /* bytes of descriptors, and no descriptor */
	BULKS_BEYOND, /* they are longer than the payload */
	LAST_MUTED = BULKS_BEYOND,
	BULKS_DAMAGED, /* a message as it must be, with a descriptor that is none */
	UNASKED, /* replies, welcomes and cancels what nobody asked for */
	GREEDY,  /* calls more than it was granted */
	LATE,    /* sends all that it may before the message that comes first */
	OTHER    /* greets in another version */
};

/* ---- the one who is attacked, and an honest peer ---- */

static void victim(struct h *h)
{
	bool muted = h->param <= LAST_MUTED;
	struct xport_rpcs_attr a = {.size = sizeof(a), .credits = 4};
	struct rpc_user u;

	rpc_begin(&u, h, 0, &a);
	rpc_meet(&u, 2);
	rpc_meet(&u, 1); /* the attack has been sent */
	/* Not a number of turns: how long one takes depends on what there is to reap. */
	for (int64_t until = h_now_us() + (int64_t)h_ms(10000) * 1000;
	     muted && rpc_info(&u).muted == 0 && h_now_us() < until;)
		rpc_turn(&u);
	rpc_turn_for(&u, 50);
	H_EQ(muted, rpc_info(&u).muted);
	H_TRUE(rpc_info(&u).memory <= rpc_info(&u).memory_max);
	H_EQ(0, atomic_load(&u.held));
	if (h->param == GREEDY) {
		H_EQ(4, rpc_info(&u).active);
		H_EQ(2, rpc_info(&u).busy);
	}
	rpc_meet(&u, 2);
	rpc_meet(&u, 2);
	if (h->param == FLOOD || h->param == FLOOD_POLLS) { /* replies that it does not take are still in flight */
		(void)xport_ep_close(h->ep[1], 0);
		xport_rpcs_forget(u.r, h->ep[1]);
	}
	rpc_end(&u);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

static void honest(struct h *h)
{
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	rpc_start(&u, "echo", h_ms(60000), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_meet(&u, 0);
	rpc_start(&u, "echo", h_ms(60000), 0);
	RPC_DONE_AS(&u, XPORT_OK, XPORT_RPC_RAN_YES);
	rpc_meet(&u, 0);
	rpc_end(&u);
	h_sync(h);
}

/* ---- the attacker ---- */

static void rpc_post(struct h *h, uint8_t *bytes, size_t len)
{
	svc_msgq_head(bytes, 1, number++, 0);
	h_send(h, h->ep[0], bytes, SVC_MSGQ_HEAD + len, TAG);
}

static void rpc_say(struct h *h, const struct svc_rpc_message *m, uint8_t *bytes)
{
	svc_rpc_encode(m, bytes + SVC_MSGQ_HEAD);
	rpc_post(h, bytes, SVC_RPC_HEAD + m->len);
}

static struct svc_rpc_message a_call(const char *method)
{
	return (struct svc_rpc_message){
		.version = SVC_RPC_VERSION, .type = SVC_RPC_CALL, .id = 7, .method = svc_rpc_hash(method), .ms = 60000};
}

static void rpc_craft(const struct h *h, struct svc_rpc_message *m)
{
	m->type = h->param == TYPE ? 77 : m->type;
	m->flags = h->param == FLAGS ? 4 : h->param == BOTH_FLAGS ? 3 : 0;
	m->ran = h->param == RAN;
	m->status = h->param == STATUS ? -1000 : 0;
	m->ms = h->param == NO_DEADLINE ? 0 : h->param == LONG_DEADLINE ? UINT32_MAX : m->ms;
	m->id = h->param == NO_ID ? 0 : m->id;
	m->version = h->param == NEWER ? SVC_RPC_VERSION + 1 : m->version;
	if (h->param == NO_CREDITS)
		*m = (struct svc_rpc_message){.version = SVC_RPC_VERSION, .type = SVC_RPC_WELCOME, .id = 1};
}

static void attack_crafted(struct h *h, uint8_t *bytes)
{
	struct svc_rpc_message m = a_call("hold");
	uint8_t *body = bytes + SVC_MSGQ_HEAD;
	size_t len = SVC_RPC_HEAD;

	rpc_craft(h, &m);
	svc_rpc_encode(&m, body);
	if (h->param == MAGIC)
		body[0]++;
	if (h->param == RESERVED)
		body[7] = 1;
	if (h->param == GARBAGE)
		h_fill(body, len, 4711);
	if (h->param == EMPTY)
		len = 0;
	if (h->param == LONG)
		len = SVC_RPC_HEAD + PAYLOAD + 1;
	rpc_post(h, bytes, len);
}

static void attack_flood(struct h *h)
{
	struct svc_rpc_message m = a_call("echo");
	uint8_t *each = h_buf(h, 20000 * 80);

	for (int i = 0; i < 20000; i++) {
		m.id++;
		rpc_say(h, &m, each + 80 * (size_t)i);
		if (h->param == FLOOD_POLLS && i % 16 == 15)
			h_settle(h);
	}
}

static void attack_rpc_unasked(struct h *h, uint8_t *bytes)
{
	static const uint8_t types[] = {SVC_RPC_WELCOME, SVC_RPC_REPLY, SVC_RPC_CANCEL};

	for (unsigned i = 0; i < 9; i++) {
		struct svc_rpc_message m = {.version = SVC_RPC_VERSION, .type = types[i % 3], .id = i / 3 * 65536 + 1};

		m.credits = m.type == SVC_RPC_WELCOME;
		m.ran = m.type == SVC_RPC_REPLY;
		h_settle(h);
		rpc_say(h, &m, bytes);
	}
}

static void attack_greedy(struct h *h, uint8_t *bytes)
{
	struct svc_rpc_message m = a_call("take");

	for (int i = 0; i < 6; i++) {
		m.id++;
		h_settle(h);
		rpc_say(h, &m, bytes);
	}
}

/* A call with descriptors. Its payload is behind the head. */
static void attack_bulks(struct h *h, uint8_t *bytes, uint8_t *answer)
{
	const uint32_t lens[2] = {htole32(h->param == BULKS_SHORT ? 13 : 12), htole32(4)};
	uint8_t *payload = bytes + SVC_MSGQ_HEAD + SVC_RPC_HEAD;
	struct svc_rpc_message m = a_call("hold"), r;
	struct h_op *op = NULL;

	m.flags = h->param == BULKS_ONE_WAY ? XPORT_RPC_ONE_WAY : XPORT_RPC_LENT;
	m.credits = h->param == BULKS_MANY ? XPORT_RPC_BULKS_MAX + 1 : h->param == BULKS_NONE ? 0 : 2;
	m.size = 24;
	m.len = h->param == BULKS_BEYOND ? 23 : 30;
	memset(payload, 7, 30);
	memcpy(payload, &lens[0], 4);
	memcpy(payload + 16, &lens[1], 4);
	if (h->param == BULKS_DAMAGED)
		op = h_recv(h, h->ep[0], answer, TOO_LONG, TAG, UINT64_MAX);
	rpc_say(h, &m, bytes);
	if (op == NULL)
		return;
	H_DONE(op);
	H_TRUE(svc_rpc_decode(answer + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, &r));
	H_EQ(SVC_RPC_REPLY, r.type);
	H_STATUS(XPORT_ERR_BAD_KEY, r.status);
	H_EQ(XPORT_RPC_RAN_NO, r.ran);
}

/* As several threads of an honest peer's receiver may hand messages over. */
static void attack_late(struct h *h, uint8_t *bytes)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION, .type = SVC_RPC_CANCEL, .id = 7};
	uint32_t late = number++;

	for (int i = 0; i < EARLY; i++) {
		h_settle(h);
		rpc_say(h, &m, bytes);
	}
	number = late;
	h_settle(h);
	rpc_say(h, &m, bytes);
	number = late + EARLY + 1;
	m = a_call("echo"); /* the talk goes on */
	h_settle(h);
	rpc_say(h, &m, bytes);
}

static void hostile_caller(struct h *h)
{
	struct svc_rpc_message hello = {.version = SVC_RPC_VERSION, .type = SVC_RPC_HELLO, .id = 1, .size = PAYLOAD};
	uint8_t *bytes = h_buf(h, TOO_LONG), *answer = h_buf(h, TOO_LONG);
	struct svc_rpc_message welcome;
	struct xport_attr a = h_attr(h);
	struct h_op *op;

	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	h_sync(h);
	number = 0;
	if (h->param == OTHER)
		hello.version = SVC_RPC_VERSION + 1;
	op = h_recv(h, h->ep[0], answer, TOO_LONG, TAG, UINT64_MAX);
	if (h->param != UNGREETED) {
		rpc_say(h, &hello, bytes);
		H_DONE(op);
		H_TRUE(svc_rpc_decode(answer + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, &welcome));
		H_EQ(SVC_RPC_WELCOME, welcome.type);
		H_STATUS(h->param == OTHER ? XPORT_ERR_INCOMPATIBLE : XPORT_OK, welcome.status);
		H_EQ(4, welcome.credits);
		H_EQ(PAYLOAD, welcome.size);
		h_settle(h);
	}
	if (h->param == FLOOD || h->param == FLOOD_POLLS)
		attack_flood(h);
	else if (h->param == UNASKED)
		attack_rpc_unasked(h, bytes);
	else if (h->param == GREEDY)
		attack_greedy(h, bytes);
	else if (h->param == LATE)
		attack_late(h, bytes);
	else if (h->param >= BULKS_ONE_WAY && h->param <= BULKS_DAMAGED)
		attack_bulks(h, bytes, answer);
	else if (h->param != OTHER)
		attack_crafted(h, bytes);
	if (h->param != UNGREETED) /* its receive is still posted */
		h_settle(h);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	h_hear_u64(h, 0);
	h_sync(h);
}

/* ---- a callee of another version ---- */

static void other_caller(struct h *h)
{
	struct xport_rpc_args a = rpc_args(NULL, 0, NULL, 0);
	struct xport_rpc_event e;
	struct rpc_user u;

	rpc_begin(&u, h, 0, NULL);
	H_OK(xport_rpc_call(u.r, h->ep[1], "echo", &a));
	e = RPC_DONE(&u);
	H_STATUS(XPORT_ERR_INCOMPATIBLE, e.status);
	H_EQ(XPORT_RPC_RAN_NO, e.ran);
	H_TRUE(strstr(e.why, "another version") != NULL);
	H_STATUS(XPORT_ERR_INCOMPATIBLE, xport_rpc_call(u.r, h->ep[1], "echo", &a));
	SVC_ERROR(XPORT_ERR_INCOMPATIBLE, "xport_rpc_call", "version 9 of these messages, and this side version 2");
	H_EQ(0, rpc_info(&u).muted);
	h_tell_u64(h, 1, 1);
	rpc_end(&u);
	h_sync(h);
}

static void other_callee(struct h *h)
{
	struct svc_rpc_message m = {
		.version = 9, .type = SVC_RPC_WELCOME, .id = 1, .credits = 1, .status = XPORT_ERR_INCOMPATIBLE};
	uint8_t *bytes = h_buf(h, TOO_LONG);
	struct svc_rpc_message hello;
	struct h_op *op;

	h_mesh(h, NULL);
	h_sync(h);
	number = 0;
	op = h_recv(h, h->ep[0], bytes, TOO_LONG, TAG, UINT64_MAX);
	H_DONE(op);
	H_TRUE(svc_rpc_decode(bytes + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, &hello));
	H_EQ(SVC_RPC_HELLO, hello.type);
	m.status = h->param == 0 ? XPORT_ERR_INCOMPATIBLE : XPORT_OK; /* it has not noticed, perhaps */
	rpc_say(h, &m, bytes);
	h_settle(h);
	h_hear_u64(h, 0);
	h_sync(h);
}

/* ---- a callee that answers as it must not ---- */

enum callee_craft {
	RAN_NO_OK,      /* a reply to what did not run, with success */
	RAN_NO_PAYLOAD, /* and one with bytes */
	LONG_ERROR,     /* an error with more bytes than the caller has space for: allowed */
	WELCOME_AGAIN,  /* takes no calls now, which an application would repeat for ever */
	OTHER_BYE       /* ends, in another version: allowed */
};

enum { REPLY_MAX = 8, REPLY_LEN = 100 };

static void crafted_caller(struct h *h)
{
	uint8_t reply[REPLY_MAX];
	struct xport_rpc_args a = rpc_args(NULL, 0, reply, sizeof(reply));
	bool muted = h->param != LONG_ERROR && h->param != OTHER_BYE;
	struct xport_rpc_event e;
	struct rpc_user u;

	memset(reply, 0, sizeof(reply));
	rpc_begin(&u, h, 0, NULL);
	H_OK(xport_rpc_call(u.r, h->ep[1], "echo", &a));
	e = RPC_DONE(&u);
	H_STATUS(muted                   ? XPORT_ERR_PROTOCOL
	         : h->param == OTHER_BYE ? XPORT_ERR_PEER_CLOSED
	                                 : XPORT_ERR_ACCESS,
	         e.status);
	H_EQ(h->param == LONG_ERROR ? REPLY_MAX : 0, e.len);
	H_BYTES(reply, sizeof(reply), h->param == LONG_ERROR ? 9 : 0);
	H_EQ(muted, rpc_info(&u).muted);
	h_tell_u64(h, 1, 1);
	rpc_end(&u);
	h_sync(h);
}

static void crafted_callee(struct h *h)
{
	struct svc_rpc_message m = {.version = SVC_RPC_VERSION,
	                            .type = SVC_RPC_WELCOME,
	                            .id = 1,
	                            .size = PAYLOAD,
	                            .credits = 1,
	                            .status = h->param == WELCOME_AGAIN ? XPORT_ERR_AGAIN : XPORT_OK};
	uint8_t *bytes = h_buf(h, TOO_LONG), *in = h_buf(h, TOO_LONG);
	struct svc_rpc_message call;
	struct h_op *op;

	h_mesh(h, NULL);
	h_sync(h);
	number = 0;
	op = h_recv(h, h->ep[0], in, TOO_LONG, TAG, UINT64_MAX);
	H_DONE(op);
	op = h_recv(h, h->ep[0], in, TOO_LONG, TAG, UINT64_MAX);
	rpc_say(h, &m, bytes);
	if (h->param != WELCOME_AGAIN) {
		H_DONE(op);
		H_TRUE(svc_rpc_decode(in + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, &call));
		H_EQ(SVC_RPC_CALL, call.type);
		h_settle(h);
		m = (struct svc_rpc_message){.version = SVC_RPC_VERSION,
		                             .type = SVC_RPC_REPLY,
		                             .id = call.id,
		                             .ran = h->param == LONG_ERROR,
		                             .status = h->param == RAN_NO_OK ? XPORT_OK : XPORT_ERR_ACCESS,
		                             .len = h->param == RAN_NO_OK ? 0 : REPLY_LEN};
		if (h->param == OTHER_BYE)
			m = (struct svc_rpc_message){.version = 9, .type = SVC_RPC_BYE};
		memset(bytes + SVC_MSGQ_HEAD + SVC_RPC_HEAD, 9, REPLY_LEN);
		rpc_say(h, &m, bytes);
		h_settle(h);
	}
	h_hear_u64(h, 0);
	h_sync(h);
}

/* ---- the decoder alone ---- */

static void rpc_decode_all(struct h *h)
{
	uint8_t bytes[SVC_RPC_HEAD + 10] = {0};
	struct svc_rpc_message m = a_call("echo"), got;
	size_t accepted = 0;

	memset(m.trace, 9, sizeof(m.trace));
	svc_rpc_encode(&m, bytes);
	H_TRUE(svc_rpc_decode(bytes, sizeof(bytes), &got));
	H_EQ(10, got.len);
	H_TRUE(got.payload == bytes + SVC_RPC_HEAD);
	H_TRUE(got.method == m.method && got.ms == m.ms && got.trace[23] == 9);
	for (size_t n = 0; n <= sizeof(bytes); n++) {
		uint8_t *exact = malloc(n + 1);

		H_TRUE(exact != NULL);
		memcpy(exact, bytes, n);
		accepted += svc_rpc_decode(exact, n, &got);
		free(exact);
	}
	H_EQ(11, accepted);
	for (size_t at = 0; at < SVC_RPC_HEAD; at++) {
		for (int value = 0; value < 256; value++) {
			uint8_t again[SVC_RPC_HEAD], was = bytes[at];

			bytes[at] = (uint8_t)value;
			if (svc_rpc_decode(bytes, sizeof(bytes), &got)) {
				svc_rpc_encode(&got, again);
				H_TRUE(memcmp(again, bytes, sizeof(again)) == 0);
				H_TRUE(at >= 4 || value == was);
			}
			bytes[at] = was;
		}
	}
}

static const struct h_param crafts[] = {{"garbage", GARBAGE},
                                        {"empty", EMPTY},
                                        {"long", LONG},
                                        {"magic", MAGIC},
                                        {"type", TYPE},
                                        {"flags", FLAGS},
                                        {"both_flags", BOTH_FLAGS},
                                        {"ran", RAN},
                                        {"status", STATUS},
                                        {"no_deadline", NO_DEADLINE},
                                        {"long_deadline", LONG_DEADLINE},
                                        {"no_id", NO_ID},
                                        {"reserved", RESERVED},
                                        {"version", NEWER},
                                        {"no_credits", NO_CREDITS},
                                        {"ungreeted", UNGREETED},
                                        {"flood", FLOOD},
                                        {"flood_polls", FLOOD_POLLS},
                                        {"bulks_one_way", BULKS_ONE_WAY},
                                        {"bulks_short", BULKS_SHORT},
                                        {"bulks_many", BULKS_MANY},
                                        {"bulks_none", BULKS_NONE},
                                        {"bulks_beyond", BULKS_BEYOND},
                                        {"bulks_damaged", BULKS_DAMAGED},
                                        {"unasked", UNASKED},
                                        {"greedy", GREEDY},
                                        {"late", LATE},
                                        {"other", OTHER},
                                        {0}};
static const struct h_param notices[] = {{"refuses", 0}, {"accepts", 1}, {0}};

static const struct h_param answers[] = {{"ran_no_ok", RAN_NO_OK},   {"ran_no_payload", RAN_NO_PAYLOAD},
                                         {"long_error", LONG_ERROR}, {"welcome_again", WELCOME_AGAIN},
                                         {"other_bye", OTHER_BYE},   {0}};

const struct h_scenario svc_cases_rpc_hostile[] = {
	{"rpc_decode", {rpc_decode_all}, NULL, H_ONCE, 0},
	{"rpc_hostile", {victim, hostile_caller, honest}, crafts, H_ONCE, 0},
	{"rpc_bad_callee", {crafted_caller, crafted_callee}, answers, H_ONCE, 0},
	{"rpc_other_version", {other_caller, other_callee}, notices, H_ONCE, 0},
	{0},
};
