/* SPDX-License-Identifier: BSD-3-Clause */
/* info_checks_node.c - the check that memory, the thread that makes progress, and the device are on one NUMA node. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* base/node.h */
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/node.h"
#include "tools/info.h"

/* What is compared. Sets of nodes are lists of numbers, as those of processors are. */
struct near {
	const struct info *info;
	char devices[192], cores[XPI_NODE_LINE]; /* cores: those of the node */
	int node;
	cpu_set_t set;      /* the processors of the node */
	cpu_set_t runs;     /* those of the thread; of several, of the far ones, or if there is none, of all */
	char runs_on[64];   /* its nodes, "0, 1" */
	const char *thread; /* what the thread is called */
	int threads;        /* progress threads of a process that runs: one for each instance */
	cpu_set_t far;      /* the processors of the far ones */
	char tasks[64];     /* their numbers, "77 78" */
	bool all;           /* the number is that of a process */
	bool far_thread, far_memory;
	int memory; /* the node of most of the process's memory; -1: not known */
};

static bool sys_read(void *arg, const char *path, char *text, size_t room)
{
	return info_line(arg, text, room, "/sys/%s", path);
}

/* The value of a line of /proc/PID/status or the like, "Cpus_allowed_list:\t0-3"; false: there is none. */
static bool status_list(const struct info *info, const char *folder, const char *name, cpu_set_t *set)
{
	char path[1024], line[XPI_NODE_LINE];
	size_t n = strlen(name);
	bool found = false;
	FILE *f = info_path(info, path, sizeof(path), "%s/status", folder) ? fopen(path, "re") : NULL;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, name, n) == 0 && line[n] == ':' &&
		        xpi_node_list(line + n + 1 + strspn(line + n + 1, " \t"), set);
	}
	if (f != NULL)
		fclose(f);
	return found;
}

/* ---- the machine and the device ---- */

static bool node_with_cores(void *arg, const char *name)
{
	struct near *n = arg;
	char line[XPI_NODE_LINE], *end;
	cpu_set_t set, both;
	long node;

	if (strncmp(name, "node", 4) != 0 || name[4] < '0' || name[4] > '9')
		return false;
	node = strtol(name + 4, &end, 10);
	if (*end != '\0' || node >= XPI_NODES ||
	    !xpi_node_cores((int)node, sys_read, (void *)(uintptr_t)n->info, line, &set))
		return false;
	CPU_AND(&both, &set, &n->runs);
	if (CPU_COUNT(&both) > 0)
		info_append(n->runs_on, sizeof(n->runs_on), "%ld", node);
	return false;
}

static bool is_another(void *arg, const char *name)
{
	return strncmp(name, "node", 4) == 0 && name[4] >= '1' && name[4] <= '9' && arg != NULL;
}

/* What is open; with auto also the adapters, which open later. */
static void name_devices(struct near *n)
{
	const struct info *info = n->info;
	const struct xport_info *caps = &info->request.caps;
	const char *asked = info->nnames > 0 ? info->names[0] : info->request.backend;

	if (info->nnames > 0)
		caps = info->nopened > 0 && info->opened[0].status == XPORT_OK ? &info->opened[0].caps : NULL;
	if (caps != NULL && caps->size != 0)
		snprintf(n->devices, sizeof(n->devices), "%s", caps->device);
	if (asked != NULL && strcmp(asked, "auto") == 0)
		info_list_rdma(info, n->devices + strlen(n->devices), sizeof(n->devices) - strlen(n->devices));
}

/* ---- the thread ---- */

static bool add_thread(void *arg, const char *task)
{
	struct near *n = arg;
	size_t at = strlen(n->tasks);
	char name[32], folder[128];
	cpu_set_t runs, both;

	snprintf(folder, sizeof(folder), "%s/task/%.31s", info_process(n->info), task);
	if (!info_line(n->info, name, sizeof(name), "%s/comm", folder) || strcmp(name, "xport-progress") != 0 ||
	    !status_list(n->info, folder, "Cpus_allowed_list", &runs))
		return false;
	n->threads++;
	CPU_OR(&n->runs, &n->runs, &runs);
	CPU_AND(&both, &runs, &n->set);
	if (CPU_COUNT(&both) > 0)
		return false;
	CPU_OR(&n->far, &n->far, &runs);
	if (strlen(task) + 2 <= sizeof(n->tasks) - at)
		snprintf(n->tasks + at, sizeof(n->tasks) - at, "%s%s", at > 0 ? " " : "", task);
	return false;
}

