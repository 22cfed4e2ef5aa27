/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.c - storage_node, one node: slots that clients read by get, writes of the ranges that are its own (primary.h), and
 * copies of those whose second it is.  It is started by storage_keeper, and ends with it.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "primary.h"

enum { IDLE_MS = 1000, JOIN_MS = 30000 };

struct node {
	uint64_t life;
	struct sh_hub *hub;
	struct st_table table;
	struct sp_primary primary;
	struct sw_join self;
	uint64_t join;         /* the call */
	int64_t join_again_ms; /* the keeper was busy: it is repeated then; 0: it was not */
	bool ends;
};

/* ---- methods ---- */

/* A process that is no longer the primary of the range is not acknowledged. */
static void copy(void *arg, const struct xport_rpc_event *e)
{
	struct sr_record record, now;
	struct node *n = arg;
	struct sw_copy c;

	if (!sh_payload(n->hub, e, &c, sizeof(c)))
		return;
	if (c.range >= SR_RANGES || c.slot >= SR_SLOTS || !sr_read(&record, c.record) ||
	    c.term < n->primary.watch.map.range[c.range].term) {
		sh_reply(n->hub, e->id, XPORT_ERR_INVALID, NULL, 0);
		return;
	}
	st_table_read(&n->table, c.range, c.slot, &now);
	if (record.version > now.version)
		st_table_write(&n->table, c.range, c.slot, &record);
	sh_reply(n->hub, e->id, XPORT_OK, NULL, 0);
}

static void put(void *arg, const struct xport_rpc_event *e)
{
	sp_write(&((struct node *)arg)->primary, e, false);
}

static void delete (void *arg, const struct xport_rpc_event *e)
{
	sp_write(&((struct node *)arg)->primary, e, true);
}

static void die(void *arg, const struct xport_rpc_event *e)
{
	struct node *n = arg;

	if (e->ep == n->primary.watch.keeper)
		(void)raise(SIGKILL);
	sh_reply(n->hub, e->id, XPORT_ERR_INVALID, NULL, 0);
}

/* ---- what comes ---- */

static void done(void *arg, const struct xport_rpc_event *e)
{
	struct node *n = arg;

	if (e->context != NULL) {
		sp_done(&n->primary, e);
	} else if (e->id == n->join) {
		n->join_again_ms = e->status == XPORT_ERR_BUSY ? sh_again_ms(e) : 0;
		n->ends = e->status != XPORT_OK && e->status != XPORT_ERR_BUSY;
	} else if (sm_done(&n->primary.watch, e)) {
		if (n->primary.watch.map.node[n->primary.id].life == n->life)
			sp_map(&n->primary);
		else
			n->ends = true; /* another one is in its place */
	}
}

static void lost(void *arg, xport_ep *ep)
{
	struct node *n = arg;

	if (ep == n->primary.watch.keeper)
		n->ends = true;
	else
		sp_lost(&n->primary, ep);
}

/* ---- life ---- */

static bool join(struct node *n)
{
	struct xport_rpc_args args = {.payload = &n->self, .len = sizeof(n->self), .deadline_ms = JOIN_MS};

	n->join_again_ms = 0;
	n->join = sh_call(n->hub, n->primary.watch.keeper, "store.join", args);
	if (n->join == 0)
		sh_complain_services(n->hub, "joining");
	return n->join != 0;
}

static bool connect_keeper(struct node *n, const char *keeper)
{
	n->self = (struct sw_join){.node = n->primary.id, .member = {.life = n->life}};
	if (!sh_describe(n->hub, n->table.mr, &n->self.member))
		return false;
	n->primary.watch.keeper = sh_connect(n->hub, keeper);
	if (n->primary.watch.keeper == NULL)
		sh_complain(n->hub, "the keeper");
	return n->primary.watch.keeper != NULL && join(n);
}

/* One turn.  Returns false if the node has failed. */
static bool turn(struct node *n)
{
	bool soon = sm_ask(&n->primary.watch);

	if (sp_continue(&n->primary) || n->join_again_ms != 0)
		soon = true;
	sh_hub_poll(n->hub, soon ? SH_SOON_MS : IDLE_MS);
	return n->ends || n->join_again_ms == 0 || sh_now_ms() < n->join_again_ms || join(n);
}

static int run(struct node *n, const char *listen, const char *keeper, uint32_t id, bool early)
{
	static const struct sh_method methods[] = {
		{"store.put", put}, {"store.delete", delete}, {"store.copy", copy}, {"store.die", die}, {NULL, NULL}};
	static const struct sh_use use = {"storage_node", methods, done, lost};
	int rc = 1;

	n->hub = sh_hub_open(&use, n, listen);
	if (n->hub == NULL)
		return 1;
	if (st_table_open(&n->table, n->hub)) {
		sp_open(&n->primary, id, &n->table, n->hub);
		n->primary.early = early;
		rc = connect_keeper(n, keeper) ? 0 : 1;
		while (rc == 0 && !n->ends)
			rc = turn(n) ? 0 : 1;
	}
	sh_hub_close(n->hub);
	return rc;
}

static int usage(FILE *to)
{
	fputs("usage: storage_node --keeper HOST:PORT --id N --life N [--listen HOST:PORT] [--plant early|slow]\n"
	      "One node of a store.  storage_keeper starts it.\n",
	      to);
	return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"keeper", required_argument, NULL, 'k'},
		{"id", required_argument, NULL, 'i'},
		{"life", required_argument, NULL, 'f'},
		{"listen", required_argument, NULL, 'l'},
		{"plant", required_argument, NULL, 'p'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static struct node n;
	const char *keeper = NULL, *listen = "127.0.0.1:0", *plant = "";
	uint32_t id = SW_NONE;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 'k':
			keeper = optarg;
			break;
		case 'i':
			id = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'f':
			n.life = strtoull(optarg, NULL, 10);
			break;
		case 'l':
			listen = optarg;
			break;
		case 'p':
			plant = optarg;
			break;
		default:
			return usage(o == 'h' ? stdout : stderr);
		}
	}
	if (keeper == NULL || id >= SW_NODES || n.life == 0 || optind != argc)
		return usage(stderr);
	n.table.slow = strcmp(plant, "slow") == 0;
	return run(&n, listen, keeper, id, strcmp(plant, "early") == 0);
}
