/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * usdt.h - static trace points (doc/tracing.md), with <sys/sdt.h>, if configured with --enable-usdt.
 *
 * A trace point is a nop in the code, and a note in the file with its address and the location of its arguments.
 * Arguments must already be available: whatever a probe needs computed is computed on every call, traced or not.
 */
#ifndef XPI_CORE_OBJECT_USDT_H
#define XPI_CORE_OBJECT_USDT_H

#ifdef XPI_USDT

#include <sys/sdt.h>

/* An operation is accepted: endpoint (NULL: a receive from any), enum xport_type, bytes, the operation's context. */
#define XPI_PROBE_OP_POSTED(ep, type, bytes, context) DTRACE_PROBE4(xport, op_posted, ep, type, bytes, context)
/* A completion or event goes to the application. */
#define XPI_PROBE_OP_DONE(c) DTRACE_PROBE5(xport, op_done, (c)->ep, (c)->type, (c)->status, (c)->length, (c)->context)
/* A region is registered. */
#define XPI_PROBE_REGISTER(x, base, bytes, rights) DTRACE_PROBE4(xport, register, x, base, bytes, rights)
/* An endpoint is open: the peer's "host:port" and process. */
#define XPI_PROBE_CONNECT(ep, peer, pid) DTRACE_PROBE3(xport, connect, ep, peer, pid)
/* An endpoint is lost: the peer, the status, why. */
#define XPI_PROBE_LOST(ep, peer, status, why) DTRACE_PROBE4(xport, lost, ep, peer, status, why)

#else

#define XPI_PROBE_OP_POSTED(ep, type, bytes, context) ((void)0)
#define XPI_PROBE_OP_DONE(c) ((void)0)
#define XPI_PROBE_REGISTER(x, base, bytes, rights) ((void)0)
#define XPI_PROBE_CONNECT(ep, peer, pid) ((void)0)
#define XPI_PROBE_LOST(ep, peer, status, why) ((void)0)

#endif

#endif
