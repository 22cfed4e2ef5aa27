/* SPDX-License-Identifier: BSD-3-Clause */
/* settings_names.c - finds misspelt names of variables in the environment. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ */
#endif
#include "core/config/settings_names.h"

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/error.h"
#include "base/nearest.h"

/* Variables of this project that libxport_services reads (xport_group.h, xport_directory.h,
 * xport_metrics.h): no misspelt ones. */
static const char *const services_variables[] = {"XPORT_GROUP",
                                                 "XPORT_GROUP_RANK",
                                                 "XPORT_GROUP_SIZE",
                                                 "XPORT_GROUP_NAME",
                                                 "XPORT_GROUP_ADDRESS",
                                                 "XPORT_DIRECTORY",
                                                 "XPORT_DIRECTORY_NAME",
                                                 "XPORT_METRICS_DIR",
                                                 "XPORT_ETCD_CACERT",
                                                 "XPORT_ETCD_CERT",
                                                 "XPORT_ETCD_KEY",
                                                 "XPORT_ETCD_USER",
                                                 "XPORT_ETCD_PASSWORD_FILE",
                                                 NULL};

static bool known_name(const char *name)
{
	for (const struct xpi_variable *v = xpi_variables; v->name != NULL; v++)
		if (strcmp(name, v->name) == 0)
			return true;
	for (const char *const *v = services_variables; *v != NULL; v++)
		if (strcmp(name, *v) == 0)
			return true;
	return false;
}

static int unknown_name(struct xpi_settings *s, const char *name, struct xport_error *err)
{
	struct xpi_nearest near = xpi_nearest(name);
	char hint[128];

	for (const struct xpi_variable *v = xpi_variables; v->name != NULL; v++)
		xpi_nearest_look(&near, v->name);
	for (const char *const *v = services_variables; *v != NULL; v++)
		xpi_nearest_look(&near, *v);
	snprintf(hint, sizeof(hint), near.name != NULL ? "did you mean %s?" : "unset it", near.name);
	if (s->strict)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, hint,
		                "%.100s is not a variable of this library (XPORT_STRICT=1)", name);
	xpi_log(&s->log, XPORT_LOG_WARN, "0201", "%.100s is not a variable of this library: %s", name, hint);
	return XPORT_OK;
}

int xpi_settings_names(struct xpi_settings *s, struct xport_error *err)
{
	static const char prefix[] = "XPORT_";

	if (getauxval(AT_SECURE) != 0)
		return XPORT_OK;
	for (char **e = environ; e != NULL && *e != NULL; e++) {
		char name[128];
		int rc;

		if (strncmp(*e, prefix, sizeof(prefix) - 1) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		if (known_name(name))
			continue;
		rc = unknown_name(s, name, err);
		if (rc != XPORT_OK)
			return rc;
	}
	return XPORT_OK;
}
