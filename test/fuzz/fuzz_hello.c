/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_hello.c - the first messages of a stranger: HELLO, as it is and with correct length and checksum, START and
 * PROOF. The first byte selects the message.
 */
#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include "core/auth/auth.h"
#include "core/cm/agree.h"
#include "core/wire/hello.h"
#include "fuzz/fuzz.h"

enum { FIRST = 8, SUM = 8 };

/* ---- HELLO ---- */

static void check_text(const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	FUZZ_CHECK(n < size);
	for (size_t i = 0; i < n; i++)
		FUZZ_CHECK((unsigned char)s[i] >= 0x20 && s[i] != 0x7f);
}

#define CHECK_TEXT(field) check_text(field, sizeof(field))

/* Every pair exists and fits; every sentence ends. */
static void agree(const struct xpi_hello *a, const struct xpi_hello *b)
{
	struct xpi_agreement all;
	const char *hint;
	char text[600], why[256];

	xpi_agree(a, b, &all);
	FUZZ_CHECK(all.n >= 0 && all.n <= XPI_PAIRS_MAX);
	for (int i = 0; i < all.n; i++) {
		FUZZ_CHECK(all.pairs[i].client < a->noffers && all.pairs[i].server < b->noffers);
		FUZZ_CHECK(xpi_agree_fits(b, all.pairs[i].server, a, all.pairs[i].client, why, sizeof(why)) ==
		           XPORT_OK);
	}
	xpi_agree_none(a, b, text, sizeof(text), &hint);
	check_text(text, sizeof(text));
	for (unsigned i = 0; i < a->noffers; i++) {
		xpi_agree_passed(a, i, b, 0, why, sizeof(why));
		check_text(why, sizeof(why));
	}
}

/* What the peer says comes into sentences of ours: each ends, and none steers a terminal. */
static void compare(const struct xpi_hello *theirs)
{
	static const size_t rooms[] = {512, 64, 1};
	static struct xpi_hello ours = {.wire_version = XPI_WIRE_VERSION,
	                                .library = "0.1.0",
	                                .backend = "loop",
	                                .provider = "native",
	                                .pointer_size = 8,
	                                .noffers = 1,
	                                .offers = {{"loop", "native", "loop 1", "", XPI_OFFER_OPEN}}};
	char text[512];

	for (int i = 0; i < 3; i++) {
		memset(text, 'x', sizeof(text));
		text[0] = '\0';
		if (xpi_hello_compatible(&ours, theirs, text, rooms[i]) == XPORT_OK)
			continue;
		check_text(text, rooms[i]);
	}
	FUZZ_CHECK(xpi_hello_compatible(theirs, theirs, text, sizeof(text)) == XPORT_OK);
	agree(&ours, theirs);
	agree(theirs, theirs);
}

static void same_again(const struct xpi_hello *h)
{
	static struct xpi_hello again;
	static uint8_t buf[XPI_HELLO_MAX];
	size_t len = xpi_hello_encode(h, buf, sizeof(buf));

	FUZZ_CHECK(len > 0);
	FUZZ_CHECK(xpi_hello_decode(buf, len, &again));
	FUZZ_CHECK(memcmp(h, &again, sizeof(again)) == 0);
}

static void try_hello(const uint8_t *block, size_t len)
{
	static struct xpi_hello h;

	if (len >= FIRST)
		FUZZ_CHECK(xpi_hello_length(block) <= XPI_HELLO_MAX);
	if (!xpi_hello_decode(block, len, &h))
		return;
	CHECK_TEXT(h.library);
	CHECK_TEXT(h.backend);
	CHECK_TEXT(h.provider);
	CHECK_TEXT(h.stack);
	FUZZ_CHECK(h.noffers <= XPI_OFFERS_MAX && (h.offer < h.noffers || h.offer == XPI_OFFER_NONE));
	for (unsigned i = 0; i < h.noffers; i++) {
		CHECK_TEXT(h.offers[i].backend);
		CHECK_TEXT(h.offers[i].provider);
		CHECK_TEXT(h.offers[i].protocol);
		CHECK_TEXT(h.offers[i].device);
	}
	CHECK_TEXT(h.host);
	CHECK_TEXT(h.boot_id);
	CHECK_TEXT(h.verdict_text);
	FUZZ_CHECK(h.private_len <= XPI_PRIVATE_MAX && h.address_len <= XPI_ADDRESS_MAX);
	compare(&h);
	if (h.wire_version == XPI_WIRE_VERSION)
		same_again(&h);
}

