/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/wrap.h"

#include <errno.h>
#include <sys/mman.h>

#include "xport.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { HUGE_OF_2M = 21 << MAP_HUGE_SHIFT, HUGE_SIZES = 63 << MAP_HUGE_SHIFT };

static _Thread_local int regs, allocs, gets, keys, populate = -1;
/* The get that is kept. */
static _Thread_local struct {
	bool next;
	xport_ep *ep;
	void *buf;
	size_t len;
	xport_rkey *rkey;
	uint64_t offset;
	struct xport_opt opt;
} kept;
static _Thread_local void *huge;
static _Thread_local size_t huge_mapped;
static _Thread_local bool nodes_empty;

int __real_xport_mr_reg(xport *x, void *buf, size_t length, uint32_t rights, xport_mr **mr);
int __wrap_xport_mr_reg(xport *x, void *buf, size_t length, uint32_t rights, xport_mr **mr);
int __real_xport_mr_alloc(xport *x, size_t length, uint32_t rights, xport_mr **mr);
int __wrap_xport_mr_alloc(xport *x, size_t length, uint32_t rights, xport_mr **mr);
int __real_xport_get(xport_ep *ep, void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
                     const struct xport_opt *opt);
int __wrap_xport_get(xport_ep *ep, void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
                     const struct xport_opt *opt);
void __real_xport_rkey_destroy(xport_rkey *rkey);
void __wrap_xport_rkey_destroy(xport_rkey *rkey);
void *__real_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t length);
int __wrap_munmap(void *addr, size_t length);
int __real_madvise(void *addr, size_t length, int advice);
int __wrap_madvise(void *addr, size_t length, int advice);
/* Weak: there may be no libnuma. */
long long __real_numa_node_size64(int node, long long *room) __attribute__((weak));
long long __wrap_numa_node_size64(int node, long long *room);

int __wrap_xport_mr_reg(xport *x, void *buf, size_t length, uint32_t rights, xport_mr **mr)
{
	if (regs == 0)
		return __real_xport_mr_reg(x, buf, length, rights, mr);
	regs--;
	return XPORT_ERR_NO_MEMORY;
}

int __wrap_xport_mr_alloc(xport *x, size_t length, uint32_t rights, xport_mr **mr)
{
	if (allocs == 0)
		return __real_xport_mr_alloc(x, length, rights, mr);
	allocs--;
	return XPORT_ERR_NO_MEMORY;
}

int __wrap_xport_get(xport_ep *ep, void *buf, size_t len, xport_rkey *rkey, uint64_t offset,
                     const struct xport_opt *opt)
{
	if (kept.next) {
		kept.next = false;
		kept.ep = ep;
		kept.buf = buf;
		kept.len = len;
		kept.rkey = rkey;
		kept.offset = offset;
		kept.opt = *opt;
		return XPORT_OK;
	}
	if (gets == 0)
		return __real_xport_get(ep, buf, len, rkey, offset, opt);
	gets--;
	return XPORT_ERR_NO_MEMORY;
}

void __wrap_xport_rkey_destroy(xport_rkey *rkey)
{
	keys += rkey != NULL;
	__real_xport_rkey_destroy(rkey);
}

void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	if (populate < 0 || (flags & MAP_HUGETLB) == 0)
		return __real_mmap(addr, length, prot, flags, fd, offset);
	if ((flags & HUGE_SIZES) != HUGE_OF_2M) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	huge = __real_mmap(addr, length, prot, flags & ~(MAP_HUGETLB | HUGE_SIZES), fd, offset);
	huge_mapped = huge == MAP_FAILED ? 0 : length;
	return huge;
}

int __wrap_munmap(void *addr, size_t length)
{
	if (huge_mapped != 0 && addr == huge && length == huge_mapped)
		huge_mapped = 0;
	return __real_munmap(addr, length);
}

int __wrap_madvise(void *addr, size_t length, int advice)
{
	if (huge_mapped == 0 || addr != huge || advice != MADV_POPULATE_WRITE)
		return __real_madvise(addr, length, advice);
	errno = populate;
	return populate == 0 ? 0 : -1;
}

long long __wrap_numa_node_size64(int node, long long *room)
{
	return nodes_empty ? 0 : __real_numa_node_size64(node, room);
}

void svc_wrap_reg(int refused)
{
	regs = refused;
}

void svc_wrap_alloc(int refused)
{
	allocs = refused;
}

void svc_wrap_get(int refused)
{
	gets = refused;
}

void svc_wrap_get_keep(void)
{
	kept.next = true;
}

int svc_wrap_get_post(void)
{
	return __real_xport_get(kept.ep, kept.buf, kept.len, kept.rkey, kept.offset, &kept.opt);
}

int svc_wrap_keys_destroyed(void)
{
	return keys;
}

void svc_wrap_huge(int error)
{
	populate = error;
}

size_t svc_wrap_huge_mapped(void)
{
	return huge_mapped;
}

void svc_wrap_nodes_empty(bool empty)
{
	nodes_empty = empty;
}
