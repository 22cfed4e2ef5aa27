/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases_file.c - regions whose memory is a mapped file: shared and private, read-only, with holes.
 *
 * An adapter may refuse to register pages of a file, or take them for reading alone.  Then messages carry the data, and
 * the result is the same.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "harness.h"

enum { LEN = 1 << 20, PAGE = 4096 };

/* An open file of LEN bytes that has no name any more. */
static int file_make(struct h *h)
{
	char name[] = "/tmp/xport-file-XXXXXX";
	int fd = mkstemp(name);

	H_CHECK(fd >= 0, "%s: %s", name, strerror(errno));
	unlink(name);
	H_CHECK(ftruncate(fd, LEN) == 0, "ftruncate: %s", strerror(errno));
	return fd;
}

static void file_write(struct h *h, int fd, size_t at, size_t len, uint64_t seed)
{
	uint8_t *data = h_buf(h, len);

	h_fill(data, len, seed);
	H_CHECK(pwrite(fd, data, len, (off_t)at) == (ssize_t)len, "pwrite: %s", strerror(errno));
	h_buf_free(h, data);
}

/* The bytes of the file itself, not of a mapping. */
static uint8_t *file_read(struct h *h, int fd)
{
	uint8_t *data = h_buf(h, LEN);

	H_CHECK(pread(fd, data, LEN, 0) == LEN, "pread: %s", strerror(errno));
	return data;
}

static struct h_mem file_map(struct h *h, int fd, int prot, int flags, uint32_t rights)
{
	struct h_mem m = {.len = LEN};

	m.p = mmap(NULL, LEN, prot, flags, fd, 0);
	H_CHECK(m.p != MAP_FAILED, "mmap: %s", strerror(errno));
	H_OK(xport_mr_reg(h->x, m.p, LEN, rights, &m.mr));
	return m;
}

static void file_unmap(struct h *h, struct h_mem *m, int fd)
{
	H_OK(xport_mr_dereg(m->mr));
	munmap(m->p, LEN);
	close(fd);
}

static int mapping_of(const struct h *h)
{
	return (int)h->param;
}

static const struct h_param mappings[] = {{"shared", MAP_SHARED}, {"private", MAP_PRIVATE}, {NULL, 0}};

/* ---- a file as the source ---- */

/* Ordinary memory, which gets the file by a put, and then by a message. */
static void sink(struct h *h)
{
	struct h_mem m, message;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	message = h_mem_local(h, LEN, 0);
	h_share(h, 1, &m);
	H_DONE(h_recv(h, h->ep[1], message.p, LEN, 1, UINT64_MAX));
	h_sync(h);
	H_FILLED(m.p, LEN, 41);
	H_FILLED(message.p, LEN, 41);
	H_GUARDS(m);
}

static void source(struct h *h)
{
	struct h_rkey r;
	struct h_mem m;
	int fd;

	h_mesh(h, NULL);
	fd = file_make(h);
	file_write(h, fd, 0, LEN, 41);
	m = file_map(h, fd, PROT_READ, mapping_of(h), 0);
	r = h_import(h, 0);
	H_DONE(h_put(h, h->ep[0], H_AT(m, 0, LEN), &r, 0, 0));
	H_DONE(h_send_at(h, h->ep[0], H_AT(m, 0, LEN), 1, 0));
	h_sync(h);
	file_unmap(h, &m, fd);
}

/* ---- a file that a peer reads ---- */

static void lent(struct h *h)
{
	struct h_mem m;
	int fd;

	h_mesh(h, NULL);
	fd = file_make(h);
	file_write(h, fd, 0, LEN, 42);
	m = file_map(h, fd, PROT_READ, mapping_of(h), XPORT_REMOTE_READ);
	h_share(h, 1, &m);
	h_sync(h);
	file_unmap(h, &m, fd);
}

static void reader(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_local(h, LEN, 0);
	r = h_import(h, 0);
	H_DONE(h_get(h, h->ep[0], H_AT(l, 0, LEN), &r, 0));
	H_FILLED(l.p, LEN, 42);
	H_STATUS(XPORT_ERR_ACCESS, xport_put(h->ep[0], l.p, 8, r.k, r.offset, NULL));
	h_sync(h);
	h_mem_free(h, &l);
}

/* ---- a file that is written ---- */

/* By a peer's put, then by a get of its own: the file has it if the mapping is shared. */
static void written(struct h *h)
{
	struct h_rkey r;
	struct h_mem m;
	uint8_t *bytes;
	int fd;

	h_mesh(h, NULL);
	fd = file_make(h);
	m = file_map(h, fd, PROT_READ | PROT_WRITE, mapping_of(h), H_ALL);
	h_share(h, 1, &m);
	r = h_import(h, 1);
	h_hear_u64(h, 1);
	H_FILLED(m.p, LEN / 2, 43);
	H_DONE(h_get(h, h->ep[1], H_AT(m, LEN / 2, LEN / 2), &r, 0));
	bytes = file_read(h, fd);
	if (mapping_of(h) == MAP_SHARED) {
		H_FILLED(bytes, LEN / 2, 43);
		H_FILLED(bytes + LEN / 2, LEN / 2, 43);
	} else {
		H_BYTES(bytes, LEN, 0);
		H_FILLED(m.p + LEN / 2, LEN / 2, 43);
	}
	h_sync(h);
	file_unmap(h, &m, fd);
}

