/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_lease_hostile.c - a peer that sends arbitrary messages under the tag of the leases. */
#include <stdlib.h>

#include "services/drive.h"
#include "services/lease_wire.h"
#include "services/msgq.h"

enum { LEN = 100000, TOO_LONG = SVC_MSGQ_HEAD + SVC_LEASE_MAX + 1 };
#define TAG UINT64_C(0x78706f72746c7300)

/* What comes before each message. */
static struct {
	uint32_t epoch, number;
} head;

enum craft {
	GARBAGE,
	BEHEADED, /* too short for what comes before a message */
	SAME,     /* a number twice */
	FAR,      /* a number that is far off */
	EMPTY,
	LONG,
	MAGIC,
	TYPE,
	STATUS,
	RIGHTS,
	KEY,
	NOTHING, /* asks for 0 bytes */
	STUCK,   /* announces long messages, and does not poll any more */
	FLOOD,   /* asks without end, and takes no answer */
	LAST_MUTED = FLOOD,
	FOREIGN, /* returns and revokes leases of others, and of nobody */
	UNASKED, /* grants, gives and answers what nobody asked for */
	BAD_KEY, /* gives a damaged key */
	SWAPPED, /* as if two threads had reaped */
	ANEW     /* as if it had been made anew */
};

/* ---- the one who is attacked, and an honest peer ---- */

static void lender(struct h *h)
{
	struct xport_leases_attr a = {
		.size = sizeof(a), .quota = 10 * LEN, .flags = XPORT_LEASES_TAKE, .max_leases = 4};
	bool muted = h->param <= LAST_MUTED;
	struct xport_lease_event e;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	D_EVENT(&d, XPORT_LEASE_LENT);
	d_sync(&d, 2);
	d_sync(&d, 1);
	D_EVENT(&d, XPORT_LEASE_LENT); /* the hostile one has one, too */
	d_sync(&d, 1);
	if (muted && h->param != FLOOD) {
		e = D_EVENT(&d, XPORT_LEASE_ENDED);
		H_TRUE(e.ep == h->ep[1]);
		H_STATUS(XPORT_ERR_PROTOCOL, e.status);
		H_EQ(LEN, d_all(&d).lent_bytes);
	}
	d_sync(&d, 1); /* it has sent all that it will */
	if (h->param == FLOOD) {
		for (int i = 0; d_all(&d).muted == 0 && i < h_ms(2000); i++)
			d_turn(&d);
	}
	d_turn_for(&d, 50);
	H_EQ(muted, d_all(&d).muted);
	H_EQ(muted ? 1 : 2, d_all(&d).lent);
	if (h->param == BAD_KEY)
		H_EQ(2, d_all(&d).refused);
	d_sync(&d, 2);
	d_sync(&d, 2);
	d_end(&d);
	h_tell_u64(h, 1, 1);
	h_sync(h);
}

/* Its lease is as good as before. */
static void honest(struct h *h)
{
	uint8_t *buf = h_buf(h, LEN), *back = h_buf(h, LEN);
	xport_lease *lease, *second;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &lease));
	H_OK(d_settled(&d, lease));
	h_fill(buf, LEN, 1);
	H_OK(d_put(&d, lease, buf, LEN, 0));
	d_sync(&d, 0);
	d_sync(&d, 0);
	H_OK(d_get(&d, lease, back, LEN, 0));
	H_FILLED(back, LEN, 1);
	H_OK(d_put(&d, lease, back, LEN, 0));
	H_OK(xport_lease_return(lease));
	H_OK(d_settled(&d, lease));
	H_OK(xport_lease_ask(d.l, h->ep[0], LEN, D_RW, NULL, &second));
	H_OK(d_settled(&d, second));
	d_sync(&d, 0);
	d_end(&d);
	h_sync(h);
}

/* ---- the attacker ---- */

static struct h_op *post(struct h *h, uint8_t *bytes, size_t len)
{
	svc_msgq_head(bytes, head.epoch, head.number++, 0);
	return h_send(h, h->ep[0], bytes, SVC_MSGQ_HEAD + len, TAG);
}

static struct h_op *say(struct h *h, const struct svc_lease_message *m, uint8_t *bytes)
{
	return post(h, bytes, svc_lease_encode(m, bytes + SVC_MSGQ_HEAD));
}

