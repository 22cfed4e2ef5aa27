/* SPDX-License-Identifier: BSD-3-Clause */
/* info_doctor.c - the list of checks: runs them, and prints the results. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/info.h"

static const struct {
	const char *id;
	info_check_fn check;
} table[] = {
	{"variables", info_check_variables},
	{"authentication", info_check_authentication},
	{"ucx-tls", info_check_ucx_tls},
	{"ucx-net-devices", info_check_ucx_devices},
	{"fi-provider", info_check_fi_provider},
	{"memlock", info_check_memlock},
	{"open-files", info_check_files},
	{"max-map-count", info_check_maps},
	{"shared-memory", info_check_shm},
	{"ptrace-scope", info_check_ptrace},
	{"library-copies", info_check_copies},
	{"rdma-kernel", info_check_rdma_kernel},
	{"rdma-files", info_check_rdma_files},
	{"rdma-ports", info_check_rdma_ports},
	{"rdma-gids", info_check_rdma_gids},
	{"rdma-addresses", info_check_rdma_addresses},
	{"mapped-files", info_check_mapped_files},
	{"numa-nodes", info_check_numa_nodes}, /* in the order of doc/troubleshooting.md */
	{"addresses", info_check_addresses},
	{"bridges", info_check_bridges},
	{"versions", info_check_versions},
	{"way", info_check_path},
	{"timeouts", info_check_timeouts},
};

/* ---- for the checks ---- */

enum info_state info_say(struct info_check *c, enum info_state state, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(c->text, sizeof(c->text), fmt, args);
	va_end(args);
	return state;
}

void info_cure(struct info_check *c, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(c->cure, sizeof(c->cure), fmt, args);
	va_end(args);
}

bool info_each_item(const char *list, bool (*fn)(void *arg, const char *item), void *arg)
{
	char item[256];

	while (list != NULL) {
		size_t n = strcspn(list, ",");

		snprintf(item, sizeof(item), "%.*s", (int)(n < sizeof(item) ? n : sizeof(item) - 1), list);
		if (item[0] != '\0' && fn(arg, item))
			return true;
		list = list[n] == ',' ? list + n + 1 : NULL;
	}
	return false;
}

static bool begins(void *arg, const char *item)
{
	const char *prefix = arg;

	return strncmp(item, prefix, strlen(prefix)) == 0;
}

bool info_asks_for(const struct info *info, const char *prefix)
{
	for (int i = 0; i < info->nnames; i++)
		if (info_each_item(info->names[i], begins, (void *)(uintptr_t)prefix))
			return true;
	return info->nnames == 0 &&
	       info_each_item(info_value(info, "XPORT_BACKEND"), begins, (void *)(uintptr_t)prefix);
}

bool info_asks_for_rdma(const struct info *info)
{
	return info_asks_for(info, "verbs") || info_asks_for(info, "ucx:rc") || info_asks_for(info, "ofi:verbs");
}

/* ---- running ---- */

static struct info_check *doctor_next(struct info *info, const char *id)
{
	static struct info_check none;
	struct info_check *c = info->nchecks < INFO_CHECKS ? &info->checks[info->nchecks++] : &none;

	memset(c, 0, sizeof(*c));
	snprintf(c->id, sizeof(c->id), "%s", id);
	return c;
}

/* What is there, but cannot be used, is a problem, asked for or not; what is absent is not. */
static void examine_candidates(struct info *info)
{
	for (int i = 0; i < info->ncandidates; i++) {
		const struct xport_candidate *candidate = &info->candidates[i];
		struct info_check *c;

		if (candidate->state != XPORT_MISCONFIGURED)
			continue;
		c = doctor_next(info, candidate->name);
		c->state = info_say(c, INFO_PROBLEM, "%s", candidate->reason);
		info_cure(c, "%s", candidate->hint);
	}
}

/* The name that the library takes what was asked for to mean, up to a character that ends it; NULL: none. */
static const char *doctor_meant(const char *text, int *n)
{
	static const char *const words[] = {"did you mean ", "the nearest is "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const char *at = strstr(text, words[i]);

		if (at == NULL)
			continue;
		at += strlen(words[i]);
		/* A name may have a semicolon in it, "ofi:tcp;ofi_rxm". */
		*n = (int)strcspn(at, "?, )");
		if (*n > 0 && at[*n - 1] == ';')
			--*n;
		return at;
	}
	return NULL;
}

static void examine_error(struct info *info, const char *id, const char *what, const struct xport_error *e)
{
	struct info_check *c = doctor_next(info, id);
	const char *name;
	int n;

	c->state = info_say(c, INFO_PROBLEM, "%.120s cannot be used: %.380s", what, e->text);
	name = strchr(what, ',') == NULL ? doctor_meant(e->text, &n) : NULL;
	if (name != NULL)
		info_cure(c, info->nnames > 0 ? "xport_info --doctor '%.*s'" : "export XPORT_BACKEND='%.*s'", n, name);
	else
		info_cure(c, "%s", tool_hint(e));
}

static void examine_request(struct info *info)
{
	static const char id[] = "asked-for";
	struct info_check *c;

	for (int i = 0; i < info->nopened; i++) {
		const struct info_opened *o = &info->opened[i];

		/* With --verbose and no name, nobody asked for it. */
		if (o->status != XPORT_OK) {
			examine_error(info, info->nnames > 0 ? id : o->name, o->name, &o->error);
			continue;
		}
		c = doctor_next(info, info->nnames > 0 ? id : o->name);
		c->state = info_say(c, INFO_OK, "%s opens, over %s", o->name, o->caps.device);
	}
	if (info->nnames > 0)
		return;
	if (!info->request.usable) {
		examine_error(info, id, info->request.backend, &info->request.error);
		return;
	}
	c = doctor_next(info, id);
	c->state = info_say(c, INFO_OK, "XPORT_BACKEND=%s (%s) opens %s", info->request.backend, info->request.source,
	                    info->request.takes);
}

void info_examine(struct info *info)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct info_check *c = doctor_next(info, table[i].id);

		c->state = table[i].check(info, c);
	}
	examine_candidates(info);
	examine_request(info);
}

/* ---- showing ---- */

const char *info_check_name(enum info_state state)
{
	static const char *const names[] = {"ok", "problem", "not applicable"};

	return names[state];
}

void info_show_checks(const struct info *info)
{
	int width = 0, problems = 0;

	for (int i = 0; i < info->nchecks; i++)
		if (width < (int)strlen(info->checks[i].id))
			width = (int)strlen(info->checks[i].id);
	for (int i = 0; i < info->nchecks; i++) {
		const struct info_check *c = &info->checks[i];

		printf("%-14s  %-*s  %s\n", info_check_name(c->state), width, c->id, c->text);
		if (c->cure[0] != '\0')
			printf("%-14s  %-*s  cure: %s\n", "", width, "", c->cure);
		problems += c->state == INFO_PROBLEM;
	}
	printf("%d problem%s\n", problems, problems == 1 ? "" : "s");
}
