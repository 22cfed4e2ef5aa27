/* SPDX-License-Identifier: BSD-3-Clause */
#include <array>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/auth/auth.h"
#include "core/auth/key_file.h"
}

namespace
{

using Bytes = std::vector<uint8_t>;

class Auth : public testing::Test
{
protected:
	void SetUp() override
	{
		if (!xpi_auth_built())
			GTEST_SKIP() << "libsodium is absent from this build";
		ASSERT_NE(nullptr, mkdtemp(dir));
		err.size = sizeof(err);
	}
	void TearDown() override
	{
		for (xpi_secret *s : secrets)
			xpi_secret_free(s);
		for (xpi_session *s : sessions)
			xpi_session_free(s);
		for (const std::string &path : files)
			unlink(path.c_str());
		(void)rmdir(dir);
	}

	std::string file(const std::string &name, const std::string &bytes, mode_t mode = 0600)
	{
		std::string path = std::string(dir) + "/" + name;

		files.insert(path);
		std::ofstream(path, std::ios::binary) << bytes;
		EXPECT_EQ(0, chmod(path.c_str(), mode));
		return path;
	}
	xpi_secret *secret(const std::string &bytes)
	{
		xpi_secret *s = nullptr;

		EXPECT_EQ(XPORT_OK, xpi_secret_read(file("key", bytes).c_str(), &s, &err)) << err.text;
		secrets.push_back(s);
		return s;
	}
	xpi_session *session(bool client)
	{
		sessions.push_back(xpi_session_new(client));
		return sessions.back();
	}
	static Bytes start(const xpi_session *s)
	{
		return Bytes(xpi_session_start(s), xpi_session_start(s) + XPI_START_LEN);
	}
	static Bytes prove(xpi_session *s)
	{
		Bytes proof(XPI_PROOF_LEN);

		xpi_session_prove(s, proof.data());
		return proof;
	}
	static Bytes seal(xpi_session *s, xpi_seal_kind kind, const Bytes &msg)
	{
		Bytes out(msg);

		out.resize(msg.size() + XPI_SEAL_LEN);
		xpi_session_seal(s, kind, msg.data(), msg.size(), out.data() + msg.size());
		return out;
	}
	static bool open(xpi_session *s, xpi_seal_kind kind, const Bytes &sealed)
	{
		size_t len = sealed.size() - XPI_SEAL_LEN;

		return xpi_session_open(s, kind, sealed.data(), len, sealed.data() + len);
	}
	/* Two sides that have heard each other's START. */
	struct Pair {
		xpi_session *client, *server;
	};
	Pair pair(const xpi_secret *client_key, const xpi_secret *server_key)
	{
		Pair p{session(true), session(false)};

		xpi_session_derive(p.client, client_key, xpi_session_start(p.server));
		xpi_session_derive(p.server, server_key, xpi_session_start(p.client));
		return p;
	}
	void refused(const std::string &path, const char *why, const char *hint)
	{
		xpi_secret *s = nullptr;

		EXPECT_EQ(XPORT_ERR_CONFIG, xpi_secret_read(path.c_str(), &s, &err)) << path;
		EXPECT_EQ(nullptr, s);
		EXPECT_NE(nullptr, strstr(err.text, "XPORT_AUTH_KEY_FILE")) << err.text;
		EXPECT_NE(nullptr, strstr(err.text, why)) << err.text;
		EXPECT_NE(nullptr, strstr(err.hint, hint)) << err.hint;
	}

	char dir[40] = "/tmp/xport-auth.XXXXXX";
	struct xport_error err {
	};
	std::set<std::string> files;
	std::vector<xpi_secret *> secrets;
	std::vector<xpi_session *> sessions;
};

const std::string KEY1 = "0123456789abcdef0123456789abcdef", KEY2 = "0123456789abcdef0123456789abcdeg";
const Bytes HELLO_C(700, 'c'), HELLO_S(900, 's');

} // namespace

TEST_F(Auth, BothProveTheSameKey)
{
	Pair p = pair(secret(KEY1), secret(KEY1 + "\n"));
	Bytes c = prove(p.client), s = prove(p.server);

	EXPECT_NE(c, s);
	EXPECT_TRUE(xpi_session_proven(p.server, c.data()));
	EXPECT_TRUE(xpi_session_proven(p.client, s.data()));
}

