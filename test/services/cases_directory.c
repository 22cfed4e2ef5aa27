/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_directory.c - regions of several processes, found by name; what is left when one of them dies. */
#include "services/user.h"

enum { MANY = 300 };

/* ---- put, find, use, replace, remove ---- */

static void serve(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct xport_directory_entry e;
	uint8_t *mine = h_buf(h, U_LEN);
	xport_mr *mr;
	struct u u;

	u_begin(&u, h, (int)h->param, &a);
	h_fill(mine, U_LEN, 9);
	H_OK(xport_mr_reg(h->x, mine, U_LEN, XPORT_REMOTE_READ, &mr));
	e = u_region(h, mr, 0, U_LEN);
	H_STATUS(u_etcd() ? XPORT_OK : XPORT_ERR_INVALID, xport_directory_join(u.d, h->ep[1]));
	H_OK(u_put(&u, "the server's own", &e));
	H_OK(u_find(&u, "the server's own", &e));
	H_TRUE(strcmp(e.node, "role 0") == 0);
	u_meet(&u, 1);
	u_meet(&u, 2);
	while (!h_heard(h, 2)) /* serves */
		u_turn(&u);
	h_hear_u64(h, 2);
	H_EQ(u_etcd() ? 0 : 2, u_info(&u).peers);
	H_STATUS(XPORT_ERR_UNREACHABLE, u_find(&u, "a", &e));
	h_tell_u64(h, 1, 1);
	h_tell_u64(h, 2, 1);
	u_turn_for(&u, 20);
	u_end(&u);
	h_sync(h);
}

