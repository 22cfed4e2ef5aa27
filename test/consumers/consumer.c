/* SPDX-License-Identifier: BSD-3-Clause */
/* consumer - a program of somebody else's, in C and in C++17: one process puts, the other one checks what arrived.
 * With CONSUMER_DLOPEN it is linked with no libxport, and loads the one that it is told. */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xport.h>

#ifdef CONSUMER_DLOPEN
#include <dlfcn.h>
static void *library;
#define F(name) ((__typeof__(&name))dlsym(library, #name))
#else
#define F(name) name
#endif

enum { SIZE = 100003 };
static unsigned char memory[SIZE];
static xport *x;
static xport_ep *ep;

static void must(const char *step, int status)
{
	struct xport_error e;

	if (status >= 0)
		return;
	memset(&e, 0, sizeof(e));
	e.size = sizeof(e);
	(void)F(xport_last_error)(x, &e);
	fprintf(stderr, "consumer: %s: %s: %s\n", step, F(xport_strerror)(status), e.text);
	_exit(1);
}

/* Until a completion of this type comes. */
static void reap(uint32_t type)
{
	struct xport_completion c;
	int n;

	do {
		memset(&c, 0, sizeof(c));
		n = F(xport_wait)(x, &c, 1, 30000);
		must("wait", n == 0 ? XPORT_ERR_TIMEOUT : n);
		must("completion", c.type == XPORT_EVENT_CLOSED && c.type == type ? 0 : c.status);
	} while (c.type != type);
}

static void target(int to)
{
	struct xport_conn_attr attr;
	char key[1024], name[64];
	xport_listener *listener;
	xport_mr *mr;

	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.private_data = key;
	attr.private_len = sizeof(key);
	must("open", F(xport_open)(NULL, &x));
	must("register", F(xport_mr_reg)(x, memory, SIZE, XPORT_REMOTE_WRITE, &mr));
	must("key", F(xport_rkey_pack)(mr, key, &attr.private_len));
	must("listen", F(xport_listen)(x, "127.0.0.1:0", &attr, &listener));
	must("name", F(xport_listener_name)(listener, name, sizeof(name)));
	must("tell", write(to, name, sizeof(name)) == (ssize_t)sizeof(name) ? 0 : XPORT_ERR_SYSTEM);
	must("accept", F(xport_accept)(listener, 30000, &ep));
	reap(XPORT_EVENT_CLOSED);
	for (int i = 0; i < SIZE; i++)
		must("the bytes that were put", memory[i] == (unsigned char)(i * 7 + i / 251) ? 0 : XPORT_ERR_PROTOCOL);
	F(xport_close)(x);
	_exit(0);
}

static void initiator(int from)
{
	struct xport_ep_info peer;
	struct xport_info info;
	xport_rkey *rkey;
	char name[64];

	for (int i = 0; i < SIZE; i++)
		memory[i] = (unsigned char)(i * 7 + i / 251);
	must("hear", read(from, name, sizeof(name)) == (ssize_t)sizeof(name) ? 0 : XPORT_ERR_SYSTEM);
	must("open", F(xport_open)(NULL, &x));
	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	must("query", F(xport_query)(x, &info));
	must("connect", F(xport_connect)(x, name, NULL, 30000, &ep));
	memset(&peer, 0, sizeof(peer));
	peer.size = sizeof(peer);
	must("peer", F(xport_ep_query)(ep, &peer));
	must("key", F(xport_rkey_unpack)(ep, peer.private_data, peer.private_len, &rkey));
	must("put", F(xport_put)(ep, memory, SIZE, rkey, 0, NULL));
	reap(XPORT_OP_PUT);
	must("end", F(xport_ep_close)(ep, 5000));
	F(xport_close)(x);
	printf("xport %s put %d bytes over %s:%s\n", F(xport_version)(), (int)SIZE, info.backend, info.provider);
}

int main(int argc, char **argv)
{
	int address[2], status = -1;

#ifdef CONSUMER_DLOPEN
	library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		fprintf(stderr, "consumer: %s\n", dlerror());
		return 1;
	}
#else
	(void)argc;
	(void)argv;
#endif
	if (pipe(address) != 0)
		return 1;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		close(address[0]);
		target(address[1]);
		break;
	default:
		close(address[1]);
		initiator(address[0]);
	}
	return wait(&status) > 0 && status == 0 ? 0 : 1;
}