static void attack(struct h *h, uint8_t *bytes)
{
	struct svc_lease_message m = {
		.type = SVC_LEASE_ASK, .from = 2, .length = 10, .rights = D_RW, .key = NULL, .key_len = 0};
	uint8_t key[200], *body = bytes + SVC_MSGQ_HEAD;
	size_t len;

	memset(key, 0x5a, sizeof(key));
	if (h->param == NOTHING)
		m.length = 0;
	if (h->param == TYPE)
		m.type = 77;
	if (h->param == STATUS)
		m.status = -1000;
	if (h->param == RIGHTS)
		m.rights = 0x10;
	if (h->param == KEY) {
		m.key = key;
		m.key_len = sizeof(key);
	}
	len = svc_lease_encode(&m, body);
	if (h->param == MAGIC)
		body[3] = 1;
	if (h->param == GARBAGE)
		h_fill(body, len = 100, 4711);
	if (h->param == EMPTY)
		len = 0;
	if (h->param == LONG) {
		memset(body + len, 0, SVC_LEASE_MAX + 1 - len);
		len = SVC_LEASE_MAX + 1;
	}
	if (h->param == BEHEADED) {
		h_send(h, h->ep[0], bytes, 7, TAG);
		return;
	}
	head.number = h->param == SAME ? 0 : h->param == FAR ? 1000 : head.number;
	post(h, bytes, len);
}

/* Until it is heard no more: what is not taken here is not answered there. */
static void flood(struct h *h)
{
	struct svc_lease_message m = {.type = SVC_LEASE_ASK, .from = 2, .length = 10, .rights = D_RW};
	uint8_t *each = h_buf(h, 20000 * 64);

	for (int i = 0; i < 20000; i++)
		say(h, &m, each + 64 * (size_t)i);
}

/* As many as there are receives. */
static void stick(struct h *h)
{
	uint8_t *bytes = h_buf(h, 200000);

	for (int i = 0; i < SVC_MSGQ_RECEIVES; i++)
		h_send(h, h->ep[0], bytes, 200000, TAG);
	for (int i = 0; i < 3; i++)
		h_progress(h);
	h->idle = true;
}

static void attack_foreign(struct h *h, uint8_t *bytes)
{
	static const int types[] = {SVC_LEASE_RETURN,  SVC_LEASE_REVOKE, SVC_LEASE_RETURNED,
	                            SVC_LEASE_REVOKED, SVC_LEASE_HAND,   SVC_LEASE_HANDED};
	struct svc_lease_message m = {0};

	/* The lender's first lease is the honest peer's, the second is ours. */
	for (uint64_t id = 0; id < 18; id++) {
		m.type = types[id % 6];
		m.to = id / 6 == 0 ? 1 : id / 6 == 1 ? 3 : UINT64_MAX;
		m.from = id;
		h_settle(h);
		say(h, &m, bytes);
	}
}

static void attack_unasked(struct h *h, uint8_t *bytes)
{
	static const int types[] = {SVC_LEASE_GRANT, SVC_LEASE_TAKEN, SVC_LEASE_REVOKED, SVC_LEASE_RETURNED};
	uint8_t key[] = "this is no key";
	struct svc_lease_message m = {.from = 9, .to = 1, .length = 10, .rights = D_RW};

	for (int i = 0; i < 4; i++) {
		m.type = types[i];
		m.key = m.type == SVC_LEASE_GRANT ? key : NULL;
		m.key_len = m.type == SVC_LEASE_GRANT ? sizeof(key) : 0;
		h_settle(h);
		say(h, &m, bytes);
	}
}

static void attack_bad_key(struct h *h, uint8_t *bytes)
{
	struct svc_lease_message m = {.type = SVC_LEASE_GIVE, .from = 9, .length = 64, .rights = D_RW};
	struct h_mem mem = h_mem_target(h, 64, 0, D_RW);
	struct h_key key = h_key_pack(h, &mem);

	m.key = key.bytes;
	m.key_len = key.len;
	m.length = mem.len + 4096; /* more than the key has */
	say(h, &m, bytes);
	h_settle(h);
	key.bytes[key.len / 2] ^= 0x10;
	say(h, &m, bytes);
	h_settle(h);
	h_mem_free(h, &mem);
}

