/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * serve_file - sends a file to another process without copying it: the file is mapped, registered, and put.
 *
 *   serve_file FILE            the server: prints its address, and sends the file to the first client
 *   serve_file HOST:PORT NEW   the client: maps a new file, which the server fills
 *
 * A file must not become shorter while it is mapped: whoever reads behind its end is killed by SIGBUS.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xport.h>

enum { SECOND = 1000 };
static xport *x;

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status < 0) {
		xport_last_error(x, &e);
		errx(1, "%s: %s. %s", e.operation, e.text, e.hint);
	}
}

/* Makes progress until a completion of this type arrives. */
static struct xport_completion wait_for(uint32_t type)
{
	struct xport_completion c = {0};

	while (c.type != type) {
		check(xport_wait(x, &c, 1, -1));
		if (c.status < 0 && c.type != XPORT_EVENT_CLOSED)
			errx(1, "%s", xport_strerror(c.status));
	}
	return c;
}

static void *map(const char *name, int fd, size_t size, int prot)
{
	void *file = mmap(NULL, size, prot, MAP_SHARED, fd, 0);

	if (file == MAP_FAILED)
		err(1, "%s", name);
	return file;
}

static void server(const char *name)
{
	struct xport_conn_attr attr = {.size = sizeof(attr)};
	char key[1024], address[64];
	xport_listener *listener;
	xport_rkey *rkey;
	struct stat st;
	uint64_t size;
	void *file;
	xport_mr *mr;
	xport_ep *ep;
	int fd = open(name, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) != 0)
		err(1, "%s", name);
	size = (uint64_t)st.st_size;
	file = map(name, fd, size, PROT_READ);
	check(xport_mr_reg(x, file, size, 0, &mr)); /* only a source: no peer has rights */
	attr.private_data = &size;
	attr.private_len = sizeof(size);
	check(xport_listen(x, "127.0.0.1:0", &attr, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	printf("%s\n", address);
	fflush(stdout);
	check(xport_accept(listener, 60 * SECOND, &ep));
	check(xport_recv(x, key, sizeof(key), 0, 0, NULL));
	check(xport_rkey_unpack(ep, key, wait_for(XPORT_OP_RECV).length, &rkey));
	check(xport_put(ep, file, size, rkey, 0, &(struct xport_opt){.size = sizeof(struct xport_opt), .mr = mr}));
	wait_for(XPORT_OP_PUT); /* success: all bytes are in the client's file */
	check(xport_ep_close(ep, 5 * SECOND));
}

static void client(const char *address, const char *name)
{
	struct xport_ep_info peer = {.size = sizeof(peer)};
	char key[1024];
	size_t key_len = sizeof(key);
	uint64_t size;
	xport_mr *mr;
	xport_ep *ep;
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0666);

	check(xport_connect(x, address, NULL, 10 * SECOND, &ep));
	check(xport_ep_query(ep, &peer));
	memcpy(&size, peer.private_data, sizeof(size)); /* it came with the connection */
	if (fd < 0 || (errno = posix_fallocate(fd, 0, (off_t)size)) != 0)
		err(1, "%s", name);
	check(xport_mr_reg(x, map(name, fd, size, PROT_READ | PROT_WRITE), size, XPORT_REMOTE_WRITE, &mr));
	check(xport_rkey_pack(mr, key, &key_len));
	check(xport_send(ep, key, key_len, 0, NULL));
	wait_for(XPORT_EVENT_CLOSED); /* the server closes when the file is complete */
}

int main(int argc, char **argv)
{
	if (argc < 2)
		errx(2, "usage: serve_file FILE, or serve_file HOST:PORT NEW");
	check(xport_open(NULL, &x));
	argc < 3 ? server(argv[1]) : client(argv[1], argv[2]);
	xport_close(x);
	return 0;
}
