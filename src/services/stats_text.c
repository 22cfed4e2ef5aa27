/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters in OpenMetrics format: one table of samples, for the instance and for each endpoint. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/last_error.h"
#include "services/stats_label.h"

static const char stats_op[] = "xport_stats_text";

enum { LABELS_MAX = 900 };

/* A source of counters: the instance, or an endpoint. */
struct subject {
	char labels[LABELS_MAX]; /* "" or "local=\"...\",...": of an endpoint */
	struct xport_counters n;
};

/* The text so far; `at` goes on beyond `size`, to say what is needed. */
struct page {
	char *text;
	size_t size, at;
};

/* A sample: a field of struct xport_counters, with a label of its own. */
struct sample {
	const char *label, *value; /* NULL: none */
	size_t field;
};

struct family {
	const char *name, *help;
	bool counter;
	struct sample sample[8];
};

#define FIELD(name) offsetof(struct xport_counters, name)

static const struct family families[] = {
	{"operations",
         "Operations accepted, by kind.",
         true,
         {{"op", "put", FIELD(puts)},
          {"op", "get", FIELD(gets)},
          {"op", "put_notify", FIELD(put_notifies)},
          {"op", "atomic", FIELD(atomics)},
          {"op", "send", FIELD(sends)},
          {"op", "flush", FIELD(flushes)}}},
	{"path_operations",
         "Operations with data, by the path that the data took.",
         true,
         {{"path", "copy", FIELD(by_copy)},
          {"path", "network", FIELD(by_network)},
          {"path", "message", FIELD(by_message)},
          {"path", "cma", FIELD(by_cma)}}},
	{"coalesced_operations", "Operations that shared a frame with others.", true, {{NULL, NULL, FIELD(coalesced)}}},
	{"data_bytes",
         "Bytes of operations and messages.",
         true,
         {{"direction", "out", FIELD(bytes_out)}, {"direction", "in", FIELD(bytes_in)}}},
	{"received_messages", "Receives that a message has matched.", true, {{NULL, NULL, FIELD(receives)}}},
	{"notifications", "Notifications that have arrived.", true, {{NULL, NULL, FIELD(notifications)}}},
	{"refused_posts", "Posts refused with XPORT_ERR_AGAIN.", true, {{NULL, NULL, FIELD(again)}}},
	{"frames",
         "Frames sent and received.",
         true,
         {{"direction", "out", FIELD(frames_out)}, {"direction", "in", FIELD(frames_in)}}},
	{"acknowledgement_frames",
         "Frames that carry only acknowledgements or reports.",
         true,
         {{"direction", "out", FIELD(acks_out)}, {"direction", "in", FIELD(acks_in)}}},
	{"in_flight", "Operations and events that are not reaped yet.", false, {{NULL, NULL, FIELD(in_flight)}}},
	{"in_flight_highest", "The highest in_flight so far.", false, {{NULL, NULL, FIELD(in_flight_max)}}},
	{"unmatched_messages", "Messages that wait for a receive.", false, {{NULL, NULL, FIELD(unmatched)}}},
	{"posted_receives", "Receives that wait for a message.", false, {{NULL, NULL, FIELD(posted_receives)}}},
};

__attribute__((format(printf, 2, 3))) static void page_add(struct page *p, const char *fmt, ...)
{
	bool fits = p->at < p->size;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(fits ? p->text + p->at : NULL, fits ? p->size - p->at : 0, fmt, ap);
	va_end(ap);
	p->at += n < 0 ? 0 : (size_t)n;
}

/* One line. Labels with commas between them. */
static void page_sample(struct page *p, const char *prefix, const struct family *f, const struct subject *s,
                        const char *label, const char *value, uint64_t number)
{
	bool braces = s->labels[0] != '\0' || label != NULL;

	page_add(p, "%s%s%s%s%s", prefix, f->name, f->counter ? "_total" : "", braces ? "{" : "", s->labels);
	if (label != NULL)
		page_add(p, "%s%s=\"%s\"", s->labels[0] != '\0' ? "," : "", label, value);
	page_add(p, "%s %" PRIu64 "\n", braces ? "}" : "", number);
}

static void page_head(struct page *p, const char *prefix, const struct family *f)
{
	page_add(p, "# TYPE %s%s %s\n# HELP %s%s %s\n", prefix, f->name, f->counter ? "counter" : "gauge", prefix,
	         f->name, f->help);
}

