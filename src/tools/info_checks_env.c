/* SPDX-License-Identifier: BSD-3-Clause */
/* info_checks_env.c - checks of variables with unintended values, and of addresses that peers cannot reach. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/info.h"

#define UNKNOWN_VARIABLE "XP-0201"

/* ---- the library's own ---- */

/* The library names the variable first and the one that it takes it for, if any, behind these words. */
static void cure_name(struct info_check *c, const char *line)
{
	static const char words[] = "did you mean ";
	const char *meant = strstr(line, words);
	int n = (int)strcspn(line, " ");

	if (meant == NULL) {
		info_cure(c, "unset %.*s", n, line);
		return;
	}
	meant += sizeof(words) - 1;
	info_cure(c, "export %.*s=\"$%.*s\"; unset %.*s", (int)strcspn(meant, "?"), meant, n, line, n, line);
}

/* The key file is the one thing of the settings that a list of the candidates reads besides the values. */
static bool about_key(const struct info *info)
{
	return info->ncandidates < 0 && strstr(info->list_error.text, "XPORT_AUTH_KEY_FILE") != NULL;
}

enum info_state info_check_authentication(const struct info *info, struct info_check *c)
{
	const char *how = info_authentication(info), *file = info_value(info, "XPORT_AUTH_KEY_FILE");

	if (about_key(info)) {
		/* Only a command is a cure. */
		if (strncmp(info->list_error.hint, "ch", 2) == 0)
			info_cure(c, "%s", info->list_error.hint);
		return info_say(c, INFO_PROBLEM, "%s", info->list_error.text);
	}
	if (strcmp(how, "key") == 0)
		return info_say(c, INFO_OK, "peers must prove that they have the key of %.200s; nothing is encrypted",
		                file);
	if (strcmp(how, "none") == 0)
		return info_say(c, INFO_OK, "XPORT_AUTH=none: anyone who can reach a listener may connect");
	return info_say(c, INFO_NOT_APPLICABLE, "there is no key: connections to and from other machines are refused");
}

enum info_state info_check_variables(const struct info *info, struct info_check *c)
{
	for (int i = 0; i < info->nvariables; i++) {
		if (info->variables[i].problem[0] == '\0')
			continue;
		info_cure(c, "unset %s", info->variables[i].name);
		return info_say(c, INFO_PROBLEM, "%s", info->variables[i].problem);
	}
	for (int i = 0; i < info->nwarnings; i++) {
		if (strcmp(info->warnings[i].id, UNKNOWN_VARIABLE) != 0)
			continue;
		cure_name(c, info->warnings[i].line);
		return info_say(c, INFO_PROBLEM, "%s", info->warnings[i].line);
	}
	/* With XPORT_STRICT=1 it is an error. */
	if (info->ncandidates < 0 && !about_key(info)) {
		info_cure(c, "%s", info->list_error.hint);
		return info_say(c, INFO_PROBLEM, "%s", info->list_error.text);
	}
	return info_say(c, INFO_OK, "the XPORT_ variables are known, and their values are valid");
}

/* ---- the stacks' ---- */

static const char *from_env(const char *name)
{
	const char *v = getenv(name);

	return v != NULL && *v != '\0' ? v : NULL;
}

/* The candidate of this name, or NULL. */
static const struct xport_candidate *env_candidate(const struct info *info, const char *name)
{
	for (int i = 0; i < info->ncandidates; i++)
		if (strcmp(info->candidates[i].name, name) == 0)
			return &info->candidates[i];
	return NULL;
}

static bool is_rdma_transport(void *arg, const char *item)
{
	static const char *const names[] = {"ib", "rc", "dc", "ud"};

	(void)arg;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(item, names[i], 2) == 0 && (item[2] == '\0' || item[2] == '_'))
			return true;
	return strcmp(item, "all") == 0;
}

static bool is_item(void *arg, const char *item)
{
	return strcmp(arg, item) == 0;
}

/* A list of what to leave out, without its ^: one of rc, dc and ud alone leaves the others. */
static bool leaves_no_rdma(const char *list)
{
	static char ib[] = "ib", rc[] = "rc", dc[] = "dc", ud[] = "ud";

	return info_each_item(list, is_item, ib) ||
	       (info_each_item(list, is_item, rc) && info_each_item(list, is_item, dc) &&
	        info_each_item(list, is_item, ud));
}

