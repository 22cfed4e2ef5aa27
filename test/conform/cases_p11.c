/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_p11.c - P11, no silent fallback: names, lists, reasons, settings; nothing is replaced in silence. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "harness.h"

/* Opens with this XPORT_BACKEND and hands back the status and the error text. */
static int open_as(struct h *h, const char *backend, struct xport_error *e)
{
	struct xport_attr a = h_attr(h);
	xport *x = (xport *)&a;
	int s;

	a.backend = backend;
	s = xport_open(&a, &x);
	if (s == XPORT_OK) {
		xport_close(x);
		return s;
	}
	H_CHECK(x == (xport *)&a, "*x was set by a failed open");
	memset(e, 0, sizeof(*e));
	e->size = sizeof(*e);
	H_OK(xport_last_error(NULL, e));
	H_EQ(s, e->status);
	H_CHECK(!strcmp(e->operation, "xport_open"), "operation: %s", e->operation);
	H_CHECK(e->text[0] != 0, "no text");
	return s;
}

/* Whether several transports are asked for: then the peers choose. */
static bool is_set(const struct h *h)
{
	return strchr(h->config->backend, '+') || !strcmp(h->config->backend, "auto");
}

/* What was asked for is what one gets. */
static void as_asked(struct h *h)
{
	char name[80];
	const char *colon = strchr(h->config->backend, ':');

	h_open(h, NULL);
	snprintf(name, sizeof(name), "%s:%s", h->info.backend, h->info.provider);
	if (is_set(h))
		H_CHECK(h_asked_for(h, name) || !strcmp(h->config->backend, "auto"), "asked for %s, got %s",
		        h->config->backend, name);
	else if (colon)
		H_CHECK(!strcmp(name, h->config->backend), "asked for %s, got %s", h->config->backend, name);
	else
		H_CHECK(!strcmp(h->info.backend, h->config->backend), "asked for %s, got %s", h->config->backend, name);
	H_TRUE(h->info.stack[0] && h->info.device[0]);
	if (h->config->emulate)
		H_TRUE(h->info.put == XPORT_EMULATED && h->info.get == XPORT_EMULATED &&
		       h->info.put_reg == XPORT_EMULATED && h->info.get_reg == XPORT_EMULATED);
}

static void unknown(struct h *h)
{
	struct xport_error e;
	const char *right;
	char name[128];

	H_STATUS(XPORT_ERR_NO_BACKEND, open_as(h, "nosuchthing", &e));
	H_CHECK(strstr(e.text, "nosuchthing"), "text: %s", e.text);
	H_STATUS(XPORT_ERR_NO_BACKEND, open_as(h, "nosuchthing:tcp", &e));
	if (is_set(h))
		return;
	snprintf(name, sizeof(name), "%.*s:nosuchprovider", (int)strcspn(h->config->backend, ":"), h->config->backend);
	H_STATUS(XPORT_ERR_NO_BACKEND, open_as(h, name, &e));
	H_CHECK(strstr(e.text, "nosuchprovider"), "text: %s", e.text);
	if (strlen(h->config->backend) > 4) {
		snprintf(name, sizeof(name), "%s", h->config->backend);
		name[strlen(name) - 1] ^= 1; /* a slip of the finger: the text names the nearest */
		H_STATUS(XPORT_ERR_NO_BACKEND, open_as(h, name, &e));
		right = strrchr(h->config->backend, ':');
		right = right ? right + 1 : h->config->backend;
		H_CHECK(strstr(e.text, right) || strstr(e.hint, right), "text: %s / %s", e.text, e.hint);
	}
}

/* Writes the candidates that cannot be used here as a list; returns how many.  What wraps another is not one of them. */
static int unusable(struct h *h, struct xport_candidate *c, char *list, size_t len)
{
	struct xport_attr a = h_attr(h);
	int n = xport_list(&a, c, sizeof(*c), 64), found = 0;

	list[0] = 0;
	for (int i = 0; i < n; i++)
		if (c[i].state != XPORT_READY && strcmp(c[i].name, "chaos") != 0 &&
		    strlen(list) + strlen(c[i].name) + 2 < len) {
			if (found)
				strcat(list, ",");
			strcat(list, c[i].name);
			c[found++] = c[i];
		}
	if (!found)
		h_skip(h, "a candidate that cannot be used is absent: all are ready");
	return found;
}

/* A list none of which is usable: each name is there with a reason of its own. */
static void none_usable(struct h *h)
{
	struct xport_candidate *c = h_buf(h, 64 * sizeof(*c));
	struct xport_error e;
	char list[200];
	int n = unusable(h, c, list, sizeof(list));

	H_STATUS(XPORT_ERR_NO_BACKEND, open_as(h, list, &e));
	for (int i = 0; i < n; i++) {
		H_CHECK(strstr(e.text, c[i].name), "%s is not in the text: %s", c[i].name, e.text);
		H_CHECK(strstr(e.text, c[i].reason), "the reason of %s is not in the text: %s", c[i].name, e.text);
	}
}