/* Asks, and returns what it gets, which is the lender's third lease; but the second message comes first. */
static void swapped(struct h *h, uint8_t *bytes)
{
	struct svc_lease_message m = {.type = SVC_LEASE_RETURN, .to = 3};

	head.number++;
	say(h, &m, bytes);
	h_settle(h);
	head.number -= 2;
	m = (struct svc_lease_message){.type = SVC_LEASE_ASK, .from = 2, .length = 10, .rights = D_RW};
	say(h, &m, bytes);
}

/* What it had is gone, and what is said in the old epoch is not heard. */
static void anew(struct h *h, uint8_t *bytes)
{
	struct svc_lease_message m = {.type = SVC_LEASE_ASK, .from = 2, .length = 10, .rights = D_RW};

	head.epoch = 5;
	head.number = 0;
	say(h, &m, bytes);
	h_settle(h);
	head.epoch = 1;
	say(h, &m, bytes);
}

static void hostile(struct h *h)
{
	struct svc_lease_message ask = {.type = SVC_LEASE_ASK, .from = 1, .length = LEN, .rights = D_RW};
	struct xport_attr a = h_attr(h);
	uint8_t *bytes = h_buf(h, TOO_LONG), *answer = h_buf(h, TOO_LONG);
	struct h_op *op;

	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	h_sync(h);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	head.epoch = 1;
	head.number = 0;
	op = h_recv(h, h->ep[0], answer, TOO_LONG, TAG, UINT64_MAX);
	say(h, &ask, bytes);
	H_DONE(op);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	if (h->param == STUCK)
		stick(h);
	else if (h->param == FLOOD)
		flood(h);
	else if (h->param <= LAST_MUTED)
		attack(h, bytes);
	else if (h->param == FOREIGN)
		attack_foreign(h, bytes);
	else if (h->param == UNASKED)
		attack_unasked(h, bytes);
	else if (h->param == BAD_KEY)
		attack_bad_key(h, bytes);
	else if (h->param == SWAPPED)
		swapped(h, bytes);
	else
		anew(h, bytes);
	if (!h->idle)
		h_settle(h);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	h_hear_u64(h, 0);
	h->idle = false;
	h_sync(h);
}

/* ---- one that closes behind many messages ---- */

enum { GONE_SAME_BATCH = 40, GONE_LATER = 100 };

/* It is given back in the middle of what was reaped, as applications do. */
static void gone_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_completion c[64];
	bool gone = false;
	struct d d;

	d_begin(&d, h, D_LOOP, &a);
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	for (int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000; !gone;) {
		int n = xport_poll(h->x, c, h->param == GONE_LATER ? 64 : 16);

		H_CHECK(h_now_us() < end, "no end of it came");
		for (int i = 0; i < n; i++) {
			if (xport_leases_step(d.l, &c[i]) != 0)
				continue;
			H_TRUE(c[i].type == XPORT_EVENT_CLOSED || c[i].type == XPORT_EVENT_LOST);
			xport_ep_destroy(c[i].ep);
			h->ep[1] = NULL;
			gone = true;
		}
	}
	d_turn_for(&d, 50);
	H_EQ(0, d_all(&d).lent);
	d_end(&d);
	h_sync(h);
}

static void gone_hostile(struct h *h)
{
	struct svc_lease_message m = {.type = SVC_LEASE_ASK, .from = 2, .length = 10, .rights = D_RW};
	uint8_t *each = h_buf(h, GONE_LATER * 64);
	struct xport_attr a = h_attr(h);

	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	h_sync(h);
	h_hear_u64(h, 0);
	head.epoch = 1;
	head.number = 0;
	for (uint64_t i = 0; i < h->param; i++)
		say(h, &m, each + 64 * i);
	h_settle(h);
	(void)xport_ep_close(h->ep[0], h_ms(300)); /* nobody polls there */
	h_tell_u64(h, 0, 1);
	h_sync(h);
}

/* ---- one that does not answer ---- */

enum { UNREVOKED_ROUNDS = 200, UNREVOKED_MOST = 4 };

