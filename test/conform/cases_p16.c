/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p16.c - P16, stale keys: the end of a registration, of a process, of an endpoint. */
#include <sys/mman.h>

#include "harness.h"

/* What a stale operation would leave, and where: nothing else ever writes there. */
enum { LEN = 65536, CROSSED = 1 << 20, STAIN = 0x5a, STALE_AT = 64 };

/* An operation on a key: refused at once with the status, or, if the news had not come here yet, by the target. */
static void try_one(struct h *h, int type, xport_rkey *k, uint64_t offset, size_t len)
{
	struct h_op *op = h_op(h, type);
	struct xport_opt o = {.size = sizeof(o), .context = op};
	struct xport_atomic_args a = {.size = sizeof(a), .op = XPORT_ATOMIC_ADD, .width = 8};
	uint64_t buf, want;
	int s;

	memset(&buf, STAIN, sizeof(buf));
	a.operand = want = buf;
	if (type == XPORT_OP_PUT)
		s = xport_put(h->ep[0], &buf, len, k, offset, &o);
	else if (type == XPORT_OP_GET)
		s = xport_get(h->ep[0], &buf, len, k, offset, &o);
	else if (type == XPORT_OP_PUT_NOTIFY)
		s = xport_put_notify(h->ep[0], &buf, len, k, offset, &o);
	else
		s = xport_atomic(h->ep[0], &a, k, offset, &o);
	if (s == XPORT_OK) {
		H_DONE_AS(XPORT_ERR_STALE_KEY, op);
	} else {
		h_op_drop(h, op);
		H_STATUS(XPORT_ERR_STALE_KEY, s);
	}
	H_EQ(want, buf);
}

static void try_all(struct h *h, xport_rkey *k, uint64_t offset)
{
	try_one(h, XPORT_OP_PUT, k, offset, 8);
	try_one(h, XPORT_OP_GET, k, offset, 8);
	try_one(h, XPORT_OP_PUT_NOTIFY, k, offset, 8);
	try_one(h, XPORT_OP_ATOMIC, k, offset, 8);
}

/* Packed bytes of a region that is gone: refused when unpacked, when used, or by the target; never a success. */
static void stale_somehow(struct h *h, const struct h_key *key, struct h_mem *l)
{
	struct h_op *op = h_op(h, XPORT_OP_PUT);
	struct xport_opt o = {.size = sizeof(o), .context = op};
	xport_rkey *k = NULL;
	int s = xport_rkey_unpack(h->ep[0], key->bytes, key->len, &k);

	if (s == XPORT_OK) {
		s = xport_put(h->ep[0], l->p, 8, k, key->offset + STALE_AT, &o);
		xport_rkey_destroy(k);
	}
	if (s == XPORT_OK) {
		H_DONE_AS(XPORT_ERR_STALE_KEY, op);
		return;
	}
	h_op_drop(h, op);
	H_STATUS(XPORT_ERR_STALE_KEY, s);
}

/* After dereg returned at the target, each use of the key is stale at once, old unpacked key and packed bytes alike. */
static void deregistered(struct h *h)
{
	struct h_key key;
	struct h_rkey r, second;
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	memset(l.p, STAIN, LEN);
	H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
	r = h_unpack(h, h->ep[0], &key);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0));
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	try_all(h, r.k, r.offset + STALE_AT);
	stale_somehow(h, &key, &l);
	/* the same memory, registered again: another key */
	second = h_import(h, 0);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 8), &second, 0, 0));
	try_all(h, r.k, r.offset + STALE_AT);
	h_run_for(h, 10);
	H_EQ(0, h->nqueue);
	xport_rkey_destroy(r.k);
	h_sync(h);
}

/* A quiet put or get that fails is told by the flush behind it, though an earlier flush, or with `both` another one behind it, is
 * told as well; then it is forgotten. */
