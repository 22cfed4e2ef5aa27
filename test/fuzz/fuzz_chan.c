/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_chan.c - bytes from the TCP connection of an endpoint, cut at any place: the handshake of either side, with and
 * without a key, and then the frames of the control channel. The library has one end of a socket pair. The input plays
 * the peer at the other end; it can also send what a correct peer would send.
 */
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/auth/auth.h"
#include "core/cm/handshake.h"
#include "core/liveness/monitor.h"
#include "core/liveness/monitor_impl.h"
#include "core/object/accept_queue.h"
#include "core/object/ep.h"
#include "core/object/set.h"
#include "core/wire/hello.h"
#include "fuzz/fuzz.h"
#include "fuzz/ledger.h"

enum { STEPS_MAX = 64, SAID_MAX = 1 << 16, BEAT = 1, BYE = 2, GONE = 3 };

static int descriptor_now(void)
{
	int fd = dup(STDERR_FILENO);

	FUZZ_CHECK(fd >= 0);
	close(fd);
	return fd;
}

static void drop(void *arg, int level, const char *id, const char *line)
{
	(void)arg;
	(void)level;
	(void)id;
	/* Nothing that a peer says may steer a terminal. */
	for (; *line != '\0'; line++)
		FUZZ_CHECK((unsigned char)*line >= 0x20 && *line != 0x7f);
}

/* ---- the instances, one with a key and one without, and their peers ---- */

struct side {
	struct xport *x, *peer;
	struct xport_listener *listener;
	uint8_t address[XPI_ADDRESS_MAX];
	size_t address_len;
};

/* The ones without a key have several transports, and all of them open. */
static struct xport *open_one(bool several)
{
	struct xport_attr attr = {.size = sizeof(attr),
	                          .backend = several ? "loop:message+loop:native" : "loop:message",
	                          .log_fn = drop,
	                          .log_level = 4};
	struct xport *x;

	setenv("XPORT_LIVENESS", "poll", 1);
	FUZZ_CHECK(xport_open(&attr, &x) == XPORT_OK);
	unsetenv("XPORT_LIVENESS");
	FUZZ_CHECK(!several || xpi_transport_get(x, 1) != NULL);
	return x;
}

static void give_key(char *path)
{
	int fd = mkstemp(path);

	FUZZ_CHECK(fd >= 0);
	FUZZ_CHECK(write(fd, "the key of the fuzz targets\n", 28) == 28);
	close(fd);
	setenv("XPORT_AUTH_KEY_FILE", path, 1);
}

static struct side *side(bool keyed)
{
	static struct side sides[2];
	char path[] = "/tmp/fuzz-chan-XXXXXX";
	struct side *s = &sides[keyed];
	struct xport_ep *ep;

	if (s->x != NULL)
		return s;
	if (keyed)
		give_key(path);
	s->x = open_one(!keyed);
	s->peer = open_one(!keyed);
	if (keyed)
		unlink(path);
	unsetenv("XPORT_AUTH_KEY_FILE");
	FUZZ_CHECK(xport_listen(s->x, "127.0.0.1:0", NULL, &s->listener) == XPORT_OK);
	ep = xpi_ep_new(s->peer, s->peer->tp, NULL);
	s->address_len = sizeof(s->address);
	FUZZ_CHECK(ep != NULL && s->peer->tp->ops->address(s->peer->tp->be, xpi_ep_be(ep), (struct xpi_core_ep *)ep,
	                                                   s->address, &s->address_len) == XPORT_OK);
	ep->prepared = true;
	xport_ep_destroy(ep);
	(void)!xport_poll(s->peer, NULL, 0);
	return s;
}

/* ---- the peer ---- */

struct peer {
	struct side *side;
	struct xpi_session *session; /* NULL: no key */
	bool client, derived, noted;
	int fd;
	uint8_t heard[SAID_MAX];
	size_t nheard, at; /* what of it was looked at */
};

static void hear(struct peer *p)
{
	ssize_t n;

	while (p->nheard < sizeof(p->heard) &&
	       (n = recv(p->fd, p->heard + p->nheard, sizeof(p->heard) - p->nheard, MSG_DONTWAIT)) > 0)
		p->nheard += (size_t)n;
}

/* Lets the library take its steps. */
static void progress(struct side *s)
{
	struct xport_completion c[8];

	for (int i = 0; i < 2; i++) {
		xpi_live_step(s->x->live);
		FUZZ_CHECK(xport_poll(s->x, c, 8) >= 0);
	}
}

