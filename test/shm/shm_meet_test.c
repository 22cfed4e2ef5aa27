/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm_meet_test.c - the back end shm with a directory: sockets that are files, and descriptors of regions that are passed.
 * Both sides are instances of this process. A hostile side sends over the socket of its endpoint.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/pair.h"

enum { LENGTH = 8192, FLOOD = 1000, MANY = 400 };

static char directory[] = "/tmp/shm-meet-XXXXXX";

static struct xpi_shm_mr region(void)
{
	struct xpi_shm_mr mr;
	void *base;

	CHECK(ops->mr_alloc(one, &mr, LENGTH, XPORT_REMOTE_WRITE | XPORT_REMOTE_READ, &base) == XPORT_OK);
	memset(base, 7, LENGTH);
	return mr;
}

static int unpack(struct link *l, struct xpi_shm_rkey *rkey, const uint8_t *key, void **direct)
{
	*direct = NULL;
	return ops->rkey_unpack(two, &l->b->state, rkey, key, XPI_SHM_KEY, 0, LENGTH, XPORT_REMOTE_WRITE, direct);
}

static unsigned files(void)
{
	DIR *d = opendir(directory);
	unsigned n = 0;

	CHECK(d != NULL);
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* The file of a socket is there until both are connected, and for its owner alone. The kernel is not asked for the TCP socket. */
static void test_files(void)
{
	struct link l;
	struct stat st;
	char path[128];

	same_user_is = XPORT_ERR_AUTH;
	l = addresses();
	CHECK(files() == 2);
	snprintf(path, sizeof(path), "%s/xport-%016llx%016llx", directory, (unsigned long long)l.a->state.file.name[0],
	         (unsigned long long)l.a->state.file.name[1]);
	CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600 && S_ISSOCK(st.st_mode));
	connect_both(&l);
	CHECK(files() == 0);
	CHECK(send_a(&l, "x", 1) == XPORT_OK && ops->poll(two) == 1);
	part(&l);
	l = addresses();
	part(&l);
	CHECK(files() == 0);
	same_user_is = XPORT_OK;
}

/* Of another kind, or another user's: not connected. */
static void test_wrong_file(void)
{
	struct link l = addresses();
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/xport-%016llx%016llx", directory, (unsigned long long)l.b->state.file.name[0],
	         (unsigned long long)l.b->state.file.name[1]);
	if (geteuid() == 0) {
		CHECK(chown(path, 65533, 65533) == 0);
		CHECK(connect_a(&l) == XPORT_ERR_AUTH);
	}
	CHECK(unlink(path) == 0);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && connect_a(&l) == XPORT_ERR_AUTH);
	close(fd);
	CHECK(unlink(path) == 0 && connect_a(&l) == XPORT_ERR_UNREACHABLE);
	part(&l);
}

static void test_region(void)
{
	unsigned before = descriptors();
	struct link l = meet();
	struct xpi_shm_mr mr = region();
	struct xpi_shm_rkey rkey;
	uint8_t key[XPI_SHM_KEY];
	size_t len = sizeof(key);
	void *direct;

	CHECK(ops->rkey_pack(one, NULL, &mr, key, &len) == XPORT_OK);
	CHECK(unpack(&l, &rkey, key, &direct) == XPORT_ERR_NOT_SUPPORTED); /* not passed */
	CHECK(ops->rkey_pack(one, &l.a->state, &mr, key, &len) == XPORT_OK && len == XPI_SHM_KEY);
	CHECK(unpack(&l, &rkey, key, &direct) == XPORT_OK && direct != NULL && direct != mr.shm.base);
	((uint8_t *)direct)[LENGTH - 1] = 9;
	CHECK(((uint8_t *)mr.shm.base)[LENGTH - 1] == 9 && ((uint8_t *)direct)[0] == 7);
	ops->rkey_destroy(two, &rkey);
	ops->mr_dereg(one, &mr);
	part(&l);
	CHECK(descriptors() == before);
}