/* What it is lent is asked back at once, and the lease is over when patience ends. */
static void unrevoked_lender(struct h *h)
{
	struct xport_leases_attr a = d_attr();
	struct xport_lease_event e = {.size = sizeof(e)};
	uint64_t lent = 0;
	struct d d;

	a.max_leases = UNREVOKED_MOST;
	a.patience_ms = 1;
	d_begin(&d, h, D_LOOP, &a);
	for (int i = 0; i <= UNREVOKED_ROUNDS; i++) {
		d_sync(&d, 1); /* it has its answer */
		if (xport_leases_next(d.l, &e) == 1) {
			H_EQ(XPORT_LEASE_LENT, e.type);
			lent++;
			H_OK(xport_lease_revoke(e.lease));
			H_STATUS(XPORT_ERR_STALE_KEY, D_EVENT(&d, XPORT_LEASE_ENDED).status);
			H_OK(xport_lease_free(e.lease));
		}
		/* In the last round but one it has had as many as it may; then it answers one. */
		H_EQ(i < UNREVOKED_MOST ? i + 1 : UNREVOKED_MOST + (i == UNREVOKED_ROUNDS), lent);
		d_sync(&d, 1);
	}
	H_EQ(0, d_all(&d).lent);
	H_EQ(0, d_all(&d).muted);
	d_end(&d);
	h_sync(h);
}

/* The next answer to an ask; what else comes it does not answer. */
static int unrevoked_answer(struct h *h, uint8_t *bytes)
{
	struct svc_lease_message m = {.type = SVC_LEASE_REVOKE};
	struct h_op *op;

	while (m.type == SVC_LEASE_REVOKE) {
		op = h_recv(h, h->ep[0], bytes, TOO_LONG, TAG, UINT64_MAX);
		H_DONE(op);
		H_TRUE(svc_lease_decode(bytes + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, &m));
	}
	H_EQ(SVC_LEASE_GRANT, m.type);
	return m.status;
}

static void unrevoked_hostile(struct h *h)
{
	struct svc_lease_message ask = {.type = SVC_LEASE_ASK, .from = 1, .length = 100, .rights = D_RW};
	struct svc_lease_message answer = {.type = SVC_LEASE_REVOKED, .to = 1};
	uint8_t *bytes = h_buf(h, TOO_LONG), *in = h_buf(h, TOO_LONG);
	struct xport_attr a = h_attr(h);
	int r;

	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	h_sync(h);
	head.epoch = 1;
	head.number = 0;
	for (int i = 0; i <= UNREVOKED_ROUNDS; i++) {
		if (i == UNREVOKED_ROUNDS) {
			say(h, &answer, bytes);
			h_settle(h);
		}
		say(h, &ask, bytes);
		r = unrevoked_answer(h, in);
		H_STATUS(i < UNREVOKED_MOST || i == UNREVOKED_ROUNDS ? XPORT_OK : XPORT_ERR_BUSY, r);
		h_settle(h);
		h_tell_u64(h, 0, 1);
		h_hear_u64(h, 0);
		h_tell_u64(h, 0, 1);
		h_hear_u64(h, 0);
	}
	h_sync(h);
}

/* ---- one whose grants are of no use ---- */

enum { DECLINED = 3, DECLINED_ASKS = SVC_MSGQ_WINDOW + 3 * DECLINED };

static void declined_borrower(struct h *h)
{
	xport_lease *lease;
	struct d d;

	d_begin(&d, h, D_LOOP, NULL);
	for (int i = 0; i < DECLINED_ASKS; i++)
		H_OK(xport_lease_ask(d.l, h->ep[1], 10, D_RW, NULL, &lease));
	d_sync(&d, 1);
	H_EQ(0, d_all(&d).muted);
	d_end(&d);
	h_sync(h);
}

static int declined_take(struct h *h, struct svc_lease_message *m, uint8_t *in)
{
	struct h_op *op = h_recv(h, h->ep[0], in, TOO_LONG, TAG, UINT64_MAX);

	H_DONE(op);
	H_TRUE(svc_lease_decode(in + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, m));
	return m->type;
}