/* The first usable of a list is taken; a name that does not exist spoils the list. */
static void first_usable(struct h *h)
{
	struct xport_candidate *c = h_buf(h, 64 * sizeof(*c));
	struct xport_attr a = h_attr(h);
	struct xport_error e;
	char list[200], longer[400];

	H_STATUS(XPORT_ERR_NO_BACKEND, open_as(h, "nosuchthing,nosuchother", &e));
	H_TRUE(strstr(e.text, "nosuchthing") != NULL);
	unusable(h, c, list, sizeof(list));
	snprintf(longer, sizeof(longer), "%s,%s", list, h->config->backend);
	a.backend = longer;
	h_open(h, &a);
	H_TRUE(is_set(h) || !strncmp(h->info.backend, h->config->backend, strcspn(h->config->backend, ":")));
}

static void malformed(struct h *h)
{
	static const char *const bad[] = {",", ",,", ":",        ":tcp",   " ",      "a b",
	                                  "-", "\t", "\xff\xfe", "%s%n%s", "../ucx", "/"};
	struct xport_error e;
	char longer[5000];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int s = open_as(h, bad[i], &e);

		H_CHECK(s == XPORT_ERR_NO_BACKEND || s == XPORT_ERR_CONFIG, "'%s': %s", bad[i], xport_status_name(s));
	}
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	H_TRUE(open_as(h, longer, &e) < 0);
}

/* One bad setting through the struct or the environment: refused, and the text names the variable and the value. */
struct setting {
	const char *name, *value;
};

static const struct setting settings[] = {
	{"XPORT_EMULATE", "putt"},       {"XPORT_REQUIRE", "wings"},
	{"XPORT_PROGRESS", "sometimes"}, {"XPORT_PROGRESS", "thread@x"},
	{"XPORT_PEER_TIMEOUT", "1ms"},   {"XPORT_PEER_TIMEOUT", "soon"},
	{"XPORT_PEER_TIMEOUT", "-5s"},   {"XPORT_PEER_TIMEOUT", "9999999999999999s"},
	{"XPORT_OP_TIMEOUT", "x"},       {"XPORT_QUEUE_DEPTH", "none"},
	{"XPORT_QUEUE_DEPTH", "-1"},     {"XPORT_QUEUE_DEPTH", "99999999999"},
	{"XPORT_LOG", "shout"},          {"XPORT_STRICT", "perhaps"},
	{"XPORT_AUTH", "maybe"},         {"XPORT_PEER_TIMEOUT", "5s x"},
	{"XPORT_EMULATE", "put,,gett"},  {"XPORT_BACKEND", "nosuchthing"},
};

static void bad_environment(struct h *h)
{
	struct xport_attr a = h_attr(h);
	struct xport_error e = {.size = sizeof(e)};
	xport *x = NULL;

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const struct setting *t = &settings[i];
		bool backend = !strcmp(t->name, "XPORT_BACKEND");

		a.backend = backend ? NULL : h->config->backend;
		a.emulate = NULL;
		a.log_level = strcmp(t->name, "XPORT_LOG") ? XPORT_LOG_INFO : 0;
		setenv(t->name, t->value, 1);
		H_CHECK(xport_open(&a, &x) == (backend ? XPORT_ERR_NO_BACKEND : XPORT_ERR_CONFIG), "%s=%s was accepted",
		        t->name, t->value);
		unsetenv(t->name);
		H_OK(xport_last_error(NULL, &e));
		if (!backend)
			H_CHECK(strstr(e.text, t->name), "%s=%s: the text does not name it: %s", t->name, t->value,
			        e.text);
		H_CHECK(strstr(e.text, t->value), "%s=%s: the text does not show the value: %s", t->name, t->value,
		        e.text);
	}
}

static void bad_attr(struct h *h)
{
	struct xport_attr good = h_attr(h), a;
	xport *x = NULL;
	int s;

	for (int i = 0; i < 8; i++) {
		a = good;
		switch (i) {
		case 0:
			a.peer_timeout_ms = 199;
			break;
		case 1:
			a.peer_timeout_ms = 3600001;
			break;
		case 2:
			a.peer_timeout_ms = -1;
			break;
		case 3:
			a.op_timeout_ms = -2;
			break;
		case 4:
			a.thread_mode = 77;
			break;
		case 5:
			a.log_level = 9;
			break;
		case 6:
			a.emulate = "gut";
			break;
		default:
			a.require = "wings";
			break;
		}
		s = xport_open(&a, &x);
		H_CHECK(s == XPORT_ERR_CONFIG || s == XPORT_ERR_INVALID, "case %d: %s", i, xport_status_name(s));
	}
	a = good;
	a.peer_timeout_ms = 200;
	H_OK(xport_open(&a, &x));
	xport_close(x);
}

