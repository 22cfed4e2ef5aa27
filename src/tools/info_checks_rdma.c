/* SPDX-License-Identifier: BSD-3-Clause */
/* info_checks_rdma.c - checks of the RDMA devices of the kernel: present, accessible, up, with addresses that peers can use. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/info.h"

#define DEVICES "/sys/class/infiniband"

/* A walk over the ports of all devices. */
struct walk {
	const struct info *info;
	const char *device, *port;
	void (*at_port)(struct walk *w);
	int ndevices, nports, ngood;
	char bad[300];   /* "mlx5_0 port 1 (DOWN)", ... */
	char netdev[64]; /* of the first bad one */
	bool infiniband; /* the first bad one is InfiniBand's own */
	char list[160];  /* ",mlx5_0:1", ... */
	/* Of the port at hand: */
	int nv2, nroutable;
};

static bool at_port(void *arg, const char *name)
{
	struct walk *w = arg;

	w->port = name;
	w->nports++;
	w->at_port(w);
	return false;
}

static bool at_device(void *arg, const char *name)
{
	struct walk *w = arg;
	char folder[256];

	w->device = name;
	w->ndevices++;
	snprintf(folder, sizeof(folder), DEVICES "/%s/ports", name);
	if (w->at_port != NULL)
		info_each_file(w->info, folder, at_port, w);
	return false;
}

static struct walk rdma_walk(const struct info *info, void (*fn)(struct walk *w))
{
	struct walk w = {.info = info, .at_port = fn};

	info_each_file(info, DEVICES, at_device, &w);
	return w;
}

/* One attribute of the port at hand. */
static const char *port_says(const struct walk *w, const char *file, char *buf, size_t len)
{
	if (!info_line(w->info, buf, len, DEVICES "/%s/ports/%s/%s", w->device, w->port, file))
		buf[0] = '\0';
	return buf;
}

static bool is_ethernet(const struct walk *w)
{
	char line[64];

	return strcmp(port_says(w, "link_layer", line, sizeof(line)), "Ethernet") == 0;
}

/* An iWARP adapter has Ethernet ports, but no GIDs that anybody chooses among. */
static bool is_roce(const struct walk *w)
{
	char line[64];

	info_line(w->info, line, sizeof(line), DEVICES "/%s/node_type", w->device);
	return is_ethernet(w) && strstr(line, "RNIC") == NULL;
}

static bool is_active(const struct walk *w)
{
	char line[64];

	return strstr(port_says(w, "state", line, sizeof(line)), "ACTIVE") != NULL;
}

static void note_bad(struct walk *w, const char *why)
{
	if (w->bad[0] == '\0') {
		port_says(w, "gid_attrs/ndevs/0", w->netdev, sizeof(w->netdev));
		w->infiniband = !is_ethernet(w);
	}
	info_append(w->bad, sizeof(w->bad), "%s port %s%s", w->device, w->port, why);
}

/* The network device that belongs to the first bad port, for a command. */
static const char *netdev(const struct walk *w)
{
	return w->netdev[0] != '\0' ? w->netdev : "NETDEV";
}

/* ---- the kernel, and the way to it ---- */

bool info_have_rdma(const struct info *info)
{
	return rdma_walk(info, NULL).ndevices > 0;
}

static void list_port(struct walk *w)
{
	size_t at = strlen(w->list);
	int n = snprintf(w->list + at, sizeof(w->list) - at, ",%s:%s", w->device, w->port);

	/* Half a name is none. */
	if (n < 0 || (size_t)n >= sizeof(w->list) - at)
		w->list[at] = '\0';
}

void info_list_rdma(const struct info *info, char *list, size_t len)
{
	struct walk w = rdma_walk(info, list_port);

	snprintf(list, len, "%s", w.list);
}

static bool is_mellanox(void *arg, const char *name)
{
	char line[64];

	return info_line(arg, line, sizeof(line), "/sys/bus/pci/devices/%s/vendor", name) &&
	       strcmp(line, "0x15b3") == 0;
}

/* A network device on which one in software could be made: one that is up, else one that may be. */
struct netdevs {
	const struct info *info;
	char up[64], other[64];
};

static bool at_netdev(void *arg, const char *name)
{
	struct netdevs *n = arg;
	char line[64];

	if (strcmp(name, "lo") == 0 || info_is_bridge(name) ||
	    !info_line(n->info, line, sizeof(line), "/sys/class/net/%s/operstate", name))
		return false;
	if (strcmp(line, "up") == 0 && n->up[0] == '\0')
		snprintf(n->up, sizeof(n->up), "%s", name);
	if (strcmp(line, "unknown") == 0 && n->other[0] == '\0')
		snprintf(n->other, sizeof(n->other), "%s", name);
	return false;
}