/* The progress threads of a process that runs: there may be several instances. False: it has none. */
static bool look_at_threads(struct near *n)
{
	char folder[128];
	bool far;

	snprintf(folder, sizeof(folder), "%s/task", info_process(n->info));
	info_each_file(n->info, folder, add_thread, n);
	far = n->tasks[0] != '\0';
	if (far)
		n->runs = n->far;
	if (n->threads > 1)
		n->thread = far ? "a progress thread" : "each progress thread";
	return n->threads > 0;
}

/* Of a process that runs, its progress threads; else what XPORT_PROGRESS will make of it. */
static bool look_at_thread(struct near *n)
{
	const char *progress = info_value(n->info, "XPORT_PROGRESS"), *at = strchr(progress, '@');

	n->thread = "the progress thread";
	if (n->info->pid > 0) {
		if (look_at_threads(n))
			return true;
		snprintf(n->tasks, sizeof(n->tasks), "%d", n->info->pid);
		n->all = true;
	} else if (at != NULL) {
		n->runs = n->set;
		return strcmp(at + 1, "device") == 0 || xpi_node_list(at + 1, &n->runs);
	} else {
		snprintf(n->tasks, sizeof(n->tasks), "$$");
	}
	n->thread = "the process";
	return status_list(n->info, info_process(n->info), "Cpus_allowed_list", &n->runs);
}

/* ---- memory ---- */

/* Memory that a program reads and writes; not programs and libraries, which are mapped from files. */
static bool is_data(const char *line)
{
	static const char *const marks[] = {
		" anon=", " huge ", " file=/memfd:", " file=/dev/shm/", " file=/dev/zero", " file=/SYSV", NULL};

	for (const char *const *m = marks; *m != NULL; m++)
		if (strstr(line, *m) != NULL)
			return true;
	return false;
}

/* Adds the KiB of a mapping to those of each node: "7f... default anon=3 N0=1 N1=2 kernelpagesize_kB=4". */
static void add_mapping(const char *line, uint64_t *kib)
{
	const char *size = strstr(line, "kernelpagesize_kB=");
	uint64_t page = size != NULL ? strtoull(size + strlen("kernelpagesize_kB="), NULL, 10) : 4;

	if (!is_data(line))
		return;
	for (const char *at = line; (at = strstr(at, " N")) != NULL; at++) {
		char *end;
		unsigned long node = strtoul(at + 2, &end, 10);

		if (end != at + 2 && *end == '=' && node < XPI_NODES)
			kib[node] += page * strtoull(end + 1, NULL, 10);
	}
}

/* The node of most of its memory, -1 if that is not known. */
static int memory_of(const struct info *info)
{
	static uint64_t kib[XPI_NODES];
	char path[1024], line[4096];
	int most = 0;
	FILE *f = info_path(info, path, sizeof(path), "%s/numa_maps", info_process(info)) ? fopen(path, "re") : NULL;

	memset(kib, 0, sizeof(kib));
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		add_mapping(line, kib);
	if (f != NULL)
		fclose(f);
	for (int i = 1; i < XPI_NODES; i++)
		most = kib[i] > kib[most] ? i : most;
	return kib[most] > 0 ? most : -1;
}

/* Memory of a process that runs is somewhere; that of another may not come from the node. */
static void look_at_memory(struct near *n)
{
	cpu_set_t allowed;

	n->memory = n->info->pid > 0 ? memory_of(n->info) : -1;
	if (n->memory >= 0)
		n->far_memory = n->memory != n->node;
	else if (status_list(n->info, info_process(n->info), "Mems_allowed_list", &allowed))
		n->far_memory = !CPU_ISSET(n->node, &allowed);
}

/* ---- the check ---- */

