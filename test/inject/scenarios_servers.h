/* SPDX-License-Identifier: BSD-3-Clause */
/* scenarios_servers.h - a launcher that speaks PMI-1 and PMI-2, and an etcd: processes that end with this one. */
#ifndef TEST_INJECT_SERVERS_H
#define TEST_INJECT_SERVERS_H

#include <stdbool.h>
#include <sys/types.h>

struct sv_servers {
	pid_t pid[3];
	int launcher[2]; /* descriptors for PMI_FD: of PMI-1 and PMI-2 */
	char etcd[64];   /* "etcd:http://127.0.0.1:PORT" */
	char password[64]; /* a file */
};

bool sv_start(struct sv_servers *s);
void sv_stop(struct sv_servers *s);

#endif
