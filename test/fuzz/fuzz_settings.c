/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_settings.c - the environment. The input is a list of variables with their values. No path of an input is opened,
 * except that the file of XPORT_AUTH_KEY_FILE may have any content.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* base/node.h */
#endif
#include <sys/stat.h>
#include <unistd.h>

#include "base/node.h"
#include "core/config/settings.h"
#include "fuzz/fuzz.h"

enum { UNKNOWN_NAME = 30, KEY_CONTENT = 31, VALUE_MAX = 300 };

static char key_path[64];

static void remove_key(void)
{
	unlink(key_path);
}

/* The file that XPORT_AUTH_KEY_FILE names, with this content. */
static void write_key(const void *content, size_t len, unsigned mode)
{
	static int fd = -1;

	if (fd < 0) {
		snprintf(key_path, sizeof(key_path), "/tmp/fuzz-settings-XXXXXX");
		fd = mkstemp(key_path);
		FUZZ_CHECK(fd >= 0);
		atexit(remove_key);
	}
	FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, content, len, 0) == (ssize_t)len);
	FUZZ_CHECK(fchmod(fd, mode) == 0);
	setenv("XPORT_AUTH_KEY_FILE", key_path, 1);
}

static void set_log(const char *value, bool to_stderr)
{
	const char *comma = strchr(value, ',');
	char with[VALUE_MAX + 64];

	if (comma != NULL && comma[1] != '\0')
		snprintf(with, sizeof(with), "%.*s,%s%s", (int)(comma - value), value,
		         comma[1] == '.' ? "/dev/null" : "/nonexistent/", comma[1] == '.' ? "" : comma + 1);
	else if (comma == NULL && !to_stderr)
		snprintf(with, sizeof(with), "%s,/dev/null", value);
	else
		snprintf(with, sizeof(with), "%s", value);
	setenv("XPORT_LOG", with, 1);
}

static void set_one(unsigned row, const char *value, size_t len, bool to_stderr)
{
	char with[VALUE_MAX + 64];

	if (row == KEY_CONTENT) {
		write_key(value, len, len % 7 == 6 ? 0644 : 0600);
	} else if (row == UNKNOWN_NAME) {
		snprintf(with, sizeof(with), "XPORT_%s", value);
		with[strcspn(with, "=")] = '\0';
		setenv(with, "1", 1);
	} else if (xpi_variables[row].name == NULL) {
		return;
	} else if (strcmp(xpi_variables[row].name, "XPORT_LOG") == 0) {
		set_log(value, to_stderr);
	} else if (strcmp(xpi_variables[row].name, "XPORT_AUTH_KEY_FILE") == 0) {
		snprintf(with, sizeof(with), "/nonexistent/%s", value);
		setenv(xpi_variables[row].name, value[0] != '\0' ? with : "", 1);
	} else {
		setenv(xpi_variables[row].name, value, 1);
	}
}

static void clear(void)
{
	extern char **environ;

	for (char **e = environ; *e != NULL;) {
		char name[VALUE_MAX + 64];

		if (strncmp(*e, "XPORT_", 6) != 0) {
			e++;
			continue;
		}
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		FUZZ_CHECK(unsetenv(name) == 0);
		e = environ;
	}
}

static void check_range(const struct xpi_settings *s)
{
	struct xport_variable v;
	cpu_set_t set;

	FUZZ_CHECK(strnlen(s->backend, sizeof(s->backend)) < sizeof(s->backend));
	FUZZ_CHECK(s->peer_timeout_ms >= 200 && s->peer_timeout_ms <= 3600000);
	FUZZ_CHECK(s->op_timeout_ms >= 0 && s->op_timeout_ms <= 3600000);
	FUZZ_CHECK(s->queue_depth >= 1 && s->queue_depth <= 1048576);
	FUZZ_CHECK(s->peer_connections >= 1 && s->peer_connections <= 65536);
	FUZZ_CHECK(s->progress_cores[0] == '\0' || (s->progress_thread && (strcmp(s->progress_cores, "device") == 0 ||
	                                                                   xpi_node_list(s->progress_cores, &set))));
	FUZZ_CHECK(s->log.level >= XPORT_LOG_ERROR && s->log.level <= XPORT_LOG_DEBUG);
	/* What xport_info shows as good or bad is what opening takes or refuses. */
	for (int i = 0; xpi_settings_variable(i, &v); i++)
		FUZZ_CHECK(v.problem[0] == '\0');
}

static void drop(void *arg, int level, const char *id, const char *line)
{
	(void)arg;
	(void)level;
	FUZZ_CHECK(id[0] != '\0' && line[0] != '\0');
}

int FUZZ_ENTRY(settings)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	unsigned mode = fuzz_u8(&in);
	struct xport_attr attr = {.size = sizeof(attr), .log_fn = drop};
	struct xport_error err = {.size = sizeof(err)};
	struct xpi_settings s;
	struct xport_variable v;
	int rows = 0, rc;

	clear();
	set_log("warn", (mode & 1) != 0);
	while (xpi_variables[rows].name != NULL)
		rows++;
	while (in.left > 0) {
		unsigned head = fuzz_u8(&in), row = head % 32;
		size_t len, want = fuzz_u8(&in) + (head >= 128 ? 44u : 0);
		uint8_t *block = fuzz_block(&in, want, &len);
		char value[VALUE_MAX] = "";

		memcpy(value, block, len);
		free(block);
		if (row < (unsigned)rows || row >= UNKNOWN_NAME)
			set_one(row, value, len, (mode & 1) != 0);
	}
	rc = xpi_settings_read((mode & 1) != 0 ? &attr : NULL, &s, &err);
	if (rc == XPORT_OK) {
		check_range(&s);
		xpi_settings_fini(&s);
	} else {
		FUZZ_CHECK(err.status == rc && err.text[0] != '\0');
		for (int i = 0; xpi_settings_variable(i, &v); i++)
			FUZZ_CHECK(strnlen(v.problem, sizeof(v.problem)) < sizeof(v.problem));
	}
	clear();
	return 0;
}
