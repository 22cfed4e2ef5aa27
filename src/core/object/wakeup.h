/* SPDX-License-Identifier: BSD-3-Clause */
/* wakeup.h - the instance's one descriptor, and the threads that wait for queue space. */
#ifndef XPI_CORE_OBJECT_WAKEUP_H
#define XPI_CORE_OBJECT_WAKEUP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/object/instance.h"

/*
 * xpi_again_begin - note that the calling thread gets XPORT_ERR_AGAIN and waits for queue space.
 *
 * ep  the endpoint; NULL: for a receive
 */
void xpi_again_begin(struct xport *x, const struct xport_ep *ep);
/* xpi_again_end - note that a post succeeded: the calling thread no longer waits for space there. */
void xpi_again_end(struct xport *x, const struct xport_ep *ep);
/* xpi_again_notified_all - note that all threads which wait for queue space are about to try again. */
void xpi_again_notified_all(struct xport *x);
/*
 * xpi_again_retry - note that the calling thread calls again.
 *
 * If it got XPORT_ERR_AGAIN, and freed space has been reported since, the report has reached it.
 */
void xpi_again_retry(struct xport *x);

/* xpi_again_tell - true if the calling thread got XPORT_ERR_AGAIN, and only now learns that space was freed since. */
bool xpi_again_tell(struct xport *x);
/* xpi_again_to_notify - true if the descriptor must report freed space: until all threads that got AGAIN called again. */
bool xpi_again_to_notify(struct xport *x);
/*
 * xpi_again_tried_at - the value of backpressure.freed_times when the calling thread last got XPORT_ERR_AGAIN.
 *
 * The thread may try again when that number has grown.
 */
uint32_t xpi_again_tried_at(struct xport *x);

/* xpi_wake - make the descriptor readable: something waits that the back end does not signal. */
void xpi_wake(struct xport *x);
/* xpi_signal - the same, and report that posts which got XPORT_ERR_AGAIN may be tried again. */
void xpi_signal(struct xport *x);
/* xpi_fd_rung - note that the helper thread raised the wake flag: it has written to the descriptor, or is about to. */
void xpi_fd_rung(struct xport *x);
/*
 * xpi_fd_arm_now - the body of xport_arm. From now on polls leave the descriptor alone.
 *
 * Returns XPORT_OK or XPORT_ERR_AGAIN, which it does not describe.
 */
int xpi_fd_arm_now(struct xport *x);
/* xpi_fd_shared - true if the application may sleep on the descriptor while a thread of its own is in xport_wait. */
static inline bool xpi_fd_shared(const struct xport *x)
{
	return x->fd.asked || x->fd.by_arm;
}
/* xpi_fd_disarm - note that the only thread polls: nobody sleeps on the descriptor, which so need not become readable. */
void xpi_fd_disarm(struct xport *x);
/* xpi_fd_ask - return the application's descriptor. From now on it is kept up to date. */
int xpi_fd_ask(struct xport *x);
/* xpi_fd_settle - bring the descriptor up to date, after a poll by the application. */
void xpi_fd_settle(struct xport *x);
/* xpi_fd_arm - arm the descriptor. False: there is something to do first. */
bool xpi_fd_arm(struct xport *x);
void xpi_fd_set_state(struct xport *x, enum xpi_fd_state state);
/* xpi_fd_stay_readable - make the descriptor readable, in any state. */
void xpi_fd_stay_readable(struct xport *x);
/* xpi_user_fd_settle - with the progress thread: keep the application's descriptor readable while completions wait. */
void xpi_user_fd_settle(struct xport *x);
/* xpi_eventfd_write - make an eventfd readable. */
void xpi_eventfd_write(int fd);
/* xpi_fd_init - mark all descriptors as not open. */
void xpi_fd_init(struct xport *x);
int xpi_fd_open(struct xport *x);
/* xpi_fd_add - watch the descriptors of a transport that was opened after the instance. Returns a status. */
int xpi_fd_add(struct xport *x, struct xpi_transport *tp);
/* xpi_fd_remove - watch them no longer: the transport broke, and nothing over it waits for them. */
void xpi_fd_remove(struct xport *x, struct xpi_transport *tp);
/* xpi_fd_clock - set the timer anew: a transport got its first endpoint, or lost its last one. */
void xpi_fd_clock(struct xport *x);
/* xpi_fd_watch_live - without the helper thread: wake sleepers for the work of that thread. */
int xpi_fd_watch_live(struct xport *x);
void xpi_fd_close(struct xport *x);

/*
 * A thread that sleeps in xport_wait beside the leader.
 *
 * The leader is the first thread to sleep, or the progress thread. It sleeps on the back end's descriptors, and makes
 * progress when they wake it. Each other thread sleeps on a descriptor of its own. It is woken whenever something has
 * happened, by the thread that found it, and whenever a thread leaves, since that may have been the leader.
 */
struct sleeper {
	struct xpi_list link; /* xport.crowd */
	int fd;
};

#endif
