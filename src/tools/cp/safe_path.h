/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * safe_path.h - paths that cannot leave a directory: by openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS. If the
 * kernel lacks it, component by component without following links.
 *
 * ERRORS: -1 and errno. ELOOP: a part of the path is a symbolic link.
 */
#ifndef CP_SAFE_PATH_H
#define CP_SAFE_PATH_H

#include <stdbool.h>
#include <sys/types.h>

/* Why a path from a peer is refused, or NULL: relative, no empty, "." or ".." part, no part that is too long.
 * "" is allowed: the directory itself. */
const char *cp_path_fault(const char *path);
/* Whether a link at `path` that leads to `to` leads to something beneath the directory, by its words alone. */
bool cp_link_stays(const char *path, const char *to);

/* Opens an existing path beneath the directory, O_CLOEXEC and O_NOFOLLOW added. */
int cp_safe_path_open(int root, const char *path, int flags);
/* Opens the directory that holds `path`; *base is its last part. */
int cp_safe_path_parent(int root, const char *path, const char **base);

/*
 * If `path` is a symbolic link or goes through some that stay beneath the directory, it becomes the path without them.
 * False: EXDEV: they lead out; ENOSYS, EPERM: the kernel cannot tell; else what opening it says.
 */
bool cp_safe_path_follow(int root, char *path);

/* For tests: as on a kernel without openat2. */
void cp_safe_path_walk_only(bool on);

#endif
