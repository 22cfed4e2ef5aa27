/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm.h - memory that another process of this host can map, from a key of fixed size.
 *
 * It is an anonymous file (memfd): no name in any file system, nothing left behind by a kill.  The peer reaches it as
 * /proc/PID/fd/FD and maps it only if it is the very file that the key was written for: its name carries 128 random
 * bits.  So a key of memory that is gone, or of a process that is gone, maps nothing, whatever took its place.  Nor can the
 * file become shorter than it was: its owner has sealed it, and who maps it looks.
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

/* Allocates zeroed memory.  SYSTEM and NO_MEMORY are described. */
int xpi_shm_alloc(struct xpi_shm *s, size_t length, struct xport_error *err);
void xpi_shm_free(struct xpi_shm *s);

/* Writes the key; `writable`: whether peers may map it for writing. */
void xpi_shm_pack(const struct xpi_shm *s, bool writable, uint8_t key[XPI_SHM_KEY]);

/* The process that made it, as the key says. */
pid_t xpi_shm_maker(const uint8_t key[XPI_SHM_KEY]);

/* Maps the first `length` bytes of a peer's memory, for writing as well if `writing`.  NULL: that much is not (or no longer)
 * there, or not to be written to, or it is of another host, or of a process that may not be looked into. */
void *xpi_shm_map(const uint8_t key[XPI_SHM_KEY], uint64_t length, bool writing);
/* The same for reading, if it was made by a process of our user, which *pid is. */
void *xpi_shm_map_own(const uint8_t key[XPI_SHM_KEY], uint64_t length, pid_t *pid);
void xpi_shm_unmap(void *base, size_t length);

#endif
