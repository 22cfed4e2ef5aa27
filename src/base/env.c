/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ */
#endif
#include "base/env.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * An environment that was once in place.  A thread may be reading it still, and stacks keep pointers into it, so it stays
 * for ever; who asks for the same again, since loading failed, gets this one.
 */
struct copy {
	struct copy *next;
	char **environ;
	const char *assignments;
	size_t n; /* entries of the one it is made of, which come first */
	bool changed; /* by others, while it was in place */
};

static struct copy *copies;

static char **current(void)
{
	return __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
}

static void replace(char **all)
{
	__atomic_store_n(&environ, all, __ATOMIC_RELEASE);
}

static size_t count(char **all)
{
	size_t n = 0;

	while (all != NULL && all[n] != NULL)
		n++;
	return n;
}

static bool starts_like(const struct copy *c, char **all, size_t n)
{
	return !c->changed && c->n == n && (n == 0 || memcmp(c->environ, all, n * sizeof(*all)) == 0);
}

/* `name` is "NAME=...". */
static bool is_there(char **all, size_t n, const char *name)
{
	size_t len = strcspn(name, "=") + 1;

	for (size_t i = 0; i < n; i++)
		if (strncmp(all[i], name, len) == 0)
			return true;
	return false;
}

static struct copy *copy_new(char **all, size_t n, const char *assignments)
{
	struct copy *c = malloc(sizeof(*c) + (n + XPI_ENV_MAX + 1) * sizeof(*all) + strlen(assignments) + 1);
	char *words, *word, *rest;
	size_t to = n;

	if (c == NULL)
		return NULL;
	*c = (struct copy){.next = copies, .environ = (char **)(c + 1), .assignments = assignments, .n = n};
	words = memcpy(c->environ + n + XPI_ENV_MAX + 1, assignments, strlen(assignments) + 1);
	if (n > 0)
		memcpy(c->environ, all, n * sizeof(*all));
	for (word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
		if (to < n + XPI_ENV_MAX && !is_there(all, n, word))
			c->environ[to++] = word;
	c->environ[to] = NULL;
	return c;
}

void xpi_env_set(struct xpi_env *env, const char *assignments)
{
	char **all = current();
	size_t n = count(all);
	struct copy *c = copies;

	memset(env, 0, sizeof(*env));
	env->before = env->during = all;
	if (assignments[0] == '\0')
		return;
	while (c != NULL && !(strcmp(c->assignments, assignments) == 0 && starts_like(c, all, n)))
		c = c->next;
	if (c == NULL) {
		c = copy_new(all, n, assignments);
		if (c == NULL)
			return;
		copies = c;
	}
	for (size_t i = 0; c->environ[n + i] != NULL; i++)
		env->set[i] = c->environ[n + i];
	if (env->set[0] == NULL)
		return;
	env->during = c->environ;
	replace(c->environ);
}

static void take_out(char *assignment)
{
	size_t len = strcspn(assignment, "=");
	char name[128];

	if (len >= sizeof(name))
		return;
	memcpy(name, assignment, len);
	name[len] = '\0';
	if (getenv(name) == assignment + len + 1)
		unsetenv(name);
}

/* The one before is not looked at if another is in place than ours: setenv(3) may have freed it. */
static bool untouched(const struct xpi_env *env)
{
	size_t n, i = 0;

	if (current() != env->during)
		return false;
	n = count(env->before);
	if (n > 0 && memcmp(env->before, env->during, n * sizeof(*env->before)) != 0)
		return false;
	while (i < XPI_ENV_MAX && env->set[i] != NULL && env->during[n + i] == env->set[i])
		i++;
	return env->during[n + i] == NULL && (i == XPI_ENV_MAX || env->set[i] == NULL);
}

void xpi_env_restore(const struct xpi_env *env)
{
	if (env->during == env->before)
		return;
	if (untouched(env)) {
		replace(env->before);
		return;
	}
	/* The stack set variables of its own, or the application did: they stay. */
	for (struct copy *c = copies; c != NULL; c = c->next)
		c->changed = c->changed || c->environ == env->during;
	for (size_t i = 0; i < XPI_ENV_MAX && env->set[i] != NULL; i++)
		take_out(env->set[i]);
}
