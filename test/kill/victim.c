/* SPDX-License-Identifier: BSD-3-Clause */
/* victim.c - one life: goes to the ordered step, stays in it under load, and ends there. */
#include "end.h"

/* So many operations must have ended well before a step counts as under way. */
enum { UNDER_WAY = 4, PORT_MS = 2000 };

static void phase(struct kl_board *b, enum kl_phase p)
{
	atomic_store(&b->phase, p);
}

/*
 * Where the one before it listened; the port may be held for a moment by a child of that one.  The first finds a port
 * which no connection is given (32768 and up, ip(7): ip_local_port_range): between two victims nobody holds it.
 */
static void listen_again(struct actor *a)
{
	struct kl_board *b = a->board;
	struct h *h = a->h;
	bool first = b->victim_address[0] == '\0';
	unsigned port = 10000 + (unsigned)getpid() % 20000;
	int64_t end = h_now_us() + (int64_t)h_ms(PORT_MS) * 1000;
	int status;

	for (;;) {
		if (first)
			snprintf(b->victim_address, sizeof(b->victim_address), "127.0.0.1:%u", port++);
		status = xport_listen(h->x, b->victim_address, NULL, &h->listener);
		if (status != XPORT_ERR_ADDRESS || h_now_us() >= end)
			break;
		usleep(1000);
	}
	H_STATUS(XPORT_OK, status);
	H_OK(xport_listener_name(h->listener, b->victim_address, sizeof(b->victim_address)));
}

static void serve(struct actor *a, struct side *s)
{
	struct h *h = a->h;

	side_offer(s);
	listen_again(a);
	phase(a->board, KL_LISTENING);
	if (s->order.step == KL_CONNECTING)
		return;
	s->ep = h_accept(h);
	s->connected = true;
}

static void post(struct actor *a, struct side *s)
{
	struct h *h = a->h;

	if (s->order.step == KL_CONNECTING) {
		H_OK(xport_connect(h->x, a->board->survivor_address, NULL, 0, &s->ep));
		return;
	}
	s->ep = h_connect(h, a->board->survivor_address);
	s->connected = true;
	side_take_key(s);
}

/* Until what the step is about is really going on. */
static void get_under_way(struct actor *a, struct side *s)
{
	struct h *h = a->h;
	int64_t end = h_now_us() + (int64_t)h_ms(10000) * 1000;

	if (s->order.step < KL_PUT)
		return;
	while (atomic_load(&a->board->moved) < UNDER_WAY) {
		H_CHECK(h_now_us() < end, "%s does not get under way", kl_step_names[s->order.step]);
		actor_turn(a, false);
	}
}

/* Its end did not end it: it must find its peer lost as well, and then waits to be killed. */
static void live_on(struct actor *a, struct side *s)
{
	struct kl_board *b = a->board;

	if (s->ep && s->connected)
		actor_settle(a, kl_limit_us(b, KL_STOPPED), "the victim's own view");
	phase(b, KL_SETTLED);
	for (;;)
		usleep(100000);
}

static void wait_for_order(struct h *h, const struct kl_board *b)
{
	while (atomic_load(&b->lives) != (unsigned)h->incarnation + 1)
		usleep(200);
}

void kl_victim(struct h *h)
{
	static struct actor a;
	struct kl_board *b = kl_board;
	struct side *s;

	wait_for_order(h, b);
	actor_begin(&a, h);
	if (b->order.leave) {
		h_sync_with(h, 1);
		return;
	}
	ledger_begin(h, a.ledger);
	s = actor_side(&a, false);
	if (s->poster)
		post(&a, s);
	else
		serve(&a, s);
	phase(b, KL_READY);
	get_under_way(&a, s);
	if (s->order.way == KL_FORKED)
		end_leave_child(h, b);
	phase(b, KL_WITHIN);
	if (s->order.by_itself) {
		actor_run(&a, (int64_t)(s->order.seed >> 16) % 2000);
		end_self(&a);
	} else {
		while (atomic_load(&b->phase) != KL_ENDING)
			actor_turn(&a, false);
	}
	/* Only who lives on comes here; who is killed by the survivor may still for a moment. */
	if (!kl_lives_on(s->order.way))
		for (;;)
			actor_turn(&a, false);
	live_on(&a, s);
}
