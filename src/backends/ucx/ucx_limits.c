/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_limits.c - whether the process and the host have the resources that UCX will take. UCX 1.13 does not check: it
 * dies by SIGBUS, aborts, or does not return.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "ucx.h"

enum {
	DESCRIPTORS = 24,
	SHM_MIN = 16 << 20, /* bytes free in /dev/shm: UCX's own queues take about 5 MB an instance */
	LOCK_MIN = 8 << 10  /* KiB that may still be locked: with 2048 UCX's ud did not return, with 4096 it did */
};

static const char *shm_dir(void)
{
	const char *dir = secure_getenv("UCX_POSIX_DIR");

	return dir != NULL && dir[0] != '\0' ? dir : "/dev/shm";
}

/* UCX itself would use the memory and die by SIGBUS. */
bool ucx_shm_usable(char *why, size_t size)
{
	struct statvfs fs;
	uint64_t room;

	if (statvfs(shm_dir(), &fs) != 0 || access(shm_dir(), W_OK | X_OK) != 0) {
		snprintf(why, size, "%s cannot be written: %m", shm_dir());
		return false;
	}
	room = (uint64_t)fs.f_bavail * fs.f_bsize;
	if (room < SHM_MIN) {
		snprintf(why, size, "%s has %llu KiB free, UCX needs %d", shm_dir(), (unsigned long long)room / 1024,
		         SHM_MIN / 1024);
		return false;
	}
	return true;
}

static bool have_rdma(void)
{
	DIR *dir = xpi_fd_dir("/sys/class/infiniband");
	struct dirent *entry;
	bool found = false;

	if (dir == NULL)
		return false;
	while (!found && (entry = readdir(dir)) != NULL)
		found = entry->d_name[0] != '.';
	closedir(dir);
	return found;
}

/* Reads how much memory this process has locked for adapters, in KiB, and whether it may exceed the limit. */
static void read_locked(unsigned long long *kib, bool *may)
{
	unsigned long long caps = 0;
	FILE *f = xpi_fd_stream("/proc/self/status");
	char line[128];

	*kib = 0;
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "VmPin: %llu", kib) != 1)
			(void)sscanf(line, "CapEff: %llx", &caps);
	if (f != NULL)
		fclose(f);
	*may = (caps >> CAP_IPC_LOCK & 1) != 0;
}

/* If UCX's ud cannot register its own buffers, ucp_worker_progress never returns. */
bool ucx_rdma_usable(char *why, size_t size)
{
	unsigned long long kib, max;
	struct rlimit lim;
	bool may;

	if (getrlimit(RLIMIT_MEMLOCK, &lim) != 0 || lim.rlim_cur == RLIM_INFINITY || !have_rdma())
		return true;
	read_locked(&kib, &may);
	max = lim.rlim_cur / 1024;
	if (may || max >= kib + LOCK_MIN)
		return true;
	snprintf(why, size, "the limit of locked memory is %llu KiB, %llu KiB are in use, and UCX needs %d KiB", max,
	         kib, LOCK_MIN);
	return false;
}

static bool ask_fork_copies(void)
{
	enum { IBV_FORK_UNNEEDED = 2 }; /* enum ibv_fork_status */
	int (*initialized)(void);
	void *verbs;

	if (!have_rdma())
		return false;
	verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL); /* UCX loads it as well; it stays loaded */
	if (verbs == NULL)
		return false;
	initialized = (int (*)(void))dlsym(verbs, "ibv_is_fork_initialized");
	return initialized != NULL && initialized() == IBV_FORK_UNNEEDED;
}

bool ucx_fork_copies(void)
{
	static _Atomic(int) answer = -1;

	if (atomic_load(&answer) < 0)
		atomic_store(&answer, ask_fork_copies());
	return atomic_load(&answer) > 0;
}

int ucx_descriptors(struct xport_error *err, const char *what)
{
	int fds[DESCRIPTORS], n = 0;

	while (n < DESCRIPTORS && (fds[n] = xpi_fd_up(eventfd(0, EFD_CLOEXEC))) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	if (n == DESCRIPTORS)
		return XPORT_OK;
	return xpi_fail(err, XPORT_ERR_SYSTEM, EMFILE, "EMFILE", "raise the limit of open files: `ulimit -n`",
	                "%s of UCX needs up to %d descriptors, and only %d are left", what, DESCRIPTORS, n);
}
