/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_bulk.c - memory in pieces, pulled, pushed, checked, forwarded, and lent to a call. */
#include "services/bulk_user.h"

enum { RANGES = 60, SPLIT = 90, SPACE = BULK_SMALL + BULK_LARGE };

static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

/* ---- pull ---- */

/* Owns memory until role 1 has what it wants. */
static void lender_of(struct h *h, bool plain, uint32_t rights, uint32_t flags)
{
	struct bulk_owner o;

	h_mesh(h, NULL);
	if (plain)
		bulk_own_plain(&o, h, rights, flags);
	else
		bulk_own(&o, h, rights, flags);
	bulk_tell(h, 1, o.bulk);
	h_hear_u64(h, 1);
	H_FILLED(o.small.p, BULK_SMALL, 1);
	H_FILLED(o.large.p, BULK_LARGE, 2);
	bulk_disown(&o);
	h_sync(h);
}

static void lender(struct h *h)
{
	lender_of(h, false, XPORT_REMOTE_READ, 0);
}

static void plain_lender(struct h *h)
{
	lender_of(h, true, XPORT_REMOTE_READ, 0);
}

static void leave(struct bulk_user *u, xport_bulk *bulk)
{
	struct h *h = u->h;

	xport_bulk_free(bulk);
	h_tell_u64(h, 0, 1);
	bulk_end(u);
	h_sync(h);
}

static void pull(struct h *h)
{
	struct xport_bulk_info info;
	struct xport_bulk_event e;
	struct xport_bulk_args a;
	struct xport_iov iov, turned[2];
	struct bulk_user u;
	uint8_t *expected;
	xport_bulk *bulk;
	struct h_mem to;
	size_t n;

	bulk_begin(&u, h, NULL);
	n = bulk_expected(h, false, &expected);
	to = h_mem_local(h, SPACE, 0);
	bulk = bulk_hear(&u, 0);
	info = bulk_info(h, bulk);
	H_EQ(n, info.length);
	H_EQ(2, info.regions);
	H_EQ(XPORT_REMOTE_READ, info.rights);
	H_EQ(u.len, info.packed);
	memset(to.p, 0x11, SPACE);
	a = bulk_args(0, to.p, n, &iov);
	iov.mr = to.mr;
	a.context = &u;
	a.flags = XPORT_BULK_SUM;
	H_OK(xport_bulk_pull(u.b, bulk, &a));
	e = BULK_DONE(&u, XPORT_OK);
	H_TRUE(memcmp(to.p, expected, n) == 0);
	H_BYTES(to.p + n, SPACE - n, 0x11);
	H_EQ(n, e.moved);
	H_EQ(0, e.checked);
	H_TRUE(e.context == &u && e.ep == h->ep[0] && e.sum != 0 && e.why[0] == '\0');
	H_EQ(n, bulks_info(&u).pulled);
	H_EQ(0, bulks_info(&u).transfers);
	/* No bytes: accepted, and done. */
	iov.len = 0;
	a.offset = n;
	H_OK(xport_bulk_pull(u.b, bulk, &a));
	H_EQ(0, BULK_DONE(&u, XPORT_OK).moved);
	/* Local pieces in another order than in memory. */
	turned[0] = (struct xport_iov){.addr = to.p + 1000, .len = 1000};
	turned[1] = (struct xport_iov){.addr = to.p, .len = 1000};
	a = bulk_args(0, NULL, 0, &iov);
	a.local = turned;
	a.nlocal = 2;
	H_OK(xport_bulk_pull(u.b, bulk, &a));
	BULK_DONE(&u, XPORT_OK);
	H_TRUE(memcmp(to.p + 1000, expected, 1000) == 0 && memcmp(to.p, expected + 1000, 1000) == 0);
	h_mem_free(h, &to);
	leave(&u, bulk);
}

/* Cuts the range into local pieces, some of them empty, at places that have nothing to do with the remote ones. */
static size_t cut(struct xport_iov *iov, uint8_t *buf, size_t len, uint64_t *state)
{
	size_t n = 0, done = 0;

	while (done < len && n < SPLIT - 1) {
		size_t most = len - done < 40000 ? len - done : 40000;

		iov[n] = (struct xport_iov){.addr = buf + done, .len = next_random(state) % (most + 1)};
		done += iov[n++].len;
	}
	iov[n] = (struct xport_iov){.addr = buf + done, .len = len - done};
	return n + 1;
}

