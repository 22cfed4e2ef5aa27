/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - the sides of a test of the libfabric back end: its core of a few lines, connections, frames. */
#ifndef TEST_OFI_SIDE_H
#define TEST_OFI_SIDE_H

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/ofi/ofi.h"

#define CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "  %s:%d: %s: ", __func__, __LINE__, #cond); \
			fprintf(stderr, " " __VA_ARGS__); \
			fputc('\n', stderr); \
			_exit(1); \
		} \
	} while (0)

enum { SLOTS = 400 };

struct slot {
	struct xpi_req req;
	bool busy;
	uint8_t bytes[OFI_BULK_MAX];
};

struct xpi_core_ep {
	int failed;
	unsigned long frames; /* that the back end said came from its peer */
	unsigned long frames_then; /* of its instance, when it failed */
	struct side *side;
};

struct side {
	struct xpi_be *be;
	struct xpi_be_caps caps;
	unsigned long frames, done;
	bool hands_off; /* done() must not come any more */
	struct slot *slots;
};

struct end {
	struct side *side;
	void *ep;
	struct xpi_core_ep core_ep;
	uint8_t addr[2048];
	size_t len;
};

extern const struct xpi_backend *ops;
extern struct xport_error err;
extern struct xpi_log quiet;
extern struct side A, B, C;
extern struct end a, b, c, d;

int64_t now_ms(void);
uint8_t byte_of(uint64_t seq, size_t i);
int try_open(struct side *s, const char *provider);
void open_side(struct side *s, const char *provider);
void prepare(struct end *e, struct side *s);
/* A with a and B with b, not joined yet; and the end of both. */
void open_ends(const char *provider);
void close_ends(void);
/* The first address of a packed one, if it is one of IP. */
bool where(const struct end *e, struct sockaddr_storage *sa, socklen_t *len);
/* Polls both for so long. */
void run_both(struct side *one, struct side *other, int ms);
/* from connects to to. */
void join(struct end *from, struct end *to);
/* As open_ends, and joined. */
void open_pair(const char *provider);
void leave(struct end *e);
/* One attempt; the slot is busy while the back end has it. */
int send_frame(struct end *e, uint64_t seq, size_t len, size_t cut);
/* Whether a frame of its own has not left yet. */
bool busy(const struct side *s);
void must_send(struct end *from, struct end *to, uint64_t seq, size_t len, size_t cut);
void await(struct end *from, struct end *to, unsigned long frames);
/* The log lines with this id, of which `line` has the last. */
void listen_for(const char *id);
extern char line[512];

/* hostile.c, strangers.c: each a test. */
void test_stranger(const char *provider);
void test_too_long(const char *provider);
void test_bad_address(const char *provider);
void test_rubbish(const char *provider);
void test_half_request(const char *provider);
void test_silent(const char *provider);
void test_deaf(const char *provider);
void test_late(const char *provider);
void test_late_no_more(const char *provider);
void test_dead_inside(const char *provider);
void test_slow_inside(const char *provider);
void test_dead_beside(const char *provider);
void test_half_accepted(const char *provider);
void test_no_descriptor(const char *provider);
void test_full_table(const char *provider);
void test_no_file(const char *provider);
void test_no_file_more(const char *provider);
void test_no_room(const char *provider);
void test_filled_later(const char *provider);
void test_equal_pids(const char *provider);

/* Gives this process a /dev/shm of its own, where nobody else's files come and go.  False: that cannot be done here. */
bool own_dev_shm(const char *options);
/* How many files of /dev/shm have such a name. */
int count_names(const char *beginning);

#endif
