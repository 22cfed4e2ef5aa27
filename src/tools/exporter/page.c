/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/exporter/page.h"

#include <inttypes.h>
#include <string.h>

/* The samples of one family of one publisher. */
static void page_samples(struct ex_buffer *page, const struct ex_family *f, const char *labels)
{
	const char *at = f->samples.at, *end = f->samples.at + f->samples.len;

	while (at < end) {
		const char *next = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
		size_t name = strcspn(at, "{ ");
		bool braces = at[name] == '{';

		ex_buffer_add(page, at, name);
		ex_buffer_add(page, "{", 1);
		ex_buffer_add(page, labels, strlen(labels));
		ex_buffer_add(page, braces ? "," : "}", 1);
		at += name + braces;
		ex_buffer_add(page, at, (size_t)(next - at));
		at = next;
	}
}

/* All of one kind, with what the first text says of it. */
static void page_kind(struct ex_buffer *page, const struct ex_publishers *p, const struct ex_family *kind)
{
	ex_buffer_add(page, kind->head.at, kind->head.len);
	for (int i = 0; i < p->n; i++) {
		const struct ex_text *t = &p->list[i]->text;

		for (int k = 0; k < t->families; k++)
			if (t->family[k].kind == kind->kind && t->family[k].samples.len > 0)
				page_samples(page, &t->family[k], p->list[i]->labels);
	}
}

void ex_page_write(struct ex_buffer *page, const struct ex_publishers *p)
{
	ex_buffer_print(page,
	                "# TYPE xport_exporter_publishers gauge\n"
	                "# HELP xport_exporter_publishers Instances of processes on this page.\n"
	                "xport_exporter_publishers %d\n"
	                "# TYPE xport_exporter_left_out gauge\n"
	                "# HELP xport_exporter_left_out Files that are not on this page, by reason.\n",
	                p->n);
	for (int i = 0; i < EX_REASONS; i++)
		ex_buffer_print(page, "xport_exporter_left_out{reason=\"%s\"} %u\n", ex_reason_names[i],
		                p->left_out[i]);
	ex_buffer_print(page, "# TYPE xport_exporter_age_seconds gauge\n# UNIT xport_exporter_age_seconds seconds\n"
	                      "# HELP xport_exporter_age_seconds Time since a process wrote its counters.\n");
	for (int i = 0; i < p->n; i++)
		ex_buffer_print(page, "xport_exporter_age_seconds{%s} %" PRId64 ".%03" PRId64 "\n", p->list[i]->labels,
		                p->list[i]->age_ms / 1000, p->list[i]->age_ms % 1000);
	for (int k = 0; k < EX_KINDS; k++)
		if (p->kind[k] != NULL)
			page_kind(page, p, p->kind[k]);
	ex_buffer_add(page, "# EOF\n", 6);
}
