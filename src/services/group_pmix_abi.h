/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group_pmix_abi.h - the part of the binary interface of libpmix.so.2 that the source pmix uses.
 *
 * The library is loaded only if a group needs it, and no build needs its headers.  test/cluster/abi.c compares these
 * declarations with pmix.h of PMIx 4.
 */
#ifndef SVC_GROUP_PMIX_ABI_H
#define SVC_GROUP_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SVC_PMIX_OK = 0,
	SVC_PMIX_BOOL = 1,
	SVC_PMIX_UINT32 = 14,
	SVC_PMIX_BYTES = 27,
	SVC_PMIX_GLOBAL = 3,
	SVC_PMIX_NAME_BYTES = 256,
	SVC_PMIX_KEY_BYTES = 512
};

#define SVC_PMIX_ANY_RANK (UINT32_MAX - 1)
#define SVC_PMIX_JOB_SIZE "pmix.job.size"
#define SVC_PMIX_COLLECT "pmix.collect"

struct svc_pmix_proc {
	char space[SVC_PMIX_NAME_BYTES];
	uint32_t rank;
};

struct svc_pmix_value {
	uint16_t type;
	union {
		bool flag;
		uint32_t number;
		struct {
			char *bytes;
			size_t size;
		} block;
		struct {
			void *first, *second;
			char third;
		} largest;
	} data;
};

struct svc_pmix_info {
	char key[SVC_PMIX_KEY_BYTES];
	uint32_t flags;
	struct svc_pmix_value value;
};

typedef void svc_pmix_done_fn(int status, void *arg);
typedef void svc_pmix_value_fn(int status, struct svc_pmix_value *value, void *arg);

struct svc_pmix_calls {
	int (*init)(struct svc_pmix_proc *own, struct svc_pmix_info *info, size_t n);
	int (*finalize)(const struct svc_pmix_info *info, size_t n);
	int (*put)(uint8_t scope, const char *key, struct svc_pmix_value *value);
	int (*commit)(void);
	int (*fence)(const struct svc_pmix_proc *procs, size_t n_procs, const struct svc_pmix_info *info, size_t n,
	             svc_pmix_done_fn *done, void *arg);
	int (*get)(const struct svc_pmix_proc *proc, const char *key, const struct svc_pmix_info *info, size_t n,
	           svc_pmix_value_fn *done, void *arg);
	const char *(*text)(int status);
};

#endif
