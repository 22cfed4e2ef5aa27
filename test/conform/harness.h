/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * harness.h - functions for a role of a scenario, beside those of xport: checks, control of other roles, messages to
 * them, waits, and memory that shows accesses. If one fails, the role ends, and with it the test.
 *
 * Every macro and function takes the role's own `struct h *`, which the macros expect under the name h.
 *
 * Waiting for another role (h_hear, h_sync) makes progress on h->x meanwhile, unless h->idle is set.
 */
#ifndef CONFORM_HARNESS_H
#define CONFORM_HARNESS_H

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scenario.h"

/*
 * A function of a scenario that stands in front of one of the C library's.  Visible to the shared libraries that this program
 * links and loads: with -fvisibility=hidden they would call the C library's own.
 */
#define H_INTERPOSE __attribute__((visibility("default")))

struct h_shared;
struct h_chunk;
struct h_kept;

struct h {
	int role, nroles;
	int incarnation; /* counts restarts of this role */
	const struct h_config *config;
	uint64_t param;
	enum h_kind kind;
	xport *x;
	struct xport_info info;
	xport_listener *listener;
	char address[80];      /* of h->listener */
	xport_ep *ep[H_ROLES]; /* the endpoint to each role */
	bool incoming;         /* keep XPORT_EVENT_INCOMING: else it is taken as read */
	bool idle;             /* waiting for other roles makes no progress */
	int limit_ms;          /* how long h_done and its like wait */
	/* the harness's own */
	struct h_shared *shared;
	int channel[H_ROLES];
	int command;
	bool dumped; /* said where it is, since a role waits in vain */
	struct h_chunk *ops;
	int pending; /* operations posted through the harness that have not completed */
	struct h_kept *kept;
	struct xport_completion *queue;
	int nqueue, queue_room;
	pthread_t thread;
};

/* An operation posted through the harness, which counts its completions. */
struct h_op {
	int type;
	int done;   /* completions seen; more than one fails the test at once */
	bool quiet; /* none must come */
	struct xport_completion c;
	uint64_t id; /* of a receive */
};

/* ---- check ---- */

void h_fail(struct h *h, const char *file, int line, const char *what, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 5, 6), cold));
void h_check_status(struct h *h, const char *file, int line, const char *what, int expected, int status);
void h_check_equal(struct h *h, const char *file, int line, const char *what, uint64_t expected, uint64_t value);

