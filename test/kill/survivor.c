/* SPDX-License-Identifier: BSD-3-Clause */
/* survivor.c - lives through one end of a victim after the other, and checks what each leaves behind. */
#include "end.h"
#include "leaks.h"

enum {
	STEP_MS = 10000,   /* for a step to be reached */
	CONNECT_MS = 400,  /* to one that stops while it is connected to */
	SETTLE_US = 3000,  /* in which nothing more must come */
	POISON = 0xa5
};

struct survivor {
	struct actor a;
	struct leaks first;
	bool warm; /* from now on figures count */
	unsigned rounds;
	int64_t window_us;  /* when the window before the end began */
	uint64_t window_at; /* the third peer's count then */
	double before;      /* its rate in that window; 0: not measured */
	uint32_t in_flight; /* at the end */
	int64_t end_us;     /* of the window after the end: its beginning */
	uint64_t end_at;
	struct h_key old_key;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 29;
}

/* ---- orders ---- */

/* While the survivor itself waits in xport_connect. */
static bool connects_blocking(const struct kl_order *o)
{
	return o->step == KL_CONNECTING && o->part == KL_TARGET && (kl_is_silent(o->way) || o->way == KL_FORKED);
}

static struct kl_order order_of(struct survivor *v, enum kl_way way, enum kl_step step, enum kl_part part)
{
	struct kl_board *b = v->a.board;
	struct kl_order o = {.way = way, .step = step, .part = part};
	uint64_t seed = mix(b->seed + mix(v->rounds));

	o.seed = seed;
	o.by_itself = seed >> 1 & 1;
	if (way == KL_EXITED || way == KL_ABORTED || way == KL_SHUT || connects_blocking(&o))
		o.by_itself = true;
	else if (way == KL_CUT)
		o.by_itself = false;
	/* One that was not accepted need not be lost to it. */
	o.wake = (seed >> 2 & 1) && (part == KL_TARGET || (step != KL_CONNECTING && step != KL_ACCEPTING));
	o.measured = !o.by_itself && step != KL_CONNECTING && way != KL_RESTARTED && b->measure_every > 0 &&
	             (seed >> 32) % (unsigned)b->measure_every == 0;
	return o;
}

static void wait_for(struct survivor *v, enum kl_phase phase)
{
	struct kl_board *b = v->a.board;
	struct h *h = v->a.h;
	int64_t end = h_now_us() + (int64_t)h_ms(STEP_MS) * 1000;

	while (atomic_load(&b->phase) < (int)phase) {
		H_CHECK(h_now_us() < end, "the victim did not get to phase %d in %d ms, but to %d", phase,
		        h_ms(STEP_MS), atomic_load(&b->phase));
		actor_turn(&v->a, phase < KL_WITHIN);
	}
}

/* ---- the beginning of a life ---- */

static void come_to_life(struct survivor *v)
{
	struct kl_board *b = v->a.board;

	atomic_store(&b->phase, KL_COMING);
	atomic_store(&b->moved, 0);
	atomic_store(&b->child, 0);
	if (atomic_fetch_add(&b->lives, 1) > 0)
		h_restart(v->a.h, 0);
}

/* The connection of the latest victim; those of earlier ones that died half-way go. */
static bool accept_one(struct survivor *v, struct side *s)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	struct h *h = v->a.h;
	xport_ep *ep;
	int status = xport_accept(h->listener, 0, &ep);

	if (status == XPORT_ERR_TIMEOUT)
		return false;
	H_STATUS(XPORT_OK, status);
	H_OK(xport_ep_query(ep, &info));
	if (info.peer_pid != h_pid(h, 0)) {
		xport_ep_destroy(ep);
		return false;
	}
	s->ep = ep;
	s->connected = true;
	return true;
}

/* To a victim that stops or dies meanwhile: either there is a connection, or an error says so in time. */
static void connect_blocking(struct survivor *v, struct side *s)
{
	struct kl_board *b = v->a.board;
	struct h *h = v->a.h;
	int64_t begin = h_now_us();
	int status = xport_connect(h->x, b->victim_address, NULL, h_ms(CONNECT_MS), &s->ep);

	H_CHECK(h_now_us() - begin < (int64_t)h_ms(CONNECT_MS + 1000) * 1000, "xport_connect took %" PRId64 " us",
	        h_now_us() - begin);
	if (status == XPORT_OK) {
		s->connected = true;
		return;
	}
	s->ep = NULL;
	H_CHECK(status == XPORT_ERR_TIMEOUT || status == XPORT_ERR_REFUSED || status == XPORT_ERR_PEER_LOST ||
	                status == XPORT_ERR_UNREACHABLE,
	        "xport_connect: %s", xport_status_name(status));
}