TEST_F(Auth, AnotherKeyProvesNothing)
{
	Pair p = pair(secret(KEY1), secret(KEY2));
	Bytes c = prove(p.client), s = prove(p.server);

	EXPECT_FALSE(xpi_session_proven(p.server, c.data()));
	EXPECT_FALSE(xpi_session_proven(p.client, s.data()));
	Bytes m = seal(p.client, XPI_SEAL_LATER, {1, 0, 0, 0});
	EXPECT_FALSE(open(p.server, XPI_SEAL_LATER, m));
}

/* What is read of a file is all of it. */
TEST_F(Auth, EachByteOfTheKeyCounts)
{
	std::string longest(XPI_SECRET_MAX, 'k');
	xpi_secret *right = secret(longest);

	for (size_t i = 0; i < longest.size(); i += i < 100 ? 1 : 333) {
		std::string other(longest);

		other[i] ^= 1;
		Pair p = pair(secret(other), right);
		EXPECT_FALSE(xpi_session_proven(p.server, prove(p.client).data())) << i;
	}
	/* No padding makes two keys one. */
	Pair p = pair(secret(longest.substr(1)), right);
	EXPECT_FALSE(xpi_session_proven(p.server, prove(p.client).data()));
}

TEST_F(Auth, EachBitOfAProofCounts)
{
	Pair p = pair(secret(KEY1), secret(KEY1));
	Bytes proof = prove(p.client);

	for (size_t bit = 0; bit < 8 * proof.size(); bit++) {
		proof[bit / 8] ^= 1 << bit % 8;
		EXPECT_FALSE(xpi_session_proven(p.server, proof.data())) << bit;
		proof[bit / 8] ^= 1 << bit % 8;
	}
	EXPECT_TRUE(xpi_session_proven(p.server, proof.data()));
}

/* Each bit of either START: not one of the other role, or other secrets. */
TEST_F(Auth, EachBitOfAStartCounts)
{
	xpi_secret *key = secret(KEY1);

	for (bool client : {true, false}) {
		for (size_t bit = 0; bit < 8 * XPI_START_LEN; bit++) {
			xpi_session *from = session(client), *to = session(!client);
			Bytes heard = start(from);

			ASSERT_TRUE(xpi_session_is_start(to, heard.data()));
			heard[bit / 8] ^= 1 << bit % 8;
			EXPECT_EQ(bit >= 64, xpi_session_is_start(to, heard.data())) << bit;
			xpi_session_derive(to, key, heard.data());
			xpi_session_derive(from, key, xpi_session_start(to));
			EXPECT_FALSE(xpi_session_proven(to, prove(from).data())) << bit;
			EXPECT_FALSE(xpi_session_proven(from, prove(to).data())) << bit;
		}
	}
}

TEST_F(Auth, StartsAreFresh)
{
	std::vector<Bytes> seen;

	for (int i = 0; i < 50; i++) {
		Bytes s = start(session(true));

		for (const Bytes &other : seen)
			EXPECT_NE(other, s);
		seen.push_back(s);
	}
}

/* An attacker sends back what it is sent, in either role. */
TEST_F(Auth, ReflectionProvesNothing)
{
	xpi_secret *key = secret(KEY1);

	for (bool client : {true, false}) {
		xpi_session *s = session(client);
		Bytes mine = start(s);

		EXPECT_FALSE(xpi_session_is_start(s, mine.data()));
		mine[6] = client ? 'S' : 'C'; /* a START of the other role with the same random bytes */
		ASSERT_TRUE(xpi_session_is_start(s, mine.data()));
		xpi_session_derive(s, key, mine.data());
		Bytes m = seal(s, XPI_SEAL_LATER, {1, 0, 0, 0}), proof = prove(s);
		EXPECT_FALSE(xpi_session_proven(s, proof.data()));
		EXPECT_FALSE(open(s, XPI_SEAL_LATER, m));
	}
}

