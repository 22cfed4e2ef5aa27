/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conn_impl.h - one handshake, between conn.c (its steps), prove.c (those before the HELLO, where there is a key), conn_io.c (its bytes),
 * connect.c (how a client's begins) and listener.c (how a server's begins and where it leads).
 *
 * All functions that can fail describe why in x->err, whoever that is for in the end.
 */
#ifndef XPI_CORE_CONN_IMPL_H
#define XPI_CORE_CONN_IMPL_H

#include "core/addr.h"
#include "core/conn.h"
#include "core/ep.h"
#include "core/hello.h"

enum xpi_conn_step {
	XPI_CONN_TCP,     /* client: until the socket is connected */
	XPI_CONN_START,   /* with a key: until the peer's START is here */
	XPI_CONN_PROOF,   /* with a key: until the peer's PROOF is here */
	XPI_CONN_HELLO,   /* until the peer's HELLO is here */
	XPI_CONN_NATIVE,  /* ep_connect is under way */
	XPI_CONN_READY,   /* until both READY have passed */
	XPI_CONN_REFUSING /* server: until the refusal has left */
};

/* What a blocking xport_connect waits for, on its stack. */
struct xpi_conn_wait {
	bool established, failed;
	struct xport_error err;
};

struct xpi_conn {
	struct xpi_list link; /* in x->conns, oldest first */
	struct xport *x;
	struct xport_ep *ep;             /* server: NULL until the HELLO was found good */
	struct xport_listener *listener; /* NULL: client */
	enum xpi_conn_step step;
	bool dead;       /* to be freed by xpi_conn_progress */
	bool hello_sent; /* so the peer knows what an 'F' is */
	bool hello_sealed;
	bool tell; /* the peer is to be told why it is refused, although it was not sent a HELLO */
	bool peer_ready;
	bool rang; /* when the step began */
	int fd;
	struct xpi_watch watch;
	int64_t began_ms, deadline_ms, native_ms;
	char remote[64]; /* for people */
	/* client only */
	struct xpi_addrs addrs;
	int naddr; /* addresses tried */
	int64_t addr_deadline_ms;
	int tcp_errno;              /* of the most telling failure */
	struct xpi_conn_wait *wait; /* NULL: asynchronous */
	struct xpi_session *session; /* NULL: there is no key */
	/* bytes; a word is START or PROOF, and goes before anything else */
	size_t out_len, out_done, in_len, word_len, word_done;
	struct xpi_hello peer;
	uint8_t word[XPI_START_LEN];
	uint8_t out[XPI_HELLO_MAX + 2 * XPI_SEAL_LEN + 8];
	uint8_t in[XPI_HELLO_MAX + XPI_SEAL_LEN];
};

/* Waiting for xport_accept. */
struct xpi_ready {
	struct xpi_list link;
	struct xport_listener *listener;
	struct xport_ep *ep;
	struct xpi_op *room; /* for XPORT_EVENT_INCOMING */
};

struct xport_listener {
	struct xpi_list link; /* in x->listeners */
	struct xport *x;
	int fd;
	struct xpi_watch watch;
	char name[64];
	void *context;
	uint8_t *private_data;
	uint16_t private_len;
	int backlog, nready;
	struct xpi_list ready;
	bool full;   /* stopped accepting until a handshake ends */
	bool closed; /* while threads wait in xport_accept; the last frees it */
	unsigned waiters;
	int64_t log_ms; /* strangers must not fill the log: lines since then */
	unsigned log_lines;
};

/* What to do where a peer off this host is not authenticated. */
extern const char xpi_auth_hint[];

