/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * handshake.h - one handshake, between handshake.c (its steps), auth_exchange.c (those before the HELLO, where there is a key), conn_io.c (its bytes),
 * connect.c (how a client's begins) and listener.c (how a server's begins and where it leads).
 *
 * All functions that can fail describe why in x->err.
 */
#ifndef XPI_CORE_CM_HANDSHAKE_H
#define XPI_CORE_CM_HANDSHAKE_H

#include "core/cm/addr.h"
#include "core/cm/agree.h"
#include "core/cm/cm.h"
#include "core/cm/lookup.h"
#include "core/object/ep.h"
#include "core/wire/hello.h"

enum xpi_conn_step {
	XPI_CONN_LOOKUP,  /* client: until the host name is looked up */
	XPI_CONN_TCP,     /* client: until the socket is connected */
	XPI_CONN_START,   /* with a key: until the peer's START is here */
	XPI_CONN_PROOF,   /* with a key: until the peer's PROOF is here */
	XPI_CONN_HELLO,   /* until the peer's HELLO is here */
	XPI_CONN_QUEUED,  /* server: its HELLO is good; until the backlog has a place */
	XPI_CONN_TAKE,    /* until the peer's word about the transport of this attempt is here */
	XPI_CONN_LEAVING, /* the transport did not connect: until its back end has let go of the endpoint */
	XPI_CONN_NATIVE,  /* ep_connect is under way */
	XPI_CONN_READY,   /* until both READY have passed */
	XPI_CONN_REFUSING /* server: until the refusal has left */
};

/* When the endpoint is to be marked with its traffic class. */
enum xpi_conn_mark {
	XPI_MARK_FIRST, /* before ep_connect */
	XPI_MARK_LAST,  /* after it: its stack could not earlier */
	XPI_MARK_DONE
};

/* What a blocking xport_connect waits for, on its stack. */
struct xpi_conn_wait {
	bool established, failed;
	struct xport_error err;
};

/* What differs between the two sides of a handshake.  Both return as a step does: 1 done, 0 wait, else a status. */
struct xpi_conn_role {
	int (*tcp)(struct xpi_conn *conn);   /* client: looks up the name, then connects the socket; NULL: server */
	int (*hello)(struct xpi_conn *conn); /* the peer's HELLO is in conn->peer */
};

struct xpi_conn {
	struct xpi_list link; /* in x->cm.conns, oldest first */
	struct xport *x;
	const struct xpi_conn_role *role;
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
	struct xpi_lookup *lookup; /* NULL: there is nothing to look up */
	struct xpi_addrs addrs;
	int naddr; /* addresses tried */
	int64_t addr_deadline_ms;
	int tcp_errno;               /* of the most telling failure */
	struct xpi_conn_wait *wait;  /* NULL: asynchronous */
	struct xpi_session *session; /* NULL: there is no key */
	/* the transport, see negotiate.h */
	struct xpi_agreement agreement;
	uint8_t traffic;              /* enum xport_traffic that this side asks for */
	enum xpi_conn_mark mark;      /* of this attempt */
	uint32_t forbidden;           /* candidates that this connection may not use, bits */
	uint8_t nsaid;                /* client: our offers, as our HELLO has said them */
	struct xpi_offer said[XPI_OFFERS_MAX];
	int at;                       /* server: the pair of this attempt */
	uint8_t attempt;              /* of this connection, from 0 */
	uint8_t mine, theirs;         /* offers of the attempt, ours and the peer's */
	bool pending;                 /* client: the server's next choice is to be taken */
	bool peer_known;              /* xpi_ep_set_peer was called */
	int status;                   /* of the last attempt that failed */
	unsigned stale;               /* words of earlier attempts */
	int64_t attempt_ms;           /* when to try the next pair */
	uint32_t tried_offers;        /* bits: ours that did not connect */
	char tried[256];              /* and why */
	char why[200];                /* of the last one */
	/* bytes; a word is START or PROOF, and goes before anything else */
	size_t out_len, out_done, in_len, word_len, word_done;
	struct xpi_hello peer;
	uint8_t word[XPI_START_LEN];
	uint8_t out[XPI_HELLO_MAX + XPI_WORD_HEAD + XPI_WORD_BODY_MAX + 4 * XPI_SEAL_LEN + 8];
	uint8_t in[XPI_HELLO_MAX + XPI_SEAL_LEN];
};

