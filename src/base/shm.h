/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm.h - memory that another process of this host can map, from a key of fixed size.
 *
 * It is an anonymous file (memfd): it has no name in a file system, and a kill leaves nothing behind. The peer opens it
 * as /proc/PID/fd/FD. It maps it only if it is the file that the key was written for: its name has 128 random bits. So
 * a key of memory or of a process that is gone maps nothing, whatever took its place. The file cannot become shorter:
 * its owner has sealed it, and the peer checks the seal. Only memory of a process of the same user is mapped. Another
 * user could change it at any time, and this process might act on it with more rights.
 */
#ifndef XPI_BASE_SHM_H
#define XPI_BASE_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct xpi_shm {
	void *base;
	size_t length;
	int fd;
	int32_t pid;
	uint64_t name[2];
};

enum { XPI_SHM_KEY = 40 };

/* Whether RLIMIT_FSIZE lets a file be that long: else making it would raise SIGXFSZ, which ends the process. */
bool xpi_file_allowed(uint64_t length);
/* What to do if it does not. */
#define XPI_FILE_HINT "raise `ulimit -f`; for a service LimitFSIZE"

/* Allocates zeroed memory.  SYSTEM and NO_MEMORY are described.  NOT_SUPPORTED: this system has, or allows, no memfd; errno
 * says which. */
int xpi_shm_alloc(struct xpi_shm *s, size_t length, struct xport_error *err);
void xpi_shm_free(struct xpi_shm *s);

/*
 * xpi_shm_fix - provide all pages now, seal the length, and forbid new writable mappings and holes.
 *
 * An access to a page that the system cannot provide would end the process by SIGBUS. Linux before 5.1 does not know
 * the last seal (F_SEAL_FUTURE_WRITE).
 *
 * Returns the seals; -1: errno says why not.
 */
int xpi_shm_fix(const struct xpi_shm *s);
/* xpi_shm_protect - forbid new writable mappings, and writes by descriptor: only ours is left (Linux 5.1). */
void xpi_shm_protect(const struct xpi_shm *s);
/* xpi_shm_is_fixed - find out whether a peer has done so, with these seals. False: errno is ENOENT. */
bool xpi_shm_is_fixed(int fd, uint64_t length, int seals);

/* Writes the key; `writable`: whether peers may map it for writing. */
void xpi_shm_pack(const struct xpi_shm *s, bool writable, uint8_t key[XPI_SHM_KEY]);

/* The random name of the memory, as the key says. */
void xpi_shm_name(const uint8_t key[XPI_SHM_KEY], uint64_t name[2]);
/* The process that made it, as the key says. */
pid_t xpi_shm_maker(const uint8_t key[XPI_SHM_KEY]);

/*
 * xpi_shm_map - map the first `length` bytes of a peer's memory, for writing as well if `writing`.
 *
 * Returns NULL, and errno says why, if
 *   EACCES   the memory was made by another user, or the process that the key names is another user's, or this process
 *            may not look into it
 *   others   that much is not (or no longer) there, may not be written to, may become shorter, or is of another host
 */
void *xpi_shm_map(const uint8_t key[XPI_SHM_KEY], uint64_t length, bool writing);
/* xpi_shm_map_lent - the same with a descriptor of the memory, which its owner has passed. The caller closes it. */
void *xpi_shm_map_lent(const uint8_t key[XPI_SHM_KEY], int fd, uint64_t length, bool writing);
/* xpi_shm_map_file - the same for a descriptor of the file, which must have `size` bytes. The caller closes it. */
void *xpi_shm_map_file(int fd, uint64_t size, uint64_t length, bool writing);
void xpi_shm_unmap(void *base, size_t length);

#endif
