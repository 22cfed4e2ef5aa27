/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.h - the first message of a control channel: who I am, what I speak, what I can take. */
#ifndef XPI_CORE_WIRE_HELLO_H
#define XPI_CORE_WIRE_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xport.h"

#define XPI_WIRE_VERSION 3
#define XPI_PRIVATE_MAX 1024
#define XPI_ADDRESS_MAX 2048
/* Longest encoded HELLO: what is read from a stranger before anything is known of him. */
#define XPI_HELLO_MAX 4096

struct xpi_hello {
	/* identity: must match, refused with a sentence that names both sides */
	uint16_t wire_version;
	char library[16];   /* "0.1.0" */
	char backend[16], provider[48], protocol[48], stack[64];
	bool one_host;     /* not sent: the provider shares memory, so that peers are processes of this PID namespace */
	bool any_provider; /* not sent: the provider is a name of this machine only, and the peer's may be another */
	uint8_t pointer_size;
	bool big_endian;
	/* the process */
	uint64_t incarnation;
	char host[64], boot_id[40];
	uint64_t pid_ns, start_time;
	int64_t pid;
	/* the endpoint */
	uint32_t ep_id;   /* its low 16 bits, the slot, go into each frame sent to it */
	uint64_t session; /* random; goes into each frame sent to it, and only the peer knows it */
	/* limits of the receiver */
	uint32_t frame_max, credits, window, requests;
	uint32_t peer_timeout_ms;
	/* the server's verdict on the client; in the client's HELLO: XPORT_OK */
	int32_t verdict;
	char verdict_text[256];
	/* what follows */
	uint16_t private_len, address_len;
	uint8_t private_data[XPI_PRIVATE_MAX];
	uint8_t address[XPI_ADDRESS_MAX];
};

/*
 * The layout begins with 8 bytes that no version may change: "XPRT", the length of the whole as 16 bits big-endian,
 * and the wire version as 16 bits big-endian; library, back end, provider and stack follow in every version, so that
 * every version can refuse every other properly.  A checksum ends it.
 */

/* Returns bytes written, 0 if it does not fit. */
size_t xpi_hello_encode(const struct xpi_hello *h, void *buf, size_t len);

/* How long the whole HELLO is, from its first 8 bytes; 0: not one. */
size_t xpi_hello_length(const void *first8);

/* Decodes exactly `len` bytes.  False: damaged or not one.  With another wire version only the identity is filled. */
bool xpi_hello_decode(const void *buf, size_t len, struct xpi_hello *h);

/* XPORT_OK, or XPORT_ERR_INCOMPATIBLE with a sentence in `text`: "peer uses ofi:tcp (...), we use ucx:tcp (...)". */
int xpi_hello_compatible(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len);
/* What to do where it is not; NULL: nothing that can be set. */
const char *xpi_hello_advice(const struct xpi_hello *ours, const struct xpi_hello *theirs);

/*
 * Where the provider shares memory: XPORT_OK, or XPORT_ERR_UNREACHABLE with a sentence in `text` if the peer is in another
 * PID namespace of this host.  Stacks name processes by their numbers, and would find no process, or a wrong one.
 */
int xpi_hello_reachable(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len);
extern const char xpi_hello_unreachable_hint[];

/* Fills host, boot_id, pid_ns, pid, start_time of this process. */
void xpi_hello_process(struct xpi_hello *h);

#endif