/* Many at a time: each byte comes from its place. The descriptor is freed meanwhile. */
static void ranges(struct h *h)
{
	static struct xport_iov iov[RANGES][SPLIT];
	size_t at[RANGES], len[RANGES], n;
	uint64_t state = h->param;
	uint8_t *expected, *to[RANGES];
	struct bulk_user u;
	xport_bulk *bulk;

	bulk_begin(&u, h, NULL);
	n = bulk_expected(h, false, &expected);
	bulk = bulk_hear(&u, 0);
	for (int i = 0; i < RANGES; i++) {
		struct xport_bulk_args a = bulk_args(0, NULL, 0, iov[i]);

		at[i] = next_random(&state) % n;
		len[i] = 1 + next_random(&state) % (n - at[i]);
		if (i % 3 != 0 && len[i] > 3000)
			len[i] = 1 + len[i] % 3000;
		to[i] = h_buf(h, len[i]);
		a.offset = at[i];
		a.nlocal = cut(iov[i], to[i], len[i], &state);
		a.context = &at[i];
		H_OK(xport_bulk_pull(u.b, bulk, &a));
		memset(iov[i], 0xee, sizeof(iov[i])); /* read during the call only */
	}
	xport_bulk_free(bulk);
	for (int i = 0; i < RANGES; i++) {
		struct xport_bulk_event e = BULK_DONE(&u, XPORT_OK);
		size_t k = (size_t)((size_t *)e.context - at);

		H_EQ(len[k], e.moved);
		H_CHECK(memcmp(to[k], expected + at[k], len[k]) == 0, "%zu bytes at %zu are others", len[k], at[k]);
	}
	H_EQ(0, bulks_info(&u).in_flight);
	H_EQ(0, bulks_info(&u).waiting);
	leave(&u, NULL);
}

static const struct h_param seeds[] = {{"a", 1}, {"b", 77}, {NULL, 0}};

/* ---- push ---- */

static bool inside(const struct bulk_owner *o, const struct h_mem *m, uint64_t at)
{
	for (size_t i = 0; i < o->nruns; i++) {
		const struct xport_bulk_run *run = &o->run[i];
		uint64_t off = at + m->offset - run->offset;

		if (run->mr != m->mr || at + m->offset < run->offset)
			continue;
		if (run->count == 1 ? off < run->length
		                    : off / run->stride < run->count && off % run->stride < run->length)
			return true;
	}
	return false;
}

/* What is between the pieces is as it was. */
static void gaps_untouched(struct bulk_owner *o, const struct h_mem *m, uint64_t seed)
{
	uint8_t *before = h_buf(o->h, m->len);
	struct h *h = o->h;

	h_fill(before, m->len, seed);
	for (uint64_t i = 0; i < m->len; i++)
		H_CHECK(inside(o, m, i) || m->p[i] == before[i], "byte %" PRIu64 " was changed", i);
	h_buf_free(h, before);
}

static void push_owner(struct h *h)
{
	struct bulk_owner o;
	uint64_t sum, told, length;

	h_mesh(h, NULL);
	bulk_own(&o, h, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, 0);
	bulk_tell(h, 1, o.bulk);
	told = h_hear_u64(h, 1);
	length = bulk_info(h, o.bulk).length;
	H_OK(xport_bulk_sum(o.bulk, 0, length, &sum));
	H_EQ(told, sum);
	gaps_untouched(&o, &o.small, 1);
	gaps_untouched(&o, &o.large, 2);
	h_tell_u64(h, 1, 1);
	told = h_hear_u64(h, 1);
	H_OK(xport_bulk_sum(o.bulk, 5000, 1000, &sum));
	H_EQ(told, sum);
	H_STATUS(XPORT_ERR_BOUNDS, xport_bulk_sum(o.bulk, length - 1, 2, &sum));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_bulk_sum", "beyond");
	bulk_disown(&o);
	h_sync(h);
}

