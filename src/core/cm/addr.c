/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/cm/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

enum { LABEL_MAX = 63 };

/* Not isalnum: that depends on the locale. */
static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

static const char hint[] = "write \"host:port\", for example \"127.0.0.1:7000\", \"[::1]:7000\" or \"node1:7000\"";

static int addr_bad(struct xport_error *err, const char *address, const char *what)
{
	return xpi_fail(err, XPORT_ERR_ADDRESS, 0, NULL, hint, "\"%.200s\" is not an address: %s", address, what);
}

/* Decimal digits only, no sign, no blanks, no leading zero.  NULL, or what is wrong. */
static const char *parse_port(const char *s, bool listening, uint16_t *port)
{
	unsigned long v = 0;
	size_t n = strlen(s);

	if (n == 0)
		return "the port is missing";
	if (strspn(s, "0123456789") != n)
		return "the port is not a number";
	if (n > 1 && s[0] == '0')
		return "the port begins with 0";
	if (n > 5)
		return "the port is above 65535";
	for (; *s != '\0'; s++)
		v = v * 10 + (unsigned long)(*s - '0');
	if (v > 65535)
		return "the port is above 65535";
	if (v == 0 && !listening)
		return "port 0 is only for listening";
	*port = (uint16_t)v;
	return NULL;
}

/* The last part of a name decides: if it is a number, somebody meant an IPv4 address. */
static bool meant_ipv4(const char *host)
{
	const char *dot = strrchr(host, '.');
	const char *last = dot != NULL ? dot + 1 : host;

	return (*last != '\0' && last[strspn(last, "0123456789")] == '\0') || strncasecmp(last, "0x", 2) == 0;
}

/* NULL, or what is wrong with a host name. */
static const char *check_name(const char *host)
{
	size_t label = 0;

	if (meant_ipv4(host))
		return "not an IPv4 address of four numbers from 0 to 255";
	for (const char *p = host;; p++) {
		if (*p == '.' || *p == '\0') {
			if (label == 0)
				return "a part of the host name is empty";
			if (p[-1] == '-')
				return "a part of the host name ends with -";
			if (*p == '\0')
				return NULL;
			label = 0;
			continue;
		}
		if (strchr(name_chars, *p) == NULL)
			return "the host name has a character that names do not have";
		if (*p == '-' && label == 0)
			return "a part of the host name begins with -";
		if (++label > LABEL_MAX)
			return "a part of the host name is too long";
	}
}

static void addrs_add(struct xpi_addrs *out, const void *sa, socklen_t len)
{
	if (out->n == XPI_ADDR_MAX)
		return;
	memcpy(&out->a[out->n].sa, sa, len);
	out->a[out->n++].len = len;
}

static void add_ipv4(struct xpi_addrs *out, struct in_addr ip, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr = ip, .sin_port = htons(port)};

	addrs_add(out, &sin, sizeof(sin));
}

static int lookup(const char *host, uint16_t port, struct xpi_addrs *out, struct xport_error *err)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	hints.ai_flags = AI_NUMERICSERV;
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc == EAI_MEMORY)
		return xpi_fail(err, XPORT_ERR_NO_MEMORY, 0, NULL, NULL, "no memory to look up \"%s\"", host);
	if (rc == EAI_SYSTEM)
		return xpi_fail_errno(err, XPORT_ERR_UNREACHABLE, NULL, "cannot look up \"%s\"", host);
	if (rc != 0)
		return xpi_fail(err, XPORT_ERR_UNREACHABLE, rc, NULL, "check the name, or give a numeric address",
		                "the name \"%s\" does not resolve: %s", host, gai_strerror(rc));
	for (const struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next)
		if (ai->ai_family == AF_INET || ai->ai_family == AF_INET6)
			addrs_add(out, ai->ai_addr, ai->ai_addrlen);
	freeaddrinfo(list);
	if (out->n == 0)
		return xpi_fail(err, XPORT_ERR_UNREACHABLE, 0, NULL, NULL, "the name \"%s\" has no IP address", host);
	return XPORT_OK;
}

