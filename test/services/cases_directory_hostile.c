/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_directory_hostile.c - a watcher that sleeps, and users that send arbitrary messages. */
#include "services/directory_wire.h"
#include "services/msgq.h"
#include "services/user.h"

#define TAG UINT64_C(0x78706f7274647200)

/* ---- a watcher that sleeps ---- */

enum { CHANGES = 4600 };

/* More names come and go than are kept for it; what it finds then is right. */
static void slow_server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1};
	struct xport_directory_entry e;
	uint8_t *buf = h_buf(h, U_LEN);
	char name[32];
	xport_mr *mr;
	struct u u;

	u_begin(&u, h, 0, &a);
	H_OK(xport_mr_reg(h->x, buf, U_LEN, XPORT_REMOTE_READ, &mr));
	e = u_region(h, mr, 0, U_LEN);
	H_OK(u_put(&u, "stays", &e));
	u_meet(&u, 1);
	for (int i = 0; i < CHANGES; i++) { /* it does not look meanwhile */
		snprintf(name, sizeof(name), "%d", i);
		e.offset = 1;
		H_OK(u_put(&u, name, &e));
		H_OK(xport_directory_remove(u.d, name, strlen(name), NULL));
		H_OK(U_DONE(&u).status);
		for (int k = 0; k < 3; k++) { /* one name changes all the time, and costs nothing */
			e.offset = (uint64_t)(3 * i + k);
			H_OK(u_put(&u, "busy", &e));
		}
		if (i % 100 == 0)
			u_turn(&u);
	}
	H_EQ(2, u_info(&u).names);
	u_meet(&u, 1);
	u_meet(&u, 1);
	u_end(&u);
	h_sync(h);
}

static void slow_watcher(struct h *h)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	struct xport_directory_entry entry;
	int events = 0, missed = 0;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_directory_watch(u.d, NULL));
	H_OK(U_DONE(&u).status);
	u_meet(&u, 0);
	u_meet(&u, 0); /* takes no event until all has happened */
	for (uint64_t last = 0; last != 3 * CHANGES - 1;) {
		if (xport_directory_next(u.d, &e) == 0) {
			u_turn(&u);
			continue;
		}
		events++;
		missed += e.type == XPORT_DIRECTORY_MISSED;
		if (e.type == XPORT_DIRECTORY_CHANGED && u_is(&e, "busy"))
			last = e.entry.offset;
	}
	H_TRUE(missed > 0);
	h_record(h, "events", (uint64_t)events);
	H_TRUE(events < CHANGES);
	H_OK(u_find(&u, "stays", &entry));
	H_OK(u_find(&u, "busy", &entry));
	H_EQ(3 * CHANGES - 1, entry.offset);
	H_STATUS(XPORT_ERR_UNREACHABLE, u_find(&u, "4599", &entry));
	u_meet(&u, 0);
	u_end(&u);
	h_sync(h);
}

/* ---- hostile users ---- */

enum craft { GARBAGE, LONG_NAME, LONG_KEY, SHORT, NO_NAME, TYPE, TO_USER, LAST_MUTED = TO_USER, QUOTA };

static void hostile_server(struct h *h)
{
	struct xport_directory_attr a = {.size = sizeof(a), .serve = 1, .peer_names = 10};
	struct u u;

	u_begin(&u, h, 0, &a);
	u_meet(&u, 2);
	h_tell_u64(h, 1, 1);
	while (!h_heard(h, 1))
		u_turn(&u);
	h_hear_u64(h, 1);
	u_turn_for(&u, 50);
	if (h->param != TO_USER)
		H_EQ(h->param <= LAST_MUTED, u_info(&u).muted);
	H_EQ(h->param == QUOTA ? 11 : 1, u_info(&u).names); /* a muted one's are gone */
	H_EQ(h->param == QUOTA ? 30 : 0, u_info(&u).refused);
	u_meet(&u, 2);
	u_meet(&u, 2);
	h_tell_u64(h, 1, 1);
	u_end(&u);
	h_sync(h);
}

static void honest(struct h *h)
{
	struct xport_directory_entry e;
	struct u u;

	u_begin(&u, h, 0, NULL);
	u_publish(&u, "honest", &e);
	u_meet(&u, 0);
	u_meet(&u, 0);
	H_OK(u_find(&u, "honest", &e));
	if (h->param == TO_USER)
		H_EQ(1, u_info(&u).muted);
	u_meet(&u, 0);
	u_end(&u);
	h_sync(h);
}

static void say(struct h *h, int role, const struct svc_dir_message *m, uint8_t *bytes, uint32_t number)
{
	svc_msgq_head(bytes, 1, number, 0);
	h_send(h, h->ep[role], bytes, SVC_MSGQ_HEAD + svc_dir_encode(m, bytes + SVC_MSGQ_HEAD), TAG);
	h_settle(h);
}

