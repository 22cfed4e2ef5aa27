/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_cluster.c - what a launcher and an etcd send: messages of PMI-1 and PMI-2, cards in digits, and JSON answers. */
#include "fuzz/fuzz.h"
#include "services/etcd_wire.h"
#include "services/group_card.h"
#include "services/group_pmi_wire.h"
#include "services/xport_services.h"

enum { VALUE = 64 };

static void try_words(const char *text)
{
	static const char *const keys[] = {"cmd", "rc", "value", "k", ""};
	char value[VALUE], whole[SVC_PMI_MESSAGE_MAX];

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (svc_pmi1_word(text, keys[i], value, sizeof(value)))
			FUZZ_CHECK(strlen(value) < sizeof(value) && strchr(value, ' ') == NULL);
		if (!svc_pmi2_word(text, keys[i], value, sizeof(value)))
			continue;
		FUZZ_CHECK(strlen(value) < sizeof(value));
		FUZZ_CHECK(svc_pmi2_word(text, keys[i], whole, sizeof(whole)) && strcmp(value, whole) == 0);
	}
}

static void try_frame(const char *bytes, size_t len,
                      int (*frame)(const char *bytes, size_t len, size_t *begin, size_t *end, size_t *used))
{
	char text[SVC_PMI_MESSAGE_MAX];
	size_t begin, end, used;

	if (len > SVC_PMI_MESSAGE_MAX || frame(bytes, len, &begin, &end, &used) != 1)
		return;
	FUZZ_CHECK(begin <= end && end <= used && used <= len);
	FUZZ_CHECK(end - begin < SVC_PMI_MESSAGE_MAX);
	memcpy(text, bytes + begin, end - begin);
	text[end - begin] = '\0';
	try_words(text);
}

static void try_digits(const char *text)
{
	char again[2 * SVC_CARD_MAX + 8], quoted[VALUE];
	uint8_t bytes[SVC_CARD_MAX];
	struct svc_group_card card;
	long n = svc_pmi_from_hex(text, bytes, sizeof(bytes));

	if (n >= 0) {
		svc_pmi_to_hex(bytes, (size_t)n, again);
		FUZZ_CHECK(strcmp(text, again) == 0);
		svc_card_decode(&card, bytes, (size_t)n);
	}
	n = svc_base64_decode(text, bytes, sizeof(bytes));
	if (n >= 0) {
		svc_base64_encode(bytes, (size_t)n, again);
		FUZZ_CHECK(strlen(again) == strlen(text));
	}
	if (svc_json_quote(text, quoted, sizeof(quoted)))
		FUZZ_CHECK(strlen(quoted) < sizeof(quoted));
}

static void try_json(const char *text, size_t len)
{
	struct svc_json *root = svc_json_parse(text, len), *kvs;
	struct svc_etcd_entry entry;
	const char *words;
	int64_t number;
	int code;

	if (root == NULL)
		return;
	if (svc_etcd_error_read(root, &code, &words))
		FUZZ_CHECK(words != NULL && code <= 1000);
	svc_json_number(svc_json_member(root, "ID"), &number);
	svc_json_number(svc_json_member(svc_json_member(root, "result"), "TTL"), &number);
	kvs = svc_json_member(root, "kvs");
	for (size_t i = 0; i < svc_json_size(kvs); i++)
		if (svc_etcd_entry_read(svc_json_at(kvs, i), &entry))
			FUZZ_CHECK(strlen(entry.key) <= SVC_ETCD_KEY_MAX && entry.len <= sizeof(entry.value));
	svc_json_free(root);
}

int FUZZ_ENTRY(cluster)(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	FUZZ_CHECK(text != NULL && svc_json_load("fuzz", "fuzz") == XPORT_OK);
	memcpy(text, data, size);
	text[size] = '\0';
	try_frame(text, size, svc_pmi1_frame);
	try_frame(text, size, svc_pmi2_frame);
	if (size < SVC_PMI_MESSAGE_MAX)
		try_words(text);
	try_digits(text);
	try_json(text, size);
	free(text);
	return 0;
}