#define H_CHECK(cond, ...) ((cond) ? (void)0 : h_fail(h, __FILE__, __LINE__, #cond, __VA_ARGS__))
#define H_TRUE(cond) H_CHECK(cond, "is not so")
#define H_STATUS(expected, call) h_check_status(h, __FILE__, __LINE__, #call, expected, call)
#define H_OK(call) H_STATUS(XPORT_OK, call)
#define H_EQ(expected, value) h_check_equal(h, __FILE__, __LINE__, #value, (uint64_t)(expected), (uint64_t)(value))
/* The scenario cannot be run here; `what` names the capability that is absent. */
void h_skip(struct h *h, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* A figure that the test's report shows. */
void h_record(struct h *h, const char *name, uint64_t value);
/* Warnings that contain `text` are expected from now on in this role. */
void h_expect_log(struct h *h, const char *text);
/* How many log lines of this role contain `text`. */
int h_count_log(struct h *h, const char *text);

/* ---- time ---- */

/* Without the time in which the machine stood still. */
int64_t h_now_us(void);
/* How long the threads of this process could have run and did not, because others had the processors: to be subtracted from
 * what took too long.  0 where the kernel does not tell (schedstat). */
int64_t h_starved_us(void);
/* Milliseconds, stretched by H_TIMEOUT_SCALE for slow tools. */
int h_ms(int ms);
/* True under valgrind or a sanitizer, whose own memory spoils what is measured of ours. */
bool h_instrumented(void);
/* Makes progress for this long. */
void h_run_for(struct h *h, int ms);

/* ---- other roles ---- */

void h_tell(struct h *h, int role, const void *buf, size_t len);
/* Returns the length of the message. */
size_t h_hear(struct h *h, int role, void *buf, size_t max);
void h_tell_u64(struct h *h, int role, uint64_t value);
uint64_t h_hear_u64(struct h *h, int role);
/* True if something is there to hear. */
bool h_heard(struct h *h, int role);
/* Waits until every living role came here. */
void h_sync(struct h *h);
void h_sync_with(struct h *h, int role);
int h_pid(struct h *h, int role);
void h_kill(struct h *h, int role, int sig);
void h_stop(struct h *h, int role);
void h_cont(struct h *h, int role);
/* Starts a killed role again, from the beginning of its function. */
void h_restart(struct h *h, int role);
/* This role ends now, without closing anything; `abnormal`: by SIGABRT. */
void h_exit(struct h *h, bool abnormal) __attribute__((noreturn));
/* Memory that all roles share, zeroed at the start of the test. */
_Atomic uint64_t *h_word(struct h *h, int i);

/* ---- instance and endpoints ---- */

/* What h_open would open with, to be changed and given to h_open. */
struct xport_attr h_attr(struct h *h);
/* Whether the transport of that name, BACKEND:PROVIDER, is among those asked for: BACKEND alone means any of its providers. */
bool h_asked_for(const struct h *h, const char *name);
/* Opens h->x; NULL: h_attr. */
void h_open(struct h *h, const struct xport_attr *attr);
/* Listens on loopback, or where the role has its place, once; h->address tells. */
void h_listen(struct h *h);
/* Endpoints between this role and `role`, which must call it too; the lower one listens. */
void h_pair(struct h *h, int role);
/* h_open and h_pair with every other role. */
void h_mesh(struct h *h, const struct xport_attr *attr);
/* Accepts one connection, or connects, and returns the endpoint. */
xport_ep *h_accept(struct h *h);
xport_ep *h_connect(struct h *h, const char *address);

/* ---- memory ---- */

enum { H_GUARD = 256 };
enum { H_ALL = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC };

/* A region; p[0..len) lies between guard bytes, which are outside of it (registered, plain) or, as the ends of a
 * longer region, inside of it (allocated); `skew` bytes off a page's beginning. */
struct h_mem {
	uint8_t *p;
	size_t len;
	xport_mr *mr;    /* NULL: plain */
	uint64_t offset; /* of p in the region */
	uint8_t *raw;
	size_t raw_len;
	bool allocated;
};

/* Zeroed, page-aligned memory that is freed when the role ends. */
void *h_buf(struct h *h, size_t len);
void h_buf_free(struct h *h, void *buf);
struct h_mem h_mem_target(struct h *h, size_t len, size_t skew, uint32_t rights);
struct h_mem h_mem_local(struct h *h, size_t len, size_t skew);
/* Checks the guards, deregisters, frees. */
void h_mem_free(struct h *h, struct h_mem *m);
void h_mem_guards(struct h *h, const struct h_mem *m, const char *file, int line);
#define H_GUARDS(m) h_mem_guards(h, &(m), __FILE__, __LINE__)
/* A pattern that differs at each place and for each seed. */
void h_fill(void *buf, size_t len, uint64_t seed);
void h_check_fill(struct h *h, const char *file, int line, const void *buf, size_t len, uint64_t seed);
#define H_FILLED(buf, len, seed) h_check_fill(h, __FILE__, __LINE__, buf, len, seed)
void h_check_byte(struct h *h, const char *file, int line, const void *buf, size_t len, uint8_t byte);
#define H_BYTES(buf, len, byte) h_check_byte(h, __FILE__, __LINE__, buf, len, byte)

/* A key on its way: the bytes, and where p lies in the region. */
struct h_key {
	uint64_t offset, length;
	size_t len;
	uint8_t bytes[2048];
};
struct h_rkey {
	xport_rkey *k;
	uint64_t offset, length;
};

struct h_key h_key_pack(struct h *h, const struct h_mem *m);
void h_share(struct h *h, int role, const struct h_mem *m);
struct h_rkey h_import(struct h *h, int role);
struct h_rkey h_unpack(struct h *h, xport_ep *ep, const struct h_key *key);

/* The parameter as a size: a number, or H_NEAR_EAGER + d, H_NEAR_FRAME + d. */
#define H_NEAR_EAGER (UINT64_C(1) << 62)
#define H_NEAR_FRAME (UINT64_C(2) << 62)
size_t h_size(struct h *h);
extern const struct h_param h_sizes[], h_small_sizes[];

/* ---- operations ---- */

/* A place in local memory. */
struct h_at {
	const struct h_mem *m;
	size_t at, len;
};
#define H_AT(mem, where, length) (&(struct h_at){&(mem), where, length})

/* For an operation posted by hand: its context.  One that was not accepted, or is quiet, is then dropped. */
struct h_op *h_op(struct h *h, int type);
void h_op_drop(struct h *h, struct h_op *op);
/* Post, making progress while the answer is AGAIN; offsets count from p of the target's memory. */
struct h_op *h_put(struct h *h, xport_ep *ep, const struct h_at *from, const struct h_rkey *to, uint64_t offset,
                   uint64_t flags);
struct h_op *h_get(struct h *h, xport_ep *ep, const struct h_at *to, const struct h_rkey *from, uint64_t offset);
void h_get_quiet(struct h *h, xport_ep *ep, const struct h_at *to, const struct h_rkey *from, uint64_t offset);
struct h_op *h_notify(struct h *h, xport_ep *ep, const struct h_at *from, const struct h_rkey *to, uint64_t offset,
                      uint64_t value, uint64_t flags);
struct h_op *h_atomic(struct h *h, xport_ep *ep, int op, int width, uint64_t operand, uint64_t compare, void *result,
                      const struct h_rkey *to, uint64_t offset);
struct h_op *h_send(struct h *h, xport_ep *ep, const void *buf, size_t len, uint64_t tag);
struct h_op *h_send_at(struct h *h, xport_ep *ep, const struct h_at *from, uint64_t tag, uint64_t flags);
struct h_op *h_recv(struct h *h, xport_ep *source, void *buf, size_t len, uint64_t tag, uint64_t mask);
struct h_op *h_recv_at(struct h *h, const struct h_at *to, uint64_t tag);
struct h_op *h_flush(struct h *h, xport_ep *ep);
/* Asks once; NULL and *status if it was not accepted. */
struct h_op *h_try_send(struct h *h, xport_ep *ep, const void *buf, size_t len, uint64_t tag, int *status);

/* ---- wait ---- */

/* xport_poll, completions noted; returns how many. */
int h_progress(struct h *h);
/* Progress, then a short sleep on the fd if there was none. */
void h_breathe(struct h *h);
void h_wait_done(struct h *h, const char *file, int line, struct h_op *op, int expected);
void h_wait_ended(struct h *h, const char *file, int line, struct h_op *op);
#define H_DONE(op) h_wait_done(h, __FILE__, __LINE__, op, XPORT_OK)
#define H_DONE_AS(expected, op) h_wait_done(h, __FILE__, __LINE__, op, expected)
/* Waits for the completion, whatever its status. */
#define H_ENDED(op) h_wait_ended(h, __FILE__, __LINE__, op)
/* Waits for all that was posted through the harness. */
void h_settle(struct h *h);
/* Waits for an event (or a completion that no h_op belongs to) of this type. */
struct xport_completion h_event_at(struct h *h, const char *file, int line, uint32_t type);
#define H_EVENT(type) h_event_at(h, __FILE__, __LINE__, type)
/* Takes one of this type if it has come already. */
bool h_event_now(struct h *h, uint32_t type, struct xport_completion *c);
/* Waits for LOST on the endpoint, fails if it takes longer than max_ms since `since_us`; returns microseconds. */
int64_t h_lost_within(struct h *h, xport_ep *ep, int64_t since_us, int max_ms);

/* Forgets what is queued and the instance, after the scenario closed h->x itself. */
void h_forget(struct h *h);
/* Ends a role in good order; called by the runner. */
void h_finish(struct h *h);

#endif
