/* SPDX-License-Identifier: BSD-3-Clause */
/* cases_metrics.c - counters as text. */
#include <stdlib.h>

#include "conform/harness.h"
#include "services/services.h"
#include "services/xport_services.h"

enum { PAGE = 1 << 16 };

static void target(struct h *h)
{
	h_mesh(h, NULL);
	h_sync(h);
	h_sync(h);
}

/* The number of lines that begin with `begin` and have `has`. */
static int lines(const char *page, const char *begin, const char *has)
{
	int n = 0;

	for (const char *at = page; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL) {
		const char *end = strchr(at, '\n'), *found = strstr(at, has);

		n += strncmp(at, begin, strlen(begin)) == 0 && found != NULL && found < end;
	}
	return n;
}

/* Each line is a comment, or NAME{LABELS} NUMBER; the last one is the end. */
static void well_formed(struct h *h, const char *page)
{
	size_t len = strlen(page);

	H_TRUE(len > 6 && strcmp(page + len - 6, "# EOF\n") == 0);
	for (const char *at = page; *at != '\0'; at = strchr(at, '\n') + 1) {
		const char *end = strchr(at, '\n'), *space = end;

		H_TRUE(end != NULL);
		if (*at == '#')
			continue;
		while (space > at && *space != ' ')
			space--;
		H_TRUE(strncmp(at, "xport_", 6) == 0);
		H_TRUE(space > at && strspn(space + 1, "0123456789") == (size_t)(end - space - 1));
		H_TRUE(memchr(at, '{', (size_t)(end - at)) == NULL || space[-1] == '}');
	}
}

static void user(struct h *h)
{
	char *page = h_buf(h, PAGE);
	xport_ep *twice[2];
	size_t len = PAGE, needed = 0;

	h_mesh(h, NULL);
	H_OK(xport_flush(h->ep[0], NULL));
	H_STATUS(XPORT_OK, H_EVENT(XPORT_OP_FLUSH).status);
	twice[0] = twice[1] = h->ep[0];
	H_OK(xport_stats_text(h->x, twice, 2, page, &len));
	H_EQ(strlen(page), len);
	well_formed(h, page);
	H_EQ(1, lines(page, "xport_operations_total{op=\"flush\"} 1", ""));
	H_EQ(1, lines(page, "xport_ep_operations_total{local=\"", "op=\"flush\"} 1\n"));
	H_EQ(1, lines(page, "# TYPE xport_ep_in_flight gauge", ""));

	/* None, too small, exactly enough. */
	H_STATUS(XPORT_ERR_BOUNDS, xport_stats_text(h->x, h->ep, 1, NULL, &needed));
	SVC_ERROR(XPORT_ERR_BOUNDS, "xport_stats_text", "the buffer 0");
	memset(page, 'x', PAGE);
	len = needed - 1;
	H_STATUS(XPORT_ERR_BOUNDS, xport_stats_text(h->x, h->ep, 1, page, &len));
	H_EQ(needed, len);
	H_EQ('x', page[0]);
	H_OK(xport_stats_text(h->x, h->ep, 1, page, &len));
	H_EQ(needed, len + 1);
	H_EQ('x', page[needed]);
	len = PAGE;
	H_OK(xport_stats_text(h->x, NULL, 0, page, &len));
	H_EQ(0, lines(page, "xport_ep_", ""));

	/* Wrong arguments. */
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(NULL, NULL, 0, page, &len));
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, NULL, 1, page, &len));
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, NULL, 0, page, NULL));
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, NULL, 0, NULL, &len));
	twice[1] = NULL;
	H_STATUS(XPORT_ERR_INVALID, xport_stats_text(h->x, twice, 2, page, &len));
	SVC_ERROR(XPORT_ERR_INVALID, "xport_stats_text", "endpoint 1 is NULL");

	/* The peer ends: what it counted is left in the instance's. */
	h_sync(h);
	H_OK(xport_ep_close(h->ep[0], 5000));
	len = PAGE;
	H_OK(xport_stats_text(h->x, h->ep, 1, page, &len));
	H_EQ(0, lines(page, "xport_ep_", ""));
	H_EQ(1, lines(page, "xport_operations_total{op=\"flush\"} 1", ""));
	h_sync(h);
}

const struct h_scenario svc_cases_metrics[] = {
	{.name = "metrics_as_text", .role = {target, user}},
	{.name = NULL},
};
