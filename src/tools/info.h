/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info.h - the findings of xport_info, and the functions that collect and print them.
 *
 * First everything is collected (info_look.c, the checks). Then it is printed, as text (info_table.c, info_env.c,
 * info_doctor.c) or as JSON (info_json.c). It uses only xport.h, /proc, /sys and /dev.
 */
#ifndef XPORT_TOOLS_INFO_H
#define XPORT_TOOLS_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <xport.h>

#include "tools/hint.h"

enum { INFO_CANDIDATES = 128, INFO_VARIABLES = 64, INFO_NAMES = 64, INFO_CHECKS = 64, INFO_WARNINGS = 16 };

/* One back end that was opened, or was to be. */
struct info_opened {
	const char *name; /* as asked for; NULL: what the environment says */
	int status;       /* XPORT_OK: `caps` is filled, otherwise `error` */
	struct xport_info caps;
	struct xport_error error;
};

/* What is asked for where no name is given: XPORT_BACKEND, else auto. */
struct info_request {
	const char *backend, *source; /* "ucx:tcp", "environment" or "default" */
	bool usable;
	char takes[176];              /* what xport_open takes of it, where it is usable */
	struct xport_info caps;       /* of what was opened; size 0: nothing was */
	struct xport_error error;     /* why not */
};

enum info_state { INFO_OK, INFO_PROBLEM, INFO_NOT_APPLICABLE };

/* What one check of the doctor found. */
struct info_check {
	char id[64];
	enum info_state state;
	char text[512]; /* what was found, and what it means */
	char cure[256]; /* a command, or "" */
};

/* A warning of the library's, while it was asked. */
struct info_warning {
	char id[16], line[256];
};

struct info {
	bool verbose, json, env, doctor;
	const char *root; /* where /proc, /sys and /dev are looked for: "", or a tree that a test made */
	const char *peer; /* of --peer; NULL: not given */
	int pid;          /* whose limits and libraries the doctor looks at; 0: its own */
	const char *names[INFO_NAMES];
	int nnames;

	struct xport_candidate candidates[INFO_CANDIDATES];
	int ncandidates;               /* or a negative status, with its error */
	struct xport_error list_error;
	struct xport_variable variables[INFO_VARIABLES];
	int nvariables;
	struct info_opened opened[INFO_CANDIDATES];
	int nopened;
	struct info_request request;
	struct info_check checks[INFO_CHECKS];
	int nchecks;
	struct info_warning warnings[INFO_WARNINGS];
	int nwarnings;
};

/* ---- info_look.c: asking the library ---- */

void info_look_variables(struct info *info);
/* The candidates; with the doctor the library's warnings are kept for it instead of being written. */
void info_look_candidates(struct info *info);
/* Opens, asks and closes each of the names; with --verbose and no name, each candidate that is ready. */
void info_look_opened(struct info *info);
/* Whether what is asked for is usable: from the candidates where they tell, else, or with `sure`, by opening it. */
void info_look_request(struct info *info, bool sure);
/* The value of a variable in force, "" if it is not known. */
const char *info_value(const struct info *info, const char *name);
/* Whether peers prove who they are: "key", "none", or "local" where those off this machine are refused. */
const char *info_authentication(const struct info *info);
/* "ready", "not built" ... */
const char *info_state_name(int state);
const char *info_traffic_name(int traffic_class);

/* ---- info_table.c, info_env.c, info_json.c: showing ---- */

void info_show_candidates(const struct info *info);
void info_show_opened(const struct info *info);
void info_show_env(const struct info *info);
/* All that was looked up; false where there is no memory. */
bool info_show_json(const struct info *info);
/* "ok", "problem", "not applicable". */
const char *info_check_name(enum info_state state);

/* ---- info_peer.c: --peer ---- */

/* Connects to info->peer, and prints what is agreed. Returns 0, or 1 and the error. */
int info_peer(const struct info *info, struct xport_error *e);

/* ---- info_doctor.c: the checks ---- */

/* Runs them all.  What is asked for has been looked at before. */
void info_examine(struct info *info);
void info_show_checks(const struct info *info);

/* A check fills text and cure, and returns the state. */
typedef enum info_state (*info_check_fn)(const struct info *info, struct info_check *c);

enum info_state info_say(struct info_check *c, enum info_state state, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void info_cure(struct info_check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* info_checks.c: what the machine and the process have room for */
enum info_state info_check_memlock(const struct info *info, struct info_check *c);
enum info_state info_check_files(const struct info *info, struct info_check *c);
enum info_state info_check_maps(const struct info *info, struct info_check *c);
enum info_state info_check_shm(const struct info *info, struct info_check *c);
enum info_state info_check_ptrace(const struct info *info, struct info_check *c);
enum info_state info_check_copies(const struct info *info, struct info_check *c);
/* info_checks_rdma.c: devices */
bool info_have_rdma(const struct info *info);
/* ",mlx5_0:1,..." - the ports, as UCX names them. */
void info_list_rdma(const struct info *info, char *list, size_t len);
enum info_state info_check_rdma_kernel(const struct info *info, struct info_check *c);
enum info_state info_check_rdma_files(const struct info *info, struct info_check *c);
enum info_state info_check_rdma_ports(const struct info *info, struct info_check *c);
enum info_state info_check_rdma_gids(const struct info *info, struct info_check *c);
enum info_state info_check_rdma_addresses(const struct info *info, struct info_check *c);
enum info_state info_check_mapped_files(const struct info *info, struct info_check *c);
/* info_checks_env.c: the environment, and addresses */
enum info_state info_check_authentication(const struct info *info, struct info_check *c);
enum info_state info_check_variables(const struct info *info, struct info_check *c);
enum info_state info_check_ucx_tls(const struct info *info, struct info_check *c);
enum info_state info_check_ucx_devices(const struct info *info, struct info_check *c);
enum info_state info_check_fi_provider(const struct info *info, struct info_check *c);
enum info_state info_check_addresses(const struct info *info, struct info_check *c);
/* Whether a network device is of a container or machine manager's making, by its name. */
bool info_is_bridge(const char *name);
enum info_state info_check_bridges(const struct info *info, struct info_check *c);

/* info_checks_node.c: NUMA nodes */
enum info_state info_check_numa_nodes(const struct info *info, struct info_check *c);

/* info_checks_path.c: what is taken */
enum info_state info_check_versions(const struct info *info, struct info_check *c);
enum info_state info_check_path(const struct info *info, struct info_check *c);
enum info_state info_check_timeouts(const struct info *info, struct info_check *c);

/* Calls fn with each item of a list by comma, until it returns true; returns whether one did. */
bool info_each_item(const char *list, bool (*fn)(void *arg, const char *item), void *arg);
/* Whether what is asked for names, as one of a list, something that begins with `prefix`. */
bool info_asks_for(const struct info *info, const char *prefix);
/* Whether it names something that goes over RDMA devices alone. */
bool info_asks_for_rdma(const struct info *info);

/* ---- info_root.c: files below the root ---- */

/* The path below the root; false if it is too long. */
bool info_path(const struct info *info, char *buf, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* "/proc/self" or that of the process that is looked at, in a buffer of its own. */
const char *info_process(const struct info *info);
bool info_exists(const struct info *info, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The first line of a file, without its newline; false if it cannot be read. */
bool info_line(const struct info *info, char *buf, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Calls fn with each name in a folder, in order, until it returns true; returns whether one did. */
bool info_each_file(const struct info *info, const char *folder, bool (*fn)(void *arg, const char *name), void *arg);
/* Appends to a list by comma; says "..." once where there is no more room. */
void info_append(char *list, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
