/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * names.c - a user of a directory in etcd, for test/cluster/run:   names [put NAME | all NAME | find NAME | remove NAME | watch |
 * why | hold | pause MS | burst N | still MS | crowd MS | both NAME | event NAME | appears NAME]...
 *
 * Does one after the other, and prints how each ended, with the error's text and hint.  `hold` prints events until standard
 * input ends, `pause` for a time, and `event` until one with this name has come. `appears` finds a name until it is there.  `burst` puts N names at once, `both` asks for a watch and a find at once, `still` takes no
 * events for a time, and `crowd` neither, and counts them then.  Ends with 1 if something failed.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "services/xport_services.h"

enum { LIMIT_MS = 20000, SLICE_MS = 50 };

static int bad;

static void print_status(const char *what, const char *name, int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status != XPORT_OK && (xport_services_last_error(&e) != XPORT_OK || e.status != status))
		snprintf(e.text, sizeof(e.text), "no text");
	printf("%s %s: %s", what, name, xport_status_name(status));
	printf(status == XPORT_OK ? "\n" : ": %s|%s\n", e.text, e.hint);
	fflush(stdout);
	bad |= status != XPORT_OK;
}

static void print_event(const struct xport_directory_event *e)
{
	static const char *const types[] = {"?", "done", "changed", "gone", "missed", "lost"};

	printf("event %s %.*s %s\n", types[e->type], (int)e->name_len, (const char *)e->name,
	       xport_status_name(e->status));
	fflush(stdout);
}

/* Waits for DONE; other events are printed. */
static int done(xport_directory *d, int asked)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int r = asked;

	for (e.type = 0; r == XPORT_OK && e.type != XPORT_DIRECTORY_DONE;) {
		r = xport_directory_wait(d, &e, NULL, NULL, LIMIT_MS);
		if (r == XPORT_OK && e.type != XPORT_DIRECTORY_DONE)
			print_event(&e);
	}
	return r == XPORT_OK ? e.status : r;
}

static void hold(xport_directory *d)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	struct xport_directory_event e = {.size = sizeof(e)};
	char byte;

	while (poll(&p, 1, 0) == 0 || read(STDIN_FILENO, &byte, 1) > 0)
		if (xport_directory_wait(d, &e, NULL, NULL, SLICE_MS) == XPORT_OK)
			print_event(&e);
}

static void pause_ms(xport_directory *d, int ms)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	struct timespec t;
	int64_t end = 0, now = 0;

	for (; end == 0 || now < end; end = end == 0 ? now + ms : end) {
		if (xport_directory_wait(d, &e, NULL, NULL, 10) == XPORT_OK)
			print_event(&e);
		clock_gettime(CLOCK_MONOTONIC, &t);
		now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
	}
}

/* Waits for an event: with this name, or of this type. */
static void event(xport_directory *d, const char *name)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	bool missed = strcmp(name, "missed") == 0, found = false;

	while (!found && xport_directory_wait(d, &e, NULL, NULL, LIMIT_MS) == XPORT_OK) {
		print_event(&e);
		found = missed ? e.type == XPORT_DIRECTORY_MISSED
		               : e.name_len == strlen(name) && memcmp(e.name, name, e.name_len) == 0;
	}
	bad |= !found;
}

/* Finds a name until it is there. */
static void appears(xport_directory *d, const char *name)
{
	int tries = LIMIT_MS / SLICE_MS;

	while (done(d, xport_directory_find(d, name, strlen(name), NULL)) != XPORT_OK && --tries > 0)
		pause_ms(d, SLICE_MS);
	printf("appears %s: %s\n", name, tries > 0 ? "yes" : "no");
	bad |= tries == 0;
}

