/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_leases.c - see scenarios.h: leases and directories of libxport_services, with threads that answer for the library. */
#include <stdio.h>

#include "scene.h"
#include "services/xport_services.h"

enum {
	PATIENCE = 200,
	NAMES = 70, /* one more than the first table takes in its lists */
	ON_MESSAGE = BIT(XPORT_ERR_NO_MEMORY) | BIT(XPORT_ERR_SYSTEM) | ENDED,
	ON_END = BIT(XPORT_ERR_TIMEOUT) | BIT(XPORT_ERR_BUSY)
};

void leases(struct scene *s);
void directory(struct scene *s);

/* ---- leases ---- */

static struct {
	xport_leases *all[2];
	xport_lease *lent; /* the last one that side 0 served */
	bool swap;         /* the next two messages reach side 1 in the wrong order, as of two threads that poll */
	struct xport_completion kept;
	int keeps; /* turns that `kept` waits still for another one */
	int ended[2];
} l;

static void bring_kept(void)
{
	l.keeps = 0;
	xport_leases_step(l.all[1], &l.kept);
}

/* A completion is the leases', or the scene's. */
static bool to_leases(struct scene *s, int side, const struct xport_completion *c)
{
	bool own;

	(void)s;
	if (l.all[side] == NULL)
		return false;
	if (side == 1 && l.swap && c->type == XPORT_OP_RECV && c->status == XPORT_OK) {
		l.kept = *c;
		l.keeps = PATIENCE;
		l.swap = false;
		return true;
	}
	own = xport_leases_step(l.all[side], c) == 1;
	if (side == 1 && l.keeps > 0 && c->type == XPORT_OP_RECV)
		bring_kept();
	return own;
}

static void take_events(struct scene *s, int side)
{
	struct xport_lease_event e = {.size = sizeof(e)};

	while (xport_leases_next(l.all[side], &e) == 1) {
		if (e.type == XPORT_LEASE_LENT)
			l.lent = e.lease;
		if (e.type == XPORT_LEASE_KEPT) {
			sc_note(s, e.status, BIT(XPORT_ERR_NO_MEMORY));
			sc_served(s, "xport_lease_return", xport_lease_return(e.lease), BIT(XPORT_ERR_CLOSED));
		}
		if (e.type != XPORT_LEASE_ENDED && e.type != XPORT_LEASE_HANDED)
			continue;
		if (l.lent == e.lease)
			l.lent = NULL;
		l.ended[side]++;
		if (e.status != XPORT_OK && e.status != XPORT_ERR_STALE_KEY)
			sc_note(s, e.status, ON_MESSAGE | BIT(XPORT_ERR_PROTOCOL) | BIT(XPORT_ERR_BUSY));
		sc_served(s, "xport_lease_free", xport_lease_free(e.lease), 0);
	}
}

static void turn(struct scene *s)
{
	sc_step(s);
	if (l.keeps > 0 && --l.keeps == 0)
		bring_kept();
	for (int side = 0; side < 2; side++) {
		if (l.all[side] == NULL)
			continue;
		if (xport_leases_timeout(l.all[side]) >= 0)
			xport_leases_step(l.all[side], NULL);
		take_events(s, side);
	}
}

/* Neither side sends what it must not, whatever fails. */
static void nobody_muted(struct scene *s)
{
	struct xport_leases_info info = {.size = sizeof(info)};

	for (int side = 0; side < 2; side++) {
		if (l.all[side] != NULL && xport_leases_query(l.all[side], &info) == XPORT_OK && info.muted > 0)
			scene_bad(s, "side %d muted an honest peer of its leases", side);
	}
}

static uint64_t now_borrowed(void)
{
	struct xport_leases_info info = {.size = sizeof(info)};

	return xport_leases_query(l.all[1], &info) == XPORT_OK ? info.borrowed : 0;
}

