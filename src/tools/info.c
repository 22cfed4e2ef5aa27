/* SPDX-License-Identifier: BSD-3-Clause */
/* info.c - xport_info: shows which networks libxport can use on this machine, and why not the others. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/info.h"

enum { OPT_JSON = 256, OPT_ENV, OPT_DOCTOR, OPT_PID, OPT_ROOT, OPT_PEER };

static const struct argp_option options[] = {
	{"verbose", 'v', NULL, 0, "Open each provider that is ready, and print its capabilities", 0},
	{"json", OPT_JSON, NULL, 0, "Print JSON; xport_info.schema.json describes it", 0},
	{"env", OPT_ENV, NULL, 0, "Print the environment variables: type, range, default, value, source", 0},
	{"doctor", OPT_DOCTOR, NULL, 0, "Check the machine; print a remedy for each problem", 0},
	{"peer", OPT_PEER, "HOST:PORT", 0,
         "Connect to a listener; print which transport is agreed, and why no better one", 0},
	{"pid", OPT_PID, "PID", 0, "With --doctor: check the limits and libraries of this process", 0},
	/* For tests: a tree in place of /proc, /sys and /dev. */
	{"root", OPT_ROOT, "DIR", OPTION_HIDDEN, NULL, 0},
	{NULL, 0, NULL, 0, NULL, 0}};

static const char doc[] =
	"Show which networks libxport can use on this machine, and why not the others.\v"
	"Without a NAME: all back ends and providers.  With a NAME, such as ucx or ofi:tcp: open it, and print its "
	"capabilities.\n"
	"\n"
	"Exit status: 0 if each NAME, or else XPORT_BACKEND, is usable; 1 if not (the reason is on standard error); 2 "
	"for wrong options.";

static int read_pid(const char *arg, struct argp_state *state)
{
	char *end;
	long pid = strtol(arg, &end, 10);

	if (pid < 1 || pid > INT_MAX || *end != '\0')
		argp_error(state, "--pid=%s: not the number of a process", arg);
	if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
		argp_error(state, "--pid=%s: there is no such process", arg);
	return (int)pid;
}

static error_t info_parse(int key, char *arg, struct argp_state *state)
{
	struct info *info = state->input;

	switch (key) {
	case 'v':
		info->verbose = true;
		return 0;
	case OPT_JSON:
		info->json = true;
		return 0;
	case OPT_ENV:
		info->env = true;
		return 0;
	case OPT_DOCTOR:
		info->doctor = true;
		return 0;
	case OPT_PID:
		info->pid = read_pid(arg, state);
		return 0;
	case OPT_PEER:
		info->peer = arg;
		return 0;
	case OPT_ROOT:
		info->root = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (info->nnames == INFO_NAMES)
			argp_error(state, "more than %d names", INFO_NAMES);
		info->names[info->nnames++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (info->env && (info->doctor || info->verbose || info->nnames > 0))
			argp_error(state, "--env can be combined only with --json");
		if (info->peer != NULL &&
		    (info->env || info->doctor || info->verbose || info->json || info->nnames > 1))
			argp_error(state, "--peer can be combined only with one NAME");
		if (info->pid > 0 && !info->doctor)
			argp_error(state, "--pid needs --doctor");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void info_show_version(FILE *to, struct argp_state *state)
{
	(void)state;
	fprintf(to, "xport_info %s\n", xport_version());
}

/* Why something cannot be used; returns the exit status for it.  Among the doctor's lines it stands already. */
static int info_complain(const struct info *info, const char *what, const struct xport_error *e)
{
	if (info->doctor && !info->json)
		return 1;
	fflush(stdout);
	fprintf(stderr, "xport_info: %s: %s\n", what, e->text[0] != '\0' ? e->text : xport_strerror(e->status));
	if (*tool_hint(e) != '\0')
		fprintf(stderr, "xport_info: hint: %s\n", tool_hint(e));
	return 1;
}

static int show_env(struct info *info)
{
	int rc = 0;

	for (int i = 0; i < info->nvariables; i++)
		if (info->variables[i].problem[0] != '\0')
			rc = 1;
	if (!info->json)
		info_show_env(info);
	else if (!info_show_json(info))
		rc = 1;
	return rc;
}

/* What cannot be used of what is asked for. */
static int verdict(const struct info *info)
{
	int rc = 0;

	if (info->ncandidates < 0 && info->nnames == 0)
		return info_complain(info, "the list", &info->list_error);
	for (int i = 0; i < info->nopened; i++)
		if (info->opened[i].status != XPORT_OK)
			rc = info_complain(info, info->opened[i].name, &info->opened[i].error);
	/* What --verbose opened nobody asked for. */
	if (info->nnames == 0)
		rc = 0;
	if (info->nnames == 0 && !info->request.usable)
		rc = info_complain(info, info->request.backend, &info->request.error);
	return rc;
}

static int show_peer(const struct info *info)
{
	struct xport_error e;

	return info_peer(info, &e) == 0 ? 0 : info_complain(info, info->peer, &e);
}

static int show_all(struct info *info)
{
	/* A name needs no list: what is not there is said by opening it. */
	if (info->nnames == 0 || info->doctor)
		info_look_candidates(info);
	info_look_opened(info);
	if (info->nnames == 0 && (info->ncandidates >= 0 || info->doctor))
		info_look_request(info, info->doctor);
	if (info->doctor)
		info_examine(info);
	if (info->json)
		return info_show_json(info) ? verdict(info) : 1;
	if (info->doctor) {
		info_show_checks(info);
		return verdict(info);
	}
	if (info->nnames == 0 && info->ncandidates >= 0)
		info_show_candidates(info);
	if (info->nnames == 0 && info->nopened > 0)
		putchar('\n');
	info_show_opened(info);
	return verdict(info);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {options, info_parse, "[NAME...]", doc, NULL, NULL, NULL};
	static struct info info = {.root = ""};
	int rc;

	argp_program_version_hook = info_show_version;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &info);
	info_look_variables(&info);
	if (info.peer != NULL)
		rc = show_peer(&info);
	else
		rc = info.env ? show_env(&info) : show_all(&info);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perror("xport_info: standard output");
		rc = 1;
	}
	return rc;
}
