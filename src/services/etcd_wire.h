/* SPDX-License-Identifier: BSD-3-Clause */
/* etcd_wire.h - what requests and answers of etcd's JSON gateway consist of. */
#ifndef SVC_ETCD_WIRE_H
#define SVC_ETCD_WIRE_H

#include "services/json.h"

enum { SVC_ETCD_KEY_MAX = 128, SVC_ETCD_VALUE_MAX = 1024 };

/* An entry. */
struct svc_etcd_entry {
	char key[SVC_ETCD_KEY_MAX + 1];
	size_t len;
	uint8_t value[SVC_ETCD_VALUE_MAX];
	int64_t revision; /* that changed it last; 0: there is no such entry */
};

/* Writes 4 * ((len + 2) / 3) characters and a NUL. */
void svc_base64_encode(const void *bytes, size_t len, char *text);
/* Returns the number of bytes, or -1 if the text is not base64, or longer than `size` bytes. */
long svc_base64_decode(const char *text, void *bytes, size_t size);

/* Writes a JSON string with its quotes. False: it does not fit. */
bool svc_json_quote(const char *text, char *quoted, size_t size);

/* Reads an entry as etcd describes it. False: it is none, or is longer than the entries of a group. */
bool svc_etcd_entry_read(const struct svc_json *kv, struct svc_etcd_entry *entry);
/* Reads an error. False: the answer is none. `code` is that of gRPC. */
bool svc_etcd_error_read(const struct svc_json *answer, int *code, const char **text);

#endif
