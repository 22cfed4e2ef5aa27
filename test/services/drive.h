/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * drive.h - a role that has leases, and the ways to drive them: an event loop on xport_fd, the functions that wait, or
 * a thread beside one that waits. The harness makes no progress meanwhile (h->idle).
 */
#ifndef TEST_DRIVE_H
#define TEST_DRIVE_H

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { D_LOOP = 0, D_WAIT = 1, D_THREAD = 2 };
enum { D_RW = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE };

struct d {
	struct h *h;
	xport_leases *l;
	int driver;
	pthread_t thread;
	_Atomic int stop, gone; /* gone: LOST and CLOSED events */
	_Atomic int reason;     /* of the last of them */
};

/* An operation that a role posts by hand; its context. */
struct d_op {
	_Atomic int done;
	int status;
	struct xport_completion c;
};

/* 4 MiB to whoever asks, and patience. */
struct xport_leases_attr d_attr(void);
/* Opens, connects to all other roles, makes leases. */
void d_begin(struct d *d, struct h *h, int driver, const struct xport_leases_attr *attr);
/* The same with a peer timeout that is not the usual one. */
void d_begin_for(struct d *d, struct h *h, int driver, const struct xport_leases_attr *attr, int peer_timeout_ms);
/* Destroys the leases, and with them what is left. */
void d_end(struct d *d);
/* Lets it move for a moment. */
void d_turn(struct d *d);
void d_turn_for(struct d *d, int ms);
/* The next event, which must be of this type. */
struct xport_lease_event d_event(struct d *d, const char *file, int line, int type);
#define D_EVENT(d, type) d_event(d, __FILE__, __LINE__, type)
/* Waits for what is under way on the lease. */
int d_settled(struct d *d, xport_lease *lease);
/* Asks role 0 for so many bytes, which it must refuse; why it did. */
int d_refused(struct d *d, uint64_t length, uint32_t rights);
int d_ended(struct d *d, struct d_op *op);
/* Meets the role, which does the same. */
void d_sync(struct d *d, int role);
struct xport_lease_info d_info(struct d *d, const xport_lease *lease);
struct xport_leases_info d_all(struct d *d);
/* Put or get of the whole of `buf`; returns how it ended. */
int d_put(struct d *d, xport_lease *lease, const void *buf, size_t len, uint64_t offset);
int d_get(struct d *d, xport_lease *lease, void *buf, size_t len, uint64_t offset);

#endif