/* Until side 1's lease is granted (`state` HELD) or nothing is left of any (OVER), or it is too late. */
static bool reach(struct scene *s, xport_lease **lease, int state)
{
	struct xport_lease_info info = {.size = sizeof(info)};
	int64_t began = sc_now_ms();
	int before = l.ended[1];

	while (sc_now_ms() - began < MEMORY_LIMIT_MS + OPS_LIMIT_MS) {
		turn(s);
		if (l.ended[1] > before || now_borrowed() == 0)
			*lease = NULL;
		if (*lease == NULL)
			return state == XPORT_LEASE_OVER;
		if (state == XPORT_LEASE_HELD && xport_lease_query(*lease, &info) == XPORT_OK && info.state == state)
			return true;
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	scene_bad(s, "hang: a lease did not come to state %d", state);
	return false;
}

enum { RETURN, REVOKE, HAND_OVER };

static void ask_and_return(struct scene *s, int how)
{
	struct xport_lease_info info = {.size = sizeof(info)};
	xport_lease *lease = NULL;

	if (!sc_served(s, "xport_lease_ask", xport_lease_ask(l.all[1], s->ep[1], 4096, RIGHTS, NULL, &lease),
	               ON_MESSAGE) ||
	    !reach(s, &lease, XPORT_LEASE_HELD) || xport_lease_query(lease, &info) != XPORT_OK)
		return;
	sc_put(s, info.rkey, 100, 0, 0);
	sc_settle(s);
	if (how == HAND_OVER &&
	    !sc_served(s, "xport_lease_hand_over", xport_lease_hand_over(lease), ON_MESSAGE | BIT(XPORT_ERR_CLOSED)))
		how = RETURN;
	if (how == RETURN)
		sc_served(s, "xport_lease_return", xport_lease_return(lease), BIT(XPORT_ERR_CLOSED));
	else if (how == REVOKE && l.lent != NULL)
		sc_served(s, "xport_lease_revoke", xport_lease_revoke(l.lent), BIT(XPORT_ERR_CLOSED));
	reach(s, &lease, XPORT_LEASE_OVER);
}

/* Of the two answers the second one is heard first.  The one lease is left to the end. */
static void ask_twice(struct scene *s)
{
	xport_lease *other = NULL;

	l.swap = true;
	sc_served(s, "xport_lease_ask", xport_lease_ask(l.all[1], s->ep[1], 64, RIGHTS, NULL, &other), ON_MESSAGE);
	ask_and_return(s, REVOKE);
	l.swap = false;
	if (l.keeps > 0)
		bring_kept();
}

/* Side 0 gives a region, and takes it back. */
static void give_and_revoke(struct scene *s)
{
	int64_t end = sc_now_ms() + MEMORY_LIMIT_MS;
	int before = l.ended[0];
	xport_lease *lease = NULL;
	xport_mr *mr = NULL;

	if (!sc_ok(s, s->x[0], "xport_mr_alloc", xport_mr_alloc(s->x[0], 8192, RIGHTS, &mr), ON_REG))
		return;
	if (!sc_served(s, "xport_lease_give", xport_lease_give(l.all[0], s->ep[0], mr, NULL, &lease), ON_MESSAGE)) {
		xport_mr_dereg(mr);
		return;
	}
	while (now_borrowed() == 0 && l.ended[0] == before && sc_now_ms() < end)
		turn(s);
	if (l.ended[0] == before)
		sc_served(s, "xport_lease_revoke", xport_lease_revoke(lease), BIT(XPORT_ERR_CLOSED));
	inject_relent();
	for (end = sc_now_ms() + OPS_LIMIT_MS; l.ended[0] == before && sc_now_ms() < end;)
		turn(s);
	if (l.ended[0] == before)
		scene_bad(s, "hang: a region that was given did not come back");
}

static void drop(void *arg, const struct xport_completion *c)
{
	(void)arg, (void)c;
}

void leases(struct scene *s)
{
	struct xport_leases_attr attr = {.size = sizeof(attr),
	                                 .quota = 1 << 20,
	                                 .flags = XPORT_LEASES_TAKE | XPORT_LEASES_HAND_OVER,
	                                 .patience_ms = -1};

	if (sc_open_both(s))
		sc_connect_both(s);
	s->own = to_leases;
	for (int side = 0; side < 2 && sc_connected(s); side++)
		if (!sc_served(s, "xport_leases_create", xport_leases_create(s->x[side], &attr, &l.all[side]),
		               ON_MESSAGE))
			l.all[side] = NULL;
	if (l.all[0] != NULL && l.all[1] != NULL) {
		ask_and_return(s, RETURN);
		if (sc_connected(s))
			ask_and_return(s, HAND_OVER);
		if (sc_connected(s))
			ask_twice(s);
		if (sc_connected(s))
			give_and_revoke(s);
		nobody_muted(s);
	}
	s->ending = true;
	inject_relent();
	for (int side = 0; side < 2; side++) {
		if (l.all[side] != NULL && s->ep[side] != NULL)
			xport_leases_forget(l.all[side], s->ep[side]);
		sc_served(s, "xport_leases_destroy", xport_leases_destroy(l.all[side], drop, NULL, OPS_LIMIT_MS), 0);
		l.all[side] = NULL;
	}
	s->own = NULL;
	sc_close_all(s);
}

/* ---- directories ---- */

static xport_directory *dir[2];
static int answers;
static int heard; /* events of what the server put, or why it was not */
static int joined;
static bool lost;

static bool to_directory(struct scene *s, int side, const struct xport_completion *c)
{
	(void)s;
	return dir[side] != NULL && xport_directory_step(dir[side], c) == 1;
}

static void take_event(struct scene *s, int side, const struct xport_directory_event *e)
{
	bool failed = e->status != XPORT_OK && e->status != XPORT_ERR_UNREACHABLE;

	lost |= e->type == XPORT_DIRECTORY_LOST;
	answers += side == 1 && (e->type == XPORT_DIRECTORY_DONE || e->type == XPORT_DIRECTORY_LOST);
	if (side == 0)
		heard += e->type == XPORT_DIRECTORY_DONE && failed;
	else
		heard += e->type == XPORT_DIRECTORY_CHANGED || e->type == XPORT_DIRECTORY_MISSED;
	if (failed)
		sc_note(s, e->status, ON_MESSAGE | BIT(XPORT_ERR_PROTOCOL) | BIT(XPORT_ERR_BUSY));
}

static void dir_turn(struct scene *s)
{
	static struct xport_directory_event e = {.size = sizeof(e)};
	struct xport_directory_info info = {.size = sizeof(info)};

	sc_step(s);
	for (int side = 0; side < 2; side++) {
		if (dir[side] == NULL)
			continue;
		if (xport_directory_timeout(dir[side]) >= 0)
			xport_directory_step(dir[side], NULL);
		while (xport_directory_next(dir[side], &e) == 1)
			take_event(s, side, &e);
	}
	joined |= xport_directory_query(dir[0], &info) == XPORT_OK && info.peers > 0;
}

/* Until the user is told that the directory is lost, or *n is not what it was. */
static void until(struct scene *s, const int *n, int before, const char *what)
{
	int64_t began = sc_now_ms();

	while (*n == before && !lost && sc_connected(s) && sc_now_ms() - began < MEMORY_LIMIT_MS + OPS_LIMIT_MS) {
		dir_turn(s);
		if (sc_now_ms() - began > MEMORY_LIMIT_MS)
			inject_relent();
	}
	if (*n == before && !lost && sc_connected(s))
		scene_bad(s, "hang: no answer to %s", what);
}

static void answered(struct scene *s, int before, const char *what, int status)
{
	if (sc_served(s, what, status, ON_MESSAGE))
		until(s, &answers, before, what);
}

/* Who has joined hears of it, though it does not watch; nothing else goes to and fro meanwhile that would carry it. */
static void broadcast(struct scene *s, const struct xport_directory_entry *entry)
{
	until(s, &joined, 0, "xport_directory_join");
	for (int i = 0; i < 20; i++)
		dir_turn(s);
	if (sc_served(s, "xport_directory_put of the server's own",
	              xport_directory_put(dir[0], "first", 5, entry, XPORT_DIRECTORY_BROADCAST, NULL), ON_MESSAGE))
		until(s, &heard, 0, "what everybody is told");
}

static void use_directory(struct scene *s, const struct xport_directory_entry *entry)
{
	char name[16];

	broadcast(s, entry);
	answered(s, answers, "xport_directory_watch", xport_directory_watch(dir[1], NULL));
	for (int i = 0; i < NAMES && sc_connected(s); i++) {
		snprintf(name, sizeof(name), "name %d", i);
		sc_served(s, "xport_directory_put of the server's own",
		          xport_directory_put(dir[0], name, 7, entry, XPORT_DIRECTORY_BROADCAST, NULL), ON_MESSAGE);
		dir_turn(s);
	}
	answered(s, answers, "xport_directory_put", xport_directory_put(dir[1], "mine", 4, entry, 0, NULL));
	answered(s, answers, "xport_directory_find", xport_directory_find(dir[1], "mine", 4, NULL));
	answered(s, answers, "xport_directory_find", xport_directory_find(dir[1], "nobody's", 8, NULL));
	answered(s, answers, "xport_directory_remove", xport_directory_remove(dir[1], "mine", 4, NULL));
}

static void nobody_muted_in_directory(struct scene *s)
{
	struct xport_directory_info info = {.size = sizeof(info)};

	for (int side = 0; side < 2; side++) {
		if (dir[side] != NULL && xport_directory_query(dir[side], &info) == XPORT_OK && info.muted > 0)
			scene_bad(s, "side %d muted an honest peer of its directory", side);
	}
}

void directory(struct scene *s)
{
	struct xport_directory_attr attr = {.size = sizeof(attr), .serve = 1, .node = "here"};
	static struct xport_directory_entry entry = {.size = sizeof(entry)};
	struct region r = {0};

	if (sc_open_both(s))
		sc_connect_both(s);
	if (sc_connected(s))
		sc_share(s, &r, true);
	s->own = to_directory;
	for (int side = 0; side < 2 && r.key != NULL; side++, attr.serve = 0)
		if (!sc_served(s, "xport_directory_create", xport_directory_create(s->x[side], &attr, &dir[side]),
		               ON_MESSAGE))
			dir[side] = NULL;
	if (dir[0] != NULL && dir[1] != NULL &&
	    sc_served(s, "xport_directory_region", xport_directory_region(r.mr, 0, REGION, &entry), ON_MESSAGE) &&
	    sc_served(s, "xport_directory_join", xport_directory_join(dir[1], s->ep[1]), ON_MESSAGE))
		use_directory(s, &entry);
	nobody_muted_in_directory(s);
	s->ending = true;
	inject_relent();
	for (int side = 0; side < 2; side++) {
		if (dir[side] != NULL && s->ep[side] != NULL)
			xport_directory_forget(dir[side], s->ep[side]);
		sc_served(s, "xport_directory_destroy", xport_directory_destroy(dir[side], drop, NULL, OPS_LIMIT_MS),
		          0);
		dir[side] = NULL;
	}
	s->own = NULL;
	xport_rkey_destroy(r.key);
	sc_close_endpoint(s, 1);
	sc_close_endpoint(s, 0);
	sc_unshare(s, &r);
	sc_close_all(s);
}
