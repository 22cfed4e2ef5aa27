/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/wire/hello.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/printable.h"

#define XXH_INLINE_ALL

enum { FIRST = 8, SUM = 8 };

/* The longest of everything must fit: nothing that this side may say is ever too long for the other. */
#define STR(field) (2 + sizeof(((struct xpi_hello *)0)->field) - 1)
_Static_assert(FIRST + STR(library) + STR(backend) + STR(provider) + STR(stack) + STR(protocol) + 2 + 8 + STR(host) +
                               STR(boot_id) + 3 * 8 + 4 + 8 + 5 * 4 + 4 + STR(verdict_text) + 2 * 2 + XPI_PRIVATE_MAX +
                               XPI_ADDRESS_MAX + SUM <=
                       XPI_HELLO_MAX,
               "XPI_HELLO_MAX");

/* Text that may come to a terminal or a log: what could steer it is replaced on the way out, refused on the way in. */
static void put_text(struct xpi_wr *w, const char *s, size_t size)
{
	char text[sizeof(((struct xpi_hello *)NULL)->verdict_text)]; /* the longest there is */
	size_t n = strnlen(s, size - 1);

	memcpy(text, s, n);
	text[n] = '\0';
	xpi_text_clean(text, '?');
	xpi_wr_u16(w, (uint16_t)n);
	xpi_wr_bytes(w, text, n);
}

static void get_text(struct xpi_rd *r, char *s, size_t size)
{
	xpi_rd_str(r, s, size);
	if (!xpi_text_printable(s))
		r->bad = true;
}

#define PUT_TEXT(w, field) put_text(w, field, sizeof(field))
#define GET_TEXT(r, field) get_text(r, field, sizeof(field))

static void put_body(struct xpi_wr *w, const struct xpi_hello *h)
{
	PUT_TEXT(w, h->protocol);
	xpi_wr_u8(w, h->pointer_size);
	xpi_wr_u8(w, h->big_endian);
	xpi_wr_u64(w, h->incarnation);
	PUT_TEXT(w, h->host);
	PUT_TEXT(w, h->boot_id);
	xpi_wr_u64(w, h->pid_ns);
	xpi_wr_u64(w, h->start_time);
	xpi_wr_u64(w, (uint64_t)h->pid);
	xpi_wr_u32(w, h->ep_id);
	xpi_wr_u64(w, h->session);
	xpi_wr_u32(w, h->frame_max);
	xpi_wr_u32(w, h->credits);
	xpi_wr_u32(w, h->window);
	xpi_wr_u32(w, h->requests);
	xpi_wr_u32(w, h->peer_timeout_ms);
	xpi_wr_u32(w, (uint32_t)h->verdict);
	PUT_TEXT(w, h->verdict_text);
	xpi_wr_u16(w, h->private_len);
	xpi_wr_bytes(w, h->private_data, h->private_len);
	xpi_wr_u16(w, h->address_len);
	xpi_wr_bytes(w, h->address, h->address_len);
}

static void get_block(struct xpi_rd *r, uint8_t *buf, size_t max, uint16_t *len)
{
	size_t n = xpi_rd_u16(r);
	const uint8_t *p = xpi_rd_bytes(r, n);

	if (p == NULL || n > max) {
		r->bad = true;
		return;
	}
	memcpy(buf, p, n);
	*len = (uint16_t)n;
}

static void get_body(struct xpi_rd *r, struct xpi_hello *h)
{
	GET_TEXT(r, h->protocol);
	h->pointer_size = xpi_rd_u8(r);
	h->big_endian = xpi_rd_u8(r) != 0;
	h->incarnation = xpi_rd_u64(r);
	GET_TEXT(r, h->host);
	GET_TEXT(r, h->boot_id);
	h->pid_ns = xpi_rd_u64(r);
	h->start_time = xpi_rd_u64(r);
	h->pid = (int64_t)xpi_rd_u64(r);
	h->ep_id = xpi_rd_u32(r);
	h->session = xpi_rd_u64(r);
	h->frame_max = xpi_rd_u32(r);
	h->credits = xpi_rd_u32(r);
	h->window = xpi_rd_u32(r);
	h->requests = xpi_rd_u32(r);
	h->peer_timeout_ms = xpi_rd_u32(r);
	h->verdict = (int32_t)xpi_rd_u32(r);
	GET_TEXT(r, h->verdict_text);
	get_block(r, h->private_data, sizeof(h->private_data), &h->private_len);
	get_block(r, h->address, sizeof(h->address), &h->address_len);
	if (r->left != 0)
		r->bad = true;
}

/* Kept apart because their place and order (big-endian) belong to all versions for ever. */
static void put_first(uint8_t *p, size_t length, unsigned version)
{
	memcpy(p, "XPRT", 4);
	p[4] = (uint8_t)(length >> 8);
	p[5] = (uint8_t)length;
	p[6] = (uint8_t)(version >> 8);
	p[7] = (uint8_t)version;
}

size_t xpi_hello_encode(const struct xpi_hello *h, void *buf, size_t len)
{
	struct xpi_wr w = xpi_wr(buf, len);
	uint8_t first[FIRST] = {0};
	size_t length;

	if (h->private_len > XPI_PRIVATE_MAX || h->address_len > XPI_ADDRESS_MAX)
		return 0;
	xpi_wr_bytes(&w, first, sizeof(first));
	PUT_TEXT(&w, h->library);
	PUT_TEXT(&w, h->backend);
	PUT_TEXT(&w, h->provider);
	PUT_TEXT(&w, h->stack);
	put_body(&w, h);
	if (w.bad || w.left < SUM)
		return 0;
	length = (size_t)(w.p - (uint8_t *)buf) + SUM;
	put_first(buf, length, h->wire_version);
	xpi_wr_u64(&w, XXH64(buf, length - SUM, 0));
	return length;
}

