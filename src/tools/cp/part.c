/* SPDX-License-Identifier: BSD-3-Clause */
/* part.c - a file that is being written. */
#include "tools/cp/part.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/cp/plant.h"
#include "tools/cp/safe_path.h"

/* So much is written, and read back while it is in the processor's cache. */
enum { PIECE = 256 << 10 };

__attribute__((format(printf, 3, 4))) static bool fault(struct cp_part *p, int error, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(p->text, sizeof(p->text), format, args);
	va_end(args);
	p->error = error;
	if (error > 0 && error < CP_HAVE && n >= 0 && (size_t)n < sizeof(p->text))
		snprintf(p->text + n, sizeof(p->text) - (size_t)n, ": %s%s", strerror(error),
		         error == ENOSPC || error == EDQUOT ? " (free space there, then repeat the command)" : "");
	return false;
}

bool cp_part_init(struct cp_part *p)
{
	*p = (struct cp_part){.dir = -1, .fd = -1, .buf = malloc(PIECE), .summing = cp_sum_new()};
	return p->buf != NULL && p->summing != NULL;
}

void cp_part_fini(struct cp_part *p)
{
	cp_part_drop(p, false);
	free(p->buf);
	cp_sum_free(p->summing);
	p->buf = NULL;
	p->summing = NULL;
}

bool cp_part_is_open(const struct cp_part *p)
{
	return p->fd >= 0;
}

