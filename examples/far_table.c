/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far_table.c - a table that is larger than what any one process lends.
 *
 *	far_table			starts three lenders of 1 MiB each, and uses them
 *	far_table lend			a lender: prints its address and its entry, and serves until its peer has gone
 *
 * Row i has the number i * i. A real program gets the entries from a directory (xport_directory); this one reads them from
 * the output of the lenders that it has started.
 */
#include <stdio.h>
#include <stdlib.h>
#include <xport_services.h>

enum { LENDERS = 3, LEND = 1 << 20, PIECE = 64 << 10, ROW = 16, ROWS = (5 << 19) / ROW, WAIT_MS = 30000 };

struct row {
	uint64_t number, square;
};

static void check(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_services_last_error(&e);
	fprintf(stderr, "far_table: %s: %s\n", xport_strerror(status), e.status == status ? e.text : "");
	exit(1);
}

/* Ends with the first endpoint that ends. */
static void lend(xport *x, xport_far *far)
{
	struct xport_directory_entry entry = {.size = sizeof(entry)};
	xport_listener *listener;
	struct xport_completion c;
	char name[64] = "";
	xport_ep *ep;
	int n;

	check(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	check(xport_listener_name(listener, name, sizeof(name)));
	check(xport_far_entry(far, &entry));
	fwrite(name, sizeof(name), 1, stdout);
	fwrite(&entry, sizeof(entry), 1, stdout);
	fclose(stdout);
	check(xport_accept(listener, WAIT_MS, &ep));
	do {
		check(n = xport_wait(x, &c, 1, 10));
		check(xport_far_step(far, n > 0 ? &c : NULL));
	} while (n == 0 || (c.type != XPORT_EVENT_LOST && c.type != XPORT_EVENT_CLOSED));
	exit(0);
}

/* Starts a lender, connects to it, and adds it. */
static void add(xport *x, xport_far *far, const char *program)
{
	struct xport_far_event e = {.size = sizeof(e)};
	struct xport_directory_entry entry;
	char command[4096], name[64];
	xport_ep *ep;
	FILE *out;

	snprintf(command, sizeof(command), "exec '%s' lend", program);
	out = popen(command, "r");
	if (out == NULL || fread(name, sizeof(name), 1, out) != 1 || fread(&entry, sizeof(entry), 1, out) != 1)
		exit(1);
	check(xport_connect(x, name, NULL, WAIT_MS, &ep));
	check(xport_far_add(far, ep, &entry, NULL));
	check(xport_far_wait(far, &e, NULL, NULL, WAIT_MS)); /* XPORT_FAR_JOINED */
	check(e.status);
}

/* Writes or reads one row, and waits for it. */
static void row(xport *x, xport_far *far, xport_far_block *table, uint64_t i, struct row *r, int write)
{
	struct xport_completion c = {0};

	check(write ? xport_far_put(table, i * ROW, r, ROW, NULL) : xport_far_get(table, i * ROW, r, ROW, NULL));
	do {
		int n = xport_wait(x, &c, 1, WAIT_MS);

		check(n == 0 ? XPORT_ERR_TIMEOUT : n);
	} while (xport_far_step(far, &c) != 0 || (c.type != XPORT_OP_PUT && c.type != XPORT_OP_GET));
	check(c.status);
}

int main(int argc, char **argv)
{
	struct xport_far_args args = {
		.size = sizeof(args), .length = (uint64_t)ROWS * ROW, .piece = PIECE, .policy = XPORT_FAR_SPREAD};
	struct xport_far_attr attr = {.size = sizeof(attr), .lend = argc > 1 ? LEND : 0};
	struct xport_far_event e = {.size = sizeof(e)};
	xport_far_block *table;
	xport_far *far;
	xport *x;

	check(xport_open(NULL, &x));
	check(xport_far_create(x, &attr, &far));
	if (argc > 1)
		lend(x, far);
	for (int i = 0; i < LENDERS; i++)
		add(x, far, argv[0]);
	check(xport_far_alloc(far, &args, &table));
	check(xport_far_wait(far, &e, NULL, NULL, WAIT_MS)); /* XPORT_FAR_DONE */
	check(e.status);
	printf("%d rows in %d KiB; a lender has %d KiB\n", ROWS, (int)(args.length >> 10), LEND >> 10);
	for (uint64_t i = 0; i < ROWS; i += 1000)
		row(x, far, table, i, &(struct row){i, i * i}, 1);
	for (uint64_t i = 0; i < ROWS; i += 1000) {
		struct row r = {0};

		row(x, far, table, i, &r, 0);
		if (r.number != i || r.square != i * i)
			return fprintf(stderr, "far_table: row %d is wrong\n", (int)i), 1;
	}
	return puts("all rows are right") < 0;
}
