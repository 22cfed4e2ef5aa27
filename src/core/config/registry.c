/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/config/registry.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/signals.h"
#include "core/config/module_load.h"
#include "core/config/module_path.h"

/* ---- The table ---------------------------------------------------------------------------------------------- */

#ifdef XPI_BUILTIN_BACKENDS
#define DECLARE(name, load_env) extern const struct xpi_backend xpi_backend_##name;
XPORT_BACKEND_LIST(DECLARE)
#define BUILTIN(name) &xpi_backend_##name
#else
#define BUILTIN(name) NULL
#endif

#define COUNT(name, text) +1
enum { NCONFIGURED = 0 XPORT_BACKEND_LIST(COUNT) XPORT_BACKEND_MISSING(COUNT), NSITE_MAX = 8, NLOADED_MAX = 32 };

static struct xpi_registry_entry table[NCONFIGURED + NSITE_MAX + 1] = {
#define BUILT(name, load_env) {#name, NULL, load_env, BUILTIN(name)},
#define MISSING(name, reason) {#name, reason, NULL, NULL},
	XPORT_BACKEND_LIST(BUILT) XPORT_BACKEND_MISSING(MISSING){NULL, NULL, NULL, NULL}};

static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* Takes out one that was not built; the name is another's.  Returns how many are left. */
static int leave_out(int n, const char *name)
{
	for (int i = 0; i < n; i++) {
		if (table[i].why_not == NULL || strcmp(table[i].name, name) != 0)
			continue;
		memmove(&table[i], &table[i + 1], (size_t)(--n - i) * sizeof(table[0]));
		memset(&table[n], 0, sizeof(table[0]));
	}
	return n;
}

static void add_site(void)
{
	int n = NCONFIGURED;

	for (int i = 0; xpi_site_backends[i] != NULL; i++) {
		assert(i < NSITE_MAX);
		n = leave_out(n, xpi_site_backends[i]->name);
		table[n].name = xpi_site_backends[i]->name;
		table[n++].builtin = xpi_site_backends[i];
	}
}

const struct xpi_registry_entry *xpi_registry(void)
{
	pthread_once(&table_once, add_site);
	return table;
}

/* ---- What a back end may leave out -------------------------------------------------------------------------- */

static int no_mr_reg(struct xpi_be *be, void *mr, void *base, size_t length, uint32_t rights)
{
	(void)be, (void)mr, (void)base, (void)length, (void)rights;
	return XPORT_ERR_NOT_SUPPORTED;
}

static int no_mr_alloc(struct xpi_be *be, void *mr, size_t length, uint32_t rights, void **base)
{
	(void)be, (void)mr, (void)length, (void)rights, (void)base;
	return XPORT_ERR_NOT_SUPPORTED;
}

static void no_mr_dereg(struct xpi_be *be, void *mr)
{
	(void)be, (void)mr;
}

static int no_rkey_pack(struct xpi_be *be, void *ep, const void *mr, void *buf, size_t *len)
{
	(void)be, (void)ep, (void)mr, (void)buf, (void)len;
	return XPORT_ERR_NOT_SUPPORTED;
}

static int no_rkey_unpack(struct xpi_be *be, void *ep, void *rkey, const void *buf, size_t len, uint64_t start,
                          uint64_t length, uint32_t rights, void **direct)
{
	(void)be, (void)ep, (void)rkey, (void)buf, (void)len, (void)start, (void)length, (void)rights, (void)direct;
	return XPORT_ERR_NOT_SUPPORTED;
}

static void no_rkey_destroy(struct xpi_be *be, void *rkey)
{
	(void)be, (void)rkey;
}

static int no_put(struct xpi_be *be, void *ep, const void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
                  struct xpi_req *req)
{
	(void)be, (void)ep, (void)buf, (void)len, (void)mr, (void)rkey, (void)offset, (void)req;
	return XPORT_ERR_NOT_SUPPORTED;
}

static int no_get(struct xpi_be *be, void *ep, void *buf, size_t len, void *mr, void *rkey, uint64_t offset,
                  struct xpi_req *req)
{
	(void)be, (void)ep, (void)buf, (void)len, (void)mr, (void)rkey, (void)offset, (void)req;
	return XPORT_ERR_NOT_SUPPORTED;
}

static int no_atomic(struct xpi_be *be, void *ep, const struct xport_atomic_args *args, void *rkey, uint64_t offset,
                     struct xpi_req *req)
{
	(void)be, (void)ep, (void)args, (void)rkey, (void)offset, (void)req;
	return XPORT_ERR_NOT_SUPPORTED;
}

static int no_drain(struct xpi_be *be, void *ep, struct xpi_req *req)
{
	(void)be, (void)ep, (void)req;
	return XPORT_ERR_NOT_SUPPORTED;
}