/* All bytes, then a part of them; the checksums agree with what the owner has. */
static void push(struct h *h)
{
	struct xport_bulk_event e;
	struct xport_bulk_args a;
	struct xport_iov iov;
	struct h_mem from;
	struct bulk_user u;
	xport_bulk *bulk;
	uint64_t n;

	bulk_begin(&u, h, NULL);
	from = h_mem_local(h, SPACE, 0);
	h_fill(from.p, SPACE, 9);
	bulk = bulk_hear(&u, 0);
	n = bulk_info(h, bulk).length;
	a = bulk_args(0, from.p, n, &iov);
	iov.mr = from.mr;
	a.flags = XPORT_BULK_SUM;
	H_OK(xport_bulk_push(u.b, bulk, &a));
	e = BULK_DONE(&u, XPORT_OK);
	H_EQ(n, e.moved);
	H_EQ(n, bulks_info(&u).pushed);
	h_tell_u64(h, 0, e.sum);
	while (!h_heard(h, 0))
		bulk_turn(&u);
	h_hear_u64(h, 0);
	iov = (struct xport_iov){.addr = from.p + 100, .len = 1000, .mr = from.mr};
	a.offset = 5000;
	H_OK(xport_bulk_push(u.b, bulk, &a));
	h_tell_u64(h, 0, BULK_DONE(&u, XPORT_OK).sum);
	xport_bulk_free(bulk);
	h_mem_free(h, &from);
	bulk_end(&u);
	h_sync(h);
}

/* ---- the checksum of the owner ---- */

static void checked_owner(struct h *h)
{
	struct bulk_owner o;

	h_mesh(h, NULL);
	bulk_own(&o, h, XPORT_REMOTE_READ, XPORT_BULK_CHECKED);
	bulk_tell(h, 1, o.bulk);
	h_hear_u64(h, 1);
	o.large.p[1000] ^= 1; /* it must not */
	h_tell_u64(h, 1, 1);
	h_hear_u64(h, 1);
	bulk_disown(&o);
	h_sync(h);
}

static void checked(struct h *h)
{
	struct bulk_user u;
	struct xport_bulk_event e;
	xport_bulk *bulk;
	uint8_t *to;
	size_t n;

	bulk_begin(&u, h, NULL);
	to = h_buf(h, SPACE);
	bulk = bulk_hear(&u, 0);
	n = bulk_info(h, bulk).length;
	H_EQ(XPORT_BULK_CHECKED, bulk_info(h, bulk).flags);
	bulk_pull(&u, bulk, 0, to, n);
	H_EQ(1, BULK_DONE(&u, XPORT_OK).checked);
	h_tell_u64(h, 0, 1);
	while (!h_heard(h, 0))
		bulk_turn(&u);
	h_hear_u64(h, 0);
	bulk_pull(&u, bulk, 0, to, n);
	e = BULK_DONE(&u, XPORT_ERR_PROTOCOL);
	H_EQ(0, e.checked);
	H_CHECK(strstr(e.why, "checksum") != NULL, "%s", e.why);
	bulk_pull(&u, bulk, 0, to, n - 1); /* a part has none */
	H_EQ(0, BULK_DONE(&u, XPORT_OK).checked);
	H_EQ(1, bulks_info(&u).failed);
	leave(&u, bulk);
}

/* ---- a third party ---- */

static void third_owner(struct h *h)
{
	struct bulk_owner o;

	h_mesh(h, NULL);
	bulk_own(&o, h, XPORT_REMOTE_READ, 0);
	bulk_tell(h, 1, o.bulk);
	h_hear_u64(h, 2);
	bulk_disown(&o);
	h_sync(h);
}

/* Has no key, and passes the descriptor on. */
static void forwarder(struct h *h)
{
	uint8_t bytes[BULK_BYTES], again[BULK_BYTES];
	struct xport_ep_info ep = {.size = sizeof(ep)};
	struct xport_bulk_info info;
	xport_bulk *bulk;
	size_t len, n = sizeof(again);

	h_mesh(h, NULL);
	len = h_hear(h, 0, bytes, sizeof(bytes));
	H_OK(xport_bulk_unpack(NULL, bytes, len, &bulk));
	info = bulk_info(h, bulk);
	H_OK(xport_ep_query(h->ep[0], &ep));
	H_EQ(ep.peer_incarnation, info.incarnation);
	H_OK(xport_bulk_pack(bulk, again, &n));
	H_EQ(len, n);
	H_TRUE(memcmp(bytes, again, n) == 0);
	h_tell(h, 2, again, n);
	xport_bulk_free(bulk);
	h_sync(h);
}