static void use_owner(struct h *h)
{
	static const char binary[] = {0, 1, (char)0xff, 'x', 0};
	uint8_t *buf = h_buf(h, U_LEN), *second = h_buf(h, U_LEN);
	struct xport_directory_event event;
	struct xport_directory_entry e;
	char longest[256];
	xport_mr *mr, *mr2, *nic;
	struct u u;

	u_begin(&u, h, (int)h->param, NULL);
	u_meet(&u, 0);
	h_fill(buf, U_LEN, 1);
	H_OK(xport_mr_reg(h->x, buf, U_LEN, XPORT_REMOTE_READ, &mr));
	e = u_region(h, mr, 0, U_LEN);
	H_EQ(XPORT_REMOTE_READ, e.rights);
	memset(longest, 'n', sizeof(longest));
	H_OK(xport_directory_put(u.d, "a", 1, &e, 0, &e));
	event = U_DONE(&u);
	H_OK(event.status);
	H_TRUE(event.context == &e);
	H_TRUE(event.entry.version > 0);
	H_OK(xport_directory_put(u.d, longest, 255, &e, 0, NULL));
	H_OK(U_DONE(&u).status);
	H_OK(xport_directory_put(u.d, binary, sizeof(binary), &e, 0, NULL));
	H_OK(U_DONE(&u).status);
	H_STATUS(XPORT_ERR_INVALID, xport_directory_put(u.d, longest, 256, &e, 0, NULL));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_directory_put", "1 to 255");
	H_STATUS(XPORT_ERR_INVALID, xport_directory_put(u.d, "", 0, &e, 0, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_put(u.d, "x", 1, &e, 2, NULL));
	H_STATUS(XPORT_ERR_BUSY, u_put(&u, "the server's own", &e));
	H_OK(xport_directory_remove(u.d, "the server's own", 16, NULL));
	H_STATUS(XPORT_ERR_ACCESS, U_DONE(&u).status);
	H_OK(xport_directory_remove(u.d, "nobody's", 8, NULL));
	H_STATUS(XPORT_ERR_UNREACHABLE, U_DONE(&u).status);
	/* All rights that there are. */
	H_OK(xport_mr_alloc(h->x, U_LEN, H_ALL | XPORT_ATOMIC_NIC, &nic));
	e = u_region(h, nic, 0, U_LEN);
	H_OK(u_put(&u, "nic", &e));
	H_OK(u_find(&u, "nic", &e));
	H_EQ(H_ALL | XPORT_ATOMIC_NIC, e.rights);
	H_STATUS(XPORT_ERR_BOUNDS, xport_directory_region(mr, 1, U_LEN, &e));
	H_STATUS(u_etcd() ? XPORT_OK : XPORT_ERR_BUSY, xport_directory_join(u.d, h->ep[2]));
	u_meet(&u, 2); /* it looks */
	u_meet(&u, 2);
	/* Replaced by a part of another region. */
	h_fill(second + 1000, 2000, 2);
	H_OK(xport_mr_reg(h->x, second, U_LEN, XPORT_REMOTE_READ, &mr2));
	e = u_region(h, mr2, 1000, 2000);
	H_OK(u_put(&u, "a", &e));
	u_meet(&u, 2);
	u_meet(&u, 2);
	H_OK(xport_mr_dereg(mr2)); /* the directory does not know */
	u_meet(&u, 2);
	u_meet(&u, 2);
	H_OK(xport_directory_remove(u.d, "a", 1, NULL));
	H_OK(U_DONE(&u).status);
	u_meet(&u, 2);
	while (!h_heard(h, 0))
		u_turn(&u);
	h_hear_u64(h, 0);
	u_end(&u);
	h_sync(h);
}

static void use_user(struct h *h)
{
	static const char binary[] = {0, 1, (char)0xff, 'x', 0};
	struct xport_directory_event event;
	struct xport_directory_entry e;
	uint64_t first;
	char longest[255];
	struct u u;

	u_begin(&u, h, (int)h->param, NULL);
	u_meet(&u, 0);
	u_meet(&u, 1);
	H_OK(u_find(&u, "a", &e));
	first = e.version;
	H_EQ(U_LEN, e.length);
	H_TRUE(strcmp(e.node, "role 1") == 0);
	H_OK(u_fetch(&u, &e, 1));
	memset(longest, 'n', sizeof(longest));
	H_OK(xport_directory_find(u.d, longest, 255, NULL));
	H_OK(U_DONE(&u).status);
	H_OK(xport_directory_find(u.d, longest, 254, NULL));
	H_STATUS(XPORT_ERR_UNREACHABLE, U_DONE(&u).status);
	H_OK(xport_directory_find(u.d, binary, sizeof(binary), NULL));
	event = U_DONE(&u);
	H_OK(event.status);
	H_OK(u_fetch(&u, &event.entry, 1));
	H_OK(u_find(&u, "the server's own", &e));
	H_OK(u_fetch(&u, &e, 9));
	u_meet(&u, 1);
	u_meet(&u, 1);
	H_OK(u_find(&u, "a", &e));
	H_TRUE(e.version > first);
	H_EQ(2000, e.length);
	H_OK(u_fetch(&u, &e, 2));
	u_meet(&u, 1);
	u_meet(&u, 1);
	H_STATUS(XPORT_ERR_STALE_KEY, u_fetch(&u, &e, 2));
	u_meet(&u, 1);
	u_meet(&u, 1);
	H_STATUS(XPORT_ERR_UNREACHABLE, u_find(&u, "a", &e));
	h_tell_u64(h, 0, 1);
	while (!h_heard(h, 0))
		u_turn(&u);
	h_hear_u64(h, 0);
	u_end(&u);
	h_sync(h);
}

/* ---- watching, and being told without ---- */

static void watch_server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct xport_directory_event e;
	struct u u;

	u_begin(&u, h, 0, &a);
	H_OK(xport_directory_watch(u.d, NULL));
	H_OK(U_DONE(&u).status);
	for (int i = 0; i < MANY; i++)
		U_NEXT(&u, XPORT_DIRECTORY_CHANGED);
	u_meet(&u, 1);
	e = U_NEXT(&u, XPORT_DIRECTORY_CHANGED);
	H_TRUE(u_is(&e, "to all"));
	e = U_NEXT(&u, XPORT_DIRECTORY_GONE);
	H_TRUE(u_is(&e, "name 7"));
	for (int i = 0; i < MANY; i++) /* the owner ends its directory: 299 names, and "to all" */
		U_NEXT(&u, XPORT_DIRECTORY_GONE);
	H_EQ(0, u_info(&u).names);
	u_meet(&u, 2);
	u_meet(&u, 3);
	u_turn_for(&u, 20);
	u_end(&u);
	h_sync(h);
}

