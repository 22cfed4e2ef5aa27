/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_shm.c - the files in /dev/shm that libfabric's shm provider shares memory with: names, space, owners,
 * leftovers.
 *
 * libfabric (1.17) names a file by process and user, and takes over a file of that name if there is no process with
 * that number. Containers that share /dev/shm have equal process numbers: they used or deleted each other's files.
 * So here a file's name has 128 random bits, and a file of a killed process is recognised because no process has it
 * open.
 *
 * The file is sparse, and SIGBUS ends a process that writes to a page of it when /dev/shm is full. So its space is
 * allocated as soon as it exists.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/user.h"
#include "ofi.h"

enum { PAGE = 4096, SWEEP_AFTER_S = 1, RANDOM = 16, NAME = sizeof("xport-") - 1 + 2 * RANDOM };

/* Whether it is a name of libxport's files. */
static bool is_file_name(const char *name)
{
	return strlen(name) == NAME && strncmp(name, "xport-", 6) == 0 &&
	       strspn(name + 6, "0123456789abcdef") == 2 * RANDOM;
}

/* The file name in an endpoint's address; NULL: not one of libxport's. */
static const char *file_name(const struct ofi_ep *ep, const struct ofi_addr *a)
{
	const char *prefix = ep->be->quirk->shm_prefix, *name = (const char *)a->bytes;

	if (prefix == NULL || strncmp(name, prefix, strlen(prefix)) != 0 || !is_file_name(name + strlen(prefix)))
		return NULL;
	return name + strlen(prefix);
}

int ofi_shm_name(const struct ofi_ep *ep)
{
	uint8_t bits[RANDOM];
	char name[sizeof(ep->name.bytes)];
	int n;

	if (getrandom(bits, sizeof(bits), 0) != sizeof(bits))
		return -errno;
	n = snprintf(name, sizeof(name), "%sxport-", ep->be->quirk->shm_prefix);
	for (int i = 0; i < RANDOM; i++)
		n += snprintf(name + n, sizeof(name) - (size_t)n, "%02x", bits[i]);
	return fi_setname(&ep->fid->fid, name, (size_t)n + 1);
}

void ofi_shm_forget_name(const struct ofi_ep *ep)
{
	const char *name = file_name(ep, &ep->name);

	if (name != NULL)
		(void)shm_unlink(name);
}

/* ---- space ---- */

/* The part of libfabric's (1.17) file header that says which parts are used. */
struct layout {
	uint64_t begins[5];
	uint64_t total, counts[2];
	uint64_t commands, responses, small; /* offsets of its parts */
	uint64_t large;                      /* buffers for messages above the inject size: never sent here */
	uint64_t peers, name, socket;
};

/* A range of the file that needs space. */
struct span {
	uint64_t from, to;
};

/*
 * Finds the used ranges of the file. Another version of libfabric may have another layout: then the name is not at
 * its offset, and the whole file counts as used.
 */
static void used_spans(int fd, const char *name, uint64_t size, struct span used[2])
{
	struct layout l;
	char there[NAME + 1] = "";

	used[0] = (struct span){0, size};
	used[1] = (struct span){0, 0};
	if (pread(fd, &l, sizeof(l), 0) != sizeof(l) || l.total != size || l.large > size - PAGE || l.peers < l.large ||
	    l.name < l.peers || l.socket < l.name || l.socket > size - PAGE ||
	    pread(fd, there, sizeof(there), (off_t)l.name) != sizeof(there) || memcmp(there, name, sizeof(there)) != 0)
		return;
	used[0].to = l.large + PAGE; /* their free list comes first */
	used[1] = (struct span){l.peers, l.socket + PAGE};
}

/* Returns 0 or a negative errno. */
static int span_take(int fd, struct span s)
{
	int rc;

	if (s.to <= s.from)
		return 0;
	do
		rc = fallocate(fd, 0, (off_t)s.from, (off_t)(s.to - s.from));
	while (rc != 0 && errno == EINTR);
	return rc == 0 || errno == EOPNOTSUPP ? 0 : -errno;
}

/*
 * Frees the space after the last range: libfabric has filled it with zeros (a strncpy of the name), 7 MiB of an
 * endpoint's 8.
 */