static void third(struct h *h)
{
	uint8_t *expected, *to;
	struct bulk_user u;
	xport_bulk *bulk, *wrong;
	size_t n;

	bulk_begin(&u, h, NULL);
	n = bulk_expected(h, false, &expected);
	to = h_buf(h, n);
	while (!h_heard(h, 1))
		bulk_turn(&u);
	u.len = h_hear(h, 1, u.bytes, sizeof(u.bytes));
	H_STATUS(XPORT_ERR_STALE_KEY, xport_bulk_unpack(h->ep[1], u.bytes, u.len, &wrong));
	SVC_ERROR(XPORT_ERR_STALE_KEY, "xport_bulk_unpack", "is not this peer");
	H_OK(xport_bulk_unpack(h->ep[0], u.bytes, u.len, &bulk));
	bulk_pull(&u, bulk, 0, to, n);
	BULK_DONE(&u, XPORT_OK);
	H_TRUE(memcmp(to, expected, n) == 0);
	leave(&u, bulk);
}

/* ---- a descriptor in a call ---- */

enum { IN_TIME, LATE };
static const struct h_param times[] = {{"in_time", IN_TIME}, {"late", LATE}, {NULL, 0}};

/* Pulls what the call describes, and replies after that. */
struct store {
	struct h *h;
	xport_rpcs *r;
	xport_bulks *b;
	uint64_t request;
	uint8_t *to;
	xport_bulk *bulk;
	bool late;   /* it pulls when the caller has given up */
	int replied; /* what xport_rpc_reply returned */
	bool done;
};

static void store_pull(struct store *s, uint32_t deadline_ms)
{
	struct h *h = s->h;
	struct xport_iov iov;
	struct xport_bulk_args a = bulk_args(0, s->to, bulk_info(h, s->bulk).length, &iov);

	a.deadline_ms = deadline_ms;
	H_OK(xport_bulk_pull(s->b, s->bulk, &a));
}

static void store(void *arg, const struct xport_rpc_event *q)
{
	struct store *s = arg;
	struct h *h = s->h;

	H_OK(xport_bulk_unpack(q->ep, q->payload, q->len, &s->bulk));
	s->request = q->id;
	if (!s->late)
		store_pull(s, q->left_ms);
}

static void store_turn(struct store *s)
{
	struct xport_bulk_event e = {.size = sizeof(e)};
	struct xport_completion c[4];
	struct h *h = s->h;
	int n = xport_wait(h->x, c, 4, 1);

	for (int i = 0; i < n; i++) {
		if (xport_rpcs_step(s->r, &c[i]) == 0)
			(void)xport_bulks_step(s->b, &c[i]);
	}
	if (n <= 0 && xport_rpcs_step(s->r, NULL) == 0)
		(void)xport_bulks_step(s->b, NULL);
	while (xport_bulks_next(s->b, &e) == 1) {
		H_EQ(XPORT_BULK_DONE, e.type);
		H_OK(e.status);
		s->replied = xport_rpc_reply(s->r, s->request, XPORT_OK, NULL, 0);
		xport_bulk_free(s->bulk);
		s->done = true;
	}
}

static void call_callee(struct h *h)
{
	struct store s = {.h = h, .late = h->param == LATE};
	uint8_t *expected;
	size_t n;

	h_mesh(h, NULL);
	H_OK(xport_rpcs_create(h->x, NULL, &s.r));
	H_OK(xport_bulks_create(h->x, NULL, &s.b));
	H_OK(xport_rpc_register(s.r, "store", store, &s));
	n = bulk_expected(h, false, &expected);
	s.to = h_buf(h, n);
	h->idle = true;
	h_sync(h);
	while (!h_heard(h, 1))
		store_turn(&s);
	h_hear_u64(h, 1);
	if (s.late) { /* the caller has its timeout, and lends its memory still */
		while (xport_rpc_left(s.r, s.request) != XPORT_ERR_CANCELED)
			store_turn(&s);
		store_pull(&s, (uint32_t)h_ms(20000));
	}
	while (!s.done)
		store_turn(&s);
	H_STATUS(s.late ? XPORT_ERR_CANCELED : XPORT_OK, s.replied);
	while (!h_heard(h, 1))
		store_turn(&s);
	h_hear_u64(h, 1);
	H_TRUE(memcmp(s.to, expected, n) == 0);
	H_OK(xport_bulks_destroy(s.b, NULL, NULL, h_ms(10000)));
	H_OK(xport_rpcs_destroy(s.r, NULL, NULL, h_ms(10000)));
	h->idle = false;
	h_sync(h);
}

