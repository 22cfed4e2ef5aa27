/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * instance.h - an opened back end and its progress.
 *
 * The instance's descriptor is an epoll set of the back end's descriptors and `wake`, an eventfd.  Once the application
 * asked for it (or xport_wait sleeps), the instance is either ARMED: the back end was armed, nothing waits to be reaped,
 * the next event makes the set readable; or SIGNALLED: `wake` is readable.  Posting while ARMED makes it SIGNALLED; a
 * poll that finds nothing makes it ARMED.  Before that it is UNUSED and costs nothing.
 */
#ifndef XPI_CORE_INSTANCE_H
#define XPI_CORE_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "backends/backend.h"
#include "base/list.h"
#include "base/pool.h"
#include "core/cq.h"
#include "core/live.h"
#include "core/op.h"
#include "core/settings.h"
#include "core/spin.h"

struct xpi_match;
struct xpi_outbox;

enum { XPI_UNEXPECTED_CLASSES = 9 }; /* of messages that nobody receives yet, by length (msg.h) */

/* What a poll has to do besides asking the back end. */
enum {
	XPI_TODO_WORK = 1,   /* the list of endpoints with work is not empty */
	XPI_TODO_CLOCK = 2,  /* something needs a clock */
	XPI_TODO_SETTLE = 4, /* somebody sleeps on the descriptor, which has to be settled */
	XPI_TODO_RELEASE = 8, /* an endpoint waits for its completions to be reaped to be freed */
	XPI_TODO_TICK = 16 /* the timer has expired: look at the clock now, not at the 256th poll */
};

enum { XPI_LOOKS = 8 }; /* looks for old operations that are remembered: longer than the limit is */

enum xpi_fd_state { XPI_FD_UNUSED, XPI_FD_SIGNALLED, XPI_FD_ARMED };

/* Why the data path must take the slow turn; all clear in the usual case. */
enum {
	XPI_SLOW_LOCK = 1, /* lock the instance */
	XPI_SLOW_FORK = 2, /* this is a forked child */
	XPI_SLOW_ARMED = 4, /* the descriptor sleeps: fd_state is XPI_FD_ARMED */
	XPI_SLOW_WATCH = 8 /* who finds the lock held breaks the thread rule (XPORT_STRICT) */
};

struct xport {
	/* the data path */
	unsigned slow; /* XPI_SLOW_*; LOCK and WATCH are constant while open */
	enum xpi_fd_state fd_state;
	atomic_uint attention; /* rung by the helper thread: control channels need a look */
	unsigned todo;         /* XPI_TODO_* */
	uint32_t epoch;        /* counts polls */
	uint32_t tick;         /* XPORT_OP_TIMEOUT: counts the looks for old operations */
	struct xpi_be *be;
	int (*poll)(struct xpi_be *be); /* of ops, as the next one */
	int (*am_send)(struct xpi_be *be, void *ep, const void *buf, size_t len, struct xpi_req *req);
	const struct xpi_backend *ops;
	struct xpi_list work; /* endpoints with something to send or acknowledge */
	struct xpi_pool op_pool, lone_pool, frame_pool; /* operations, frames of one record and of many */
	struct xpi_pool unexpected_pools[XPI_UNEXPECTED_CLASSES]; /* msg.h */
	struct xpi_match *match;
	struct xport_ep **ep_table; /* by the low 16 bits of the id */
	uint32_t ep_table_size, ep_serial;
	uint32_t nreceives;
	bool want_space; /* somebody was answered AGAIN */
	bool receive_refused; /* ... for a receive */
	struct xpi_cq cq;
	/* regions, by the low 20 bits of their id */
	struct xport_mr **mr_table;
	uint32_t mr_table_size, nmr, mr_next;
	struct xpi_outbox *outbox; /* memory offered to peers of this host, see cma.h; NULL: never yet */
	/* life */
	struct xpi_be_caps caps;
	struct xpi_settings settings;
	struct xport_error err;
	struct xpi_log *log; /* = &settings.log */
	uint64_t incarnation;
	pid_t pid;
	struct xpi_live *live;
	struct xpi_bell bell;
	struct xpi_list eps, listeners, conns, failing;
	int64_t failing_ms;          /* since when the last of those that fail does */
	struct xpi_watch fail_again; /* ... and when to go on with them */
	struct xport_opt own_opt;   /* of the call that is in, where it has them of another size (ops.c) */
	struct xport_counters past; /* of endpoints that are gone, and what belongs to none */
	bool conn_busy; /* xpi_conn_progress walks the handshakes: none is freed under its feet */
	/* the descriptor */
	int epfd, wake, timer; /* timer: -1, or ticks for back ends without a descriptor and for XPORT_OP_TIMEOUT */
	bool fd_asked;         /* by xport_fd: stays in use after xport_wait */
	bool reaped;           /* the last poll gave something: the application will come again */
	bool space_freed;      /* what was answered AGAIN is worth trying again, and not all were told yet */
	int64_t space_told_ms; /* when the first was; 0: nobody */
	unsigned refused;      /* threads that were answered AGAIN, and not told since */
	uint32_t space_freed_times;
	int user_fd;           /* with the progress thread: the application's descriptor; else -1 */
	bool user_signalled;
	struct xpi_spin spin;  /* of xport_wait */
	struct xpi_list crowd; /* who sleeps beside the one who makes progress (wait.c) */
	bool led;              /* somebody sleeps on what the back end has */
	bool lead_told;        /* what woke it, or will, must stay there until it does */
	bool stirred;          /* something happened that the crowd has not been told of */
	int64_t look_ms[XPI_LOOKS]; /* when old operations were looked for, by tick */
	struct xpi_list all; /* in the list of all instances, for the fork rule */
	/* threads */
	pthread_mutex_t lock;
	pthread_mutex_t turn; /* held by who is the next to have the lock, if it was not free */
	atomic_uint callers;  /* that wait for it */
	pthread_t thread;
	bool thread_running;
	time_t polled_s; /* the coarse clock at the last poll, with XPI_TODO_CLOCK */
	long polled_ns;
	atomic_bool thread_stop;
};

