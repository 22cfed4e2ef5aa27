/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two instances of the back end shm in one process, with a core of a few lines, and endpoints between them. */
#ifndef TEST_SHM_PAIR_H
#define TEST_SHM_PAIR_H

#include <stdio.h>
#include <stdlib.h>

#include "backends/shm/shm.h"

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			printf("FAILED: %s:%d: not so: %s (%s)\n", __func__, __LINE__, #cond, err.text); \
			exit(1); \
		} \
	} while (0)

struct xpi_core_ep {
	alignas(16) struct shm_ep state;
	uint64_t frames, bytes;
	uint8_t last[SHM_AM_MAX];
	size_t last_len, in_ring; /* of the last frame; and the bytes of it that were delivered in the ring */
	int failed;
	char why[160];
};

struct link {
	struct xpi_core_ep *a, *b;
	uint8_t address_a[2048], address_b[2048];
	size_t len_a, len_b;
};

extern const struct xpi_backend *const ops;
extern struct xport_error err;
extern int same_user_is; /* what the core answers */
extern const char *shm_dir; /* where the next instance meets its peers */
extern struct xpi_be *one, *two;
extern void (*meanwhile)(struct xpi_core_ep *ep); /* what the core does while it has a frame; NULL: nothing */

struct xpi_be *instance(void);
struct xpi_core_ep *endpoint(struct xpi_be *be, uint8_t *address, size_t *len);
struct link addresses(void);
int connect_a(struct link *l);
int connect_b(struct link *l);
void connect_both(struct link *l);
struct link meet(void);
void end(struct xpi_be *be, struct xpi_core_ep *ep);
void part(struct link *l);
int send_a(struct link *l, const void *buf, size_t len);
unsigned descriptors(void);
struct shm_file *file_of(struct xpi_core_ep *ep);

#endif
