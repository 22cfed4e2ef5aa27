/* SPDX-License-Identifier: BSD-3-Clause */
/* perf.c - xport_perf: latency, bandwidth and rate of libxport between two processes. */
#include "tools/perf.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct perf_plan plan;

static int perf_lead(const struct perf_options *o, const char *address)
{
	struct perf_outcome out = {.about = {.options = o, .plan = &plan}};
	int rc = perf_client(o, &plan, address, &out);

	json_decref(out.about.client);
	json_decref(out.about.server);
	json_decref(out.results);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perror("xport_perf: standard output");
		rc = 1;
	}
	return rc;
}

/* The server, in a process of its own that does not outlive the client. */
static int be_server(const struct perf_options *o, int told)
{
	struct perf_options mine = *o;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mine.server = true;
	return perf_server(&mine, told);
}

/* The server ends with its client; one that has had none does not, and is ended. */
static int end_server(pid_t child)
{
	enum { WAIT_MS = 2000, STEP_MS = 10 };
	int status = 0;
	pid_t ended = 0;

	for (int ms = 0; ended == 0 && ms < WAIT_MS; ms += STEP_MS) {
		ended = waitpid(child, &status, WNOHANG);
		if (ended == 0)
			usleep(STEP_MS * 1000);
	}
	if (ended == 0) {
		kill(child, SIGTERM);
		ended = waitpid(child, &status, 0);
	}
	return ended == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int be_both(const struct perf_options *o)
{
	char address[PERF_ADDRESS];
	int told[2], rc;
	pid_t child;

	fflush(NULL);
	if (pipe(told) != 0 || (child = fork()) < 0) {
		perror("xport_perf: --self");
		return 1;
	}
	if (child == 0) {
		close(told[0]);
		_exit(be_server(o, told[1]));
	}
	close(told[1]);
	rc = 1;
	/* If the server cannot listen, it has said why. */
	if (read(told[0], address, sizeof(address)) == sizeof(address) &&
	    memchr(address, '\0', sizeof(address)) != NULL)
		rc = perf_lead(o, address);
	close(told[0]);
	return end_server(child) != 0 ? 1 : rc;
}

int main(int argc, char **argv)
{
	struct perf_options o;
	char text[PERF_TEXT];

	perf_options_read(&o, argc, argv);
	if (o.tax != PERF_TAX_NOT)
		return perf_tax(&o);
	if (o.server)
		return perf_server(&o, -1);
	if (!perf_plan_make(&plan, &o, text, sizeof(text))) {
		fprintf(stderr, "xport_perf: %s\n", text);
		return 2;
	}
	if (o.plot != NULL && !perf_plot_name(o.plot, text, sizeof(text))) {
		fprintf(stderr, "xport_perf: %s\n", text);
		return 2;
	}
	if (o.plot != NULL && !perf_plot_ready(text, sizeof(text))) {
		fprintf(stderr, "xport_perf: %s\n", text);
		return 1;
	}
	return o.self ? be_both(&o) : perf_lead(&o, o.address);
}
