/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * env.h - sets variables for a stack while it starts, although other threads may read the environment.
 *
 * setenv(3) may move `environ`, and frees memory that a getenv(3) of another thread still uses: of the application, or
 * of the C library on its behalf (localtime, getaddrinfo). So nothing is moved or freed here. A copy of the environment
 * with the variables replaces it, and the original is restored afterwards.
 */
#ifndef XPI_BASE_ENV_H
#define XPI_BASE_ENV_H

enum { XPI_ENV_MAX = 8 };

struct xpi_env {
	char **before, **during; /* `environ`; the same: nothing is set */
	char *set[XPI_ENV_MAX];
};

/*
 * Sets "NAME=value NAME=value", at most XPI_ENV_MAX, except those that are there: what the user said stands.  Without
 * memory nothing is set.  One caller at a time in a process.  No other thread may call setenv(3) during these calls: what
 * it sets may be lost.  What it sets between them is kept.
 */
void xpi_env_set(struct xpi_env *env, const char *assignments);
/* Takes them back. */
void xpi_env_restore(const struct xpi_env *env);

#endif