/* Two connections of the same peer at once: the proof of one is none in the other. */
TEST_F(Auth, AProofOfAnotherConnectionProvesNothing)
{
	xpi_secret *key = secret(KEY1);
	Pair one = pair(key, key), two = pair(key, key);
	xpi_session *repeated = session(false);

	EXPECT_FALSE(xpi_session_proven(two.server, prove(one.client).data()));
	EXPECT_FALSE(xpi_session_proven(one.client, prove(two.server).data()));
	/* All that the client said, again, to a server that has chosen another START. */
	xpi_session_derive(repeated, key, xpi_session_start(two.client));
	EXPECT_FALSE(xpi_session_proven(repeated, prove(two.client).data()));
}

/* Each bit of either HELLO, of its seal, and of READY's. */
TEST_F(Auth, EachBitOfAHelloCounts)
{
	xpi_secret *key = secret(KEY1);
	Pair p = pair(key, key);
	Bytes c = seal(p.client, XPI_SEAL_HANDSHAKE, HELLO_C), s, ready;
	auto each_bit = [](xpi_session *to, Bytes m, const char *what) {
		for (size_t bit = 0; bit < 8 * m.size(); bit++) {
			m[bit / 8] ^= 1 << bit % 8;
			EXPECT_FALSE(open(to, XPI_SEAL_HANDSHAKE, m)) << what << " bit " << bit;
			m[bit / 8] ^= 1 << bit % 8;
		}
		for (size_t n = XPI_SEAL_LEN; n < m.size(); n++)
			EXPECT_FALSE(open(to, XPI_SEAL_HANDSHAKE, Bytes(m.begin(), m.begin() + ssize_t(n)))) << what;
		EXPECT_TRUE(open(to, XPI_SEAL_HANDSHAKE, m)) << what;
	};

	xpi_session_note(p.client, HELLO_C.data(), HELLO_C.size());
	each_bit(p.server, c, "the client's");
	xpi_session_note(p.server, HELLO_C.data(), HELLO_C.size());
	s = seal(p.server, XPI_SEAL_HANDSHAKE, HELLO_S);
	xpi_session_note(p.server, HELLO_S.data(), HELLO_S.size());
	each_bit(p.client, s, "the server's");
	xpi_session_note(p.client, HELLO_S.data(), HELLO_S.size());
	each_bit(p.server, seal(p.client, XPI_SEAL_HANDSHAKE, {'R'}), "READY");
}

/* The answer vouches for what was asked, and READY for both HELLOs. */
TEST_F(Auth, SealsCoverWhatWentBefore)
{
	xpi_secret *key = secret(KEY1);
	Bytes changed(HELLO_C);
	Pair p = pair(key, key);

	changed[5] ^= 1;
	xpi_session_note(p.client, HELLO_C.data(), HELLO_C.size());
	xpi_session_note(p.server, changed.data(), changed.size());
	EXPECT_FALSE(open(p.client, XPI_SEAL_HANDSHAKE, seal(p.server, XPI_SEAL_HANDSHAKE, HELLO_S)));
	EXPECT_FALSE(open(p.server, XPI_SEAL_HANDSHAKE, seal(p.client, XPI_SEAL_HANDSHAKE, {'R'})));
	/* What ends a handshake does not say how far it was. */
	p = pair(key, key);
	xpi_session_note(p.client, HELLO_C.data(), HELLO_C.size());
	EXPECT_TRUE(open(p.server, XPI_SEAL_LATER, seal(p.client, XPI_SEAL_LATER, {'F'})));
	/* And one is not the other. */
	EXPECT_FALSE(open(p.server, XPI_SEAL_HANDSHAKE, seal(p.client, XPI_SEAL_LATER, {'R'})));
}

