/* SPDX-License-Identifier: BSD-3-Clause */
#include "used.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *path) __attribute__((noreturn));

static void die(const char *path)
{
	fprintf(stderr, "cannot read %s\n", path);
	_exit(1);
}

double used_number(const char *path, const char *word)
{
	FILE *f = fopen(path, "r");
	char line[256];
	double value = -1;

	while (f != NULL && value < 0 && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, word, strlen(word)) == 0)
			value = strtod(line + strlen(word), NULL);
	if (f != NULL)
		fclose(f);
	if (value < 0)
		die(path);
	return value;
}

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (dir == NULL)
		die("/proc/self/fd");
	for (struct dirent *e; (e = readdir(dir)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n - 1; /* its own */
}

struct used used_now(void)
{
	return (struct used){open_descriptors(), used_number("/proc/self/status", "VmRSS:")};
}
