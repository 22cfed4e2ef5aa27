/* SPDX-License-Identifier: BSD-3-Clause */
/* parameter_server.h - what this program can be.  Each returns its exit status. */
#ifndef PS_PARAMETER_SERVER_H
#define PS_PARAMETER_SERVER_H

#include "options.h"

int ps_server(const struct ps_options *o);
int ps_worker(const struct ps_options *o);
int ps_alone(const struct ps_options *o);

#endif
