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
#define OFFER(field) (2 + sizeof(((struct xpi_offer *)0)->field) - 1)
enum { LONGEST_OFFER = OFFER(backend) + OFFER(provider) + OFFER(protocol) + OFFER(device) + 1 };
_Static_assert(FIRST + STR(library) + STR(backend) + STR(provider) + STR(stack) + 2 + 8 + STR(host) + STR(boot_id) +
                               4 * 8 + 3 + XPI_OFFERS_MAX * LONGEST_OFFER + 4 + 8 + 5 * 4 + 1 + 4 + STR(verdict_text) +
                               2 * 2 + XPI_PRIVATE_MAX + XPI_ADDRESS_MAX + SUM <=
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

static void put_offers(struct xpi_wr *w, const struct xpi_hello *h)
{
	xpi_wr_u8(w, h->noffers);
	for (unsigned i = 0; i < h->noffers; i++) {
		const struct xpi_offer *o = &h->offers[i];

		PUT_TEXT(w, o->backend);
		PUT_TEXT(w, o->provider);
		PUT_TEXT(w, o->protocol);
		PUT_TEXT(w, o->device);
		xpi_wr_u8(w, o->flags);
	}
	xpi_wr_u8(w, h->offer);
	xpi_wr_u8(w, h->theirs);
}

static bool offer_index_valid(unsigned index, unsigned n)
{
	return index < n || index == XPI_OFFER_NONE;
}

static void get_offers(struct xpi_rd *r, struct xpi_hello *h)
{
	unsigned n = xpi_rd_u8(r);

	if (n > XPI_OFFERS_MAX) {
		r->bad = true;
		return;
	}
	h->noffers = (uint8_t)n;
	for (unsigned i = 0; i < n; i++) {
		struct xpi_offer *o = &h->offers[i];

		GET_TEXT(r, o->backend);
		GET_TEXT(r, o->provider);
		GET_TEXT(r, o->protocol);
		GET_TEXT(r, o->device);
		o->flags = xpi_rd_u8(r);
		if (o->flags & ~XPI_OFFER_ALL)
			r->bad = true;
	}
	h->offer = xpi_rd_u8(r);
	h->theirs = xpi_rd_u8(r);
	/* `theirs` counts the offers of the other side, which compares it with their number. */
	if (!offer_index_valid(h->offer, n) || !offer_index_valid(h->theirs, XPI_OFFERS_MAX))
		r->bad = true;
}

static void put_body(struct xpi_wr *w, const struct xpi_hello *h)
{
	xpi_wr_u8(w, h->pointer_size);
	xpi_wr_u8(w, h->big_endian);
	xpi_wr_u64(w, h->incarnation);
	PUT_TEXT(w, h->host);
	PUT_TEXT(w, h->boot_id);
	xpi_wr_u64(w, h->pid_ns);
	xpi_wr_u64(w, h->start_time);
	xpi_wr_u64(w, (uint64_t)h->pid);
	xpi_wr_u64(w, h->shm_fs);
	put_offers(w, h);
	xpi_wr_u32(w, h->ep_id);
	xpi_wr_u64(w, h->session);
	xpi_wr_u32(w, h->frame_max);
	xpi_wr_u32(w, h->credits);
	xpi_wr_u32(w, h->window);
	xpi_wr_u32(w, h->requests);
	xpi_wr_u32(w, h->peer_timeout_ms);
	xpi_wr_u8(w, h->traffic_class);
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
	h->pointer_size = xpi_rd_u8(r);
	h->big_endian = xpi_rd_u8(r) != 0;
	h->incarnation = xpi_rd_u64(r);
	GET_TEXT(r, h->host);
	GET_TEXT(r, h->boot_id);
	h->pid_ns = xpi_rd_u64(r);
	h->start_time = xpi_rd_u64(r);
	h->pid = (int64_t)xpi_rd_u64(r);
	h->shm_fs = xpi_rd_u64(r);
	get_offers(r, h);
	h->ep_id = xpi_rd_u32(r);
	h->session = xpi_rd_u64(r);
	h->frame_max = xpi_rd_u32(r);
	h->credits = xpi_rd_u32(r);
	h->window = xpi_rd_u32(r);
	h->requests = xpi_rd_u32(r);
	h->peer_timeout_ms = xpi_rd_u32(r);
	h->traffic_class = xpi_rd_u8(r);
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

	if (h->private_len > XPI_PRIVATE_MAX || h->address_len > XPI_ADDRESS_MAX || h->noffers > XPI_OFFERS_MAX)
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
	h->offer = h->theirs = XPI_OFFER_NONE;
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

char *xpi_offer_name(const struct xpi_offer *o, char *buf, size_t len)
{
	snprintf(buf, len, "%s%s%s", o->backend, o->provider[0] != '\0' ? ":" : "", o->provider);
	return buf;
}

/* "ucx:shm + ucx:tcp (UCX 1.13, libxport 0.1.0, wire 4)" */
static void name_side(const struct xpi_hello *h, char *s, size_t len)
{
	const char *comma = h->stack[0] != '\0' ? ", " : "";
	char name[72];
	size_t n = 0;

	s[0] = '\0';
	/* Of another version only the identity is known. */
	if (h->noffers == 0)
		n = (size_t)snprintf(s, len, "%s%s%s", h->backend, h->provider[0] != '\0' ? ":" : "", h->provider);
	for (unsigned i = 0; i < h->noffers && n < len; i++)
		if ((h->offers[i].flags & XPI_OFFER_FAILED) == 0)
			n += (size_t)snprintf(s + n, len - n, "%s%s", n > 0 ? " + " : "",
			                      xpi_offer_name(&h->offers[i], name, sizeof(name)));
	if (n < len)
		snprintf(s + n, len - n, " (%s%slibxport %s, wire %u)", h->stack, comma, h->library, h->wire_version);
}

void xpi_hello_sides(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len)
{
	char us[248], them[248];

	name_side(theirs, them, sizeof(them));
	name_side(ours, us, sizeof(us));
	snprintf(text, len, "the peer runs %s, this side %s", them, us);
}

int xpi_hello_compatible(const struct xpi_hello *ours, const struct xpi_hello *theirs, char *text, size_t len)
{
	bool same = ours->wire_version == theirs->wire_version && same_minor(ours->library, theirs->library);
	bool alike = ours->wire_version != theirs->wire_version ||
	             (ours->pointer_size == theirs->pointer_size && ours->big_endian == theirs->big_endian);
	size_t n;

	if (same && alike)
		return XPORT_OK;
	xpi_hello_sides(ours, theirs, text, len);
	n = strnlen(text, len);
	if (!alike)
		snprintf(text + n, len - n, "; there %u-bit %s-endian, here %u-bit %s-endian", theirs->pointer_size * 8,
		         theirs->big_endian ? "big" : "little", ours->pointer_size * 8,
		         ours->big_endian ? "big" : "little");
	return XPORT_ERR_INCOMPATIBLE;
}

const char *xpi_hello_advice(const struct xpi_hello *ours, const struct xpi_hello *theirs)
{
	if (ours->wire_version != theirs->wire_version || !same_minor(ours->library, theirs->library))
		return "use the same version of libxport on both sides";
	return NULL;
}

/* ---- Words ---- */

size_t xpi_word_encode(const struct xpi_word *word, void *buf, size_t len)
{
	uint8_t *head = buf;
	struct xpi_wr w = xpi_wr(buf, len);
	size_t body;

	xpi_wr_u8(&w, (uint8_t)word->kind);
	xpi_wr_u16(&w, 0);
	xpi_wr_u8(&w, word->attempt);
	if (word->kind == 'T') {
		xpi_wr_u8(&w, word->offer);
		xpi_wr_u8(&w, word->theirs);
		xpi_wr_u32(&w, word->frame_max);
		xpi_wr_u32(&w, word->credits);
		PUT_TEXT(&w, word->protocol);
		PUT_TEXT(&w, word->text);
		xpi_wr_u16(&w, word->address_len);
		xpi_wr_bytes(&w, word->address, word->address_len);
	} else {
		xpi_wr_u32(&w, (uint32_t)word->status);
		PUT_TEXT(&w, word->text);
	}
	if (w.bad)
		return 0;
	body = (size_t)(w.p - head) - XPI_WORD_HEAD;
	head[1] = (uint8_t)(body >> 8);
	head[2] = (uint8_t)body;
	return XPI_WORD_HEAD + body;
}

size_t xpi_word_length(const void *head)
{
	const uint8_t *p = head;
	size_t body = (size_t)p[1] << 8 | p[2];

	return body <= XPI_WORD_BODY_MAX ? XPI_WORD_HEAD + body : 0;
}

bool xpi_word_decode(const void *buf, size_t len, struct xpi_word *w)
{
	const uint8_t *p = buf;
	struct xpi_rd r;

	memset(w, 0, sizeof(*w));
	if (len < XPI_WORD_HEAD || xpi_word_length(buf) != len)
		return false;
	w->kind = (char)p[0];
	r = xpi_rd(p + XPI_WORD_HEAD, len - XPI_WORD_HEAD);
	w->attempt = xpi_rd_u8(&r);
	if (w->kind == 'T') {
		w->offer = xpi_rd_u8(&r);
		w->theirs = xpi_rd_u8(&r);
		w->frame_max = xpi_rd_u32(&r);
		w->credits = xpi_rd_u32(&r);
		GET_TEXT(&r, w->protocol);
		GET_TEXT(&r, w->text);
		get_block(&r, w->address, sizeof(w->address), &w->address_len);
	} else {
		w->status = (int32_t)xpi_rd_u32(&r);
		GET_TEXT(&r, w->text);
	}
	return !r.bad && r.left == 0 && (w->kind == 'T' || w->kind == 'N');
}

/* ---- This process ---- */

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

/* What could not be read, as without a free descriptor, is read again. */
static void self_read(struct xpi_self *self)
{
	struct stat st;

	if (self->boot_id[0] == '\0')
		read_boot_id(self->boot_id, sizeof(self->boot_id));
	if (self->pid_ns == 0)
		self->pid_ns = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
	if (self->start_time == 0)
		self->start_time = xpi_process_start(0);
}

void xpi_hello_process(struct xpi_hello *h, struct xpi_self *self)
{
	struct stat st;

	self_read(self);
	if (gethostname(h->host, sizeof(h->host)) != 0)
		h->host[0] = '\0';
	h->host[sizeof(h->host) - 1] = '\0';
	memcpy(h->boot_id, self->boot_id, sizeof(h->boot_id));
	h->pid_ns = self->pid_ns;
	h->shm_fs = stat("/dev/shm", &st) == 0 ? st.st_dev : 0;
	h->pid = getpid();
	h->start_time = self->start_time;
}