static void span_give_back(int fd, uint64_t from, uint64_t size)
{
	if (from < size)
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(size - from));
}

int ofi_shm_reserve(const struct ofi_ep *ep)
{
	struct ofi_addr own = {.len = sizeof(own.bytes)};
	struct span used[2];
	const char *name;
	struct stat st;
	int fd, rc = fi_getname(&ep->fid->fid, own.bytes, &own.len);

	name = rc == 0 ? file_name(ep, &own) : NULL;
	if (name == NULL)
		return rc != 0 ? rc : -FI_EADDRNOTAVAIL;
	fd = xpi_fd_up(shm_open(name, O_RDWR | O_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	rc = fstat(fd, &st) == 0 ? 0 : -errno;
	if (rc == 0) {
		used_spans(fd, name, (uint64_t)st.st_size, used);
		rc = span_take(fd, used[0]);
		if (rc == 0)
			rc = span_take(fd, used[1]);
		if (rc == 0 && used[1].to > 0)
			span_give_back(fd, (used[1].to + PAGE - 1) / PAGE * PAGE, (uint64_t)st.st_size);
	}
	close(fd);
	return rc;
}

/* ---- the peer's ---- */

/* Whether only this user and root can replace files of libxport in /dev/shm. */
static bool dir_is_safe(void)
{
	struct stat st;

	return stat("/dev/shm", &st) == 0 && (st.st_uid == 0 || xpi_user_is_ours(st.st_uid)) &&
	       ((st.st_mode & S_ISVTX) != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) == 0);
}

/*
 * Whether it is a file of this user that nobody else can change or truncate. Truncation would end this process by
 * SIGBUS.
 */
static bool is_private(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && xpi_user_is_ours(st.st_uid) &&
	       (st.st_mode & (S_IRWXG | S_IRWXO)) == 0 && st.st_nlink == 1;
}

/*
 * Whether libfabric may use the peer's file. libfabric maps it and trusts every number in it, and it contains locks
 * and queues of both sides. So only processes of this user may have made it and may change it. shm (1.17) ignores
 * that it could not map a peer, and ends the process at the first message from there. So the peer's file must still
 * exist after libfabric has looked it up. Nothing is read before libfabric knows the peer: a message makes it map an
 * unknown peer (read_one).
 */
int ofi_shm_mappable(const struct ofi_ep *ep)
{
	const char *name = file_name(ep, &ep->peer[0]);
	bool may;
	int fd;

	if (ep->be->quirk->shm_prefix == NULL)
		return 0;
	if (name == NULL)
		return -FI_EADDRNOTAVAIL;
	fd = xpi_fd_up(shm_open(name, O_RDWR | O_CLOEXEC, 0));
	if (fd < 0)
		return errno == ENOENT ? -FI_EHOSTUNREACH : -errno;
	may = dir_is_safe() && is_private(fd);
	close(fd);
	return may ? 0 : -FI_EACCES;
}

/* ---- what a kill leaves ---- */

/* Whether no process has the file open or mapped, in this or another container: only then a lease is granted. */
static bool deserted(int dir, const char *name)
{
	int fd = xpi_fd_up(openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
	bool alone = false;

	if (fd < 0)
		return false;
	/* If a process opens it meanwhile, the kernel sends a signal that does nothing. */
	if (fcntl(fd, F_SETSIG, SIGURG) == 0)
		alone = fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
	close(fd);
	return alone;
}

void ofi_shm_sweep(const struct xpi_be *be)
{
	DIR *dir = xpi_fd_dir("/dev/shm");
	struct dirent *e;
	struct stat st;

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		if (!is_file_name(e->d_name) || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !S_ISREG(st.st_mode) || !xpi_user_is_ours(st.st_uid) || time(NULL) - st.st_mtime < SWEEP_AFTER_S)
			continue;
		if (deserted(dirfd(dir), e->d_name) && unlinkat(dirfd(dir), e->d_name, 0) == 0)
			xpi_log(be->log, XPORT_LOG_INFO, "3013", "ofi: removed /dev/shm/%s, left by a killed process",
			        e->d_name);
	}
	if (dir != NULL)
		closedir(dir);
}
