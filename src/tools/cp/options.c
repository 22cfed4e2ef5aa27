/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - the command line. */
#include "tools/cp/options.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport.h>

#include "tools/cp/plant.h"

enum { OPT_SERVE = 256, OPT_JSON, OPT_FSYNC, OPT_PROGRESS, OPT_READ_ONLY, OPT_PLANT };

enum cp_plant cp_plant;

static const struct argp_option options[] = {
	{NULL, 0, NULL, 0, "Copying:", 1},
	{"recursive", 'r', NULL, 0, "Copy directories with their content", 1},
	{"update", 'u', NULL, 0, "Skip files that have the same size and modification time at the target", 1},
	{"fsync", OPT_FSYNC, NULL, 0, "Write each file to disk before it gets its name", 1},
	{"quiet", 'q', NULL, 0, "Print no progress, and no summary", 1},
	{"progress", OPT_PROGRESS, NULL, 0, "Print progress even if standard error is not a terminal", 1},
	{"json", OPT_JSON, NULL, 0, "Print the summary as JSON, on standard output", 1},
	{NULL, 0, NULL, 0, "Serving:", 2},
	{"serve", OPT_SERVE, "DIR", 0, "Let clients copy into and out of this directory, until terminated", 2},
	{"listen", 'l', "HOST[:PORT]", 0,
         "Listen at this address (default: port 7472 of 127.0.0.1, or of all addresses if XPORT_AUTH or "
         "XPORT_AUTH_KEY_FILE is set)",
         2},
	{"read-only", OPT_READ_ONLY, NULL, 0, "Let clients only copy out of the directory", 2},
	{NULL, 0, NULL, 0, "Both:", 3},
	{"backend", 'B', "NAME", 0, "The back end and provider, instead of XPORT_BACKEND", 3},
	{NULL, 0, NULL, 0, "Help:", -1},
	{"plant", OPT_PLANT, "WHERE", OPTION_HIDDEN, NULL, 0},
	{NULL, 0, NULL, 0, NULL, 0}};

static const char args_doc[] = "SOURCE... HOST:PORT:[PATH]\nHOST:PORT:[SOURCE]... TARGET\n--serve DIR";

static const char doc[] =
	"Copy files and trees between two machines.\v"
	"PATH and SOURCE at HOST:PORT are in the directory that xport_cp --serve serves there.  After an interruption "
	"the same command continues; for a tree or several files add --update.\n"
	"\n"
	"Exit status: 0 if everything was copied; 1 if something was not (the reason is on standard error); 2 for "
	"wrong options; 3 if the other side could not be reached or was lost, or the copy was interrupted.";

bool cp_remote(const char *name, char address[256], const char **path)
{
	const char *colon = *name == '[' ? strchr(name, ']') : name + strcspn(name, ":/");
	size_t digits;

	if (colon == NULL || *colon == '\0' || colon == name)
		return false;
	colon += *colon == ']';
	if (*colon != ':')
		return false;
	digits = strspn(colon + 1, "0123456789");
	if (digits == 0 || colon[1 + digits] != ':' || (size_t)(colon - name) + digits + 2 > 256)
		return false;
	snprintf(address, 256, "%.*s", (int)((size_t)(colon - name) + 1 + digits), name);
	*path = colon + 1 + digits + 1;
	return true;
}

/* The default port, and where nobody says, this machine alone unless peers must prove who they are. */
static void read_listen(struct argp_state *state, struct cp_options *o, const char *arg)
{
	const char *colon = strrchr(arg, ':'), *end = strrchr(arg, ']');
	bool port = colon != NULL && (end == NULL || colon > end);

	if (strlen(arg) + 8 > sizeof(o->listen))
		argp_error(state, "--listen=%s: not an address", arg);
	snprintf(o->listen, sizeof(o->listen), "%s%s", arg, port ? "" : ":7472");
}

static void options_read_plant(struct argp_state *state, const char *arg)
{
	static const char *const names[] = {"none", "block", "file", "stored", "pause", "sync", "late", "idle", "walk"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(arg, names[i]) == 0) {
			cp_plant = (enum cp_plant)i;
			return;
		}
	argp_error(state, "--plant=%s: it takes block, file, stored, pause, sync, late, idle or walk", arg);
}

static void options_read_names(struct argp_state *state, struct cp_options *o)
{
	int n = state->argc - state->next;
	char address[256];
	const char *path;

	o->sources = &state->argv[state->next];
	o->nsources = n - 1;
	if (n < 2)
		argp_error(state, "give a source and a target: xport_cp SOURCE... HOST:PORT:PATH");
	o->target = state->argv[state->argc - 1];
	o->fetch = !cp_remote(o->target, address, &path);
	for (int i = 0; i < o->nsources; i++)
		if (cp_remote(o->sources[i], address, &path) != o->fetch)
			argp_error(state,
			           o->fetch ? "%s and the target are both local: one of the two must be "
			                      "HOST:PORT:PATH, where xport_cp --serve runs"
			                    : "%s and the target are both remote: one of the two must be local",
			           o->sources[i]);
	state->next = state->argc;
}

static void options_check(struct argp_state *state, const struct cp_options *o)
{
	if (o->serve != NULL && (o->json || (o->flags & (CP_RECURSIVE | CP_UPDATE)) != 0))
		argp_error(state, "--json, --recursive and --update cannot be combined with --serve");
	if (o->serve == NULL && (o->listen[0] != '\0' || o->read_only))
		argp_error(state, "--listen and --read-only need --serve");
	if (o->serve == NULL && o->nsources == 0)
		argp_error(state, "give a source and a target: xport_cp SOURCE... HOST:PORT:PATH");
}

static error_t options_parse(int key, char *arg, struct argp_state *state)
{
	struct cp_options *o = state->input;

	switch (key) {
	case 'r':
		o->flags |= CP_RECURSIVE;
		break;
	case 'u':
		o->flags |= CP_UPDATE;
		break;
	case OPT_FSYNC:
		o->flags |= CP_SYNC;
		break;
	case 'q':
		o->quiet = true;
		break;
	case OPT_PROGRESS:
		o->progress = true;
		break;
	case OPT_JSON:
		o->json = true;
		break;
	case OPT_SERVE:
		o->serve = arg;
		break;
	case 'l':
		read_listen(state, o, arg);
		break;
	case OPT_READ_ONLY:
		o->read_only = true;
		break;
	case 'B':
		o->backend = arg;
		break;
	case OPT_PLANT:
		options_read_plant(state, arg);
		break;
	case ARGP_KEY_ARGS:
		if (o->serve != NULL)
			argp_error(state, "--serve takes one directory, and no sources");
		options_read_names(state, o);
		break;
	case ARGP_KEY_END:
		options_check(state, o);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void print_version(FILE *stream, struct argp_state *state)
{
	(void)state;
	fprintf(stream, "xport_cp %s\n", xport_version());
}

void cp_options_read(struct cp_options *o, int argc, char **argv)
{
	static const struct argp argp = {options, options_parse, args_doc, doc, NULL, NULL, NULL};
	const char *none = getenv("XPORT_AUTH"), *key = getenv("XPORT_AUTH_KEY_FILE");
	bool off = (none != NULL && *none != '\0') || (key != NULL && *key != '\0');

	argp_program_version_hook = print_version;
	argp_err_exit_status = CP_EXIT_USAGE;
	*o = (struct cp_options){.serve = NULL};
	argp_parse(&argp, argc, argv, 0, NULL, o);
	if (o->listen[0] == '\0')
		snprintf(o->listen, sizeof(o->listen), "%s:7472", off ? "*" : "127.0.0.1");
}
