/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * keeper.c - storage_keeper: starts the nodes, says which of them has which range, and starts another in the place of one
 * that died.
 *
 * A node is dead when its process is: one that does not answer is killed first.  Then, in this order: the epoch in
 * registered memory changes, which a reader looks at after each read; the nodes and clients are sent the map.  So nobody
 * acknowledges a write by the new map while there is a reader who would take a value by the old one for the latest.
 */
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xport_services.h>

#include "hub.h"

enum { ROUND_MS = 20 };

struct child {
	pid_t pid; /* 0: none */
	uint64_t life;
	xport_ep *ep; /* NULL: it has not joined, or is lost */
};

/* A store.map that waits for the next map. */
struct watcher {
	struct watcher *next;
	uint64_t request;
	xport_ep *ep;
};

struct keeper {
	struct sh_hub *hub;
	xport_mr *mr;
	xport_versioned *epoch;
	struct sw_map map;
	struct watcher *watchers;
	struct child child[SW_NODES];
	bool started; /* each node has been there once */
	const char *node_program, *plant, *listen;
	char nodes_listen[SW_ADDRESS]; /* the same host, any port */
	int64_t kill_ms, next_kill;    /* planned deaths: how often, when */
	bool between;                  /* not wherever it is, but between two messages */
	uint32_t dying;                /* who has been told to, and has not yet; else SW_NONE */
	unsigned kills, fill_kills, lost_ranges;
	uint32_t fresh; /* a node that is being filled, perhaps to be killed; else SW_NONE */
};

static volatile sig_atomic_t ended;

static void on_signal(int signal)
{
	(void)signal;
	ended = 1;
}

/* ---- the map ---- */

/* Ends those of an endpoint, or all if it is NULL. */
static void end_watchers(struct keeper *k, const xport_ep *ep, int status)
{
	struct watcher **at = &k->watchers, *w;

	while ((w = *at) != NULL) {
		if (ep != NULL && w->ep != ep) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		sh_reply(k->hub, w->request, status, &k->map, status == XPORT_OK ? sizeof(k->map) : 0);
		free(w);
	}
}

static void publish(struct keeper *k)
{
	if (!k->started)
		return;
	k->map.epoch++;
	if (xport_versioned_write(k->epoch, &k->map.epoch) != XPORT_OK) {
		fputs("storage_keeper: the epoch cannot be written\n", stderr);
		ended = 1;
		return;
	}
	end_watchers(k, NULL, XPORT_OK);
}

static void lay_out(struct keeper *k)
{
	uint32_t n = (uint32_t)k->map.nodes;

	for (uint32_t i = 0; i < SR_RANGES; i++)
		k->map.range[i] = (struct sw_range){
			.term = 1, .primary = i % n, .second = (i + 1 + i / n % (n - 1)) % n, .filled = 1};
	k->started = true;
}

static void remove_node(struct keeper *k, uint32_t node)
{
	for (uint32_t i = 0; i < SR_RANGES; i++) {
		struct sw_range *r = &k->map.range[i];

		if (r->primary == SW_NONE || (r->primary != node && r->second != node))
			continue;
		if (r->primary == node)
			r->primary = r->filled ? r->second : SW_NONE;
		if (r->primary == SW_NONE) {
			fprintf(stderr, "storage_keeper: range %u: both of its nodes died, its keys are lost\n", i);
			k->lost_ranges++;
		}
		r->second = SW_NONE;
		r->filled = 0;
		r->term++;
	}
}

static void add_second(struct keeper *k, uint32_t node)
{
	for (uint32_t i = 0; i < SR_RANGES; i++) {
		struct sw_range *r = &k->map.range[i];

		if (r->primary == SW_NONE || r->primary == node || r->second != SW_NONE)
			continue;
		r->second = node;
		r->filled = 0;
		r->term++;
	}
}

static bool all_filled(const struct keeper *k)
{
	for (uint32_t i = 0; i < SR_RANGES; i++)
		if (!k->map.range[i].filled)
			return false;
	return k->started;
}

