/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ofi_addr.c - native addresses: where this side listens, what it tells peers, and which address of a peer it
 * connects to.
 *
 * Over IP this side listens on the wildcard address, and tells peers all addresses of the host's interfaces that
 * libfabric offers. FI_TCP_IFACE and similar variables restrict them, down to loopback alone. If there is only one
 * address, this side listens on that one. A peer on the same host (same boot ID and network namespace) uses the
 * loopback address. Other peers first try addresses in a subnet of their own, then the rest. For an adapter
 * (fi_info.nic) only its own addresses count, and this side listens on the chosen one.
 *
 *   address: 24 bytes host, 16 bytes cookie, u8 number of addresses; each: u8 length and its bytes; for shared memory
 *            then the key of the page of ofi_shm_lock.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "ofi.h"

enum { BOOT_ID = 16 };

/* Identifies boot and network namespace. */
void ofi_host(uint8_t host[OFI_HOST])
{
	char text[40] = "";
	struct stat ns;
	uint64_t ino = 0;
	int n = 0, fd = xpi_fd_up(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));

	memset(host, 0, OFI_HOST);
	if (fd >= 0) {
		n = (int)read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	for (int i = 0, k = 0; i < n && k < 2 * BOOT_ID; i++) {
		char digit[2] = {text[i], '\0'};

		if (text[i] == '-')
			continue;
		host[k / 2] |= (uint8_t)(strtoul(digit, NULL, 16) << (k % 2 == 0 ? 4 : 0));
		k++;
	}
	if (stat("/proc/self/ns/net", &ns) == 0)
		ino = (uint64_t)ns.st_ino;
	memcpy(host + BOOT_ID, &ino, sizeof(ino));
}

/* ---- kinds of addresses ---- */

static bool is_ip(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET || sa->sa_family == AF_INET6;
}

