/* SPDX-License-Identifier: BSD-3-Clause */
/* cp.c - xport_cp: copies files and trees between two machines. */
#include "tools/cp/cp.h"

#include <signal.h>
#include <string.h>

volatile int cp_interrupted;

static void interrupt(int signal_number)
{
	(void)signal_number;
	cp_interrupted = 1;
}

/* The first one ends it in order, the second one at once. */
static void cp_handle(int signal_number)
{
	struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};

	sigaction(signal_number, &action, NULL);
}

int main(int argc, char **argv)
{
	struct cp_options o;

	cp_options_read(&o, argc, argv);
	cp_handle(SIGINT);
	cp_handle(SIGTERM);
	return o.serve != NULL ? cp_serve(&o) : cp_client(&o);
}