static int no_ep_mark(struct xpi_be *be, void *ep, int traffic_class)
{
	(void)be, (void)ep, (void)traffic_class;
	return XPORT_ERR_NOT_SUPPORTED;
}

static int no_fds(struct xpi_be *be, int *fds, int max)
{
	(void)be, (void)fds, (void)max;
	return 0;
}

static int no_arm(struct xpi_be *be)
{
	(void)be;
	return XPORT_OK;
}

#define REQUIRED(X) \
	X(list) \
	X(open) X(close) X(query) X(address) X(ep_connect) X(ep_quiesce) X(ep_destroy) X(am_send) X(am_send_two) X(poll)
#define OPTIONAL(X) \
	X(mr_reg) \
	X(mr_alloc) \
	X(mr_dereg) \
	X(rkey_pack) X(rkey_unpack) X(rkey_destroy) X(put) X(get) X(atomic) X(drain) X(ep_mark) X(fds) X(arm)

/* A slot that is there although one that goes with it is missing: its name, and *lacks that of the missing one. */
static const char *unpaired(const struct xpi_backend *be, const char **lacks)
{
	const struct {
		bool has, has_needed;
		const char *name, *needed;
	} pairs[] = {
		{be->put != NULL, be->get != NULL, "put", "get"},
		{be->get != NULL, be->put != NULL, "get", "put"},
		{be->put != NULL, be->rkey_unpack != NULL, "put", "rkey_unpack"},
		{be->rkey_unpack != NULL, be->rkey_pack != NULL, "rkey_unpack", "rkey_pack"},
		{be->rkey_pack != NULL, be->rkey_unpack != NULL, "rkey_pack", "rkey_unpack"},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		*lacks = pairs[i].needed;
		if (pairs[i].has && !pairs[i].has_needed)
			return pairs[i].name;
	}
	return NULL;
}

static const char other_version[] = "install the module that belongs to this version of the library";

/* Checks a back end, and copies it to *ops with the optional slots filled. */
static int check(const char *name, const struct xpi_backend *be, struct xport_error *err, struct xpi_backend *ops)
{
	const char *missing = NULL, *has;

	if (be->abi != XPI_BACKEND_ABI)
		return xpi_fail(err, XPORT_ERR_INCOMPATIBLE, 0, NULL, other_version,
		                "its module is made for contract %u, this library for %u", be->abi, XPI_BACKEND_ABI);
	if (be->name == NULL || strcmp(be->name, name) != 0)
		return xpi_fail(err, XPORT_ERR_INCOMPATIBLE, 0, NULL, other_version, "its module calls itself %.32s",
		                be->name != NULL ? be->name : "nothing");
#define LOOK(slot) missing = missing == NULL && be->slot == NULL ? #slot : missing;
	REQUIRED(LOOK)
	if (missing != NULL)
		return xpi_fail(err, XPORT_ERR_INCOMPATIBLE, 0, NULL, other_version,
		                "its module lacks the required slot %s", missing);
	has = unpaired(be, &missing);
	if (has != NULL)
		return xpi_fail(err, XPORT_ERR_INCOMPATIBLE, 0, NULL, other_version,
		                "its module has the slot %s but lacks %s, which goes with it", has, missing);
	*ops = *be;
#define FILL(slot) ops->slot = ops->slot != NULL ? ops->slot : no_##slot;
	OPTIONAL(FILL)
	return XPORT_OK;
}

const char *xpi_registry_contradiction(const struct xpi_backend *ops, const struct xpi_be_caps *caps)
{
	bool keys = caps->rkey_native_max > 0, puts = ops->put != no_put;
	const struct {
		bool is;
		const char *text;
	} all[] = {
		{caps->am_max < XPI_FRAME_LEAST, "its frames are shorter than 4096 bytes"},
		{caps->am_credits < 4, "fewer than 4 frames may be in flight"},
		{keys && ops->rkey_pack == no_rkey_pack, "it says rkey_native_max, and has no rkey_pack"},
		{caps->rkey_native_max > 1024, "its native keys are longer than 1024 bytes"},
		{caps->rma_reg && ops->mr_reg == no_mr_reg, "it sets rma_reg, but has no mr_reg"},
		{caps->drain_places && ops->drain == no_drain, "it says drain_places, and has no drain"},
		{puts && !caps->am_after_put && ops->drain == no_drain,
	         "it has put, does not say am_after_put, and has no drain"},
		{caps->put_short > 0 && (!puts || !caps->am_after_put),
	         "it says put_short without put or am_after_put"},
		{caps->passive_target && !keys, "it says passive_target, and has no native keys"},
		{caps->nic_atomic && (ops->atomic == no_atomic || !caps->rma_reg),
	         "it says nic_atomic without the slot atomic or rma_reg"},
		{caps->nic_atomic && !caps->am_after_put && ops->drain == no_drain,
	         "it says nic_atomic, does not say am_after_put, and has no drain"},
		{caps->lends && (!puts || !caps->rma_reg || caps->rkey_native_max > 192),
	         "it says lends without put or rma_reg, or its native keys are longer than 192 bytes"},
		{caps->rma_max > 0 && caps->rma_max < 128, "it says an rma_max below 128 bytes"},
		{caps->traffic == XPI_TRAFFIC_EACH && ops->ep_mark == no_ep_mark,
	         "it marks each endpoint with a traffic class, and has no ep_mark"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].is)
			return all[i].text;
	return NULL;
}