/* ---- processes ---- */

static void start(struct keeper *k, uint32_t node)
{
	struct child *c = &k->child[node];
	char id[16], life[32], program[PATH_MAX];
	char *argv[] = {program,
	                (char *)"--keeper",
	                k->hub->address,
	                (char *)"--id",
	                id,
	                (char *)"--life",
	                life,
	                (char *)"--listen",
	                k->nodes_listen,
	                (char *)"--plant",
	                (char *)k->plant,
	                NULL};
	extern char **environ;

	c->life++;
	snprintf(id, sizeof(id), "%u", node);
	snprintf(life, sizeof(life), "%llu", (unsigned long long)c->life);
	snprintf(program, sizeof(program), "%s", k->node_program);
	if (posix_spawn(&c->pid, program, NULL, NULL, argv, environ) != 0) {
		perror(program);
		c->pid = 0;
		ended = 1;
	}
}

/* Its process has ended, and will neither answer nor acknowledge anything any more. */
static void died(struct keeper *k, uint32_t node)
{
	struct child *c = &k->child[node];

	c->pid = 0;
	if (k->dying == node)
		k->dying = SW_NONE;
	c->ep = NULL;
	k->map.node[node].life = 0;
	if (ended)
		return;
	if (k->started)
		remove_node(k, node);
	publish(k);
	start(k, node);
}

/* Not one of the deaths that were planned. */
static void say_why(uint32_t node, int status)
{
	if (WIFEXITED(status))
		fprintf(stderr, "storage_keeper: node %u ended by itself, exit status %d\n", node, WEXITSTATUS(status));
	else if (WTERMSIG(status) != SIGKILL)
		fprintf(stderr, "storage_keeper: node %u ended by signal %d\n", node, WTERMSIG(status));
}

static void end_process(struct keeper *k, uint32_t node)
{
	struct child *c = &k->child[node];
	int status;

	if (c->pid == 0)
		return;
	kill(c->pid, SIGKILL);
	while (waitpid(c->pid, &status, 0) < 0)
		continue;
	say_why(node, status);
	died(k, node);
}

static void look_after_processes(struct keeper *k)
{
	int status;

	for (uint32_t i = 0; i < k->map.nodes; i++) {
		if (k->child[i].pid == 0 || waitpid(k->child[i].pid, &status, WNOHANG) != k->child[i].pid)
			continue;
		say_why(i, status);
		died(k, i);
	}
}

/* ---- planned deaths: of any node when all have everything, and at times of one that is being filled ---- */

/*
 * Each node that fills it has filled a range, and is not done.  Not earlier: UCX 1.13 ends the process of whoever is just
 * making its connection to one that dies (wireup_ep.c: Assertion `wireup_ep->pending_count == 0').
 */
static bool amid_filling(const struct keeper *k, uint32_t node)
{
	unsigned filled[SW_NODES] = {0}, not_yet[SW_NODES] = {0}, any = 0;

	for (uint32_t i = 0; i < SR_RANGES; i++) {
		const struct sw_range *r = &k->map.range[i];

		if (r->second == node && r->primary != SW_NONE)
			(r->filled ? filled : not_yet)[r->primary]++;
	}
	for (uint32_t i = 0; i < k->map.nodes; i++) {
		if (not_yet[i] > 0 && filled[i] == 0)
			return false;
		any += not_yet[i];
	}
	return any > 0;
}

/* As one dies by itself: nobody knows of it before it is seen. */
static void let_die(struct keeper *k, uint32_t node)
{
	const struct xport_rpc_args args = {.deadline_ms = XPORT_RPC_DEADLINE_MAX, .flags = XPORT_RPC_ONE_WAY};

	k->dying = node;
	if (!k->between)
		kill(k->child[node].pid, SIGKILL);
	else if (k->child[node].ep != NULL)
		(void)sh_call(k->hub, k->child[node].ep, "store.die", args);
}