/* What to do where a peer off this host is not authenticated. */
extern const char xpi_auth_hint[];

/* A handshake in x->cm.conns, without a socket.  NULL: out of memory. */
struct xpi_conn *xpi_conn_new(struct xport *x, const struct xpi_conn_role *role);
/* xpi_addr_resolve for a listener, which may take long, without the lock: others go on meanwhile. */
int xpi_conn_resolve(struct xport *x, const char *address, struct xpi_addrs *addrs);
/* Takes the steps of all handshakes that are due.  True: one of them has to be taken again soon. */
bool xpi_conn_walk(struct xport *x);
/* Ends it without a word: socket closed, ep->conn NULL; freed now, or by xpi_conn_progress if that is running. */
void xpi_conn_discard(struct xpi_conn *conn);
/* Of one that is dead. */
void xpi_conn_free(struct xpi_conn *conn);
/* Ends it with `status` and x->err: tells the peer, the endpoint, and the call that waits. */
void xpi_conn_fail(struct xpi_conn *conn, int status);
/* Watches `fd` with `w`, for the first time or again. */
int xpi_conn_watch_fd(struct xport *x, struct xpi_watch *w, int fd, uint32_t events, int64_t deadline_ms);
/* Begins to watch conn->fd for what the step needs.  On failure the caller fails the handshake. */
int xpi_conn_watch(struct xpi_conn *conn);
/*
 * Our HELLO, but for what belongs to an endpoint. `tp`: the transport whose limits it has; NULL: any. `forbidden`: bits of the
 * candidates that the connection may not use.
 */
void xpi_conn_identity(struct xport *x, const struct xpi_transport *tp, uint32_t forbidden, struct xpi_hello *h);
/* Encodes our HELLO into conn->out; ep NULL: a refusal, with `verdict` and its sentence. */
int xpi_conn_hello(struct xpi_conn *conn, const void *private_data, size_t private_len, int verdict, const char *text);
/* The native address of conn->ep, of `*len` bytes at most; what the endpoint is prepared for from then on. */
int xpi_conn_address(struct xpi_conn *conn, uint8_t *buf, size_t *len);
/* No time is left: XPORT_ERR_TIMEOUT, and how far it came. */
int xpi_conn_timeout(struct xpi_conn *conn);
/* Fills the addresses of both ends into the endpoint. */
void xpi_conn_names(struct xpi_conn *conn);
/* The peer's HELLO and everything after it: endpoint, address; conn->step becomes NATIVE. */
int xpi_conn_take_peer(struct xpi_conn *conn);
/* A status from the peer, as one of those that xport_connect may return. */
int xpi_conn_peer_status(int32_t status);
/* Checks the options of xport_connect and xport_listen, and sets the candidates that they forbid. */
int xpi_conn_attr_check(struct xport *x, const struct xport_conn_attr *attr, uint32_t *forbidden);

/* traffic_class.c: the class that this side asks for. */
int xpi_conn_traffic_wish(const struct xport *x, const struct xport_conn_attr *attr);
/* traffic_class.c: marks a control channel, or a listening socket for those that it accepts. */
void xpi_conn_traffic_socket(const struct xport *x, int fd, int traffic_class);
/*
 * traffic_class.c: agrees on the class, and marks the endpoint with it, once for each attempt: before ep_connect, or after it if the
 * stack could not earlier. An error: XPORT_REQUIRE asks for what cannot be done.
 */
