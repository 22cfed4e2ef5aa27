/* SPDX-License-Identifier: BSD-3-Clause */
/* info_root.c - reads files of /proc, /sys and /dev, or of a tree that stands for them in tests. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/info.h"

static bool vpath(const struct info *info, char *buf, size_t len, const char *fmt, va_list args)
{
	size_t at = strlen(info->root);
	int n;

	if (at >= len)
		return false;
	memcpy(buf, info->root, at);
	n = vsnprintf(buf + at, len - at, fmt, args);
	return n >= 0 && (size_t)n < len - at;
}

bool info_path(const struct info *info, char *buf, size_t len, const char *fmt, ...)
{
	va_list args;
	bool ok;

	va_start(args, fmt);
	ok = vpath(info, buf, len, fmt, args);
	va_end(args);
	return ok;
}

const char *info_process(const struct info *info)
{
	static char folder[32];

	snprintf(folder, sizeof(folder), info->pid > 0 ? "/proc/%d" : "/proc/self", info->pid);
	return folder;
}

bool info_exists(const struct info *info, const char *fmt, ...)
{
	char path[1024];
	va_list args;
	bool ok;

	va_start(args, fmt);
	ok = vpath(info, path, sizeof(path), fmt, args);
	va_end(args);
	return ok && access(path, F_OK) == 0;
}

bool info_line(const struct info *info, char *buf, size_t len, const char *fmt, ...)
{
	char path[1024];
	va_list args;
	FILE *f;
	bool ok;

	buf[0] = '\0';
	va_start(args, fmt);
	ok = vpath(info, path, sizeof(path), fmt, args);
	va_end(args);
	f = ok ? fopen(path, "re") : NULL;
	if (f == NULL)
		return false;
	ok = fgets(buf, (int)len, f) != NULL;
	fclose(f);
	buf[strcspn(buf, "\n")] = '\0';
	return ok;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

bool info_each_file(const struct info *info, const char *folder, bool (*fn)(void *arg, const char *name), void *arg)
{
	struct dirent **entries;
	char path[1024];
	bool found = false;
	int n;

	if (!info_path(info, path, sizeof(path), "%s", folder))
		return false;
	n = scandir(path, &entries, visible, versionsort);
	for (int i = 0; i < n; i++) {
		found = found || fn(arg, entries[i]->d_name);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return found;
}

void info_append(char *list, size_t len, const char *fmt, ...)
{
	static const char more[] = ", ...";
	size_t at = strlen(list), left = len - at;
	va_list args;
	char item[256];

	va_start(args, fmt);
	vsnprintf(item, sizeof(item), fmt, args);
	va_end(args);
	if (at >= sizeof(more) && strcmp(list + at - (sizeof(more) - 1), more) == 0)
		return;
	if (strlen(item) + 2 + sizeof(more) < left)
		snprintf(list + at, left, "%s%s", at > 0 ? ", " : "", item);
	else if (sizeof(more) <= left)
		memcpy(list + at, more, sizeof(more));
}
