/* SPDX-License-Identifier: BSD-3-Clause */
/* strangers.c - the libfabric back end among those who reach its native port, and are no peers. */
#include <dirent.h>
#include <errno.h>

#include "side.h"

/* Who does not know the cookie is not connected, and does not stand in the way of who does. */
void test_stranger(const char *provider)
{
	uint8_t forged[2048];
	int rc = XPORT_ERR_AGAIN;

	open_side(&A, provider);
	open_side(&B, provider);
	open_side(&C, provider);
	prepare(&a, &A);
	prepare(&b, &B);
	prepare(&c, &C);
	memcpy(forged, b.addr, b.len);
	forged[OFI_HOST] ^= 1;
	for (int64_t end = now_ms() + 1500; now_ms() < end && rc == XPORT_ERR_AGAIN;) {
		rc = ops->ep_connect(C.be, c.ep, XPI_ACTIVE, forged, b.len);
		run_both(&C, &B, 1);
		CHECK(ops->ep_connect(B.be, b.ep, XPI_PASSIVE, a.addr, a.len) == XPORT_ERR_AGAIN,
		      "connected to a stranger");
	}
	CHECK(rc != XPORT_OK, "a stranger was let in");
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
}

/* Something that is too long for a peer, by who knows nothing but the address, does not end the connection with the peer. */
void test_too_long(const char *provider)
{
	static uint8_t bytes[12000];
	static struct ofi_rec rec; /* as of an endpoint that was closed */
	fi_addr_t to = FI_ADDR_UNSPEC;
	struct ofi_ep *from;
	ssize_t rc;

	if (strstr(provider, "ofi_rxm") == NULL)
		return; /* elsewhere nobody else can send to an endpoint */
	open_pair(provider);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	open_side(&C, provider);
	prepare(&c, &C);
	listen_for("3016");
	from = c.ep;
	xpi_list_init(&rec.link);
	CHECK(fi_av_insert(from->av, ((struct ofi_ep *)b.ep)->name.bytes, 1, &to, 0, NULL) == 1);
	for (int64_t end = now_ms() + 5000;
	     (rc = fi_send(from->fid, bytes, sizeof(bytes), NULL, to, &rec.context)) == -FI_EAGAIN;) {
		run_both(&C, &B, 1);
		CHECK(now_ms() < end, "it does not leave");
	}
	CHECK(rc == 0, "%zd", rc);
	for (int64_t end = now_ms() + 5000; line[0] == '\0' && b.core_ep.failed == 0 && now_ms() < end;)
		run_both(&C, &B, 1);
	CHECK(b.core_ep.failed == 0 && strstr(line, "unknown sender") != NULL, "%d %s", b.core_ep.failed, line);
	for (uint64_t seq = 1; seq < 100; seq++) {
		must_send(&a, &b, seq, A.caps.am_max, 24);
		await(&a, &b, seq + 1);
	}
	CHECK(b.core_ep.failed == 0);
}

/* A socket that is connected to there, or -1. */
static int socket_to(const struct end *to)
{
	struct sockaddr_storage sa;
	socklen_t len;
	int fd;

	if (!where(to, &sa, &len))
		return -1;
	fd = socket(sa.ss_family,
	            (strstr(to->side->caps.provider, "udp") != NULL ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&sa, len) == 0, "%s", strerror(errno));
	return fd;
}

/* A connection, or a datagram, that does not speak libfabric: so many bytes of rubbish, and then silence. */
static int rubbish(const struct end *to, size_t n, uint8_t first)
{
	int fd = socket_to(to);
	uint8_t bytes[512];

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i == 0 ? first : byte_of(first, i);
	CHECK(n == 0 || send(fd, bytes, n, MSG_NOSIGNAL) >= 0, "%s", strerror(errno));
	return fd;
}

static void find_caution(void *arg, const struct xport_candidate *cand)
{
	if (strcmp(strchr(cand->name, ':') + 1, arg) == 0 && cand->state == XPORT_READY)
		CHECK(strstr(cand->reason, "crash the process") != NULL, "%s", cand->reason);
}

/* With sockets and rxm (1.17) some bytes of such a one end the process.  That is told by the list and when it is opened. */
static void rubbish_told(const char *provider)
{
	listen_for("3015");
	open_side(&A, provider);
	CHECK(strstr(line, provider) != NULL && strstr(line, "crash the process") != NULL, "%s: %s", provider, line);
	CHECK(ops->list(&quiet, find_caution, (void *)(uintptr_t)provider) == XPORT_OK);
	ops->close(A.be);
}

/* Who connects and sends rubbish, or a part of something and then nothing, does not stand in the way either. */
void test_rubbish(const char *provider)
{
	int fd[8];

	if (strcmp(provider, "sockets") == 0 || strstr(provider, "ofi_rxm") != NULL)
		rubbish_told(provider);
	if (strcmp(provider, "sockets") == 0)
		return; /* any rubbish; rxm's has to be its own */
	open_ends(provider);
	for (unsigned k = 0; k < 8; k++) {
		fd[k] = rubbish(&b, k < 4 ? k : 20 * k * k % 512, (uint8_t)k);
		run_both(&A, &B, 5);
	}
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	for (int k = 0; k < 8; k++)
		if (fd[k] >= 0)
			close(fd[k]);
	run_both(&A, &B, 5);
	must_send(&b, &a, 0, 100, 24);
	await(&b, &a, 1);
	close_ends();
}

/* The head of a request to tcp or net (1.17), and nothing of what it announces: no call waits for the rest. */
void test_half_request(const char *provider)
{
	static const uint8_t head[32] = {3 /* the version */, 0 /* a request */, 0, 200 /* bytes follow */};
	int64_t longest = 0;
	int fd;

	if (strcmp(provider, "tcp") != 0 && strcmp(provider, "net") != 0)
		return;
	open_ends(provider);
	fd = socket_to(&b);
	CHECK(send(fd, head, sizeof(head), MSG_NOSIGNAL) == sizeof(head), "%s", strerror(errno));
	for (int64_t t, end = now_ms() + 200; now_ms() < end; longest = t > longest ? t : longest) {
		t = now_ms();
		CHECK(ops->poll(B.be) >= 0 && ops->arm(B.be) >= XPORT_ERR_AGAIN, "%s", err.text);
		t = now_ms() - t;
	}
	CHECK(longest < 500, "a call took %d ms", (int)longest);
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	close(fd);
}

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	CHECK(dir != NULL, "%s", strerror(errno));
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

/* Who connects to tcp or net and says nothing takes no descriptor, and leaves none behind. */
void test_silent(const char *provider)
{
	enum { MANY = 20 };
	int fd[MANY], before, opened;

	if (strcmp(provider, "tcp") != 0 && strcmp(provider, "net") != 0)
		return;
	open_side(&C, provider); /* what libfabric keeps from its first instance */
	ops->close(C.be);
	before = descriptors();
	open_ends(provider);
	opened = descriptors();
	for (int i = 0; i < MANY; i++)
		fd[i] = socket_to(&b);
	run_both(&A, &B, 100);
	CHECK(descriptors() <= opened + MANY, "%d of %d", descriptors() - opened - MANY, MANY);
	join(&a, &b);
	must_send(&a, &b, 0, 100, 24);
	await(&a, &b, 1);
	close_ends();
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
	CHECK(descriptors() <= before, "%d are left", descriptors() - before);
}
