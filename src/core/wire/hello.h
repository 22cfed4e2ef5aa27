/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.h - the first message of a control channel: who I am, what I speak, what I can take. */
#ifndef XPI_CORE_WIRE_HELLO_H
#define XPI_CORE_WIRE_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xport.h"

#define XPI_WIRE_VERSION 6
/* Private data of a connection; also of xport_accept_with, which has to fit a frame. */
#define XPI_PRIVATE_MAX 1024
#define XPI_ADDRESS_MAX 2048
/* Longest encoded HELLO: what is read from a stranger before anything is known of him. */
#define XPI_HELLO_MAX 7168

/* A transport that a side has, or may have. */
enum {
	XPI_OFFER_OPEN = 1,   /* its back end is open: protocol and device are known */
	XPI_OFFER_ANY = 2,    /* the peer's provider may have another name: devices, or the back end chooses */
	XPI_OFFER_SHARED = 4, /* it shares memory: peers are processes of one host */
	XPI_OFFER_FAILED = 8, /* it is not usable; device says why */
	XPI_OFFER_PASSED = 16, /* it passes its memory over sockets of a directory: PID namespaces may differ */
	XPI_OFFER_ALL = 31
};
enum { XPI_OFFERS_MAX = 16, XPI_OFFER_NONE = 0xff };

struct xpi_offer {
	char backend[16], provider[48], protocol[48], device[48];
	uint8_t flags; /* XPI_OFFER_* */
};

struct xpi_hello {
	/* identity: must match, refused with a sentence that names both sides */
	uint16_t wire_version;
	char library[16];   /* "0.1.0" */
	char backend[16], provider[48], stack[64]; /* of the first offer that is open */
	uint8_t pointer_size;
	bool big_endian;
	/* the process */
	uint64_t incarnation;
	char host[64], boot_id[40];
	uint64_t pid_ns, start_time;
	int64_t pid;
	uint64_t shm_fs; /* which file system /dev/shm is; 0: unknown */
	/* transports, in order of preference */
	uint8_t noffers;
	struct xpi_offer offers[XPI_OFFERS_MAX];
	/*
	 * The transport that address and limits are of: its place in `offers`; XPI_OFFER_NONE: they follow when one is agreed.
	 * Server: the one it chose, and in `theirs` its place among the client's offers.
	 */
	uint8_t offer, theirs;
	/* the endpoint */
	uint32_t ep_id;   /* its low 16 bits, the slot, go into each frame sent to it */
	uint64_t session; /* random; goes into each frame sent to it, and only the peer knows it */
	/* limits of the receiver */
	uint32_t frame_max, credits, window, requests;
	uint32_t peer_timeout_ms;
	uint8_t traffic_class; /* enum xport_traffic that this side asks for */
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

/*
 * xpi_hello_compatible - whether two libraries can talk, whatever the transport.
 *
 * Returns XPORT_OK, or XPORT_ERR_INCOMPATIBLE with a sentence in `text`: "the peer runs ofi:tcp (...), this side ucx:tcp (...)".
 */
int xpi_hello_compatible(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len);
/* xpi_hello_sides - that sentence, which lists what both sides have. */
void xpi_hello_sides(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len);
/* xpi_hello_advice - what to do if two sides are not compatible. NULL: nothing that can be set. */
const char *xpi_hello_advice(const struct xpi_hello *ours, const struct xpi_hello *theirs);

/* xpi_offer_name - "ucx:tcp", "verbs" in buf. Returns buf. */
char *xpi_offer_name(const struct xpi_offer *o, char *buf, size_t len);

/*
 * A word of the negotiation, after the HELLOs.
 *
 *   'T'  the sender goes on with one of its transports: its limits and address follow
 *   'N'  the sender cannot connect over the transport of this attempt: the next one, please
 *
 * Bytes: kind, length of the body as 16 bits big-endian, body.
 */
enum { XPI_WORD_HEAD = 3, XPI_WORD_BODY_MAX = 2560 };

struct xpi_word {
	char kind;       /* 'T' or 'N' */
	uint8_t attempt; /* counts the server's choices */
	/* T */
	uint8_t offer, theirs; /* places among the sender's and the receiver's offers */
	uint32_t frame_max, credits;
	char protocol[48];
	uint16_t address_len;
	uint8_t address[XPI_ADDRESS_MAX];
	/* N */
	int32_t status;
	char text[200]; /* why the attempt failed; in a server's T: why the one before did */
};

/* xpi_word_encode - write a word. Returns its length; 0: it does not fit. */
size_t xpi_word_encode(const struct xpi_word *w, void *buf, size_t len);
/* xpi_word_length - the length of a word from its first XPI_WORD_HEAD bytes. 0: too long. */
size_t xpi_word_length(const void *head);
/* xpi_word_decode - read a word of exactly `len` bytes. False: it is damaged. */
bool xpi_word_decode(const void *buf, size_t len, struct xpi_word *w);

/* What stays the same for as long as a process lives, and is slow to read from /proc. Zeroed: not read yet. */
struct xpi_self {
	char boot_id[40];
	uint64_t pid_ns, start_time;
};

/* xpi_hello_process - fill in host, boot_id, pid_ns, pid, start_time, shm_fs of this process. `self` is of this process. */
void xpi_hello_process(struct xpi_hello *h, struct xpi_self *self);

#endif
