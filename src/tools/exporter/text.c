/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/exporter/text.h"

#include <stdbool.h>
#include <string.h>

/* Of Prometheus: what a name may have; a digit is not the first. */
static const char name_first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
static const char name_rest[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
static const char digits[] = "0123456789";

static bool span_is(struct ex_span a, const char *word)
{
	return a.len == strlen(word) && memcmp(a.at, word, a.len) == 0;
}

static bool span_same(struct ex_span a, struct ex_span b)
{
	return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

static bool span_begins(struct ex_span a, const char *word)
{
	return a.len >= strlen(word) && memcmp(a.at, word, strlen(word)) == 0;
}

/* Takes the bytes of this set from the front of the line. */
static struct ex_span span_take(struct ex_span *line, const char *set)
{
	struct ex_span taken = {line->at, 0};

	while (taken.len < line->len && strchr(set, line->at[taken.len]) != NULL)
		taken.len++;
	line->at += taken.len;
	line->len -= taken.len;
	return taken;
}

static bool span_skip(struct ex_span *line, char c)
{
	if (line->len == 0 || *line->at != c)
		return false;
	line->at++;
	line->len--;
	return true;
}

static struct ex_span name_take(struct ex_span *line)
{
	if (line->len == 0 || strchr(name_first, *line->at) == NULL)
		return (struct ex_span){line->at, 0};
	return span_take(line, name_rest);
}

/* What xport_stats_text writes, after xport_ and xport_ep_. */
static const struct {
	const char *name, *type;
} known[] = {
	{"operations", "counter"},
	{"path_operations", "counter"},
	{"coalesced_operations", "counter"},
	{"data_bytes", "counter"},
	{"received_messages", "counter"},
	{"notifications", "counter"},
	{"refused_posts", "counter"},
	{"frames", "counter"},
	{"acknowledgement_frames", "counter"},
	{"in_flight", "gauge"},
	{"in_flight_highest", "gauge"},
	{"unmatched_messages", "gauge"},
	{"posted_receives", "gauge"},
	{"failed_operations", "counter"},
	{"latency_seconds", "histogram"},
};

enum { KNOWN = sizeof(known) / sizeof(known[0]) };
_Static_assert(2 * KNOWN == EX_KINDS, "each is a metric of the instance and one of endpoints");

/* Finds the family in the table.  False: it has another type there. */
static bool family_find(struct ex_family *f)
{
	bool ep = span_begins(f->name, "xport_ep_");
	size_t prefix = strlen(ep ? "xport_ep_" : "xport_");
	struct ex_span name = {f->name.at + prefix, f->name.len - prefix};

	f->kind = -1;
	for (int i = 0; i < KNOWN; i++) {
		if (!span_is(name, known[i].name))
			continue;
		f->kind = i + (ep ? KNOWN : 0);
		return span_is(f->type, known[i].type);
	}
	return true;
}

/* Takes digits.  False: there are none, or too many for a reader's numbers. */
static bool digits_take(struct ex_span *line)
{
	size_t n = span_take(line, digits).len;

	return n > 0 && n <= EX_DIGITS;
}

/* Takes the value of a label with its quotes. */
static bool value_take(struct ex_span *line)
{
	if (!span_skip(line, '"'))
		return false;
	while (line->len > 0 && *line->at != '"') {
		if (span_skip(line, '\\')) {
			if (line->len == 0 || strchr("\\\"n", *line->at) == NULL)
				return false;
		}
		line->at++;
		line->len--;
	}
	return span_skip(line, '"');
}

/* Labels up to the closing brace.  Those of the exporter itself are added in front. */
static const char *labels_take(struct ex_span *line)
{
	struct ex_span seen[EX_LABELS];
	int n = 0;

	do {
		struct ex_span name = name_take(line);

		if (name.len == 0)
			return "a label has no valid name";
		if (span_begins(name, "program") || span_begins(name, "__"))
			return "a label has a reserved name";
		for (int i = 0; i < n; i++)
			if (span_same(seen[i], name))
				return "a label occurs twice";
		if (n == EX_LABELS)
			return "too many labels";
		seen[n++] = name;
		if (!span_skip(line, '=') || !value_take(line))
			return "a label has no valid value";
	} while (span_skip(line, ','));
	return span_skip(line, '}') ? NULL : "the labels do not end";
}

/* Whether a sample of this name may belong to the family. */
static bool sample_of(const struct ex_family *f, struct ex_span name)
{
	struct ex_span suffix = {name.at + f->name.len, name.len - f->name.len};

	if (name.len < f->name.len || memcmp(name.at, f->name.at, f->name.len) != 0)
		return false;
	if (span_is(f->type, "counter"))
		return span_is(suffix, "_total");
	if (span_is(f->type, "gauge"))
		return suffix.len == 0;
	return span_is(suffix, "_bucket") || span_is(suffix, "_count") || span_is(suffix, "_sum");
}

static const char *sample_parse(struct ex_text *t, struct ex_span line)
{
	struct ex_family *f = t->families == 0 ? NULL : &t->family[t->families - 1];
	struct ex_span whole = line, name = name_take(&line);
	const char *why;

	if (f == NULL || !sample_of(f, name))
		return "a sample is not of the family before it";
	if (span_skip(&line, '{')) {
		why = labels_take(&line);
		if (why != NULL)
			return why;
	}
	if (!span_skip(&line, ' ') || !digits_take(&line))
		return "a sample has no valid number";
	if (span_skip(&line, '.') && !digits_take(&line))
		return "a sample has no valid number";
	if (line.len != 0)
		return "a sample does not end after its number";
	if (f->samples.at == NULL)
		f->samples.at = whole.at;
	f->samples.len = (size_t)(whole.at + whole.len + 1 - f->samples.at);
	t->samples++;
	return NULL;
}

static const char *type_parse(struct ex_text *t, struct ex_span line, struct ex_span whole)
{
	struct ex_family f = {.name = name_take(&line), .head = {whole.at, whole.len + 1}};

	if (!span_begins(f.name, "xport_") || span_begins(f.name, "xport_exporter_") || f.name.len > 128)
		return "a family has no valid name";
	if (!span_skip(&line, ' ') ||
	    (!span_is(line, "counter") && !span_is(line, "gauge") && !span_is(line, "histogram")))
		return "a family has no valid type";
	f.type = line;
	if (!family_find(&f))
		return "a family has another type than that of libxport";
	for (int i = 0; i < t->families; i++)
		if (span_same(t->family[i].name, f.name))
			return "a family occurs twice";
	if (t->families == EX_FAMILIES)
		return "too many families";
	t->family[t->families++] = f;
	return NULL;
}

/* UNIT and HELP, each once, belong to the family that has begun, and come before its samples. */
static const char *comment_parse(struct ex_text *t, struct ex_span line, struct ex_span whole, const char *word)
{
	struct ex_family *f = t->families == 0 ? NULL : &t->family[t->families - 1];
	char again[10] = "\n# ";
	struct ex_span name = name_take(&line);

	if (f == NULL || f->samples.at != NULL || !span_same(name, f->name) || !span_skip(&line, ' '))
		return "a comment is not of the family before it";
	memcpy(again + 3, word, 5);
	if (memmem(f->head.at, f->head.len, again, 8) != NULL)
		return "a comment occurs twice";
	/* OpenMetrics ends the name of a family with its unit. */
	if (word[0] == 'U' && (line.len >= name.len || name.at[name.len - line.len - 1] != '_' ||
	                       memcmp(name.at + name.len - line.len, line.at, line.len) != 0))
		return "a unit is not the end of the name";
	for (size_t i = 0; i < line.len; i++)
		if (line.at[i] == '\\' && (++i == line.len || strchr("\\\"n", line.at[i]) == NULL))
			return "a comment has an invalid escape";
	f->head.len = (size_t)(whole.at + whole.len + 1 - f->head.at);
	return NULL;
}

static const char *line_parse(struct ex_text *t, struct ex_span line)
{
	struct ex_span rest = {line.at + 7, line.len - 7};

	if (line.len == 0 || line.len > EX_LINE)
		return "a line is empty or too long";
	for (size_t i = 0; i < line.len; i++)
		if (line.at[i] < ' ' || line.at[i] > '~')
			return "a byte is not printable ASCII";
	if (line.at[0] != '#')
		return sample_parse(t, line);
	if (span_begins(line, "# TYPE "))
		return type_parse(t, rest, line);
	if (span_begins(line, "# UNIT "))
		return comment_parse(t, rest, line, "UNIT ");
	if (span_begins(line, "# HELP "))
		return comment_parse(t, rest, line, "HELP ");
	return "a comment is unknown";
}

const char *ex_text_parse(struct ex_text *t, const char *text, size_t len)
{
	static const char end[] = "# EOF\n";
	const char *at = text, *last = text + len - (sizeof(end) - 1), *why = NULL;

	*t = (struct ex_text){.line = 1};
	if (len < sizeof(end) - 1 || memcmp(last, end, sizeof(end) - 1) != 0 || (last > text && last[-1] != '\n'))
		return "the text does not end with # EOF";
	while (at < last && why == NULL) {
		const char *newline = memchr(at, '\n', (size_t)(last - at));

		why = line_parse(t, (struct ex_span){at, (size_t)(newline - at)});
		t->line += why == NULL;
		at = newline + 1;
	}
	return why;
}
