/* SPDX-License-Identifier: BSD-3-Clause */
/* addr.h - "host:port" to socket addresses and back. */
#ifndef XPI_CORE_CM_ADDR_H
#define XPI_CORE_CM_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "xport.h"

enum { XPI_ADDR_MAX = 8 };

struct xpi_addrs {
	int n;
	struct {
		struct sockaddr_storage sa;
		socklen_t len;
	} a[XPI_ADDR_MAX];
};

enum { XPI_HOST_MAX = 253 };

/* A host name that is to be looked up. */
struct xpi_name {
	char host[XPI_HOST_MAX + 1]; /* "": the address is numeric */
	uint16_t port;
	bool absolute; /* it ended in a dot, which is not in `host`: tried with it first, then without */
};

/* Parses. Numeric addresses go to *out, a name that is to be looked up to *name. ADDRESS: malformed. */
int xpi_addr_parse(const char *address, bool listening, struct xpi_addrs *out, struct xpi_name *name,
                   struct xport_error *err);
/* Looks a name up, which may take long. UNREACHABLE: it does not resolve. */
int xpi_addr_lookup(const struct xpi_name *name, struct xpi_addrs *out, struct xport_error *err);
/* Parses and resolves, which may take long.  ADDRESS: malformed (the text says which part); UNREACHABLE: the name does not resolve.
 * `listening`: "*" and port 0 are allowed. */
int xpi_addr_resolve(const char *address, bool listening, struct xpi_addrs *out, struct xport_error *err);
/* "127.0.0.1:7000", "[::1]:7000". */
void xpi_addr_format(const struct sockaddr *sa, char *buf, size_t len);
bool xpi_addr_loopback(const struct sockaddr *sa);

/* The same of a listener's address.  For all addresses it is one that peers can connect to: the first IPv4 address of this
 * host off loopback (IPv6 if the listener has only that, or the host), or loopback if there is none. */
void xpi_addr_name(const struct sockaddr *sa, bool both_families, char *buf, size_t len);

#endif
