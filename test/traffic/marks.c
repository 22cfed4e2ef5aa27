/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * marks.c - which traffic class the packets of a connection have on the wire.
 *
 *   marks SERVER CLIENT CLASS-OF-THE-LISTENER CLASS-OF-THE-CLIENT
 *
 * Connects two instances of XPORT_BACKEND in this process, sends messages both ways, and captures what all interfaces of
 * its network namespace carry: it needs CAP_NET_RAW, and nothing else may send there. SERVER is the address that the listener
 * binds, without a port. CLIENT is the value of XPORT_BACKEND of the client; "" means the same. A class is a number of
 * enum xport_traffic. Prints, with TOS bytes as they are first seen:
 *
 *   handshake 0xb8     packets of the control channel until both sides were connected
 *   control 0xb8       those after that, both ways
 *   data 0xb8          other TCP and UDP packets with data after that, and RoCE packets; "none": there were none
 *   client 3 1         traffic_class and traffic_marked of xport_ep_query at the client
 *   server 3 1
 *
 * Exits 0, or 1 with the error.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netpacket/packet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "xport.h"

enum { MESSAGES = 16, LENGTH = 20000, LIMIT_MS = 60000, ALL = 3, ROCE = 4791, CM_QP = 1, BUFFER = 64 << 20 };

/* TOS bytes, in the order in which they were first seen. */
struct seen {
	bool has[256];
	uint8_t tos[256];
	int n, to_server, from_server;
};

static xport *x[2]; /* server, client */
static int raw;
static uint16_t port;
static bool connected;
static struct seen handshake, control, data;

static void fails(const xport *which, const char *what)
{
	struct xport_error err = {.size = sizeof(err)};

	(void)!xport_last_error(which, &err);
	printf("%s: %s%s%s\n", what, err.text, err.hint[0] != '\0' ? "; " : "", err.hint);
	exit(1);
}