static void kill_one(struct keeper *k)
{
	if (k->dying != SW_NONE)
		return;
	if (k->fresh != SW_NONE && amid_filling(k, k->fresh)) {
		k->fill_kills++;
		let_die(k, k->fresh);
		k->fresh = SW_NONE;
		return;
	}
	if (all_filled(k))
		k->fresh = SW_NONE;
	if (k->kill_ms == 0 || sh_now_ms() < k->next_kill || !all_filled(k))
		return;
	k->next_kill = sh_now_ms() + k->kill_ms;
	k->kills++;
	let_die(k, (uint32_t)((uint64_t)rand() % k->map.nodes));
}

/* ---- methods ---- */

static void join(void *arg, const struct xport_rpc_event *e)
{
	struct keeper *k = arg;
	uint32_t there = 0;
	struct sw_join j;

	if (!sh_payload(k->hub, e, &j, sizeof(j)))
		return;
	if (j.node >= k->map.nodes || j.member.life != k->child[j.node].life || k->child[j.node].ep != NULL) {
		sh_reply(k->hub, e->id, XPORT_ERR_INVALID, NULL, 0);
		return;
	}
	sh_reply(k->hub, e->id, XPORT_OK, NULL, 0);
	k->child[j.node].ep = e->ep;
	k->map.node[j.node] = j.member;
	for (uint32_t i = 0; i < k->map.nodes; i++)
		there += k->map.node[i].life != 0;
	if (k->started) {
		add_second(k, (uint32_t)j.node);
		if (k->kill_ms > 0 && rand() % 3 == 0)
			k->fresh = (uint32_t)j.node;
	} else if (there == k->map.nodes) {
		lay_out(k);
		k->next_kill = sh_now_ms() + k->kill_ms;
	}
	publish(k);
	if (k->map.epoch == 1) {
		printf("storage_keeper on %s, %u nodes\n", k->hub->address, (unsigned)k->map.nodes);
		fflush(stdout);
	}
}

static void watch(void *arg, const struct xport_rpc_event *e)
{
	struct keeper *k = arg;
	struct watcher *w;
	uint64_t epoch;

	if (!sh_payload(k->hub, e, &epoch, sizeof(epoch)))
		return;
	w = malloc(sizeof(*w));
	if (w == NULL) {
		sh_reply(k->hub, e->id, XPORT_ERR_NO_MEMORY, NULL, 0);
		return;
	}
	*w = (struct watcher){.next = k->watchers, .request = e->id, .ep = e->ep};
	k->watchers = w;
	if (k->map.epoch > epoch)
		end_watchers(k, e->ep, XPORT_OK);
}

static void filled(void *arg, const struct xport_rpc_event *e)
{
	struct keeper *k = arg;
	struct sw_filled f;
	struct sw_range *r;

	if (!sh_payload(k->hub, e, &f, sizeof(f)))
		return;
	r = f.range < SR_RANGES ? &k->map.range[f.range] : NULL;
	if (r == NULL || r->term != f.term || r->primary == SW_NONE || k->child[r->primary].ep != e->ep) {
		sh_reply(k->hub, e->id, XPORT_ERR_INVALID, NULL, 0);
		return;
	}
	sh_reply(k->hub, e->id, XPORT_OK, NULL, 0);
	if (r->filled)
		return;
	r->filled = 1;
	publish(k);
}

/* ---- what comes ---- */

/* Only store.die is called, and the end of the process shows that it was. */
static void done(void *arg, const struct xport_rpc_event *e)
{
	(void)arg;
	(void)e;
}

static void lost(void *arg, xport_ep *ep)
{
	struct keeper *k = arg;

	end_watchers(k, ep, XPORT_ERR_CANCELED);
	for (uint32_t i = 0; i < k->map.nodes; i++) {
		if (k->child[i].ep != ep)
			continue;
		k->child[i].ep = NULL;
		end_process(k, i);
	}
}

/* ---- life ---- */