TEST_F(Auth, LaterMessagesAreNeitherRepeatedNorReorderedNorDropped)
{
	xpi_secret *key = secret(KEY1);
	Pair p = pair(key, key);
	const Bytes beat{1, 0, 0, 0}, bye{2, 0, 0, 0};
	Bytes first = seal(p.client, XPI_SEAL_LATER, beat), second = seal(p.client, XPI_SEAL_LATER, beat), third;

	EXPECT_NE(first, second);
	EXPECT_FALSE(open(p.server, XPI_SEAL_LATER, second));
	EXPECT_TRUE(open(p.server, XPI_SEAL_LATER, first));
	EXPECT_FALSE(open(p.server, XPI_SEAL_LATER, first));
	EXPECT_FALSE(open(p.client, XPI_SEAL_LATER, second)) << "reflected";
	EXPECT_TRUE(open(p.server, XPI_SEAL_LATER, second));
	/* One that was not sent in the end leaves no gap. */
	(void)seal(p.client, XPI_SEAL_LATER, beat);
	xpi_session_unseal(p.client);
	third = seal(p.client, XPI_SEAL_LATER, bye);
	for (size_t bit = 0; bit < 8 * third.size(); bit++) {
		third[bit / 8] ^= 1 << bit % 8;
		EXPECT_FALSE(open(p.server, XPI_SEAL_LATER, third)) << bit;
		third[bit / 8] ^= 1 << bit % 8;
	}
	EXPECT_TRUE(open(p.server, XPI_SEAL_LATER, third));
}

TEST_F(Auth, KeyFilesThatAreTaken)
{
	for (size_t n : {size_t(XPI_SECRET_MIN), size_t(XPI_SECRET_MAX)})
		for (const char *end : {"", "\n"})
			(void)secret(std::string(n, 'k') + end);
	for (mode_t mode : {0600, 0400, 0700}) {
		xpi_secret *s = nullptr;

		EXPECT_EQ(XPORT_OK, xpi_secret_read(file("mode", KEY1, mode).c_str(), &s, &err)) << mode << err.text;
		xpi_secret_free(s);
		unlink((std::string(dir) + "/mode").c_str());
	}
	std::string link = std::string(dir) + "/link";
	xpi_secret *s = nullptr;
	ASSERT_EQ(0, symlink("key", link.c_str()));
	files.insert(link);
	EXPECT_EQ(XPORT_OK, xpi_secret_read(link.c_str(), &s, &err)) << err.text;
	xpi_secret_free(s);
}

TEST_F(Auth, KeyFilesThatAreRefused)
{
	std::string fifo = std::string(dir) + "/fifo", foreign = file("foreign", KEY1), same = file("same", KEY1);

	refused(file("short", std::string(XPI_SECRET_MIN - 1, 'k')), "fewer than 16 bytes", "umask 077");
	refused(file("short2", std::string(XPI_SECRET_MIN - 1, 'k') + "\n"), "fewer than 16 bytes", "umask 077");
	refused(file("empty", ""), "fewer than 16 bytes", "umask 077");
	refused(file("long", std::string(XPI_SECRET_MAX + 1, 'k')), "more than 4096 bytes", "umask 077");
	refused(file("long2", std::string(XPI_SECRET_MAX + 1, 'k') + "\n"), "more than 4096 bytes", "umask 077");
	refused(file("long3", std::string(100000, 'k')), "more than 4096 bytes", "umask 077");
	for (mode_t mode : {0644, 0640, 0604, 0620, 0602, 0610, 0601, 0666})
		refused(file("open", KEY1, mode), "others than its owner", "chmod 600 '");
	refused(std::string(dir), "is a directory", "regular");
	refused(std::string(dir) + "/absent", "cannot open", "");
	ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
	files.insert(fifo);
	refused(fifo, "a named pipe", "regular");
	refused("/dev/zero", "not a regular file", "regular");
	if (geteuid() == 0) {
		ASSERT_EQ(0, chown(foreign.c_str(), 65534, 65534));
		refused(foreign, "belongs to user 65534", "chown 0 '");
		/* One of root's will do for others, if they may read it. */
		ASSERT_EQ(0, seteuid(65534));
		refused("/etc/passwd", "others than its owner", "chmod 600 '");
		ASSERT_EQ(0, seteuid(0));
	}
	/* Nothing is mapped at its beginning. */
	refused("/proc/self/mem", "cannot read", "");
	/* The key itself is in no message. */
	EXPECT_EQ(nullptr, strstr(err.text, KEY1.c_str()));
}

/* A build without libsodium says so, and that at once. */
TEST(AuthNone, WithoutLibsodiumAKeyFileIsRefused)
{
	struct xport_error err {
	};
	xpi_secret *s = nullptr;

	if (xpi_auth_built())
		GTEST_SKIP() << "this build has libsodium";
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, xpi_secret_read("/dev/null", &s, &err));
	EXPECT_NE(nullptr, strstr(err.text, "built without libsodium")) << err.text;
}