/* The event tells; or the call itself, if the victim has gone already. */
static void connect_later(struct survivor *v, struct side *s)
{
	struct h *h = v->a.h;
	int status = xport_connect(h->x, v->a.board->victim_address, NULL, 0, &s->ep);

	if (status == XPORT_OK)
		return;
	s->ep = NULL;
	H_CHECK(status == XPORT_ERR_REFUSED && s->order.by_itself, "xport_connect: %s", xport_status_name(status));
}

static void note_reconnect(struct kl_board *b, int64_t us)
{
	if (b->nreconnect < KL_SAMPLES)
		b->reconnect_us[b->nreconnect++] = (int32_t)us;
}

static void connect_to_victim(struct survivor *v, struct side *s)
{
	struct kl_board *b = v->a.board;
	struct h *h = v->a.h;
	int64_t begin;

	wait_for(v, KL_LISTENING);
	if (connects_blocking(&s->order)) {
		connect_blocking(v, s);
		return;
	}
	if (s->order.step == KL_CONNECTING || s->order.step == KL_ACCEPTING) {
		connect_later(v, s);
		return;
	}
	begin = h_now_us();
	s->ep = h_connect(h, b->victim_address);
	note_reconnect(b, h_now_us() - begin);
	s->connected = true;
	side_take_key(s);
}

static void meet(struct survivor *v, struct side *s)
{
	struct h *h = v->a.h;
	int64_t end = h_now_us() + (int64_t)h_ms(STEP_MS) * 1000;

	if (s->poster)
		connect_to_victim(v, s);
	else if (s->order.step != KL_CONNECTING && s->order.step != KL_ACCEPTING)
		while (!accept_one(v, s)) {
			H_CHECK(h_now_us() < end, "the victim does not connect");
			actor_turn(&v->a, true);
		}
}

static struct side *begin_life(struct survivor *v, const struct kl_order *o)
{
	struct side *s;

	v->a.board->order = *o;
	s = actor_side(&v->a, true);
	if (!s->poster)
		side_offer(s);
	come_to_life(v);
	meet(v, s);
	return s;
}

/* ---- the end of it ---- */

static void open_window(struct survivor *v)
{
	struct kl_board *b = v->a.board;

	if (!b->order.measured)
		return;
	atomic_store(&b->third_full, 1);
	v->a.restless = true;
	actor_run(&v->a, b->window_us / 4);
	v->window_us = h_now_us();
	v->window_at = atomic_load(&b->third_done);
	actor_run(&v->a, b->window_us);
	v->before = (double)(atomic_load(&b->third_done) - v->window_at) / (double)(h_now_us() - v->window_us);
}

static void close_window(struct survivor *v)
{
	struct kl_board *b = v->a.board;
	int64_t left = v->end_us + b->window_us - h_now_us();
	double after;

	if (v->before <= 0)
		return;
	if (left > 0)
		actor_run(&v->a, left);
	after = (double)(atomic_load(&b->third_done) - v->end_at) / (double)(h_now_us() - v->end_us);
	atomic_store(&b->third_full, 0);
	v->a.restless = false;
	if (b->nratio < KL_RATIOS)
		b->ratio[b->nratio++] = (float)(after / v->before);
}

static void end_it(struct survivor *v, const struct kl_order *o)
{
	struct kl_board *b = v->a.board;
	struct h *h = v->a.h;

	if (o->way == KL_CUT) {
		end_cut_off(h, h_pid(h, 0));
		atomic_store(&b->ended_us, h_now_us());
	} else if (o->way == KL_STOPPED) {
		h_stop(h, 0);
		atomic_store(&b->ended_us, h_now_us());
	} else {
		atomic_store(&b->ended_us, h_now_us());
		h_kill(h, 0, SIGKILL);
	}
	atomic_store(&b->phase, KL_ENDING);
}

