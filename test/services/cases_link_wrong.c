/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_link_wrong.c - links, keys and operations with arguments that are refused. */
#include "services/link_user.h"

static void expect_refused(struct h *h, xport_links *l, const struct xport_link_attr *a, const char *words)
{
	const char *address = "127.0.0.1:1";
	xport_link *link;

	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, &address, 1, a, &link));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_open", words);
}

static void addresses_wrong(struct h *h, xport_links *l)
{
	char longest[XPORT_LINK_ADDRESS_MAX + 2];
	const char *list[17];
	xport_link *link;

	for (int i = 0; i < 17; i++)
		list[i] = "127.0.0.1:1";
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, list, 0, NULL, &link));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_open", "1 to 16 addresses, not 0");
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, NULL, 1, NULL, &link));
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, list, 17, NULL, &link));
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(NULL, list, 1, NULL, &link));
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, list, 1, NULL, NULL));
	list[1] = "";
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, list, 2, NULL, &link));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_open", "address 1 is NULL, empty, or longer");
	list[1] = NULL;
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, list, 2, NULL, &link));
	memset(longest, '1', sizeof(longest));
	longest[XPORT_LINK_ADDRESS_MAX + 1] = '\0';
	list[1] = longest;
	H_STATUS(XPORT_ERR_INVALID, xport_link_open(l, list, 2, NULL, &link));
	longest[XPORT_LINK_ADDRESS_MAX] = '\0'; /* it is not an address: that is found when it is tried */
	H_OK(xport_link_open(l, list, 2, NULL, &link));
}

static void options_wrong(struct h *h, xport_links *l)
{
	struct xport_conn_attr conn = {.size = sizeof(conn)};
	struct xport_link_attr a = {.size = sizeof(a)};
	char label[65];

	a.first_ms = -1;
	expect_refused(h, l, &a, "negative");
	a.first_ms = 20;
	a.max_ms = 10;
	expect_refused(h, l, &a, "first_ms is above max_ms");
	a.first_ms = a.max_ms = 0;
	a.give_up_ms = -1;
	expect_refused(h, l, &a, "negative");
	a.give_up_ms = 0;
	a.max_ops = 65536;
	expect_refused(h, l, &a, "max_ops is above 65535");
	a.max_ops = 0;
	a.flags = 2;
	expect_refused(h, l, &a, "a flag is unknown");
	a.flags = 0;
	memset(label, 'l', 64);
	label[64] = '\0';
	a.label = label;
	expect_refused(h, l, &a, "label is longer than 63 bytes");
	a.label = NULL;
	a.conn = &conn;
	conn.private_len = 1;
	expect_refused(h, l, &a, "the private data is NULL");
	conn.private_data = label;
	conn.private_len = h->info.private_max + 1;
	expect_refused(h, l, &a, "xport_info.private_max");
	conn.private_len = 0;
	conn.connect_ms = -1;
	expect_refused(h, l, &a, "negative");
	conn.connect_ms = 0;
	conn.traffic_class = 7;
	expect_refused(h, l, &a, "conn->traffic_class");
	conn.traffic_class = 0;
	conn.size = 1;
	expect_refused(h, l, &a, "xport_conn_attr.size is 1");
	conn.size = sizeof(conn);
	a.size--;
	expect_refused(h, l, &a, "xport_link_attr.size");
}

