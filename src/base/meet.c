/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/meet.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/user.h"

/* A file is made a moment before its socket can be reached, so a young one is not taken for one that was left. */
enum { NAME = 6 + 32, SWEEP_AFTER_S = 10, SWEEP_MAX = 256 };

static void file_name(const uint64_t bits[2], char name[NAME + 1])
{
	snprintf(name, NAME + 1, "xport-%016llx%016llx", (unsigned long long)bits[0], (unsigned long long)bits[1]);
}

/* Below /proc/self/fd a path is short, and leads into the directory that was checked. */
static socklen_t address_of(const struct xpi_meet *m, const char *name, struct sockaddr_un *a)
{
	int n;

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	if (m->dir == 0)
		n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s", name);
	else
		n = snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%s", m->dir, name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* ---- the directory ---- */

static bool is_file_name(const char *name)
{
	return strlen(name) == NAME && strncmp(name, "xport-", 6) == 0 && strspn(name + 6, "0123456789abcdef") == 32;
}

static bool is_ours(const struct xpi_meet *m, const char *name, struct stat *st)
{
	if (fstatat(m->dir, name, st, AT_SYMLINK_NOFOLLOW) != 0)
		return false;
	errno = EACCES;
	return S_ISSOCK(st->st_mode) && xpi_user_is_ours(st->st_uid);
}

/* Whether no process has the socket open any more, in this or another container. */
static bool is_deserted(const struct xpi_meet *m, const char *name)
{
	int sock = xpi_fd_up(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	struct sockaddr_un a;
	socklen_t len = address_of(m, name, &a);
	bool deserted = false;

	if (sock < 0)
		return false;
	deserted = connect(sock, (struct sockaddr *)&a, len) != 0 && errno == ECONNREFUSED;
	close(sock);
	return deserted;
}

void xpi_meet_sweep(const struct xpi_meet *m, const char *path, const struct xpi_log *log, const char *id)
{
	DIR *dir = m->dir != 0 ? xpi_fd_dir(path) : NULL;
	struct dirent *e;
	struct stat st;
	int asked = 0;

	while (dir != NULL && asked < SWEEP_MAX && (e = readdir(dir)) != NULL) {
		if (!is_file_name(e->d_name) || !is_ours(m, e->d_name, &st) || time(NULL) - st.st_mtime < SWEEP_AFTER_S)
			continue;
		asked++;
		if (is_deserted(m, e->d_name) && unlinkat(m->dir, e->d_name, 0) == 0)
			xpi_log(log, XPORT_LOG_INFO, id, "removed %.200s/%s, left by a killed process", path,
			        e->d_name);
	}
	if (dir != NULL)
		closedir(dir);
}

static int check(const struct xpi_meet *m, const char *path, const struct stat *st, struct xport_error *err)
{
	struct sockaddr_un a;

	if (getuid() != geteuid()) /* files and senders would be of two users */
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "unset XPORT_SHM_DIR, or use one user (setresuid(2))",
		                "XPORT_SHM_DIR: the user of this process is %u, and its effective user %u",
		                (unsigned)getuid(), (unsigned)geteuid());
	if (!xpi_user_is_ours(st->st_uid) && st->st_uid != 0)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "name a directory of this user, or of root",
		                "XPORT_SHM_DIR: %.200s belongs to user %u", path, (unsigned)st->st_uid);
	if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0 && (st->st_mode & S_ISVTX) == 0)
		return xpi_fail(err, XPORT_ERR_CONFIG, 0, NULL, "chmod 700, or 1777 if several users share it",
		                "XPORT_SHM_DIR: other users could replace files in %.200s (mode %04o)", path,
		                (unsigned)st->st_mode & 07777);
	(void)address_of(m, "", &a);
	if (access(a.sun_path, W_OK | X_OK) != 0)
		return xpi_fail_errno(err, XPORT_ERR_CONFIG, errno == ENOENT ? "mount /proc, which this needs" : NULL,
		                      "XPORT_SHM_DIR: cannot make files in %.200s", path);
	return XPORT_OK;
}

int xpi_meet_open(struct xpi_meet *m, const char *path, struct xport_error *err)
{
	struct stat st;
	int rc;

	memset(m, 0, sizeof(*m));
	if (path == NULL || *path == '\0')
		return XPORT_OK;
	m->dir = xpi_fd_up(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (m->dir < 0 || fstat(m->dir, &st) != 0) {
		rc = xpi_fail_errno(err, XPORT_ERR_CONFIG, "mount one directory into each container",
		                    "XPORT_SHM_DIR: cannot open the directory %.200s", path);
		xpi_meet_close(m);
		return rc;
	}
	m->device = st.st_dev;
	m->inode = st.st_ino;
	rc = check(m, path, &st, err);
	if (rc != XPORT_OK)
		xpi_meet_close(m);
	return rc;
}

int xpi_meet_check(const char *path, struct xport_error *err)
{
	struct xpi_meet m;
	int rc = xpi_meet_open(&m, path, err);

	if (rc == XPORT_OK)
		xpi_meet_close(&m);
	return rc;
}

void xpi_meet_close(struct xpi_meet *m)
{
	if (m->dir > 0)
		close(m->dir);
	m->dir = 0;
}

/* ---- sockets ---- */

bool xpi_meet_bind(const struct xpi_meet *m, int sock, const uint64_t bits[2])
{
	struct sockaddr_un a;
	char name[NAME + 1];
	socklen_t len;
	int on = 1;

	file_name(bits, name);
	len = address_of(m, name, &a);
	/* The mode of an unbound socket becomes that of its file. */
	if (m->dir != 0 && fchmod(sock, S_IRUSR | S_IWUSR) != 0)
		return false;
	/* First: what is queued before has no sender. */
	if (m->dir != 0 && setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0)
		return false;
	return bind(sock, (struct sockaddr *)&a, len) == 0;
}

bool xpi_meet_connect(const struct xpi_meet *m, int sock, const uint64_t bits[2])
{
	struct sockaddr_un a;
	char name[NAME + 1];
	struct stat st;
	socklen_t len;

	file_name(bits, name);
	if (m->dir != 0 && !is_ours(m, name, &st))
		return false;
	len = address_of(m, name, &a);
	return connect(sock, (struct sockaddr *)&a, len) == 0;
}

/* Another process may know the directory by another path. */
bool xpi_meet_is_from(const struct xpi_meet *m, const struct xpi_mail *mail, const uint64_t bits[2])
{
	struct sockaddr_un a;
	char name[NAME + 1], from[sizeof(a.sun_path) + 1];
	const char *slash;
	socklen_t len;

	file_name(bits, name);
	if (m->dir == 0) {
		len = address_of(m, name, &a);
		return mail->from_len == len && memcmp(&mail->from, &a, len) == 0;
	}
	snprintf(from, sizeof(from), "%.*s", (int)sizeof(a.sun_path), mail->from.sun_path);
	slash = strrchr(from, '/');
	return slash != NULL && strcmp(slash + 1, name) == 0 && mail->has_user && xpi_user_is_ours(mail->user);
}

void xpi_meet_remove(const struct xpi_meet *m, const uint64_t bits[2])
{
	char name[NAME + 1];

	if (m->dir == 0)
		return;
	file_name(bits, name);
	(void)unlinkat(m->dir, name, 0);
}
