/* SPDX-License-Identifier: BSD-3-Clause */
#include "actor.h"

#include <sched.h>

/*
 * A death on the same host is promised within 100 ms, silence within 1.5 times the timeout; the rest is for machines that
 * are busy with something else.  The figures tell what it really was.
 */
enum { TIMEOUT_MS = 5000, SILENT_MS = 800, DEATH_MS = 100, SPARE_MS = 1000 };

struct kl_board *kl_board;

int kl_timeout_ms(const struct kl_board *b)
{
	return b->silent ? h_ms(SILENT_MS) : TIMEOUT_MS;
}

/*
 * Over ofi:sockets, a death after which a child holds the sockets is seen after some ms, after 0.5 s or after 0.9 s
 * (doc/records/reliability.md).  The median falls among one or the other.  What waits so long has not been found.
 */
enum { CHILD_MS = 900 };

int64_t kl_promised_us(const struct kl_board *b, enum kl_way way)
{
	if (way == KL_FORKED && strcmp(b->backend, "ofi:sockets") == 0)
		return 1000 * (int64_t)(h_ms(DEATH_MS) + CHILD_MS);
	return 1000 * (int64_t)(kl_is_silent(way) ? kl_timeout_ms(b) * 3 / 2 : h_ms(DEATH_MS));
}

int64_t kl_limit_us(const struct kl_board *b, enum kl_way way)
{
	return kl_promised_us(b, way) + (int64_t)h_ms(SPARE_MS) * 1000;
}

/*
 * The back end of this process.  Of "A+B" the survivor has both, each victim has the one whose turn it is, and the third peer
 * has the last.
 */
static const char *backend_of(const struct actor *a, char *name, size_t len)
{
	const char *all = a->board->backend, *from = all;
	int n = 1, turn;

	for (const char *p = all; *p; p++)
		n += *p == '+';
	if (n == 1 || a->h->role == KL_SURVIVOR)
		return all;
	turn = a->h->role == KL_THIRD ? n - 1 : a->h->incarnation % n;
	while (turn-- > 0)
		from = strchr(from, '+') + 1;
	snprintf(name, len, "%.*s", (int)strcspn(from, "+"), from);
	return name;
}

void actor_open(struct actor *a)
{
	struct xport_attr attr = h_attr(a->h);
	char name[64];

	attr.backend = backend_of(a, name, sizeof(name));
	attr.peer_timeout_ms = kl_timeout_ms(a->board);
	attr.log_level = XPORT_LOG_WARN;
	h_open(a->h, &attr);
}

void actor_begin(struct actor *a, struct h *h)
{
	a->h = h;
	a->board = kl_board;
	a->ledger = h_buf(h, sizeof(*a->ledger));
	actor_open(a);
	h->kind = H_REG;
	for (int i = 0; i < 2; i++)
		a->local[i] = h_mem_local(h, SIDE_SLOTS * SIDE_LEN, 0);
}

struct side *actor_side(struct actor *a, bool survivor)
{
	struct side *s = &a->side[a->nsides];

	side_begin(s, a->h, a->board, a->ledger, &a->local[a->nsides], survivor);
	s->number = a->nsides++;
	return s;
}

static void hand_out(struct actor *a, const struct xport_completion *c)
{
	const struct ledger_entry *e;

	if (c->type < XPORT_EVENT_NOTIFY) {
		e = ledger_take(a->h, a->ledger, c);
		side_ended(&a->side[e->side], e, c);
		return;
	}
	for (int i = 0; i < a->nsides; i++)
		if (c->ep && a->side[i].ep == c->ep) {
			side_event(&a->side[i], c);
			return;
		}
	a->strays++;
}

void actor_turn(struct actor *a, bool patient)
{
	struct h *h = a->h;
	struct timespec moment = {.tv_nsec = 100000};

	for (int i = 0; i < a->nsides; i++)
		side_work(&a->side[i]);
	if (patient)
		h_breathe(h);
	else if (h_progress(h) == 0 && (!a->restless || sched_yield() != 0))
		nanosleep(&moment, NULL);
	for (int i = 0; i < h->nqueue; i++)
		hand_out(a, &h->queue[i]);
	h->nqueue = 0;
}

void actor_run(struct actor *a, int64_t us)
{
	for (int64_t end = h_now_us() + us; h_now_us() < end;)
		actor_turn(a, false);
}

static bool settled(const struct actor *a)
{
	for (int i = 0; i < a->nsides; i++)
		if (a->side[i].ep && !a->side[i].lost)
			return false;
	return a->ledger->pending == 0;
}

/* 'Z' once it has ended and nobody has waited for it; '-' once somebody has. */
static char state_of(int pid)
{
	char path[64], line[512] = "", *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	p = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (f)
		fclose(f);
	return p ? p[2] : '-';
}

void actor_settle(struct actor *a, int64_t limit_us, const char *what)
{
	struct h *h = a->h;
	int64_t end = h_now_us() + limit_us;

	while (!settled(a)) {
		bool late = h_now_us() > end; /* before the last look */

		actor_turn(a, a->patient);
		if (late && !settled(a))
			xport_dump(h->x);
		H_CHECK(!late || settled(a),
		        "%s: after %" PRId64
		        " ms %s, and %u operations have not completed; the victim's process is in state %c",
		        what, limit_us / 1000, a->side[0].lost ? "the loss is known" : "no loss was reported",
		        a->ledger->pending, state_of(h_pid(h, 0)));
	}
}