/* Goes on until the victim is in its step, and a random moment more. */
static void see_the_end(struct survivor *v, const struct kl_order *o)
{
	struct kl_board *b = v->a.board;

	if (o->by_itself) {
		wait_for(v, KL_ENDING);
	} else {
		if (o->step != KL_CONNECTING || o->part == KL_ORIGIN)
			wait_for(v, KL_WITHIN);
		open_window(v);
		actor_run(&v->a, (int64_t)(o->seed >> 16) % 2000);
		end_it(v, o);
	}
	v->in_flight = v->a.ledger->pending;
	v->end_us = h_now_us();
	v->end_at = atomic_load(&b->third_done);
}

/* A victim that was not accepted when it went: perhaps it is still offered, perhaps not. */
static void accept_late(struct survivor *v, struct side *s)
{
	if (s->ep || s->poster)
		return;
	if (!kl_is_silent(s->order.way))
		actor_run(&v->a, SETTLE_US);
	for (int i = 0; i < 4 && !s->ep; i++) {
		accept_one(v, s);
		actor_turn(&v->a, false);
	}
}

static void note_loss(struct survivor *v, const struct side *s)
{
	struct kl_figures *f = &v->a.board->figures[s->order.way];

	if (!s->connected || !s->lost || !v->warm)
		return;
	if (f->ndetect < KL_SAMPLES)
		f->detect_us[f->ndetect++] = (int32_t)(s->lost_us - atomic_load(&v->a.board->ended_us));
}

static void note_figures(struct survivor *v, enum kl_way way)
{
	struct kl_figures *f = &v->a.board->figures[way];

	if (!v->warm)
		return;
	f->kills++;
	f->in_flight += v->in_flight;
	f->posted += v->a.ledger->used;
	f->ended += v->a.ledger->used - v->a.ledger->pending;
	f->lost += v->a.ledger->lost;
}

/* One that lives on has to find out for itself, and is killed then. */
static void put_to_rest(struct survivor *v, const struct kl_order *o)
{
	struct kl_board *b = v->a.board;
	struct h *h = v->a.h;
	int child = atomic_load(&b->child);

	if (o->way == KL_STOPPED && o->wake)
		h_cont(h, 0);
	if (kl_lives_on(o->way) && (o->way != KL_STOPPED || o->wake))
		wait_for(v, KL_SETTLED);
	if (o->way == KL_CUT)
		H_TRUE(end_mend());
	if (kl_lives_on(o->way))
		h_kill(h, 0, SIGKILL);
	if (child)
		kill(child, SIGKILL);
}

/* Nothing more comes, and nobody writes into buffers that are given back. */
static void nothing_more(struct survivor *v, const struct kl_order *o)
{
	struct h *h = v->a.h;

	for (int i = 0; i < v->a.nsides; i++)
		memset(v->a.local[i].p, POISON, v->a.local[i].len);
	put_to_rest(v, o);
	actor_run(&v->a, SETTLE_US);
	for (int i = 0; i < v->a.nsides; i++) {
		H_BYTES(v->a.local[i].p, v->a.local[i].len, POISON);
		H_GUARDS(v->a.local[i]);
	}
}

/* ---- a round ---- */

/* At once there is another one at the same address, and it works, with the loss of the first known or not. */
static void come_back(struct survivor *v, const struct kl_order *first)
{
	struct kl_order o = *first;
	struct h *h = v->a.h;
	struct side *s;
	xport_rkey *k = NULL;

	memcpy(&v->old_key, v->a.board->key, sizeof(v->old_key));
	o.way = KL_KILLED;
	o.step = KL_GET;
	o.by_itself = o.measured = false;
	s = begin_life(v, &o);
	if (s->poster && v->a.side[0].key.k)
		H_STATUS(XPORT_ERR_STALE_KEY, xport_rkey_unpack(s->ep, v->old_key.bytes, v->old_key.len, &k));
	wait_for(v, KL_WITHIN);
}

