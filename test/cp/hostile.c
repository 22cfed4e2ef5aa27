/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.c - a client that sends messages to xport_cp --serve that xport_cp never sends. cp_hostile ADDRESS [silence |
 * plant]: each case has its own connection, and prints a line: what it tried, and whether the server answered
 * correctly. Exits with 1 if an answer was wrong.
 *
 * With `lie` it is a server at ADDRESS instead, for one client that fetches data.txt; with `early` for one that sends
 * something. With `plant` a case expects a wrong answer, to show that the check can fail.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cp/link.h"
#include "tools/cp/sum.h"

enum { REFUSED = -1, CLOSED = -2, PATIENCE_MS = 10000 };

static struct side {
	struct cp_hub hub;
	struct cp_link *link;
	const char *address;
	bool answered;
	struct cp_msg last;
	uint8_t key[CP_KEY];
} side;

static int failures;

static void message(void *arg, const struct cp_msg *m)
{
	(void)arg;
	side.answered = true;
	side.last = *m;
	if (m->key.n > 0) {
		memcpy(side.key, m->key.p, m->key.n);
		side.last.key.p = side.key;
	}
}

static void ignore(void *arg, unsigned slot)
{
	(void)arg;
	(void)slot;
}

static const struct cp_links_calls calls = {message, ignore, ignore};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The status of the next answer, REFUSED if it is an error, CLOSED if the server hung up. */
static int answer(void)
{
	uint64_t until = now_ms() + PATIENCE_MS;

	while (!side.answered && !side.link->failed && now_ms() < until)
		if (!cp_hub_poll(&side.hub, 100))
			return CLOSED;
	if (!side.answered && !side.link->failed) {
		puts("no answer");
		exit(1);
	}
	if (!side.answered)
		return CLOSED;
	side.answered = false;
	return side.last.status == 0 || side.last.status == CP_NEED ? (int)side.last.status : REFUSED;
}

static int ask(const struct cp_msg *m)
{
	cp_link_send(side.link, m);
	return answer();
}

/* As any client does while another copy to this name is under way: the server may not yet have ended that of the connection before. */
static int ask_file(const struct cp_msg *m)
{
	const struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
	uint64_t until = now_ms() + PATIENCE_MS;
	int r = ask(m);

	while (r == REFUSED && side.last.status == CP_BUSY && now_ms() < until) {
		nanosleep(&moment, NULL);
		r = ask(m);
	}
	return r;
}

static struct cp_msg about(uint32_t kind, const char *path)
{
	return (struct cp_msg){.kind = kind, .mode = 0644, .path = {path, strlen(path)}};
}

static void meet(void)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = CP_HELLO, .private_len = sizeof(CP_HELLO)};
	xport_ep *ep;

	if (xport_connect(side.hub.x, side.address, &attr, PATIENCE_MS, &ep) != XPORT_OK ||
	    (side.link = cp_link_new(&side.hub, ep, &calls, NULL)) == NULL) {
		puts("cannot connect");
		exit(1);
	}
	side.answered = false;
}

static void part(void)
{
	cp_link_end(side.link, 0);
	side.link = NULL;
}

/* Connects, and has the key to the server's slots. */
static void meet_sink(void)
{
	struct cp_msg m = about(CP_START, "");

	m.flags = CP_PUT;
	meet();
	if (ask(&m) != 0 || !cp_link_key(side.link, &side.last.key) || !cp_link_slots(side.link, 0, NULL, NULL)) {
		puts("the server does not let itself be written to");
		exit(1);
	}
}

static void expect(const char *what, int want, int got)
{
	static const char *const words[] = {"allowed", "refused", "hung up"};

	printf("%s: %s\n", what, got > 0 ? "asked for more" : words[-got]);
	if (got != want)
		failures++;
	if (got != want)
		printf("FAILED: it should have been %s\n", want > 0 ? "asked for more" : words[-want]);
}

/* ---- paths ---- */

