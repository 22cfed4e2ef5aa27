/* SPDX-License-Identifier: BSD-3-Clause */
/* exporter.c - xport_exporter: serves the counters that processes publish in a directory to Prometheus. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xport.h>

#include "tools/exporter/http.h"
#include "tools/exporter/page.h"
#include "tools/exporter/publishers.h"

enum { OPT_ONCE = 256, OPT_STALE, EXIT_USAGE = 2, STALE_S = 60, STALE_MAX_S = 86400 };

struct exporter {
	const char *listen, *dir;
	int stale_s;
	bool once;
};

static const struct argp_option exporter_options[] = {
	{"listen", 'l', "HOST:PORT", 0, "Serve HTTP at this address (default: 127.0.0.1:7473)", 0},
	{"stale", OPT_STALE, "SECONDS", 0,
         "Leave out processes that have not written for so long, 1 to 86400 (default: 60)", 0},
	{"once", OPT_ONCE, NULL, 0,
         "Print the page once instead of serving it, and why files are left out (on standard error)", 0},
	{NULL, 0, NULL, 0, NULL, 0}};

static const char exporter_doc[] =
	"Serve the counters that processes publish in the directory DIR to Prometheus.\v"
	"DIR is the XPORT_METRICS_DIR of programs that call xport_metrics_create.  The page is at /metrics.  Without "
	"DIR "
	"it is XPORT_METRICS_DIR of this program.\n"
	"\n"
	"Exit status: 0 if ended by SIGINT or SIGTERM; 1 if the directory cannot be read, or the address cannot be "
	"listened at (the reason is on standard error); 2 for wrong options.";

static void exporter_show_version(FILE *out, struct argp_state *state)
{
	(void)state;
	fprintf(out, "xport_exporter %s\n", xport_version());
}

static int stale_read(const char *arg, struct argp_state *state)
{
	char *end;
	long n = strtol(arg, &end, 10);

	if (*arg == '\0' || *end != '\0' || n < 1 || n > STALE_MAX_S)
		argp_error(state, "--stale=%s: not a number from 1 to %d", arg, STALE_MAX_S);
	return (int)n;
}

static error_t exporter_option(int key, char *arg, struct argp_state *state)
{
	struct exporter *e = state->input;

	switch (key) {
	case 'l':
		e->listen = arg;
		break;
	case OPT_STALE:
		e->stale_s = stale_read(arg, state);
		break;
	case OPT_ONCE:
		e->once = true;
		break;
	case ARGP_KEY_ARG:
		if (state->arg_num > 0)
			argp_error(state, "one argument too many: %s", arg);
		e->dir = arg;
		break;
	case ARGP_KEY_END:
		if (e->dir == NULL || *e->dir == '\0')
			argp_error(state, "give the directory, or set XPORT_METRICS_DIR");
		if (e->once && e->listen != NULL)
			argp_error(state, "--once cannot be combined with --listen");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* An ex_page_fn. */
static bool exporter_page(void *arg, struct ex_buffer *page)
{
	const struct exporter *e = arg;
	struct ex_publishers p;
	bool whole = ex_publishers_read(&p, e->dir, e->stale_s, e->once) == 0;

	if (whole)
		ex_page_write(page, &p);
	else
		ex_buffer_print(page, "cannot read the directory %.200s: %s\n", e->dir, strerror(errno));
	ex_publishers_free(&p);
	return whole;
}

/* Writes the page at once, or an error to standard error.  It also shows that the directory can be read. */
static int exporter_once(struct exporter *e, bool print)
{
	struct ex_buffer page = {.text = NULL};
	bool whole = exporter_page(e, &page);

	if (page.failed) {
		fprintf(stderr, "xport_exporter: out of memory\n");
		whole = false;
	} else if (!whole) {
		fprintf(stderr, "xport_exporter: %.*s", (int)page.len, page.text);
	} else if (print) {
		fwrite(page.text, 1, page.len, stdout);
		if (fflush(stdout) != 0) {
			fprintf(stderr, "xport_exporter: standard output: %s\n", strerror(errno));
			whole = false;
		}
	}
	ex_buffer_free(&page);
	return whole ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {exporter_options, exporter_option, "[DIR]", exporter_doc, NULL, NULL, NULL};
	struct exporter e = {.stale_s = STALE_S, .dir = getenv("XPORT_METRICS_DIR")};
	const char *why;
	char where[128];
	int listener;

	argp_program_version_hook = exporter_show_version;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &e);
	if (exporter_once(&e, e.once) != EXIT_SUCCESS)
		return EXIT_FAILURE;
	if (e.once)
		return EXIT_SUCCESS;
	listener = ex_http_listen(e.listen != NULL ? e.listen : "127.0.0.1:7473", where, &why);
	if (listener < 0) {
		fprintf(stderr, "xport_exporter: cannot listen at %.200s: %s\n",
		        e.listen != NULL ? e.listen : "127.0.0.1:7473", why);
		return EXIT_FAILURE;
	}
	printf("serving %s at http://%s/metrics\n", e.dir, where);
	fflush(stdout);
	ex_http_serve(listener, exporter_page, &e);
	close(listener);
	return EXIT_SUCCESS;
}