/* Its providers do not look at UCX_TLS: whether one of them is ready. */
static bool works_without_tls(const struct info *info)
{
	for (int i = 0; i < info->ncandidates; i++)
		if (strncmp(info->candidates[i].name, "ucx:", 4) == 0 && info->candidates[i].state == XPORT_READY)
			return true;
	return false;
}

enum info_state info_check_ucx_tls(const struct info *info, struct info_check *c)
{
	const char *tls = from_env("UCX_TLS");
	const struct xport_candidate *ucx = env_candidate(info, "ucx");
	bool shut_out;

	if (tls == NULL)
		return info_say(c, INFO_OK, "UCX_TLS is not set");
	if (ucx == NULL || ucx->state == XPORT_NOT_BUILT)
		return info_say(c, INFO_NOT_APPLICABLE, "UCX_TLS=%.64s has no effect: the back end ucx is not built",
		                tls);
	if (ucx->state != XPORT_READY && !works_without_tls(info))
		return info_say(c, INFO_NOT_APPLICABLE,
		                "UCX_TLS=%.64s is not the cause: ucx is not usable without it either: %s", tls,
		                ucx->reason);
	info_cure(c, "unset UCX_TLS");
	if (ucx->state != XPORT_READY)
		return info_say(c, INFO_PROBLEM, "UCX_TLS=%.64s excludes every transport that ucx could use: %s", tls,
		                ucx->reason);
	shut_out = *tls == '^' ? leaves_no_rdma(tls + 1) : !info_each_item(tls, is_rdma_transport, NULL);
	if (info_have_rdma(info) && shut_out)
		return info_say(c, INFO_PROBLEM, "UCX_TLS=%.64s keeps ucx from using the RDMA devices", tls);
	c->cure[0] = '\0';
	return info_say(
		c, INFO_OK,
		"UCX_TLS=%.64s leaves usable transports to ucx; it has no effect on ucx:tcp and other named providers",
		tls);
}

/* ---- UCX_NET_DEVICES ---- */

struct devices {
	const struct info *info;
	char unknown[200], known[200];
	bool names_rdma;
};

static bool look_at_device(void *arg, const char *item)
{
	struct devices *d = arg;
	char name[64];

	/* What is no plain name is UCX's to understand. */
	if (strpbrk(item, "^*~/") != NULL || strcmp(item, "all") == 0) {
		d->names_rdma = true;
		return false;
	}
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(item, ":"), item);
	if (info_exists(d->info, "/sys/class/infiniband/%s", name))
		d->names_rdma = true;
	else if (!info_exists(d->info, "/sys/class/net/%s", name))
		info_append(d->unknown, sizeof(d->unknown), "%s", name);
	return false;
}

static bool list_device(void *arg, const char *name)
{
	struct devices *d = arg;

	info_append(d->known, sizeof(d->known), "%s", name);
	return false;
}

enum info_state info_check_ucx_devices(const struct info *info, struct info_check *c)
{
	const char *devices = from_env("UCX_NET_DEVICES");
	struct devices d = {.info = info};

	if (devices == NULL)
		return info_say(c, INFO_OK, "UCX_NET_DEVICES is not set");
	info_each_item(devices, look_at_device, &d);
	info_each_file(info, "/sys/class/net", list_device, &d);
	info_each_file(info, "/sys/class/infiniband", list_device, &d);
	info_cure(c, "unset UCX_NET_DEVICES");
	if (d.unknown[0] != '\0')
		return info_say(c, INFO_PROBLEM,
		                "UCX_NET_DEVICES=%.64s names a device that does not exist: %s; the devices are %s",
		                devices, d.unknown, d.known);
	if (!d.names_rdma && info_have_rdma(info))
		return info_say(c, INFO_PROBLEM,
		                "UCX_NET_DEVICES=%.64s keeps UCX from using the RDMA devices; the devices are %s",
		                devices, d.known);
	if (!d.names_rdma && info_asks_for(info, "ucx:rc"))
		return info_say(c, INFO_PROBLEM, "UCX_NET_DEVICES=%.64s names no RDMA device, and ucx:rc needs one",
		                devices);
	c->cure[0] = '\0';
	return info_say(c, INFO_OK, "UCX_NET_DEVICES=%.64s", devices);
}