static void cure_kernel(const struct info *info, struct info_check *c)
{
	struct netdevs n = {.info = info, .up = "", .other = ""};

	if (info_each_file(info, "/sys/bus/pci/devices", is_mellanox, (void *)(uintptr_t)info)) {
		info_cure(c, "modprobe mlx5_ib (an old adapter: mlx4_ib)");
		return;
	}
	info_each_file(info, "/sys/class/net", at_netdev, &n);
	if (n.other[0] == '\0')
		snprintf(n.other, sizeof(n.other), "NETDEV");
	info_cure(c,
	          "rdma link add rxe0 type rxe netdev %s (in software; for an adapter, which lspci shows: modprobe "
	          "DRIVER, "
	          "such as irdma or bnxt_re)",
	          n.up[0] != '\0' ? n.up : n.other);
}

enum info_state info_check_rdma_kernel(const struct info *info, struct info_check *c)
{
	struct walk w = rdma_walk(info, NULL);

	if (w.ndevices > 0)
		return info_say(c, INFO_OK, "the kernel has %d RDMA device%s", w.ndevices, w.ndevices == 1 ? "" : "s");
	if (!info_asks_for_rdma(info))
		return info_say(c, INFO_NOT_APPLICABLE, "the kernel has no RDMA device, and none was requested");
	cure_kernel(info, c);
	if (!info_exists(info, DEVICES))
		return info_say(c, INFO_PROBLEM, "no driver of an RDMA device is loaded: there is no " DEVICES);
	return info_say(c, INFO_PROBLEM, "the kernel has no RDMA device: " DEVICES " is empty");
}

struct files {
	const struct info *info;
	int nverbs;
	char denied[64];
};

static bool at_file(void *arg, const char *name)
{
	struct files *files = arg;
	char path[1024];

	if (strncmp(name, "uverbs", 6) != 0)
		return false;
	files->nverbs++;
	if (info_path(files->info, path, sizeof(path), "/dev/infiniband/%s", name) && access(path, R_OK | W_OK) != 0)
		snprintf(files->denied, sizeof(files->denied), "%.60s", name);
	return false;
}

static bool in_container(const struct info *info)
{
	return info_exists(info, "/.dockerenv") || info_exists(info, "/run/.containerenv");
}

enum info_state info_check_rdma_files(const struct info *info, struct info_check *c)
{
	struct files files = {.info = info};
	struct walk w = rdma_walk(info, NULL);

	info_each_file(info, "/dev/infiniband", at_file, &files);
	if (w.ndevices == 0 && files.nverbs == 0 && !info_asks_for_rdma(info))
		return info_say(c, INFO_NOT_APPLICABLE, "no RDMA device");
	if (files.nverbs == 0 && in_container(info)) {
		info_cure(c, "docker run --device=/dev/infiniband --ulimit memlock=-1 ... (podman: the same)");
		return info_say(c, INFO_PROBLEM,
		                "this container has no access to /dev/infiniband: it cannot open RDMA devices");
	}
	if (files.nverbs == 0) {
		info_cure(c, "modprobe -a ib_uverbs rdma_ucm");
		return info_say(c, INFO_PROBLEM,
		                "there is no /dev/infiniband/uverbs0: programs cannot open RDMA devices");
	}
	if (files.denied[0] != '\0') {
		info_cure(c, "chmod a+rw /dev/infiniband/uverbs* /dev/infiniband/rdma_cm (for good: a rule for udev)");
		return info_say(c, INFO_PROBLEM, "this user may not open /dev/infiniband/%s", files.denied);
	}
	if (!info_exists(info, "/dev/infiniband/rdma_cm")) {
		info_cure(c, "modprobe rdma_ucm");
		return info_say(c, INFO_PROBLEM, "there is no /dev/infiniband/rdma_cm: verbs cannot connect");
	}
	return info_say(c, INFO_OK, "/dev/infiniband has %d device file%s", files.nverbs, files.nverbs == 1 ? "" : "s");
}

/* ---- ports ---- */

static void look_at_state(struct walk *w)
{
	char line[64], why[80];

	if (is_active(w)) {
		w->ngood++;
		return;
	}
	snprintf(why, sizeof(why), " (%s)", port_says(w, "state", line, sizeof(line)));
	note_bad(w, why);
}

enum info_state info_check_rdma_ports(const struct info *info, struct info_check *c)
{
	struct walk w = rdma_walk(info, look_at_state);

