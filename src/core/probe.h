/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * probe.h - places where a tracer may look (doc/tracing.md), by <sys/sdt.h> where there is one (--enable-usdt).
 *
 * Each is a nop in the code and a note in the file that says where it is and where its arguments are.  An argument must be
 * at hand already: what has to be computed for a probe is computed always.
 */
#ifndef XPI_CORE_PROBE_H
#define XPI_CORE_PROBE_H

#ifdef XPI_USDT

#include <sys/sdt.h>

/* Accepted: the endpoint (NULL: a receive from any), enum xport_type, bytes, the operation's context. */
#define XPI_PROBE_OP_POSTED(ep, type, bytes, context) DTRACE_PROBE4(xport, op_posted, ep, type, bytes, context)
/* A completion or event goes to the application. */
#define XPI_PROBE_OP_DONE(c) DTRACE_PROBE5(xport, op_done, (c)->ep, (c)->type, (c)->status, (c)->length, (c)->context)
/* A region is registered. */
#define XPI_PROBE_REGISTER(x, base, bytes, rights) DTRACE_PROBE4(xport, register, x, base, bytes, rights)
/* An endpoint is open: the peer's "host:port" and process. */
#define XPI_PROBE_CONNECT(ep, peer, pid) DTRACE_PROBE3(xport, connect, ep, peer, pid)
/* One is lost: the peer, the status, why. */
#define XPI_PROBE_LOST(ep, peer, status, why) DTRACE_PROBE4(xport, lost, ep, peer, status, why)

#else

#define XPI_PROBE_OP_POSTED(ep, type, bytes, context) ((void)0)
#define XPI_PROBE_OP_DONE(c) ((void)0)
#define XPI_PROBE_REGISTER(x, base, bytes, rights) ((void)0)
#define XPI_PROBE_CONNECT(ep, peer, pid) ((void)0)
#define XPI_PROBE_LOST(ep, peer, status, why) ((void)0)

#endif

#endif
