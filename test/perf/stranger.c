/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stranger.c - a client that sends messages to an xport_perf server that xport_perf never sends. Exits with 0 if the
 * connections were made.
 *
 *   perf_stranger ADDRESS hello                     connects with private data that is not xport_perf's
 *   perf_stranger ADDRESS silent                    connects and sends nothing
 *   perf_stranger ADDRESS run LETTER [COUNT SIZE]   introduces itself, requests the run of that letter, in JSON, sends
 *                                                   COUNT messages that it did not announce, and prints the answers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xport.h>

enum { LETTER = 256 << 10, KEY = 4096, SPAN = 64 << 20, PATIENCE_MS = 40000 };

#define CONTROL (UINT64_C(1) << 63)

static xport *x;
static xport_ep *ep;
static char letter[LETTER + 1];
static uint8_t body[SPAN];

static _Noreturn void die(const char *what, int r)
{
	printf("stranger: %s: %s\n", what, xport_strerror(r));
	exit(1);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until a completion or an event of this type is there; its status, TIMEOUT, or that of a peer that went away. */
static int await(int type, uint64_t *length)
{
	int64_t until = now_ms() + PATIENCE_MS;
	struct xport_completion c;

	while (now_ms() < until) {
		int n = xport_wait(x, &c, 1, 100);

		if (n < 0)
			die("waiting", n);
		if (n == 1 && (int)c.type == type) {
			*length = c.length;
			return c.status;
		}
		if (n == 1 && (c.type == XPORT_EVENT_LOST || c.type == XPORT_EVENT_CLOSED))
			return XPORT_ERR_PEER_CLOSED;
	}
	return XPORT_ERR_TIMEOUT;
}

static void meet(const char *address, const void *hello, size_t len)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = hello, .private_len = len};
	int r = xport_connect(x, address, &attr, 10000, &ep);

	if (r != XPORT_OK)
		die("connecting", r);
}

static void post(void)
{
	struct xport_opt opt = {.size = sizeof(opt), .source = ep};
	int r = xport_recv(x, letter, LETTER, CONTROL, CONTROL, &opt);

	if (r != XPORT_OK)
		die("receiving", r);
}

static void say(const char *text)
{
	int r = xport_send(ep, text, strlen(text), CONTROL, NULL);

	if (r != XPORT_OK)
		die(text, r);
}

/* The server's next letter; whether there was one. */
static int hear(void)
{
	uint64_t n = 0;
	int r = await(XPORT_OP_RECV, &n);

	if (r != XPORT_OK) {
		printf("stranger: no answer: %s\n", xport_strerror(r));
		return 0;
	}
	printf("%.*s\n", (int)n, letter);
	post();
	return 1;
}

/* So far like a client. */
static void introduce(void)
{
	char key[KEY], text[2 * KEY + 32] = "{\"key\":\"";
	size_t len = sizeof(key), n = strlen(text);
	xport_mr *mr;
	int r;

	snprintf(letter, sizeof(letter),
	         "{\"hello\":{\"format\":1,\"version\":\"0\",\"threads\":1,\"endpoints\":1,\"span\":%d,\"registered\":"
	         "false}}",
	         SPAN);
	say(letter);
	post();
	hear(); /* the welcome */
	r = xport_mr_alloc(x, 4096, XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &mr);
	if (r == XPORT_OK)
		r = xport_rkey_pack(mr, key, &len);
	if (r != XPORT_OK)
		die("memory", r);
	for (size_t i = 0; i < len; i++)
		n += (size_t)snprintf(text + n, 3, "%02x", (unsigned char)key[i]);
	snprintf(text + n, 3, "\"}");
	say(text);
	hear(); /* its key */
}

static void run(const char *wish, long count, size_t size)
{
	introduce();
	say(wish);
	if (!hear())
		return;
	for (long i = 0; i < count; i++) {
		int r = xport_send(ep, body, size, 0, NULL);

		if (r != XPORT_OK)
			die("sending", r);
	}
	if (count == 0)
		return;
	say("{\"end\":[0]}");
	if (!hear() || !hear())
		return;
	say("{\"bye\":true}");
	hear();
}

int main(int argc, char **argv)
{
	static const char nobody[] = "xport_perf1\t0", client[] = "xport_perf 0000000000000001 0";
	struct xport_attr attr = {.size = sizeof(attr)};
	int how = argc > 2 ? argv[2][0] : '\0', r = xport_open(&attr, &x);
	uint64_t n;

	if (how == '\0' || (how == 'r' && argc != 4 && argc != 6))
		return 2;
	if (r != XPORT_OK)
		die("opening", r);
	if (how == 'h')
		meet(argv[1], nobody, sizeof(nobody) - 1);
	else
		meet(argv[1], client, sizeof(client) - 1);
	if (how == 'r')
		run(argv[3], argc == 6 ? atol(argv[4]) : 0, argc == 6 ? (size_t)atol(argv[5]) : 0);
	else
		printf("stranger: %s\n", xport_strerror(await(XPORT_EVENT_CLOSED, &n)));
	xport_ep_close(ep, 1000);
	xport_close(x);
	return 0;
}