	if (w.nports == 0)
		return info_say(c, INFO_NOT_APPLICABLE, "no RDMA device");
	if (w.bad[0] == '\0')
		return info_say(c, INFO_OK, "%d port%s active", w.ngood, w.ngood == 1 ? " is" : "s are");
	if (w.infiniband)
		info_cure(c,
		          "check with ibstat; plug in the cable, and start a subnet manager: systemctl start opensm");
	else
		info_cure(c, "ip link set dev %s up", netdev(&w));
	return info_say(c, INFO_PROBLEM, "ports that are not active: %s", w.bad);
}

/* ---- GIDs ---- */

static bool at_gid(void *arg, const char *index)
{
	struct walk *w = arg;
	char file[80], gid[64], type[64];

	snprintf(file, sizeof(file), "gids/%.32s", index);
	port_says(w, file, gid, sizeof(gid));
	snprintf(file, sizeof(file), "gid_attrs/types/%.32s", index);
	port_says(w, file, type, sizeof(type));
	if (strspn(gid, "0:") == strlen(gid) || strstr(type, "RoCE v2") == NULL)
		return false;
	w->nv2++;
	w->nroutable += strncmp(gid, "fe80:", 5) != 0;
	return false;
}

static bool read_gids(struct walk *w)
{
	char folder[256];

	if (!is_roce(w))
		return false;
	w->nv2 = w->nroutable = 0;
	snprintf(folder, sizeof(folder), DEVICES "/%.64s/ports/%.16s/gids", w->device, w->port);
	info_each_file(w->info, folder, at_gid, w);
	return true;
}

static void look_for_v2(struct walk *w)
{
	if (!read_gids(w))
		return;
	if (w->nv2 > 0)
		w->ngood++;
	else
		note_bad(w, "");
}

static void look_for_routable(struct walk *w)
{
	if (!read_gids(w) || w->nv2 == 0)
		return;
	if (w->nroutable > 0)
		w->ngood++;
	else
		note_bad(w, "");
}

enum info_state info_check_rdma_gids(const struct info *info, struct info_check *c)
{
	struct walk w = rdma_walk(info, look_for_v2);

	if (w.ngood == 0 && w.bad[0] == '\0')
		return info_say(c, INFO_NOT_APPLICABLE, "no RoCE device");
	if (w.bad[0] == '\0')
		return info_say(c, INFO_OK, "%d RoCE port%s a GID of RoCE v2", w.ngood,
		                w.ngood == 1 ? " has" : "s have");
	info_cure(c, "ip address add ADDRESS/PREFIX dev %s", netdev(&w));
	return info_say(c, INFO_PROBLEM, "no GID of RoCE v2, so packets cannot be routed: %s", w.bad);
}

enum info_state info_check_rdma_addresses(const struct info *info, struct info_check *c)
{
	struct walk w = rdma_walk(info, look_for_routable);

	if (w.ngood == 0 && w.bad[0] == '\0')
		return info_say(c, INFO_NOT_APPLICABLE, "no GID of RoCE v2");
	if (w.bad[0] == '\0')
		return info_say(c, INFO_OK, "%d RoCE port%s a routable address", w.ngood,
		                w.ngood == 1 ? " has" : "s have");
	info_cure(c, "ip address add ADDRESS/PREFIX dev %s", netdev(&w));
	return info_say(c, INFO_PROBLEM, "only link-local GIDs, which peers on other links cannot reach: %s", w.bad);
}

/* ---- mapped files ---- */

/*
 * Before Linux 6.2 memory that an adapter only reads was pinned for writing, which a shared mapping without that right
 * refuses.  Since 6.5 no memory is pinned for writing that the kernel would have to write back.
 */
enum info_state info_check_mapped_files(const struct info *info, struct info_check *c)
{
	int major = 0, minor = 0;
	char line[64];

	if (!info_have_rdma(info))
		return info_say(c, INFO_NOT_APPLICABLE, "no RDMA device");
	if (!info_line(info, line, sizeof(line), "/proc/sys/kernel/osrelease") ||
	    sscanf(line, "%d.%d", &major, &minor) != 2)
		return info_say(c, INFO_NOT_APPLICABLE, "/proc/sys/kernel/osrelease cannot be read");
	if (major > 6 || (major == 6 && minor >= 5))
		return info_say(c, INFO_NOT_APPLICABLE,
		                "Linux %d.%d: adapters read mapped files, but write to those of tmpfs only; into "
		                "others peers put by messages",
		                major, minor);
	if (major < 6 || minor < 2)
		return info_say(c, INFO_NOT_APPLICABLE,
		                "Linux %d.%d: of a shared file that is mapped for reading alone (PROT_READ) adapters "
		                "read nothing, it goes by messages; map it with PROT_WRITE, too",
		                major, minor);
	return info_say(c, INFO_OK, "Linux %d.%d: adapters read and write mapped files", major, minor);
}
