/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/json.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "services/load.h"
#include "services/xport_services.h"

/* The part of jansson.h that is used; test/cluster/abi.c compares it. */
static struct {
	struct svc_json *(*parse)(const char *text, size_t len, size_t flags, void *error);
	void (*free)(struct svc_json *root);
	struct svc_json *(*member)(const struct svc_json *object, const char *name);
	size_t (*size)(const struct svc_json *array);
	struct svc_json *(*at)(const struct svc_json *array, size_t i);
	const char *(*text)(const struct svc_json *string);
	long long (*number)(const struct svc_json *integer);
} json;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

int svc_json_load(const char *source, const char *operation)
{
	static bool loaded;
	const struct svc_symbol symbols[] = {
		{"json_loadb", &json.parse},          {"json_delete", &json.free},  {"json_object_get", &json.member},
		{"json_array_size", &json.size},      {"json_array_get", &json.at}, {"json_string_value", &json.text},
		{"json_integer_value", &json.number},
	};
	int r = XPORT_OK;

	pthread_mutex_lock(&load_lock);
	if (!loaded)
		r = svc_load("libjansson.so.4", "libjansson4", symbols, sizeof(symbols) / sizeof(symbols[0]), source,
		             operation);
	loaded = r == XPORT_OK;
	pthread_mutex_unlock(&load_lock);
	return r;
}

struct svc_json *svc_json_parse(const char *text, size_t len)
{
	return json.parse(text, len, 0, NULL);
}

/* The root is an object or array with one owner, as svc_json_parse returns it: json_decref would call json_delete. */
void svc_json_free(struct svc_json *root)
{
	if (root != NULL)
		json.free(root);
}

struct svc_json *svc_json_member(const struct svc_json *object, const char *name)
{
	return json.member(object, name);
}

size_t svc_json_size(const struct svc_json *array)
{
	return json.size(array);
}

struct svc_json *svc_json_at(const struct svc_json *array, size_t i)
{
	return json.at(array, i);
}

const char *svc_json_text(const struct svc_json *string)
{
	return json.text(string);
}

bool svc_json_number(const struct svc_json *value, int64_t *number)
{
	const char *text = json.text(value);
	char *end;

	if (text == NULL) {
		*number = json.number(value);
		return *number != 0;
	}
	errno = 0;
	*number = strtoll(text, &end, 10);
	return end != text && *end == '\0' && errno == 0;
}