static void mend(uint8_t *block, size_t len)
{
	uint64_t sum;

	if (len < FIRST + SUM || len > UINT16_MAX)
		return;
	memcpy(block, "XPRT", 4);
	block[4] = (uint8_t)(len >> 8);
	block[5] = (uint8_t)len;
	block[6] = 0;
	block[7] = XPI_WIRE_VERSION;
	sum = XXH64(block, len - SUM, 0);
	for (int i = 0; i < SUM; i++)
		block[len - SUM + (size_t)i] = (uint8_t)(sum >> (8 * i));
}

/* A good HELLO but for its private data and address, which are the input's and as long as it says. */
static void try_blocks(struct fuzz_in *in)
{
	static const struct xpi_hello good = {.wire_version = XPI_WIRE_VERSION, .library = "0.1.0", .backend = "loop"};
	static uint8_t buf[UINT16_MAX];
	size_t at = xpi_hello_encode(&good, buf, sizeof(buf)) - SUM - 4, len, n;
	uint8_t *block;

	for (int i = 0; i < 2; i++) {
		size_t said = fuzz_u16(in);

		block = fuzz_block(in, said % 3000, &len);
		n = i == 1 && said >= 0x8000 ? said : len;
		buf[at] = (uint8_t)n;
		buf[at + 1] = (uint8_t)(n >> 8);
		memcpy(buf + at + 2, block, len);
		at += 2 + len;
		free(block);
	}
	block = malloc(at + SUM);
	FUZZ_CHECK(block != NULL);
	memcpy(block, buf, at);
	mend(block, at + SUM);
	try_hello(block, at + SUM);
	free(block);
}

/* ---- START, PROOF and seals ---- */

/* NULL: a build without libsodium. */
static struct xpi_secret *secret(void)
{
	static struct xpi_secret *made;
	struct xport_error err = {.size = sizeof(err)};
	char path[] = "/tmp/fuzz-key-XXXXXX";
	int fd;

	if (made != NULL || !xpi_auth_built())
		return made;
	fd = mkstemp(path);
	FUZZ_CHECK(fd >= 0);
	FUZZ_CHECK(write(fd, "the key of the fuzz targets\n", 28) == 28);
	FUZZ_CHECK(xpi_secret_read(path, &made, &err) == XPORT_OK);
	close(fd);
	unlink(path);
	return made;
}

/* A peer whose START, PROOF and first message are the input's is refused at the PROOF, and each of its seals too. */
static void stranger(struct fuzz_in *in, bool client)
{
	uint8_t start[XPI_START_LEN] = {0}, proof[XPI_PROOF_LEN] = {0}, own[XPI_PROOF_LEN], seal[XPI_SEAL_LEN] = {0};
	struct xpi_session *s = xpi_session_new(client);
	size_t len;
	uint8_t *block;

	FUZZ_CHECK(s != NULL);
	block = fuzz_block(in, sizeof(start), &len);
	memcpy(start, block, len);
	free(block);
	if (xpi_session_is_start(s, start))
		FUZZ_CHECK(memcmp(start, "XPKY", 4) == 0 && start[6] == (client ? 'S' : 'C'));
	FUZZ_CHECK(!xpi_session_is_start(s, xpi_session_start(s))); /* its own, reflected */
	xpi_session_derive(s, secret(), start);
	xpi_session_prove(s, own);
	FUZZ_CHECK(!xpi_session_proven(s, own)); /* reflected */
	block = fuzz_block(in, sizeof(proof), &len);
	memcpy(proof, block, len);
	free(block);
	FUZZ_CHECK(!xpi_session_proven(s, proof));
	block = fuzz_block(in, sizeof(seal), &len);
	memcpy(seal, block, len);
	free(block);
	block = fuzz_block(in, in->left, &len);
	FUZZ_CHECK(!xpi_session_open(s, XPI_SEAL_HANDSHAKE, block, len, seal));
	FUZZ_CHECK(!xpi_session_open(s, XPI_SEAL_LATER, block, len, seal));
	free(block);
	xpi_session_free(s);
}

