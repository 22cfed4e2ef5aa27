/* SPDX-License-Identifier: BSD-3-Clause */
/* info_look.c - asks the library: its variables, its candidates, and the capabilities of opened ones. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tools/info.h"

void info_look_variables(struct info *info)
{
	int n = xport_variables(info->variables, sizeof(info->variables[0]), INFO_VARIABLES);

	info->nvariables = n < INFO_VARIABLES ? n : INFO_VARIABLES;
}

const char *info_value(const struct info *info, const char *name)
{
	for (int i = 0; i < info->nvariables; i++)
		if (strcmp(info->variables[i].name, name) == 0)
			return info->variables[i].value != NULL ? info->variables[i].value
			                                        : info->variables[i].standard;
	return "";
}

const char *info_authentication(const struct info *info)
{
	if (*info_value(info, "XPORT_AUTH_KEY_FILE") != '\0')
		return "key";
	return strcmp(info_value(info, "XPORT_AUTH"), "none") == 0 ? "none" : "local";
}

const char *info_state_name(int state)
{
	static const char *const names[] = {"ready", "absent", "misconfigured", "not built"};

	return state >= XPORT_READY && state <= XPORT_NOT_BUILT ? names[state] : "unknown";
}

const char *info_traffic_name(int traffic_class)
{
	static const char *const names[] = {"default", "bulk", "normal", "urgent"};

	return traffic_class >= XPORT_TRAFFIC_DEFAULT && traffic_class <= XPORT_TRAFFIC_URGENT ? names[traffic_class]
	                                                                                       : "unknown";
}

/* ---- candidates ---- */

static void keep_once(struct info *info, const char *id, const char *line)
{
	struct info_warning *w;

	for (int i = 0; i < info->nwarnings; i++)
		if (strcmp(info->warnings[i].line, line) == 0)
			return;
	if (info->nwarnings == INFO_WARNINGS)
		return;
	w = &info->warnings[info->nwarnings++];
	snprintf(w->id, sizeof(w->id), "%s", id);
	snprintf(w->line, sizeof(w->line), "%s", line);
}

/* A stack may have threads, and what they say comes here as well. */
static void keep_warning(void *arg, int level, const char *id, const char *line)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	(void)level;
	pthread_mutex_lock(&lock);
	keep_once(arg, id, line);
	pthread_mutex_unlock(&lock);
}

static struct xport_attr attr_of(struct info *info, const char *backend)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = backend};

	if (info->doctor) {
		attr.log_fn = keep_warning;
		attr.log_arg = info;
		attr.log_level = XPORT_LOG_WARN;
	}
	return attr;
}

static void last_error(struct xport_error *error)
{
	error->size = sizeof(*error);
	if (xport_last_error(NULL, error) != XPORT_OK)
		memset(error, 0, sizeof(*error));
}

void info_look_candidates(struct info *info)
{
	struct xport_attr attr = attr_of(info, NULL);
	int n = xport_list(&attr, info->candidates, sizeof(info->candidates[0]), INFO_CANDIDATES);

	info->ncandidates = n < INFO_CANDIDATES ? n : INFO_CANDIDATES;
	if (n < 0)
		last_error(&info->list_error);
}

/* ---- opening ---- */

static void look_open_one(struct info *info, const char *name, struct info_opened *o)
{
	struct xport_attr attr = attr_of(info, name);
	xport *x = NULL;

	memset(o, 0, sizeof(*o));
	o->name = name;
	o->status = xport_open(&attr, &x);
	if (o->status != XPORT_OK) {
		last_error(&o->error);
		return;
	}
	o->caps.size = sizeof(o->caps);
	o->status = xport_query(x, &o->caps);
	if (o->status != XPORT_OK) {
		o->error.size = sizeof(o->error);
		(void)xport_last_error(x, &o->error);
	}
	xport_close(x);
}

void info_look_opened(struct info *info)
{
	for (int i = 0; i < info->nnames; i++)
		look_open_one(info, info->names[i], &info->opened[info->nopened++]);
	for (int i = 0; info->verbose && info->nnames == 0 && i < info->ncandidates; i++)
		if (info->candidates[i].state == XPORT_READY)
			look_open_one(info, info->candidates[i].name, &info->opened[info->nopened++]);
}