/* ---- Loading ------------------------------------------------------------------------------------------------ */

/* What dlopen failed for, with the file to be installed where it says which. */
static int describe_dlopen(const char *path, const char *why, struct xport_error *err)
{
	char hint[160] = "";
	size_t n;

	if (access(path, F_OK) != 0)
		return xpi_fail_errno(err, XPORT_ERR_NO_BACKEND, "install the module, which belongs to this library",
		                      "its module %s cannot be read", path);
	n = strcspn(why, ":");
	if (strstr(why, "cannot open shared object file") != NULL)
		snprintf(hint, sizeof(hint), "install the package that holds %.*s", (int)(n < 96 ? n : 96), why);
	else
		snprintf(hint, sizeof(hint), "install the version of its stack that this library was built with");
	return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, hint, "it cannot be loaded: %s", why);
}

static int load_module(const struct xpi_registry_entry *entry, const struct xpi_log *log, struct xport_error *err,
                       const struct xpi_backend **be)
{
	struct xpi_env env;
	char path[1024], why[512];
	struct xpi_signals signals;
	void *handle;

	if (xpi_site_module(entry->name, path, sizeof(path)) != XPORT_OK)
		return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, NULL, "the path of its module is too long");
	xpi_signals_save(&signals);
	/* A stack reads its environment in its constructors, so it must be set now. */
	xpi_load_prepare();
	xpi_env_set(&env, entry->load_env != NULL ? entry->load_env : "");
	handle = xpi_load(path, why, sizeof(why));
	xpi_env_restore(&env);
	xpi_signals_restore(&signals, log, entry->name);
	if (handle == NULL)
		return describe_dlopen(path, why, err);
	*be = (const struct xpi_backend *)dlsym(handle, "xpi_backend");
	if (*be == NULL)
		return xpi_fail(err, XPORT_ERR_INCOMPATIBLE, 0, NULL, other_version,
		                "%s is no back end: it has no symbol xpi_backend", path);
	xpi_log(log, XPORT_LOG_DEBUG, "0204", "loaded %s", path);
	return XPORT_OK;
}

/* ---- Once a process ----------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct {
	const struct xpi_registry_entry *entry;
	struct xpi_backend ops;
} loaded[NLOADED_MAX];
static int nloaded;

static int load_locked(const struct xpi_registry_entry *entry, const struct xpi_log *log, struct xport_error *err,
                       const struct xpi_backend **ops)
{
	const struct xpi_backend *be = entry->builtin;
	int rc;

	for (int i = 0; i < nloaded; i++) {
		if (loaded[i].entry == entry) {
			*ops = &loaded[i].ops;
			return XPORT_OK;
		}
	}
	if (nloaded == NLOADED_MAX)
		return xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "more than %d back ends are loaded",
		                NLOADED_MAX);
	if (be == NULL) {
		rc = load_module(entry, log, err, &be);
		if (rc != XPORT_OK)
			return rc;
	}
	rc = check(entry->name, be, err, &loaded[nloaded].ops);
	if (rc != XPORT_OK)
		return rc;
	loaded[nloaded].entry = entry;
	*ops = &loaded[nloaded++].ops;
	return XPORT_OK;
}

void xpi_registry_enter(void)
{
	pthread_mutex_lock(&lock);
}

void xpi_registry_leave(void)
{
	pthread_mutex_unlock(&lock);
}

int xpi_registry_load(const struct xpi_registry_entry *entry, const struct xpi_log *log, struct xport_error *err,
                      const struct xpi_backend **be)
{
	char hint[128];
	int rc;

	if (entry->why_not != NULL) {
		snprintf(hint, sizeof(hint), "configure libxport with --enable-%.40s; configure names what is missing",
		         entry->name);
		return xpi_fail(err, XPORT_ERR_NO_BACKEND, 0, NULL, hint, "not in this build: %s", entry->why_not);
	}
	xpi_registry_enter();
	rc = load_locked(entry, log, err, be);
	xpi_registry_leave();
	return rc;
}
