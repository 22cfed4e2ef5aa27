/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv, environ */
#endif
#include "core/config/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/grow.h"
#include "base/nearest.h"
#include "base/node.h"
#include "base/traffic.h"
#include "core/auth/auth.h"
#include "core/config/registry.h"
#include "core/config/settings_names.h"

enum { HOUR_MS = 3600 * 1000, FLIGHT_MIN = 1 << 20, FLIGHT_MAX = 1 << 30 };

/*
 * X(id, name, type, range, standard, text).  A variable that is unset or empty has its standard value.  If the field of
 * xport_attr for a variable is set, the variable is ignored.
 */
#define VARIABLES(X) \
	X(BACKEND, "XPORT_BACKEND", "list", \
	  "auto | NAME | NAME:PROVIDER | A+B+C, or a list of these, separated by commas", "auto", \
	  "the transport; of a list, the first that is usable; with + or auto, the best common one for each peer") \
	X(REQUIRE, "XPORT_REQUIRE", "list", "target_bounds, passive_target, traffic_class", "", \
	  "capabilities without which opening fails") \
	X(EMULATE, "XPORT_EMULATE", "list", "put, get, atomic, cma, all", "", \
	  "operations to emulate over messages even where the network or the host supports them natively") \
	X(PROGRESS, "XPORT_PROGRESS", "word", \
	  "poll | thread | thread@CORES, such as 2 or 0-3,8, up to 1023 | thread@device", "poll", \
	  "who makes progress: the application's calls, or a thread of the library; @device: near the network device") \
	X(LIVENESS, "XPORT_LIVENESS", "word", "thread | poll", "thread", \
	  "who answers heartbeats: a small thread, or the application's calls, which must then be frequent") \
	X(PEER_TIMEOUT, "XPORT_PEER_TIMEOUT", "time", "200ms to 1h", "5s", "silence after which a peer is lost") \
	X(OP_TIMEOUT, "XPORT_OP_TIMEOUT", "time", "0 (never), or 1ms to 1h", "0", \
	  "age at which an unfinished operation fails its endpoint") \
	X(QUEUE_DEPTH, "XPORT_QUEUE_DEPTH", "number", "1 to 1048576", "16384", \
	  "operations of an endpoint that may be in flight or not reaped; further posts return XPORT_ERR_AGAIN") \
	X(PEER_CONNECTIONS, "XPORT_PEER_CONNECTIONS", "number", "1 to 65536", "1024", \
	  "connections that one address may have to the listeners of an instance") \
	X(FLIGHT, "XPORT_FLIGHT", "size", "1m to 1g", "", \
	  "bytes that a peer may have in flight to this process, over TCP: twice the bandwidth times the round trip; " \
	  "default 8m, and 1m of unmatched messages") \
	X(LOG, "XPORT_LOG", "log", "error | warn | info | debug, and optionally a comma and a file", "warn", \
	  "the log level, and the file that is appended to instead of standard error") \
	X(AUTH, "XPORT_AUTH", "word", "none", "", \
	  "none: connections between hosts need no key, and are not authenticated") \
	X(AUTH_KEY_FILE, "XPORT_AUTH_KEY_FILE", "file", "a path", "", \
	  "file with the key that peers must have, too; connections between hosts need it, or XPORT_AUTH=none") \
	X(SHM_DIR, "XPORT_SHM_DIR", "file", "a directory", "", \
	  "where processes in different containers of a host meet; each mounts it, and sets its own path of it") \
	X(CHAOS, "XPORT_CHAOS", "list", "WORD=VALUE, or a list of these, separated by commas: xport_chaos(7)", "", \
	  "the faults that the back end chaos injects, for tests") \
	X(LATENCY, "XPORT_LATENCY", "switch", "0 | 1", "0", \
	  "1: measure how long operations take, for xport_stats and xport_stats_text; calls then take a slower path") \
	X(TRAFFIC_CLASS, "XPORT_TRAFFIC_CLASS", "word", "bulk | normal | urgent", "", \
	  "how packets are marked for the network; by default as the system does; xport_info says whether the data " \
	  "is") \
	X(STRICT, "XPORT_STRICT", "switch", "0 | 1", "0", \
	  "1: an unknown variable XPORT_... is an error, and so are concurrent calls on an instance without a lock")

