/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_far_end.c - far memory when lenders end, looks fail, and it is destroyed. Role 0 uses it, the others lend. */
#include "conform/harness.h"
#include "services/far_user.h"
#include "services/services.h"
#include "services/wrap.h"

/* Takes events of the block until so many bytes are lost. */
static void lose(struct far *u, uint64_t bytes)
{
	struct h *h = u->h;

	while (bytes > 0) {
		struct xport_far_event e = FAR_EVENT(u, XPORT_FAR_LOST, XPORT_ERR_PEER_LOST);

		H_TRUE(e.length <= bytes);
		bytes -= e.length;
	}
}

/* ---- the key of a lost piece stays until LOST is taken, that of a lost lender until nothing needs it ---- */

static void far_keys(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_SPREAD);
	struct xport_rkey_info info = {.size = sizeof(info)};
	struct xport_far_place place = {.size = sizeof(place)};
	struct xport_far_event e = {.size = sizeof(e)};
	xport_far_block *b;
	struct far u;
	int keys;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	far_add(&u, 2, XPORT_OK);
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	for (uint64_t at = 0; place.ep != h->ep[2]; at += PIECE)
		H_OK(xport_far_locate(b, at, &place));
	keys = svc_wrap_keys_destroyed();
	h_kill(h, 2, SIGKILL);
	while (u.gone == 0)
		far_turn(&u);
	H_EQ(PIECES / 2 * PIECE, far_block(&u, b).lost);
	H_EQ(keys, svc_wrap_keys_destroyed());
	H_OK(xport_rkey_query(place.rkey, &info));
	H_EQ(PIECE, info.length);
	lose(&u, PIECES / 2 * PIECE);
	H_EQ(keys + PIECES / 2, svc_wrap_keys_destroyed());
	FAR_EVENT(&u, XPORT_FAR_GONE, XPORT_ERR_PEER_LOST);
	H_EQ(0, xport_far_next(u.f, &e));
	H_EQ(keys + PIECES / 2 + 1, svc_wrap_keys_destroyed());
	h_tell_u64(h, 1, 1);
	far_end(&u);
	h_sync(h);
}

/* The block is freed before LOST is taken. */
static void far_keys_freed(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_MOST_FREE);
	struct xport_far_event e = {.size = sizeof(e)};
	xport_far_block *b;
	struct far u;
	int keys;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	keys = svc_wrap_keys_destroyed();
	h_kill(h, 1, SIGKILL);
	while (u.gone == 0)
		far_turn(&u);
	H_OK(xport_far_free(b));
	H_EQ(keys + PIECES, svc_wrap_keys_destroyed());
	FAR_EVENT(&u, XPORT_FAR_GONE, XPORT_ERR_PEER_LOST);
	H_EQ(0, xport_far_next(u.f, &e));
	H_EQ(keys + PIECES + 1, svc_wrap_keys_destroyed());
	far_end(&u);
	h_sync(h);
}

/* ---- a look fails once ---- */

static void far_look_fails(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_MOST_FREE);
	xport_far_block *b;
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	svc_wrap_get(1);
	H_OK(xport_far_look(u.f));
	H_STATUS(XPORT_ERR_NO_MEMORY, far_lender(&u, 1).status);
	H_EQ(0, far_info(&u).lenders);
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_OK(far_lender(&u, 1).status);
	far_fill(&u, b, 0, PIECES);
	far_check(&u, b, 0, PIECES);
	h_tell_u64(h, 1, 1);
	far_end(&u);
	h_sync(h);
}

/* ---- a lender makes its far memory again, on the same connection ---- */

static void anew_lender(struct h *h)
{
	struct xport_far_attr a = {.size = sizeof(a), .lend = LEND};
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	struct far u;

	lend_begin(&u, h);
	far_await(&u, 0);
	H_OK(xport_far_destroy(u.f, NULL, NULL, h_ms(10000)));
	H_OK(xport_far_create(h->x, &a, &u.f));
	H_OK(xport_far_entry(u.f, &entry));
	h_tell(h, 0, &entry, sizeof(entry));
	far_await(&u, 0);
	far_end(&u);
	h_sync(h);
}

