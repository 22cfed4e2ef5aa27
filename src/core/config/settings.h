/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.h - what the application and the environment ask for, read once at open. */
#ifndef XPI_CORE_CONFIG_SETTINGS_H
#define XPI_CORE_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "core/auth/auth.h"
#include "xport.h"

/* What XPORT_EMULATE may name. */
enum { XPI_EMULATE_PUT = 1, XPI_EMULATE_GET = 2, XPI_EMULATE_ATOMIC = 4, XPI_EMULATE_CMA = 8, XPI_EMULATE_ALL = 0xff };
/* What XPORT_REQUIRE may name. */
enum { XPI_REQUIRE_TARGET_BOUNDS = 1, XPI_REQUIRE_PASSIVE_TARGET = 2, XPI_REQUIRE_TRAFFIC_CLASS = 4 };

struct xpi_settings {
	char backend[256], chaos[256], shm_dir[256];
	uint32_t require, emulate;
	bool multiple;        /* lock the instance */
	bool latency;         /* operations are measured */
	bool strict;          /* slips of the pen and of threads are errors */
	bool progress_thread;
	char progress_cores[136]; /* "": any; "0-3,8" or "device". 136: what follows keeps its place in a cache line */
	bool liveness_thread; /* XPORT_LIVENESS=thread (default) or poll */
	int peer_timeout_ms, op_timeout_ms;
	uint32_t queue_depth, peer_connections;
	uint32_t flight; /* bytes; 0: not set */
	bool auth_none;       /* XPORT_AUTH=none */
	struct xpi_secret *secret; /* of XPORT_AUTH_KEY_FILE; NULL: none.  Owned */
	struct xpi_log log;   /* log.fd is owned if log_owned */
	struct xpi_log_rate log_rate;
	bool log_owned;
	int traffic_class;    /* enum xport_traffic */
};

/* One row of the variable table, from which the parser and later the tools and pages are made. */
struct xpi_variable {
	const char *name;     /* "XPORT_PEER_TIMEOUT" */
	const char *type;     /* "time" */
	const char *range;    /* "200ms to 1h" */
	const char *standard; /* "5s" */
	const char *text;
};

/* The table, ended by a NULL name. */
extern const struct xpi_variable xpi_variables[];

/* Fills *v with the row and what the environment makes of it; false past the end of the table. */
bool xpi_settings_variable(int row, struct xport_variable *v);

/*
 * Reads `attr` (NULL: none) and the environment (secure_getenv) into *s.  A bad value: XPORT_ERR_CONFIG, with the
 * variable or field, the value, and what is allowed.  An unknown XPORT_ name: a warning with the nearest match, or an
 * error with XPORT_STRICT=1.
 */
int xpi_settings_read(const struct xport_attr *attr, struct xpi_settings *s, struct xport_error *err);
void xpi_settings_fini(struct xpi_settings *s);

#endif