static void watch_owner(struct h *h)
{
	struct xport_directory_entry e;
	uint8_t *buf = h_buf(h, U_LEN);
	char name[32];
	xport_mr *mr;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_mr_reg(h->x, buf, U_LEN, XPORT_REMOTE_READ, &mr));
	e = u_region(h, mr, 0, U_LEN);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		e.offset = (uint64_t)i;
		e.length = 1;
		H_OK(xport_directory_put(u.d, name, strlen(name), &e, 0, NULL));
	}
	for (int i = 0; i < MANY; i++)
		H_OK(U_DONE(&u).status);
	u_meet(&u, 0);
	u_meet(&u, 2); /* it has begun to watch */
	u_meet(&u, 3);
	H_OK(xport_directory_put(u.d, "to all", 6, &e, XPORT_DIRECTORY_BROADCAST, NULL));
	H_OK(U_DONE(&u).status);
	U_NEXT(&u, XPORT_DIRECTORY_CHANGED); /* to this one, too */
	H_OK(xport_directory_remove(u.d, "name 7", 6, NULL));
	H_OK(U_DONE(&u).status);
	u_meet(&u, 2);
	u_meet(&u, 3);
	u_end(&u);
	h_sync(h);
}

static void watch_watcher(struct h *h)
{
	bool seen[MANY] = {false};
	struct xport_directory_event e;
	struct xport_directory_entry entry;
	uint64_t version = 0;
	int n;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_directory_watch(u.d, &u));
	e = U_DONE(&u);
	H_OK(e.status);
	for (int i = 0; i < MANY; i++) {
		char name[257];

		e = U_NEXT(&u, XPORT_DIRECTORY_CHANGED);
		memcpy(name, e.name, e.name_len);
		name[e.name_len] = 0;
		H_EQ(1, sscanf(name, "name %d", &n));
		H_TRUE(n >= 0 && n < MANY && !seen[n]);
		seen[n] = true;
		H_EQ(n, e.entry.offset);
		H_TRUE(e.entry.version > version || u_etcd()); /* etcd: what is there comes in the order of names */
		version = e.entry.version;
	}
	u_meet(&u, 1);
	e = U_NEXT(&u, XPORT_DIRECTORY_CHANGED);
	H_TRUE(u_is(&e, "to all"));
	e = U_NEXT(&u, XPORT_DIRECTORY_GONE);
	H_TRUE(u_is(&e, "name 7"));
	H_EQ(MANY, u_info(&u).names);
	H_OK(u_find(&u, "name 8", &entry)); /* known here */
	H_EQ(8, entry.offset);
	H_EQ(1, u_info(&u).hits);
	H_STATUS(XPORT_ERR_UNREACHABLE, u_find(&u, "name 7", &entry));
	H_EQ(1, u_info(&u).hits);
	u_meet(&u, 1);
	for (int i = 0; i < MANY; i++)
		U_NEXT(&u, XPORT_DIRECTORY_GONE);
	H_EQ(0, u_info(&u).names);
	u_meet(&u, 0);
	u_end(&u);
	h_sync(h);
}

/* Hears of the broadcast and its end, and of nothing else. */
static void watch_bystander(struct h *h)
{
	struct xport_directory_event e;
	struct xport_directory_entry entry;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_STATUS(XPORT_ERR_UNREACHABLE,
	         u_find(&u, "nobody's", &entry)); /* the server knows of it: it is told of broadcasts */
	u_meet(&u, 1);
	e = U_NEXT(&u, XPORT_DIRECTORY_CHANGED);
	H_TRUE(u_is(&e, "to all"));
	H_TRUE(strcmp(e.entry.node, "role 1") == 0);
	u_meet(&u, 1);
	e = U_NEXT(&u, XPORT_DIRECTORY_GONE);
	H_TRUE(u_is(&e, "to all"));
	u_meet(&u, 0);
	u_end(&u);
	h_sync(h);
}

