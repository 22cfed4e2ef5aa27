/* SPDX-License-Identifier: BSD-3-Clause */
/* safe_path.c - opens only what is inside a directory. */
#include "tools/cp/safe_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/cp/wire.h"

static bool walk_only;

void cp_safe_path_walk_only(bool on)
{
	walk_only = on;
}

/* The length of the path's first part. */
static size_t part(const char *path)
{
	return strcspn(path, "/");
}

static bool is(const char *p, size_t n, const char *name)
{
	return strlen(name) == n && strncmp(p, name, n) == 0;
}

const char *cp_path_fault(const char *path)
{
	if (*path == '\0')
		return NULL;
	if (*path == '/')
		return "it is absolute";
	if (strlen(path) >= CP_PATH)
		return "it is too long";
	for (const char *p = path;; p++) {
		size_t n = part(p);

		if (n == 0)
			return "a part of it is empty";
		if (is(p, n, ".") || is(p, n, ".."))
			return "a part of it is . or ..";
		if (n > NAME_MAX)
			return "a part of it is longer than 255 bytes";
		p += n;
		if (*p == '\0')
			return NULL;
	}
}

/* Only at its beginning may it go up: a name before ".." could be a link itself, and the words would deceive. */
bool cp_link_stays(const char *path, const char *to)
{
	size_t depth = 0, up = 0;
	bool down = false;

	for (const char *p = path; *p != '\0'; p++)
		depth += *p == '/';
	if (*to == '/' || *to == '\0')
		return false;
	for (const char *p = to; *p != '\0'; p += *p == '/') {
		size_t n = part(p);

		if (is(p, n, "..")) {
			if (down || ++up > depth)
				return false;
		} else if (n > 0 && !is(p, n, ".")) {
			down = true;
		}
		p += n;
	}
	return true;
}

/* One step: a directory that is no link. */
static int safe_path_step(int at, const char *name, size_t n)
{
	char one[NAME_MAX + 1];

	memcpy(one, name, n);
	one[n] = '\0';
	return openat(at, one, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Without openat2.  The path has been looked at by cp_path_fault. */
static int safe_path_walk(int root, const char *path, int flags)
{
	int at = root, fd, err;

	for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
		int next = safe_path_step(at, path, (size_t)(slash - path));

		err = errno;
		if (at != root)
			close(at);
		errno = err == ENOTDIR ? ELOOP : err;
		if (next < 0)
			return -1;
		at = next;
	}
	fd = openat(at, *path != '\0' ? path : ".", flags | O_NOFOLLOW | O_CLOEXEC);
	err = errno;
	if (at != root)
		close(at);
	errno = err;
	return fd;
}

int cp_safe_path_open(int root, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_NOFOLLOW | O_CLOEXEC),
	                       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd;

	if (cp_path_fault(path) != NULL) {
		errno = EINVAL;
		return -1;
	}
	if (!walk_only) {
		fd = syscall(SYS_openat2, root, *path != '\0' ? path : ".", &how, sizeof(how));
		if (fd >= 0 ||
		    (errno != ENOSYS && errno != EPERM)) /* a sandbox may say EPERM to what it does not know */
			return (int)fd;
	}
	return safe_path_walk(root, path, flags);
}

/* Where an open directory or file stands. */
static bool safe_path_place(int fd, char path[PATH_MAX])
{
	char name[64];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, path, PATH_MAX);
	if (n < 0 || n >= PATH_MAX) {
		errno = n < 0 ? errno : ENAMETOOLONG;
		return false;
	}
	path[n] = '\0';
	return true;
}

bool cp_safe_path_follow(int root, char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
	char above[PATH_MAX], whole[PATH_MAX];
	bool good;
	size_t n;
	int fd;

	if (walk_only) {
		errno = ENOSYS;
		return false;
	}
	fd = (int)syscall(SYS_openat2, root, *path != '\0' ? path : ".", &how, sizeof(how));
	if (fd < 0)
		return false;
	good = safe_path_place(root, above) && safe_path_place(fd, whole);
	close(fd);
	if (!good)
		return false;
	n = strcmp(above, "/") == 0 ? 0 : strlen(above);
	errno = EXDEV;
	if (strncmp(whole, above, n) != 0 || (whole[n] != '/' && whole[n] != '\0') || strlen(whole + n) > CP_PATH)
		return false;
	strcpy(path, whole[n] == '/' ? whole + n + 1 : "");
	return true;
}

int cp_safe_path_parent(int root, const char *path, const char **base)
{
	const char *slash = strrchr(path, '/');
	char dir[CP_PATH];

	if (cp_path_fault(path) != NULL || *path == '\0') {
		errno = EINVAL;
		return -1;
	}
	*base = slash != NULL ? slash + 1 : path;
	memcpy(dir, path, slash != NULL ? (size_t)(slash - path) : 0);
	dir[slash != NULL ? slash - path : 0] = '\0';
	return cp_safe_path_open(root, dir, O_PATH | O_DIRECTORY);
}