static const struct {
	const char *what, *path;
} escapes[] = {{"up", "../escaped"},
               {"up in the middle", "d/../../escaped"},
               {"up at the end", "d/.."},
               {"absolute", "/tmp/xport_cp_escaped"},
               {"nothing", ""},
               {"this directory", "."},
               {"an empty part", "d//x"},
               {"a slash at the end", "x/"},
               {"through a link to a directory", "out/escaped"},
               {"a directory that is not there", "none/x"},
               {"a directory", "d"}};

static void paths(void)
{
	char longest[CP_PATH], text[128];
	struct cp_msg m;

	meet_sink();
	for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
		m = about(CP_FILE, escapes[i].path);
		snprintf(text, sizeof(text), "a file, %s", escapes[i].what);
		expect(text, REFUSED, ask(&m));
	}
	for (size_t i = 0; i < 8; i++) {
		if (*escapes[i].path == '\0')
			continue; /* the directory itself is there */
		m = about(CP_DIR, escapes[i].path);
		snprintf(text, sizeof(text), "a directory, %s", escapes[i].what);
		expect(text, REFUSED, ask(&m));
		m = about(CP_DIREND, escapes[i].path);
		snprintf(text, sizeof(text), "times of a directory, %s", escapes[i].what);
		expect(text, REFUSED, ask(&m));
	}
	memset(longest, 'x', sizeof(longest));
	m = (struct cp_msg){.kind = CP_FILE, .path = {longest, 256}};
	expect("a name of 256 bytes", REFUSED, ask(&m));
	m.path.n = CP_PATH - 1;
	expect("a path of 4095 bytes in one part", REFUSED, ask(&m));
	m.path = (struct cp_bytes){"a\0b", 3};
	expect("a name with a NUL", REFUSED, ask(&m));
	part();
}

static int link_to(const char *path, const char *to)
{
	struct cp_msg m = about(CP_LINK, path);

	m.text = (struct cp_bytes){to, strlen(to)};
	return ask(&m);
}

static void links(void)
{
	struct cp_msg m;

	meet_sink();
	expect("a link to /", REFUSED, link_to("l", "/etc"));
	expect("a link up", REFUSED, link_to("l", "../x"));
	expect("a link up from below", REFUSED, link_to("d/l", "../../x"));
	expect("a link up behind a name", REFUSED, link_to("l", "d/../../x"));
	expect("an empty link", REFUSED, link_to("l", ""));
	expect("a link that stays", 0, link_to("d/stays", "../d"));
	m = about(CP_FILE, "d/stays/x");
	expect("a file through it", REFUSED, ask(&m));
	m = about(CP_DIREND, "out");
	expect("times of what a link leads to", REFUSED, ask(&m));
	part();
}

/* ---- what is said when ---- */

static void starts(void)
{
	static const char *const bad[] = {"..", "/etc", "d/../..", "d/./x"};
	struct cp_msg m;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		m = about(CP_START, bad[i]);
		m.flags = i % 2 == 0 ? CP_PUT : CP_GET;
		meet();
		expect("a beginning outside", REFUSED, ask(&m));
		part();
	}
	meet();
	m = about(CP_FILE, "x");
	expect("a file before the beginning", CLOSED, ask(&m));
	part();
	meet();
	m = about(CP_START, "d");
	m.flags = CP_GET;
	m.key = (struct cp_bytes){"no key at all", 13};
	expect("a key that is none", CLOSED, ask(&m));
	part();
}

/* The link does not know of this message, and leaves its completion alone. */
static int raw(const void *bytes, size_t n)
{
	meet_sink();
	if (xport_send(side.link->ep, bytes, n, CP_TAG, NULL) != XPORT_OK)
		exit(1);
	return answer();
}

static void garbage(void)
{
	static uint8_t bytes[CP_MESSAGE * 2];
	struct cp_msg m = about(CP_FILE, "x");
	size_t n = cp_msg_write(&m, bytes);

	expect("a message cut off", CLOSED, raw(bytes, n - 1));
	part();
	bytes[n - 7] = 0xff;
	expect("a length beyond the end", CLOSED, raw(bytes, n));
	part();
	memset(bytes, 0xff, sizeof(bytes));
	expect("garbage", CLOSED, raw(bytes, 100));
	part();
	expect("a message that is too long", CLOSED, raw(bytes, sizeof(bytes)));
	part();
	expect("an empty message", CLOSED, raw(bytes, 0));
	part();
}