/* ---- death ---- */

static void victim_owner(struct h *h)
{
	struct xport_directory_entry e;
	struct u u;

	u_begin(&u, h, 0, NULL);
	u_publish(&u, "mortal", &e);
	u_meet(&u, 2);
	for (;;)
		u_turn(&u);
}

static void owner_dies_server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct u u;

	u_begin(&u, h, 0, &a);
	while (!h_heard(h, 2))
		u_turn(&u);
	h_hear_u64(h, 2);
	H_EQ(0, u_info(&u).names);
	H_EQ(u_etcd() ? 0 : 1, u_info(&u).peers);
	u_end(&u);
	h_sync_with(h, 2);
}

static void owner_dies_user(struct h *h)
{
	struct xport_directory_event e;
	struct xport_directory_entry entry;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_directory_watch(u.d, NULL));
	H_OK(U_DONE(&u).status);
	e = U_NEXT(&u, XPORT_DIRECTORY_CHANGED);
	u_meet(&u, 1);
	entry = e.entry;
	h_kill(h, 1, SIGKILL);
	e = U_NEXT(&u, XPORT_DIRECTORY_GONE);
	H_TRUE(u_is(&e, "mortal"));
	H_STATUS(XPORT_ERR_UNREACHABLE, u_find(&u, "mortal", &e.entry));
	while (atomic_load(&u.gone) == 0)
		u_turn(&u);
	H_CHECK(u_fetch(&u, &entry, 0) < 0, "a get of a dead process's memory succeeded");
	h_tell_u64(h, 0, 1);
	if (!u_etcd())
		H_STATUS(XPORT_ERR_PEER_CLOSED, U_NEXT(&u, XPORT_DIRECTORY_LOST).status); /* it ends properly */
	u_end(&u);
	h_sync_with(h, 0);
}

/* The server forgets one that lives: the others hear of it at once, without anything that happens besides. */
static void forgets_server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct u u;

	u_begin(&u, h, 0, &a);
	while (!h_heard(h, 2))
		u_turn(&u);
	h_hear_u64(h, 2);
	xport_directory_forget(u.d, h->ep[1]);
	while (!h_heard(h, 2))
		H_TRUE(xport_poll(h->x, NULL, 0) >= 0);
	h_hear_u64(h, 2);
	u_end(&u);
	h_sync_with(h, 2);
}

static void forgets_user(struct h *h)
{
	struct xport_directory_event e;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_directory_watch(u.d, NULL));
	H_OK(U_DONE(&u).status);
	(void)U_NEXT(&u, XPORT_DIRECTORY_CHANGED);
	u_meet(&u, 1);
	h_tell_u64(h, 0, 1);
	e = U_NEXT(&u, XPORT_DIRECTORY_GONE);
	H_TRUE(u_is(&e, "mortal"));
	h_tell_u64(h, 0, 1);
	h_kill(h, 1, SIGKILL);
	e = U_NEXT(&u, XPORT_DIRECTORY_LOST);
	H_STATUS(XPORT_ERR_PEER_CLOSED, e.status);
	u_end(&u);
	h_sync_with(h, 0);
}

static void server_dies(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct u u;

	u_begin(&u, h, 0, &a);
	for (;;)
		u_turn(&u);
}