static void told_by_flush_of(struct h *h, bool get, bool both)
{
	struct h_rkey good, r;
	struct h_mem l;
	struct xport_opt quiet = {.size = sizeof(quiet), .flags = XPORT_QUIET};
	struct h_op *first = NULL, *second;
	int s, told;

	h_mesh(h, NULL);
	l = h_mem_local(h, 64, 0);
	r = h_import(h, 0);
	h->idle = h->config->emulate; /* the news does not come here before the post */
	h_hear_u64(h, 0);
	good = h_import(h, 0);
	h_put(h, h->ep[0], H_AT(l, 0, 8), &good, 0, XPORT_QUIET);
	if (!both)
		first = h_flush(h, h->ep[0]);
	s = get ? xport_get(h->ep[0], l.p, 8, r.k, r.offset, &quiet)
	        : xport_put(h->ep[0], l.p, 8, r.k, r.offset, &quiet);
	H_TRUE(s == XPORT_OK || !h->idle);
	h->idle = false;
	h_record(h, "told_by_the_flush", s == XPORT_OK);
	told = s == XPORT_OK ? XPORT_ERR_STALE_KEY : XPORT_OK;
	if (both)
		first = h_flush(h, h->ep[0]);
	second = h_flush(h, h->ep[0]);
	if (both)
		H_DONE_AS(told, first);
	else
		H_ENDED(first);
	H_DONE_AS(told, second);
	if (s != XPORT_OK)
		H_STATUS(XPORT_ERR_STALE_KEY, s);
	h_put(h, h->ep[0], H_AT(l, 0, 8), &good, 0, XPORT_QUIET);
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

static void told_by_flush(struct h *h)
{
	told_by_flush_of(h, false, false);
}

static void told_by_flush_of_get(struct h *h)
{
	told_by_flush_of(h, true, false);
}

static void told_by_flushes(struct h *h)
{
	told_by_flush_of(h, false, true);
}

static void told_by_flushes_of_get(struct h *h)
{
	told_by_flush_of(h, true, true);
}

static void told_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_run_for(h, 20);
	h_mem_free(h, &m);
	h_tell_u64(h, 1, 1);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
}

static void deregister(struct h *h)
{
	struct h_mem m;
	uint8_t *base;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_hear_u64(h, 1);
	h_mem_guards(h, &m, __FILE__, __LINE__);
	H_OK(xport_mr_dereg(m.mr));
	m.mr = NULL;
	if (!m.allocated)
		memset(m.p, 0, LEN);
	h_tell_u64(h, 1, 1);
	if (m.allocated) {
		m = h_mem_target(h, LEN, 0, H_ALL);
	} else {
		base = m.p;
		H_OK(xport_mr_reg(h->x, base, LEN, H_ALL, &m.mr));
	}
	h_share(h, 1, &m);
	h_sync(h);
	H_BYTES(m.p, 8, STAIN); /* by the second key */
	H_BYTES(m.p + 8, LEN - 8, 0);
}

/* Keys that were never unpacked die as well. */
static void never_unpacked(struct h *h)
{
	struct h_key key;
	struct h_mem l;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	memset(l.p, STAIN, LEN);
	H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
	h_hear_u64(h, 0);
	stale_somehow(h, &key, &l);
	H_DONE(h_flush(h, h->ep[0]));
	h_sync(h);
}

static void dereg_early(struct h *h)
{
	struct h_mem m;
	struct h_key key;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	key = h_key_pack(h, &m);
	H_OK(xport_mr_dereg(m.mr));
	h_tell(h, 1, &key, sizeof(key));
	h_tell_u64(h, 1, 1);
	h_sync(h);
	if (!m.allocated)
		H_BYTES(m.p, LEN, 0);
}

/* Deregistration under fire: once it returned the memory does not change any more, and may be unmapped. */
static void under_fire(struct h *h)
{
	struct h_mem m = {.len = LEN};
	uint8_t *copy = h_buf(h, LEN);

	h_mesh(h, NULL);
	for (int round = 0; round < 10; round++) {
		m.raw = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		H_TRUE(m.raw != MAP_FAILED);
		m.p = m.raw;
		H_OK(xport_mr_reg(h->x, m.p, LEN, H_ALL, &m.mr));
		h_share(h, 1, &m);
		h_hear_u64(h, 1);
		h_run_for(h, 5);
		H_OK(xport_mr_dereg(m.mr));
		memcpy(copy, m.p, LEN);
		h_run_for(h, 20);
		H_CHECK(!memcmp(copy, m.p, LEN), "the memory changed after its deregistration");
		munmap(m.raw, LEN);
		h_run_for(h, 5);
		h_tell_u64(h, 1, 1);
	}
}

/* Puts and gets until one is stale: at once, or by its completion. */
static void fire_until_stale(struct h *h, struct h_mem *l, struct h_rkey *r)
{
	struct h_op *op[32] = {NULL};
	struct xport_opt o = {.size = sizeof(o), .mr = l->mr};
	bool stale = false;
	int s;

	for (unsigned n = 0; !stale; n++) {
		struct h_op **p = &op[n % 32];

		if (*p) {
			H_ENDED(*p);
			H_TRUE((*p)->c.status == XPORT_OK || (*p)->c.status == XPORT_ERR_STALE_KEY);
			stale = (*p)->c.status != XPORT_OK;
		}
		o.context = *p = h_op(h, n % 3 ? XPORT_OP_PUT : XPORT_OP_GET);
		memset(l->p, (int)n, 64);
		s = n % 3 ? xport_put(h->ep[0], l->p, LEN, r->k, r->offset, &o)
		          : xport_get(h->ep[0], l->p, LEN, r->k, r->offset, &o);
		if (s == XPORT_OK)
			continue;
		h_op_drop(h, *p);
		*p = NULL;
		stale = stale || s == XPORT_ERR_STALE_KEY;
		if (!stale)
			H_STATUS(XPORT_ERR_AGAIN, s);
		h_breathe(h);
	}
	h_settle(h);
}