static void order(void)
{
	static const uint32_t kinds[] = {CP_HOLE, CP_CHECK, CP_FINISH, CP_OPENED, CP_ACK, CP_READY, CP_START};
	struct cp_msg m;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		meet_sink();
		m = about(kinds[i], "x");
		expect("something that is not its turn", CLOSED, ask(&m));
		part();
	}
	meet_sink();
	m = about(CP_FILE, "x");
	expect("a file", 0, ask_file(&m));
	m = about(CP_FILE, "y");
	expect("another before its end", CLOSED, ask(&m));
	part();
}

/* ---- content ---- */

static int block(uint64_t offset, uint64_t length, size_t sent, uint64_t slot, size_t at)
{
	struct xport_opt opt = {
		.size = sizeof(opt), .flags = XPORT_LOCAL, .context = &side.link->puts[0], .value = slot};
	struct cp_head h = {.offset = offset, .length = length};
	uint8_t *from = cp_link_data(side.link, 0) - CP_HEAD;

	cp_sum_block(from + CP_HEAD, sent, offset, h.hash);
	cp_head_write(&h, from);
	if (xport_put_notify(side.link->ep, from, CP_HEAD + sent, side.link->rkey, at, &opt) != XPORT_OK)
		exit(1);
	side.link->pending++;
	return answer();
}

static void content(void)
{
	const size_t at = CP_FRONT - CP_HEAD;
	struct cp_msg m = about(CP_FILE, "x");

	m.length = 100;
	meet_sink();
	expect("a block of no file", CLOSED, block(0, 100, 100, 0, at));
	part();
	meet_sink();
	expect("a file", 0, ask_file(&m));
	expect("a block in no slot", CLOSED, block(0, 100, 100, CP_SLOTS, at));
	part();
	meet_sink();
	expect("a file", 0, ask_file(&m));
	expect("a block in the wrong slot", CLOSED, block(0, 100, 100, 1, at));
	part();
	meet_sink();
	expect("a file", 0, ask_file(&m));
	expect("a block behind the end", REFUSED, block(50, 100, 100, 0, at));
	expect("what follows", REFUSED, block(0, 100, 100, 0, at));
	part();
	meet_sink();
	expect("a file", 0, ask_file(&m));
	expect("a block longer than a slot", REFUSED, block(0, UINT64_MAX, 100, 0, at));
	part();
	meet_sink();
	m.length = UINT64_C(1) << 62;
	expect("a file of 4 EiB", REFUSED, ask(&m));
	m.length = UINT64_MAX;
	expect("a file of 16 EiB", REFUSED, ask(&m));
	m.length = 100;
	expect("a file", 0, ask_file(&m));
	m = about(CP_FINISH, "");
	expect("its end without a byte", REFUSED, ask(&m));
	part();
}

/* Does not say what it wants.  With time alone it is to be found out that the server has enough of that. */
static void silence(void)
{
	uint64_t until = now_ms() + 3 * PATIENCE_MS;

	meet();
	while (now_ms() < until && !side.link->failed)
		if (!cp_hub_poll(&side.hub, 500))
			break;
	expect("nothing at all", CLOSED, side.link->failed ? CLOSED : 0);
	part();
}

/* Asks for answers, and takes none. */
static void flood(void)
{
	struct cp_msg m = about(CP_CHECK, "");
	uint8_t bytes[CP_MESSAGE];
	struct cp_msg file = about(CP_FILE, "flooded");
	uint64_t until;
	size_t n;
	int r = XPORT_OK;

	file.length = CP_BLOCK;
	m.length = CP_BLOCK;
	meet_sink();
	expect("a file", 0, ask_file(&file));
	n = cp_msg_write(&m, bytes);
	for (int i = 0; i < 20000 && r == XPORT_OK; i++)
		r = xport_send(side.link->ep, bytes, n, CP_TAG, NULL);
	/* Whatever the server makes of it, it has to come to an end. */
	until = now_ms() + 1000;
	while (now_ms() < until && !side.link->failed)
		if (!cp_hub_poll(&side.hub, 50))
			break;
	puts("a flood of questions: over");
	part();
}