int xpi_conn_traffic_begin(struct xpi_conn *conn);
int xpi_conn_traffic_end(struct xpi_conn *conn);

/* Sends what may be said by now.  1: all of it is; 0: the socket is full. */
int xpi_conn_flush(struct xpi_conn *conn);

/* Adds a message behind what is to be sent, with its seal.  The HELLO was sealed. */
int xpi_conn_say(struct xpi_conn *conn, const void *bytes, size_t len);
/* Reads until conn->in holds `want` bytes and never one more: what follows belongs to others.  1: they are there. */
int xpi_conn_fill(struct xpi_conn *conn, size_t want);
/* Tells the peer why its handshake ends.  What does not fit into the socket now is not worth waiting for. */
void xpi_conn_send_failed(struct xpi_conn *conn, int status, const char *text);
/* Checks the seal behind `len` bytes of conn->in; XPORT_OK without a key. */
int xpi_conn_check_seal(struct xpi_conn *conn, enum xpi_seal_kind kind, size_t len);
/* The peer's 'F', of which one byte is there, as a failure of ours.  0: not yet whole. */
int xpi_conn_read_failed(struct xpi_conn *conn);

/* auth_exchange.c: with a key, the step after TCP: sends the client's START, or awaits it. */
int xpi_auth_exchange_begin(struct xpi_conn *conn);
/* auth_exchange.c: a step of it.  1: there may be more to do at once, 0: wait. */
int xpi_auth_exchange_step(struct xpi_conn *conn);
/* auth_exchange.c: whether the first 8 bytes of a peer begin a START, for which this side has no key; then reads the rest of it
 * and refuses. */
bool xpi_auth_exchange_meant(const struct xpi_conn *conn);
int xpi_auth_exchange_refuse(struct xpi_conn *conn);
/* auth_exchange.c: whether the peer has proved that it knows the key. */
static inline bool xpi_auth_exchange_done(const struct xpi_conn *conn)
{
	return conn->session != NULL && conn->step >= XPI_CONN_HELLO;
}

extern const struct xpi_conn_role xpi_conn_client; /* connect.c */
extern const struct xpi_conn_role xpi_conn_server; /* What a role's `hello` returns if the handshake has to wait. */
enum { XPI_CONN_LATER = 2 };

/* admit.c: whether one more handshake may begin; closes a stalled one for it if necessary. */
bool xpi_admit_room(struct xport *x);
/* admit.c: a handshake has begun. */
void xpi_admit(struct xpi_conn *conn);
/* admit.c: closes the oldest connection that has said nothing.  False: there is none. */
bool xpi_admit_drop_silent(struct xport *x);

/* connect.c: the part of xport_connect that does not wait.  On success the handshake is under way, and *ep is its endpoint. */
int xpi_connect_begin(struct xport *x, const char *address, const struct xport_conn_attr *attr, int timeout_ms,
                      int64_t deadline_ms, struct xport_ep **ep);
/* connect.c: takes back a handshake that the caller of xport_connect will never see.  Returns `status`. */
int xpi_connect_undo(struct xport *x, struct xport_ep *ep, int status);
/* Drops the endpoints that ended before they were accepted. */
void xpi_listener_drop_ended(struct xport_listener *l);
void xpi_listener_free(struct xport_listener *l);
/* Takes what has come in; returns how many handshakes began. */
int xpi_listener_progress(struct xport_listener *listener);

/* Takes over from the peer's HELLO what the protocol needs.  False: out of memory. */
bool xpi_ep_set_peer(struct xport_ep *ep, const struct xpi_hello *h);

/*
 * The handshake succeeded on both sides: the endpoint is OPEN and takes over the socket (liveness starts).  With
 * ep->announce XPORT_EVENT_CONNECTED is queued.  On failure the endpoint is unchanged, and the caller fails it.
 */
int xpi_ep_established(struct xport_ep *ep, int fd, bool same_host, const struct xpi_hello *peer);

#endif
