/* SPDX-License-Identifier: BSD-3-Clause */
/* chaos_config.c - the options in XPORT_CHAOS: "seed=7,delay=30,profile=iwarp". */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "chaos.h"

enum { SPAN_MAX = 100000 };

struct option {
	const char *name;
	size_t at; /* its uint32_t in struct chaos_config */
	uint32_t max, standard;
};

#define CHANCE(c) (offsetof(struct chaos_config, chance) + (c) * sizeof(uint32_t))
#define FIELD(f) offsetof(struct chaos_config, f)

static const struct option options[] = {
	{"seed", FIELD(seed), UINT32_MAX, 1},       {"delay", CHANCE(CHAOS_DELAY), 100, 10},
	{"late", CHANCE(CHAOS_LATE), 100, 10},      {"again", CHANCE(CHAOS_AGAIN), 90, 5},
	{"span", FIELD(span), SPAN_MAX, 20},        {"regfail", CHANCE(CHAOS_REGFAIL), 100, 0},
	{"keyfail", CHANCE(CHAOS_KEYFAIL), 100, 0}, {"truncate", CHANCE(CHAOS_TRUNCATE), 100, 0},
	{"drop", FIELD(drop), UINT32_MAX, 0},       {"kill", FIELD(kill), UINT32_MAX, 0},
	{"still", FIELD(still), UINT32_MAX, 0},
};

enum { NOPTIONS = sizeof(options) / sizeof(options[0]) };

static uint32_t *value(struct chaos_config *w, const struct option *option)
{
	return (uint32_t *)((char *)w + option->at);
}

static int option_bad(struct xport_error *err, const char *item, const char *why)
{
	return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "see xport_chaos(7)", "XPORT_CHAOS: \"%.60s\": %s", item, why);
}

static int option_unknown(struct xport_error *err, const char *item, const char *name, const char *nearest,
                          const char *all)
{
	char why[256];

	snprintf(why, sizeof(why), "%.40s is unknown%s%s%s; known: %s", name, nearest != NULL ? ", did you mean " : "",
	         nearest != NULL ? nearest : "", nearest != NULL ? "?" : "", all);
	return option_bad(err, item, why);
}

static int read_profile(struct chaos_config *w, const char *item, const char *name, struct xport_error *err)
{
	struct xpi_nearest near = xpi_nearest(name);
	char all[128] = "";
	size_t n = 0;

	for (w->profile = chaos_profiles; w->profile->name != NULL; w->profile++) {
		if (strcmp(w->profile->name, name) == 0)
			return XPORT_OK;
		xpi_nearest_look(&near, w->profile->name);
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n > 0 ? ", " : "", w->profile->name);
	}
	return option_unknown(err, item, name, near.name, all);
}

static int option_read_number(uint32_t *v, const char *item, const char *text, uint32_t max, struct xport_error *err)
{
	char why[64];
	uint64_t n = 0;

	if (*text == '\0')
		return option_bad(err, item, "no number follows the =");
	for (const char *p = text; *p != '\0'; p++) {
		if (*p < '0' || *p > '9')
			return option_bad(err, item, "the value is not a number");
		n = 10 * n + (uint64_t)(*p - '0');
		if (n > max) {
			snprintf(why, sizeof(why), "the number is above %u", max);
			return option_bad(err, item, why);
		}
	}
	*v = (uint32_t)n;
	return XPORT_OK;
}

static int read_item(struct chaos_config *w, const char *item, struct xport_error *err)
{
	size_t n = strcspn(item, "=");
	struct xpi_nearest near;
	char name[32], all[128] = "profile";
	size_t len = strlen(all);

	snprintf(name, sizeof(name), "%.*s", (int)(n < sizeof(name) ? n : sizeof(name) - 1), item);
	near = xpi_nearest(name);
	if (strcmp(name, "profile") == 0 && item[n] == '=')
		return read_profile(w, item, item + n + 1, err);
	xpi_nearest_look(&near, "profile");
	for (int i = 0; i < NOPTIONS; i++) {
		if (strcmp(name, options[i].name) == 0 && item[n] == '=')
			return option_read_number(value(w, &options[i]), item, item + n + 1, options[i].max, err);
		xpi_nearest_look(&near, options[i].name);
		len += (size_t)snprintf(all + len, sizeof(all) - len, ", %s", options[i].name);
	}
	if (item[n] != '=')
		return option_bad(err, item, "it is not NAME=VALUE");
	return option_unknown(err, item, name, near.name, all);
}

int chaos_config_read(const char *text, struct chaos_config *w, struct xport_error *err)
{
	memset(w, 0, sizeof(*w));
	w->profile = chaos_profiles;
	for (int i = 0; i < NOPTIONS; i++)
		*value(w, &options[i]) = options[i].standard;
	while (text != NULL && *text != '\0') {
		size_t n = strcspn(text, ",");
		char item[128];
		int r;

		snprintf(item, sizeof(item), "%.*s", (int)(n < sizeof(item) ? n : sizeof(item) - 1), text);
		r = read_item(w, item, err);
		if (r != XPORT_OK)
			return r;
		text += n;
		text += *text == ',';
	}
	return XPORT_OK;
}
