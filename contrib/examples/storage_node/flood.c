/* SPDX-License-Identifier: BSD-3-Clause */
#include "flood.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "watch.h"

/* To each node: more calls than the 1024 slots of an instance with the defaults.  One credit of each endpoint is left. */
enum { NODES = 2, PEERS = 36, EACH = 31, GIVE_UP_MS = 60000, TURN_MS = 5 };

struct call {
	xport_ep *ep;
	int node;
	int64_t again_ms; /* it was refused, and is repeated then; 0: it was not */
	uint8_t answer;
};

static struct flood {
	struct sh_hub *hub;
	struct sm_watch watch;
	xport_ep *to[NODES][PEERS];
	uint8_t slot[NODES][SR_SLOT]; /* what is put at each node */
	struct call call[NODES][PEERS][EACH];
	struct call ping; /* the answer shows that what was sent before has arrived */
	bool watches;
	unsigned waiting, busy, failed;
} f;

enum sf_how sf_how(const char *name)
{
	static const char *const names[] = {"", "flood", "leave", "watch"};

	for (int i = SF_STAY; i <= SF_WATCH; i++)
		if (strcmp(name, names[i]) == 0)
			return (enum sf_how)i;
	return SF_NONE;
}

/* ---- what comes ---- */

static void done(void *arg, const struct xport_rpc_event *e)
{
	struct call *c = e->context;

	(void)arg;
	if (c == NULL) {
		(void)sm_done(&f.watch, e);
		return;
	}
	if (e->status == XPORT_ERR_BUSY && c != &f.ping) {
		f.busy++;
		c->again_ms = sh_again_ms(e);
		return;
	}
	f.waiting--;
	f.failed += e->status != XPORT_OK || (!f.watches && c != &f.ping && c->answer != SW_OK);
}

static void lost(void *arg, xport_ep *ep)
{
	(void)arg;
	(void)ep;
	f.failed++;
}

/* ---- calls ---- */

static void post(struct call *c)
{
	static const uint64_t far = UINT64_MAX;
	struct xport_rpc_args args = {.deadline_ms = GIVE_UP_MS, .context = c};

	if (f.watches) {
		args.payload = &far;
		args.len = sizeof(far);
	} else {
		args.payload = f.slot[c->node];
		args.len = SR_SLOT;
		args.reply = &c->answer;
		args.reply_max = 1;
	}
	c->again_ms = 0;
	if (sh_call(f.hub, c->ep, f.watches ? "store.map" : "store.put", args) == 0) {
		f.failed++;
		f.waiting--;
	}
}

static void post_again(void)
{
	int64_t now = sh_now_ms();

	for (int i = 0; i < NODES * PEERS * EACH; i++) {
		struct call *c = &f.call[0][0][0] + i;

		if (c->again_ms > 0 && now >= c->again_ms)
			post(c);
	}
}

/* Until no more than `left` calls wait. */
static bool wait_for(unsigned left)
{
	int64_t until = sh_now_ms() + GIVE_UP_MS;

	while (f.waiting > left && f.failed == 0 && sh_now_ms() < until) {
		post_again();
		sh_hub_poll(f.hub, TURN_MS);
	}
	return f.waiting <= left && f.failed == 0;
}

static void ping(xport_ep *ep)
{
	struct xport_rpc_args args = {.deadline_ms = GIVE_UP_MS, .context = &f.ping};

	f.waiting++;
	if (sh_call(f.hub, ep, "xport.ping", args) == 0)
		f.failed++;
}

/* ---- where to ---- */

static uint32_t range_of(uint32_t primary, uint32_t second)
{
	uint32_t i = 0;

	while (i < SR_RANGES && (f.watch.map.range[i].primary != primary || f.watch.map.range[i].second != second))
		i++;
	return i;
}

/* A key of the range. */
static void make_put(uint32_t range, uint8_t *slot)
{
	struct sr_record r = {.state = SR_HELD, .value_len = 1, .value = "1"};
	uint32_t is, home, n = 0;

	do {
		r.key_len = (uint32_t)snprintf((char *)r.key, sizeof(r.key), "flood/%u", n++);
		sr_place(r.key, r.key_len, &is, &home);
	} while (is != range);
	sr_write(&r, slot);
}

/* Nodes 0 and 1, each of which is the second of a range of the other one's. */
static bool choose(void)
{
	for (uint32_t i = 0; i < NODES; i++) {
		uint32_t range = range_of(i, 1 - i);

		if (range == SR_RANGES)
			return false;
		make_put(range, f.slot[i]);
	}
	return true;
}

static bool connect_all(const char *keeper)
{
	for (int n = 0; n < NODES; n++)
		for (int i = 0; i < PEERS; i++) {
			f.to[n][i] = sh_connect(f.hub, f.watches ? keeper : f.watch.map.node[n].address);
			if (f.to[n][i] == NULL)
				return false;
			ping(f.to[n][i]);
		}
	return wait_for(0); /* now their credits are known, and all calls can be sent at once */
}

static bool have_map(const char *keeper)
{
	int64_t until = sh_now_ms() + GIVE_UP_MS;

	f.watch.hub = f.hub;
	f.watch.keeper = sh_connect(f.hub, keeper);
	while (f.watch.keeper != NULL && f.watch.map.epoch == 0 && sh_now_ms() < until) {
		(void)sm_ask(&f.watch);
		sh_hub_poll(f.hub, TURN_MS);
	}
	return f.watch.map.epoch > 0;
}

static void make_calls(void)
{
	for (int n = 0; n < NODES; n++)
		for (int i = 0; i < PEERS; i++)
			for (int k = 0; k < EACH; k++) {
				struct call *c = &f.call[n][i][k];

				*c = (struct call){.ep = f.to[n][i], .node = n};
				f.waiting++;
				post(c);
			}
}

static void say_flooded(void)
{
	puts("flooded");
	fflush(stdout);
}

static bool flood(const char *keeper, enum sf_how how)
{
	if (!have_map(keeper) || !choose() || !connect_all(keeper))
		return false;
	raise(SIGSTOP);
	make_calls();
	if (how != SF_WATCH) {
		say_flooded();
		return how == SF_LEAVE || wait_for(0);
	}
	for (int n = 0; n < NODES; n++)
		for (int i = 0; i < PEERS; i++)
			ping(f.to[n][i]);
	if (!wait_for(NODES * PEERS * EACH))
		return false;
	say_flooded();
	raise(SIGSTOP);
	return true;
}

int sf_run(const char *keeper, enum sf_how how)
{
	static const struct sh_use use = {"storage_client", NULL, done, lost};
	bool ok;

	f.watches = how == SF_WATCH;
	f.hub = sh_hub_open(&use, NULL, NULL);
	if (f.hub == NULL)
		return 1;
	ok = flood(keeper, how);
	printf("%u calls wait, %u were refused for a time, %u failed\n", f.waiting, f.busy, f.failed);
	sh_hub_close(f.hub);
	return ok ? 0 : 1;
}
