/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/user.h"

enum { NAME_MAX_LEN = 64 };

static void name_of(const uint64_t bits[2], char name[NAME_MAX_LEN])
{
	snprintf(name, NAME_MAX_LEN, "xport-%016llx%016llx", (unsigned long long)bits[0], (unsigned long long)bits[1]);
}

bool xpi_file_allowed(uint64_t length)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || length <= limit.rlim_cur;
}

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

/* Never to be executed, which some systems ask of every such file (vm.memfd_noexec); Linux before 6.3 does not know that. */
static int make_file(const char *name)
{
	int fd = xpi_fd_up(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));

	return fd >= 0 || errno != EINVAL ? fd : xpi_fd_up(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

/* errno tells why not. */
static bool make(struct xpi_shm *s, size_t length)
{
	char name[NAME_MAX_LEN];
	int e;

	memset(s, 0, sizeof(*s));
	s->fd = -1;
	if (length > SIZE_MAX >> 17) {
		errno = ENOMEM;
		return false;
	}
	if (!xpi_file_allowed(length)) {
		errno = EFBIG;
		return false;
	}
	if (getrandom(s->name, sizeof(s->name), 0) != sizeof(s->name))
		return false;
	name_of(s->name, name);
	s->fd = make_file(name);
	if (s->fd < 0)
		return false;
	if (ftruncate(s->fd, (off_t)length) == 0) {
		(void)fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK); /* nobody maps it where that cannot be */
		s->base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
		s->length = length;
		s->pid = getpid();
		if (s->base != MAP_FAILED)
			return true;
	}
	e = errno;
	close(s->fd);
	s->base = NULL;
	errno = e;
	return false;
}

int xpi_shm_alloc(struct xpi_shm *s, size_t length, struct xport_error *err)
{
	if (make(s, length))
		return XPORT_OK;
	/* Of these errors none is a lack: the kernel has no such files, or a filter of system calls forbids them. */
	if (s->fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES || errno == EINVAL))
		return XPORT_ERR_NOT_SUPPORTED;
	if (errno == EFBIG)
		return xpi_fail_errno(err, XPORT_ERR_NO_MEMORY, XPI_FILE_HINT,
		                      "the limit of file sizes does not allow shared memory of %zu bytes", length);
	return errno == EMFILE || errno == ENFILE
	               ? xpi_fail_errno(err, XPORT_ERR_SYSTEM, NULL, "cannot create a descriptor for shared memory")
	               : xpi_fail_errno(err, XPORT_ERR_NO_MEMORY, NULL, "cannot allocate %zu bytes of shared memory",
	                                length);
}

void xpi_shm_free(struct xpi_shm *s)
{
	if (s->base == NULL)
		return;
	munmap(s->base, s->length);
	close(s->fd);
	s->base = NULL;
}

int xpi_shm_fix(const struct xpi_shm *s)
{
	static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int rc;

	do
		rc = fallocate(s->fd, 0, 0, (off_t)s->length);
	while (rc != 0 && errno == EINTR);
	if (rc != 0)
		return -1;
	if (fcntl(s->fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) == 0)
		return seals | F_SEAL_FUTURE_WRITE;
	return fcntl(s->fd, F_ADD_SEALS, seals) == 0 ? seals : -1;
}

void xpi_shm_protect(const struct xpi_shm *s)
{
	(void)fcntl(s->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
}

bool xpi_shm_is_fixed(int fd, uint64_t length, int seals)
{
	int has = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (has >= 0 && (has & seals) == seals && fstat(fd, &st) == 0 && (uint64_t)st.st_blocks * 512 >= length)
		return true;
	errno = ENOENT;
	return false;
}

void xpi_shm_pack(const struct xpi_shm *s, bool writable, uint8_t key[XPI_SHM_KEY])
{
	struct xpi_wr w = xpi_wr(key, XPI_SHM_KEY);

	xpi_wr_u64(&w, s->name[0]);
	xpi_wr_u64(&w, s->name[1]);
	xpi_wr_u64(&w, s->length);
	xpi_wr_u32(&w, (uint32_t)s->pid);
	xpi_wr_u32(&w, (uint32_t)s->fd);
	xpi_wr_u64(&w, writable);
}

/* Whether the file has that name; it need not be open for anything (O_PATH). */
static bool is_named(int fd, const uint64_t bits[2])
{
	char name[NAME_MAX_LEN], path[NAME_MAX_LEN], is[128], wanted[128];
	ssize_t n;

	name_of(bits, name);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(wanted, sizeof(wanted), "/memfd:%s (deleted)", name);
	n = readlink(path, is, sizeof(is) - 1);
	if (n < 0)
		return false;
	is[n] = '\0';
	if (strcmp(is, wanted) == 0)
		return true;
	errno = ENOENT;
	return false;
}

/*
 * Opens /proc/PID of the process, if it is one of our user.  What is opened below is of that process, also if its number
 * passes to another one meanwhile.  -1: errno says why not.
 */
static int open_process(uint32_t pid)
{
	char path[NAME_MAX_LEN];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u", pid);
	fd = xpi_fd_up(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0 || (fstat(fd, &st) == 0 && xpi_user_is_ours(st.st_uid)))
		return fd;
	close(fd);
	errno = EACCES;
	return -1;
}

/*
 * Opens the file of that name; nothing else is opened on the way, which might never come back.  Nor is a lease on it waited for,
 * which its maker may have, and which the kernel ends only after 45 s.  -1: errno says why not.
 */
static int open_named(uint32_t maker, uint32_t theirs, const uint64_t bits[2], int flags)
{
	char path[NAME_MAX_LEN];
	int process = open_process(maker), at, fd = -1, e;

	if (process < 0)
		return -1;
	snprintf(path, sizeof(path), "fd/%u", theirs);
	at = xpi_fd_up(openat(process, path, O_PATH | O_CLOEXEC));
	e = errno;
	close(process);
	if (at >= 0) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
		if (is_named(at, bits))
			fd = xpi_fd_up(open(path, flags | O_NONBLOCK | O_CLOEXEC));
		e = errno;
		close(at);
	}
	errno = e;
	return fd;
}