enum variable {
#define ID(id, name, type, range, standard, text) VAR_##id,
	VARIABLES(ID) VAR_COUNT
};

const struct xpi_variable xpi_variables[] = {
#define ROW(id, name, type, range, standard, text) {name, type, range, standard, text},
	VARIABLES(ROW){NULL, NULL, NULL, NULL, NULL}};

/* The state of one reading of all variables. */
struct reading {
	struct xpi_settings *s;
	struct xport_error *err;
	const struct xpi_variable *var;
	const char *source; /* "XPORT_BACKEND" or "xport_attr.backend" */
	const char *value;
	const char *log_file;
	const char *key_file;
};

static int setting_bad(const struct reading *r, const char *why)
{
	return xpi_fail(r->err, XPORT_ERR_CONFIG, 0, NULL, NULL, "%s=%.100s: %s; allowed: %s", r->source, r->value, why,
	                r->var->range);
}

/* ---- Types -------------------------------------------------------------------------------------------------- */

/* Reads decimal digits at *s, and moves *s past them.  Returns false if there are none, or more than 32 bits. */
static bool digits(const char **s, uint32_t *n)
{
	uint64_t v = 0;
	const char *p = *s;

	while (*p >= '0' && *p <= '9' && v <= UINT32_MAX)
		v = 10 * v + (uint64_t)(*p++ - '0');
	if (p == *s || v > UINT32_MAX)
		return false;
	*s = p;
	*n = (uint32_t)v;
	return true;
}

/* A number needs a unit, because a bare 5 is ambiguous.  0 needs none. */
static int read_time(const struct reading *r, int min_ms, bool or_zero, int *ms)
{
	static const struct {
		const char *name;
		uint32_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", HOUR_MS}};
	const char *unit = r->value;
	uint64_t v = 0;
	uint32_t n;
	size_t i;

	if (!digits(&unit, &n))
		return setting_bad(r, "not a time such as 500ms or 5s");
	if (n == 0 && *unit == '\0') {
		*ms = 0;
		return or_zero ? XPORT_OK : setting_bad(r, "out of range");
	}
	if (*unit == '\0')
		return setting_bad(r, "a time needs a unit: ms, s, m or h");
	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(unit, units[i].name) == 0)
			break;
	if (i == sizeof(units) / sizeof(units[0]))
		return setting_bad(r, "the unit is not ms, s, m or h");
	v = (uint64_t)n * units[i].ms;
	if (v > HOUR_MS || (v < (uint64_t)min_ms && !(or_zero && v == 0)))
		return setting_bad(r, "out of range");
	*ms = (int)v;
	return XPORT_OK;
}

struct word {
	const char *name;
	uint32_t bits;
};

/* Reads a list of words, separated by commas, and combines their bits by |.  The table ends with a NULL name. */
static int read_words(const struct reading *r, const struct word *words, uint32_t *bits)
{
	const char *p = r->value;

	*bits = 0;
	for (;;) {
		size_t n = strcspn(p, ",");
		const struct word *w = words;
		char why[192], item[65];
		struct xpi_nearest near = xpi_nearest(item);

		while (w->name != NULL && (strlen(w->name) != n || memcmp(w->name, p, n) != 0))
			w++;
		if (w->name == NULL) {
			snprintf(item, sizeof(item), "%.*s", (int)(n < sizeof(item) ? n : sizeof(item) - 1), p);
			for (w = words; w->name != NULL; w++)
				xpi_nearest_look(&near, w->name);
			snprintf(why, sizeof(why), "\"%s\" is unknown%s%s%s", item,
			         near.name != NULL ? ", did you mean " : "", near.name != NULL ? near.name : "",
			         near.name != NULL ? "?" : "");
			return setting_bad(r, why);
		}
		*bits |= w->bits;
		if (p[n] == '\0')
			return XPORT_OK;
		p += n + 1;
	}
}