int xpi_addr_lookup(const struct xpi_name *name, struct xpi_addrs *out, struct xport_error *err)
{
	char dotted[XPI_HOST_MAX + 2];

	snprintf(dotted, sizeof(dotted), "%s.", name->host);
	if (name->absolute && lookup(dotted, name->port, out, err) == XPORT_OK)
		return XPORT_OK;
	return lookup(name->host, name->port, out, err);
}

/* What stands in brackets: IPv6 by number, perhaps with a zone ("fe80::1%eth0", which only getaddrinfo understands). */
static int resolve_ipv6(const char *address, const char *host, uint16_t port, struct xpi_addrs *out,
                        struct xport_error *err)
{
	struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct addrinfo hints = {.ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list;

	if (inet_pton(AF_INET6, host, &sin6.sin6_addr) == 1) {
		if (IN6_IS_ADDR_LINKLOCAL(&sin6.sin6_addr))
			return xpi_fail(err, XPORT_ERR_ADDRESS, 0, NULL,
			                "name the interface as well, as in \"[fe80::1%eth0]:7000\"",
			                "\"%.200s\" is a link-local address without a zone", address);
		addrs_add(out, &sin6, sizeof(sin6));
		return XPORT_OK;
	}
	if (strchr(host, '%') == NULL || getaddrinfo(host, NULL, &hints, &list) != 0)
		return addr_bad(err, address, "the part in brackets is not an IPv6 address");
	memcpy(&sin6, list->ai_addr, sizeof(sin6));
	freeaddrinfo(list);
	sin6.sin6_port = htons(port);
	addrs_add(out, &sin6, sizeof(sin6));
	return XPORT_OK;
}

/* Cuts "host:port" in two; NULL, or what is wrong. */
static const char *split(const char *address, char *host, const char **port, bool *brackets)
{
	const char *end;
	size_t n;

	*brackets = address[0] == '[';
	if (*brackets) {
		end = strchr(address++, ']');
		if (end == NULL)
			return "the bracket is not closed";
		if (end[1] != ':')
			return "the port is missing";
		*port = end + 2;
	} else {
		end = strrchr(address, ':');
		if (end == NULL)
			return "the port is missing";
		if (end != strchr(address, ':'))
			return "an IPv6 address needs brackets";
		*port = end + 1;
	}
	n = (size_t)(end - address);
	if (n == 0)
		return "the host is missing";
	if (n > XPI_HOST_MAX)
		return "the host name is too long";
	memcpy(host, address, n);
	host[n] = '\0';
	return NULL;
}

/* A name that ends in a dot is absolute: no search domain is tried. The local files have names without it. */
static int parse_name(const char *address, const char *host, uint16_t port, struct xpi_name *name,
                      struct xport_error *err)
{
	size_t n = strlen(host);
	const char *what;

	name->absolute = n > 1 && host[n - 1] == '.';
	name->port = port;
	memcpy(name->host, host, n + 1);
	if (name->absolute)
		name->host[n - 1] = '\0';
	what = check_name(name->host);
	return what != NULL ? addr_bad(err, address, what) : XPORT_OK;
}

int xpi_addr_parse(const char *address, bool listening, struct xpi_addrs *out, struct xpi_name *name,
                   struct xport_error *err)
{
	struct in_addr any = {htonl(INADDR_ANY)}, ip;
	char host[XPI_HOST_MAX + 1];
	const char *port_text, *what;
	uint16_t port = 0;
	bool brackets;

