/* SPDX-License-Identifier: BSD-3-Clause */
/* candidates.c - the value of XPORT_BACKEND, taken apart. */
#include "core/config/candidates.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/nearest.h"
#include "core/config/module_path.h"
#include "core/config/registry.h"

/*
 * "auto": memory first, then adapters, then sockets. The library's own memory comes before that of the stacks. A back end
 * is loaded only when one of its candidates is opened, so the names stand here. Providers that a stranger can crash (sockets, rxm) and the slow rxd must be asked for by name.
 */
static const char *const auto_order[] = {"shm",       "ucx:shm", "ofi:shm", "verbs",   "ucx",    "ucx:rc",
                                         "ofi:verbs", "ofi",     "ucx:tcp", "ofi:tcp", "ofi:net"};
enum { NAUTO = sizeof(auto_order) / sizeof(auto_order[0]) };

/* ---- Names -------------------------------------------------------------------------------------------------- */

const struct xpi_registry_entry *xpi_candidates_entry(const char *name, size_t len)
{
	const struct xpi_registry_entry *e;

	for (e = xpi_registry(); e->name != NULL; e++)
		if (strlen(e->name) == len && memcmp(e->name, name, len) == 0)
			return e;
	return NULL;
}

/* Providers that are asked for without their back end. */
static const char *const provider_names[] = {"ucx:tcp", "ucx:shm",     "ucx:rc",  "ofi:tcp",
                                             "ofi:shm", "ofi:sockets", "ofi:net", "ofi:verbs"};
enum { NPROVIDER_NAMES = sizeof(provider_names) / sizeof(provider_names[0]) };

/* The part behind the colon, if the back end before it is built; else NULL. */
static const char *provider_part(const char *name)
{
	size_t n = strcspn(name, ":");
	const struct xpi_registry_entry *e = xpi_candidates_entry(name, n);

	return e != NULL && e->why_not == NULL ? name + n + 1 : NULL;
}

/* Looks for providers of that name as well.  Writes "ucx:tcp or ofi:tcp" and returns it, or what is nearest among the back ends;
 * NULL: nothing is. */
static const char *meant(const struct xpi_nearest *backend, char *buf, size_t size)
{
	struct xpi_nearest near = xpi_nearest(backend->wanted);
	size_t n = 0;

	for (int i = 0; i < NPROVIDER_NAMES; i++)
		if (provider_part(provider_names[i]) != NULL)
			xpi_nearest_look(&near, provider_part(provider_names[i]));
	if (near.name == NULL || (backend->name != NULL && backend->distance <= near.distance))
		return backend->name;
	for (int i = 0; i < NPROVIDER_NAMES; i++) {
		const char *part = provider_part(provider_names[i]);

		if (part != NULL && strcmp(part, near.name) == 0 && n < size)
			n += (size_t)snprintf(buf + n, size - n, "%s%s", n > 0 ? " or " : "", provider_names[i]);
	}
	return buf;
}

int xpi_candidates_unknown(const char *name, struct xport_error *err)
{
	char all[160] = "", hint[96] = "", names[64];
	struct xpi_nearest near = xpi_nearest(name);
	const struct xpi_registry_entry *e;
	const char *best;
	size_t n = 0;

	xpi_nearest_look(&near, "auto");
	for (e = xpi_registry(); e->name != NULL; e++) {
		xpi_nearest_look(&near, e->name);
		if (n < sizeof(all))
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n > 0 ? ", " : "", e->name);
	}
	best = meant(&near, names, sizeof(names));
	if (best != NULL)
		snprintf(hint, sizeof(hint), "did you mean %s?", best);
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, hint, "there is no back end %s%s%s%s; there are: %s", name,
	                best != NULL ? " (did you mean " : "", best != NULL ? best : "", best != NULL ? "?)" : "", all);
}

/* ---- Taking apart ------------------------------------------------------------------------------------------- */

/* Cuts the next part, up to `separator`, off *list. */
static bool candidates_cut(const char **list, char separator, char *item, size_t size)
{
	const char reject[] = {separator, '\0'};
	size_t n;

	if (*list == NULL)
		return false;
	n = strcspn(*list, reject);
	snprintf(item, size, "%.*s", (int)n, *list);
	*list = (*list)[n] == separator ? *list + n + 1 : NULL;
	return true;
}

bool xpi_candidates_next(const char **list, char *item, size_t size)
{
	return candidates_cut(list, ',', item, size);
}

/* One NAME, NAME:PROVIDER or auto. */
static int check_item(const char *item, struct xport_error *err)
{
	size_t n = strcspn(item, ":");
	bool provider = item[n] == ':';

	if (n == 0 || (provider && item[n + 1] == '\0'))
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL,
		                "separate alternatives by commas, and the transports of a set by +",
		                "XPORT_BACKEND: \"%.100s\" is not auto, NAME or NAME:PROVIDER", item);
	if (n == 4 && memcmp(item, "auto", n) == 0 && provider)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, NULL, "XPORT_BACKEND: auto takes no provider");
	return XPORT_OK;
}

/* What only the items of a set must be. */
static int check_member(const struct xpi_candidates *before, const char *item, struct xport_error *err)
{
	size_t n = strcspn(item, ":");
	char name[65];

	if (strcmp(item, "auto") == 0)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "use auto alone, or list the transports",
		                "XPORT_BACKEND: auto is a set already, and cannot be a part of one");
	if (strlen(item) >= sizeof(before->list[0].name) || strlen(item + n) > sizeof(before->list[0].provider))
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, NULL, "XPORT_BACKEND: the name \"%.100s\" is too long",
		                item);
	if (before->n == XPI_CANDIDATES_MAX)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, NULL, "XPORT_BACKEND: a set has at most %d transports",
		                XPI_CANDIDATES_MAX);
	for (int i = 0; i < before->n; i++)
		if (strcmp(before->list[i].name, item) == 0)
			return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "name each transport of a set once",
			                "XPORT_BACKEND: %s is there twice", item);
	if (xpi_candidates_entry(item, n) != NULL)
		return XPORT_OK;
	snprintf(name, sizeof(name), "%.*s", (int)n, item);
	return xpi_candidates_unknown(name, err);
}

