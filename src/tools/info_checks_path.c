/* SPDX-License-Identifier: BSD-3-Clause */
/* info_checks_path.c - checks of the provider in use, of the peer timeout, and of the loaded libraries. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tools/info.h"

enum { TIMEOUT_MAX = 60000 }; /* ms: the default is 5000; beyond a minute somebody takes it for a program that hangs */

/* ---- of which version ---- */

enum info_state info_check_versions(const struct info *info, struct info_check *c)
{
	Dl_info where;
	const char *path = "";

	(void)info;
	if (strcmp(xport_version(), PACKAGE_VERSION) == 0)
		return info_say(c, INFO_OK, "the library has version " PACKAGE_VERSION ", the same as this program");
	if (dladdr((void *)(uintptr_t)xport_version, &where) != 0 && where.dli_fname != NULL)
		path = where.dli_fname;
	info_cure(c, "unset LD_LIBRARY_PATH LD_PRELOAD");
	return info_say(c, INFO_PROBLEM,
	                "the loaded library, %.256s, has version %.32s, and this program has version " PACKAGE_VERSION
	                ": two installations are mixed",
	                path, xport_version());
}

/* ---- what is taken ---- */

struct taken {
	const struct info *info;
	const struct xport_info *caps; /* NULL: it does not open */
	bool chosen;                   /* by the library or by UCX, not by name */
	bool all;                      /* of auto: what is open is only the first of several */
};

static struct taken path_taken(const struct info *info)
{
	struct taken t = {.info = info};
	const char *asked = info->request.backend;

	if (info->nnames > 0) {
		asked = info->names[0];
		t.caps = info->nopened > 0 && info->opened[0].status == XPORT_OK ? &info->opened[0].caps : NULL;
	} else if (info->request.usable && info->request.caps.size != 0) {
		t.caps = &info->request.caps;
	}
	t.all = asked != NULL && strcmp(asked, "auto") == 0;
	t.chosen = t.all || (asked != NULL && strcmp(asked, "ucx") == 0);
	return t;
}

/* Whether the device is among those that it goes over, "lo, rxe0:1". */
static bool goes_over(void *arg, const char *device)
{
	const struct taken *t = arg;
	const char *at = strstr(t->caps->device, device);
	size_t n = strlen(device);

	return at != NULL && (at == t->caps->device || at[-1] == ',' || at[-1] == ' ') && strchr(" ,:", at[n]) != NULL;
}

static bool by_rdma(struct taken *t)
{
	return strcmp(t->caps->backend, "verbs") == 0 || info_each_file(t->info, "/sys/class/infiniband", goes_over, t);
}

/* Why not by RDMA, and what to do: what the candidate says that would have. */
static enum info_state passed_over(const struct taken *t, struct info_check *c)
{
	const struct xport_candidate *why = NULL;

	for (int i = 0; i < t->info->ncandidates; i++) {
		const struct xport_candidate *k = &t->info->candidates[i];

		if (strncmp(k->name, "verbs", 5) == 0 && (why == NULL || k->state == XPORT_READY))
			why = k;
	}
	if (why != NULL && why->state == XPORT_READY && t->all)
		return info_say(c, INFO_OK, "%s:%s is open, and %s opens for peers that have verbs, too",
		                t->caps->backend, t->caps->provider, why->name);
	if (why != NULL && why->state == XPORT_READY) {
		info_cure(c, "export XPORT_BACKEND=verbs");
		return info_say(c, INFO_PROBLEM, "%s:%s over %s is used, although verbs could use the RDMA devices",
		                t->caps->backend, t->caps->provider, t->caps->device);
	}
	info_cure(c, "%s", why != NULL ? why->hint : "configure libxport with --enable-verbs");
	return info_say(c, INFO_PROBLEM, "%s:%s over %s is used instead of the RDMA devices: %.160s", t->caps->backend,
	                t->caps->provider, t->caps->device,
	                why != NULL ? why->reason : "this library was built without verbs");
}

enum info_state info_check_path(const struct info *info, struct info_check *c)
{
	struct taken t = path_taken(info);
	const char *emulate = info_value(info, "XPORT_EMULATE");

	if (t.caps == NULL)
		return info_say(c, INFO_NOT_APPLICABLE, "no back end is open");
	if (t.chosen && info_have_rdma(info) && !by_rdma(&t))
		return passed_over(&t, c);
	if (*emulate != '\0') {
		info_cure(c, "unset XPORT_EMULATE");
		return info_say(c, INFO_PROBLEM,
		                "XPORT_EMULATE=%.64s emulates operations that the network could do natively", emulate);
	}
	return info_say(c, INFO_OK, "%s:%s uses %s; put is %s, get is %s", t.caps->backend, t.caps->provider,
	                t.caps->device, t.caps->put == XPORT_NATIVE ? "native" : "emulated",
	                t.caps->get == XPORT_NATIVE ? "native" : "emulated");
}

enum info_state info_check_timeouts(const struct info *info, struct info_check *c)
{
	struct taken t = path_taken(info);
	long sum;

	if (t.caps == NULL)
		return info_say(c, INFO_NOT_APPLICABLE, "no back end is open");
	sum = (long)t.caps->peer_timeout_ms * 3 / 2;
	if (t.caps->peer_timeout_ms <= TIMEOUT_MAX)
		return info_say(c, INFO_OK, "a lost peer is reported within %ld ms", sum);
	info_cure(c, "unset XPORT_PEER_TIMEOUT");
	return info_say(c, INFO_PROBLEM,
	                "a lost peer is reported only after up to %ld s; until then operations to it seem to hang",
	                sum / 1000);
}