/* Whether it is as long as was said, and stays so.  Of huge pages a hole may be made without one left to fill it. */
static bool is_whole(int fd, const struct stat *st, uint64_t length)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;

	if ((uint64_t)st->st_size == length && seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstatfs(fd, &fs) == 0 &&
	    fs.f_type != HUGETLBFS_MAGIC)
		return true;
	errno = ENOENT;
	return false;
}

/* Whether a process of our user made it. */
static bool is_ours(const struct stat *file)
{
	if (xpi_user_is_ours(file->st_uid))
		return true;
	errno = EACCES;
	return false;
}

void *xpi_shm_map_file(int fd, uint64_t size, uint64_t length, bool writing)
{
	void *base = MAP_FAILED;
	struct stat st;

	if (fstat(fd, &st) == 0 && is_ours(&st) && is_whole(fd, &st, size))
		base = mmap(NULL, length, writing ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	return base == MAP_FAILED ? NULL : base;
}

struct key {
	uint64_t bits[2], size;
	uint32_t maker, fd;
	bool writable;
};

/* Whether it lets so much be mapped; else errno is EINVAL. */
static bool key_read(const uint8_t bytes[XPI_SHM_KEY], uint64_t length, bool writing, struct key *key)
{
	struct xpi_rd r = xpi_rd(bytes, XPI_SHM_KEY);

	key->bits[0] = xpi_rd_u64(&r);
	key->bits[1] = xpi_rd_u64(&r);
	key->size = xpi_rd_u64(&r);
	key->maker = xpi_rd_u32(&r);
	key->fd = xpi_rd_u32(&r);
	key->writable = xpi_rd_u64(&r) != 0;
	errno = EINVAL;
	return length > 0 && length <= key->size && key->size <= SIZE_MAX / 2 && (!writing || key->writable);
}

void *xpi_shm_map(const uint8_t bytes[XPI_SHM_KEY], uint64_t length, bool writing)
{
	struct key key;
	void *base;
	int fd, e;

	if (!key_read(bytes, length, writing, &key))
		return NULL;
	fd = open_named(key.maker, key.fd, key.bits, writing ? O_RDWR : O_RDONLY);
	if (fd < 0)
		return NULL;
	base = xpi_shm_map_file(fd, key.size, length, writing);
	e = errno;
	close(fd);
	errno = e;
	return base;
}

void *xpi_shm_map_lent(const uint8_t bytes[XPI_SHM_KEY], int fd, uint64_t length, bool writing)
{
	struct key key;

	if (!key_read(bytes, length, writing, &key) || !is_named(fd, key.bits))
		return NULL;
	return xpi_shm_map_file(fd, key.size, length, writing);
}

void xpi_shm_name(const uint8_t bytes[XPI_SHM_KEY], uint64_t name[2])
{
	struct xpi_rd r = xpi_rd(bytes, XPI_SHM_KEY);

	name[0] = xpi_rd_u64(&r);
	name[1] = xpi_rd_u64(&r);
}

pid_t xpi_shm_maker(const uint8_t key[XPI_SHM_KEY])
{
	struct xpi_rd r = xpi_rd(key, XPI_SHM_KEY);

	(void)xpi_rd_bytes(&r, 3 * sizeof(uint64_t));
	return (pid_t)xpi_rd_u32(&r);
}

void xpi_shm_unmap(void *base, size_t length)
{
	munmap(base, length);
}