/* The peer has not taken those that were sent: the next one is sent later. */
static void test_again(void)
{
	unsigned before = descriptors();
	struct link l = meet();
	struct xpi_shm_mr mr = region();
	struct xpi_shm_rkey rkey;
	uint8_t key[XPI_SHM_KEY];
	size_t len = sizeof(key);
	void *direct;
	int n = 0, rc;

	while ((rc = ops->rkey_pack(one, &l.a->state, &mr, key, &len)) == XPORT_OK && n < 10000)
		n++;
	CHECK(rc == XPORT_ERR_AGAIN && n == XPI_LENT_AHEAD);
	CHECK(unpack(&l, &rkey, key, &direct) == XPORT_OK);
	ops->rkey_destroy(two, &rkey);
	CHECK(ops->rkey_pack(one, &l.a->state, &mr, key, &len) == XPORT_ERR_AGAIN); /* their keys have not been sent */
	CHECK(send_a(&l, "x", 1) == XPORT_OK && ops->poll(two) == 1);
	CHECK(ops->rkey_pack(one, &l.a->state, &mr, key, &len) == XPORT_OK);
	for (int i = 0; i < 1000 && ops->arm(two) == XPORT_ERR_AGAIN; i++)
		ops->poll(two);
	CHECK(l.b->failed == 0 && send_a(&l, "x", 1) == XPORT_OK && ops->poll(two) == 1);
	ops->mr_dereg(one, &mr);
	part(&l);
	CHECK(descriptors() == before);
}

/* A bell may take out all that has come: nothing whose key follows is closed. Parts of a region have a descriptor each. */
static void test_many(void)
{
	unsigned before = descriptors();
	struct link l = meet();
	struct xpi_shm_mr mr[MANY];
	struct xpi_shm_rkey rkey[MANY];
	uint8_t key[MANY][XPI_SHM_KEY];
	size_t len = XPI_SHM_KEY;
	void *direct;
	int sent = 0, used = 0, rc;

	for (int i = 0; i < MANY; i++)
		mr[i] = i % 3 == 1 ? mr[i - 1] : region();
	while (used < MANY) {
		while (sent < MANY && (rc = ops->rkey_pack(one, &l.a->state, &mr[sent], key[sent], &len)) == XPORT_OK)
			sent++;
		CHECK(sent == MANY || rc == XPORT_ERR_AGAIN);
		CHECK(sent > used && send_a(&l, "x", 1) == XPORT_OK);
		(void)ops->arm(two);
		for (; used < sent; used++)
			CHECK(unpack(&l, &rkey[used], key[used], &direct) == XPORT_OK);
		while (ops->poll(two) > 0)
			;
	}
	CHECK(l.b->failed == 0);
	for (int i = 0; i < MANY; i++) {
		ops->rkey_destroy(two, &rkey[i]);
		if (i % 3 != 1)
			ops->mr_dereg(one, &mr[i]);
	}
	part(&l);
	CHECK(descriptors() == before);
}

/* Regions that nobody asked for. They occupy a few descriptors, and no other endpoint notices. */
static void test_flood(void)
{
	unsigned before = descriptors(), most = 0;
	struct link l = meet(), other = meet();
	struct xpi_shm_mr mr = region();

	for (int i = 0; i < FLOOD; i++) {
		mr.shm.name[0]++;
		(void)xpi_lent_send(l.a->state.sock, &mr.shm);
		for (int k = 0; k < 4 && i % 7 == 0; k++)
			(void)ops->arm(two);
		most = descriptors() > most ? descriptors() : most;
		if (i % 100 == 0)
			CHECK(send_a(&other, "x", 1) == XPORT_OK && ops->poll(two) == 1);
	}
	CHECK(most < before + 2 * 6 + 4 + XPI_LENT_KEPT && l.b->failed == 0 && other.b->failed == 0);
	for (int i = 0; i < 100; i++)
		(void)ops->arm(two);
	CHECK(ops->arm(two) == XPORT_OK);
	ops->mr_dereg(one, &mr);
	part(&l);
	part(&other);
	CHECK(descriptors() == before);
}

/* A descriptor of something else: not mapped, and the endpoint lives. */
static void test_wrong_region(void)
{
	unsigned before = descriptors();
	struct link l = meet();
	struct xpi_shm_mr mr = region();
	struct xpi_shm_rkey rkey;
	uint8_t key[XPI_SHM_KEY];
	size_t len = sizeof(key);
	int fds[3] = {open("/dev/zero", O_RDWR | O_CLOEXEC), memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING), -1};
	struct xpi_shm_mr named;
	void *direct;

	named = region(); /* sealed, and of another name */
	fds[2] = named.shm.fd;
	CHECK(fds[0] >= 0 && fds[1] >= 0 && ftruncate(fds[1], LENGTH) == 0);
	CHECK(ops->rkey_pack(one, NULL, &mr, key, &len) == XPORT_OK);
	for (int i = 0; i < 3; i++) {
		struct xpi_shm wrong = mr.shm;

		wrong.fd = fds[i];
		CHECK(xpi_lent_send(l.a->state.sock, &wrong) == XPORT_OK);
		CHECK(unpack(&l, &rkey, key, &direct) == XPORT_ERR_NOT_SUPPORTED);
	}
	CHECK(send_a(&l, "x", 1) == XPORT_OK && ops->poll(two) == 1 && l.b->failed == 0);
	close(fds[0]);
	close(fds[1]);
	ops->mr_dereg(one, &named);
	ops->mr_dereg(one, &mr);
	part(&l);
	CHECK(descriptors() == before);
}