static void attack(struct h *h, uint8_t *bytes)
{
	static const uint8_t text[2100] = "n";
	struct svc_dir_message m = {.type = SVC_DIR_PUT,
	                            .request = 2,
	                            .rights = 1,
	                            .name = text,
	                            .name_len = 3,
	                            .key = text,
	                            .key_len = 20};
	uint8_t *body = bytes + SVC_MSGQ_HEAD;
	size_t len;

	if (h->param == NO_NAME)
		m.name_len = 0;
	if (h->param == TYPE || h->param == TO_USER) /* as if it were the directory */
		m.type = SVC_DIR_CHANGED;
	if (h->param == LONG_KEY)
		m.key_len = 2049;
	len = svc_dir_encode(&m, body);
	if (h->param == GARBAGE)
		h_fill(body, len, 5);
	if (h->param == LONG_NAME)
		body[29] = 255; /* more than there is */
	if (h->param == SHORT)
		len = 20;
	svc_msgq_head(bytes, 1, h->param == TO_USER ? 0 : 1, 0);
	h_send(h, h->ep[h->param == TO_USER ? 2 : 0], bytes, SVC_MSGQ_HEAD + len, TAG);
	h_settle(h);
}

static void hostile(struct h *h)
{
	struct svc_dir_message m = {.type = SVC_DIR_PUT, .rights = 1, .key = (const uint8_t *)"no key", .key_len = 6};
	struct xport_attr a = h_attr(h);
	uint8_t *bytes = h_buf(h, 8192), *answers = h_buf(h, 8192);
	char name[16];

	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	h_sync(h);
	h_hear_u64(h, 0);
	m.name = (const uint8_t *)name;
	for (uint32_t i = 0; i < (h->param == QUOTA ? 40 : 1); i++) {
		struct h_op *op = h_recv(h, h->ep[0], answers, 8192, TAG, UINT64_MAX);

		m.name_len = (size_t)snprintf(name, sizeof(name), "evil %u", i);
		m.request = i + 1;
		say(h, 0, &m, bytes, i);
		H_DONE(op);
	}
	if (h->param != QUOTA)
		attack(h, bytes);
	if (h->param == TO_USER) { /* and the server's, so that its name goes */
		m.type = SVC_DIR_BYE;
		m.name_len = m.key_len = 0;
		say(h, 0, &m, bytes, 1);
	}
	h_tell_u64(h, 0, 1);
	h_hear_u64(h, 0);
	h_sync(h);
}

/* ---- a hostile directory ---- */

/* The next message of the user, which must be of this type. Returns the id of the request. */
static uint64_t user_request(struct h *h, uint8_t *bytes, int type)
{
	struct h_op *op = h_recv(h, h->ep[1], bytes, 8192, TAG, UINT64_MAX);
	struct svc_dir_message m;

	H_DONE(op);
	H_TRUE(svc_dir_decode(bytes + SVC_MSGQ_HEAD, op->c.length - SVC_MSGQ_HEAD, &m));
	H_EQ(type, m.type);
	return m.request;
}

/* Answers a request with its id, but by a message that answers no request of a user. */
static void wrong_reply_server(struct h *h)
{
	struct svc_dir_message m = {.type = SVC_DIR_HEARD};
	uint8_t *bytes = h_buf(h, 8192);
	struct xport_attr a = h_attr(h);

	a.peer_timeout_ms = h_ms(5000);
	h_mesh(h, &a);
	h_sync(h);
	(void)user_request(h, bytes, SVC_DIR_JOIN);
	m.request = user_request(h, bytes, SVC_DIR_FIND);
	say(h, 1, &m, bytes, 0);
	h_hear_u64(h, 1);
	h_sync(h);
}

static void wrong_reply_user(struct h *h)
{
	struct xport_directory_event e;
	struct u u;

	u_begin(&u, h, 0, NULL);
	H_OK(xport_directory_find(u.d, "name", 4, NULL));
	e = U_DONE(&u);
	H_STATUS(XPORT_ERR_PROTOCOL, e.status);
	H_TRUE(u_is(&e, "name"));
	H_STATUS(XPORT_ERR_PROTOCOL, U_NEXT(&u, XPORT_DIRECTORY_LOST).status);
	H_EQ(1, u_info(&u).muted);
	h_tell_u64(h, 0, 1);
	u_end(&u);
	h_sync(h);
}

static const struct h_param crafts[] = {{"garbage", GARBAGE}, {"long_name", LONG_NAME}, {"long_key", LONG_KEY},
                                        {"short", SHORT},     {"no_name", NO_NAME},     {"type", TYPE},
                                        {"to_user", TO_USER}, {"quota", QUOTA},         {NULL, 0}};

const struct h_scenario svc_cases_directory_hostile[] = {
	{"directory_slow", {slow_server, slow_watcher}, NULL, H_ONCE, 0},
	{"directory_hostile", {hostile_server, hostile, honest}, crafts, H_ONCE, 0},
	{"directory_wrong_reply", {wrong_reply_server, wrong_reply_user}, NULL, H_ONCE, 0},
	{0},
};
