/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/group_pmi_wire.h"

#include <stdlib.h>
#include <string.h>

int svc_pmi1_frame(const char *bytes, size_t len, size_t *begin, size_t *end, size_t *used)
{
	const char *newline = memchr(bytes, '\n', len);

	if (newline == NULL)
		return len >= SVC_PMI_MESSAGE_MAX ? -1 : 0;
	*begin = 0;
	*end = (size_t)(newline - bytes);
	*used = *end + 1;
	return 1;
}

int svc_pmi2_frame(const char *bytes, size_t len, size_t *begin, size_t *end, size_t *used)
{
	size_t n = 0, at = 0;

	while (at < SVC_PMI2_HEAD && at < len && bytes[at] == ' ')
		at++;
	if (at == SVC_PMI2_HEAD)
		return -1;
	for (; at < SVC_PMI2_HEAD && at < len && bytes[at] >= '0' && bytes[at] <= '9'; at++)
		n = n * 10 + (size_t)(bytes[at] - '0');
	/* Some servers put the length at the left, and spaces after it. */
	for (; at < SVC_PMI2_HEAD && at < len && bytes[at] == ' '; at++)
		;
	if (at < SVC_PMI2_HEAD)
		return at == len ? 0 : -1;
	if (n == 0 || n >= SVC_PMI_MESSAGE_MAX - SVC_PMI2_HEAD)
		return -1;
	if (len < SVC_PMI2_HEAD + n)
		return 0;
	*begin = SVC_PMI2_HEAD;
	*end = *used = SVC_PMI2_HEAD + n;
	return 1;
}

bool svc_pmi1_word(const char *text, const char *key, char *value, size_t size)
{
	size_t len = strlen(key), n;

	for (const char *at = text; at != NULL; at = strchr(at, ' ')) {
		at += strspn(at, " ");
		if (strncmp(at, key, len) != 0 || at[len] != '=')
			continue;
		n = strcspn(at + len + 1, " ");
		if (n >= size)
			return false;
		memcpy(value, at + len + 1, n);
		value[n] = '\0';
		return true;
	}
	return false;
}

/* Copies up to the semicolon that ends the item, and returns what follows. *fits: it has been copied whole. */
static const char *item_value(const char *at, char *value, size_t size, bool *fits)
{
	size_t n = 0;

	for (; *at != '\0'; at++) {
		if (at[0] == ';' && at[1] != ';')
			break;
		at += at[0] == ';';
		if (n < size)
			value[n] = *at;
		n++;
	}
	*fits = n < size;
	if (*fits)
		value[n] = '\0';
	return *at == ';' ? at + 1 : at;
}

bool svc_pmi2_word(const char *text, const char *key, char *value, size_t size)
{
	size_t len = strlen(key);
	char none[1];
	bool fits;

	while (*text != '\0') {
		if (strncmp(text, key, len) == 0 && text[len] == '=') {
			item_value(text + len + 1, value, size, &fits);
			return fits;
		}
		text = item_value(text, none, 0, &fits);
	}
	return false;
}

void svc_pmi_to_hex(const uint8_t *bytes, size_t len, char *hex)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	hex[2 * len] = '\0';
}

int svc_pmi_from_hex(const char *hex, uint8_t *bytes, size_t size)
{
	size_t len = strlen(hex);

	if (len % 2 != 0 || len / 2 > size || strspn(hex, "0123456789abcdef") != len)
		return -1;
	for (size_t i = 0; i < len / 2; i++) {
		char two[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

		bytes[i] = (uint8_t)strtoul(two, NULL, 16);
	}
	return (int)(len / 2);
}