/* What peers may only read is passed by a descriptor that cannot change it. */
static void test_read_only(void)
{
	struct link l = meet();
	struct xpi_shm_mr mr;
	uint8_t key[XPI_SHM_KEY];
	size_t len = sizeof(key);
	void *base;
	int fd = -1;

	CHECK(ops->mr_alloc(one, &mr, LENGTH, XPORT_REMOTE_READ, &base) == XPORT_OK);
	CHECK(ops->rkey_pack(one, &l.a->state, &mr, key, &len) == XPORT_OK);
	CHECK(shm_bell_take(two, &l.b->state, key, &fd) && fd >= 0);
	((volatile uint8_t *)base)[0] = 5;
	CHECK(pwrite(fd, "x", 1, 0) < 0 && ((volatile uint8_t *)base)[0] == 5);
	CHECK(mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	base = xpi_shm_map_lent(key, fd, LENGTH, false);
	CHECK(base != NULL && ((volatile uint8_t *)base)[0] == 5 && mprotect(base, LENGTH, PROT_WRITE) != 0);
	xpi_shm_unmap(base, LENGTH);
	close(fd);
	ops->mr_dereg(one, &mr);
	part(&l);
}

/* Without a free descriptor the region is lost, and the endpoint is not. */
static void test_no_descriptor(void)
{
	struct link l = meet();
	struct xpi_shm_mr mr = region();
	struct xpi_shm_rkey rkey;
	struct rlimit was, few;
	uint8_t key[XPI_SHM_KEY];
	size_t len = sizeof(key);
	void *direct;
	int next = dup(0);

	CHECK(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK(ops->rkey_pack(one, &l.a->state, &mr, key, &len) == XPORT_OK);
	few = (struct rlimit){(rlim_t)next, was.rlim_max};
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	(void)ops->arm(two);
	CHECK(setrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK(l.b->failed == 0 && unpack(&l, &rkey, key, &direct) == XPORT_ERR_NOT_SUPPORTED);
	CHECK(ops->rkey_pack(one, &l.a->state, &mr, key, &len) == XPORT_OK);
	CHECK(unpack(&l, &rkey, key, &direct) == XPORT_OK && send_a(&l, "x", 1) == XPORT_OK && ops->poll(two) == 1);
	ops->rkey_destroy(two, &rkey);
	ops->mr_dereg(one, &mr);
	part(&l);
}

/* A bell that is taken out together with a region must not be the last one. */
static void test_bell_beside_region(void)
{
	struct link l = meet();
	struct xpi_shm_mr mr = region();
	struct xpi_shm_rkey rkey;
	uint8_t key[XPI_SHM_KEY];
	size_t len = sizeof(key);
	struct pollfd p = {.events = POLLIN};
	void *direct;

	CHECK(ops->fds(two, &p.fd, 1) == 1);
	while (ops->arm(two) != XPORT_OK)
		;
	shm_bell_ring(one, &l.a->state, l.a->state.peer->sleep);
	CHECK(ops->rkey_pack(one, &l.a->state, &mr, key, &len) == XPORT_OK);
	CHECK(unpack(&l, &rkey, key, &direct) == XPORT_OK);
	while (ops->arm(two) != XPORT_OK)
		;
	CHECK(poll(&p, 1, 0) == 0 && send_a(&l, "x", 1) == XPORT_OK && poll(&p, 1, 0) == 1);
	ops->rkey_destroy(two, &rkey);
	ops->mr_dereg(one, &mr);
	part(&l);
}

int main(void)
{
	CHECK(mkdtemp(directory) != NULL);
	shm_dir = directory;
	one = instance();
	two = instance();
	test_files();
	test_wrong_file();
	test_region();
	test_again();
	test_many();
	test_flood();
	test_wrong_region();
	test_bell_beside_region();
	test_no_descriptor();
	test_read_only();
	ops->close(one);
	ops->close(two);
	CHECK(rmdir(directory) == 0);
	printf("ok\n");
	return 0;
}