static void writer(struct h *h)
{
	struct h_mem l;
	struct h_rkey r;

	h_mesh(h, NULL);
	l = h_mem_target(h, LEN / 2, 0, H_ALL);
	h_fill(l.p, l.len, 43);
	r = h_import(h, 0);
	h_share(h, 0, &l);
	H_DONE(h_put(h, h->ep[0], H_AT(l, 0, l.len), &r, 0, 0));
	h_tell_u64(h, 0, 1);
	h_sync(h);
}

/* ---- a file with holes ---- */

/* Two pieces of data; all else is a hole, which reads as zero. */
static void sparse_source(struct h *h)
{
	struct h_rkey r;
	struct h_mem m;
	int fd;

	h_mesh(h, NULL);
	fd = file_make(h);
	file_write(h, fd, 0, PAGE, 44);
	file_write(h, fd, LEN - PAGE, PAGE, 45);
	m = file_map(h, fd, PROT_READ, MAP_SHARED, XPORT_REMOTE_READ);
	r = h_import(h, 0);
	H_DONE(h_put(h, h->ep[0], H_AT(m, 0, LEN), &r, 0, 0));
	h_sync(h);
	file_unmap(h, &m, fd);
}

static void sparse_sink(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	memset(m.p, 0x5a, LEN);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p, PAGE, 44);
	H_BYTES(m.p + PAGE, LEN - 2 * PAGE, 0);
	H_FILLED(m.p + LEN - PAGE, PAGE, 45);
	H_GUARDS(m);
}

/* ---- a file that cannot become shorter ---- */

/* The seal keeps it whole while a put reads it: without one, reading behind the new end would raise SIGBUS. */
static void sealed_source(struct h *h)
{
	int fd = memfd_create("file_sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct h_rkey r;
	struct h_mem m;
	struct h_op *put;

	h_mesh(h, NULL);
	H_CHECK(fd >= 0 && ftruncate(fd, LEN) == 0, "memfd_create: %s", strerror(errno));
	file_write(h, fd, 0, LEN, 47);
	H_CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "F_ADD_SEALS: %s", strerror(errno));
	m = file_map(h, fd, PROT_READ, MAP_SHARED, 0);
	r = h_import(h, 0);
	put = h_put(h, h->ep[0], H_AT(m, 0, LEN), &r, 0, 0);
	H_CHECK(ftruncate(fd, 0) != 0 && errno == EPERM, "a sealed file was truncated");
	H_DONE(put);
	h_sync(h);
	file_unmap(h, &m, fd);
}

static void sealed_sink(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 1, &m);
	h_sync(h);
	H_FILLED(m.p, LEN, 47);
	H_GUARDS(m);
}

/* ---- what a read-only file refuses ---- */

static void refused(struct h *h)
{
	struct h_rkey r;
	struct h_mem m;
	struct xport_opt o = {.size = sizeof(o)};
	xport_mr *mr;
	int fd;

	h_mesh(h, NULL);
	fd = file_make(h);
	file_write(h, fd, 0, LEN, 46);
	m = file_map(h, fd, PROT_READ, mapping_of(h), 0);
	H_STATUS(XPORT_ERR_FAULT, xport_mr_reg(h->x, m.p, LEN, XPORT_REMOTE_WRITE, &mr));
	r = h_import(h, 1);
	o.mr = m.mr;
	H_STATUS(XPORT_ERR_FAULT, xport_get(h->ep[1], m.p, 8, r.k, r.offset, &o));
	H_FILLED(m.p, LEN, 46);
	h_sync(h);
	file_unmap(h, &m, fd);
}

static void beside(struct h *h)
{
	struct h_mem m;

	h_mesh(h, NULL);
	m = h_mem_target(h, LEN, 0, H_ALL);
	h_share(h, 0, &m);
	h_sync(h);
	H_GUARDS(m);
}

const struct h_scenario cases_file[] = {
	{.name = "file_source", .role = {sink, source}, .params = mappings},
	{.name = "file_lent", .role = {lent, reader}, .params = mappings},
	{.name = "file_written", .role = {written, writer}, .params = mappings},
	{.name = "file_sparse", .role = {sparse_sink, sparse_source}},
	{.name = "file_sealed", .role = {sealed_sink, sealed_source}},
	{.name = "file_refused", .role = {refused, beside}, .params = mappings},
	{.name = NULL},
};