/* Reads one of two words; *v is true for the second. */
static int read_either(const struct reading *r, const char *no, const char *yes, bool *v)
{
	if (strcmp(r->value, no) != 0 && strcmp(r->value, yes) != 0)
		return setting_bad(r, "unknown");
	*v = strcmp(r->value, yes) == 0;
	return XPORT_OK;
}

/* ---- Variables ---------------------------------------------------------------------------------------------- */

static int read_BACKEND(struct reading *r)
{
	if (strlen(r->value) >= sizeof(r->s->backend))
		return setting_bad(r, "longer than 255 bytes");
	strcpy(r->s->backend, r->value);
	return XPORT_OK;
}

static int read_REQUIRE(struct reading *r)
{
	static const struct word words[] = {{"target_bounds", XPI_REQUIRE_TARGET_BOUNDS},
	                                    {"passive_target", XPI_REQUIRE_PASSIVE_TARGET},
	                                    {"traffic_class", XPI_REQUIRE_TRAFFIC_CLASS},
	                                    {NULL, 0}};

	return read_words(r, words, &r->s->require);
}

static int read_EMULATE(struct reading *r)
{
	static const struct word words[] = {{"put", XPI_EMULATE_PUT},       {"get", XPI_EMULATE_GET},
	                                    {"atomic", XPI_EMULATE_ATOMIC}, {"cma", XPI_EMULATE_CMA},
	                                    {"all", XPI_EMULATE_ALL},       {NULL, 0}};

	return read_words(r, words, &r->s->emulate);
}

static int read_PROGRESS(struct reading *r)
{
	static const char thread[] = "thread";
	const char *p = r->value;
	cpu_set_t set;

	r->s->progress_cores[0] = '\0';
	r->s->progress_thread = strncmp(p, thread, sizeof(thread) - 1) == 0;
	if (!r->s->progress_thread)
		return strcmp(p, "poll") == 0 ? XPORT_OK : setting_bad(r, "unknown");
	p += sizeof(thread) - 1;
	if (*p == '\0')
		return XPORT_OK;
	if (*p++ != '@')
		return setting_bad(r, "unknown");
	if (strlen(p) >= sizeof(r->s->progress_cores))
		return setting_bad(r, "the list of cores is longer than 135 bytes");
	if (strcmp(p, "device") != 0 && !xpi_node_list(p, &set))
		return setting_bad(r, "the part after @ is neither \"device\" nor a list of cores");
	strcpy(r->s->progress_cores, p);
	return XPORT_OK;
}

static int read_LIVENESS(struct reading *r)
{
	return read_either(r, "poll", "thread", &r->s->liveness_thread);
}

static int read_PEER_TIMEOUT(struct reading *r)
{
	return read_time(r, 200, false, &r->s->peer_timeout_ms);
}

static int read_OP_TIMEOUT(struct reading *r)
{
	return read_time(r, 1, true, &r->s->op_timeout_ms);
}

static int setting_read_number(const struct reading *r, uint32_t max, uint32_t *v)
{
	const char *p = r->value;
	uint32_t n;

	if (!digits(&p, &n) || *p != '\0')
		return setting_bad(r, "not a number");
	if (n < 1 || n > max)
		return setting_bad(r, "out of range");
	*v = n;
	return XPORT_OK;
}

static int read_QUEUE_DEPTH(struct reading *r)
{
	return setting_read_number(r, 1048576, &r->s->queue_depth);
}

static int read_PEER_CONNECTIONS(struct reading *r)
{
	return setting_read_number(r, 65536, &r->s->peer_connections);
}

