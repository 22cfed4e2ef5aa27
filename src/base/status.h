/* SPDX-License-Identifier: BSD-3-Clause */
/* status.h - the table of every xport_status: its name, its text, and what to do about it. */
#ifndef XPI_BASE_STATUS_H
#define XPI_BASE_STATUS_H

#include "xport.h"

/*
 * X(status, text, hint), in the order of enum xport_status.  A status that is missing here does not compile.  The hint
 * is what to do about it.  xport_last_error returns it if no hint for the case is known.  xport_status(7) has the same
 * words, which test/build/manual checks.
 */
#define XPI_STATUS_LIST(X) \
	X(XPORT_OK, "success", "") \
	X(XPORT_ERR_AGAIN, "the queue is full: poll, then try again", \
	  "reap completions by xport_poll(3) or xport_wait(3), then post again. A larger XPORT_QUEUE_DEPTH allows " \
	  "more operations.") \
	X(XPORT_ERR_INVALID, "invalid argument", "correct the argument that the text names.") \
	X(XPORT_ERR_NO_MEMORY, "out of memory", "free memory, or raise the limit if the text names one.") \
	X(XPORT_ERR_NOT_SUPPORTED, "not supported by this back end or this build", \
	  "do without it, or choose another back end.") \
	X(XPORT_ERR_CONFIG, "bad value in the configuration", \
	  "set one of the values that the text allows; xport_env(7) lists them, too.") \
	X(XPORT_ERR_NO_BACKEND, "no back end has that name, or none is usable", \
	  "see xport_info(1) or xport_list(3) for the reason and a hint for each back end.") \
	X(XPORT_ERR_FAULT, "memory is not mapped, or does not allow the needed access", \
	  "pass memory that is mapped with that access; the text has the address.") \
	X(XPORT_ERR_BOUNDS, "outside the bounds of the region or the buffer", \
	  "stay within the length that the text names. Nothing was sent.") \
	X(XPORT_ERR_ACCESS, "the remote region does not grant this access", \
	  "register the region with the right. Nothing was sent.") \
	X(XPORT_ERR_STALE_KEY, "the registration of the key has ended, or its process has", \
	  "get a new key from the peer. Nothing was written.") \
	X(XPORT_ERR_BAD_KEY, "damaged bytes, or not a key", \
	  "pass all bytes that xport_rkey_pack(3) wrote, unchanged.") \
	X(XPORT_ERR_TRUNCATED, "the message is longer than its receive", \
	  "post longer receives. The next message is not affected.") \
	X(XPORT_ERR_CANCELED, "canceled", "nothing; the buffer belongs to the program again.") \
	X(XPORT_ERR_PEER_LOST, "the peer is lost", \
	  "destroy the endpoint, and connect again if needed. Operations that were in flight may or may not have " \
	  "taken effect.") \
	X(XPORT_ERR_PEER_CLOSED, "the peer closed the endpoint", "reap what was delivered, and destroy the endpoint.") \
	X(XPORT_ERR_CLOSED, "closed by this side", \
	  "use another endpoint; to let operations finish, give xport_ep_close(3) more time.") \
	X(XPORT_ERR_TIMEOUT, "the time limit expired", \
	  "check that the other side runs and answers, or allow more time.") \
	X(XPORT_ERR_REFUSED, "connection refused", "see the text for who refused and why.") \
	X(XPORT_ERR_UNREACHABLE, "no route to the peer, or its name does not resolve", \
	  "see the text for the name or address that was not reached.") \
	X(XPORT_ERR_INCOMPATIBLE, "the peer runs another back end, provider or version", \
	  "change one side to match the other; the text names the difference.") \
	X(XPORT_ERR_ADDRESS, "malformed address, or one that cannot be bound", \
	  "see the text for what is wrong with the address.") \
	X(XPORT_ERR_AUTH, "authentication is missing or failed", \
	  "give both sides the same XPORT_AUTH_KEY_FILE, or XPORT_AUTH=none if the network is trusted.") \
	X(XPORT_ERR_FORK, "called in a forked child", "fork before xport_open(3), and open in the child.") \
	X(XPORT_ERR_SYSTEM, "a system call failed", "see the text for the call and its error.") \
	X(XPORT_ERR_PROTOCOL, "the peer violated the protocol", \
	  "check that the address is a listener of this library. If it is, report the defect.") \
	X(XPORT_ERR_BUSY, "the receive has matched already, or posted receives use the region", \
	  "wait until the receive has completed, or cancel it if it is still posted.")

/* The text and the name of a status.  Never NULL, even for a number that is no status. */
const char *xpi_status_text(int status);
const char *xpi_status_name(int status);
/* What to do about a status.  "" for success and for a number that is no status. */
const char *xpi_status_hint(int status);

#endif