static void breaks(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- capturing ---- */

static void note(struct seen *s, uint8_t tos, bool to_server)
{
	tos &= 0xfc; /* the rest belongs to congestion control */
	s->to_server += to_server;
	s->from_server += !to_server;
	if (s->has[tos])
		return;
	s->has[tos] = true;
	s->tos[s->n++] = tos;
}

static unsigned be16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

/* `p` is the header of TCP or UDP. */
static void segment(const uint8_t *p, size_t len, uint8_t protocol, uint8_t tos)
{
	unsigned from = be16(p), to = be16(p + 2);

	if (protocol == IPPROTO_TCP && len >= 20) {
		if (from == port || to == port)
			note(connected ? &control : &handshake, tos, to == port);
		else if (connected && len > 4u * (p[12] >> 4))
			note(&data, tos, true);
	} else if (protocol == IPPROTO_UDP && len >= 20 && connected) {
		if (to != ROCE || (p[13] << 16 | p[14] << 8 | p[15]) != CM_QP)
			note(&data, tos, true);
	}
}

static void packet(const uint8_t *p, size_t len)
{
	size_t head;

	if (len >= 20 && p[0] >> 4 == 4) {
		head = 4u * (p[0] & 15);
		if (len > head && len >= be16(p + 2) && be16(p + 2) > head)
			segment(p + head, be16(p + 2) - head, p[9], p[1]);
		return;
	}
	if (len <= sizeof(struct ip6_hdr) || p[0] >> 4 != 6)
		return;
	segment(p + sizeof(struct ip6_hdr), len - sizeof(struct ip6_hdr), p[6],
	        (uint8_t)((p[0] & 15) << 4 | p[1] >> 4));
}

static void capture(void)
{
	static uint8_t buf[1 << 17];
	struct sockaddr_ll from;
	socklen_t size = sizeof(from);
	ssize_t n;

	while ((n = recvfrom(raw, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &size)) >= 0)
		if (from.sll_pkttype == PACKET_OUTGOING)
			packet(buf, (size_t)n);
	if (errno != EAGAIN)
		breaks("capturing");
}

/* ---- traffic ---- */

static xport *open_one(const char *backend)
{
	const struct xport_attr a = {.size = sizeof(a), .backend = backend[0] != '\0' ? backend : NULL};
	xport *got;

	if (xport_open(&a, &got) != XPORT_OK)
		fails(NULL, "xport_open");
	return got;
}

static void turn(int *received, int *sent)
{
	for (int i = 0; i < 2; i++) {
		struct xport_completion c[16];
		int n = xport_poll(x[i], c, 16);

		if (n < 0)
			fails(x[i], "xport_poll");
		for (int k = 0; k < n; k++) {
			if (c[k].type == XPORT_EVENT_LOST || (c[k].status != XPORT_OK && c[k].type <= XPORT_OP_RECV)) {
				printf("an operation failed: %s\n", xport_strerror(c[k].status));
				exit(1);
			}
			*received += c[k].type == XPORT_OP_RECV;
			*sent += c[k].type == XPORT_OP_SEND;
		}
	}
	capture();
}

static void exchange(xport_ep *ep[2])
{
	static uint8_t out[LENGTH], in[2 * MESSAGES][LENGTH];
	int received = 0, sent = 0, posted = 0;
	int64_t end = clock_ms() + LIMIT_MS;

	for (int i = 0; i < 2; i++)
		for (int n = 0; n < MESSAGES; n++)
			if (xport_recv(x[i], in[i * MESSAGES + n], LENGTH, 0, 0, NULL) != XPORT_OK)
				fails(x[i], "xport_recv");
	while (received < 2 * MESSAGES || sent < 2 * MESSAGES || control.to_server == 0 || control.from_server == 0) {
		if (posted < 2 * MESSAGES) {
			int rc = xport_send(ep[posted % 2], out, LENGTH, 0, NULL);

			posted += rc == XPORT_OK;
			if (rc != XPORT_OK && rc != XPORT_ERR_AGAIN)
				fails(x[posted % 2], "xport_send");
		}
		turn(&received, &sent);
		if (clock_ms() < end)
			continue;
		printf("after %d ms: %d messages, %d and %d packets of the control channel\n", LIMIT_MS, received,
		       control.to_server, control.from_server);
		exit(1);
	}
}

static void connect_both(const char *address, const char *const classes[2], xport_ep *ep[2])
{
	const struct xport_conn_attr server = {.size = sizeof(server), .traffic_class = atoi(classes[0])},
				     client = {.size = sizeof(client), .traffic_class = atoi(classes[1])};
	int64_t end = clock_ms() + LIMIT_MS;
	struct xport_ep_info info = {.size = sizeof(info)};
	xport_listener *listener;
	char where[80];
	int none = 0;

	snprintf(where, sizeof(where), "%s:0", address);
	if (xport_listen(x[0], where, &server, &listener) != XPORT_OK)
		fails(x[0], "xport_listen");
	if (xport_listener_name(listener, where, sizeof(where)) != XPORT_OK)
		fails(x[0], "xport_listener_name");
	port = (uint16_t)atoi(strrchr(where, ':') + 1);
	if (xport_connect(x[1], where, &client, 0, &ep[1]) != XPORT_OK)
		fails(x[1], "xport_connect");
	for (ep[0] = NULL; ep[0] == NULL || info.state == XPORT_EP_CONNECTING;) {
		if (clock_ms() > end || xport_ep_query(ep[1], &info) != XPORT_OK || info.state > XPORT_EP_OPEN) {
			printf("no connection: %s\n", info.why);
			exit(1);
		}
		if (ep[0] == NULL && xport_accept(listener, 0, &ep[0]) != XPORT_OK)
			ep[0] = NULL;
		turn(&none, &none);
	}
	connected = true;
}

/* ---- telling ---- */

static void tell(const char *what, const struct seen *s)
{
	printf("%s", what);
	for (int i = 0; i < s->n; i++)
		printf(" 0x%02x", s->tos[i]);
	printf("%s\n", s->n == 0 ? " none" : "");
}

static void tell_ep(const char *what, xport_ep *ep)
{
	struct xport_ep_info info = {.size = sizeof(info)};

	if (xport_ep_query(ep, &info) != XPORT_OK)
		exit(1);
	printf("%s %d %d\n", what, info.traffic_class, info.traffic_marked);
}

int main(int argc, char **argv)
{
	const int buffer = BUFFER;
	xport_ep *ep[2];

	if (argc != 5)
		return 2;
	raw = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ALL));
	if (raw < 0)
		breaks("a packet socket");
	if (setsockopt(raw, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) != 0)
		(void)setsockopt(raw, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	x[0] = open_one("");
	x[1] = open_one(argv[2]);
	connect_both(argv[1], (const char *const *)argv + 3, ep);
	exchange(ep);
	tell("handshake", &handshake);
	tell("control", &control);
	tell("data", &data);
	tell_ep("client", ep[1]);
	tell_ep("server", ep[0]);
	for (int i = 0; i < 2; i++)
		xport_close(x[i]);
	return 0;
}
