/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_auth.c - P7, a peer without the key of XPORT_AUTH_KEY_FILE cannot connect, and learns nothing else. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cases_auth.h"

const char auth_key[] = "0123456789abcdef0123456789abcdef\n";
static const char key_b[] = "0123456789abcdef0123456789abcdeF\n";

/* ---- opening ---- */

static void need_keys(struct h *h)
{
	struct xport_error e = {.size = sizeof(e)};
	struct xport_attr a = h_attr(h);
	xport *x = NULL;
	int s;

	setenv("XPORT_AUTH_KEY_FILE", "/nonexistent", 1);
	s = xport_open(&a, &x);
	unsetenv("XPORT_AUTH_KEY_FILE");
	if (s == XPORT_ERR_NOT_SUPPORTED)
		h_skip(h, "authentication by a key is absent from this build (libsodium)");
	H_EQ(XPORT_ERR_CONFIG, s);
}

static void write_file(struct h *h, char *path, const char *bytes, mode_t mode)
{
	int fd = mkstemp(path);

	H_CHECK(fd >= 0, "%s: %s", path, strerror(errno));
	H_TRUE(write(fd, bytes, strlen(bytes)) == (ssize_t)strlen(bytes) && fchmod(fd, mode) == 0);
	close(fd);
}

/* One role after the other, since roles may be threads of one process, which has one environment.  NULL: no key. */
void auth_open(struct h *h, const char *key, const struct xport_attr *attr)
{
	char path[] = "/tmp/xport-key.XXXXXX";

	for (int turn = 0; turn < h->nroles; turn++) {
		if (turn == h->role) {
			need_keys(h);
			if (key != NULL) {
				write_file(h, path, key, 0600);
				setenv("XPORT_AUTH_KEY_FILE", path, 1);
			}
			h_open(h, attr);
			unsetenv("XPORT_AUTH_KEY_FILE");
			unlink(path); /* it is read once */
		}
		h_sync(h);
	}
}

/* Messages, puts, gets both ways, over each of several connections. */
static void good_key(struct h *h)
{
	struct h_mem m, l;
	struct h_rkey r;
	uint64_t a = 77, b = 0;
	struct h_op *op;
	int other = !h->role;

	auth_open(h, auth_key, NULL);
	h_pair(h, other);
	m = h_mem_target(h, 100000, 0, H_ALL);
	l = h_mem_local(h, 100000, 0);
	h_share(h, other, &m);
	r = h_import(h, other);
	h_fill(l.p, 100000, (uint64_t)h->role);
	H_DONE(h_put(h, h->ep[other], H_AT(l, 0, 100000), &r, 0, 0));
	h_sync(h);
	H_FILLED(m.p, 100000, (uint64_t)other);
	op = h_recv(h, h->ep[other], &b, 8, 1, UINT64_MAX);
	H_DONE(h_send(h, h->ep[other], &a, 8, 1));
	H_DONE(op);
	H_EQ(77, b);
	h_sync(h);
	xport_rkey_destroy(r.k);
	h_mem_free(h, &m);
	h_mem_free(h, &l);
}

/* With a key there is no need to say anything else where other hosts can reach. */
static void any_address(struct h *h)
{
	xport_listener *l = NULL;
	xport_ep *ep = NULL;

	auth_open(h, auth_key, NULL);
	H_OK(xport_listen(h->x, "*:0", NULL, &l));
	xport_listener_close(l);
	H_OK(xport_listen(h->x, "0.0.0.0:0", NULL, &l));
	xport_listener_close(l);
	/* It is tried at least; nobody answers there. */
	H_STATUS(XPORT_ERR_UNREACHABLE, xport_connect(h->x, "255.255.255.255:80", NULL, h_ms(1000), &ep));
}

/* ---- not the same key ---- */

enum { NO_KEY_HERE = 1, NO_KEY_THERE = 2, OTHER_KEY = 3 };

