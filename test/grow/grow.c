/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grow.c - a program that hands over each struct of xport.h that has a size, with guards behind it, and says which.
 *
 * Compiled with the header as it is, and with one in which each struct has a member `added` at its end (GROWN); run with
 * the library as it is, and with one that was built with the other header.  An argument means that the library does not
 * know the member: what asks for it must then be refused.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xport.h>

enum { GUARD = 64, ROOM = 4096 };

static bool unknown; /* the library does not know the member */
static int failures;

#define CHECK(c) \
	do { \
		if (!(c)) \
			failures++, printf("line %d: %s\n", __LINE__, #c); \
	} while (0)

/* Memory for n structs of the size, full of rubbish, and guards behind it. */
static unsigned char room[ROOM + GUARD];

static void *fresh(size_t size, int n)
{
	memset(room, 0xa5, sizeof(room));
	if (size * (size_t)n > ROOM)
		abort();
	memcpy(room, &size, sizeof(size));
	return room;
}

static bool untouched(size_t used)
{
	for (size_t i = used; i < used + GUARD; i++)
		if (room[i] != 0xa5)
			return false;
	return true;
}

#ifdef GROWN
#define ADDED(s) ((s)->added)
#define ADD(s, value) ((s)->added = (value))
#else
#define ADDED(s) ((void)(s), 0)
#define ADD(s, value) ((void)(s))
#endif

/* A struct that the library fills: it does so, and writes nothing behind. */
#define FILLED(type, call) \
	do { \
		struct type *s = fresh(sizeof(*s), 1); \
		CHECK((call) == XPORT_OK); \
		CHECK(s->size == sizeof(*s)); \
		CHECK(ADDED(s) == 0); \
		CHECK(untouched(sizeof(*s))); \
		memset(s, 0, sizeof(*s)); \
		s->size = sizeof(s->size); \
		CHECK((call) != XPORT_OK); \
		s->size = (size_t)1 << 40; \
		CHECK((call) != XPORT_OK); \
		printf("struct %s\n", #type); \
	} while (0)

/* A struct that the library reads, which s is: good as it is, and with the member if the library knows that. */
#define READ(type, s, call) \
	do { \
		size_t size = (s)->size; \
		CHECK((call) == XPORT_OK); \
		undo(); \
		ADD(s, 1); \
		CHECK(unknown == ((call) != XPORT_OK)); \
		undo(); \
		ADD(s, 0); \
		(s)->size = 4; \
		CHECK((call) != XPORT_OK); \
		(s)->size = (size_t)1 << 40; \
		CHECK((call) != XPORT_OK); \
		(s)->size = size; \
		printf("struct %s\n", #type); \
	} while (0)

static xport *x, *other;
static xport_listener *listener, *second;
static xport_ep *here, *there, *third;
static char address[64];
static uint64_t id;

/* What a good call left behind. */
static void undo(void)
{
	struct xport_completion c[16];

	xport_close(other);
	other = NULL;
	xport_listener_close(second);
	second = NULL;
	if (third != NULL)
		xport_ep_destroy(third);
	third = NULL;
	while (x != NULL && xport_poll(x, c, 16) > 0)
		continue;
}

static void open_and_connect(void)
{
	struct xport_attr attr = {.size = sizeof(attr), .backend = "loop", .log_level = XPORT_LOG_ERROR};
	struct xport_conn_attr conn = {.size = sizeof(conn), .backlog = 3};

	READ(xport_attr, &attr, xport_open(&attr, &other));
	attr = (struct xport_attr){.size = sizeof(attr), .backend = "loop"};
	CHECK(xport_open(&attr, &x) == XPORT_OK);
	CHECK(xport_listen(x, "127.0.0.1:0", NULL, &listener) == XPORT_OK);
	CHECK(xport_listener_name(listener, address, sizeof(address)) == XPORT_OK);
	READ(xport_conn_attr, &conn, xport_listen(x, "127.0.0.1:0", &conn, &second));
	CHECK(xport_connect(x, address, NULL, 0, &here) == XPORT_OK);
	CHECK(xport_accept(listener, 5000, &there) == XPORT_OK);
	undo();
}

static void fill_all(xport_mr *mr, xport_rkey *rkey)
{
	struct xport_attr bad = {.size = 1};
	xport *y;

	FILLED(xport_info, xport_query(x, s));
	FILLED(xport_ep_info, xport_ep_query(here, s));
	FILLED(xport_counters, xport_stats(x, NULL, s));
	FILLED(xport_mr_info, xport_mr_query(mr, s));
	FILLED(xport_rkey_info, xport_rkey_query(rkey, s));
	CHECK(xport_open(&bad, &y) != XPORT_OK);
	FILLED(xport_error, xport_last_error(NULL, s));
	CHECK(xport_listen(x, "nonsense", NULL, &second) == XPORT_ERR_ADDRESS);
	FILLED(xport_error, xport_last_error(x, s));
}

#define ENTRIES(type, call) \
	do { \
		struct type *s = fresh(sizeof(*s), 2); \
		int all = (call); \
		CHECK(all >= 2); \
		CHECK(s[1].name != NULL && strlen(s[1].name) > 0); \
		CHECK(ADDED(&s[1]) == 0); \
		CHECK(untouched(2 * sizeof(*s))); \
		printf("struct %s\n", #type); \
	} while (0)

static void list_all(void)
{
	struct xport_candidate c[2];
	struct xport_variable v[2];

	ENTRIES(xport_candidate, xport_list(NULL, s, sizeof(*s), 2));
	ENTRIES(xport_variable, xport_variables(s, sizeof(*s), 2));
	CHECK(xport_list(NULL, c, sizeof(c[0]) / 2, 2) == XPORT_ERR_INVALID);
	CHECK(xport_variables(v, (size_t)1 << 40, 2) == XPORT_ERR_INVALID);
}

static void operate(xport_rkey *rkey)
{
	struct xport_atomic_args args = {.size = sizeof(args), .op = XPORT_ATOMIC_ADD, .width = 8, .operand = 1};
	struct xport_opt opt = {.size = sizeof(opt)};
	uint64_t word = 7;

	/* Some go a short way, if there is nothing that they ask for. */
	READ(xport_opt, &opt, xport_put(here, &word, 8, rkey, 0, &opt));
	READ(xport_opt, &opt, xport_get(here, &word, 8, rkey, 0, &opt));
	READ(xport_opt, &opt, xport_put_notify(here, &word, 8, rkey, 0, &opt));
	READ(xport_opt, &opt, xport_atomic(here, &args, rkey, 0, &opt));
	READ(xport_opt, &opt, xport_send(here, &word, 8, 5, &opt));
	READ(xport_opt, &opt, xport_recv(x, &word, 8, 5, 0, &opt));
	READ(xport_opt, &opt, xport_flush(here, &opt));
	opt.flags = XPORT_LOCAL;
	READ(xport_opt, &opt, xport_put(here, &word, 8, rkey, 0, &opt));
	READ(xport_atomic_args, &args, xport_atomic(here, &args, rkey, 0, NULL));
	opt = (struct xport_opt){.size = sizeof(opt), .id = &id};
	CHECK(xport_recv(x, &word, 8, 99, ~(uint64_t)0, &opt) == XPORT_OK && id != 0);
}

int main(int argc, char **argv)
{
	static uint64_t memory[8];
	char key[1024];
	size_t len = sizeof(key);
	xport_mr *mr = NULL;
	xport_rkey *rkey = NULL;

#ifdef GROWN
	unknown = argc > 1;
#endif
	(void)argv;
	(void)argc;
	open_and_connect();
	if (failures > 0)
		return 1;
	CHECK(xport_mr_reg(x, memory, sizeof(memory), XPORT_REMOTE_READ | XPORT_REMOTE_WRITE | XPORT_REMOTE_ATOMIC,
	                   &mr) == XPORT_OK);
	CHECK(xport_rkey_pack(mr, key, &len) == XPORT_OK);
	CHECK(xport_rkey_unpack(here, key, len, &rkey) == XPORT_OK);
	fill_all(mr, rkey);
	list_all();
	operate(rkey);
	xport_close(x);
	return failures > 0;
}