static void far_anew(struct h *h)
{
	struct xport_far_args args = far_args(PIECES, XPORT_FAR_MOST_FREE);
	struct xport_far_event e;
	xport_far_block *b;
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	H_OK(xport_far_alloc(u.f, &args, &b));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	h_tell_u64(h, 1, 1);
	e = FAR_EVENT(&u, XPORT_FAR_LOST, XPORT_ERR_PEER_CLOSED);
	H_EQ(PIECES * PIECE, e.length);
	while (!h_heard(h, 1))
		far_turn(&u);
	H_OK(xport_far_look(u.f));
	e = FAR_EVENT(&u, XPORT_FAR_GONE, XPORT_ERR_STALE_KEY);
	H_TRUE(e.ep == h->ep[1]);
	far_add(&u, 1, XPORT_OK);
	H_OK(xport_far_resize(b, PIECES * PIECE));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	far_fill(&u, b, 0, PIECES);
	far_check(&u, b, 0, PIECES);
	h_tell_u64(h, 1, 1);
	far_end(&u);
	h_sync(h);
}

/* ---- a block becomes shorter, but the pieces that it has lost cannot be replaced ---- */

static void far_shorter(struct h *h)
{
	enum { LOSER = 2 * PIECES - 4, OTHER = 4 };
	struct xport_far_args args = far_args(OTHER, XPORT_FAR_SPREAD);
	struct xport_far_place place = {.size = sizeof(place)};
	xport_far_block *b, *other;
	bool lost[LOSER];
	struct far u;

	far_begin(&u, h, NULL);
	far_add(&u, 1, XPORT_OK);
	H_OK(xport_far_alloc(u.f, &args, &other));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	far_fill(&u, other, 0, OTHER);
	far_add(&u, 2, XPORT_OK);
	args.length = LOSER * PIECE;
	H_OK(xport_far_alloc(u.f, &args, &b)); /* all that is left */
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	far_fill(&u, b, 0, LOSER);
	for (size_t i = 0; i < LOSER; i++) {
		H_OK(xport_far_locate(b, i * PIECE, &place));
		lost[i] = place.ep == h->ep[2];
	}
	h_kill(h, 2, SIGKILL);
	lose(&u, LEND);
	FAR_EVENT(&u, XPORT_FAR_GONE, XPORT_ERR_PEER_LOST);
	H_OK(xport_far_resize(b, (LOSER - 4) * PIECE));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_ERR_NO_MEMORY);
	H_EQ(LOSER * PIECE, far_block(&u, b).length);
	H_EQ(LEND, far_block(&u, b).lost);
	H_EQ(LEND, far_lender(&u, 1).bytes);
	for (size_t i = 0; i < LOSER; i++) {
		if (!lost[i])
			far_check(&u, b, i, i + 1);
		else
			H_STATUS(XPORT_ERR_PEER_LOST, xport_far_locate(b, i * PIECE, &place));
	}
	/* A block that has lost nothing. */
	H_OK(xport_far_resize(other, 2 * PIECE));
	H_STATUS(XPORT_ERR_BOUNDS, xport_far_locate(other, 2 * PIECE, &place));
	FAR_EVENT(&u, XPORT_FAR_DONE, XPORT_OK);
	H_EQ(LEND - 2 * PIECE, far_lender(&u, 1).bytes);
	far_check(&u, other, 0, 2);
	h_tell_u64(h, 1, 1);
	far_end(&u);
	h_sync(h);
}

/* ---- one instance, connected to itself ---- */

static void to_itself(struct h *h, struct h_mem *mem, struct h_rkey *key)
{
	struct h_key bytes;

	h_open(h, NULL);
	h_listen(h);
	H_OK(xport_connect(h->x, h->address, NULL, 0, &h->ep[1]));
	h_accept(h);
	H_EVENT(XPORT_EVENT_CONNECTED);
	*mem = h_mem_target(h, PIECE, 0, H_ALL);
	bytes = h_key_pack(h, mem);
	*key = h_unpack(h, h->ep[1], &bytes);
}