/* Good values through the environment do what the struct does. */
static void environment(struct h *h)
{
	struct xport_attr a = {.size = sizeof(a)};

	a.log_fn = h_attr(h).log_fn;
	a.log_arg = h_attr(h).log_arg;
	setenv("XPORT_BACKEND", h->config->backend, 1);
	setenv("XPORT_PEER_TIMEOUT", "1500ms", 1);
	setenv("XPORT_QUEUE_DEPTH", "77", 1);
	setenv("XPORT_EMULATE", "all", 1);
	h_open(h, &a);
	H_EQ(1500, h->info.peer_timeout_ms);
	H_EQ(77, h->info.queue_depth);
	H_EQ(XPORT_EMULATED, h->info.put);
	H_TRUE(is_set(h) || !strncmp(h->info.backend, h->config->backend, strlen(h->info.backend)));
	/* the struct wins over the environment */
	xport_close(h->x);
	h->x = NULL;
	a.peer_timeout_ms = 2000;
	h_open(h, &a);
	H_EQ(2000, h->info.peer_timeout_ms);
	H_EQ(77, h->info.queue_depth);
	unsetenv("XPORT_BACKEND");
	unsetenv("XPORT_PEER_TIMEOUT");
	unsetenv("XPORT_QUEUE_DEPTH");
	unsetenv("XPORT_EMULATE");
}

/* A name that is nearly one of ours: a warning that names the right one; with XPORT_STRICT=1 an error. */
static void misspelt(struct h *h)
{
	struct xport_attr a = h_attr(h);
	xport *x = NULL;

	h_expect_log(h, "XPORT_BAKEND");
	setenv("XPORT_BAKEND", "x", 1);
	h_open(h, &a);
	H_CHECK(h_count_log(h, "XPORT_BAKEND") == 1, "no warning, or more than one");
	H_CHECK(h_count_log(h, "XPORT_BACKEND") >= 1, "the nearest name is not told");
	setenv("XPORT_STRICT", "1", 1);
	H_STATUS(XPORT_ERR_CONFIG, xport_open(&a, &x));
	unsetenv("XPORT_STRICT");
	unsetenv("XPORT_BAKEND");
}

/* The one that is listed: what wraps another lists itself alone. */
static const char *listed(struct h *h)
{
	return strncmp(h->config->backend, "chaos:", 6) ? h->config->backend : "chaos";
}

/* The list: this one is in it and ready; whatever is not ready says why and what to do, and refuses to open. */
static void list(struct h *h)
{
	struct xport_candidate *c = h_buf(h, 64 * sizeof(*c));
	struct xport_attr a = h_attr(h);
	struct xport_error e;
	size_t own = strlen(listed(h));
	int n = xport_list(&a, c, sizeof(*c), 64), found = 0, s;

	H_CHECK(n > 0 && n <= 64, "%d", n);
	for (int i = 0; i < n; i++) {
		H_TRUE(memchr(c[i].name, 0, sizeof(c[i].name)) && c[i].name[0]);
		H_CHECK(c[i].reason[0], "%s has no reason", c[i].name);
		for (int k = 0; k < i; k++)
			H_CHECK(strcmp(c[k].name, c[i].name), "%s is there twice", c[i].name);
		found += !strncmp(c[i].name, listed(h), own) && strchr(":", c[i].name[own]) != NULL;
		if (c[i].state == XPORT_READY)
			continue;
		H_CHECK(c[i].hint[0], "%s has no hint", c[i].name);
		s = open_as(h, c[i].name, &e); /* NO_MEMORY: what may be locked is too little */
		H_CHECK(s == XPORT_ERR_NO_BACKEND || s == XPORT_ERR_NO_MEMORY, "%s: %d", c[i].name, s);
		H_CHECK(strstr(e.text, c[i].reason) || strstr(e.text, c[i].name), "%s: %s", c[i].name, e.text);
	}
	H_CHECK(found >= 1 || is_set(h), "neither %s nor a provider of it is there", listed(h));
	/* the same number whatever room there is, and nothing beyond the room */
	H_EQ(n, xport_list(&a, NULL, sizeof(*c), 0));
	memset(c, 0x3c, 64 * sizeof(*c));
	H_EQ(n, xport_list(&a, c, sizeof(*c), 1));
	H_BYTES(c + 1, 63 * sizeof(*c), 0x3c);
	H_STATUS(XPORT_ERR_INVALID, xport_list(&a, c, sizeof(*c) - 1, 4));
}

