/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * json.h - JSON, read by libjansson.so.4, which is loaded when it is used.  All functions take NULL, and a value of
 * another type: they return NULL, 0 or false.
 */
#ifndef SVC_JSON_H
#define SVC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value. All values of a text belong to its root. */
struct svc_json;

/* Loads the library. XPORT_OK, or NOT_SUPPORTED, described. */
int svc_json_load(const char *source, const char *operation);
/* NULL: the text is not one JSON value, or there is no memory for it. */
struct svc_json *svc_json_parse(const char *text, size_t len);
void svc_json_free(struct svc_json *root);

struct svc_json *svc_json_member(const struct svc_json *object, const char *name);
size_t svc_json_size(const struct svc_json *array);
struct svc_json *svc_json_at(const struct svc_json *array, size_t i);
/* The text of a string; it ends with NUL, and has no other one. */
const char *svc_json_text(const struct svc_json *string);
/* An integer, or a string that is a decimal number. */
bool svc_json_number(const struct svc_json *value, int64_t *number);

#endif
