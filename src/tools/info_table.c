/* SPDX-License-Identifier: BSD-3-Clause */
/* info_table.c - prints the candidates, and the capabilities of opened ones, as text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/info.h"

void info_show_candidates(const struct info *info)
{
	int width = (int)strlen("BACK END");

	for (int i = 0; i < info->ncandidates; i++)
		if (width < (int)strlen(info->candidates[i].name))
			width = (int)strlen(info->candidates[i].name);
	printf("%-*s  %-13s  %s\n", width, "BACK END", "STATE", "REASON");
	for (int i = 0; i < info->ncandidates; i++) {
		const struct xport_candidate *c = &info->candidates[i];

		printf("%-*s  %-13s  %s\n", width, c->name, info_state_name(c->state), c->reason);
		if (c->hint[0] != '\0')
			printf("%-*s  %-13s  fix: %s\n", width, "", "", c->hint);
	}
	if (info->request.usable)
		printf("\nXPORT_BACKEND=%s (%s) takes %s.\n", info->request.backend, info->request.source,
		       info->request.takes);
}

static const char *path_name(int path)
{
	return path == XPORT_NATIVE ? "native" : "emulated";
}

/* What a deadline does to an operation that the network carries out. */
static void show_deadlines(const struct xport_info *i)
{
	const uint32_t ends = i->deadline_ends;

	if (ends == 0)
		printf("  %-15s each operation is withdrawn alone\n", "deadline");
	else
		printf("  %-15s ends the endpoint if the network holds the operation:%s%s%s; others are withdrawn "
		       "alone\n",
		       "deadline", ends & 1u << XPORT_OP_PUT ? " put notify" : "",
		       ends & 1u << XPORT_OP_GET ? " get" : "", ends & 1u << XPORT_OP_ATOMIC ? " atomic" : "");
}

static void show_operations(const struct xport_info *i)
{
	const struct {
		const char *name;
		int path;
	} others[] = {{"notify", i->notify},
	              {"atomic", i->atomic},
	              {"atomic (NIC)", i->nic_atomic},
	              {"send", i->send},
	              {"flush", i->flush}};

	printf("  %-15s %s; memory of xport_mr_reg: %s\n", "put", path_name(i->put), path_name(i->put_reg));
	printf("  %-15s %s; memory of xport_mr_reg: %s\n", "get", path_name(i->get), path_name(i->get_reg));
	for (size_t n = 0; n < sizeof(others) / sizeof(others[0]); n++)
		printf("  %-15s %s\n", others[n].name, path_name(others[n].path));
	show_deadlines(i);
}

static void show_limits(const struct xport_info *i)
{
	printf("  %-15s message %" PRIu64 ", eager send %" PRIu64 ", frame %" PRIu64 ", unmatched %" PRIu64 " bytes\n",
	       "limits", i->message_max, i->eager_max, i->frame_max, i->window);
	printf("  %-15s key %" PRIu64 ", private data %" PRIu64 " bytes; %u operations an endpoint, %u pieces a list\n",
	       "", i->rkey_max, i->private_max, (unsigned)i->queue_depth, (unsigned)i->iov_max);
	printf("  %-15s a silent peer is lost after %d ms\n", "", i->peer_timeout_ms);
	printf("  %-15s traffic class %s; %s\n", "", info_traffic_name(i->traffic_class),
	       i->traffic_marked ? "data can be marked" : "data cannot be marked, only the control channel");
}

static const char *authentication_text(const struct info *info)
{
	const char *how = info_authentication(info);

	if (strcmp(how, "key") == 0)
		return "by a key (XPORT_AUTH_KEY_FILE), when connecting; the network's own ports do not check it";
	return strcmp(how, "none") == 0 ? "none (XPORT_AUTH=none)"
	                                : "none; connections to and from other machines are refused";
}

static void info_table_show_one(const struct info *info, const struct info_opened *o)
{
	const struct xport_info *i = &o->caps;

	printf("%s\n", o->name);
	printf("  %-15s %s:%s, %s\n", "back end", i->backend, i->provider, i->stack);
	printf("  %-15s %s\n", "device", i->device);
	printf("  %-15s %s; the stack runs %d\n", "threads",
	       i->thread_mode == XPORT_THREAD_MULTIPLE ? "multiple; the library locks" : "one at a time",
	       i->stack_threads);
	show_operations(i);
	show_limits(i);
	printf("  %-15s target_bounds=%d: remote accesses are checked %s\n", "security", i->target_bounds,
	       i->target_bounds ? "also at the target" : "only at the initiator");
	printf("  %-15s passive_target=%d: puts and gets %s\n", "", i->passive_target,
	       i->passive_target ? "do not need calls by the target"
	                         : "progress only while the target calls the library");
	printf("  %-15s authentication: %s; nothing is encrypted\n", "", authentication_text(info));
}

void info_show_opened(const struct info *info)
{
	bool first = true;

	for (int i = 0; i < info->nopened; i++) {
		if (info->opened[i].status != XPORT_OK)
			continue;
		printf("%s", first ? "" : "\n");
		first = false;
		info_table_show_one(info, &info->opened[i]);
	}
}
