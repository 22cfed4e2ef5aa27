/* SPDX-License-Identifier: BSD-3-Clause */
/* harness_net.h - raw TCP for roles that play a stranger, a malicious peer, or a broken cable. */
#ifndef CONFORM_HARNESS_NET_H
#define CONFORM_HARNESS_NET_H

#include "harness.h"

/* A TCP listener on loopback that the library knows nothing of; writes its "host:port". */
int h_raw_listen(struct h *h, char *address, size_t len);
/* Connects to a "127.0.0.1:port". */
int h_raw_connect(struct h *h, const char *address);
/* Reads until `len` bytes or the end or the time limit; returns how many. */
size_t h_raw_read(int fd, void *buf, size_t len, int timeout_ms);
void h_raw_write(int fd, const void *buf, size_t len);

enum h_proxy_mode {
	H_FORWARD, /* as a cable does */
	H_SWALLOW, /* takes everything, passes on nothing: a cable that is cut */
	H_CUT      /* closes both sides */
};

/* What a handshake says behind its first message, the HELLO, is held back in one direction. */
enum h_proxy_hold { H_HOLD_NONE, H_HOLD_UP, H_HOLD_DOWN };

/* One connection after the other through a thread of this role, to `upstream`. */
struct h_proxy {
	char address[80];
	char upstream[80];
	int listen_fd;
	atomic_int mode;
	long words_end[2]; /* where the words about the transport end that were seen so far */
	atomic_int hold; /* enum h_proxy_hold; not where there is a key */
	/* spoils byte `flip_at` (-1: none) of what flows up (0) or down (1) in each connection */
	atomic_int flip_direction;
	atomic_long flip_at;
	atomic_int flip_mask;
	atomic_int mend_sum; /* the checksum is put right again, as a true peer of that kind would have it */
	atomic_long passed[2]; /* bytes of the latest connection in each direction */
	uint8_t keep[2][4096]; /* and the first of them, as they came; read once the connection is over */
	size_t kept[2];
	atomic_int stop;
	struct h *h;
	pthread_t thread;
};

void h_proxy_start(struct h *h, struct h_proxy *p, const char *upstream);
void h_proxy_stop(struct h_proxy *p);

#endif
