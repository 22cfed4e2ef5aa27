/* SPDX-License-Identifier: BSD-3-Clause */
/* cp.h - the two programs that xport_cp contains, server and client; each returns the exit status. */
#ifndef CP_CP_H
#define CP_CP_H

#include "tools/cp/options.h"

int cp_serve(const struct cp_options *o);
int cp_client(const struct cp_options *o);

/* SIGINT or SIGTERM came: what is under way ends, and stays to be continued. */
extern volatile int cp_interrupted;

#endif