static void round_of(struct survivor *v, enum kl_way way, enum kl_step step, enum kl_part part)
{
	struct actor *a = &v->a;
	struct kl_order o = order_of(v, way, step, part), second = o;
	int64_t limit = kl_limit_us(a->board, way);
	char what[128];
	struct side *s;

	snprintf(what, sizeof(what), "%s, %s, %s, seed %#" PRIx64, kl_way_names[way], kl_step_names[step],
	         kl_part_names[part], o.seed);
	ledger_begin(a->h, a->ledger);
	a->nsides = 0;
	v->rounds++;
	v->before = 0;
	s = begin_life(v, &o);
	a->patient = a->board->silent && !o.measured;
	see_the_end(v, &o);
	if (way == KL_RESTARTED) {
		come_back(v, &o);
		end_it(v, &second);
	}
	accept_late(v, s);
	actor_settle(a, limit, what);
	if (way != KL_RESTARTED)
		note_loss(v, s);
	note_figures(v, way);
	nothing_more(v, &o);
	close_window(v);
	for (int i = 0; i < a->nsides; i++) {
		if (a->side[i].ep)
			side_is_lost(&a->side[i]);
		side_end(&a->side[i]);
	}
}

/* ---- all of them ---- */

static void run_cell(struct survivor *v, int number)
{
	struct kl_board *b = v->a.board;
	struct kl_cell *c = &b->cell[number];

	atomic_store(&b->current, number);
	for (int i = 0; i < c->rounds; i++) {
		round_of(v, c->way, c->step, c->part);
		leaks_check(&v->a, &v->first);
	}
	kl_cell_judge(c, KL_PASSED, "");
}

/* What is made once and kept, is made now. */
static void warm_up(struct survivor *v)
{
	static const enum kl_step steps[] = {KL_PUT, KL_GET, KL_RENDEZVOUS, KL_ATOMIC};
	enum kl_way way = v->a.board->silent ? KL_STOPPED : KL_KILLED;

	for (int i = 0; i < 8; i++)
		round_of(v, i < 2 ? way : KL_KILLED, steps[i / 2], (enum kl_part)(i % 2));
	v->warm = true;
	actor_run(&v->a, 200000); /* the last one's sockets may close a moment later */
	v->first = leaks_now();
}

static void meet_third(struct survivor *v, struct h_mem *m)
{
	struct kl_board *b = v->a.board;
	struct h *h = v->a.h;
	struct h_key key;

	*m = h_mem_target(h, 4096, 0, H_ALL);
	key = h_key_pack(h, m);
	memcpy(b->third_key, &key, sizeof(key));
	h_listen(h);
	snprintf(b->survivor_address, sizeof(b->survivor_address), "%s", h->address);
	atomic_store(&b->third_ready, 1);
	h->ep[2] = h_accept(h);
}

/* The last victim only opens and closes: what the killed ones left in /dev/shm is taken away by whoever opens next. */
static void finish(struct survivor *v)
{
	struct kl_board *b = v->a.board;
	struct leaks last = leaks_now(), end;

	b->heap_last = last.heap;
	b->large_last = last.large;
	b->rss_last = last.rss;
	b->rounds_all = v->rounds;
	b->fds_more = last.fds - v->first.fds;
	for (int64_t until = h_now_us() + 2100000; b->own_shm && h_now_us() < until;)
		actor_turn(&v->a, true);
	b->order = (struct kl_order){.leave = true};
	come_to_life(v);
	h_sync_with(v->a.h, 0);
	end = leaks_now();
	b->shm_more = end.files - v->first.files;
	atomic_store(&b->third_stop, 1);
}

void kl_survivor(struct h *h)
{
	static struct survivor v;
	struct kl_board *b = kl_board;
	struct h_mem third;
	struct leaks half;
	int all = 0, left;

	leaks_begin();
	actor_begin(&v.a, h);
	meet_third(&v, &third);
	warm_up(&v);
	for (int i = 0; i < b->ncells; i++)
		all += kl_cell_state(&b->cell[i]) == KL_WAITING ? b->cell[i].rounds : 0;
	left = all;
	for (int i = 0; i < b->ncells; i++) {
		if (b->cell[i].rounds == 0 || kl_cell_state(&b->cell[i]) != KL_WAITING)
			continue;
		if (b->cell[i].step == KL_AFTER)
			break;
		run_cell(&v, i);
		left -= b->cell[i].rounds;
		if (2 * left >= all) {
			half = leaks_now();
			b->heap_half = half.heap;
			b->large_half = half.large;
			b->rss_half = half.rss;
			b->rounds_half = v.rounds;
		}
	}
	atomic_store(&b->current, b->ncells - 1);
	finish(&v);
}