static void fire(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	for (int round = 0; round < 10; round++) {
		r = h_import(h, 0);
		h_tell_u64(h, 0, 1);
		fire_until_stale(h, &l, &r);
		xport_rkey_destroy(r.k);
		h_hear_u64(h, 0);
	}
	H_DONE(h_flush(h, h->ep[0]));
}

/* The key of a process that died is stale at its successor, even at the same address of the same name. */
static void restarted(struct h *h)
{
	struct h_mem m;

	h_open(h, NULL);
	h_pair(h, 1);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync_with(h, 1);
	if (h->incarnation == 0) {
		h->idle = true;
		h_hear_u64(h, 1);
	}
	h_sync_with(h, 1);
	H_BYTES(m.p, LEN, 0);
}

static void old_key(struct h *h)
{
	struct h_key key;
	struct h_rkey r;
	xport_ep *old;
	xport_rkey *k = NULL;
	uint64_t word = 7;
	struct xport_opt o = {.size = sizeof(o)};

	h_open(h, NULL);
	h_pair(h, 0);
	H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
	r = h_unpack(h, h->ep[0], &key);
	h_sync_with(h, 0);
	old = h->ep[0];
	h_kill(h, 0, SIGKILL);
	H_EVENT(XPORT_EVENT_LOST);
	h_restart(h, 0);
	h_pair(h, 0);
	h_import(h, 0);
	H_STATUS(XPORT_ERR_STALE_KEY, xport_rkey_unpack(h->ep[0], key.bytes, key.len, &k));
	/* the unpacked one belongs to the endpoint that is lost */
	H_STATUS(XPORT_ERR_PEER_LOST, xport_put(old, &word, 8, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_put(h->ep[0], &word, 8, r.k, r.offset, &o));
	h_sync_with(h, 0);
	H_DONE(h_flush(h, h->ep[0]));
	h_sync_with(h, 0);
}

/* A key unpacked for one endpoint does not work on another. */
static void wrong_endpoint(struct h *h)
{
	struct h_rkey r;
	struct xport_opt o = {.size = sizeof(o)};
	uint64_t word = 1;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	H_STATUS(XPORT_ERR_INVALID, xport_put(h->ep[2], &word, 8, r.k, r.offset, &o));
	H_STATUS(XPORT_ERR_INVALID, xport_get(h->ep[2], &word, 8, r.k, r.offset, &o));
	H_DONE(h_flush(h, h->ep[2]));
	h_sync(h);
}

static void owner(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	if (h->role == 0)
		h_share(h, 1, &m);
	h_sync(h);
	H_BYTES(m.p, LEN, 0);
}

/* A region is held by local operations that still use it: dereg ends when they have. */
static void dereg_local(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	r = h_import(h, 0);
	for (int i = 0; i < 10; i++) {
		l = h_mem_local(h, LEN, 0);
		h_fill(l.p, LEN, 4);
		h_put(h, h->ep[0], H_AT(l, 0, LEN), &r, 0, 0);
		H_OK(xport_mr_dereg(l.mr));
		if (!l.allocated)
			memset(l.p, 0xff, LEN);
		h_settle(h);
	}
	h_sync(h);
}

static void dereg_local_target(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p, LEN, 4);
}

/* Of a dead one silence would tell much later than its death. */
static int despite_timeout(const struct h *h)
{
	return h_ms(h->param ? 1000 : 5000);
}

/* A dead or stopped holder of the key does not hold up deregistration for longer than it takes to be lost. */
static void dereg_despite(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_mem m;
	int64_t t;

	a.peer_timeout_ms = despite_timeout(h);
	h_mesh(h, &a);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	if (h->param)
		h_stop(h, 1);
	else
		h_kill(h, 1, SIGKILL);
	t = h_now_us();
	H_OK(xport_mr_dereg(m.mr));
	h_record(h, "dereg_us", (uint64_t)(h_now_us() - t));
	H_TRUE(h_now_us() - t < (int64_t)h_ms(h->param ? 2500 : 1100) * 1000);
	if (h->param) {
		h_cont(h, 1);
		h_tell_u64(h, 1, 1);
	}
}

static void holder(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct h_rkey r;
	struct h_mem l;

	a.peer_timeout_ms = despite_timeout(h);
	h_mesh(h, &a);
	l = h_mem_local(h, 64, 0);
	r = h_import(h, 0);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, 64), &r, 0, 0));
	h_sync(h);
	h->idle = true;
	h_hear_u64(h, 0);
}

static void holder_of_memory(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h->idle = true;
	h_hear_u64(h, 1);
}