/* ---- FI_PROVIDER ---- */

/* Whether FI_PROVIDER lets in the provider of "ofi:tcp;ofi_rxm": tcp. */
static bool let_in(const char *filter, const char *name)
{
	bool without = *filter == '^';
	char core[64];

	snprintf(core, sizeof(core), "%.*s", (int)strcspn(name, ";"), name);
	return info_each_item(filter + without, is_item, core) != without;
}

struct filter {
	const char *filter;
	char out[200];
};

static bool look_at_request(void *arg, const char *item)
{
	struct filter *f = arg;

	if (strncmp(item, "ofi:", 4) == 0 && !let_in(f->filter, item + 4))
		info_append(f->out, sizeof(f->out), "%s", item);
	return false;
}

enum info_state info_check_fi_provider(const struct info *info, struct info_check *c)
{
	struct filter f = {.filter = from_env("FI_PROVIDER")};
	int nofi = 0, nready = 0;

	if (f.filter == NULL)
		return info_say(c, INFO_OK, "FI_PROVIDER is not set");
	for (int i = 0; i < info->nnames; i++)
		info_each_item(info->names[i], look_at_request, &f);
	if (info->nnames == 0)
		info_each_item(info_value(info, "XPORT_BACKEND"), look_at_request, &f);
	for (int i = 0; i < info->ncandidates; i++) {
		nofi += strncmp(info->candidates[i].name, "ofi:", 4) == 0;
		nready += strncmp(info->candidates[i].name, "ofi:", 4) == 0 && info->candidates[i].state == XPORT_READY;
	}
	info_cure(c, "unset FI_PROVIDER");
	if (f.out[0] != '\0')
		return info_say(c, INFO_PROBLEM, "FI_PROVIDER=%.64s excludes the requested provider: %s", f.filter,
		                f.out);
	if (nofi > 0 && nready == 0)
		return info_say(c, INFO_PROBLEM,
		                "FI_PROVIDER=%.64s excludes every provider of libfabric that could be used", f.filter);
	c->cure[0] = '\0';
	return info_say(c, INFO_OK, "FI_PROVIDER=%.64s includes the requested provider", f.filter);
}

/* ---- addresses ---- */

static bool env_is_link_local(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
	return (ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 16) == 0xa9fe;
}

struct addresses {
	char good[200], local[200], name[64];
};