/* In pieces of `cut` bytes, each looked at before the next comes; 0: in one. */
static void say(struct peer *p, const void *bytes, size_t len, size_t cut)
{
	const uint8_t *b = bytes;

	while (len > 0) {
		size_t n = cut > 0 && cut < len ? cut : len;

		(void)!send(p->fd, b, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		progress(p->side);
		b += n;
		len -= n;
	}
}

static void say_start(struct peer *p, size_t cut)
{
	if (p->session != NULL)
		say(p, xpi_session_start(p->session), XPI_START_LEN, cut);
}

static void say_proof(struct peer *p, size_t cut)
{
	uint8_t proof[XPI_PROOF_LEN];

	hear(p);
	if (p->session == NULL || p->derived || p->nheard < XPI_START_LEN)
		return;
	xpi_session_derive(p->session, p->side->peer->settings.secret, p->heard);
	p->derived = true;
	p->at = XPI_START_LEN;
	xpi_session_prove(p->session, proof);
	say(p, proof, sizeof(proof), cut);
}

/* The library's HELLO is a part of what later seals cover. */
static void note_hello(struct peer *p)
{
	size_t length;

	hear(p);
	if (!p->derived || p->noted || p->nheard < p->at + XPI_PROOF_LEN + 8)
		return;
	length = xpi_hello_length(p->heard + p->at + XPI_PROOF_LEN);
	if (length == 0 || p->nheard < p->at + XPI_PROOF_LEN + length + XPI_SEAL_LEN)
		return;
	xpi_session_open(p->session, XPI_SEAL_HANDSHAKE, p->heard + p->at + XPI_PROOF_LEN, length,
	                 p->heard + p->at + XPI_PROOF_LEN + length);
	xpi_session_note(p->session, p->heard + p->at + XPI_PROOF_LEN, length);
	p->noted = true;
}

/* With limits, verdict, private data and address of the input's where it says so. */
static void say_hello(struct peer *p, struct fuzz_in *in, size_t cut)
{
	static struct xpi_hello h;
	static uint8_t buf[XPI_HELLO_MAX + XPI_SEAL_LEN];
	unsigned how = fuzz_u8(in);
	size_t len;
	uint8_t *block;

	if (!p->client)
		note_hello(p);
	xpi_conn_identity(p->side->peer, p->side->peer->tp, 0, &h);
	h.theirs = 0; /* as a server says */
	h.pid = (how & 1) != 0 ? (int64_t)fuzz_u16(in) : 0;
	h.ep_id = 65536;
	if ((how & 2) != 0)
		h.frame_max = (uint32_t)fuzz_le(in, 4), h.credits = fuzz_u16(in), h.window = (uint32_t)fuzz_le(in, 4);
	if ((how & 4) != 0)
		h.requests = fuzz_u16(in), h.peer_timeout_ms = (uint32_t)fuzz_le(in, 4);
	if ((how & 8) != 0)
		h.verdict = -(int32_t)fuzz_u8(in);
	if ((how & 16) != 0)
		h.backend[0] = 'x';
	h.private_len = (how & 32) != 0 ? 100 : 0;
	h.address_len = (uint16_t)p->side->address_len;
	memcpy(h.address, p->side->address, p->side->address_len);
	if ((how & 64) != 0) {
		block = fuzz_block(in, fuzz_u8(in), &len);
		memcpy(h.address, block, len);
		h.address_len = (uint16_t)len;
		free(block);
	}
	len = xpi_hello_encode(&h, buf, XPI_HELLO_MAX);
	if (p->derived) {
		xpi_session_seal(p->session, XPI_SEAL_HANDSHAKE, buf, len, buf + len);
		xpi_session_note(p->session, buf, len);
		len += XPI_SEAL_LEN;
	}
	say(p, buf, len, cut);
}

static void say_sealed(struct peer *p, enum xpi_seal_kind kind, const uint8_t *bytes, size_t len, size_t cut)
{
	uint8_t buf[512];

	FUZZ_CHECK(len + XPI_SEAL_LEN <= sizeof(buf));
	memcpy(buf, bytes, len);
	if (p->derived) {
		xpi_session_seal(p->session, kind, buf, len, buf + len);
		len += XPI_SEAL_LEN;
	}
	say(p, buf, len, cut);
}

static void say_failed(struct peer *p, struct fuzz_in *in, size_t cut)
{
	uint8_t buf[512] = {'F', 0xff, 0xff, 0xff, fuzz_u8(in)};
	size_t len, said = fuzz_u8(in) + (fuzz_u8(in) & 3u);
	uint8_t *block = fuzz_block(in, said, &len);

	buf[5] = (uint8_t)(said >> 8);
	buf[6] = (uint8_t)said;
	memcpy(buf + 7, block, len);
	free(block);
	say_sealed(p, XPI_SEAL_LATER, buf, 7 + said, cut);
}

/* A word about the transport, with the attempt and the places that the input says. */
static void say_word(struct peer *p, struct fuzz_in *in, size_t cut)
{
	static struct xpi_word w;
	uint8_t buf[256];
	unsigned how = fuzz_u8(in);
	size_t len;

	memset(&w, 0, sizeof(w));
	w.kind = (how & 1) != 0 ? 'T' : 'N';
	w.attempt = how >> 1 & 3;
	w.offer = how >> 3 & 1;
	w.theirs = how >> 4 & 1;
	w.frame_max = 8192;
	w.credits = 64;
	w.address_len = (uint16_t)((how & 32) != 0 ? p->side->address_len : 3);
	FUZZ_CHECK(p->side->address_len <= 64);
	memcpy(w.address, p->side->address, p->side->address_len);
	w.status = -(int32_t)(how >> 6);
	strcpy(w.text, "the cable is cut");
	len = xpi_word_encode(&w, buf, sizeof(buf));
	FUZZ_CHECK(len > 0);
	note_hello(p);
	say_sealed(p, XPI_SEAL_HANDSHAKE, buf, len, cut);
}

static void peer_step(struct peer *p, struct fuzz_in *in)
{
	unsigned head = fuzz_u8(in);
	size_t cut = head >> 4, len;
	uint8_t *block, frame[XPI_CHAN_FRAME] = {0};

	switch (head % 16 % 9) {
	case 1:
		say_start(p, cut);
		break;
	case 2:
		say_proof(p, cut);
		break;
	case 3:
		say_hello(p, in, cut);
		break;
	case 4:
		note_hello(p);
		say_sealed(p, XPI_SEAL_HANDSHAKE, (const uint8_t *)"R", 1, cut);
		break;
	case 5:
		say_failed(p, in, cut);
		break;
	case 6:
		frame[0] = fuzz_u8(in) & 3;
		for (size_t i = 1; frame[0] == BEAT && i < sizeof(frame); i++)
			frame[i] = fuzz_u8(in) & 7;
		say_sealed(p, XPI_SEAL_LATER, frame, sizeof(frame), cut);
		break;
	case 7:
		shutdown(p->fd, SHUT_WR);
		progress(p->side);
		break;
	case 8:
		say_word(p, in, cut);
		break;
	default:
		block = fuzz_block(in, fuzz_u8(in), &len);
		say(p, block, len, cut);
		free(block);
	}
}

/* ---- handshakes ---- */

static void begin_server(struct side *s, struct xpi_conn *conn)
{
	conn->listener = s->listener;
	conn->step = s->x->settings.secret != NULL ? XPI_CONN_START : XPI_CONN_HELLO;
}

static void begin_client(struct side *s, struct xpi_conn *conn)
{
	conn->ep = xpi_ep_new(s->x, xpi_several(s->x) ? NULL : s->x->tp, NULL);
	FUZZ_CHECK(conn->ep != NULL);
	conn->ep->conn = conn;
	conn->ep->announce = true;
	conn->step = XPI_CONN_HELLO;
	FUZZ_CHECK(xpi_conn_hello(conn, "private", 7, XPORT_OK, NULL) == XPORT_OK);
	if (s->x->settings.secret != NULL)
		FUZZ_CHECK(xpi_auth_exchange_begin(conn) == 1);
}

static void end_all(struct side *s)
{
	struct xport *x = s->x;
	struct xport_ep *ep;

	xpi_list_for_safe(l, &x->cm.conns)
		xpi_conn_discard(xpi_container(l, struct xpi_conn, link));
	while (xport_accept(s->listener, 0, &ep) == XPORT_OK)
		;
	xpi_list_for_safe(l, &x->eps)
		xport_ep_destroy(xpi_container(l, struct xport_ep, link));
	for (int i = 0; i < 6; i++)
		progress(s);
	FUZZ_CHECK(xpi_list_empty(&x->eps) && xpi_list_empty(&x->cm.conns) && s->listener->nready == 0);
	FUZZ_CHECK(ledger_in_use(&x->op_pool) == 0);
}

static void handshake(struct fuzz_in *in, bool server, bool keyed, bool peer_keyed)
{
	static struct peer p;
	struct side *s = side(keyed);
	struct xpi_conn *conn;
	int fds[2], before = descriptor_now();

	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	memset(&p, 0, sizeof(p));
	p = (struct peer){.side = s, .client = server, .fd = fds[1]};
	if (keyed && peer_keyed)
		p.session = xpi_session_new(server);
	conn = xpi_conn_new(s->x, server ? &xpi_conn_server : &xpi_conn_client);
	FUZZ_CHECK(conn != NULL);
	conn->fd = fds[0];
	conn->deadline_ms = conn->began_ms + 60000;
	snprintf(conn->remote, sizeof(conn->remote), "127.0.0.1:1");
	if (server)
		begin_server(s, conn);
	else
		begin_client(s, conn);
	FUZZ_CHECK(xpi_conn_watch(conn) == XPORT_OK);
	progress(s);
	for (int i = 0; in->left > 0 && i < STEPS_MAX; i++)
		peer_step(&p, in);
	close(fds[1]);
	progress(s);
	xpi_session_free(p.session);
	end_all(s);
	FUZZ_CHECK(descriptor_now() == before);
}

/* ---- the control channel alone, beside what it should find ---- */

struct model {
	uint8_t in[XPI_CHAN_FRAME];
	unsigned len, found;
};

static unsigned any(const uint8_t *b, size_t len)
{
	unsigned bits = 0;

	while (len-- > 0)
		bits |= *b++;
	return bits;
}

static bool model_damaged(const uint8_t *f)
{
	return (f[0] != BEAT && f[0] != BYE) || (f[0] == BEAT && f[7] > 1) || (f[0] == BYE && any(f + 4, 4) != 0);
}

static void model_takes(struct model *m, const uint8_t *b, size_t len)
{
	for (size_t i = 0; i < len && (m->found & XPI_CHAN_LOST) == 0; i++) {
		if (m->len == 0 && b[i] == XPI_HANDSHAKE_FAILED) {
			m->found |= XPI_CHAN_LOST;
			continue;
		}
		m->in[m->len++] = b[i];
		if (m->len < sizeof(m->in))
			continue;
		m->len = 0;
		if (model_damaged(m->in))
			m->found |= XPI_CHAN_LOST; /* or aborted, which is the same here */
		else if (m->in[0] == BYE)
			m->found |= XPI_CHAN_BYE;
	}
}

static void channel(struct fuzz_in *in)
{
	struct xport_error err = {.size = sizeof(err)};
	atomic_uint attention = 0;
	int fds[2], wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct xpi_live *live;
	struct xpi_chan c = {.pidfd = -1, .timeout_ms = 60000, .beat_ms = 15000};
	struct model m = {.len = 0};

	FUZZ_CHECK(xpi_live_get(false, &live, &err) == XPORT_OK);
	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	c.fd = fds[0];
	c.wake_flag = (struct xpi_wake_flag){.attention = &attention, .wake_fd = wake};
	FUZZ_CHECK(xpi_chan_start(live, &c, 0, 0) == XPORT_OK);
	while (in->left > 0) {
		size_t len, want = fuzz_u8(in);
		uint8_t *block = fuzz_block(in, want, &len);

		(void)!send(fds[1], block, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		model_takes(&m, block, len);
		free(block);
		xpi_live_step(live);
		FUZZ_CHECK(atomic_load(&c.found) == m.found);
		FUZZ_CHECK(attention == (m.found != 0));
	}
	close(fds[1]);
	xpi_live_step(live);
	FUZZ_CHECK(atomic_load(&c.found) == (m.found != 0 ? m.found : XPI_CHAN_LOST));
	xpi_chan_bye(live, &c, 0);
	xpi_chan_stop(live, &c);
	xpi_live_put(live);
	close(wake);
}

/* The first byte: below 8 the channel; else bit 1: the library is the server, 2: it has a key, 4: so has the peer. */
int FUZZ_ENTRY(chan)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	unsigned what = fuzz_u8(&in) % 16;

	if (what < 8)
		channel(&in);
	else
		handshake(&in, (what & 1) != 0, (what & 2) != 0 && xpi_auth_built(), (what & 4) != 0);
	return 0;
}
