/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <xport_services.h>

static xport *x;

static void must(int status)
{
	struct xport_error e = {.size = sizeof(e)};

	if (status >= 0)
		return;
	xport_last_error(x, &e);
	fprintf(stderr, "%s: %s\n", e.operation, e.text);
	exit(1);
}

int main(void)
{
	/* A column of a matrix of 100 rows with 10 numbers each. */
	struct xport_prepared_run column = {.local = 0,
	                                    .remote = 3 * 8,
	                                    .length = 8,
	                                    .level = {{100, 8, 80}, {0}}};
	struct xport_prepared_info info = {.size = sizeof(info)};
	struct xport_opt o = {.size = sizeof(o)};
	static uint64_t matrix[100][10], copy[100];
	struct xport_completion c = {0};
	char key[2048], name[64];
	size_t len = sizeof(key), index, posted;
	xport_listener *listener;
	xport_ep *ep, *peer;
	xport_prepared *set;
	xport_rkey *rkey;
	xport_mr *mr;
	int r;

	/* Both ends are here: the instance connects to its own listener. */
	must(xport_open(NULL, &x));
	must(xport_listen(x, "127.0.0.1:0", NULL, &listener));
	must(xport_listener_name(listener, name, sizeof(name)));
	must(xport_connect(x, name, NULL, -1, &ep));
	must(xport_accept(listener, -1, &peer));
	must(xport_mr_reg(x, matrix, sizeof(matrix),
	                  XPORT_REMOTE_READ | XPORT_REMOTE_WRITE, &mr));
	must(xport_rkey_pack(mr, key, &len));
	must(xport_rkey_unpack(ep, key, len, &rkey));

	must(xport_prepared_create(x, ep, rkey, copy, sizeof(copy), NULL,
	                           &set));
	must(xport_prepared_add(set, &column, sizeof(column), 1, &index));
	must(xport_prepared_query(set, index, &info));
	printf("%llu bytes in %llu lists\n", (unsigned long long)info.bytes,
	       (unsigned long long)info.lists);

	for (uint64_t i = 0; i < 100; i++)
		matrix[i][3] = i + 1;
	o.context = set;
	posted = 0;
	while ((r = xport_prepared_get(set, index, &o, &posted)) ==
	       XPORT_ERR_AGAIN)
		must(xport_poll(x, NULL, 0));
	must(r);
	while (c.context != set)
		must(xport_wait(x, &c, 1, -1));
	must(c.status); /* the column is here */

	for (uint64_t i = 0; i < 100; i++)
		copy[i] *= 2;
	c.context = NULL;
	posted = 0;
	while ((r = xport_prepared_put(set, index, &o, &posted)) ==
	       XPORT_ERR_AGAIN)
		must(xport_poll(x, NULL, 0));
	must(r);
	while (c.context != set)
		must(xport_wait(x, &c, 1, -1));
	must(c.status);
	printf("%llu\n", (unsigned long long)matrix[99][3]);
	xport_prepared_destroy(set);
	xport_close(x);
	return matrix[0][3] != 2 || matrix[99][3] != 200;
}
