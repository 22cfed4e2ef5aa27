/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ASSUMPTIONS  The calling convention passes up to seven integer arguments the same way whether a function takes them or
 *              not: that is how one wrapper fits all system calls.  So no header that declares them is included here.
 */
#include "count.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Modules that are loaded later find these here, before libc's. */
#pragma GCC visibility push(default)

static _Thread_local struct count *counting;

enum { RANGES_MAX = 16 };
static struct {
	uintptr_t from, to;
	enum count_whose whose;
} ranges[RANGES_MAX];
static int nranges;

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *base = strrchr(info->dlpi_name, '/');
	enum count_whose whose = COUNT_UCX;

	(void)size, (void)arg;
	base = base != NULL ? base + 1 : info->dlpi_name;
	if (base[0] == '\0' || strncmp(base, "libxport", 8) == 0)
		whose = COUNT_OURS;
	else if (strncmp(base, "libc.", 5) == 0 || strncmp(base, "ld-linux", 8) == 0 ||
	         strncmp(base, "libpthread", 10) == 0)
		whose = COUNT_LIBC;
	if (strncmp(base, "linux-vdso", 10) == 0)
		return 0;
	for (int i = 0; i < info->dlpi_phnum && whose != COUNT_UCX; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X) || nranges == RANGES_MAX)
			continue;
		ranges[nranges].from = info->dlpi_addr + ph->p_vaddr;
		ranges[nranges].to = ranges[nranges].from + ph->p_memsz;
		ranges[nranges++].whose = whose;
	}
	return 0;
}

void count_init(void)
{
	nranges = 0;
	dl_iterate_phdr(look, NULL);
}

void count_into(struct count *c)
{
	counting = c;
}

static void note(enum count_what what, const char *name, void *from)
{
	struct count *c = counting;
	enum count_whose whose = COUNT_UCX;

	if (c == NULL)
		return;
	for (int i = 0; i < nranges; i++)
		if ((uintptr_t)from >= ranges[i].from && (uintptr_t)from < ranges[i].to)
			whose = ranges[i].whose;
	if (whose == COUNT_OURS && c->n[what][whose] == 0) {
		c->first[what] = name;
		c->first_from[what] = from;
	}
	c->n[what][whose]++;
}

/* ---- memory ---- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

void *malloc(size_t size)
{
	note(COUNT_ALLOC, "malloc", __builtin_return_address(0));
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	note(COUNT_ALLOC, "calloc", __builtin_return_address(0));
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	note(COUNT_ALLOC, "realloc", __builtin_return_address(0));
	return __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
	note(COUNT_ALLOC, "memalign", __builtin_return_address(0));
	return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	note(COUNT_ALLOC, "aligned_alloc", __builtin_return_address(0));
	return __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
	note(COUNT_ALLOC, "posix_memalign", __builtin_return_address(0));
	*p = __libc_memalign(align, size);
	return *p != NULL ? 0 : 12 /* ENOMEM */;
}

void free(void *p)
{
	if (p != NULL)
		note(COUNT_ALLOC, "free", __builtin_return_address(0));
	__libc_free(p);
}

/* ---- the rest: counted, then passed on ---- */

typedef long (*any_fn)(long, long, long, long, long, long, long);

static any_fn next(any_fn *fn, const char *name)
{
	if (*fn == NULL) {
		void *sym = dlsym(RTLD_NEXT, name);

		memcpy(fn, &sym, sizeof(*fn));
	}
	return *fn;
}

#define COUNTED(what, name) \
	long name(long a, long b, long c, long d, long e, long f, long g); \
	long name(long a, long b, long c, long d, long e, long f, long g) \
	{ \
		static any_fn fn; \
\
		note(what, #name, __builtin_return_address(0)); \
		return next(&fn, #name)(a, b, c, d, e, f, g); \
	}

COUNTED(COUNT_ALLOC, mmap)
COUNTED(COUNT_ALLOC, munmap)
COUNTED(COUNT_ALLOC, mremap)
COUNTED(COUNT_ALLOC, brk)
COUNTED(COUNT_ALLOC, sbrk)

COUNTED(COUNT_LOCK, pthread_mutex_lock)
COUNTED(COUNT_LOCK, pthread_mutex_trylock)
COUNTED(COUNT_LOCK, pthread_spin_lock)
COUNTED(COUNT_LOCK, pthread_rwlock_rdlock)
COUNTED(COUNT_LOCK, pthread_rwlock_wrlock)
COUNTED(COUNT_LOCK, pthread_cond_wait)
COUNTED(COUNT_LOCK, pthread_cond_signal)

COUNTED(COUNT_SYSTEM, read)
COUNTED(COUNT_SYSTEM, write)
COUNTED(COUNT_SYSTEM, readv)
COUNTED(COUNT_SYSTEM, writev)
COUNTED(COUNT_SYSTEM, recv)
COUNTED(COUNT_SYSTEM, send)
COUNTED(COUNT_SYSTEM, recvfrom)
COUNTED(COUNT_SYSTEM, sendto)
COUNTED(COUNT_SYSTEM, recvmsg)
COUNTED(COUNT_SYSTEM, sendmsg)
COUNTED(COUNT_SYSTEM, poll)
COUNTED(COUNT_SYSTEM, ppoll)
COUNTED(COUNT_SYSTEM, epoll_wait)
COUNTED(COUNT_SYSTEM, epoll_pwait)
COUNTED(COUNT_SYSTEM, epoll_ctl)
COUNTED(COUNT_SYSTEM, eventfd_read)
COUNTED(COUNT_SYSTEM, eventfd_write)
COUNTED(COUNT_SYSTEM, timerfd_settime)
COUNTED(COUNT_SYSTEM, clock_gettime)
COUNTED(COUNT_SYSTEM, gettimeofday)
COUNTED(COUNT_SYSTEM, time)
COUNTED(COUNT_SYSTEM, nanosleep)
COUNTED(COUNT_SYSTEM, clock_nanosleep)
COUNTED(COUNT_SYSTEM, usleep)
COUNTED(COUNT_SYSTEM, sched_yield)
COUNTED(COUNT_SYSTEM, getpid)
COUNTED(COUNT_SYSTEM, gettid)
COUNTED(COUNT_SYSTEM, getrandom)
COUNTED(COUNT_SYSTEM, ioctl)
COUNTED(COUNT_SYSTEM, kill)
COUNTED(COUNT_SYSTEM, madvise)
COUNTED(COUNT_SYSTEM, syscall)
