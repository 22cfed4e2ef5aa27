/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* unshare, environ */
#endif
#include "core/config/module_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

struct loading {
	const char *path;
	char *why;
	size_t len;
	void *handle;
};

static void load(struct loading *l)
{
	const char *why;

	l->handle = dlopen(l->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (l->handle != NULL)
		return;
	why = dlerror();
	snprintf(l->why, l->len, "%s", why != NULL ? why : "no reason given");
}

/* ---- with more rights than the caller ---- */

/* Of the stacks, and of what they are built on. */
static bool of_a_stack(const char *variable)
{
	static const char *const prefixes[] = {"UCX_",  "UCS_",  "UCM_",  "FI_",  "OFI_", "RDMAV_", "RDMA_",
	                                       "IBV_",  "MLX4_", "MLX5_", "MLX_", "HFI_", "IPATH_", "PSM_",
	                                       "PSM2_", "PSM3_", "EFA_",  "RXM_", "RXD_", "CUDA_",  "GDRCOPY_"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

void xpi_load_prepare(void)
{
	char **to = environ;

	if (to == NULL || getauxval(AT_SECURE) == 0)
		return;
	/* By hand: what has no '=' unsetenv(3) leaves. */
	for (char *const *from = environ; *from != NULL; from++)
		if (!of_a_stack(*from))
			*to++ = *from;
	*to = NULL;
}

/* A thread's current directory is its own once it says so. */
static void *load_at_root(void *arg)
{
	struct loading *l = arg;

	if (unshare(CLONE_FS) != 0 || chdir("/") != 0)
		snprintf(l->why, l->len, "a set-user-ID program cannot leave the current directory to load it");
	else
		load(l);
	return NULL;
}

static void load_securely(struct loading *l)
{
	char *home = getenv("HOME");
	pthread_t thread;

	home = home != NULL ? strdup(home) : NULL;
	setenv("HOME", "/", 1);
	if (pthread_create(&thread, NULL, load_at_root, l) == 0)
		pthread_join(thread, NULL);
	else
		snprintf(l->why, l->len, "no thread to load it in");
	if (home != NULL)
		setenv("HOME", home, 1);
	else
		unsetenv("HOME");
	free(home);
}

void *xpi_load(const char *path, char *why, size_t len)
{
	struct loading l = {.path = path, .why = why, .len = len};

	if (path[0] != '/')
		snprintf(why, len, "its path is not absolute: %s", path);
	else if (getauxval(AT_SECURE) != 0)
		load_securely(&l);
	else
		load(&l);
	return l.handle;
}