static bool is_shared_memory(const char *name)
{
	const char *colon = strchr(name, ':');

	return (colon != NULL && strcmp(colon, ":shm") == 0) || strncmp(name, "shm:", 4) == 0;
}

/* "auto" opens one that is ready first; if any is ready, one of shared memory. The others come with their peers. */
static void automatic(struct h *h)
{
	struct xport_candidate *c = h_buf(h, 64 * sizeof(*c));
	struct xport_attr a = h_attr(h);
	bool ready = false, shared = false, found = false;
	char name[80];
	int n = xport_list(&a, c, sizeof(*c), 64);

	a.backend = "auto";
	for (int i = 0; i < n; i++) {
		ready = ready || c[i].state == XPORT_READY;
		shared = shared || (c[i].state == XPORT_READY && is_shared_memory(c[i].name));
	}
	if (!ready)
		h_skip(h, "nothing is ready");
	h_open(h, &a);
	snprintf(name, sizeof(name), "%s:%s", h->info.backend, h->info.provider);
	for (int i = 0; i < n; i++)
		found = found || (c[i].state == XPORT_READY && !strncmp(name, c[i].name, strlen(c[i].name)));
	H_CHECK(found, "auto took %s, which is not ready", name);
	H_CHECK(is_shared_memory(name) == shared, "auto took %s", name);
}

/* ---- between containers ---- */

enum { NS_WORKS, NS_TOLD, NS_WRONG, NS_ABSENT };

/* What becomes of connecting, in a process that is the first of its PID namespace. */
static int connect_from_inside(struct h *h, const char *address)
{
	struct xport_attr a = h_attr(h);
	struct xport_error e = {.size = sizeof(e)};
	xport_ep *ep;
	xport *x;
	int s;

	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("proc", "/proc", "proc", 0, NULL) != 0)
		return NS_ABSENT;
	if (xport_open(&a, &x) != XPORT_OK)
		return NS_WRONG;
	s = xport_connect(x, address, NULL, h_ms(10000), &ep);
	xport_last_error(x, &e);
	xport_close(x);
	if (s == XPORT_OK)
		return NS_WORKS;
	return s == XPORT_ERR_UNREACHABLE && strstr(e.text, "PID namespace") && strstr(e.hint, "PID namespace")
	               ? NS_TOLD
	               : NS_WRONG;
}

/* Providers that share memory say why it does not work; all others connect. */
static void inside(struct h *h)
{
	/* One of several that works is taken. */
	bool shares = strstr(h->config->backend, "shm") != NULL && !is_set(h);
	char address[80];
	int status = 0;
	pid_t pid;

	h_hear(h, 0, address, sizeof(address));
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) {
		h_tell_u64(h, 0, 0);
		h_skip(h, "capability 'pid_namespace' is absent: unshare: %m");
	}
	pid = fork();
	if (pid == 0)
		_exit(connect_from_inside(h, address));
	H_TRUE(pid > 0 && waitpid(pid, &status, 0) == pid);
	h_tell_u64(h, 0, 1);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NS_ABSENT)
		h_skip(h, "capability 'pid_namespace' is absent: /proc cannot be mounted");
	H_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (shares ? NS_TOLD : NS_WORKS), "status %#x", status);
}

static void outside(struct h *h)
{
	h_expect_log(h, "");
	h_open(h, NULL);
	h_listen(h);
	h_tell(h, 1, h->address, sizeof(h->address));
	while (!h_heard(h, 1))
		h_breathe(h);
	if (h_hear_u64(h, 1) == 0)
		h_skip(h, "capability 'pid_namespace' is absent");
}

const struct h_scenario cases_p11[] = {
	{.name = "P11_as_asked", .role = {as_asked}},
	{.name = "P11_unknown_name", .role = {unknown}, .flags = H_ONCE},
	{.name = "P11_none_usable", .role = {none_usable}, .flags = H_ONCE},
	{.name = "P11_first_usable", .role = {first_usable}, .flags = H_ONCE},
	{.name = "P11_malformed_name", .role = {malformed}, .flags = H_ONCE},
	{.name = "P11_bad_environment", .role = {bad_environment}, .flags = H_ONCE},
	{.name = "P11_bad_attributes", .role = {bad_attr}, .flags = H_ONCE},
	{.name = "P11_environment", .role = {environment}, .flags = H_ONCE},
	{.name = "P11_misspelt_variable", .role = {misspelt}, .flags = H_ONCE},
	{.name = "P11_list", .role = {list}, .flags = H_ONCE},
	{.name = "P11_auto", .role = {automatic}, .flags = H_ONCE},
	{.name = "P11_other_pid_namespace", .role = {outside, inside}, .flags = H_ONCE | H_KILLS},
	{.name = NULL},
};
