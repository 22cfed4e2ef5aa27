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

enum { SOON_MS = 20, IDLE_MS = 1000 };

struct node {
	uint64_t life;
	struct sh_hub *hub;
	struct st_table table;
	struct sp_primary primary;
	bool ends;
};

/* What the primary of a range sends.  One that is no longer its primary is not answered, and so acknowledges nothing. */
static void take_copy(struct node *n, struct sh_peer *peer, const struct sw_message *m)
{
	struct sw_message answer = {.type = SW_COPIED, .status = m->status, .range = m->range, .slot = m->slot};
	struct sr_record record, now;

	if (m->body_len != SR_SLOT || !sr_read(&record, m->body)) {
		peer->bad = true;
		return;
	}
	if (m->term < n->primary.map.range[m->range].term)
		return;
	st_table_read(&n->table, m->range, m->slot, &now);
	if (record.version > now.version)
		st_table_write(&n->table, m->range, m->slot, &record);
	answer.term = m->term;
	answer.number = m->number;
	sh_send(peer, &answer);
}

static void take_map(struct node *n, const struct sw_message *m)
{
	static struct sw_map map;

	if (!sw_get_map(m, &map) || map.epoch <= n->primary.map.epoch)
		return;
	if (map.node[n->primary.id].life == n->life)
		sp_map(&n->primary, &map);
	else
		n->ends = true; /* another one is in its place */
}

static void message(void *arg, struct sh_peer *peer, const struct sw_message *m)
{
	struct node *n = arg;

	if (m->type == SW_MAP && peer == n->primary.keeper)
		take_map(n, m);
	else if (m->type == SW_DIE && peer == n->primary.keeper)
		(void)raise(SIGKILL);
	else if (m->type == SW_COPY)
		take_copy(n, peer, m);
	else if (m->type == SW_COPIED)
		sp_copied(&n->primary, m);
	else if (m->type == SW_PUT || m->type == SW_DELETE)
		sp_write(&n->primary, peer, m);
	else
		peer->bad = true;
}

static void lost(void *arg, struct sh_peer *peer)
{
	struct node *n = arg;

	if (peer == n->primary.keeper)
		n->ends = true;
	else
		sp_lost(&n->primary, peer);
}

static bool join(struct node *n, const char *keeper)
{
	struct sw_message m = {.type = SW_HELLO, .number = n->primary.id};
	struct sw_member self = {.life = n->life};

	if (!sh_describe(n->hub, n->table.mr, &self))
		return false;
	n->primary.keeper = sh_connect(n->hub, keeper);
	if (n->primary.keeper == NULL) {
		sh_complain(n->hub, "the keeper");
		return false;
	}
	sw_put_member(&m, &self);
	sh_send(n->primary.keeper, &m);
	return true;
}

static int run(struct node *n, const char *listen, const char *keeper, uint32_t id, bool early)
{
	static const struct sh_calls calls = {message, lost};
	int rc = 1;

	n->hub = sh_hub_open("storage_node", listen, &calls, n);
	if (n->hub == NULL)
		return 1;
	if (st_table_open(&n->table, n->hub)) {
		sp_open(&n->primary, id, &n->table);
		n->primary.early = early;
		rc = join(n, keeper) ? 0 : 1;
		while (rc == 0 && !n->ends)
			sh_hub_poll(n->hub, sp_connect(&n->primary, n->hub) ? SOON_MS : IDLE_MS);
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