/* Whether the temporary name is still that of the file which is open. */
static bool part_is_named(const struct cp_part *p)
{
	struct stat st, named;

	return fstat(p->fd, &st) == 0 && fstatat(p->dir, p->temp, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       named.st_ino == st.st_ino && named.st_dev == st.st_dev;
}

void cp_part_drop(struct cp_part *p, bool remove)
{
	if (p->fd >= 0 && (remove || p->alone) && part_is_named(p))
		unlinkat(p->dir, p->temp, 0);
	if (p->fd >= 0)
		close(p->fd);
	if (p->dir >= 0)
		close(p->dir);
	p->fd = p->dir = -1;
}

/* ---- opening ---- */

/* A long name has no room for more; then its checksum stands for it. */
static void name_temp(char temp[CP_TEMP], const char *name, const char *more)
{
	uint64_t sum[2];
	int n = snprintf(temp, CP_TEMP, ".%s%s.xport-part", name, more);

	if (n > 0 && n < CP_TEMP)
		return;
	cp_sum_block(name, strlen(name), 0, sum);
	snprintf(temp, CP_TEMP, ".%016llx%016llx%s.xport-part", (unsigned long long)sum[1], (unsigned long long)sum[0],
	         more);
}

bool cp_part_own_temp(char temp[CP_TEMP], const char *name)
{
	unsigned long long random;
	char more[32];

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return false;
	snprintf(more, sizeof(more), ".%016llx", random);
	name_temp(temp, name, more);
	return true;
}

/* Whether it is a file of ours and nobody else's: neither a pipe that waits there, nor a file with another name, too. */
static bool is_plain(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_uid == geteuid();
}

/*
 * Opens what has the temporary name; -1 and EEXIST: that was nothing to write into, and is gone.  *made: nothing had it.
 * *ready: it has its permissions, and cannot be written to: its copy is about to give it its name, or was killed before.
 */
static int open_once(struct cp_part *p, bool *made, bool *ready)
{
	int fd = openat(p->dir, p->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	bool denied = fd < 0 && errno == EACCES;
	struct stat st;

	*made = fd >= 0;
	if (fd < 0 && errno == EEXIST)
		fd = openat(p->dir, p->temp, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	*ready = fd < 0 && errno == EACCES;
	if (*ready)
		fd = openat(p->dir, p->temp, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && denied && errno == ENOENT) { /* nobody's file is in the way, but the directory */
		errno = EACCES;
		return -1;
	}
	if (fd >= 0 && fstat(fd, &st) == 0 && (*made || is_plain(&st)))
		return fd;
	if (fd < 0 && errno != ELOOP && errno != ENXIO && errno != ENOENT && errno != EACCES)
		return -1;
	if (fd >= 0)
		close(fd);
	if (unlinkat(p->dir, p->temp, 0) == 0 || errno == ENOENT)
		errno = EEXIST;
	return -1;
}

/* *can: the file system has locks for it. */
static bool part_lock(struct cp_part *p, bool *can)
{
	int r;

	do
		r = flock(p->fd, LOCK_EX | LOCK_NB);
	while (r != 0 && errno == EINTR);
	/* EBADF: NFS locks no file that is open for reading alone. */
	*can = r == 0 || (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK && errno != EBADF);
	if (r == 0 || !*can)
		return true;
	if (errno == EWOULDBLOCK)
		return fault(p, CP_BUSY, "another copy to this name is in progress");
	return fault(p, errno, "locking the file");
}

/* Without locks two copies to one name would spoil each other.  Each has a file of its own, which none continues. */
static bool open_alone(struct cp_part *p)
{
	p->fd = -1;
	if (cp_part_own_temp(p->temp, p->name))
		p->fd = openat(p->dir, p->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	p->alone = p->fd >= 0;
	return p->alone || fault(p, errno, "creating the file");
}

/* Opens and locks it.  Until it is locked, another copy may finish it or take it away. */
static bool open_temp(struct cp_part *p)
{
	enum { TRIES = 8 };
	bool can, made, ready;

	for (int i = 0; i < TRIES; i++) {
		p->fd = open_once(p, &made, &ready);
		if (p->fd < 0 && errno == EEXIST)
			continue;
		if (p->fd < 0)
			return fault(p, errno, "creating the file");
		if (!part_lock(p, &can))
			return false;
		if (!can && made && part_is_named(p))
			unlinkat(p->dir, p->temp, 0);
		if (!can) {
			close(p->fd);
			return open_alone(p);
		}
		if (!ready && part_is_named(p)) {
			/* Until it is finished nobody else reads it, whatever an earlier copy had allowed, if there are permissions. */
			(void)fchmod(p->fd, 0600);
			return true;
		}
		if (ready && part_is_named(p)) /* the lock is ours: it was killed */
			unlinkat(p->dir, p->temp, 0);
		close(p->fd);
		p->fd = -1;
	}
	return fault(p, EAGAIN, "creating the file: its temporary name is already used");
}

/* Makes room, where the file system can; NFS, for one, cannot, and says when it writes at last that there is none. */
static bool part_allocate(struct cp_part *p, uint64_t size)
{
	int rc = fallocate(p->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size);
	bool cannot = (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) || cp_plant == CP_PLANT_LATE;

	p->unreserved = p->unreserved || cannot;
	return rc == 0 || cannot;
}

/* Finds out now whether there is room.  What has holes takes less than its size, nobody knows how much. */
static bool part_reserve(struct cp_part *p, bool sparse)
{
	if (p->size > INT64_MAX)
		return fault(p, EFBIG, "a size of %llu bytes", (unsigned long long)p->size);
	if (p->have > p->size && ftruncate(p->fd, (off_t)p->size) != 0)
		return fault(p, errno, "truncating the rest of an earlier copy");
	p->have = p->have < p->size ? p->have : p->size;
	p->unreserved = sparse;
	if (p->size == 0 || part_allocate(p, sparse ? 1 : p->size))
		return true;
	(void)fault(p, errno, "reserving %llu bytes", (unsigned long long)p->size);
	(void)!ftruncate(p->fd, (off_t)p->have); /* what was reserved before there was no more room */
	return false;
}

bool cp_part_open(struct cp_part *p, int root, const char *path, uint64_t size, bool sparse)
{
	const char *base;
	struct stat st;

	p->size = size;
	p->covered = p->sum[0] = p->sum[1] = 0;
	p->error = 0;
	p->text[0] = '\0';
	p->alone = false;
	p->dir = cp_safe_path_parent(root, path, &base);
	if (p->dir < 0)
		return fault(p, errno, "opening the target directory");
	snprintf(p->name, sizeof(p->name), "%s", base);
	name_temp(p->temp, p->name, "");
	if (fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		return fault(p, EISDIR, "a file would replace a directory");
	if (!open_temp(p))
		return false;
	p->have = fstat(p->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	return part_reserve(p, sparse);
}

/* ---- content ---- */

static bool write_piece(struct cp_part *p, const uint8_t *data, size_t n, uint64_t offset)
{
	while (n > 0) {
		ssize_t done = pwrite(p->fd, data, n, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return fault(p, done < 0 ? errno : ENOSPC, "writing");
		data += done;
		offset += (uint64_t)done;
		n -= (size_t)done;
	}
	return true;
}

/* Adds what the file has there to the checksum; false with error 0: the file is shorter. */
static bool sum_piece(struct cp_part *p, size_t n, uint64_t offset)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = pread(p->fd, p->buf + got, n - got, (off_t)(offset + got));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return fault(p, errno, "reading back");
		if (r == 0)
			return false;
		got += (size_t)r;
	}
	cp_sum_more(p->summing, p->buf, n);
	return true;
}

static bool within(struct cp_part *p, uint64_t offset, uint64_t length, uint64_t most)
{
	return (length > 0 && length <= most && offset <= p->size && length <= p->size - offset) ||
	       fault(p, EPROTO, "a block of %llu bytes at %llu", (unsigned long long)length,
	             (unsigned long long)offset);
}

static void part_count(struct cp_part *p, uint64_t length, const uint64_t sum[2])
{
	p->covered += length;
	cp_sum_add(p->sum, sum);
}

bool cp_part_block(struct cp_part *p, const struct cp_head *h, const void *data)
{
	const uint8_t *from = data;
	uint64_t sum[2];

	if (!within(p, h->offset, h->length, CP_BLOCK))
		return false;
	cp_sum_begin(p->summing, h->offset);
	for (size_t at = 0, n; at < h->length; at += n) {
		n = h->length - at < PIECE ? h->length - at : PIECE;
		if (!write_piece(p, from + at, n, h->offset + at))
			return false;
		if (cp_plant == CP_PLANT_STORED && !write_piece(p, (const uint8_t *)"?", 1, h->offset + at))
			return false;
		if (!sum_piece(p, n, h->offset + at))
			return p->error != 0 ? false : fault(p, EIO, "reading back, the file is shorter than written");
	}
	cp_sum_end(p->summing, sum);
	if (sum[0] != h->hash[0] || sum[1] != h->hash[1])
		return fault(p, EBADMSG, "the block at %llu differs from the one that was sent",
		             (unsigned long long)h->offset);
	part_count(p, h->length, sum);
	return true;
}

bool cp_part_check(struct cp_part *p, const struct cp_head *h, bool *same)
{
	uint64_t sum[2];

	*same = false;
	if (!within(p, h->offset, h->length, CP_BLOCK))
		return false;
	if (h->offset + h->length > p->have)
		return true;
	cp_sum_begin(p->summing, h->offset);
	for (size_t at = 0, n; at < h->length; at += n) {
		n = h->length - at < PIECE ? h->length - at : PIECE;
		if (!sum_piece(p, n, h->offset + at))
			return p->error == 0;
	}
	cp_sum_end(p->summing, sum);
	*same = sum[0] == h->hash[0] && sum[1] == h->hash[1];
	if (*same)
		part_count(p, h->length, sum);
	return true;
}

/* Where holes cannot be made there are zeros. */
static bool write_zeros(struct cp_part *p, uint64_t offset, uint64_t length)
{
	memset(p->buf, 0, PIECE);
	for (uint64_t at = 0, n; at < length; at += n) {
		n = length - at < PIECE ? length - at : PIECE;
		if (!write_piece(p, p->buf, (size_t)n, offset + at))
			return false;
	}
	return true;
}

bool cp_part_hole(struct cp_part *p, uint64_t offset, uint64_t length)
{
	uint64_t sum[2], old;

	if (!within(p, offset, length, UINT64_MAX))
		return false;
	cp_sum_hole(offset, length, sum);
	part_count(p, length, sum);
	old = offset < p->have ? p->have - offset : 0; /* behind it nothing was ever written */
	old = old < length ? old : length;
	if (old == 0 || fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)old) == 0)
		return true;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return fault(p, errno, "making a hole");
	return write_zeros(p, offset, old);
}

/* ---- the end ---- */

bool cp_sync_dir(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* O_PATH cannot be synced */
	bool synced = fd >= 0 && fsync(fd) == 0;
	int error = errno;

	if (fd >= 0)
		close(fd);
	errno = error;
	return synced;
}

static bool sync_file(struct cp_part *p)
{
	if (cp_plant == CP_PLANT_SYNC)
		sleep(10);
	if (cp_plant == CP_PLANT_LATE)
		return fault(p, ENOSPC, "syncing the file");
	return fsync(p->fd) == 0 || fault(p, errno, "syncing the file");
}

/* NFS, SMB and FUSE say when a descriptor is closed that what was written has no room.  The lock stays with the other. */
static bool part_flush(struct cp_part *p)
{
	int copy = dup(p->fd);

	return (copy >= 0 && close(copy) == 0) || fault(p, errno, "writing");
}

bool cp_part_finish(struct cp_part *p, const uint64_t sum[2], const struct cp_look *look)
{
	if (p->covered != p->size)
		return fault(p, EBADMSG, "%llu of %llu bytes arrived", (unsigned long long)p->covered,
		             (unsigned long long)p->size);
	if (sum[0] != p->sum[0] || sum[1] != p->sum[1])
		return fault(p, EBADMSG, "the checksum of the whole file differs from the source's");
	if (ftruncate(p->fd, (off_t)p->size) != 0)
		return fault(p, errno, "setting the file's size");
	/* Another copy to this name must be able to open it, or it could not see that it is locked. */
	if (fchmod(p->fd, (look->mode & 0777) | S_IRUSR) != 0)
		return fault(p, errno, "setting the file's permissions");
	if (futimens(p->fd, look->times) != 0)
		return fault(p, errno, "setting the file's times");
	if (((p->sync || p->unreserved) && !sync_file(p)) || !part_flush(p))
		return false;
	if (!part_is_named(p))
		return fault(p, CP_BUSY, "another process removed or replaced the temporary file");
	if (renameat(p->dir, p->temp, p->dir, p->name) != 0)
		return fault(p, errno, "renaming the file");
	if ((look->mode & S_IRUSR) == 0)
		(void)fchmod(p->fd, look->mode & 0777);
	close(p->fd);
	p->fd = -1;
	if (p->sync && !cp_sync_dir(p->dir))
		return fault(p, errno, "syncing the directory");
	cp_part_drop(p, false);
	return true;
}
