/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * serve_file - sends a file to another process without copying it: the file is mapped, registered, and put.
 *
 *   serve_file FILE            the server: prints its address, and sends the file to the first client
 *   serve_file HOST:PORT NEW   the client: maps a new file, which the server fills
 * The file must not become shorter while it is mapped: whoever reads behind its end is killed by SIGBUS.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xport.h>

static xport *x;
static char key[1024];
static uint64_t size; /* of the file */
static void *file;
static xport_mr *mr;
static const char *unfinished = ""; /* the client's file, until it is complete */

static void remove_unfinished(void)
{
	unlink(unfinished);
}

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
		if (c.type == XPORT_EVENT_CLOSED ? c.type != type : c.status < 0)
			errx(1, "the transfer failed: %s", xport_strerror(c.status));
	}
	return c;
}

static void map(const char *name, int fd, int prot, uint32_t rights)
{
	file = mmap(NULL, size, prot, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		err(1, "cannot map %lld bytes of %s", (long long)size, name);
	check(xport_mr_reg(x, file, size, rights, &mr));
}

static void server(const char *name)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = &size, .private_len = sizeof(size)};
	char address[64];
	xport_listener *listener;
	xport_rkey *rkey;
	xport_ep *ep;
	int fd = open(name, O_RDONLY);

	if (fd < 0)
		err(1, "%s", name);
	size = (uint64_t)lseek(fd, 0, SEEK_END);
	map(name, fd, PROT_READ, 0); /* only a source: no peer has rights */
	check(xport_listen(x, "127.0.0.1:0", &attr, &listener));
	check(xport_listener_name(listener, address, sizeof(address)));
	dprintf(STDOUT_FILENO, "%s\n", address);
	check(xport_accept(listener, 60000, &ep));
	check(xport_recv(x, key, sizeof(key), 0, 0, NULL));
	check(xport_rkey_unpack(ep, key, wait_for(XPORT_OP_RECV).length, &rkey));
	check(xport_put(ep, file, size, rkey, 0, &(struct xport_opt){.size = sizeof(struct xport_opt), .mr = mr}));
	wait_for(XPORT_OP_PUT); /* success: all bytes are in the client's file */
	check(xport_ep_close(ep, 5000));
}

static void client(const char *address, const char *name)
{
	struct xport_ep_info peer = {.size = sizeof(peer)};
	size_t key_len = sizeof(key);
	xport_ep *ep;
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0666);

	if (fd < 0)
		err(1, "%s", name);
	unfinished = name;
	atexit(remove_unfinished);
	check(xport_connect(x, address, NULL, 10000, &ep));
	check(xport_ep_query(ep, &peer));
	if (peer.private_len != sizeof(size)) /* it comes with the connection */
		errx(1, "%s is no serve_file", address);
	memcpy(&size, peer.private_data, sizeof(size));
	if ((errno = posix_fallocate(fd, 0, (off_t)size)) != 0)
		err(1, "%s", name);
	map(name, fd, PROT_READ | PROT_WRITE, XPORT_REMOTE_WRITE);
	check(xport_rkey_pack(mr, key, &key_len));
	check(xport_send(ep, key, key_len, 0, NULL));
	wait_for(XPORT_EVENT_CLOSED); /* the server closes when the file is complete */
	unfinished = "";
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 3)
		errx(2, "usage: serve_file FILE, or serve_file HOST:PORT NEW");
	check(xport_open(NULL, &x));
	argc < 3 ? server(argv[1]) : client(argv[1], argv[2]);
	xport_close(x);
	return 0;
}