/* What it has in hand goes on; what it asks does not hang; it can join the next one. */
static void server_dies_user(struct h *h)
{
	struct xport_directory_event e;
	struct xport_directory_entry entry;
	struct u u;

	u_begin(&u, h, 0, NULL);
	u_meet(&u, 2); /* "lasting" was put */
	H_OK(xport_directory_watch(u.d, NULL));
	H_OK(U_DONE(&u).status);
	entry = U_NEXT(&u, XPORT_DIRECTORY_CHANGED).entry;
	h_stop(h, 0);
	H_OK(u_find(&u, "lasting", &entry)); /* known here */
	H_OK(xport_directory_find(u.d, "unknown", 7, NULL));
	u_turn_for(&u, 30);
	h_kill(h, 0, SIGKILL);
	H_STATUS(XPORT_ERR_PEER_LOST, U_DONE(&u).status);
	e = U_NEXT(&u, XPORT_DIRECTORY_LOST);
	H_STATUS(XPORT_ERR_PEER_LOST, e.status);
	H_STATUS(XPORT_ERR_CLOSED, xport_directory_find(u.d, "lasting", 7, NULL));
	SVC_ERROR(XPORT_ERR_CLOSED, "xport_directory_find", "xport_directory_join");
	H_OK(u_fetch(&u, &entry, 4));
	u_meet(&u, 2);
	u_meet(&u, 2); /* now it serves */
	H_OK(xport_directory_join(u.d, h->ep[2]));
	H_OK(u_find(&u, "lasting", &entry));
	H_OK(u_fetch(&u, &entry, 4));
	h_tell_u64(h, 2, 1);
	u_end(&u);
	h_sync_with(h, 2);
}

static void server_dies_owner(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct xport_directory_entry e;
	uint8_t *buf = h_buf(h, U_LEN);
	xport_mr *mr;
	struct u u;

	u_begin(&u, h, 0, NULL);
	h_fill(buf, U_LEN, 4);
	H_OK(xport_mr_reg(h->x, buf, U_LEN, XPORT_REMOTE_READ, &mr));
	e = u_region(h, mr, 0, U_LEN);
	H_OK(u_put(&u, "lasting", &e));
	u_meet(&u, 1);
	H_STATUS(XPORT_ERR_PEER_LOST, U_NEXT(&u, XPORT_DIRECTORY_LOST).status);
	u_meet(&u, 1);
	H_OK(xport_directory_destroy(u.d, u_other, &u, h_ms(h->limit_ms)));
	a.node = u.node;
	H_OK(xport_directory_create(h->x, &a, &u.d));
	H_OK(u_put(&u, "lasting", &e));
	u_meet(&u, 1);
	while (!h_heard(h, 1))
		u_turn(&u);
	h_hear_u64(h, 1);
	u_turn_for(&u, 20);
	u_end(&u);
	h_sync_with(h, 1);
}

/* ---- a watcher that is made anew while it is told ---- */

enum { TOLD = 10 };

static void anew_server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct xport_directory_entry e;
	char name[] = "name 0";
	struct u u;

	u_begin(&u, h, 0, &a);
	u_publish(&u, "first", &e);
	u_meet(&u, 1);
	for (int i = 0; i < TOLD; i++) {
		name[5] = (char)('0' + i);
		H_OK(u_put(&u, name, &e));
	}
	u_turn_for(&u, 20);
	h_sync(h);
	u_meet(&u, 1);
	H_EQ(u_etcd() ? 0 : 1, u_info(&u).peers);
	H_EQ(0, u_info(&u).muted);
	u_meet(&u, 1);
	u_end(&u);
	h_sync(h);
}

static void anew_user(struct h *h)
{
	struct xport_directory_entry e;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_directory_watch(u.d, NULL));
	H_OK(U_DONE(&u).status);
	u_meet(&u, 0);
	h_sync(h);
	H_OK(xport_directory_destroy(u.d, u_other, &u, h_ms(h->limit_ms)));
	H_OK(xport_directory_create(h->x, NULL, &u.d));
	H_OK(xport_directory_join(u.d, h->ep[0]));
	H_OK(u_find(&u, "first", &e));
	H_OK(u_find(&u, "name 9", &e));
	u_meet(&u, 0);
	H_EQ(0, u_info(&u).muted);
	u_meet(&u, 0);
	u_end(&u);
	h_sync(h);
}

