/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/etcd_wire.h"

#include <stdio.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void svc_base64_encode(const void *bytes, size_t len, char *text)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < len; i += 3) {
		uint32_t three = (uint32_t)b[i] << 16;

		if (i + 1 < len)
			three |= (uint32_t)b[i + 1] << 8;
		if (i + 2 < len)
			three |= b[i + 2];
		*text++ = digits[three >> 18];
		*text++ = digits[three >> 12 & 63];
		*text++ = i + 1 < len ? digits[three >> 6 & 63] : '=';
		*text++ = i + 2 < len ? digits[three & 63] : '=';
	}
	*text = '\0';
}

long svc_base64_decode(const char *text, void *bytes, size_t size)
{
	size_t len = strlen(text), digit_count = strcspn(text, "="), n = digit_count * 3 / 4;
	uint8_t *b = bytes;
	uint32_t bits = 0;
	int have = 0;

	if (len % 4 != 0 || len - digit_count > 2 || strspn(text + digit_count, "=") != len - digit_count || n > size)
		return -1;
	for (size_t i = 0; i < digit_count; i++) {
		const char *d = strchr(digits, text[i]);

		if (d == NULL)
			return -1;
		bits = bits << 6 | (uint32_t)(d - digits);
		have += 6;
		if (have >= 8) {
			have -= 8;
			*b++ = (uint8_t)(bits >> have);
		}
	}
	return (long)n;
}

bool svc_json_quote(const char *text, char *quoted, size_t size)
{
	size_t at = 0;

	if (size < 3)
		return false;
	quoted[at++] = '"';
	for (; *text != '\0'; text++) {
		if (at + 8 > size)
			return false;
		if (*text == '"' || *text == '\\')
			quoted[at++] = '\\';
		if ((unsigned char)*text < ' ')
			at += (size_t)snprintf(quoted + at, size - at, "\\u%04x", (unsigned)*text);
		else
			quoted[at++] = *text;
	}
	quoted[at++] = '"';
	quoted[at] = '\0';
	return true;
}

bool svc_etcd_entry_read(const struct svc_json *kv, struct svc_etcd_entry *entry)
{
	const char *key = svc_json_text(svc_json_member(kv, "key"));
	const char *value = svc_json_text(svc_json_member(kv, "value"));
	long n = key == NULL ? -1 : svc_base64_decode(key, entry->key, SVC_ETCD_KEY_MAX);

	if (n < 0 || !svc_json_number(svc_json_member(kv, "mod_revision"), &entry->revision))
		return false;
	entry->key[n] = '\0';
	/* An empty value is left out. */
	n = value == NULL ? 0 : svc_base64_decode(value, entry->value, sizeof(entry->value));
	entry->len = n < 0 ? 0 : (size_t)n;
	return n >= 0;
}

bool svc_etcd_error_read(const struct svc_json *answer, int *code, const char **text)
{
	const struct svc_json *error = svc_json_member(answer, "error");
	int64_t n = 0;

	/* In a stream it is an object. */
	*text = svc_json_text(error);
	if (*text == NULL)
		*text = svc_json_text(svc_json_member(error, "message"));
	if (*text == NULL)
		return false;
	if (!svc_json_number(svc_json_member(answer, "code"), &n))
		svc_json_number(svc_json_member(error, "grpc_code"), &n);
	*code = n < 0 || n > 1000 ? 1000 : (int)n;
	return true;
}