size_t xpi_hello_length(const void *first8)
{
	const uint8_t *p = first8;
	size_t length = (size_t)p[4] << 8 | p[5];

	if (memcmp(p, "XPRT", 4) != 0 || length < FIRST + 4 * 2 + SUM || length > XPI_HELLO_MAX)
		return 0;
	return length;
}

bool xpi_hello_decode(const void *buf, size_t len, struct xpi_hello *h)
{
	const uint8_t *p = buf;
	struct xpi_rd r, sum;

	memset(h, 0, sizeof(*h));
	if (len < FIRST || xpi_hello_length(buf) != len)
		return false;
	h->wire_version = (uint16_t)(p[6] << 8 | p[7]);
	sum = xpi_rd(p + len - SUM, SUM);
	/* Another version may sum otherwise; it is refused anyway, properly. */
	if (h->wire_version == XPI_WIRE_VERSION && xpi_rd_u64(&sum) != XXH64(buf, len - SUM, 0))
		return false;
	r = xpi_rd(p + FIRST, len - FIRST - SUM);
	GET_TEXT(&r, h->library);
	GET_TEXT(&r, h->backend);
	GET_TEXT(&r, h->provider);
	GET_TEXT(&r, h->stack);
	if (h->wire_version == XPI_WIRE_VERSION)
		get_body(&r, h);
	return !r.bad;
}

/* Whether two versions agree in their first two numbers. */
static bool same_minor(const char *a, const char *b)
{
	int a1, a2, b1, b2;

	if (sscanf(a, "%d.%d", &a1, &a2) != 2 || sscanf(b, "%d.%d", &b1, &b2) != 2)
		return strcmp(a, b) == 0;
	return a1 == b1 && a2 == b2;
}

static void name_side(const struct xpi_hello *h, char *s, size_t len)
{
	const char *colon = h->provider[0] != '\0' ? ":" : "";
	const char *comma = h->stack[0] != '\0' ? ", " : "";

	snprintf(s, len, "%s%s%s (%s%slibxport %s, wire %u)", h->backend, colon, h->provider, h->stack, comma,
	         h->library, h->wire_version);
}

int xpi_hello_compatible(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len)
{
	char us[192], them[192], more[144] = "";
	bool same = ours->wire_version == theirs->wire_version && strcmp(ours->backend, theirs->backend) == 0 &&
	            (ours->any_provider || strcmp(ours->provider, theirs->provider) == 0) &&
	            same_minor(ours->library, theirs->library);

	/* Only of the same wire version more than the identity is known. */
	if (ours->wire_version == theirs->wire_version) {
		if (ours->pointer_size != theirs->pointer_size || ours->big_endian != theirs->big_endian)
			snprintf(more, sizeof(more), "; there %u-bit %s-endian, here %u-bit %s-endian",
			         theirs->pointer_size * 8, theirs->big_endian ? "big" : "little",
			         ours->pointer_size * 8, ours->big_endian ? "big" : "little");
		else if (same && strcmp(ours->protocol, theirs->protocol) != 0)
			snprintf(more, sizeof(more), "; protocol there \"%s\", here \"%s\"", theirs->protocol,
			         ours->protocol);
	}
	if (same && more[0] == '\0')
		return XPORT_OK;
	name_side(theirs, them, sizeof(them));
	name_side(ours, us, sizeof(us));
	snprintf(text, len, "the peer runs %s, this side %s%s", them, us, more);
	return XPORT_ERR_INCOMPATIBLE;
}

const char *xpi_hello_advice(const struct xpi_hello *ours, const struct xpi_hello *theirs)
{
	if (strcmp(ours->backend, theirs->backend) != 0 ||
	    (!ours->any_provider && strcmp(ours->provider, theirs->provider) != 0))
		return "set XPORT_BACKEND to the same on both sides";
	if (ours->wire_version != theirs->wire_version || !same_minor(ours->library, theirs->library))
		return "use the same version of libxport on both sides";
	return NULL;
}

const char xpi_hello_unreachable_hint[] =
	"let both share a PID namespace (docker run --pid=host), or take a provider of the network: "
	"XPORT_BACKEND=ucx:tcp or ofi:tcp";

int xpi_hello_reachable(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len)
{
	bool same_host = ours->boot_id[0] != '\0' && strcmp(ours->boot_id, theirs->boot_id) == 0;

	if (!ours->one_host || !same_host || ours->pid_ns == 0 || theirs->pid_ns == 0 || ours->pid_ns == theirs->pid_ns)
		return XPORT_OK;
	snprintf(text, len,
	         "the two processes are in different PID namespaces, as in two containers, and %s:%s only works within "
	         "one",
	         ours->backend, ours->provider);
	return XPORT_ERR_UNREACHABLE;
}

static void read_boot_id(char *s, size_t size)
{
	ssize_t n = 0;
	int fd = xpi_fd_up(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));

	if (fd >= 0) {
		n = read(fd, s, size - 1);
		close(fd);
	}
	s[n > 0 ? n : 0] = '\0';
	s[strcspn(s, "\n")] = '\0';
}

void xpi_hello_process(struct xpi_hello *h)
{
	struct stat st;

	if (gethostname(h->host, sizeof(h->host)) != 0)
		h->host[0] = '\0';
	h->host[sizeof(h->host) - 1] = '\0';
	read_boot_id(h->boot_id, sizeof(h->boot_id));
	h->pid_ns = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
	h->pid = getpid();
	h->start_time = xpi_process_start(0);
}