static int read_FLIGHT(struct reading *r)
{
	const char *unit = r->value;
	uint32_t n;

	if (!digits(&unit, &n) || unit[0] == '\0' || unit[1] != '\0' || strchr("kmg", unit[0]) == NULL)
		return setting_bad(r, "not a size such as 64m");
	for (const char *p = "kmg"; *p != '\0'; p++) {
		if (n > FLIGHT_MAX >> 10)
			return setting_bad(r, "out of range");
		n <<= 10;
		if (*p == *unit)
			break;
	}
	if (n < FLIGHT_MIN)
		return setting_bad(r, "out of range");
	r->s->flight = n;
	return XPORT_OK;
}

static const char *const levels[] = {NULL, "error", "warn", "info", "debug"};

static int read_LOG(struct reading *r)
{
	size_t n = strcspn(r->value, ",");

	for (int level = XPORT_LOG_ERROR; level <= XPORT_LOG_DEBUG; level++) {
		if (strlen(levels[level]) != n || memcmp(levels[level], r->value, n) != 0)
			continue;
		r->s->log.level = level;
		if (r->value[n] == ',' && r->value[n + 1] == '\0')
			return setting_bad(r, "no file follows the comma");
		r->log_file = r->value[n] == ',' ? r->value + n + 1 : NULL;
		return XPORT_OK;
	}
	return setting_bad(r, "the level is unknown");
}

static int read_AUTH(struct reading *r)
{
	r->s->auth_none = strcmp(r->value, "none") == 0;
	return r->s->auth_none ? XPORT_OK : setting_bad(r, "unknown");
}

static int read_AUTH_KEY_FILE(struct reading *r)
{
	r->key_file = r->value;
	return XPORT_OK;
}

/* The back end shm opens it. */
static int read_SHM_DIR(struct reading *r)
{
	if (strlen(r->value) >= sizeof(r->s->shm_dir))
		return setting_bad(r, "longer than 255 bytes");
	strcpy(r->s->shm_dir, r->value);
	return XPORT_OK;
}

/* The back end chaos reads the words.  Here only its presence is checked. */
static int read_CHAOS(struct reading *r)
{
	const struct xpi_registry_entry *e = xpi_registry();

	while (e->name != NULL && strcmp(e->name, "chaos") != 0)
		e++;
	if (e->name == NULL || e->why_not != NULL)
		return setting_bad(r, "chaos is not in this build (configure --enable-chaos)");
	if (strlen(r->value) >= sizeof(r->s->chaos))
		return setting_bad(r, "longer than 255 bytes");
	strcpy(r->s->chaos, r->value);
	return XPORT_OK;
}

static int read_LATENCY(struct reading *r)
{
	return read_either(r, "0", "1", &r->s->latency);
}

static int read_TRAFFIC_CLASS(struct reading *r)
{
	for (int c = XPORT_TRAFFIC_BULK; xpi_traffic_valid(c); c++) {
		if (strcmp(r->value, xpi_traffic_name(c)) != 0)
			continue;
		r->s->traffic_class = c;
		return XPORT_OK;
	}
	return setting_bad(r, "unknown");
}

static int read_STRICT(struct reading *r)
{
	return read_either(r, "0", "1", &r->s->strict);
}

static int (*const readers[])(struct reading *) = {
#define READER(id, name, type, range, standard, text) read_##id,
	VARIABLES(READER)};

/* ---- Attributes --------------------------------------------------------------------------------------------- */

/*
 * Returns the field of xport_attr that replaces a variable, written as the variable would be, or NULL if it is not set.
 * So one check serves both.  The log level is not among them, because it does not replace the file.
 */
