/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stalls - whether a poll stands still because of one connection that is not made:
 *
 *   stalls target ADDRESS:PORT     listens there, answers who connects 5 s later, and polls no more then
 *   stalls ADDRESS:PORT SECONDS    connects, gives up after so long, and polls for 15 s more
 *
 * The second ends with the longest poll, and with 0 if that took less than half a second.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xport.h>

enum { BURST = 10, LONGEST_MS = 500, AFTER_MS = 15000 };

static xport *x;

static void check(int rc, const char *what)
{
	struct xport_error e = {.size = sizeof(e)};

	if (rc >= 0)
		return;
	if (x == NULL || xport_last_error(x, &e) != XPORT_OK)
		e.text[0] = '\0';
	fprintf(stderr, "stalls: %s: %s\n", what, e.text);
	exit(2);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static int target(const char *address)
{
	struct xport_completion c;
	xport_listener *l;

	check(xport_listen(x, address, NULL, &l), "listening");
	puts("listening");
	fflush(stdout);
	sleep(5);
	for (int i = 0; i < BURST; i++) {
		check(xport_poll(x, &c, 1), "polling");
		usleep(2000);
	}
	sleep(60);
	return 0;
}

/* The longest poll in so many milliseconds, and what it brought. */
static int64_t longest_in(int64_t ms, const char *when)
{
	int64_t longest = 0, t, end = now_ms() + ms;

	while ((t = now_ms()) < end) {
		struct xport_completion c;
		int64_t took;
		int n = xport_poll(x, &c, 1);

		check(n, "polling");
		took = now_ms() - t;
		longest = took > longest ? took : longest;
		if (n == 1)
			printf("%s: event %d, %s\n", when, (int)c.type, xport_status_name(c.status));
		usleep(20000); /* so slow that the target answers nothing but its first message */
	}
	printf("%s: the longest poll took %d ms\n", when, (int)longest);
	return longest;
}

static int initiator(const char *address, int seconds)
{
	int64_t longest, more;
	xport_ep *ep = NULL;

	check(xport_connect(x, address, NULL, 0, &ep), "connecting");
	longest = longest_in(INT64_C(1000) * seconds, "connecting");
	more = now_ms();
	xport_ep_destroy(ep);
	more = now_ms() - more;
	printf("giving up took %d ms\n", (int)more);
	longest = more > longest ? more : longest;
	more = longest_in(AFTER_MS, "afterwards");
	xport_close(x);
	return longest >= LONGEST_MS || more >= LONGEST_MS;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: stalls target ADDRESS:PORT | stalls ADDRESS:PORT SECONDS\n");
		return 2;
	}
	check(xport_open(NULL, &x), "opening");
	return strcmp(argv[1], "target") == 0 ? target(argv[2]) : initiator(argv[1], atoi(argv[2]));
}