/* Kinds of operations that are measured, by enum xport_type. */
static const char *const measured[] = {
	[XPORT_OP_PUT] = "put",       [XPORT_OP_GET] = "get",   [XPORT_OP_PUT_NOTIFY] = "put_notify",
	[XPORT_OP_ATOMIC] = "atomic", [XPORT_OP_SEND] = "send", [XPORT_OP_FLUSH] = "flush"};

/* The histogram of one kind: each bucket has those before it, too. */
static void page_histogram(struct page *p, const char *prefix, const struct subject *s, int kind)
{
	enum { BUCKETS = sizeof(s->n.latency[0]) / sizeof(s->n.latency[0][0]), FIRST_NS = 256, NS = 1000000000 };
	const char *comma = s->labels[0] != '\0' ? "," : "", *op = measured[kind];
	uint64_t below = 0;

	for (int i = 0; i < BUCKETS; i++) {
		uint64_t ns = (uint64_t)FIRST_NS << i;

		below += s->n.latency[kind][i];
		page_add(p, "%slatency_seconds_bucket{%s%sop=\"%s\",le=\"", prefix, s->labels, comma, op);
		if (i < BUCKETS - 1)
			page_add(p, "%" PRIu64 ".%09" PRIu64, ns / NS, ns % NS);
		else
			page_add(p, "+Inf");
		page_add(p, "\"} %" PRIu64 "\n", below);
	}
	page_add(p, "%slatency_seconds_count{%s%sop=\"%s\"} %" PRIu64 "\n", prefix, s->labels, comma, op, below);
	page_add(p, "%slatency_seconds_sum{%s%sop=\"%s\"} %" PRIu64 ".%09" PRIu64 "\n", prefix, s->labels, comma, op,
	         s->n.latency_ns[kind] / NS, s->n.latency_ns[kind] % NS);
}

/* Kinds that were measured at least once. Without XPORT_LATENCY=1 there are none, and nothing is written. */
static void page_latencies(struct page *p, const char *prefix, const struct subject *list, size_t n)
{
	static const uint64_t none[sizeof(list->n.latency[0]) / sizeof(uint64_t)];
	bool begun = false;

	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < (int)(sizeof(measured) / sizeof(measured[0])); k++) {
			if (measured[k] == NULL || memcmp(list[i].n.latency[k], none, sizeof(none)) == 0)
				continue;
			if (!begun)
				page_add(p,
				         "# TYPE %slatency_seconds histogram\n# UNIT %slatency_seconds seconds\n"
				         "# HELP %slatency_seconds Time from a post to its completion, by kind.\n",
				         prefix, prefix, prefix);
			begun = true;
			page_histogram(p, prefix, &list[i], k);
		}
	}
}

/* All families of these subjects. */
static void page_subjects(struct page *p, const char *prefix, const struct subject *list, size_t n)
{
	static const struct family errors = {
		"failed_operations", "Operations that ended in error, by status.", true, {{0}}};
	enum { STATUSES = sizeof(list->n.errors) / sizeof(list->n.errors[0]) };

	if (n == 0)
		return;
	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		page_head(p, prefix, &families[f]);
		for (size_t i = 0; i < n; i++) {
			for (const struct sample *s = families[f].sample; s->field != 0; s++) {
				uint64_t number;

				memcpy(&number, (const char *)&list[i].n + s->field, sizeof(number));
				page_sample(p, prefix, &families[f], &list[i], s->label, s->value, number);
			}
		}
	}
	page_head(p, prefix, &errors);
	for (size_t i = 0; i < n; i++)
		for (int e = 1; e < STATUSES && -e >= XPORT_ERR_BUSY; e++)
			page_sample(p, prefix, &errors, &list[i], "status", xport_status_name(-e), list[i].n.errors[e]);
	page_latencies(p, prefix, list, n);
}

/* ---- labels ---- */

void svc_label_add(char *labels, size_t size, const char *name, const char *value)
{
	size_t at = strlen(labels), begin = at;

	at += (size_t)snprintf(labels + at, size - at, "%s%s=\"", at > 0 ? "," : "", name);
	if (at + 2 > size) {
		labels[begin] = '\0';
		return;
	}
	for (; *value != '\0' && at + 4 <= size; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			labels[at++] = '\\';
		if (*value == '\n')
			labels[at++] = 'n';
		else
			labels[at++] = (char)((*value >= ' ' && *value <= '~') ? *value : '?');
	}
	labels[at++] = '"';
	labels[at] = '\0';
}

