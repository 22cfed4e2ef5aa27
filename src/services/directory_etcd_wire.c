/* SPDX-License-Identifier: BSD-3-Clause */
/* What a directory asks etcd, and how its entries look there. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/directory_etcd.h"

enum { VALUE_TEXT = 4 * (SVC_DIR_MAX / 3 + 2), BODY_FIRST = 512 };

/* What follows a revision must be one, too. */
#define REVISION_MAX (INT64_MAX / 2)

/* Bodies that are written piece by piece. text NULL: out of memory. */
struct body {
	char *text;
	size_t len, size;
};

static bool body_grow(struct body *b, size_t more)
{
	char *text;

	if (b->size - b->len > more)
		return true;
	text = b->text == NULL ? NULL : realloc(b->text, 2 * (b->len + more + 1));
	if (text == NULL) {
		free(b->text);
		b->text = NULL;
		return false;
	}
	b->text = text;
	b->size = 2 * (b->len + more + 1);
	return true;
}

static void body_add(struct body *b, const char *fmt, va_list ap)
{
	va_list twice;
	int n;

	if (b->text == NULL)
		return;
	va_copy(twice, ap);
	n = vsnprintf(b->text + b->len, b->size - b->len, fmt, ap);
	if (n >= 0 && (size_t)n >= b->size - b->len && body_grow(b, (size_t)n))
		vsnprintf(b->text + b->len, b->size - b->len, fmt, twice);
	b->len += n > 0 ? (size_t)n : 0;
	va_end(twice);
}

static struct body body_new(void)
{
	struct body b = {.text = malloc(BODY_FIRST), .size = BODY_FIRST};

	return b;
}

