/* SPDX-License-Identifier: BSD-3-Clause */
/* parameter_server.c - an example: parameters that many processes improve together.  README.md says how. */
#include "parameter_server.h"

int main(int argc, char **argv)
{
	struct ps_options o;

	ps_options_read(&o, argc, argv);
	switch (o.mode) {
	case PS_SERVER:
		return ps_server(&o);
	case PS_WORKER:
		return ps_worker(&o);
	default:
		return ps_alone(&o);
	}
}