/* Fills in an endpoint. *open is false if it is not open. */
static int subject_fill(xport *x, const xport_ep *ep, struct subject *s, bool *open)
{
	struct xport_ep_info info = {.size = sizeof(info)};
	char pid[24];
	int r;

	s->n.size = sizeof(s->n);
	r = xport_stats(x, ep, &s->n);
	if (r != XPORT_OK)
		return svc_pass(x, r, stats_op);
	if (ep == NULL)
		return XPORT_OK;
	r = xport_ep_query(ep, &info);
	if (r != XPORT_OK)
		return svc_pass(x, r, stats_op);
	*open = info.state == XPORT_EP_OPEN;
	snprintf(pid, sizeof(pid), "%lld", (long long)info.peer_pid);
	svc_label_add(s->labels, sizeof(s->labels), "local", info.local);
	svc_label_add(s->labels, sizeof(s->labels), "peer", info.peer);
	svc_label_add(s->labels, sizeof(s->labels), "host", info.peer_host);
	svc_label_add(s->labels, sizeof(s->labels), "pid", pid);
	svc_label_add(s->labels, sizeof(s->labels), "backend", info.backend);
	svc_label_add(s->labels, sizeof(s->labels), "provider", info.provider);
	return XPORT_OK;
}

static int subject_order(const void *a, const void *b)
{
	return strcmp(((const struct subject *)a)->labels, ((const struct subject *)b)->labels);
}

/* An endpoint that was given twice is written once. Returns how many are left. */
static size_t subjects_unique(struct subject *list, size_t n)
{
	size_t kept = 0;

	if (n > 1)
		qsort(list, n, sizeof(*list), subject_order);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || subject_order(&list[kept - 1], &list[i]) != 0)
			list[kept++] = list[i];
	return kept;
}

int xport_stats_text(xport *x, xport_ep *const *eps, size_t n, char *text, size_t *len)
{
	struct page p = {.text = text, .size = len == NULL ? 0 : *len};
	struct subject whole = {.labels = ""}, *list;
	size_t used = 0, size = p.size;
	int r = XPORT_OK;

	if (x == NULL || len == NULL || (eps == NULL && n > 0) || (text == NULL && size > 0))
		return svc_fail(XPORT_ERR_INVALID, stats_op, NULL, "%s is NULL",
		                x == NULL              ? "the instance"
		                : len == NULL          ? "len"
		                : eps == NULL && n > 0 ? "eps"
		                                       : "text");
	list = calloc(n + 1, sizeof(*list));
	if (list == NULL)
		return svc_fail(XPORT_ERR_NO_MEMORY, stats_op, NULL, "out of memory");
	for (size_t i = 0; i < n && r == XPORT_OK; i++) {
		bool open = false;

		if (eps[i] == NULL)
			r = svc_fail(XPORT_ERR_INVALID, stats_op, NULL, "endpoint %zu is NULL", i);
		else
			r = subject_fill(x, eps[i], &list[used], &open);
		if (open)
			used++;
		else
			memset(&list[used], 0, sizeof(list[used]));
	}
	if (r == XPORT_OK)
		r = subject_fill(x, NULL, &whole, NULL);
	if (r == XPORT_OK) {
		used = subjects_unique(list, used);
		p.size = 0; /* first only the length */
		page_subjects(&p, "xport_", &whole, 1);
		page_subjects(&p, "xport_ep_", list, used);
		page_add(&p, "# EOF\n");
		*len = p.at + 1;
		if (p.at + 1 > size)
			r = svc_fail(XPORT_ERR_BOUNDS, stats_op, NULL, "the text has %zu bytes, the buffer %zu",
			             p.at + 1, size);
	}
	if (r == XPORT_OK) {
		p = (struct page){.text = text, .size = size};
		page_subjects(&p, "xport_", &whole, 1);
		page_subjects(&p, "xport_ep_", list, used);
		page_add(&p, "# EOF\n");
		*len = p.at;
	}
	free(list);
	return r;
}