static void null_wrong(struct h *h, xport_links *l)
{
	struct xport_link_event e = {.size = 1};
	struct xport_link_info i = {.size = 1};
	xport_links *made;

	H_STATUS(XPORT_ERR_INVALID, xport_links_create(NULL, &made));
	H_STATUS(XPORT_ERR_INVALID, xport_links_create(h->x, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_links_step(NULL, NULL));
	H_EQ(-1, (int64_t)xport_links_timeout(NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_links_next(NULL, &e));
	H_STATUS(XPORT_ERR_INVALID, xport_links_next(l, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_links_next(l, &e));
	H_STATUS(XPORT_ERR_INVALID, xport_links_wait(NULL, &e, NULL, NULL, 0));
	e.size = sizeof(e);
	H_STATUS(XPORT_ERR_INVALID, xport_links_wait(l, &e, NULL, NULL, -2));
	H_STATUS(XPORT_ERR_TIMEOUT, xport_links_wait(l, &e, NULL, NULL, 1));
	H_OK(xport_links_destroy(NULL, NULL, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_links_destroy(l, NULL, NULL, -2));
	H_TRUE(xport_link_ep(NULL) == NULL);
	H_STATUS(XPORT_ERR_INVALID, xport_link_retry(NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_link_close(NULL, 0));
	H_OK(xport_link_free(NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_link_query(NULL, &i));
	H_OK(xport_link_rkey_remove(NULL));
}

static void keys_wrong(struct h *h, struct link_user *u)
{
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	uint8_t bytes[XPORT_LINK_KEY_MAX + 1] = {1};
	xport_link_rkey *k;
	xport_rkey *rkey;

	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_add(NULL, NULL, 0, bytes, 8, &k));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_add(u->link, NULL, 0, bytes, 8, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_add(u->link, NULL, 0, NULL, 8, &k));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_add(u->link, NULL, 1, bytes, 8, &k));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_add(u->link, NULL, 0, bytes, sizeof(bytes), &k));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_rkey_add", "2048 bytes, not 2049");
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_add(u->link, bytes, 256, bytes, 8, &k));
	H_STATUS(XPORT_ERR_BAD_KEY, xport_link_rkey_add(u->link, NULL, 0, bytes, 8, &k));
	H_OK(xport_link_rkey_add(u->link, NULL, 0, NULL, 0, &k)); /* void */
	H_STATUS(XPORT_ERR_STALE_KEY, xport_link_rkey_get(k, &rkey));
	SVC_ERROR(XPORT_ERR_STALE_KEY, "xport_link_rkey_get", "it has no bytes yet");
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_get(NULL, &rkey));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_get(k, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_set(NULL, bytes, 8));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_set(k, NULL, 8));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_set(k, bytes, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_link_rkey_set(k, bytes, sizeof(bytes)));
	H_STATUS(XPORT_ERR_BAD_KEY, xport_link_rkey_set(k, bytes, 8));
	H_OK(xport_link_rkey_remove(k));
	H_STATUS(XPORT_ERR_INVALID, xport_links_entry(NULL, "a", 1, &entry));
	H_STATUS(XPORT_ERR_INVALID, xport_links_entry(u->l, "a", 0, &entry));
	H_STATUS(XPORT_ERR_INVALID, xport_links_entry(u->l, "a", 1, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_links_entry(u->l, "a", 1, &entry)); /* it has no key */
}

static void operations_wrong(struct h *h, struct link_user *u)
{
	struct xport_opt opt = {.size = sizeof(opt), .flags = XPORT_QUIET};
	xport_link_rkey *k = u->key, *other;
	const char *address = u->address[1];
	xport_link *link;
	char b[8] = {0};

	H_STATUS(XPORT_ERR_INVALID, xport_link_put(NULL, b, 8, k, 0, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_link_put(u->link, NULL, 8, k, 0, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_link_put(u->link, b, 8, NULL, 0, NULL, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_link_put(u->link, b, 8, k, 0, NULL, 2));
	H_STATUS(XPORT_ERR_INVALID, xport_link_put(u->link, b, 8, k, 0, &opt, 0));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_put", "each operation of a link has a completion");
	opt.flags = XPORT_LOCAL;
	H_STATUS(XPORT_ERR_INVALID, xport_link_put(u->link, b, 8, k, 0, &opt, XPORT_LINK_REPEATABLE));
	H_STATUS(XPORT_ERR_INVALID, xport_link_get(u->link, b, 8, k, 0, &opt, 0));
	H_STATUS(XPORT_ERR_INVALID, xport_link_send(u->link, b, 8, 0, &opt, 0));
	opt.size = 1;
	H_STATUS(XPORT_ERR_INVALID, xport_link_send(u->link, b, 8, 0, &opt, 0));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_send", "xport_opt.size is 1");
	H_STATUS(XPORT_ERR_BOUNDS, xport_link_put(u->link, b, 8, k, L_LEN, NULL, XPORT_LINK_REPEATABLE));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_link_put", "xport_put: ");
	H_EQ(0, link_info(u).ops);
	H_OK(xport_link_open(u->l, &address, 1, NULL, &link));
	H_OK(xport_link_rkey_add(link, NULL, 0, NULL, 0, &other));
	H_STATUS(XPORT_ERR_INVALID, xport_link_put(u->link, b, 8, other, 0, NULL, 0));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_link_put", "the key belongs to another link");
}

static void link_wrong(struct h *h)
{
	struct link_user u;

	link_begin(&u, h);
	null_wrong(h, u.l);
	options_wrong(h, u.l);
	link_open(&u, NULL);
	LINK_NEXT(&u, XPORT_LINK_UP);
	link_key(&u);
	keys_wrong(h, &u);
	operations_wrong(h, &u);
	link_works(&u, 1);
	addresses_wrong(h, u.l);
	link_end(&u);
}

const struct h_scenario svc_cases_link_wrong[] = {
	{.name = "link_wrong", .role = {link_server, link_wrong}, .timeout_s = 60},
	{.name = NULL},
};