/* A handshake in x->conns, without a socket.  NULL: out of memory. */
struct xpi_conn *xpi_conn_new(struct xport *x);
/* xpi_addr_resolve, which may take long, without the lock: others go on meanwhile. */
int xpi_conn_resolve(struct xport *x, const char *address, bool to_listen, struct xpi_addrs *addrs);
/* Ends it without a word: socket closed, ep->conn NULL; freed now, or by xpi_conn_progress if that is running. */
void xpi_conn_discard(struct xpi_conn *conn);
/* Of one that is dead. */
void xpi_conn_free(struct xpi_conn *conn);
/* Ends it with `status` and x->err: tells the peer, the endpoint, and whoever waits. */
void xpi_conn_fail(struct xpi_conn *conn, int status);
/* Watches `fd` with `w`, for the first time or again. */
int xpi_conn_watch_fd(struct xport *x, struct xpi_watch *w, int fd, uint32_t events, int64_t deadline_ms);
/* Begins to watch conn->fd for what the step needs.  On failure the caller fails the handshake. */
int xpi_conn_watch(struct xpi_conn *conn);
/* Our HELLO, but for what belongs to an endpoint. */
void xpi_conn_identity(struct xport *x, struct xpi_hello *h);
/* Encodes our HELLO into conn->out; ep NULL: a refusal, with `verdict` and its sentence. */
int xpi_conn_hello(struct xpi_conn *conn, const void *private_data, size_t private_len, int verdict, const char *text);
/* No time is left: XPORT_ERR_TIMEOUT, and how far it came. */
int xpi_conn_timeout(struct xpi_conn *conn);
/* Fills the addresses of both ends into the endpoint. */
void xpi_conn_names(struct xpi_conn *conn);
/* The peer's HELLO and everything after it: endpoint, address; conn->step becomes NATIVE. */
int xpi_conn_take_peer(struct xpi_conn *conn);
/* A status from the peer, as one of those that xport_connect may return. */
int xpi_conn_peer_status(int32_t status);
int xpi_conn_attr_check(struct xport *x, const struct xport_conn_attr *attr);

/* Sends what may be said by now.  1: all of it is; 0: the socket is full. */
int xpi_conn_flush(struct xpi_conn *conn);

/* Reads until conn->in holds `want` bytes and never one more: what follows belongs to others.  1: they are there. */
int xpi_conn_fill(struct xpi_conn *conn, size_t want);
/* The peer's 'F', of which one byte is there, as a failure of ours.  0: not yet whole. */
int xpi_conn_read_failed(struct xpi_conn *conn);

/* prove.c: with a key, the step after TCP: sends the client's START, or awaits it. */
int xpi_prove_begin(struct xpi_conn *conn);
/* prove.c: a step of it.  1: there may be more to do at once, 0: wait. */
int xpi_prove_step(struct xpi_conn *conn);
/* prove.c: whether the first 8 bytes of a peer begin a START, for which this side has no key; then reads the rest of it
 * and refuses. */
bool xpi_prove_meant(const struct xpi_conn *conn);
int xpi_prove_refuse(struct xpi_conn *conn);
/* prove.c: whether the peer has proved that it knows the key. */
static inline bool xpi_prove_done(const struct xpi_conn *conn)
{
	return conn->session != NULL && conn->step >= XPI_CONN_HELLO;
}

/* connect.c: begins, or goes on, to connect the socket, and tries the next address where one failed.  1: connected. */
int xpi_conn_tcp(struct xpi_conn *conn);
/* connect.c: the server's HELLO is in conn->peer. */
int xpi_connect_hello(struct xpi_conn *conn);

/* listener.c */
/* Takes what has come in; returns how many handshakes began. */
int xpi_listener_progress(struct xport_listener *listener);
/* The client's HELLO is in conn->peer: makes the endpoint, or refuses.  Not OK: nothing was sent. */
int xpi_listener_hello(struct xpi_conn *conn);
/* Room for the endpoint among those ready; NULL: out of memory. */
struct xpi_ready *xpi_listener_room(struct xport *x);
void xpi_listener_unroom(struct xport *x, struct xpi_ready *ready);
void xpi_listener_ready(struct xport_listener *listener, struct xpi_ready *ready, struct xport_ep *ep);
/* A handshake failed: one line, not too many a second. */
void xpi_listener_log(struct xport_listener *listener, const char *remote, const char *text);

#endif