/* A key whose process is dead already when it is unpacked, though nobody has noticed yet. */
static void unpack_after_death(struct h *h)
{
	struct h_key key;
	struct h_mem l;
	struct h_op *op = NULL;
	struct xport_opt o = {.size = sizeof(o)};
	xport_rkey *k = NULL;
	int s;

	h_expect_log(h, "UCX");
	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	H_EQ(sizeof(key), h_hear(h, 0, &key, sizeof(key)));
	h_kill(h, 0, SIGKILL);
	usleep(20000);
	s = xport_rkey_unpack(h->ep[0], key.bytes, key.len, &k);
	if (s == XPORT_OK) {
		o.context = op = h_op(h, XPORT_OP_GET);
		s = xport_get(h->ep[0], l.p, LEN, k, key.offset, &o);
		if (s != XPORT_OK)
			h_op_drop(h, op);
	}
	H_CHECK(s == XPORT_OK || s == XPORT_ERR_STALE_KEY || s == XPORT_ERR_PEER_LOST, "%s", xport_status_name(s));
	H_EQ(XPORT_ERR_PEER_LOST, H_EVENT(XPORT_EVENT_LOST).status);
	h_settle(h);
	xport_rkey_destroy(k);
}

static const struct h_param ends[] = {{"dead", 0}, {"stopped", 1}, {NULL, 0}};

/* Waits for the other role without making progress. */
static void meet(struct h *h, int i)
{
	for (atomic_fetch_add(h_word(h, i), 1); atomic_load(h_word(h, i)) < 2;)
		usleep(100);
}

/*
 * Both deregister at once, each while puts of its own wait behind a fence for long gets by message.  Either side's word that
 * it has stopped using the other's key waits for its puts, and must not hold up the answers that the other's gets wait for.
 */
static void crossed(struct h *h)
{
	struct xport_attr a = h_attr(h);
	int other = 1 - h->role;
	struct h_mem read, written, l;
	struct h_rkey from, to;

	if (!h->config->emulate)
		a.emulate = "get";
	h_mesh(h, &a);
	read = h_mem_target(h, CROSSED, 0, H_ALL);
	written = h_mem_target(h, LEN, 0, H_ALL);
	l = h_mem_local(h, CROSSED, 0);
	h_share(h, other, &read);
	h_share(h, other, &written);
	from = h_import(h, other);
	to = h_import(h, other);
	for (int i = 0; i < 2; i++) { /* the key is native from now on, if it can be */
		H_DONE(h_put(h, h->ep[other], H_AT(l, 0, 64), &to, 0, 0));
		h_sync(h);
	}
	meet(h, 0); /* neither hears of the other's before its own are posted */
	for (int i = 0; i < 4; i++)
		h_get(h, h->ep[other], H_AT(l, 0, CROSSED), &from, 0);
	H_OK(xport_fence(h->ep[other]));
	h_put(h, h->ep[other], H_AT(l, 0, 4096), &to, 0, 0);
	meet(h, 1);
	h_mem_free(h, &written);
	h_settle(h);
	h_sync(h);
}

const struct h_scenario cases_p16[] = {
	{.name = "P16_stale_after_dereg", .role = {deregister, deregistered}, .flags = H_TARGET},
	{.name = "P16_told_by_the_flush", .role = {told_target, told_by_flush}, .flags = H_TARGET},
	{.name = "P16_told_by_both_flushes", .role = {told_target, told_by_flushes}, .flags = H_TARGET},
	{.name = "P16_told_by_both_flushes_of_a_get", .role = {told_target, told_by_flushes_of_get}, .flags = H_TARGET},
	{.name = "P16_told_by_the_flush_of_a_get", .role = {told_target, told_by_flush_of_get}, .flags = H_TARGET},
	{.name = "P16_stale_though_never_used", .role = {dereg_early, never_unpacked}, .flags = H_TARGET},
	{.name = "P16_dereg_under_fire", .role = {under_fire, fire}},
	{.name = "P16_key_of_a_former_life", .role = {restarted, old_key}, .flags = H_TARGET | H_KILLS},
	{.name = "P16_unpacked_after_death",
         .role = {holder_of_memory, unpack_after_death},
         .flags = H_TARGET | H_KILLS},
	{.name = "P16_key_on_another_endpoint", .role = {owner, wrong_endpoint, owner}, .flags = H_TARGET},
	{.name = "P16_dereg_waits_for_local_use", .role = {dereg_local_target, dereg_local}, .flags = H_TARGET},
	{.name = "P16_dereg_despite_holder",
         .role = {dereg_despite, holder},
         .params = ends,
         .flags = H_TARGET | H_KILLS},
	{.name = "P16_crossed_deregistrations", .role = {crossed, crossed}, .flags = H_TARGET},
	{.name = NULL},
};