	memset(out, 0, sizeof(*out));
	memset(name, 0, sizeof(*name));
	what = split(address, host, &port_text, &brackets);
	if (what == NULL)
		what = parse_port(port_text, listening, &port);
	if (what != NULL)
		return addr_bad(err, address, what);
	if (brackets)
		return resolve_ipv6(address, host, port, out, err);
	if (strcmp(host, "*") == 0) {
		struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

		if (!listening)
			return addr_bad(err, address, "* is only for listening");
		/* Both families by one socket where there is IPv6, else IPv4 alone. */
		addrs_add(out, &any6, sizeof(any6));
		add_ipv4(out, any, port);
		return XPORT_OK;
	}
	if (inet_pton(AF_INET, host, &ip) == 1) {
		add_ipv4(out, ip, port);
		return XPORT_OK;
	}
	return parse_name(address, host, port, name, err);
}

int xpi_addr_resolve(const char *address, bool listening, struct xpi_addrs *out, struct xport_error *err)
{
	struct xpi_name name;
	int rc = xpi_addr_parse(address, listening, out, &name, err);

	if (rc != XPORT_OK || name.host[0] == '\0')
		return rc;
	return xpi_addr_lookup(&name, out, err);
}

void xpi_addr_format(const struct sockaddr *sa, char *buf, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "", zone[16] = "";

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *sin = (const void *)sa;

		inet_ntop(AF_INET, &sin->sin_addr, ip, sizeof(ip));
		snprintf(buf, len, "%s:%u", ip, ntohs(sin->sin_port));
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const void *)sa;

		if (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr)) {
			inet_ntop(AF_INET, &sin6->sin6_addr.s6_addr[12], ip, sizeof(ip));
			snprintf(buf, len, "%s:%u", ip, ntohs(sin6->sin6_port));
			return;
		}
		inet_ntop(AF_INET6, &sin6->sin6_addr, ip, sizeof(ip));
		if (sin6->sin6_scope_id != 0)
			snprintf(zone, sizeof(zone), "%%%u", sin6->sin6_scope_id);
		snprintf(buf, len, "[%s%s]:%u", ip, zone, ntohs(sin6->sin6_port));
	} else {
		snprintf(buf, len, "?");
	}
}

bool xpi_addr_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *sin = (const void *)sa;

		return ntohl(sin->sin_addr.s_addr) >> 24 == 127;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const void *)sa;

		if (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr))
			return sin6->sin6_addr.s6_addr[12] == 127;
		return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr);
	}
	return false;
}

static bool is_any(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr == htonl(INADDR_ANY);
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

/* The first address of this family that other hosts may reach, in the order of the interfaces.  False: there is none. */
static bool own_address(int family, struct sockaddr_storage *sa)
{
	struct ifaddrs *list = NULL;
	bool found = false;

	if (getifaddrs(&list) != 0)
		return false;
	for (const struct ifaddrs *i = list; i != NULL && !found; i = i->ifa_next) {
		const struct sockaddr_in6 *sin6 = (const void *)i->ifa_addr;

		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0 ||
		    (i->ifa_flags & IFF_LOOPBACK) != 0 ||
		    (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr)))
			continue;
		memcpy(sa, i->ifa_addr, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(*sin6));
		found = true;
	}
	freeifaddrs(list);
	return found;
}

void xpi_addr_name(const struct sockaddr *sa, bool both_families, char *buf, size_t len)
{
	struct sockaddr_storage own = {0};
	struct sockaddr_in *sin = (void *)&own;
	struct sockaddr_in6 *sin6 = (void *)&own;
	/* sin_port and sin6_port lie at the same place. */
	in_port_t port = ((const struct sockaddr_in *)(const void *)sa)->sin_port;
	bool v6 = sa->sa_family == AF_INET6 && !both_families;

	if (!is_any(sa)) {
		xpi_addr_format(sa, buf, len);
		return;
	}
	if (!own_address(v6 ? AF_INET6 : AF_INET, &own) && !(both_families && own_address(AF_INET6, &own))) {
		memset(&own, 0, sizeof(own));
		if (v6) {
			sin6->sin6_family = AF_INET6;
			sin6->sin6_addr = in6addr_loopback;
		} else {
			sin->sin_family = AF_INET;
			sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		}
	}
	sin->sin_port = port;
	xpi_addr_format((struct sockaddr *)&own, buf, len);
}
