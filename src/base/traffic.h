/* SPDX-License-Identifier: BSD-3-Clause */
/* traffic.h - traffic classes: their names, and how sockets and adapters mark packets. */
#ifndef XPI_BASE_TRAFFIC_H
#define XPI_BASE_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

#include "xport.h"

/* xpi_traffic_name - "bulk", "normal" or "urgent"; "default" for XPORT_TRAFFIC_DEFAULT. */
const char *xpi_traffic_name(int traffic_class);

/* xpi_traffic_valid - whether it is one of enum xport_traffic. */
bool xpi_traffic_valid(int64_t traffic_class);

/*
 * xpi_traffic_tos - the byte of the IP header that marks the class: TOS of IPv4, traffic class of IPv6. Its two low bits, which
 * belong to congestion control, are 0.
 *
 *   bulk    4     the code point LE: RFC 8622, for background transfers
 *   normal  0     the code point DF: RFC 2474
 *   urgent  0xb8  the code point EF: RFC 3246, and RFC 4594 for traffic that needs a very low delay
 *
 * Must not be called with XPORT_TRAFFIC_DEFAULT, which leaves packets as the system marks them.
 */
uint8_t xpi_traffic_tos(int traffic_class);

/*
 * xpi_traffic_mark - mark the packets that a TCP or UDP socket sends from now on.
 *
 * Linux also derives the packet's priority within this host from the class. Returns false if the system refused.
 */
bool xpi_traffic_mark(int fd, int traffic_class);

#endif