/* Puts names at once; prints how many succeeded. */
static void burst(xport_directory *d, int n, const struct xport_directory_entry *entry)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int ok = 0, asked = 0;
	char name[16];

	for (; asked < n; asked++) {
		snprintf(name, sizeof(name), "n%d", asked);
		if (xport_directory_put(d, name, strlen(name), entry, 0, NULL) != XPORT_OK)
			break;
	}
	for (int i = 0; i < asked && xport_directory_wait(d, &e, NULL, NULL, LIMIT_MS) == XPORT_OK;) {
		i += e.type == XPORT_DIRECTORY_DONE;
		ok += e.type == XPORT_DIRECTORY_DONE && e.status == XPORT_OK;
	}
	printf("burst: %d of %d asked, %d ok\n", asked, n, ok);
}

static void still(xport_directory *d, int ms)
{
	for (int i = 0; i < ms; i++) {
		(void)xport_directory_step(d, NULL);
		usleep(1000);
	}
}

/* Counts the events that were queued while none was taken. */
static void crowd(xport_directory *d, int ms)
{
	struct xport_directory_event e = {.size = sizeof(e)};
	int n = 0;

	still(d, ms);
	while (xport_directory_next(d, &e) == 1)
		n++;
	printf("crowd: %d\n", n);
}

/* A watch, and a find behind it. */
static void both(xport_directory *d, const char *name, size_t len)
{
	print_status("both", name,
	             xport_directory_watch(d, NULL) == XPORT_OK ? xport_directory_find(d, name, len, NULL)
	                                                        : XPORT_ERR_AGAIN);
	print_status("watch", "", done(d, XPORT_OK));
	print_status("find", name, done(d, XPORT_OK));
}

static const char *one(xport_directory *d, const char *what, const char *name)
{
	struct xport_directory_entry entry = {
		.size = sizeof(entry), .length = 1, .rights = XPORT_REMOTE_READ, .key_len = 1};
	struct xport_directory_info info = {.size = sizeof(info)};
	size_t len = name == NULL ? 0 : strlen(name);

	if (strcmp(what, "watch") == 0) {
		print_status(what, "", done(d, xport_directory_watch(d, NULL)));
		return NULL;
	}
	if (strcmp(what, "hold") == 0) {
		hold(d);
		return NULL;
	}
	if (strcmp(what, "why") == 0) {
		print_status(what, xport_directory_query(d, &info) == XPORT_OK ? info.why : "", XPORT_OK);
		return NULL;
	}
	if (strcmp(what, "pause") == 0)
		pause_ms(d, atoi(name));
	else if (strcmp(what, "event") == 0)
		event(d, name);
	else if (strcmp(what, "appears") == 0)
		appears(d, name);
	else if (strcmp(what, "burst") == 0)
		burst(d, atoi(name), &entry);
	else if (strcmp(what, "still") == 0)
		still(d, atoi(name));
	else if (strcmp(what, "crowd") == 0)
		crowd(d, atoi(name));
	else if (strcmp(what, "both") == 0)
		both(d, name, len);
	else if (strcmp(what, "find") == 0)
		print_status(what, name, done(d, xport_directory_find(d, name, len, NULL)));
	else if (strcmp(what, "remove") == 0)
		print_status(what, name, done(d, xport_directory_remove(d, name, len, NULL)));
	else
		print_status(
			what, name,
			done(d, xport_directory_put(d, name, len, &entry,
		                                    strcmp(what, "all") == 0 ? XPORT_DIRECTORY_BROADCAST : 0, NULL)));
	return name;
}

int main(int argc, char **argv)
{
	struct xport_directory_attr a = {.size = sizeof(a), .node = "here", .ttl_s = 2};
	xport_directory *d;
	xport *x;
	int r = xport_open(NULL, &x);

	if (r != XPORT_OK)
		return 1;
	r = xport_directory_create(x, &a, &d);
	if (r != XPORT_OK) {
		print_status("create", "", r);
		xport_close(x);
		return 1;
	}
	for (int i = 1; i < argc; i++)
		if (one(d, argv[i], i + 1 < argc ? argv[i + 1] : NULL) != NULL)
			i++;
	(void)xport_directory_destroy(d, NULL, NULL, 5000);
	xport_close(x);
	return bad;
}
