/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c - storage_client: put, get, delete and list, and the load. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flood.h"
#include "load.h"
#include "store.h"

static int usage(FILE *to)
{
	fputs("usage: storage_client HOST:PORT put KEY VALUE | get KEY | delete KEY | list\n"
	      "       storage_client [OPTION]... HOST:PORT load\n"
	      "A client of the store whose keeper is at HOST:PORT.\n\n"
	      "  --clients N   of the load: processes (4)\n"
	      "  --keys N      keys, each of which one client writes and all read (64)\n"
	      "  --seconds S   how long (5)\n"
	      "  --ops N       ends earlier when so many operations are done\n"
	      "  --plant plain a fault: clients take what they read, whole or not\n"
	      "  --plant flood|leave|watch  a fault: the client stops, and then makes more calls than the nodes take;\n"
	      "                it waits for them; or leaves; or makes them to the keeper, and stops again\n\n"
	      "Exit status: 0 done; 1 not done, or the load has found a fault; 2 bad arguments.\n",
	      to);
	return to == stdout ? 0 : 2;
}

static int said(enum ss_status s)
{
	if (s != SS_OK)
		fprintf(stderr, "storage_client: %s\n", ss_text(s));
	return s == SS_OK ? 0 : 1;
}

static void print_key(void *arg, const struct sr_record *r)
{
	(void)arg;
	printf("%.*s\n", (int)r->key_len, (const char *)r->key);
}

static int get(struct ss_store *s, const char *key)
{
	struct sr_record r;
	int rc = said(ss_get(s, key, strlen(key), &r));

	if (rc == 0)
		printf("%.*s\n", (int)r.value_len, (const char *)r.value);
	return rc;
}

static int one(struct ss_store *s, int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[0], "put") == 0)
		return said(ss_put(s, argv[1], strlen(argv[1]), argv[2], strlen(argv[2])));
	if (argc == 2 && strcmp(argv[0], "get") == 0)
		return get(s, argv[1]);
	if (argc == 2 && strcmp(argv[0], "delete") == 0)
		return said(ss_delete(s, argv[1], strlen(argv[1])));
	if (argc == 1 && strcmp(argv[0], "list") == 0)
		return said(ss_list(s, print_key, NULL));
	return usage(stderr);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"clients", required_argument, NULL, 'c'},
		{"keys", required_argument, NULL, 'k'},
		{"seconds", required_argument, NULL, 's'},
		{"ops", required_argument, NULL, 'o'},
		{"plant", required_argument, NULL, 'p'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct sl_options load = {.clients = 4, .keys = 64, .seconds = 5};
	struct ss_store *s;
	enum sf_how how = SF_NONE;
	int o, rc;

	while ((o = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		switch (o) {
		case 'c':
			load.clients = atoi(optarg);
			break;
		case 'k':
			load.keys = atoi(optarg);
			break;
		case 's':
			load.seconds = atoi(optarg);
			break;
		case 'o':
			load.ops = strtoull(optarg, NULL, 10);
			break;
		case 'p':
			load.plain = strcmp(optarg, "plain") == 0;
			how = sf_how(optarg);
			if (!load.plain && how == SF_NONE)
				return usage(stderr);
			break;
		default:
			return usage(o == 'h' ? stdout : stderr);
		}
	}
	if (argc - optind < (how == SF_NONE ? 2 : 1))
		return usage(stderr);
	load.keeper = argv[optind];
	if (argc - optind == 2 && strcmp(argv[optind + 1], "load") == 0)
		return sl_run(&load);
	if (how != SF_NONE)
		return sf_run(argv[optind], how);
	s = ss_open("storage_client", argv[optind]);
	if (s == NULL)
		return 1;
	rc = one(s, argc - optind - 1, argv + optind + 1);
	ss_close(s);
	return rc;
}
