/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_pool_node.c - memory near the transport's device, with a sysfs of the test's own. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conform/harness.h"
#include "services/node.h"
#include "services/services.h"

enum { PATH = 256 };

/* Makes DIR/class/CLASS/DEVICE/device/numa_node. */
static void plug(struct h *h, const char *dir, const char *class, const char *device, const char *node)
{
	const char *parts[] = {"class", class, device, "device"};
	char path[PATH];
	size_t len = (size_t)snprintf(path, sizeof(path), "%s", dir);
	FILE *f;

	for (int i = 0; i < 4; i++) {
		len += (size_t)snprintf(path + len, sizeof(path) - len, "/%s", parts[i]);
		(void)mkdir(path, 0700);
	}
	(void)snprintf(path + len, sizeof(path) - len, "/numa_node");
	f = fopen(path, "w");
	H_TRUE(f != NULL);
	fputs(node, f);
	fclose(f);
}

static void unplug(const char *dir, const char *class, const char *device)
{
	const char *ends[] = {"/device/numa_node", "/device", ""};
	char path[PATH];

	for (int i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof(path), "%s/class/%s/%s%s", dir, class, device, ends[i]);
		(void)remove(path);
	}
	(void)snprintf(path, sizeof(path), "%s/class/%s", dir, class);
	(void)remove(path);
	(void)snprintf(path, sizeof(path), "%s/class", dir);
	(void)remove(path);
}

static void find(struct h *h)
{
	static const struct {
		const char *devices, *says;
		int node;
	} cases[] = {{"mlx5_9:1", NULL, 3},
	             {"mlx5_9", NULL, 3},
	             {"eth9", NULL, 2},
	             {"lo,eth9", NULL, 2},
	             {"lo, eth9", NULL, 2},
	             {"lo, mlx5_9:1", NULL, 3},
	             {"mlx5_9 port 1", NULL, 3},
	             {"none9, mlx5_9 port 1", NULL, 3},
	             {"lo", "lo has no NUMA node", -1},
	             {"none9", "none9 has no NUMA node", -1}, /* -1 is what sysfs says of a device without one */
	             {"odd9", "odd9 has no NUMA node", -1},
	             {"eth9,mlx5_9:1", "on several NUMA nodes", -1},
	             {"eth9, mlx5_9 port 1", "on several NUMA nodes", -1},
	             {"../net/eth9", "no NUMA node", -1},
	             {"", "not named", -1}};
	char dir[] = "/tmp/xport-sysfs-XXXXXX", text[160];
	int node;

	H_TRUE(mkdtemp(dir) != NULL);
	plug(h, dir, "infiniband", "mlx5_9", "3\n");
	plug(h, dir, "net", "eth9", "2\n");
	plug(h, dir, "net", "none9", "-1\n");
	plug(h, dir, "net", "odd9", "near\n");
	svc_node_sysfs = dir;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool found = svc_node_device(cases[i].devices, &node, text, sizeof(text));

		H_CHECK(found == (cases[i].node >= 0), "%s", cases[i].devices);
		H_CHECK(!found || node == cases[i].node, "%s: node %d", cases[i].devices, node);
		H_CHECK(found || strstr(text, cases[i].says) != NULL, "%s: \"%s\"", cases[i].devices, text);
	}
	svc_node_sysfs = "/sys";
	unplug(dir, "infiniband", "mlx5_9");
	unplug(dir, "net", "eth9");
	unplug(dir, "net", "none9");
	unplug(dir, "net", "odd9");
	(void)rmdir(dir);
}

static void place(struct h *h)
{
	struct xport_pool_attr a = {
		.size = sizeof(a), .rights = XPORT_REMOTE_READ, .node = XPORT_POOL_NODE_DEVICE, .slab_bytes = 1 << 20};
	char dir[] = "/tmp/xport-sysfs-XXXXXX", device[64];
	struct xport_info info = {.size = sizeof(info)};
	struct xport_block b;
	xport_pool *p;
	int r;

	h_open(h, NULL);
	H_OK(xport_query(h->x, &info));
	H_TRUE(mkdtemp(dir) != NULL);
	svc_node_sysfs = dir;
	H_OK(xport_pool_create(h->x, &a, &p));
	H_OK(xport_pool_alloc(p, 100, 0, &b));
	H_CHECK(strstr(svc_pool_ask(h, p).placement, "no NUMA node") != NULL, "says \"%s\"",
	        svc_pool_ask(h, p).placement);
	H_OK(xport_pool_destroy(p));
	(void)snprintf(device, sizeof(device), "%.*s", (int)strcspn(info.device, " :,"), info.device);
	if (device[0] != 0 && strchr(device, '/') == NULL) {
		plug(h, dir, "net", device, "0\n");
		r = xport_pool_create(h->x, &a, &p);
		H_CHECK(r == XPORT_OK || r == XPORT_ERR_NOT_SUPPORTED, "%s", xport_status_name(r));
		if (r == XPORT_OK) {
			H_OK(xport_pool_alloc(p, 100, 0, &b));
			H_CHECK(strstr(svc_pool_ask(h, p).placement, "on node 0") != NULL ||
			                strstr(svc_pool_ask(h, p).placement, "unknown") != NULL,
			        "says \"%s\"", svc_pool_ask(h, p).placement);
			H_OK(xport_pool_destroy(p));
		}
		unplug(dir, "net", device);
	}
	svc_node_sysfs = "/sys";
	(void)rmdir(dir);
}

const struct h_scenario svc_cases_pool_node[] = {
	{"pool_node_find", {find}, NULL, H_ONCE, 0},
	{"pool_node_device", {place}, NULL, H_ONCE, 0},
	{0},
};