static void server_of_refused(struct h *h)
{
	xport_ep *ep = NULL;

	auth_open(h, h->param == NO_KEY_THERE ? NULL : auth_key, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	while (!h_heard(h, 1))
		H_STATUS(XPORT_ERR_TIMEOUT, xport_accept(h->listener, 20, &ep));
	h_hear_u64(h, 1);
	H_EQ(0, h->nqueue);
	H_TRUE(ep == NULL);
	H_CHECK(h_count_log(h, h->param == OTHER_KEY ? "different keys" : "the other has none") > 0,
	        "the server says nothing of it");
}

static void refused_client(struct h *h)
{
	const char *says = h->param == OTHER_KEY ? "different keys" : "the other has none";
	struct xport_conn_attr a = {.size = sizeof(a), .private_data = "secret", .private_len = 6};
	struct xport_error e = {.size = sizeof(e)};
	char address[80];
	xport_ep *ep = NULL;

	auth_open(h, h->param == NO_KEY_HERE ? NULL : h->param == NO_KEY_THERE ? auth_key : key_b, NULL);
	h_hear(h, 0, address, sizeof(address));
	for (int i = 0; i < 20; i++) {
		H_STATUS(XPORT_ERR_AUTH, xport_connect(h->x, address, &a, h_ms(5000), &ep));
		H_OK(xport_last_error(h->x, &e));
		H_CHECK(strstr(e.text, says) && strstr(e.text, "XPORT_AUTH_KEY_FILE") && e.hint[0], "%s / %s", e.text,
		        e.hint);
		H_TRUE(!strcmp(e.peer, address) && !ep);
	}
	/* Without waiting it is an event. */
	H_OK(xport_connect(h->x, address, &a, 0, &ep));
	H_EQ(XPORT_ERR_AUTH, H_EVENT(XPORT_EVENT_LOST).status);
	xport_ep_destroy(ep);
	h_tell_u64(h, 0, 1);
}

static const struct h_param mismatches[] = {
	{"none_here", NO_KEY_HERE}, {"none_there", NO_KEY_THERE}, {"another", OTHER_KEY}, {NULL, 0}};

/* ---- key files ---- */

static void bad_file(struct h *h, const char *path, const char *says, const char *hint)
{
	struct xport_error e = {.size = sizeof(e)};
	struct xport_attr a = h_attr(h);
	int64_t t = h_now_us();
	xport *x = NULL;

	setenv("XPORT_AUTH_KEY_FILE", path, 1);
	H_STATUS(XPORT_ERR_CONFIG, xport_open(&a, &x));
	unsetenv("XPORT_AUTH_KEY_FILE");
	H_TRUE(x == NULL && h_now_us() - t < (int64_t)h_ms(1000) * 1000);
	H_OK(xport_last_error(NULL, &e));
	H_CHECK(strstr(e.text, says) && strstr(e.text, path) && strstr(e.hint, hint), "'%s' '%s'", e.text, e.hint);
}

static void bad_files(struct h *h)
{
	char path[] = "/tmp/xport-key.XXXXXX", fifo[] = "/tmp/xport-key.XXXXXX";

	need_keys(h);
	bad_file(h, "/nonexistent/key", "No such file", "");
	write_file(h, path, auth_key, 0644);
	bad_file(h, path, "0644", "chmod 600");
	H_TRUE(chmod(path, 0660) == 0);
	bad_file(h, path, "0660", "chmod 600");
	H_TRUE(chmod(path, 0600) == 0 && truncate(path, 15) == 0);
	bad_file(h, path, "fewer than 16", "umask 077");
	H_TRUE(truncate(path, 4098) == 0);
	bad_file(h, path, "more than 4096", "umask 077");
	unlink(path);
	bad_file(h, "/tmp", "a directory", "regular file");
	close(mkstemp(fifo));
	unlink(fifo);
	H_TRUE(mkfifo(fifo, 0600) == 0);
	bad_file(h, fifo, "a named pipe", "regular file");
	unlink(fifo);
}

/* ---- life ---- */

/* The sealed control channel: quiet for long, no loss; stopped, a loss in time; another connection at once. */
static void stays(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_completion c;
	int other = !h->role;

	h_expect_log(h, "");
	a.peer_timeout_ms = h_ms(400);
	auth_open(h, auth_key, &a);
	h_pair(h, other);
	h_run_for(h, 3 * h_ms(400));
	H_TRUE(!h_event_now(h, XPORT_EVENT_LOST, &c));
	h_sync(h);
	if (h->role == 0) {
		int64_t t = h_now_us();

		h_stop(h, 1);
		h_lost_within(h, h->ep[1], t, h_ms(400) * 3 / 2 + h_ms(100));
		h_cont(h, 1);
	} else {
		H_EVENT(XPORT_EVENT_LOST);
	}
}

/* A goodbye is a goodbye with a key, too. */
static void leaves(struct h *h)
{
	int other = !h->role;

	auth_open(h, auth_key, NULL);
	h_pair(h, other);
	h_sync(h);
	if (h->role == 0)
		H_OK(xport_ep_close(h->ep[1], h_ms(h->limit_ms)));
	else
		H_EQ(XPORT_ERR_PEER_CLOSED, H_EVENT(XPORT_EVENT_CLOSED).status);
	h_sync(h);
}

/* ---- in between ---- */

/* A server for as long as role 1 wishes; counts those that it let in. */
static void serve(struct h *h)
{
	uint64_t got = 0, accepted = 0, least, most;
	xport_ep *ep;

	while (!h_heard(h, 1)) {
		struct xport_ep_info info = {.size = sizeof(info)};

		if (xport_accept(h->listener, 10, &ep) != XPORT_OK)
			continue;
		accepted++;
		for (struct h_op *op = h_recv(h, ep, &got, 8, 1, UINT64_MAX); !op->done;) {
			h_breathe(h);
			if (!op->done)
				continue;
			if (op->c.status == XPORT_OK)
				H_DONE(h_send(h, ep, &got, 8, 2));
		}
		while (xport_ep_query(ep, &info) == XPORT_OK && info.state == XPORT_EP_OPEN)
			h_breathe(h);
		xport_ep_destroy(ep);
		h->nqueue = 0;
	}
	least = h_hear_u64(h, 1);
	most = least >> 32;
	least &= UINT32_MAX;
	H_CHECK(accepted >= least && accepted <= most, "%" PRIu64 " were let in, not %" PRIu64 " to %" PRIu64, accepted,
	        least, most);
}

void auth_server(struct h *h)
{
	h_expect_log(h, "refused");
	auth_open(h, auth_key, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	serve(h);
}

/* Connects, sends a word, hears it, leaves; microseconds. */
int64_t auth_client(struct h *h, const char *address)
{
	uint64_t out = 41, in = 0;
	int64_t t = h_now_us();
	xport_ep *ep;

	ep = h_connect(h, address);
	H_DONE(h_send(h, ep, &out, 8, 1));
	H_DONE(h_recv(h, ep, &in, 8, 2, UINT64_MAX));
	t = h_now_us() - t;
	H_EQ(41, in);
	xport_ep_close(ep, h_ms(1000));
	xport_ep_destroy(ep);
	h->nqueue = 0;
	return t;
}

/* How many the server must have let in. */
void auth_count(struct h *h, uint64_t least, uint64_t most)
{
	h_tell_u64(h, 0, least | most << 32);
}

/* Each byte that passes, in either direction, changed by one bit: it does not end in a connection that stays. */
static void changed(struct h *h)
{
	char address[80];
	struct h_proxy p;
	long n, first;
	xport_ep *ep;

	h_expect_log(h, "");
	auth_open(h, auth_key, NULL);
	h_hear(h, 0, address, sizeof(address));
	h_proxy_start(h, &p, address);
	auth_client(h, p.address);
	/* START, PROOF, HELLO with its length, READY; heartbeats follow */
	first = START_LEN + PROOF_LEN;
	n = first + (p.keep[h->param][first + 4] << 8 | p.keep[h->param][first + 5]) + 16 + 17;
	H_CHECK(p.keep[h->param][first] == 'X' && p.kept[h->param] >= (size_t)n, "%zu bytes", p.kept[h->param]);
	atomic_store(&p.flip_direction, (int)h->param);
	for (long i = 0; i < n; i += i < first + 16 || i >= n - 40 ? 1 : 7) {
		atomic_store(&p.flip_mask, 1 << i % 8);
		atomic_store(&p.flip_at, i);
		ep = NULL;
		if (xport_connect(h->x, p.address, NULL, h_ms(300), &ep) == XPORT_OK) {
			/* Only its own READY was changed, of which the server tells by going away. */
			H_CHECK(h->param == 0 && i >= n - 17, "byte %ld of %ld was changed, and it connected", i, n);
			H_EVENT(XPORT_EVENT_LOST);
			xport_ep_destroy(ep);
		}
		h->nqueue = 0;
	}
	atomic_store(&p.flip_at, -1);
	auth_client(h, p.address);
	auth_client(h, address);
	h_proxy_stop(&p);
	/* The server has let its client in by the time that its own READY is changed. */
	auth_count(h, 3, h->param == 1 ? 3 + 17 : 3);
}

/* One bit of the seal of a heartbeat: that endpoint is lost, and the side that heard it says why. */
static void heartbeat_heard(struct h *h)
{
	struct xport_attr a = h_attr(h);

	h_expect_log(h, "");
	a.peer_timeout_ms = h_ms(2000);
	auth_open(h, auth_key, &a);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	h_accept(h);
	h_sync(h);
	H_EVENT(XPORT_EVENT_LOST);
	H_EQ(h->param == 0, h_count_log(h, "not authenticated with the key") > 0);
	h_sync(h);
}

static void heartbeat_changed(struct h *h)
{
	struct xport_attr a = h_attr(h);
	char address[80];
	struct h_proxy p;
	xport_ep *ep;

	h_expect_log(h, "");
	a.peer_timeout_ms = h_ms(2000);
	auth_open(h, auth_key, &a);
	h_hear(h, 0, address, sizeof(address));
	h_proxy_start(h, &p, address);
	ep = h_connect(h, p.address);
	h_run_for(h, h_ms(100)); /* the first ones have passed */
	h_sync(h);
	atomic_store(&p.flip_direction, (int)h->param);
	atomic_store(&p.flip_mask, 1);
	atomic_store(&p.flip_at, atomic_load(&p.passed[h->param]) + 12);
	H_TRUE(H_EVENT(XPORT_EVENT_LOST).ep == ep);
	H_EQ(h->param == 1, h_count_log(h, "not authenticated with the key") > 0);
	h_sync(h);
	h_proxy_stop(&p);
}

static const struct h_param directions[] = {{"request", 0}, {"answer", 1}, {NULL, 0}};

const struct h_scenario cases_auth[] = {
	{.name = "P7_auth_both_sides", .role = {good_key, good_key}},
	{.name = "P7_auth_allows_any_address", .role = {any_address}, .flags = H_ONCE},
	{.name = "P7_auth_not_the_same", .role = {server_of_refused, refused_client}, .params = mismatches},
	{.name = "P7_auth_key_file_refused", .role = {bad_files}, .flags = H_ONCE},
	{.name = "P5_auth_and_a_stopped_peer", .role = {stays, stays}, .flags = H_KILLS},
	{.name = "P5_auth_and_a_goodbye", .role = {leaves, leaves}},
	{.name = "P7_auth_byte_changed", .role = {auth_server, changed}, .params = directions, .timeout_s = 120},
	{.name = "P7_auth_heartbeat_changed", .role = {heartbeat_heard, heartbeat_changed}, .params = directions},
	{.name = NULL},
};
