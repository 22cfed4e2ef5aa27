/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <xport.h>

static void to_stderr(void *arg, int level, const char *id, const char *line)
{
	fprintf(stderr, "%s[%d] %s %s\n", (const char *)arg, level, id, line);
}

int main(void)
{
	struct xport_attr attr = {.size = sizeof(attr),
	                          .log_fn = to_stderr,
	                          .log_arg = "example",
	                          .log_level = XPORT_LOG_INFO};
	struct xport_error e = {.size = sizeof(e)};
	xport *x = NULL;
	xport_ep *ep; /* never set: nobody listens on port 1 */
	int status = xport_open(&attr, &x);

	if (status == XPORT_OK)
		status = xport_connect(x, "127.0.0.1:1", NULL, 2000, &ep);
	if (status < 0) {
		xport_last_error(x, &e);
		fprintf(stderr, "%s (%s)\n", xport_strerror(status),
		        xport_status_name(status));
		fprintf(stderr, "%s to %s: %s [%s]\n", e.operation, e.peer,
		        e.text, e.native);
		fprintf(stderr, "what to do: %s\n", e.hint);
	}
	if (x == NULL)
		return 1;
	xport_dump(x); /* what is in flight, as lines of the log */
	xport_close(x);
	return status != XPORT_ERR_REFUSED;
}