/* By the name: what an opened back end says itself. */
static void candidate_name(struct xpi_candidate *c, const char *item)
{
	size_t n = strcspn(item, ":");

	memset(c, 0, sizeof(*c));
	snprintf(c->name, sizeof(c->name), "%s", item);
	snprintf(c->backend, sizeof(c->backend), "%.*s", (int)n, item);
	snprintf(c->provider, sizeof(c->provider), "%s", item[n] == ':' ? item + n + 1 : "");
	if (strcmp(item, "ucx") == 0)
		strcpy(c->provider, "default");
	if (strcmp(item, "shm") == 0)
		strcpy(c->provider, "ring");
	/* The providers of verbs are the devices of this machine. */
	c->any_provider = c->provider[0] == '\0' || strcmp(c->backend, "verbs") == 0;
	c->shares_memory = strcmp(c->provider, "shm") == 0 || strcmp(c->backend, "shm") == 0;
}

static void candidates_add(struct xpi_candidates *c, const char *item)
{
	if (c->n < XPI_CANDIDATES_MAX)
		candidate_name(&c->list[c->n++], item);
}

int xpi_candidates_check(const char *list, struct xport_error *err)
{
	char alternative[256], item[256];

	while (xpi_candidates_next(&list, alternative, sizeof(alternative))) {
		struct xpi_candidates c = {.n = 0};
		const char *members = alternative;
		bool set = strchr(alternative, '+') != NULL;

		while (candidates_cut(&members, '+', item, sizeof(item))) {
			int r = check_item(item, err);

			if (r == XPORT_OK && set)
				r = check_member(&c, item, err);
			if (r != XPORT_OK)
				return r;
			candidates_add(&c, item);
		}
	}
	return XPORT_OK;
}

/* A back end's name means all of its candidates; a provider may have been chosen by the back end. */
static bool candidate_named(const struct xpi_candidate *c, const char *item)
{
	size_t n = strlen(c->backend);

	return strcmp(item, c->name) == 0 || strcmp(item, c->backend) == 0 ||
	       (strncmp(item, c->backend, n) == 0 && item[n] == ':' && strcmp(item + n + 1, c->provider) == 0);
}

int xpi_candidates_forbid(const struct xpi_candidates *c, const char *allowed, uint32_t *forbidden,
                          struct xport_error *err)
{
	uint32_t named = 0, none;
	char item[256], all[200] = "";
	size_t len = 0;

	for (int i = 0; i < c->n && len < sizeof(all); i++)
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i > 0 ? ", " : "", c->list[i].name);
	while (candidates_cut(&allowed, '+', item, sizeof(item))) {
		none = named;
		for (int i = 0; i < c->n; i++)
			named |= candidate_named(&c->list[i], item) ? 1u << i : 0;
		if (none == named)
			return xpi_fail(err, XPORT_ERR_INVALID, 0, NULL, "separate them by +",
			                "transports: \"%.60s\" is not in this instance, or is there twice; it has %s",
			                item, all);
	}
	*forbidden = ~named;
	return XPORT_OK;
}

void xpi_candidate_failed(struct xpi_candidate *c, int status, const char *reason)
{
	c->state = XPI_CANDIDATE_FAILED;
	c->failed_ms = xpi_now_ms();
	c->status = status;
	snprintf(c->reason, sizeof(c->reason), "%.*s", (int)sizeof(c->reason) - 1, reason);
}

/* The tests' own back ends are for those who ask for them by name. */
static bool of_site(const struct xpi_registry_entry *entry)
{
	for (int i = 0; xpi_site_backends[i] != NULL; i++)
		if (xpi_site_backends[i] == entry->builtin)
			return true;
	return false;
}

static bool has_order(const char *backend)
{
	for (int i = 0; i < NAUTO; i++)
		if (strcspn(auto_order[i], ":") == strlen(backend) &&
		    strncmp(auto_order[i], backend, strlen(backend)) == 0)
			return true;
	return false;
}

/* All that this build has; then those that it has not, with their reason. */
static void fill_auto(struct xpi_candidates *c)
{
	const struct xpi_registry_entry *e;

	for (int i = 0; i < NAUTO; i++) {
		e = xpi_candidates_entry(auto_order[i], strcspn(auto_order[i], ":"));
		if (e != NULL && e->why_not == NULL && !of_site(e))
			candidates_add(c, auto_order[i]);
	}
	for (e = xpi_registry(); e->name != NULL; e++) {
		if (of_site(e) || (e->why_not == NULL && has_order(e->name)))
			continue;
		candidates_add(c, e->name);
		if (e->why_not != NULL)
			xpi_candidate_failed(&c->list[c->n - 1], XPORT_ERR_NO_BACKEND, e->why_not);
	}
}

void xpi_candidates_fill(struct xpi_candidates *c, const char *alternative)
{
	char item[256];

	c->n = 0;
	if (strcmp(alternative, "auto") == 0) {
		fill_auto(c);
		return;
	}
	while (candidates_cut(&alternative, '+', item, sizeof(item)))
		candidates_add(c, item);
}