/* ---- what is asked for ---- */

static bool is_ready(const struct xport_candidate *c, const char *item)
{
	size_t n = strlen(item);

	if (c->state != XPORT_READY)
		return false;
	return strcmp(c->name, item) == 0 ||
	       (strncmp(c->name, item, n) == 0 && c->name[n] == ':' && strchr(item, ':') == NULL);
}

static bool is_own_memory(const char *name)
{
	return strncmp(name, "shm:", 4) == 0;
}

static bool is_shared_memory(const char *name)
{
	const char *colon = strchr(name, ':');

	return is_own_memory(name) || (colon != NULL && strcmp(colon, ":shm") == 0);
}

/* Whether the set has it: "auto" has all. */
static bool set_has(const char *set, const struct xport_candidate *c)
{
	char item[80];

	if (strcmp(set, "auto") == 0)
		return true;
	while (*set != '\0') {
		size_t n = strcspn(set, "+");

		snprintf(item, sizeof(item), "%.*s", (int)n, set);
		if (is_ready(c, item))
			return true;
		set += n + (set[n] == '+');
	}
	return false;
}

/* The first of a set that is ready, for peers on this host or for others. auto prefers the own memory, and adapters. */
static const char *set_takes(const struct info *info, const char *set, bool local)
{
	const char *first = NULL;

	for (int i = 0; i < info->ncandidates; i++) {
		const struct xport_candidate *c = &info->candidates[i];

		if (c->state != XPORT_READY || is_shared_memory(c->name) != local || !set_has(set, c))
			continue;
		if (strcmp(set, "auto") == 0 && (is_own_memory(c->name) || strncmp(c->name, "verbs", 5) == 0))
			return c->name;
		first = first != NULL ? first : c->name;
	}
	return first;
}

/* A set: true if something of it is ready. */
static bool set_answered(struct info *info, const char *set)
{
	const char *local = set_takes(info, set, true), *remote = set_takes(info, set, false);

	if (local == NULL && remote == NULL)
		return false;
	if (local == NULL || remote == NULL)
		snprintf(info->request.takes, sizeof(info->request.takes), "%s%s", remote != NULL ? remote : local,
		         remote != NULL ? "" : " for peers on this host");
	else
		snprintf(info->request.takes, sizeof(info->request.takes), "%s for peers on this host, %s for others",
		         local, remote);
	return true;
}

/* One item of XPORT_BACKEND: true if a candidate answers it and is ready. */
static bool look_answered(void *arg, const char *item)
{
	struct info *info = arg;

	if (strcmp(item, "auto") == 0 || strchr(item, '+') != NULL)
		return set_answered(info, item);
	for (int i = 0; i < info->ncandidates; i++) {
		if (!is_ready(&info->candidates[i], item))
			continue;
		snprintf(info->request.takes, sizeof(info->request.takes), "%s", item);
		return true;
	}
	return false;
}

/* A required capability is known of an open instance only; and why nothing is usable xport_open says best. */
static void ask_by_opening(struct info *info)
{
	struct info_request *r = &info->request;
	struct info_opened o;

	look_open_one(info, NULL, &o);
	r->usable = o.status == XPORT_OK;
	if (r->usable) {
		r->caps = o.caps;
		snprintf(r->takes, sizeof(r->takes), "%s:%s", o.caps.backend, o.caps.provider);
	} else {
		r->error = o.error;
	}
}

void info_look_request(struct info *info, bool sure)
{
	struct info_request *r = &info->request;

	memset(r, 0, sizeof(*r));
	r->backend = info_value(info, "XPORT_BACKEND");
	r->source = "default";
	for (int i = 0; i < info->nvariables; i++)
		if (info->variables[i].value == r->backend)
			r->source = "environment";
	r->usable =
		!sure && *info_value(info, "XPORT_REQUIRE") == '\0' && info_each_item(r->backend, look_answered, info);
	if (!r->usable)
		ask_by_opening(info);
}