static void body_print(struct body *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void body_print(struct body *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	body_add(b, fmt, ap);
	va_end(ap);
}

char *svc_dir_etcd_body(const char *fmt, ...)
{
	struct body b = body_new();
	va_list ap;

	va_start(ap, fmt);
	body_add(&b, fmt, ap);
	va_end(ap);
	return b.text;
}

void svc_dir_etcd_key(const char *prefix, const void *name, size_t len, char *text)
{
	uint8_t key[SVC_DIR_ETCD_KEY_MAX];
	size_t prefix_len = strlen(prefix);

	memcpy(key, prefix, prefix_len);
	if (len > 0)
		memcpy(key + prefix_len, name, len);
	svc_base64_encode(key, prefix_len + len, text);
}

void svc_dir_etcd_end(const char *prefix, char *text)
{
	char end[SVC_DIR_ETCD_PREFIX_MAX + 1];

	snprintf(end, sizeof(end), "%s", prefix);
	end[strlen(end) - 1]++; /* the slash */
	svc_base64_encode(end, strlen(end), text);
}

static void body_put(struct body *b, const struct svc_dir_etcd *s, const struct svc_dir_own *own, int64_t mod)
{
	char key[SVC_DIR_ETCD_KEY_TEXT], all[SVC_DIR_ETCD_KEY_TEXT], value[VALUE_TEXT];
	struct svc_dir_message m;

	if (!svc_dir_decode(own->value, own->len, &m))
		m.flags = 0;
	svc_dir_etcd_key(s->names, own->name.bytes, own->name.len, key);
	svc_dir_etcd_key(s->all, own->name.bytes, own->name.len, all);
	svc_base64_encode(own->value, own->len, value);
	body_print(b,
	           ",{\"request_txn\":{\"compare\":[{\"key\":\"%s\",\"result\":\"EQUAL\",\"target\":\"MOD\","
	           "\"mod_revision\":\"%" PRId64 "\"}],"
	           "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRId64 "\"}},",
	           key, mod, key, value, s->lease);
	if ((m.flags & XPORT_DIRECTORY_BROADCAST) != 0)
		body_print(b, "{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRId64 "\"}}", all,
		           value, s->lease);
	else
		body_print(b, "{\"request_delete_range\":{\"key\":\"%s\"}}", all);
	body_print(b, "],\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}}", key);
}

char *svc_dir_etcd_put_body(const struct svc_dir_etcd *s, struct svc_dir_own *const *own, const int64_t *mod,
                            unsigned n)
{
	char plain[SVC_DIR_ETCD_PREFIX_MAX + 24], seq[SVC_DIR_ETCD_KEY_TEXT];
	struct body b = body_new();

	snprintf(plain, sizeof(plain), "%.*sseq/%" PRIx64, (int)(strlen(s->all) - strlen("all/")), s->all, s->lease);
	svc_base64_encode(plain, strlen(plain), seq);
	body_print(&b,
	           "{\"compare\":[{\"key\":\"%s\",\"result\":\"EQUAL\",\"target\":\"VERSION\",\"version\":\"%" PRId64
	           "\"}],\"failure\":[{\"request_range\":{\"key\":\"%s\"}}],"
	           "\"success\":[{\"request_put\":{\"key\":\"%s\",\"lease\":\"%" PRId64 "\"}}",
	           seq, s->seq, seq, seq, s->lease);
	for (unsigned i = 0; i < n; i++)
		body_put(&b, s, own[i], mod[i]);
	body_print(&b, "]}");
	return b.text;
}

char *svc_dir_etcd_remove_body(const struct svc_dir_etcd *s, const void *name, size_t len, int64_t mod)
{
	char key[SVC_DIR_ETCD_KEY_TEXT], all[SVC_DIR_ETCD_KEY_TEXT];

	svc_dir_etcd_key(s->names, name, len, key);
	svc_dir_etcd_key(s->all, name, len, all);
	return svc_dir_etcd_body("{\"compare\":[{\"key\":\"%s\",\"result\":\"EQUAL\",\"target\":\"MOD\","
	                         "\"mod_revision\":\"%" PRId64 "\"}],"
	                         "\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}},"
	                         "{\"request_delete_range\":{\"key\":\"%s\"}}],"
	                         "\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
	                         key, mod, key, all, key);
}

char *svc_dir_etcd_find_body(const struct svc_dir_etcd *s, const void *name, size_t len)
{
	char key[SVC_DIR_ETCD_KEY_TEXT];

	svc_dir_etcd_key(s->names, name, len, key);
	return svc_dir_etcd_body("{\"key\":\"%s\"}", key);
}

size_t svc_dir_etcd_read_key(const char *prefix, const struct svc_json *kv, uint8_t *name)
{
	const char *text = svc_json_text(svc_json_member(kv, "key"));
	uint8_t key[SVC_DIR_ETCD_KEY_MAX];
	size_t prefix_len = strlen(prefix);
	long n = text == NULL ? -1 : svc_base64_decode(text, key, sizeof(key));

	if (n <= (long)prefix_len || n - (long)prefix_len > SVC_NAME_MAX || memcmp(key, prefix, prefix_len) != 0)
		return 0;
	memcpy(name, key + prefix_len, (size_t)n - prefix_len);
	return (size_t)n - prefix_len;
}

bool svc_dir_etcd_read(const char *prefix, const struct svc_json *kv, struct svc_dir_found *f)
{
	const char *value = svc_json_text(svc_json_member(kv, "value"));
	size_t len = svc_dir_etcd_read_key(prefix, kv, f->name);
	long n = value == NULL ? -1 : svc_base64_decode(value, f->value, sizeof(f->value));
	int64_t revision = svc_dir_etcd_mod(kv);

	f->lease = 0;
	f->value_len = n < 0 ? 0 : (size_t)n;
	svc_json_number(svc_json_member(kv, "lease"), &f->lease);
	if (len == 0 || n < 0 || !svc_dir_decode(f->value, (size_t)n, &f->m) || f->m.type != SVC_DIR_CHANGED ||
	    f->m.name_len != len || memcmp(f->m.name, f->name, len) != 0 || revision < 1)
		return false;
	f->m.version = (uint64_t)revision;
	return true;
}

int64_t svc_dir_etcd_mod(const struct svc_json *kv)
{
	int64_t revision = 0;

	svc_json_number(svc_json_member(kv, "mod_revision"), &revision);
	return revision < 0 || revision > REVISION_MAX ? 0 : revision;
}

int64_t svc_dir_etcd_revision(const struct svc_json *answer)
{
	int64_t revision = 0;

	svc_json_number(svc_json_member(svc_json_member(answer, "header"), "revision"), &revision);
	return revision < 0 || revision > REVISION_MAX ? 0 : revision;
}