/* That a declined grant is taken back answers no request: no further one may leave because of it. */
static void declined_hostile(struct h *h)
{
	uint8_t *bytes = h_buf(h, TOO_LONG), *in = h_buf(h, TOO_LONG), key[] = "this is no key";
	struct svc_lease_message grant = {
		.type = SVC_LEASE_GRANT, .length = 10, .rights = D_RW, .key = key, .key_len = sizeof(key)};
	struct svc_lease_message m, taken = {.type = SVC_LEASE_RETURNED};
	uint64_t asked[SVC_MSGQ_WINDOW];
	struct xport_attr a = h_attr(h);
	struct h_op *op;
	int asks = 0;

	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	h_sync(h);
	head.epoch = 1;
	head.number = 0;
	for (int i = 0; i < SVC_MSGQ_WINDOW; i++) {
		H_EQ(SVC_LEASE_ASK, declined_take(h, &m, in));
		asked[i] = m.from;
	}
	for (int i = 0; i < DECLINED; i++) {
		grant.to = asked[i];
		grant.from = (uint64_t)i + 1;
		say(h, &grant, bytes);
		h_settle(h);
	}
	for (int i = 0; i < 2 * DECLINED; i++)
		asks += declined_take(h, &m, in) == SVC_LEASE_ASK;
	H_EQ(DECLINED, asks);
	for (int i = 0; i < DECLINED; i++) {
		say(h, &taken, bytes);
		h_settle(h);
	}
	op = h_recv(h, h->ep[0], in, TOO_LONG, TAG, UINT64_MAX);
	for (int64_t end = h_now_us() + 50000; h_now_us() < end;)
		h_progress(h);
	H_TRUE(!op->done);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	h_sync(h);
}

/* ---- the decoder alone ---- */

/* Every length and every changed byte of a message, in memory that ends where the message does. */
static void decode(struct h *h)
{
	uint8_t key[100] = {1}, bytes[SVC_LEASE_MAX];
	struct svc_lease_message m = {.type = SVC_LEASE_GRANT, .rights = 3, .length = 7, .key = key, .key_len = 100};
	size_t len = svc_lease_encode(&m, bytes), accepted = 0;
	struct svc_lease_message got;

	H_TRUE(svc_lease_decode(bytes, len, &got));
	H_EQ(100, got.key_len);
	H_EQ(7, got.length);
	for (size_t n = 0; n <= len; n++) {
		uint8_t *exact = malloc(n + 1);

		H_TRUE(exact != NULL);
		memcpy(exact, bytes, n);
		accepted += svc_lease_decode(exact, n, &got);
		free(exact);
	}
	H_EQ(100, accepted); /* a key of 1 to 100 bytes; which of them is one libxport decides */
	for (size_t at = 0; at < 40; at++) {
		for (int value = 0; value < 256; value++) {
			uint8_t was = bytes[at];

			bytes[at] = (uint8_t)value;
			if (svc_lease_decode(bytes, len, &got)) {
				H_TRUE(got.type >= SVC_LEASE_ASK && got.type <= SVC_LEASE_HANDED);
				H_TRUE(got.status <= 0 && got.status >= XPORT_ERR_BUSY);
				H_TRUE(got.rights <= 15);
				H_TRUE(at >= 4 || value == was);
			} else {
				H_TRUE(at < 8 || (at >= 24 && at < 32));
			}
			bytes[at] = was;
		}
	}
}

static const struct h_param crafts[] = {
	{"garbage", GARBAGE}, {"beheaded", BEHEADED}, {"same", SAME},       {"far", FAR},       {"empty", EMPTY},
	{"long", LONG},       {"magic", MAGIC},       {"type", TYPE},       {"status", STATUS}, {"rights", RIGHTS},
	{"key", KEY},         {"nothing", NOTHING},   {"stuck", STUCK},     {"flood", FLOOD},   {"foreign", FOREIGN},
	{"unasked", UNASKED}, {"bad_key", BAD_KEY},   {"swapped", SWAPPED}, {"anew", ANEW},     {NULL, 0}};

static const struct h_param gone[] = {{"same_batch", GONE_SAME_BATCH}, {"later", GONE_LATER}, {NULL, 0}};

const struct h_scenario svc_cases_lease_hostile[] = {
	{"lease_decode", {decode}, NULL, H_ONCE, 0},
	{"lease_hostile", {lender, hostile, honest}, crafts, H_ONCE, 0},
	{"lease_unrevoked", {unrevoked_lender, unrevoked_hostile}, NULL, H_ONCE, 0},
	{"lease_declined", {declined_borrower, declined_hostile}, NULL, H_ONCE, 0},
	{"lease_gone", {gone_lender, gone_hostile}, gone, H_ONCE, 0},
	{0},
};
