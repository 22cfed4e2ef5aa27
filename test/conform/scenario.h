/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scenario.h - what a conformance scenario is, and how one is run.
 *
 * A scenario is one C function for each role. Each role runs in its own process, or in its own thread if the back end
 * works within one process only. The tables in cases_*.c list the scenarios, h_run runs one, and conform.cc turns every
 * combination of provider, mode and scenario into a named test.
 */
#ifndef CONFORM_SCENARIO_H
#define CONFORM_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xport.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { H_ROLES = 4 };

struct h;
typedef void (*h_role_fn)(struct h *h);

/* One value of a scenario's parameter; a test of its own. */
struct h_param {
	const char *suffix;
	uint64_t value;
};

enum h_flag {
	H_KILLS = 1,  /* kills, stops, restarts or forks a role: each must be a process */
	H_SLOW = 2,   /* only with --slow */
	H_KINDS = 4,  /* once for each kind of memory: registered, allocated, plain local buffers */
	H_TARGET = 8, /* once for each kind of target memory: registered, allocated */
	H_ONCE = 16   /* does not depend on how operations are carried: native mode only */
};

enum h_kind {
	H_REG = 0,   /* both sides xport_mr_reg */
	H_ALLOC = 1, /* both sides xport_mr_alloc */
	H_PLAIN = 2  /* the target xport_mr_reg, the local buffer not registered */
};

struct h_scenario {
	const char *name; /* begins with the promise it tests: "P4_..." */
	h_role_fn role[H_ROLES];
	const struct h_param *params; /* NULL: none; else ended by a NULL suffix */
	unsigned flags;               /* enum h_flag */
	int timeout_s;                /* 0: 30 */
};

/* Where roles run that are not on loopback. */
struct h_place {
	const char *netns;   /* a network namespace, as `ip netns` names it */
	const char *address; /* at which they listen there */
	const char *backend;
};

/* How to run it. */
struct h_config {
	const char *backend;         /* "ucx:tcp" */
	const struct h_place *place; /* two, of roles with even and with odd numbers; NULL: all on loopback */
	bool emulate;
	bool threads; /* roles are threads of one process */
	enum h_kind kind;
	uint64_t param;
};

enum h_outcome { H_PASSED = 0, H_FAILED = 1, H_SKIPPED = 2 };

struct h_figure {
	char name[40];
	uint64_t value;
};

struct h_result {
	enum h_outcome outcome;
	char text[64 * 1024];
	struct h_figure figures[32];
	int nfigures;
};

/* Runs one scenario; returns its outcome, also in *result. */
enum h_outcome h_run(const struct h_scenario *s, const struct h_config *config, struct h_result *result);

/* The number behind an option, at least 1; else says so and exits with 2. */
uint64_t h_read_number(const char *option, const char *text);
/* Cuts "NETNS,ADDRESS,BACKEND" into its parts; false: it has not as many. */
bool h_read_place(char *text, struct h_place *place);
/* "--apart NETNS,ADDRESS,BACKEND ..." of both places. */
const char *h_name_places(const struct h_place *place, char *buf, size_t len);

/* Asks the library, in a process of its own, what can be used.  Returns how many, or a status. */
int h_list_candidates(struct xport_candidate *list, int max);
/* Opens BACKEND in a process of its own, and closes it.  Returns a status; `why` gets the library's text and hint. */
int h_try_backend(const char *backend, char *why, size_t len);

/* The tables, each ended by a NULL name. */
extern const struct h_scenario cases_p01[], cases_p02[], cases_p03[], cases_p04[], cases_p05[], cases_p05_more[],
	cases_p06[], cases_p07[], cases_p07_wire[], cases_p08[], cases_p09[], cases_p09_nic[], cases_p09_mapped[],
	cases_p10[], cases_p11[], cases_p12[], cases_p13[], cases_p14[], cases_p15[], cases_p15_more[], cases_p16[],
	cases_connect[], cases_connect_later[], cases_listen[], cases_close[], cases_close_start[], cases_api[],
	cases_auth[], cases_auth_strangers[], cases_thread[], cases_size[], cases_stats[], cases_error[],
	cases_p16_notify[], cases_p07_users[], cases_incoming[], cases_p12_more[], cases_paths[], cases_lists[],
	cases_lists_msg[], cases_part[], cases_deadline[], cases_deadline_load[], cases_deadline_names[],
	cases_deadline_rma[], cases_file[], cases_accept[], cases_multi[], cases_arm[], cases_identity[], cases_peer[];

#ifdef __cplusplus
}
#endif

#endif
