/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inject.c - for LD_PRELOAD: the call of UCX or libfabric that is named by INJECT fails, each time; all others are the
 * stack's own.
 *
 * ASSUMPTIONS  The calling convention passes up to six integer arguments the same way whether a function takes them or not,
 *              and returns an int, a long or a pointer in the same register: one wrapper fits all, and no header that
 *              declares them is included for UCX.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_FABRIC
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#endif

enum { UCS_IO_ERROR = -3, FI_IO_ERROR = -5 };

static bool injected(const char *name)
{
	const char *want = getenv("INJECT");

	return want != NULL && strcmp(want, name) == 0;
}

/* Modules load their stack out of our sight. */
static void *real(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	void *at = handle != NULL ? dlsym(handle, name) : NULL;

	if (at == NULL) {
		fprintf(stderr, "inject: no %s in %s\n", name, library);
		_Exit(3);
	}
	return at;
}

typedef long (*any_fn)(long a, long b, long c, long d, long e, long f);

#define UCX(name) \
	long name(long a, long b, long c, long d, long e, long f); \
	long name(long a, long b, long c, long d, long e, long f) \
	{ \
		return injected(#name) ? UCS_IO_ERROR : ((any_fn)real("libucp.so.0", #name))(a, b, c, d, e, f); \
	}

UCX(ucp_config_read)
UCX(ucp_config_modify)
UCX(ucp_init_version)
UCX(ucp_worker_create)
UCX(ucp_worker_query)
UCX(ucp_worker_get_efd)
UCX(ucp_worker_get_address)
UCX(ucp_worker_set_am_recv_handler)
UCX(ucp_ep_create)
UCX(ucp_ep_flush_nbx)

#ifdef WITH_FABRIC

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
               struct fi_info **info)
{
	int (*next)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **) =
		(int (*)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
	                 struct fi_info **))real("libfabric.so.1", "fi_getinfo");

	return injected("fi_getinfo") ? FI_IO_ERROR : next(version, node, service, flags, hints, info);
}

/* The calls on an object go by a table of its own: a copy of which the entry is replaced. */
static struct fi_ops_fabric fabric_ops;
static struct fi_ops_domain domain_ops;
static struct fi_ops_fabric *real_fabric_ops;

static int no_eq(struct fid_fabric *f, struct fi_eq_attr *a, struct fid_eq **eq, void *c)
{
	(void)f, (void)a, (void)eq, (void)c;
	return FI_IO_ERROR;
}

static int no_pep(struct fid_fabric *f, struct fi_info *i, struct fid_pep **p, void *c)
{
	(void)f, (void)i, (void)p, (void)c;
	return FI_IO_ERROR;
}

static int no_cq(struct fid_domain *d, struct fi_cq_attr *a, struct fid_cq **cq, void *c)
{
	(void)d, (void)a, (void)cq, (void)c;
	return FI_IO_ERROR;
}

static int no_av(struct fid_domain *d, struct fi_av_attr *a, struct fid_av **av, void *c)
{
	(void)d, (void)a, (void)av, (void)c;
	return FI_IO_ERROR;
}

static int no_ep(struct fid_domain *d, struct fi_info *i, struct fid_ep **ep, void *c)
{
	(void)d, (void)i, (void)ep, (void)c;
	return FI_IO_ERROR;
}

static int domain(struct fid_fabric *f, struct fi_info *info, struct fid_domain **d, void *context)
{
	int rc = injected("fi_domain") ? FI_IO_ERROR : real_fabric_ops->domain(f, info, d, context);

	if (rc != 0)
		return rc;
	domain_ops = *(*d)->ops;
	if (injected("fi_cq_open"))
		domain_ops.cq_open = no_cq;
	if (injected("fi_av_open"))
		domain_ops.av_open = no_av;
	if (injected("fi_endpoint"))
		domain_ops.endpoint = no_ep;
	(*d)->ops = &domain_ops;
	return 0;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	int (*next)(struct fi_fabric_attr *, struct fid_fabric **, void *) =
		(int (*)(struct fi_fabric_attr *, struct fid_fabric **, void *))real("libfabric.so.1", "fi_fabric");
	int rc = injected("fi_fabric") ? FI_IO_ERROR : next(attr, fabric, context);

	if (rc != 0)
		return rc;
	if ((*fabric)->ops == &fabric_ops) /* a provider may hand out one object to all */
		return 0;
	real_fabric_ops = (*fabric)->ops;
	fabric_ops = *real_fabric_ops;
	fabric_ops.domain = domain;
	if (injected("fi_eq_open"))
		fabric_ops.eq_open = no_eq;
	if (injected("fi_passive_ep"))
		fabric_ops.passive_ep = no_pep;
	(*fabric)->ops = &fabric_ops;
	return 0;
}

#endif
