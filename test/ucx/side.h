/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - one of the two processes of a test of the UCX back end: its core of a few lines, connections, frames. */
#ifndef TEST_UCX_SIDE_H
#define TEST_UCX_SIDE_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/ucx/ucx.h"
#include "base/status.h"

enum { PEER_TIMEOUT_MS = 800 };

extern int report_fd; /* the real standard output; descriptor 1 is a file that must stay empty */
extern const char *module_path;
extern const struct xpi_core_ops core_ops;

#define CHECK(cond, ...) \
	do { \
		if (!(cond)) \
			broken(__func__, __LINE__, #cond, " " __VA_ARGS__); \
	} while (0)

struct slot {
	struct xpi_req req;
	bool busy;
	unsigned char bytes[UCX_BULK_MAX];
};

struct xpi_core_ep {
	int failed; /* how often the back end said so */
};

enum { SLOTS = 600 };

struct xpi_core {
	void (*on_frame)(struct xpi_core *c, const void *hdr, size_t hlen, const void *data, size_t dlen);
	unsigned long frames, done, done_bad;
	bool hands_off; /* done() must not come any more */
	uint64_t next;  /* sequence number expected */
	size_t last_len;
	struct slot *slots;
	unsigned long pendings, agains;
};

struct side {
	const struct xpi_backend *ops;
	struct xpi_be *be;
	struct xpi_core core;
	struct xpi_be_caps caps;
	struct xport_error err;
	struct xpi_log log;
	unsigned long warnings;
	enum xpi_role role; /* of A in all connections: active */
	int sock;
	pid_t peer;
};

struct conn {
	void *ep;
	struct xpi_core_ep core_ep;
	char addr[2048];
	size_t len;
};

void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void broken(const char *fn, int line, const char *cond, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), noreturn));
double now(void);
double cpu(void);
void load(struct side *s);
void open_side(struct side *s, const char *provider);
int poll_be(struct side *s);
void put_msg(struct side *s, const void *buf, size_t len);
size_t get_msg(struct side *s, void *buf, size_t size);
void barrier(struct side *s);
void conn_prepare(struct side *s, struct conn *c);
void conn_finish(struct side *s, struct conn *c);
struct conn *conn_new(struct side *s);
double conn_quiesce(struct side *s, struct conn *c);
void conn_free(struct side *s, struct conn *c);
void close_side(struct side *s);
unsigned char byte_of(uint64_t seq, size_t i);
void frame_fill(unsigned char *p, size_t len, uint64_t seq);
void frame_check(struct xpi_core *c, const void *hdr, size_t hlen, const void *data, size_t dlen);
struct slot *slot_get(struct side *s, bool wait);
int frame_send(struct side *s, struct conn *c, uint64_t seq, size_t len, size_t hlen, bool wait);
void await_frames(struct side *s, unsigned long n);

/* UCX's functions as the module sees them: this program must not load UCX before a test looks at signal handlers. */
void *side_ucp(const char *name);
#define UCP(name) ((__typeof__(&name))side_ucp(#name))

/* memory.c */
void test_memory(struct side *s, const char *provider, bool a);
void test_native_rma(struct side *s, const char *provider, bool a);

/* death.c */
void test_kill_seen(struct side *s, const char *provider, bool a);
void test_kill_unseen(struct side *s, const char *provider, bool a);
void test_stopped(struct side *s, const char *provider, bool a);
void test_kill_idle(struct side *s, const char *provider, bool a);
void test_dead_on_arrival(struct side *s, const char *provider, bool a);
void test_gone_when_acknowledged(struct side *s, const char *provider, bool a);
void test_queue_stands(struct side *s, const char *provider, bool a);
void test_bad_address(struct side *s, const char *provider, bool a);

#endif
