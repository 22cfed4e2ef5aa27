/* SPDX-License-Identifier: BSD-3-Clause */
/* info_checks.c - checks of limits: what the process may use, and what the machine has. */
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/info.h"

enum {
	LOCK_MIN = 64 << 10, /* KiB: an adapter's queues take 8 MiB, the rest is for memory of the application's */
	FILES_MIN = 1024,    /* an endpoint has a socket and what its stack needs; 1024 is the usual limit */
	SHM_MIN = 64 << 10,  /* KiB: a process takes 5 to 16 MiB in UCX; containers have 64 MiB unless told otherwise */
	MAPS_MIN = 65530     /* the kernel's own default */
};

/* Whether CAP_IPC_LOCK frees the process of the limit. */
static bool may_lock(const struct info *info)
{
	unsigned long long caps = 0;
	char path[1024], line[256];
	FILE *f = info_path(info, path, sizeof(path), "%s/status", info_process(info)) ? fopen(path, "re") : NULL;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		(void)sscanf(line, "CapEff: %llx", &caps);
	if (f != NULL)
		fclose(f);
	return (caps >> CAP_IPC_LOCK & 1) != 0;
}

/* The process that is looked at, as a shell would name it. */
static const char *process(const struct info *info)
{
	const char *folder = info_process(info);

	return info->pid > 0 ? folder + strlen("/proc/") : "$$";
}

enum info_state info_check_memlock(const struct info *info, struct info_check *c)
{
	struct rlimit lim = {0, 0};
	unsigned long long kib;

	if (prlimit(info->pid, RLIMIT_MEMLOCK, NULL, &lim) != 0)
		return info_say(c, INFO_NOT_APPLICABLE, "the limit of locked memory is unknown: %m");
	kib = lim.rlim_cur / 1024;
	if (lim.rlim_cur == RLIM_INFINITY)
		return info_say(c, INFO_OK, "locked memory is unlimited");
	if (may_lock(info))
		return info_say(c, INFO_OK, "the limit of locked memory is %llu KiB, but does not apply to this user",
		                kib);
	if (kib >= LOCK_MIN)
		return info_say(c, INFO_OK, "the limit of locked memory is %llu KiB", kib);
	if (lim.rlim_max == RLIM_INFINITY && info->pid == 0)
		info_cure(c, "ulimit -l unlimited");
	else
		info_cure(
			c,
			"prlimit --pid %s --memlock=unlimited (as root; a service: LimitMEMLOCK=infinity; a container: "
			"--ulimit memlock=-1; for good: memlock in /etc/security/limits.conf)",
			process(info));
	if (!info_asks_for_rdma(info) && !info_have_rdma(info))
		return info_say(c, INFO_NOT_APPLICABLE,
		                "the limit of locked memory is %llu KiB: too low for RDMA, but there is no RDMA device",
		                kib);
	return info_say(
		c, INFO_PROBLEM,
		"the limit of locked memory is only %llu KiB: registering more memory with an RDMA device fails", kib);
}

enum info_state info_check_files(const struct info *info, struct info_check *c)
{
	struct rlimit lim = {0, 0};

	if (prlimit(info->pid, RLIMIT_NOFILE, NULL, &lim) != 0)
		return info_say(c, INFO_NOT_APPLICABLE, "the limit of open files is unknown: %m");
	if (lim.rlim_cur >= FILES_MIN)
		return info_say(c, INFO_OK, "the limit of open files is %llu", (unsigned long long)lim.rlim_cur);
	if (lim.rlim_max >= FILES_MIN && info->pid == 0)
		info_cure(c, "ulimit -n $(ulimit -H -n)");
	else
		info_cure(c,
		          "prlimit --pid %s --nofile=%d (as root; a service: LimitNOFILE=%d; a container: --ulimit "
		          "nofile=%d)",
		          process(info), 64 * FILES_MIN, 64 * FILES_MIN, 64 * FILES_MIN);
	return info_say(c, INFO_PROBLEM,
	                "the limit of open files is only %llu: once it is reached, opening an endpoint fails",
	                (unsigned long long)lim.rlim_cur);
}

/* The mappings that the process has: a line each. */
static long mappings(const struct info *info)
{
	char path[1024], line[1024];
	FILE *f = info_path(info, path, sizeof(path), "%s/maps", info_process(info)) ? fopen(path, "re") : NULL;
	long n = 0;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		n += strchr(line, '\n') != NULL;
	if (f != NULL)
		fclose(f);
	return n;
}

enum info_state info_check_maps(const struct info *info, struct info_check *c)
{
	char line[64];
	long n, used;

	if (!info_line(info, line, sizeof(line), "/proc/sys/vm/max_map_count"))
		return info_say(c, INFO_NOT_APPLICABLE, "/proc/sys/vm/max_map_count cannot be read");
	n = strtol(line, NULL, 10);
	used = mappings(info);
	info_cure(c, "sysctl -w vm.max_map_count=%d", n < MAPS_MIN * 4 ? 262144 : 1 << 20);
	if (used > n - n / 10)
		return info_say(c, INFO_PROBLEM,
		                "%ld of %ld mappings (vm.max_map_count) are in use: registering memory will soon fail",
		                used, n);
	if (n >= MAPS_MIN) {
		c->cure[0] = '\0';
		return info_say(c, INFO_OK, "vm.max_map_count is %ld, %ld mappings are in use", n, used);
	}
	return info_say(c, INFO_PROBLEM,
	                "vm.max_map_count is %ld: registering many regions fails, because each needs mappings", n);
}

