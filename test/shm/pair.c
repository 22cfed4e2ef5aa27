/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - see pair.h. */
#include "shm/pair.h"

#include <dirent.h>
#include <string.h>

extern const struct xpi_backend xpi_backend_shm;
const struct xpi_backend *const ops = &xpi_backend_shm;
struct xport_error err = {.size = sizeof(err)};
int same_user_is = XPORT_OK;
void (*meanwhile)(struct xpi_core_ep *ep);

static void on_frame(struct xpi_core *core, struct xpi_core_ep *ep, const void *hdr, size_t hlen, const void *data,
                     size_t dlen)
{
	(void)core;
	CHECK(hlen > 0 && hlen + dlen <= SHM_AM_MAX && (dlen == 0 || dlen >= SHM_LONG));
	memcpy(ep->last, hdr, hlen);
	if (dlen > 0)
		memcpy(ep->last + hlen, data, dlen);
	ep->last_len = hlen + dlen;
	ep->in_ring = dlen;
	ep->bytes += hlen + dlen;
	ep->frames++;
	if (meanwhile != NULL)
		meanwhile(ep);
}

static void on_failed(struct xpi_core *core, struct xpi_core_ep *ep, int64_t code, const char *why)
{
	(void)core;
	CHECK(code != 0);
	ep->failed++;
	snprintf(ep->why, sizeof(ep->why), "%s", why);
}

static int on_same_user(struct xpi_core *core, struct xpi_core_ep *ep)
{
	(void)core;
	(void)ep;
	return same_user_is;
}

static const struct xpi_log quiet = {.level = 0, .fd = -1};
static const struct xpi_core_ops up = {.am_recv = on_frame, .ep_failed = on_failed, .same_user = on_same_user};

const char *shm_dir;
struct xpi_be *one, *two;

struct xpi_be *instance(void)
{
	struct xpi_be_open_args args = {.up = &up, .log = &quiet, .err = &err, .shm_dir = shm_dir};
	struct xpi_be *be;

	CHECK(ops->open(&args, &be) == XPORT_OK);
	return be;
}

struct xpi_core_ep *endpoint(struct xpi_be *be, uint8_t *address, size_t *len)
{
	struct xpi_core_ep *ep = aligned_alloc(64, (sizeof(*ep) + 63) / 64 * 64);

	CHECK(ep != NULL);
	memset(ep, 0, sizeof(*ep));
	*len = 2048;
	CHECK(ops->address(be, &ep->state, ep, address, len) == XPORT_OK);
	return ep;
}

struct link addresses(void)
{
	struct link l;

	l.a = endpoint(one, l.address_a, &l.len_a);
	l.b = endpoint(two, l.address_b, &l.len_b);
	return l;
}

int connect_a(struct link *l)
{
	return ops->ep_connect(one, &l->a->state, XPI_ACTIVE, l->address_b, l->len_b);
}

int connect_b(struct link *l)
{
	return ops->ep_connect(two, &l->b->state, XPI_PASSIVE, l->address_a, l->len_a);
}

/* In a few turns: a socket takes the peer's file only once it is connected. */
void connect_both(struct link *l)
{
	int a = XPORT_ERR_AGAIN, b = XPORT_ERR_AGAIN;

	for (int i = 0; i < 10 && (a == XPORT_ERR_AGAIN || b == XPORT_ERR_AGAIN); i++) {
		a = a == XPORT_ERR_AGAIN ? connect_a(l) : a;
		b = b == XPORT_ERR_AGAIN ? connect_b(l) : b;
	}
	CHECK(a == XPORT_OK && b == XPORT_OK);
}

struct link meet(void)
{
	struct link l = addresses();

	connect_both(&l);
	return l;
}

void end(struct xpi_be *be, struct xpi_core_ep *ep)
{
	CHECK(ops->ep_quiesce(be, &ep->state) == XPORT_OK);
	ops->ep_destroy(be, &ep->state);
	free(ep);
}

void part(struct link *l)
{
	end(one, l->a);
	end(two, l->b);
}

int send_a(struct link *l, const void *buf, size_t len)
{
	return ops->am_send(one, &l->a->state, buf, len, NULL);
}

unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

struct shm_file *file_of(struct xpi_core_ep *ep)
{
	return ep->state.file.base;
}