/* ---- a server that sends what nobody asked for ---- */

/* Waits for a client, and for what it asks. */
static xport_listener *host(void)
{
	struct xport_conn_attr attr = {.size = sizeof(attr), .private_data = CP_HELLO, .private_len = sizeof(CP_HELLO)};
	xport_listener *listener;
	char name[128];
	xport_ep *ep;

	if (xport_listen(side.hub.x, side.address, &attr, &listener) != XPORT_OK ||
	    xport_listener_name(listener, name, sizeof(name)) != XPORT_OK)
		exit(1);
	printf("listening on %s\n", name);
	fflush(stdout);
	if (xport_accept(listener, PATIENCE_MS, &ep) != XPORT_OK ||
	    (side.link = cp_link_new(&side.hub, ep, &calls, NULL)) == NULL || answer() != 0) {
		puts("nobody came");
		exit(1);
	}
	return listener;
}

static void lie(void)
{
	struct cp_msg ready = {.kind = CP_READY}, link = about(CP_LINK, "data.txt"), dir = about(CP_DIR, "data.txt"),
		      other = about(CP_FILE, ".bashrc"), below = about(CP_FILE, "data.txt/x"),
		      file = about(CP_FILE, "data.txt"), bye = {.kind = CP_BYE};
	xport_listener *listener = host();

	link.text = (struct cp_bytes){"x", 1};
	if (!cp_link_key(side.link, &side.last.key))
		exit(1);
	cp_link_send(side.link, &ready);
	expect("another file than was asked for", REFUSED, ask(&other));
	expect("a directory", REFUSED, ask(&dir));
	expect("a symbolic link", REFUSED, ask(&link));
	expect("a file below it", REFUSED, ask(&below));
	expect("what was asked for", 0, ask(&file));
	file.kind = CP_FINISH;
	expect("its end", 0, ask(&file));
	expect("the end", 0, ask(&bye));
	part();
	xport_listener_close(listener);
}

/* Stops itself until the client is stopped, too; then READY and what follows it come to that client at once. */
static void early(void)
{
	struct cp_msg ready = {.kind = CP_READY, .mode = CP_IS_DIR}, ack = {.kind = CP_ACK};
	uint8_t key[CP_KEY];
	size_t len = sizeof(key);
	xport_listener *listener = host();

	if (!cp_link_slots(side.link, XPORT_REMOTE_WRITE, key, &len))
		exit(1);
	ready.key = (struct cp_bytes){key, len};
	raise(SIGSTOP);
	cp_link_send(side.link, &ready);
	cp_link_send(side.link, &ack);
	while (side.link->letters > 0 && !side.link->failed && cp_hub_poll(&side.hub, 100))
		;
	puts("sent");
	fflush(stdout);
	(void)answer();
	part();
	xport_listener_close(listener);
}

static void all(void)
{
	paths();
	links();
	starts();
	garbage();
	order();
	content();
	flood();
}

int main(int argc, char **argv)
{
	const char *what;

	if (argc < 2)
		return 2;
	side.address = argv[1];
	if (!cp_hub_open(&side.hub, NULL))
		return 1;
	what = argc > 2 ? argv[2] : "";
	if (strcmp(what, "lie") == 0)
		lie();
	else if (strcmp(what, "early") == 0)
		early();
	else
		all();
	if (strcmp(what, "silence") == 0)
		silence();
	if (strcmp(what, "plant") == 0) {
		meet_sink();
		expect("planted", 0, link_to("l", "/etc"));
		part();
	}
	cp_hub_close(&side.hub);
	printf("%d failures\n", failures);
	return failures > 0 ? 1 : 0;
}