static bool open_epoch(struct keeper *k)
{
	struct xport_versioned_attr a = {.size = sizeof(a), .form = XPORT_VERSIONED_SUMMED, .length = 8};

	if (xport_mr_alloc(k->hub->x, xport_versioned_size(&a), XPORT_REMOTE_READ, &k->mr) != XPORT_OK) {
		sh_complain(k->hub, "memory for the epoch");
		return false;
	}
	if (xport_versioned_create(k->mr, 0, &a, &k->epoch) != XPORT_OK) {
		sh_complain_services(k->hub, "the epoch");
		return false;
	}
	return sh_describe(k->hub, k->mr, &k->map.keeper);
}

static int run(struct keeper *k)
{
	static const struct sh_method methods[] = {
		{"store.join", join}, {"store.map", watch}, {"store.filled", filled}, {NULL, NULL}};
	static const struct sh_use use = {"storage_keeper", methods, done, lost};
	const char *port = strrchr(k->listen, ':');
	bool ok;

	snprintf(k->nodes_listen, sizeof(k->nodes_listen), "%.*s:0",
	         port == NULL ? (int)strlen(k->listen) : (int)(port - k->listen), k->listen);
	k->hub = sh_hub_open(&use, k, k->listen);
	if (k->hub == NULL)
		return 1;
	ok = open_epoch(k);
	for (uint32_t i = 0; ok && i < k->map.nodes; i++)
		start(k, i);
	while (ok && !ended) {
		sh_hub_poll(k->hub, ROUND_MS);
		look_after_processes(k);
		kill_one(k);
	}
	ended = 1;
	for (uint32_t i = 0; i < k->map.nodes; i++)
		end_process(k, i);
	printf("%u nodes killed, and %u while they were filled; %u ranges lost\n", k->kills, k->fill_kills,
	       k->lost_ranges);
	end_watchers(k, NULL, XPORT_ERR_CLOSED);
	xport_versioned_destroy(k->epoch);
	sh_hub_close(k->hub);
	return ok && k->lost_ranges == 0 ? 0 : 1;
}

static const char *beside(const char *self, const char *name, char *path, size_t len)
{
	const char *slash = strrchr(self, '/');

	snprintf(path, len, "%.*s%s", slash == NULL ? 0 : (int)(slash - self + 1), self, name);
	return path;
}

static int usage(FILE *to)
{
	fputs("usage: storage_keeper [OPTION]...\n"
	      "Starts the nodes of a store, and keeps them.  Ends by SIGTERM.\n\n"
	      "  --nodes N             how many, 3 to 8 (3)\n"
	      "  --listen HOST:PORT    where; the nodes listen on the same host, port 0 (127.0.0.1:0)\n"
	      "  --node PROGRAM        storage_node (the one beside this program)\n"
	      "  --kill-every MS       kills one so often, and at times one that is being filled\n"
	      "  --between             kills them between two messages, not wherever they are\n"
	      "  --plant early|slow    a fault in the nodes, for tests\n",
	      to);
	return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"nodes", required_argument, NULL, 'n'}, {"listen", required_argument, NULL, 'l'},
		{"node", required_argument, NULL, 'p'},  {"kill-every", required_argument, NULL, 'k'},
		{"plant", required_argument, NULL, 'f'}, {"between", no_argument, NULL, 'b'},
		{"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
	};
	static struct keeper k = {
		.plant = "", .listen = "127.0.0.1:0", .fresh = SW_NONE, .dying = SW_NONE, .map = {.nodes = 3}};
	static char path[PATH_MAX];
	int o;

	k.node_program = beside(argv[0], "storage_node", path, sizeof(path));
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 'n':
			k.map.nodes = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'l':
			k.listen = optarg;
			break;
		case 'p':
			k.node_program = optarg;
			break;
		case 'k':
			k.kill_ms = atoi(optarg);
			break;
		case 'b':
			k.between = true;
			break;
		case 'f':
			k.plant = optarg;
			break;
		default:
			return usage(o == 'h' ? stdout : stderr);
		}
	}
	if (k.map.nodes < 3 || k.map.nodes > SW_NODES || k.kill_ms < 0 || optind != argc)
		return usage(stderr);
	srand((unsigned)getpid());
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	return run(&k);
}