static inline struct xport *xpi_of(struct xpi_core *core)
{
	return (struct xport *)core;
}

/* Makes progress once: back end, control channels if the bell rang, endpoints with work.  Returns how much happened or
 * a status.  The caller holds the lock. */
int xpi_progress(struct xport *x);

/* The first part of it: the back end. */
static inline int xpi_progress_be(struct xport *x)
{
	x->epoch++;
	return x->poll(x->be);
}

/* Whether there is a second part; and that, given what the first returned. */
static inline bool xpi_progress_more(struct xport *x, int n)
{
	return n < 0 || (x->todo | atomic_load_explicit(&x->attention, memory_order_acquire)) != 0;
}

int xpi_progress_rest(struct xport *x, int n);

/* Blocks until something may have happened, at most `timeout_ms` (-1: for ever); releases the lock meanwhile, or lets in who
 * waits for it.  False: a signal handler ran. */
bool xpi_idle(struct xport *x, int timeout_ms);

/* Wakes those who sleep beside the one who makes progress. */
void xpi_tell_crowd(struct xport *x);

/* The calling thread is being answered AGAIN by an endpoint, or for a receive, NULL. */
void xpi_want_space(struct xport *x, const struct xport_ep *ep);
/* What it posts there is accepted: if it was, there is nothing to be told of. */
void xpi_found_space(struct xport *x, const struct xport_ep *ep);
/* It calls again: if it was, and somebody was told of room meanwhile, it is who was meant. */
void xpi_came_back(struct xport *x);

/* Makes the descriptor readable: something waits that it does not know of. */
void xpi_wake(struct xport *x);
/* The same; and what was answered AGAIN is worth trying again. */
void xpi_signal(struct xport *x);

/* Where every call begins and ends: fork rule, lock, a sleeping descriptor.  Not OK: do not go on. */
int xpi_enter_slowly(struct xport *x) __attribute__((cold));
/* The same for a call that only looks: the descriptor sleeps on. */
int xpi_enter_asleep(struct xport *x);

static inline int xpi_enter(struct xport *x)
{
	return __builtin_expect(x->slow != 0, 0) ? xpi_enter_slowly(x) : XPORT_OK;
}

static inline int xpi_enter_to_look(struct xport *x)
{
	return __builtin_expect(x->slow != 0, 0) ? xpi_enter_asleep(x) : XPORT_OK;
}

/* Waits for the lock. */
void xpi_lock(struct xport *x);
void xpi_let_callers_in(struct xport *x) __attribute__((cold));

/* Between two polls of a call that stays in: the threads that wait for the lock have it first.  What may be freed by another
 * thread's call is to be looked for again. */
static inline void xpi_let_in(struct xport *x)
{
	if (__builtin_expect(atomic_load_explicit(&x->callers, memory_order_relaxed) != 0, 0))
		xpi_let_callers_in(x);
}

static inline void xpi_leave(struct xport *x)
{
	if (__builtin_expect(x->slow & XPI_SLOW_LOCK, 0)) {
		if (__builtin_expect(!xpi_list_empty(&x->crowd), 0))
			xpi_tell_crowd(x);
		pthread_mutex_unlock(&x->lock);
	}
}

/* The helper thread's way to call us, taken by ourselves: the next progress looks after the control channels. */
static inline void xpi_bell_ring(struct xport *x)
{
	atomic_store_explicit(&x->attention, 1, memory_order_release);
}

/* Makes progress until something waits to be reaped, space was freed for what was answered AGAIN, a signal handler ran,
 * or the time is over. */
int xpi_wait(struct xport *x, int timeout_ms);
/* The application's descriptor; from now on its promise is kept. */
int xpi_fd_ask(struct xport *x);
/* After a poll that the application asked for: keeps the descriptor's promise. */
void xpi_fd_settle(struct xport *x);
int xpi_fd_open(struct xport *x);
/* Without the liveness thread: sleepers wake for what it would do. */
int xpi_fd_watch_live(struct xport *x);
void xpi_fd_close(struct xport *x);
int xpi_thread_start(struct xport *x);
void xpi_thread_stop(struct xport *x);

/* What an event will stand in: taken before it can happen, so that no event is lost for want of memory.  NULL: out of
 * memory. */
struct xpi_op *xpi_event_room(struct xport *x);
/* Gives *room back, if it was not used. */
void xpi_event_unroom(struct xport *x, struct xpi_op **room);
/* Queues an event about an endpoint or listener, in *room, which is NULL then. */
void xpi_event(struct xport *x, struct xpi_op **room, int type, int status, struct xport_ep *ep, void *context);
/* Takes the oldest such event without an endpoint back, if more than `keep` of them are not reaped yet; whether it did. */
bool xpi_event_forget(struct xport *x, int type, const void *context, unsigned keep);

/* An error of a posting function: said in xport_last_error, without a peer.  Returns `status`. */
int xpi_refuse(struct xport *x, int status, const char *operation, const char *fmt, ...)
	__attribute__((cold, format(printf, 4, 5)));

#endif