static void near_cure(const struct near *n, struct info_check *c)
{
	char bind[256] = "", migrate[64] = "";

	if (n->far_thread && n->tasks[0] == '\0') {
		info_cure(c, "export XPORT_PROGRESS=thread@device");
		return;
	}
	if (n->far_thread && strchr(n->tasks, ' ') != NULL)
		snprintf(bind, sizeof(bind), "for t in %s; do taskset -cp %.100s $t; done", n->tasks, n->cores);
	else if (n->far_thread)
		snprintf(bind, sizeof(bind), "taskset -%scp %.100s %s", n->all ? "a" : "", n->cores, n->tasks);
	if (n->memory >= 0 && n->far_memory)
		snprintf(migrate, sizeof(migrate), "migratepages %d %d %d", n->info->pid, n->memory, n->node);
	if (bind[0] != '\0' || migrate[0] != '\0')
		info_cure(c, "%s%s%s", bind, bind[0] != '\0' && migrate[0] != '\0' ? " && " : "", migrate);
	else
		info_cure(c, "allow node %d in cpuset.mems of the control group (a container: --cpuset-mems)", n->node);
}

static enum info_state near_compare(const struct near *n, struct info_check *c)
{
	char thread[128] = "", memory[128] = "";

	if (n->far_thread)
		snprintf(thread, sizeof(thread), "%s runs on node %.48s", n->thread,
		         n->runs_on[0] != '\0' ? n->runs_on : "(unknown)");
	if (n->far_memory && n->memory >= 0)
		snprintf(memory, sizeof(memory), "most memory is on node %d", n->memory);
	else if (n->far_memory)
		snprintf(memory, sizeof(memory), "the process gets no memory of node %d (Mems_allowed_list)", n->node);
	if (n->far_thread || n->far_memory) {
		near_cure(n, c);
		return info_say(c, INFO_PROBLEM,
		                "the device %.128s is on NUMA node %d, but %s%s%s: each access is slower", n->devices,
		                n->node, thread, n->far_thread && n->far_memory ? ", and " : "", memory);
	}
	if (strchr(n->runs_on, ',') != NULL)
		return info_say(c, INFO_OK,
		                "the device %.128s is on NUMA node %d, and %s may run on nodes %.48s; "
		                "XPORT_PROGRESS=thread@device and XPORT_POOL_NODE_DEVICE keep both near the device",
		                n->devices, n->node, n->thread, n->runs_on);
	return info_say(c, INFO_OK, "the device %.128s, %s and the memory are on NUMA node %d", n->devices, n->thread,
	                n->node);
}

enum info_state info_check_numa_nodes(const struct info *info, struct info_check *c)
{
	struct near n = {.info = info, .memory = -1};
	void *root = (void *)(uintptr_t)info;
	cpu_set_t both;

	if (!info_each_file(info, "/sys/devices/system/node", is_another, root))
		return info_say(c, INFO_NOT_APPLICABLE, "this machine has one NUMA node");
	name_devices(&n);
	n.node = xpi_node_of(n.devices, sys_read, root);
	if (n.devices[0] == '\0')
		return info_say(c, INFO_NOT_APPLICABLE, "no back end is open");
	if (n.node == XPI_NODE_SEVERAL)
		return info_say(c, INFO_NOT_APPLICABLE, "the devices %.128s are on several NUMA nodes", n.devices);
	if (n.node < 0 || !xpi_node_cores(n.node, sys_read, root, n.cores, &n.set))
		return info_say(c, INFO_NOT_APPLICABLE,
		                "the device %.128s has no NUMA node with processors: XPORT_PROGRESS=thread@device and "
		                "XPORT_POOL_NODE_DEVICE have no effect",
		                n.devices);
	if (!look_at_thread(&n))
		return info_say(c, INFO_NOT_APPLICABLE, "the processors of %s are unknown", n.thread);
	info_each_file(info, "/sys/devices/system/node", node_with_cores, &n);
	CPU_AND(&both, &n.runs, &n.set);
	n.far_thread = CPU_COUNT(&both) == 0;
	look_at_memory(&n);
	return near_compare(&n, c);
}
