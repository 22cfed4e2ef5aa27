/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * user.h - a role that uses or serves a directory, and the ways to drive it: an event loop on xport_fd, the functions
 * that wait, or a thread beside. The harness makes no progress meanwhile (h->idle).
 */
#ifndef TEST_USER_H
#define TEST_USER_H

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { U_LEN = 50000, U_WAIT = 1, U_THREAD = 2 };

struct u {
	struct h *h;
	xport_directory *d;
	int driver;
	pthread_t thread;
	_Atomic int stop, gone; /* gone: LOST and CLOSED events */
	char node[64];
};

/* Whether the directory is in etcd: XPORT_DIRECTORY is set.  Then nobody serves it, and test/cluster/run runs the scenarios. */
bool u_etcd(void);

/* Takes completions that are not the directory's. */
void u_other(void *arg, const struct xport_completion *c);

/* Opens, connects to all other roles, makes a directory and joins role 0's. */
void u_begin(struct u *u, struct h *h, int driver, const struct xport_directory_attr *attr);
void u_end(struct u *u);
/* Lets it move for a moment. */
void u_turn(struct u *u);
void u_turn_for(struct u *u, int ms);
/* Meets the role, which does the same. */
void u_meet(struct u *u, int role);

/* The next event, which must be of this type. */
struct xport_directory_event u_next(struct u *u, const char *file, int line, int type);
#define U_NEXT(u, type) u_next(u, __FILE__, __LINE__, type)
#define U_DONE(u) u_next(u, __FILE__, __LINE__, XPORT_DIRECTORY_DONE)
bool u_is(const struct xport_directory_event *e, const char *name);
struct xport_directory_info u_info(struct u *u);

struct xport_directory_entry u_region(struct h *h, xport_mr *mr, uint64_t offset, uint64_t length);
/* Enters it, waits, and returns how that ended. */
int u_put(struct u *u, const char *name, const struct xport_directory_entry *e);
/* Registers U_LEN bytes, and enters them as *e under this name; they live as long as the scenario. */
void u_publish(struct u *u, const char *name, struct xport_directory_entry *e);
int u_find(struct u *u, const char *name, struct xport_directory_entry *entry);
/* Gets what an entry names, by the endpoint to its node, and looks whether it is the pattern of `seed`. */
int u_fetch(struct u *u, const struct xport_directory_entry *e, uint64_t seed);

#endif