/* Completions of the application's that never cease, until `end`. */
struct steady {
	struct h *h;
	struct h_rkey key;
	uint8_t *buf;
	int64_t end;
	int flying;
};

static void steady_put(struct steady *s)
{
	struct xport_opt opt = {.size = sizeof(opt), .context = s};
	struct h *h = s->h;

	H_OK(xport_put(h->ep[1], s->buf, PIECE, s->key.k, s->key.offset, &opt));
	s->flying++;
}

static void steady_done(void *arg, const struct xport_completion *c)
{
	struct steady *s = arg;

	if (c->context != s)
		return;
	s->flying--;
	if (h_now_us() < s->end)
		steady_put(s);
}

/* The library's own get does not end meanwhile. */
static void far_destroy_late(struct h *h)
{
	struct xport_far_attr a = {.size = sizeof(a), .lend = LEND};
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	struct steady s = {.h = h};
	struct xport_completion c;
	struct h_mem mem;
	xport_far *f;

	to_itself(h, &mem, &s.key);
	s.buf = h_buf(h, PIECE);
	H_OK(xport_far_create(h->x, &a, &f));
	H_OK(xport_far_entry(f, &entry));
	svc_wrap_get_keep();
	H_OK(xport_far_add(f, h->ep[1], &entry, NULL));
	s.end = h_now_us() + (int64_t)h_ms(10000) * 1000;
	for (int i = 0; i < 4; i++)
		steady_put(&s);
	H_STATUS(XPORT_ERR_TIMEOUT, xport_far_destroy(f, steady_done, &s, 20));
	H_CHECK(h_now_us() < s.end, "it ended with the other completions only");
	s.end = 0;
	H_OK(svc_wrap_get_post());
	H_OK(xport_far_destroy(f, steady_done, &s, h_ms(10000)));
	while (s.flying > 0)
		if (xport_wait(h->x, &c, 1, 10) == 1)
			steady_done(&s, &c);
	xport_rkey_destroy(s.key.k);
	h_mem_free(h, &mem);
}

/* Completions of the application's are not lost if there is no memory for the state. */
static void far_create_fails(struct h *h)
{
	struct xport_far_attr a = {.size = sizeof(a), .lend = LEND};
	struct h_op *put, *send, *recv;
	uint8_t *buf = h_buf(h, 8);
	struct h_rkey key;
	struct h_mem mem, from;
	xport_far *f;

	to_itself(h, &mem, &key);
	from = h_mem_local(h, PIECE, 0);
	recv = h_recv(h, NULL, buf, 8, 5, UINT64_MAX);
	put = h_put(h, h->ep[1], H_AT(from, 0, PIECE), &key, 0, 0);
	send = h_send(h, h->ep[1], "12345678", 8, 5);
	svc_wrap_alloc(1);
	H_STATUS(XPORT_ERR_NO_MEMORY, xport_far_create(h->x, &a, &f));
	H_DONE(put);
	H_DONE(send);
	H_DONE(recv);
	/* There is memory again. */
	H_OK(xport_far_create(h->x, &a, &f));
	H_OK(xport_far_destroy(f, NULL, NULL, h_ms(5000)));
	xport_rkey_destroy(key.k);
	h_mem_free(h, &from);
	h_mem_free(h, &mem);
}

const struct h_scenario svc_cases_far_end[] = {
	{"far_keys", {far_keys, far_lender_role, far_dying_lender}, NULL, H_KILLS | H_ONCE, 0},
	{"far_keys_freed", {far_keys_freed, far_dying_lender}, NULL, H_KILLS | H_ONCE, 0},
	{"far_look_fails", {far_look_fails, far_lender_role}, NULL, H_ONCE, 0},
	{"far_anew", {far_anew, anew_lender}, NULL, H_ONCE, 0},
	{"far_shorter", {far_shorter, far_lender_role, far_dying_lender}, NULL, H_KILLS | H_ONCE, 0},
	{"far_destroy_late", {far_destroy_late}, NULL, H_ONCE, 0},
	{"far_create_fails", {far_create_fails}, NULL, H_ONCE, 0},
	{0},
};