static const char *attr_value(const struct xport_attr *a, enum variable var, char *buf, size_t len, const char **field)
{
	switch (var) {
	case VAR_BACKEND:
		*field = "xport_attr.backend";
		return a->backend;
	case VAR_REQUIRE:
		*field = "xport_attr.require";
		return a->require;
	case VAR_EMULATE:
		*field = "xport_attr.emulate";
		return a->emulate;
	case VAR_PROGRESS:
		*field = "xport_attr.progress";
		return a->progress;
	case VAR_PEER_TIMEOUT:
		*field = "xport_attr.peer_timeout_ms";
		snprintf(buf, len, "%dms", a->peer_timeout_ms);
		return a->peer_timeout_ms != 0 ? buf : NULL;
	case VAR_OP_TIMEOUT:
		*field = "xport_attr.op_timeout_ms";
		snprintf(buf, len, a->op_timeout_ms == -1 ? "0" : "%dms", a->op_timeout_ms);
		return a->op_timeout_ms != 0 ? buf : NULL;
	case VAR_QUEUE_DEPTH:
		*field = "xport_attr.queue_depth";
		snprintf(buf, len, "%u", (unsigned)a->queue_depth);
		return a->queue_depth != 0 ? buf : NULL;
	case VAR_TRAFFIC_CLASS:
		*field = "xport_attr.traffic_class";
		return a->traffic_class != XPORT_TRAFFIC_DEFAULT ? xpi_traffic_name((int)a->traffic_class) : NULL;
	default:
		return NULL;
	}
}

/* Copies *attr, unless it is NULL, to *own in the size of this library, and makes *attr point there. */
static int take_attr(const struct xport_attr **attr, struct xport_attr *own, struct xport_error *err)
{
	int rc = *attr != NULL ? xpi_grow_in(own, sizeof(*own), XPI_FIRST_ATTR, *attr) : XPORT_OK;

	if (rc == XPORT_ERR_INVALID)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "set xport_attr.size to sizeof(struct xport_attr)",
		                "xport_attr.size=%zu, but the struct has %zu bytes", (*attr)->size, sizeof(*own));
	if (rc != XPORT_OK)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "use a library as new as the header",
		                "xport_attr sets a field that this version of the library does not know");
	if (*attr != NULL)
		*attr = own;
	return XPORT_OK;
}

static int check_attr(const struct xport_attr *a, struct xport_error *err)
{
	if (a->thread_mode < XPORT_THREAD_DEFAULT || a->thread_mode > XPORT_THREAD_MULTIPLE)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, NULL,
		                "xport_attr.thread_mode=%d is not one of enum xport_thread_mode", a->thread_mode);
	if (a->log_level < 0 || a->log_level > XPORT_LOG_DEBUG)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, NULL,
		                "xport_attr.log_level=%d is not one of enum xport_log_level", a->log_level);
	if (!xpi_traffic_valid(a->traffic_class))
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, NULL,
		                "xport_attr.traffic_class=%lld is not one of enum xport_traffic",
		                (long long)a->traffic_class);
	return XPORT_OK;
}

/* ---- All variables -------------------------------------------------------------------------------------------- */

static int read_variable(struct reading *r, const struct xport_attr *attr, enum variable var)
{
	const char *value = NULL, *field = NULL;
	char number[32];

	r->var = &xpi_variables[var];
	if (attr != NULL)
		value = attr_value(attr, var, number, sizeof(number), &field);
	r->source = field;
	if (value == NULL || *value == '\0') {
		value = secure_getenv(r->var->name);
		r->source = r->var->name;
	}
	if (value == NULL || *value == '\0')
		value = r->var->standard;
	r->value = value;
	return *value == '\0' ? XPORT_OK : readers[var](r);
}

bool xpi_settings_variable(int row, struct xport_variable *v)
{
	struct xport_error err = {.size = sizeof(err)};
	struct xpi_settings scratch = {.log.fd = -1};
	struct reading r = {.s = &scratch, .err = &err};
	const struct xpi_variable *var;

	if (row < 0 || row >= VAR_COUNT)
		return false;
	var = &xpi_variables[row];
	*v = (struct xport_variable){var->name, var->type, var->range, var->standard, var->text, NULL, ""};
	xpi_registry_enter();
	v->value = secure_getenv(var->name);
	if (v->value != NULL && *v->value == '\0')
		v->value = NULL;
	/* A reader only stores the value.  It opens no file. */
	if (read_variable(&r, NULL, (enum variable)row) != XPORT_OK)
		snprintf(v->problem, sizeof(v->problem), "%.*s", (int)sizeof(v->problem) - 1, err.text);
	xpi_registry_leave();
	return true;
}