enum info_state info_check_shm(const struct info *info, struct info_check *c)
{
	unsigned long long size, room;
	struct statvfs fs;
	char path[1024];

	info_cure(c, "mount -o remount,rw,size=1G /dev/shm (a container: --shm-size=1g)");
	if (!info_path(info, path, sizeof(path), "/dev/shm") || statvfs(path, &fs) != 0) {
		info_cure(c, "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777,size=1G tmpfs /dev/shm");
		return info_say(c, INFO_PROBLEM, "there is no /dev/shm: shared-memory providers do not work");
	}
	if ((fs.f_flag & ST_RDONLY) != 0 || access(path, W_OK | X_OK) != 0)
		return info_say(c, INFO_PROBLEM, "/dev/shm cannot be written: shared-memory providers do not work");
	size = (unsigned long long)fs.f_blocks * fs.f_frsize / 1024;
	room = (unsigned long long)fs.f_bavail * fs.f_frsize / 1024;
	if (size <= SHM_MIN)
		return info_say(c, INFO_PROBLEM,
		                "/dev/shm has %llu KiB, %llu KiB free: enough only for a few processes; a process that "
		                "exhausts it may die of SIGBUS",
		                size, room);
	if (room < SHM_MIN) {
		info_cure(c, "list it with ls -l /dev/shm, and remove files that no process uses");
		return info_say(c, INFO_PROBLEM, "/dev/shm is full: only %llu of %llu KiB are free", room, size);
	}
	c->cure[0] = '\0';
	return info_say(c, INFO_OK, "/dev/shm has %llu KiB, %llu KiB free", size, room);
}

enum info_state info_check_ptrace(const struct info *info, struct info_check *c)
{
	char line[64];
	long scope;

	if (!info_line(info, line, sizeof(line), "/proc/sys/kernel/yama/ptrace_scope"))
		return info_say(c, INFO_OK, "this kernel has no ptrace_scope");
	scope = strtol(line, NULL, 10);
	if (scope == 0)
		return info_say(c, INFO_OK, "ptrace_scope is 0");
	info_cure(c, "sysctl -w kernel.yama.ptrace_scope=0");
	return info_say(c, INFO_NOT_APPLICABLE,
	                "ptrace_scope is %ld: processes cannot read each other's memory (CMA); long transfers over "
	                "shared memory are slower, and other programs with UCX or libfabric may fail",
	                scope);
}

/* ---- two copies of a library ---- */

/* The libraries of which a second copy has state of its own, and where each was seen first. */
struct copies {
	char first[16][256];
	char twice[512];
};

static const char *const libraries[] = {"libxport",  "libucp",     "libuct",    "libucs",  "libucm",
                                        "libfabric", "libibverbs", "librdmacm", "libnl-3", "libpsm_infinipath",
                                        "libpsm2"};
enum { NLIBRARIES = sizeof(libraries) / sizeof(libraries[0]) };
_Static_assert(NLIBRARIES <= 16, "copies.first");

/* Whether the file's name is that library's: "libucp.so.0", also "libucp-1a2b.so.0" as bundles have it. */
static bool is_library(const char *path, const char *library)
{
	const char *name = strrchr(path, '/');
	size_t n = strlen(library);

	name = name != NULL ? name + 1 : path;
	return strncmp(name, library, n) == 0 && (name[n] == '.' || name[n] == '-') && strstr(name, ".so") != NULL;
}

static void checks_look_at(struct copies *copies, const char *path)
{
	for (int i = 0; i < NLIBRARIES; i++) {
		char *first = copies->first[i];

		if (!is_library(path, libraries[i]) || strcmp(first, path) == 0)
			continue;
		if (first[0] == '\0')
			snprintf(first, sizeof(copies->first[i]), "%s", path);
		else if (strstr(copies->twice, path) == NULL)
			info_append(copies->twice, sizeof(copies->twice), "%s and %s", first, path);
	}
}

enum info_state info_check_copies(const struct info *info, struct info_check *c)
{
	struct copies copies = {.twice = ""};
	char path[1024], line[1024];
	FILE *f = info_path(info, path, sizeof(path), "%s/maps", info_process(info)) ? fopen(path, "re") : NULL;

	if (f == NULL)
		return info_say(c, INFO_NOT_APPLICABLE, "%s/maps cannot be read: %m", info_process(info));
	while (fgets(line, sizeof(line), f) != NULL) {
		char *slash = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (slash != NULL)
			checks_look_at(&copies, slash);
	}
	fclose(f);
	if (copies.twice[0] == '\0')
		return info_say(c, INFO_OK, "only one copy of each stack's libraries is loaded");
	info_cure(c, "unset LD_PRELOAD LD_LIBRARY_PATH (if they are not set, ldd of the program shows where each copy "
	             "comes from)");
	return info_say(c, INFO_PROBLEM, "two copies of a library are loaded, each with its own state: %.440s",
	                copies.twice);
}
