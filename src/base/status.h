/* SPDX-License-Identifier: BSD-3-Clause */
/* status.h - the one table of every xport_status: its name, its text, and what to do about it. */
#ifndef XPI_BASE_STATUS_H
#define XPI_BASE_STATUS_H

#include "xport.h"

/* In the order of enum xport_status; a status that is missing here does not compile.  The second text is what to do about it:
 * xport_status(7) has the same (test/build/manual), and xport_last_error where nobody knows better. */
#define XPI_STATUS_LIST(X) \
	X(XPORT_OK, "success", "") \
	X(XPORT_ERR_AGAIN, "the queue is full: poll, then try again", \
	  "reap by xport_poll(3) or xport_wait(3), then post again. XPORT_QUEUE_DEPTH allows more.") \
	X(XPORT_ERR_INVALID, "invalid argument", "correct the program.") \
	X(XPORT_ERR_NO_MEMORY, "out of memory", "raise ulimit -l, or register less. Nothing was left half made.") \
	X(XPORT_ERR_NOT_SUPPORTED, "not supported by this back end or this build", \
	  "do without, or choose another back end.") \
	X(XPORT_ERR_CONFIG, "bad value in the configuration", "the text says what is allowed; so does xport_env(7).") \
	X(XPORT_ERR_NO_BACKEND, "no such back end, or none that is usable here", \
	  "xport_info(1) and xport_list(3) give the reason for each, and a hint.") \
	X(XPORT_ERR_FAULT, "memory that is not mapped, or not with the rights asked for", \
	  "correct the program; the text has the address.") \
	X(XPORT_ERR_BOUNDS, "outside the bounds", "xport_rkey_query(3) tells the length. Nothing was sent.") \
	X(XPORT_ERR_ACCESS, "the remote region does not grant this access", \
	  "register it with the right. Nothing was sent.") \
	X(XPORT_ERR_STALE_KEY, "the key's registration or its process is gone", \
	  "get a new key from the peer. Nothing was written.") \
	X(XPORT_ERR_BAD_KEY, "damaged bytes, or not a key", "send as many bytes as xport_rkey_pack(3) wrote.") \
	X(XPORT_ERR_TRUNCATED, "the message is longer than its receive", \
	  "post longer receives. The next message is fine.") \
	X(XPORT_ERR_CANCELED, "canceled", "nothing; the buffer is the program's again.") \
	X(XPORT_ERR_PEER_LOST, "the peer is lost", \
	  "destroy the endpoint, and connect again if that makes sense. Operations that were under way may or may " \
	  "not have taken effect.") \
	X(XPORT_ERR_PEER_CLOSED, "the peer closed the endpoint", "take what was delivered, and destroy the endpoint.") \
	X(XPORT_ERR_CLOSED, "closed by this side", "to have them finish, give xport_ep_close(3) more time.") \
	X(XPORT_ERR_TIMEOUT, "the time limit passed", "see that the peer makes progress; allow more time.") \
	X(XPORT_ERR_REFUSED, "connection refused", "start the listener first; try again later.") \
	X(XPORT_ERR_UNREACHABLE, "no route to the peer, or its name does not resolve", \
	  "check the address, the routes, and firewalls, for the network under the connection as well.") \
	X(XPORT_ERR_INCOMPATIBLE, "the peer runs another back end, provider or version", \
	  "set XPORT_BACKEND to the same on both sides. The text names both.") \
	X(XPORT_ERR_ADDRESS, "malformed address, or one that cannot be bound", \
	  "choose an address of this host and a free port; 0 takes any.") \
	X(XPORT_ERR_AUTH, "authentication is missing or failed", \
	  "give both sides the same XPORT_AUTH_KEY_FILE, or XPORT_AUTH=none where the network is trusted.") \
	X(XPORT_ERR_FORK, "used in a forked child", "fork before xport_open(3), and open in the child.") \
	X(XPORT_ERR_SYSTEM, "a system call failed", "see the text; raise ulimit -n.") \
	X(XPORT_ERR_PROTOCOL, "the peer broke the protocol", \
	  "check the address. Between two peers of this library it is a fault to be reported.") \
	X(XPORT_ERR_BUSY, "too late: already matched", \
	  "wait for the receive's completion, or cancel it, and try again.")

/* Never NULL, also for a number that is no status. */
const char *xpi_status_text(int status);
const char *xpi_status_name(int status);
/* What to do about it; "" for success and for a number that is no status. */
const char *xpi_status_hint(int status);

#endif