static int open_log(struct reading *r)
{
	struct xpi_settings *s = r->s;
	struct stat st;
	int fd;

	if (r->log_file == NULL || s->log.fn != NULL)
		return XPORT_OK;
	/* O_NONBLOCK: a named pipe without a reader is an error, not a wait. */
	fd = xpi_fd_up(open(r->log_file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
	                    0600));
	if (fd < 0)
		return xpi_fail_errno(r->err, XPORT_ERR_CONFIG,
		                      errno == ELOOP ? "a symbolic link is not followed: name the file itself" : NULL,
		                      "XPORT_LOG: cannot open %.200s", r->log_file);
	/* The owner of an existing file could read the log. */
	if (fstat(fd, &st) == 0 && !S_ISCHR(st.st_mode) && st.st_uid != geteuid() && st.st_uid != 0) {
		close(fd);
		return xpi_fail(r->err, XPORT_ERR_CONFIG, 0, NULL,
		                "name a file of your own, or one that does not exist yet",
		                "XPORT_LOG: %.200s belongs to user %u", r->log_file, (unsigned)st.st_uid);
	}
	xpi_log_to(&s->log, fd);
	s->log_owned = true;
	return XPORT_OK;
}

static int read_key(const struct reading *r)
{
	if (r->key_file == NULL)
		return XPORT_OK;
	/* The key is the safer choice: it refuses a peer without the key. */
	if (r->s->auth_none)
		xpi_log(&r->s->log, XPORT_LOG_WARN, "0202",
		        "XPORT_AUTH=none is ignored, because XPORT_AUTH_KEY_FILE is set");
	return xpi_secret_read(r->key_file, &r->s->secret, r->err);
}

static int read_all(const struct xport_attr *attr, struct xpi_settings *s, struct xport_error *err)
{
	struct reading r = {.s = s, .err = err};
	struct xport_attr own;
	int rc;

	memset(s, 0, sizeof(*s));
	s->log = (struct xpi_log){.level = XPORT_LOG_WARN};
	xpi_log_to(&s->log, STDERR_FILENO);
	xpi_log_rate_init(&s->log, &s->log_rate);
	rc = take_attr(&attr, &own, err);
	if (rc == XPORT_OK && attr != NULL)
		rc = check_attr(attr, err);
	for (int i = 0; i < VAR_COUNT && rc == XPORT_OK; i++)
		rc = read_variable(&r, attr, (enum variable)i);
	if (rc != XPORT_OK)
		return rc;
	if (attr != NULL) {
		s->multiple = attr->thread_mode == XPORT_THREAD_MULTIPLE;
		s->log.fn = attr->log_fn;
		s->log.arg = attr->log_arg;
		s->log.level = attr->log_level != 0 ? attr->log_level : s->log.level;
	}
	s->multiple = s->multiple || s->progress_thread;
	rc = open_log(&r);
	if (rc == XPORT_OK)
		rc = read_key(&r);
	if (rc == XPORT_OK)
		rc = xpi_settings_names(s, err);
	if (rc != XPORT_OK)
		xpi_settings_fini(s);
	return rc;
}

int xpi_settings_read(const struct xport_attr *attr, struct xpi_settings *s, struct xport_error *err)
{
	int rc;

	xpi_registry_enter();
	rc = read_all(attr, s, err);
	xpi_registry_leave();
	return rc;
}

void xpi_settings_fini(struct xpi_settings *s)
{
	xpi_log_rate_end(&s->log);
	xpi_secret_free(s->secret);
	s->secret = NULL;
	if (s->log_owned)
		close(s->log.fd);
	s->log_owned = false;
	xpi_log_to(&s->log, STDERR_FILENO);
}
