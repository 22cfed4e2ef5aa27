/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fabric.h - included before each source of the back end ofi. libfabric's calls on an object are inline functions,
 * which no linker sees. Here they become calls of the injector.
 */
#ifndef TEST_INJECT_FABRIC_H
#define TEST_INJECT_FABRIC_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* All that it calls: test/inject/report fails where there is another one. */
/* clang-format off */
#define INLINE_CALLS(X) \
	X(fi_accept, (struct fid_ep *ep, const void *p, size_t n), (ep, p, n)) \
	X(fi_av_insert, (struct fid_av *av, void *a, size_t n, fi_addr_t *to, uint64_t f, void *c), (av, a, n, to, f, c)) \
	X(fi_av_open, (struct fid_domain *d, struct fi_av_attr *a, struct fid_av **av, void *c), (d, a, av, c)) \
	X(fi_close, (struct fid *fid), (fid)) \
	X(fi_connect, (struct fid_ep *ep, const void *a, const void *p, size_t n), (ep, a, p, n)) \
	X(fi_control, (struct fid *fid, int command, void *arg), (fid, command, arg)) \
	X(fi_cq_open, (struct fid_domain *d, struct fi_cq_attr *a, struct fid_cq **cq, void *c), (d, a, cq, c)) \
	X(fi_cq_read, (struct fid_cq *cq, void *buf, size_t n), (cq, buf, n)) \
	X(fi_cq_readerr, (struct fid_cq *cq, struct fi_cq_err_entry *e, uint64_t f), (cq, e, f)) \
	X(fi_domain, (struct fid_fabric *f, struct fi_info *i, struct fid_domain **d, void *c), (f, i, d, c)) \
	X(fi_enable, (struct fid_ep *ep), (ep)) \
	X(fi_endpoint, (struct fid_domain *d, struct fi_info *i, struct fid_ep **ep, void *c), (d, i, ep, c)) \
	X(fi_ep_bind, (struct fid_ep *ep, struct fid *fid, uint64_t f), (ep, fid, f)) \
	X(fi_eq_open, (struct fid_fabric *f, struct fi_eq_attr *a, struct fid_eq **eq, void *c), (f, a, eq, c)) \
	X(fi_eq_read, (struct fid_eq *eq, uint32_t *e, void *buf, size_t n, uint64_t f), (eq, e, buf, n, f)) \
	X(fi_eq_readerr, (struct fid_eq *eq, struct fi_eq_err_entry *e, uint64_t f), (eq, e, f)) \
	X(fi_getname, (fid_t fid, void *a, size_t *n), (fid, a, n)) \
	X(fi_inject, (struct fid_ep *ep, const void *buf, size_t n, fi_addr_t to), (ep, buf, n, to)) \
	X(fi_listen, (struct fid_pep *pep), (pep)) \
	X(fi_mr_bind, (struct fid_mr *mr, struct fid *fid, uint64_t f), (mr, fid, f)) \
	X(fi_mr_enable, (struct fid_mr *mr), (mr)) \
	X(fi_mr_reg, (struct fid_domain *d, const void *b, size_t n, uint64_t a, uint64_t o, uint64_t k, uint64_t f, \
	              struct fid_mr **mr, void *c), (d, b, n, a, o, k, f, mr, c)) \
	X(fi_passive_ep, (struct fid_fabric *f, struct fi_info *i, struct fid_pep **pep, void *c), (f, i, pep, c)) \
	X(fi_pep_bind, (struct fid_pep *pep, struct fid *fid, uint64_t f), (pep, fid, f)) \
	X(fi_recv, (struct fid_ep *ep, void *buf, size_t n, void *desc, fi_addr_t from, void *c), (ep, buf, n, desc, from, c)) \
	X(fi_reject, (struct fid_pep *pep, fid_t h, const void *p, size_t n), (pep, h, p, n)) \
	X(fi_send, (struct fid_ep *ep, const void *buf, size_t n, void *desc, fi_addr_t to, void *c), (ep, buf, n, desc, to, c)) \
	X(fi_sendv, (struct fid_ep *ep, const struct iovec *v, void **desc, size_t n, fi_addr_t to, void *c), \
	            (ep, v, desc, n, to, c)) \
	X(fi_trywait, (struct fid_fabric *f, struct fid **fids, int n), (f, fids, n))

#define DECLARE_WRAP(name, parameters, arguments) __typeof__(name) __wrap_##name;
INLINE_CALLS(DECLARE_WRAP)
/* clang-format on */

#ifndef INJECT_FABRIC_REAL
#define fi_accept __wrap_fi_accept
#define fi_av_insert __wrap_fi_av_insert
#define fi_av_open __wrap_fi_av_open
#define fi_close __wrap_fi_close
#define fi_connect __wrap_fi_connect
#define fi_control __wrap_fi_control
#define fi_cq_open __wrap_fi_cq_open
#define fi_cq_read __wrap_fi_cq_read
#define fi_cq_readerr __wrap_fi_cq_readerr
#define fi_domain __wrap_fi_domain
#define fi_enable __wrap_fi_enable
#define fi_endpoint __wrap_fi_endpoint
#define fi_ep_bind __wrap_fi_ep_bind
#define fi_eq_open __wrap_fi_eq_open
#define fi_eq_read __wrap_fi_eq_read
#define fi_eq_readerr __wrap_fi_eq_readerr
#define fi_getname __wrap_fi_getname
#define fi_inject __wrap_fi_inject
#define fi_listen __wrap_fi_listen
#define fi_mr_bind __wrap_fi_mr_bind
#define fi_mr_enable __wrap_fi_mr_enable
#define fi_mr_reg __wrap_fi_mr_reg
#define fi_passive_ep __wrap_fi_passive_ep
#define fi_pep_bind __wrap_fi_pep_bind
#define fi_recv __wrap_fi_recv
#define fi_reject __wrap_fi_reject
#define fi_send __wrap_fi_send
#define fi_sendv __wrap_fi_sendv
#define fi_trywait __wrap_fi_trywait
#endif

#endif