/* ---- the directory ends while what it told is not taken yet ---- */

static void untaken_server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct xport_directory_entry e;
	struct u u;

	u_begin(&u, h, 0, &a);
	u_publish(&u, "first", &e);
	u_meet(&u, 1);
	u_meet(&u, 1);
	u_end(&u);
	h_sync(h);
}

static void untaken_user(struct h *h)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	struct u u;

	u_begin(&u, h, 0, NULL);
	u_meet(&u, 0);
	H_OK(xport_directory_watch(u.d, NULL));
	H_OK(U_DONE(&u).status);
	u_turn_for(&u, 20);
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	H_OK(xport_ep_close(h->ep[0], 0));
	H_EQ(1, xport_directory_next(u.d, &e));
	H_EQ(XPORT_DIRECTORY_CHANGED, e.type);
	U_NEXT(&u, XPORT_DIRECTORY_LOST);
	H_EQ(-1, xport_directory_timeout(u.d)); /* there is nothing to be said */
	u_end(&u);
	h_sync(h);
}

static void wrong(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a)};
	struct xport_directory_event e = {.size = 1};
	struct xport_directory_info i = {.size = 1};
	struct xport_directory_entry entry;
	char node[65];
	xport_directory *d;

	h_open(h, NULL);
	memset(node, 'x', 64);
	node[64] = 0;
	H_STATUS(XPORT_ERR_INVALID, xport_directory_create(NULL, NULL, &d));
	a.node = node;
	H_STATUS(XPORT_ERR_INVALID, xport_directory_create(h->x, &a, &d));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_directory_create", "63 bytes");
	H_OK(xport_directory_create(h->x, NULL, &d));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_next(d, &e));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_query(d, &i));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_join(d, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_step(NULL, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_region(NULL, 0, 0, &entry));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_put(d, "x", 1, NULL, 0, NULL));
	H_STATUS(XPORT_ERR_CLOSED, xport_directory_find(d, "x", 1, NULL));
	H_STATUS(XPORT_ERR_CLOSED, xport_directory_watch(d, NULL));
	e.size = sizeof(e);
	H_STATUS(XPORT_ERR_TIMEOUT, xport_directory_wait(d, &e, NULL, NULL, 20));
	H_STATUS(XPORT_ERR_INVALID, xport_directory_wait(d, &e, NULL, NULL, -2));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_directory_wait", "below -1");
	H_STATUS(XPORT_ERR_INVALID, xport_directory_destroy(d, NULL, NULL, INT32_MIN));
	H_EQ(-1, xport_directory_timeout(d));
	xport_directory_forget(d, NULL);
	H_OK(xport_directory_destroy(NULL, NULL, NULL, 0));
	H_OK(xport_directory_destroy(d, NULL, NULL, h_ms(h->limit_ms)));
}

static const struct h_param drivers[] = {{"loop", 0}, {"wait", U_WAIT}, {"thread", U_THREAD}, {NULL, 0}};

const struct h_scenario svc_cases_directory[] = {
	{"directory_wrong", {wrong}, NULL, H_ONCE, 0},
	{"directory_use", {serve, use_owner, use_user}, drivers, H_ONCE, 0},
	{"directory_watch", {watch_server, watch_owner, watch_watcher, watch_bystander}, NULL, H_ONCE, 0},
	{"directory_anew", {anew_server, anew_user}, NULL, H_ONCE, 0},
	{"directory_untaken", {untaken_server, untaken_user}, NULL, H_ONCE, 0},
	{"directory_owner_dies", {owner_dies_server, victim_owner, owner_dies_user}, NULL, H_KILLS | H_ONCE, 0},
	{"directory_forgets", {forgets_server, victim_owner, forgets_user}, NULL, H_KILLS | H_ONCE, 0},
	{"directory_server_dies", {server_dies, server_dies_user, server_dies_owner}, NULL, H_KILLS | H_ONCE, 0},
	{0},
};