/* The memory is lent until RELEASED. */
static void call_caller(struct h *h)
{
	struct xport_rpc_args a = {.size = sizeof(a), .flags = XPORT_RPC_LENT, .deadline_ms = (uint32_t)h_ms(20000)};
	struct xport_rpc_event e = {.size = sizeof(e)};
	uint8_t bytes[BULK_BYTES];
	size_t len = sizeof(bytes);
	struct bulk_owner o;
	xport_rpcs *r;

	h_mesh(h, NULL);
	H_OK(xport_rpcs_create(h->x, NULL, &r));
	bulk_own(&o, h, XPORT_REMOTE_READ, 0);
	H_OK(xport_bulk_pack(o.bulk, bytes, &len));
	a.payload = bytes;
	a.len = len;
	if (h->param == LATE)
		a.deadline_ms = (uint32_t)h_ms(500);
	h->idle = true;
	h_sync(h);
	H_OK(xport_rpc_call(r, h->ep[0], "store", &a));
	H_OK(xport_rpcs_wait(r, &e, NULL, NULL, h_ms(20000)));
	H_EQ(XPORT_RPC_DONE, e.type);
	if (h->param == LATE) {
		H_STATUS(XPORT_ERR_TIMEOUT, e.status);
		H_STATUS(XPORT_ERR_TIMEOUT, xport_rpcs_wait(r, &e, NULL, NULL, 100));
	} else {
		H_OK(e.status);
	}
	h_tell_u64(h, 0, 1);
	H_OK(xport_rpcs_wait(r, &e, NULL, NULL, h_ms(20000)));
	H_EQ(XPORT_RPC_RELEASED, e.type);
	H_OK(e.status);
	memset(o.large.p, 0, BULK_LARGE);
	h_tell_u64(h, 0, 1);
	H_OK(xport_rpcs_destroy(r, NULL, NULL, h_ms(10000)));
	h->idle = false;
	h_sync(h);
	bulk_disown(&o);
}

/* ---- a single piece, longer than an operation ---- */

static void pull_plain(struct h *h)
{
	struct xport_bulks_attr attr = {.size = sizeof(attr), .max_in_flight = 1 << 20};
	struct bulk_user u;
	xport_bulk *bulk;
	uint8_t *to;

	bulk_begin(&u, h, &attr);
	to = h_buf(h, BULK_LARGE);
	bulk = bulk_hear(&u, 0);
	H_EQ(1, bulk_info(h, bulk).pieces);
	bulk_pull(&u, bulk, 0, to, BULK_LARGE);
	H_EQ(BULK_LARGE, BULK_DONE(&u, XPORT_OK).moved);
	H_FILLED(to, BULK_LARGE, 2);
	H_TRUE(bulks_info(&u).in_flight_max <= 1 << 18);
	leave(&u, bulk);
}

const struct h_scenario svc_cases_bulk[] = {
	{.name = "bulk_pull", .role = {lender, pull}, .flags = H_KINDS},
	{.name = "bulk_ranges", .role = {lender, ranges}, .params = seeds},
	{.name = "bulk_of_one_piece", .role = {plain_lender, pull_plain}, .flags = H_TARGET},
	{.name = "bulk_push", .role = {push_owner, push}, .flags = H_KINDS},
	{.name = "bulk_checked", .role = {checked_owner, checked}},
	{.name = "bulk_third_party", .role = {third_owner, forwarder, third}},
	{.name = "bulk_in_a_call", .role = {call_callee, call_caller}, .params = times},
	{.name = NULL},
};