static bool is_loopback(const struct sockaddr *sa)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

	if (sa->sa_family == AF_INET)
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* A link-local IPv6 address, which is only valid with its link. */
static bool addr_is_link_local(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static socklen_t sa_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static void set_port(struct sockaddr *sa, uint16_t port)
{
	if (sa->sa_family == AF_INET)
		((struct sockaddr_in *)sa)->sin_port = port;
	else if (sa->sa_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_port = port;
}

static uint16_t get_port(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET ? ((const struct sockaddr_in *)sa)->sin_port
	                                : ((const struct sockaddr_in6 *)sa)->sin6_port;
}

/* The bytes of an IP address and how many there are. */
static const uint8_t *ip_bytes(const struct sockaddr *sa, int *n)
{
	*n = sa->sa_family == AF_INET ? 4 : 16;
	return sa->sa_family == AF_INET ? (const uint8_t *)&((const struct sockaddr_in *)sa)->sin_addr
	                                : (const uint8_t *)&((const struct sockaddr_in6 *)sa)->sin6_addr;
}

/* ---- ours ---- */

static void addr_add(struct xpi_be *be, const void *bytes, size_t len)
{
	for (int i = 0; i < be->naddrs; i++)
		if (be->addr[i].len == len && memcmp(be->addr[i].bytes, bytes, len) == 0)
			return;
	if (be->naddrs < OFI_ADDRS && len <= sizeof(be->addr[0].bytes)) {
		memcpy(be->addr[be->naddrs].bytes, bytes, len);
		be->addr[be->naddrs++].len = len;
	}
}

static void add_device(struct xpi_be *be, const char *name)
{
	size_t len = strlen(be->device), n = name != NULL ? strlen(name) : 0;
	const char *at = n > 0 ? strstr(be->device, name) : NULL;

	if (n == 0 || (at != NULL && (at == be->device || at[-1] == ' ') && (at[n] == '\0' || at[n] == ',')))
		return;
	snprintf(be->device + len, sizeof(be->device) - len, "%s%s", len > 0 ? ", " : "", name);
}

/* Whether there is an IPv4 route to other networks. */
static bool ipv4_leads_out(void)
{
	const struct in_addr elsewhere = {
		htonl(0xc6336401)}; /* 198.51.100.1, an address for documentation; nothing is sent */
	struct ofi_addr from, to = {.len = sizeof(struct sockaddr_in)};
	struct sockaddr_in *in = (struct sockaddr_in *)&to.storage;

	in->sin_family = AF_INET;
	in->sin_addr = elsewhere;
	in->sin_port = htons(9);
	return ofi_addr_source(&to, &from) == 0;
}

/* A bridge of containers or virtual machines: its address means another network on each host. */
static bool of_bridge(const struct fi_info *offer)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/class/net/%.64s/bridge", offer->domain_attr->name);
	return access(path, F_OK) == 0;
}

static bool is_of_ip(const struct fi_info *offer)
{
	return offer->src_addr != NULL &&
	       (offer->addr_format == FI_SOCKADDR_IN || offer->addr_format == FI_SOCKADDR_IN6);
}

/*
 * The address family for other hosts: IPv4 if there is any, or if there is only loopback. With IPv6, and without an
 * IPv4 route, bridges do not count: a host with containers would offer only 172.17.0.1.
 */
static int family(const struct fi_info *offers)
{
	int found = AF_INET;

	for (const struct fi_info *i = offers; i != NULL; i = i->next) {
		const struct sockaddr *sa = i->src_addr;

		if (!is_of_ip(i) || is_loopback(sa) || addr_is_link_local(sa))
			continue;
		if (sa->sa_family != AF_INET)
			found = AF_INET6;
		else if (!of_bridge(i) || ipv4_leads_out())
			return AF_INET;
	}
	return found;
}

struct fi_info *ofi_addr_collect(struct xpi_be *be, struct fi_info *offers)
{
	struct fi_info *chosen = NULL, *first = offers; /* adapters without an IP address may come first */
	int af = family(offers);

	while (first != NULL && first->addr_format != FI_SOCKADDR_IN && first->addr_format != FI_SOCKADDR_IN6)
		first = first->next;
	if (first == NULL && offers->ep_attr->type == FI_EP_MSG)
		return NULL;
	if (first == NULL) {
		add_device(be, offers->domain_attr->name);
		return offers;
	}
	for (struct fi_info *i = first; i != NULL; i = i->next) {
		const struct sockaddr *sa = i->src_addr;

		if (!is_of_ip(i) || sa->sa_family != af || addr_is_link_local(sa))
			continue;
		if (chosen == NULL)
			chosen = i;
		if (chosen != i && chosen->nic != NULL)
			continue;
		addr_add(be, sa, sa_len(sa));
		add_device(be, i->domain_attr->name);
	}
	for (int i = 0; i < be->naddrs; i++)
		set_port(&be->addr[i].sa, 0);
	return chosen;
}

/* Makes `info` listen on all addresses of this side. */
void ofi_addr_bind(const struct xpi_be *be, struct fi_info *info)
{
	struct sockaddr *sa = info->src_addr;

	set_port(sa, 0);
	if (be->naddrs == 1)
		return;
	if (sa->sa_family == AF_INET)
		((struct sockaddr_in *)sa)->sin_addr.s_addr = htonl(INADDR_ANY);
	else
		((struct sockaddr_in6 *)sa)->sin6_addr = in6addr_any;
}

/* Reads the port that was chosen. */
int ofi_addr_listening(struct xpi_be *be, struct fid *fid)
{
	struct ofi_addr at = {.len = sizeof(at.bytes)};
	int rc = fi_getname(fid, at.bytes, &at.len);

	if (rc == 0 && (at.len < sizeof(struct sockaddr_in) || !is_ip(&at.sa) || get_port(&at.sa) == 0))
		rc = -FI_EADDRNOTAVAIL;
	if (rc != 0)
		return ofi_fail(be->err, rc, NULL, "querying libfabric's listening address");
	for (int i = 0; i < be->naddrs; i++)
		set_port(&be->addr[i].sa, get_port(&at.sa));
	return XPORT_OK;
}

int ofi_addr_pack(const struct xpi_be *be, const struct ofi_ep *ep, void *buf, size_t *len)
{
	const struct ofi_addr *all = be->rdm ? &ep->name : be->addr;
	int n = be->rdm ? 1 : be->naddrs;
	struct xpi_wr w = xpi_wr(buf, *len);

	xpi_wr_bytes(&w, be->host, OFI_HOST);
	xpi_wr_bytes(&w, ep->cookie, OFI_COOKIE);
	xpi_wr_u8(&w, (uint8_t)n);
	for (int i = 0; i < n; i++) {
		xpi_wr_u8(&w, (uint8_t)all[i].len);
		xpi_wr_bytes(&w, all[i].bytes, all[i].len);
	}
	if (ep->ours != NULL) {
		uint8_t key[XPI_SHM_KEY];

		xpi_shm_pack(&ep->page, true, key);
		xpi_wr_bytes(&w, key, sizeof(key));
	}
	if (w.bad)
		return xpi_fail(be->err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "the address is too long");
	*len -= w.left;
	return XPORT_OK;
}

/* ---- the peer's ---- */

/* Whether one of our interfaces is in its subnet. */
static bool near(const struct ifaddrs *ours, const struct sockaddr *sa)
{
	for (const struct ifaddrs *i = ours; i != NULL; i = i->ifa_next) {
		const uint8_t *a, *b, *mask;
		int n, k = 0;

		if (i->ifa_addr == NULL || i->ifa_netmask == NULL || i->ifa_addr->sa_family != sa->sa_family)
			continue;
		a = ip_bytes(sa, &n);
		b = ip_bytes(i->ifa_addr, &n);
		mask = ip_bytes(i->ifa_netmask, &n);
		while (k < n && ((a[k] ^ b[k]) & mask[k]) == 0)
			k++;
		if (k == n && (i->ifa_flags & IFF_UP))
			return true;
	}
	return false;
}

/* Rank of an address; lower is better, negative: unusable. */
static int rank(const struct ifaddrs *ours, const struct sockaddr *sa, bool same_host)
{
	if (is_loopback(sa))
		return same_host ? 0 : -1;
	return near(ours, sa) ? 1 : 2;
}

static void sort(struct ofi_ep *ep, bool same_host)
{
	struct ofi_addr all[OFI_ADDRS];
	struct ifaddrs *ours = NULL;
	int n = ep->npeer;

	memcpy(all, ep->peer, sizeof(all));
	if (getifaddrs(&ours) != 0)
		ours = NULL;
	ep->npeer = 0;
	for (int r = 0; r <= 2; r++)
		for (int i = 0; i < n; i++)
			if (rank(ours, &all[i].sa, same_host) == r)
				ep->peer[ep->npeer++] = all[i];
	freeifaddrs(ours);
}

/* Whether the provider may get this address: its decoders do not check. */
static bool plausible(const struct ofi_ep *ep, const struct ofi_addr *a)
{
	if (ep->be->info->addr_format == FI_SOCKADDR_IN || ep->be->info->addr_format == FI_SOCKADDR_IN6)
		return is_ip(&a->sa) && a->len == sa_len(&a->sa);
	if (ep->be->quirk->shm_prefix != NULL)
		return memchr(a->bytes, 0, a->len) == a->bytes + a->len - 1 &&
		       strncmp((const char *)a->bytes, ep->be->quirk->shm_prefix, strlen(ep->be->quirk->shm_prefix)) ==
		               0;
	return a->len == ep->name.len;
}

int ofi_addr_unpack(struct ofi_ep *ep, const void *buf, size_t len)
{
	struct xpi_be *be = ep->be;
	struct xpi_rd r = xpi_rd(buf, len);
	const uint8_t *host = xpi_rd_bytes(&r, OFI_HOST), *cookie = xpi_rd_bytes(&r, OFI_COOKIE);
	const uint8_t *key;
	int n = xpi_rd_u8(&r);

	if (n > OFI_ADDRS)
		r.bad = true;
	memset(ep->peer, 0, sizeof(ep->peer));
	for (int i = 0; i < n && !r.bad; i++) {
		struct ofi_addr *a = &ep->peer[i];
		const uint8_t *bytes;

		a->len = xpi_rd_u8(&r);
		bytes = a->len > 0 && a->len <= sizeof(a->bytes) ? xpi_rd_bytes(&r, a->len) : NULL;
		if (bytes != NULL)
			memcpy(a->bytes, bytes, a->len);
		if (bytes == NULL || !plausible(ep, a))
			r.bad = true;
	}
	key = be->quirk->shm_prefix != NULL ? xpi_rd_bytes(&r, XPI_SHM_KEY) : NULL;
	if (r.bad || r.left != 0 || n == 0)
		return xpi_fail(be->err, XPORT_ERR_PROTOCOL, 0, NULL, NULL,
		                "the peer's ofi address of %zu bytes is malformed", len);
	memcpy(ep->peer_cookie, cookie, OFI_COOKIE);
	ep->npeer = n;
	if (be->quirk->shm_prefix != NULL && memcmp(host, be->host, OFI_HOST) != 0)
		return xpi_fail(be->err, XPORT_ERR_UNREACHABLE, 0, NULL, "use ofi:tcp",
		                "the peer is on another host, or in another network namespace");
	/* libfabric maps the memory that the address names, and trusts its contents. */
	if (be->quirk->shm_prefix != NULL) {
		int rc = be->up->same_user(be->core, ep->core_ep);

		if (rc != XPORT_OK)
			return rc;
	}
	if (be->rdm)
		return key != NULL ? ofi_lock_map(ep, key) : XPORT_OK;
	sort(ep, memcmp(host, be->host, OFI_HOST) == 0);
	if (ep->npeer > 0)
		return XPORT_OK;
	return xpi_fail(
		be->err, XPORT_ERR_UNREACHABLE, 0, NULL,
		"set the peer's FI_TCP_IFACE (or the provider's own variable) to an interface that this host can reach",
		"the peer is on another host, and has only a loopback address");
}

int ofi_addr_source(const struct ofi_addr *to, struct ofi_addr *from)
{
	socklen_t len = sizeof(from->storage);
	int fd = xpi_fd_up(socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)), rc = 0;

	if (fd < 0)
		return errno == EAFNOSUPPORT ? -FI_EHOSTUNREACH : -errno;
	if (connect(fd, &to->sa, (socklen_t)to->len) != 0 || getsockname(fd, &from->sa, &len) != 0)
		rc = -errno;
	close(fd);
	if (rc != 0) /* a descriptor was available: other codes are no shortage either */
		return ofi_status(rc) == XPORT_ERR_SYSTEM ? -FI_EHOSTUNREACH : rc;
	from->len = len;
	set_port(&from->sa, 0);
	return 0;
}

bool ofi_addr_loopback(const struct ofi_addr *a)
{
	return is_loopback(&a->sa);
}

bool ofi_addr_local(const struct xpi_be *be)
{
	for (int i = 0; i < be->naddrs; i++)
		if (!is_loopback(&be->addr[i].sa))
			return false;
	return true;
}

void ofi_addr_text(const struct ofi_addr *a, char *text, size_t size)
{
	char ip[INET6_ADDRSTRLEN] = "?";
	int n;

	if (is_ip(&a->sa))
		inet_ntop(a->sa.sa_family, ip_bytes(&a->sa, &n), ip, sizeof(ip));
	snprintf(text, size, "%s port %u", ip, is_ip(&a->sa) ? ntohs(get_port(&a->sa)) : 0);
}