/* Two that have the key, and somebody between them who changes one byte: `at` counts START, START, PROOF, PROOF, seal. */
static void tampered(size_t at, uint8_t by)
{
	struct xpi_session *s[2] = {xpi_session_new(false), xpi_session_new(true)};
	uint8_t start[2][XPI_START_LEN], proof[2][XPI_PROOF_LEN], seal[XPI_SEAL_LEN], msg[4] = {1, 0, 0, 0};
	bool good = by == 0, passed = true;

	FUZZ_CHECK(s[0] != NULL && s[1] != NULL);
	memcpy(start[0], xpi_session_start(s[0]), XPI_START_LEN);
	memcpy(start[1], xpi_session_start(s[1]), XPI_START_LEN);
	at %= 2 * XPI_START_LEN + 2 * XPI_PROOF_LEN + XPI_SEAL_LEN;
	if (at < 2 * XPI_START_LEN)
		start[at / XPI_START_LEN][at % XPI_START_LEN] ^= by;
	for (int i = 0; i < 2; i++) {
		passed = passed && xpi_session_is_start(s[i], start[1 - i]);
		xpi_session_derive(s[i], secret(), start[1 - i]);
	}
	xpi_session_prove(s[0], proof[0]);
	xpi_session_prove(s[1], proof[1]);
	at -= 2 * XPI_START_LEN;
	if (at < 2 * XPI_PROOF_LEN)
		proof[at / XPI_PROOF_LEN][at % XPI_PROOF_LEN] ^= by;
	for (int i = 0; i < 2; i++)
		passed = xpi_session_proven(s[i], proof[1 - i]) && passed;
	xpi_session_seal(s[1], XPI_SEAL_HANDSHAKE, msg, sizeof(msg), seal);
	at -= 2 * XPI_PROOF_LEN;
	if (at < XPI_SEAL_LEN)
		seal[at] ^= by;
	passed = xpi_session_open(s[0], XPI_SEAL_HANDSHAKE, msg, sizeof(msg), seal) && passed;
	FUZZ_CHECK(passed == good);
	xpi_session_free(s[0]);
	xpi_session_free(s[1]);
}

/* ---- words ---- */

static void try_word(const uint8_t *block, size_t len)
{
	static struct xpi_word w, again;
	static uint8_t buf[XPI_WORD_HEAD + XPI_WORD_BODY_MAX];
	size_t n;

	if (len < XPI_WORD_HEAD || !xpi_word_decode(block, len, &w))
		return;
	CHECK_TEXT(w.protocol);
	CHECK_TEXT(w.text);
	n = xpi_word_encode(&w, buf, sizeof(buf));
	FUZZ_CHECK(n == len && memcmp(buf, block, n) == 0);
	FUZZ_CHECK(xpi_word_decode(buf, n, &again) && memcmp(&w, &again, sizeof(w)) == 0);
}

/* With the length put right. */
static void try_words(struct fuzz_in *in)
{
	size_t len;
	uint8_t *block = fuzz_block(in, in->left, &len);

	if (len >= XPI_WORD_HEAD && len - XPI_WORD_HEAD <= XPI_WORD_BODY_MAX) {
		block[0] = block[0] & 1 ? 'T' : 'N';
		block[1] = (uint8_t)((len - XPI_WORD_HEAD) >> 8);
		block[2] = (uint8_t)(len - XPI_WORD_HEAD);
	}
	try_word(block, len);
	free(block);
}

int FUZZ_ENTRY(hello)(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	unsigned what = fuzz_u8(&in) % 9;
	uint8_t *block;
	size_t len;

	if (what == 8) {
		try_words(&in);
	} else if (what == 3) {
		try_blocks(&in);
	} else if (what < 3) {
		block = fuzz_block(&in, in.left, &len);
		if (what > 0)
			mend(block, len);
		try_hello(block, len);
		free(block);
	} else if (xpi_auth_built() && secret() != NULL && what < 6) {
		stranger(&in, what == 4);
	} else if (xpi_auth_built() && secret() != NULL) {
		size_t at = fuzz_u16(&in);

		tampered(at, fuzz_u8(&in));
	}
	return 0;
}