static void sort_address(struct addresses *a, const struct ifaddrs *i)
{
	bool up = (i->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;

	if (!up || i->ifa_addr == NULL || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
		return;
	if (!env_is_link_local(i->ifa_addr)) {
		if (strstr(a->good, i->ifa_name) == NULL)
			info_append(a->good, sizeof(a->good), "%s", i->ifa_name);
		return;
	}
	if (a->local[0] == '\0')
		snprintf(a->name, sizeof(a->name), "%s", i->ifa_name);
	if (strstr(a->local, i->ifa_name) == NULL)
		info_append(a->local, sizeof(a->local), "%s", i->ifa_name);
}

/* A variable that keeps a stack to some network devices. */
static const struct {
	const char *name, *prefix; /* of what it is for */
} confining[] = {
	{"UCX_NET_DEVICES", "ucx"},  {"FI_TCP_IFACE", "ofi:tcp"}, {"FI_SOCKETS_IFACE", "ofi:sockets"},
	{"FI_NET_IFACE", "ofi:net"}, {"FI_UDP_IFACE", "ofi:udp"},
};

static bool is_no_loopback(void *list, const char *item)
{
	for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
		if (strcmp(i->ifa_name, item) == 0)
			return (i->ifa_flags & IFF_LOOPBACK) == 0;
	return true;
}

/* Writes which of them keep what is asked for to this machine, as "NAME=VALUE", and their names; false: none does. */
static bool confined(const struct info *info, struct ifaddrs *list, char *values, size_t len, char *names, size_t size)
{
	values[0] = names[0] = '\0';
	for (size_t i = 0; i < sizeof(confining) / sizeof(confining[0]); i++) {
		const char *value = from_env(confining[i].name);

		if (value == NULL || info_each_item(value, is_no_loopback, list) ||
		    (!info_asks_for(info, confining[i].prefix) && !info_asks_for(info, "auto")))
			continue;
		info_append(values, len, "%s=%.40s", confining[i].name, value);
		snprintf(names + strlen(names), size - strlen(names), " %s", confining[i].name);
	}
	return values[0] != '\0';
}

enum info_state info_check_addresses(const struct info *info, struct info_check *c)
{
	struct addresses a = {"", "", ""};
	char values[300], names[120];
	struct ifaddrs *list;
	bool kept;

	if (getifaddrs(&list) != 0)
		return info_say(c, INFO_NOT_APPLICABLE, "the addresses of this machine are unknown: %m");
	for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
		sort_address(&a, i);
	kept = confined(info, list, values, sizeof(values), names, sizeof(names));
	freeifaddrs(list);
	if (a.good[0] != '\0' && kept) {
		info_cure(c, "unset%s", names);
		return info_say(c, INFO_NOT_APPLICABLE,
		                "%s: with this, peers on other machines cannot reach this one, although it has %s",
		                values, a.good);
	}
	if (a.good[0] != '\0')
		return info_say(c, INFO_OK, "peers can reach this machine at %s", a.good);
	if (a.local[0] == '\0')
		return info_say(c, INFO_NOT_APPLICABLE, "only loopback addresses: all peers must be on this machine");
	info_cure(c, "ip address add ADDRESS/PREFIX dev %s", a.name);
	return info_say(c, INFO_PROBLEM, "link-local addresses only, which peers on other links cannot reach: %s",
	                a.local);
}

/* ---- bridges ---- */

struct bridges {
	const struct info *info;
	const char *devices;               /* UCX_NET_DEVICES; NULL: all */
	char up[200], let[200], other[64]; /* let: those of `up` that UCX may take */
};

/* What container and machine managers make: addresses behind it exist on every host, and mean another one there. */
bool info_is_bridge(const char *name)
{
	static const char *const begin[] = {"docker", "br-", "virbr", "cni", "flannel", "podman", "lxcbr", "lxdbr"};

	for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++)
		if (strncmp(name, begin[i], strlen(begin[i])) == 0)
			return true;
	return false;
}

static bool is_device(void *arg, const char *item)
{
	size_t n = strcspn(item, ":");

	return strcmp(item, "all") == 0 || (strncmp(arg, item, n) == 0 && strlen(arg) == n);
}

static bool look_at_interface(void *arg, const char *name)
{
	bool without, bridge = info_is_bridge(name);
	struct bridges *b = arg;
	char line[64];

	if (!info_line(b->info, line, sizeof(line), "/sys/class/net/%s/operstate", name) || strcmp(line, "down") == 0)
		return false;
	without = b->devices != NULL && *b->devices == '^';
	if (bridge)
		info_append(b->up, sizeof(b->up), "%s", name);
	if (bridge &&
	    (b->devices == NULL || info_each_item(b->devices + without, is_device, (void *)(uintptr_t)name) != without))
		info_append(b->let, sizeof(b->let), "%s", name);
	if (!bridge && b->other[0] == '\0' && strcmp(name, "lo") != 0 && strcmp(line, "up") == 0)
		snprintf(b->other, sizeof(b->other), "%s", name);
	return false;
}

enum info_state info_check_bridges(const struct info *info, struct info_check *c)
{
	struct bridges b = {.info = info, .devices = from_env("UCX_NET_DEVICES")};
	char rdma[160];

	info_each_file(info, "/sys/class/net", look_at_interface, &b);
	if (b.up[0] == '\0')
		return info_say(c, INFO_NOT_APPLICABLE, "no bridge of a container or VM manager is up");
	if (b.let[0] == '\0')
		return info_say(c, INFO_OK, "UCX_NET_DEVICES keeps UCX from using %s", b.up);
	if (b.other[0] == '\0')
		snprintf(b.other, sizeof(b.other), "NETDEV");
	/* Adapters have to be named as well, or UCX leaves them out. */
	info_list_rdma(info, rdma, sizeof(rdma));
	info_cure(c, "export UCX_NET_DEVICES=%s%s FI_TCP_IFACE=%s", b.other, rdma, b.other);
	return info_say(c, INFO_PROBLEM,
	                "a stack may choose the address of %s, and peers on other machines cannot reach that", b.let);
}
