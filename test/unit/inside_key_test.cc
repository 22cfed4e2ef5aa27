/* SPDX-License-Identifier: BSD-3-Clause */
/* inside_key_test.cc - keys, the ways around each check that no good peer and no good network takes; and who changes a word. */
#include <atomic>
#include <chrono>
#include <thread>

#include "inside_fixture.h"

namespace
{

xport_atomic_args adding(uint64_t operand, uint64_t *old)
{
	xport_atomic_args add{};

	add.size = sizeof(add);
	add.op = XPORT_ATOMIC_ADD;
	add.width = 8;
	add.operand = operand;
	add.result = old;
	return add;
}

TEST_F(Inside, KeysThatDoNotFitTheirRoom)
{
	size_t whole = inside_encode(1024);

	ASSERT_GT(whole, 40u);
	EXPECT_EQ(whole, inside_encode(whole));
	EXPECT_EQ(0u, inside_encode(whole - 1)) << "no room for the checksum";
	EXPECT_EQ(0u, inside_encode(30)) << "nor for what is before";
}

TEST_F(Inside, KeysOfOthers)
{
	Bytes key, other(1024);
	xport_rkey *rkey;

	connect();
	remote(&key);
	size_t n = inside_other_key(key.data(), key.size(), other.data(), other.size());
	ASSERT_GT(n, 0u);
	EXPECT_EQ(XPORT_ERR_STALE_KEY, xport_rkey_unpack(ep, other.data(), n, &rkey));
	EXPECT_EQ(XPORT_ERR_BAD_KEY, xport_rkey_unpack(ep, nullptr, 0, &rkey));
}

/* Its owner grants it, and the back end does not take it: the region is reached by message. */
TEST_F(Inside, ANativeKeyThatIsNone)
{
	static uint8_t source[64] = "by message";
	xport_rkey_info info{};

	connect("loop:rdma");
	inside_no_keys(6);
	xport_rkey *rkey = remote();
	poll(10);
	inside_no_keys(0);
	EXPECT_NE(std::string::npos, logged.find("cannot use a native key")) << logged;
	info.size = sizeof(info);
	ASSERT_EQ(XPORT_OK, xport_rkey_query(rkey, &info));
	EXPECT_EQ(XPORT_EMULATED, info.put);
	ASSERT_EQ(XPORT_OK, xport_put(ep, source, sizeof(source), rkey, 0, nullptr));
	auto done = poll(10);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(XPORT_OK, done[0].status);
}

/* Its owner has none after all: the region is reached by message, and what waits for the adapter ends. */
TEST_F(Inside, AGrantWithoutANativeKey)
{
	static uint8_t source[64] = "by message";
	alignas(8) static uint64_t words[8];
	xport_mr *nic;
	xport_rkey *rkey, *atomics;
	Bytes key(1024);
	size_t len = key.size();
	uint64_t old = 99;
	xport_atomic_args add = adding(5, &old);

	connect("loop:rdma");
	rkey = remote();
	ASSERT_EQ(XPORT_OK, xport_mr_reg(b, words, sizeof(words), XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC, &nic));
	ASSERT_EQ(XPORT_OK, xport_rkey_pack(nic, key.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep, key.data(), len, &atomics));
	ASSERT_EQ(XPORT_OK, xport_atomic(ep, &add, atomics, 8, nullptr));
	ASSERT_EQ(XPORT_OK, xport_put(ep, source, sizeof(source), rkey, 0, nullptr));
	inside_no_keys(1);
	auto done = poll(20);
	inside_no_keys(0);
	ASSERT_EQ(2u, done.size());
	for (const auto &c : done)
		EXPECT_EQ(c.type == XPORT_OP_PUT ? XPORT_OK : XPORT_ERR_NOT_SUPPORTED, c.status);
	EXPECT_EQ(0u, words[1]);
}

TEST_F(Inside, AGrantThatIsTooLong)
{
	xpi_rec_key k{};

	connect("loop:rdma");
	remote();
	k.r = record(XPI_REC_GRANT, 300);
	k.region = htole64(inside_region(there));
	Bytes f = bytes(k, 300);
	inside_frame(ep, f.data(), f.size(), 0);
	poll();
	EXPECT_EQ(XPORT_EP_LOST, state()) << "longer than any native key of this back end";
}

/* Its owner grants it after having taken it back. */
TEST_F(Inside, AKeyThatWasRevokedBeforeItWasGranted)
{
	static uint8_t source[8];
	xpi_rec_key k{};

	connect("loop:rdma");
	xport_rkey *rkey = remote();
	k.region = htole64(inside_region(there));
	k.r = record(XPI_REC_REVOKE);
	passes(bytes(k), "taken back");
	k.r = record(XPI_REC_GRANT);
	passes(bytes(k), "granted");
	(void)xport_poll(a, nullptr, 0);
	EXPECT_EQ(XPORT_ERR_STALE_KEY, xport_put(ep, source, sizeof(source), rkey, 0, nullptr));
}

/* Where the target's adapter carries atomics, it does so though puts and gets go by message. */
TEST_F(Inside, AtomicsOfTheAdapterBesideMessages)
{
	alignas(8) static uint64_t words[8];
	xport_mr *nic;
	xport_rkey *rkey;
	Bytes key(1024);
	size_t len = key.size();
	uint64_t old = 99;

	connect("loop:rdma", "put,get");
	memset(words, 0, sizeof(words));
	ASSERT_EQ(XPORT_OK, xport_mr_reg(b, words, sizeof(words), XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC, &nic));
	ASSERT_EQ(XPORT_OK, xport_rkey_pack(nic, key.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_rkey_unpack(ep, key.data(), len, &rkey));
	xport_atomic_args add = adding(5, &old);
	ASSERT_EQ(XPORT_OK, xport_atomic(ep, &add, rkey, 8, nullptr));
	auto done = poll(20);
	ASSERT_EQ(1u, done.size());
	EXPECT_EQ(XPORT_OK, done[0].status);
	EXPECT_EQ(0u, old);
	EXPECT_EQ(5u, words[1]);
}

/* One that comes by message all the same is not applied: the processor's atomics are none to the adapter. */
TEST_F(Inside, AnAtomicByMessageOnWhatIsTheAdapters)
{
	alignas(8) static uint64_t words[8];
	xport_mr *nic;

	connect("loop:rdma");
	memset(words, 0, sizeof(words));
	ASSERT_EQ(XPORT_OK, xport_mr_reg(a, words, sizeof(words), XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC, &nic));
	xpi_rec_atomic at{};
	at.r = record(XPI_REC_ATOMIC);
	at.r.a = XPORT_ATOMIC_ADD;
	at.r.b = htole16(8);
	at.region = htole64(inside_region(nic));
	at.operand = htole64(1);
	at.op = htole32(XPI_OP_NOBODY);
	passes(bytes(at), "an atomic");
	EXPECT_NE(std::string::npos, logged.find("refused an access: XPORT_ERR_NOT_SUPPORTED")) << logged;
	EXPECT_EQ(0u, words[0]);
}

/* A word that is aligned there and not here is changed by its owner. */
TEST_F(Inside, AtomicsOnMappedMemory)
{
	enum { ALIKE, ASKEW, TURNED_OFF };

	for (int how : {ALIKE, ASKEW, TURNED_OFF}) {
		alignas(8) static uint8_t mapped[4096 + 8];
		xport_rkey_info info{};
		uint64_t word = 0, old = 99;

		SCOPED_TRACE(how);
		memset(mapped, 0, sizeof(mapped));
		inside_mapped(mapped + (how == ASKEW ? 4 : 0));
		connect("loop:native", how == TURNED_OFF ? "atomic" : nullptr);
		xport_rkey *rkey = remote();
		poll(10);
		inside_mapped(nullptr);
		info.size = sizeof(info);
		ASSERT_EQ(XPORT_OK, xport_rkey_query(rkey, &info));
		EXPECT_EQ(XPORT_NATIVE, info.put);
		xport_atomic_args add = adding(5, &old);
		ASSERT_EQ(XPORT_OK, xport_atomic(ep, &add, rkey, 512, nullptr));
		auto done = poll(10);
		ASSERT_EQ(1u, done.size());
		EXPECT_EQ(XPORT_OK, done[0].status);
		EXPECT_EQ(0u, old);
		memcpy(&word, mapped + (how == ASKEW ? 4 : 0) + 512, sizeof(word));
		EXPECT_EQ(how == ALIKE ? 5u : 0u, word);
		if (how != ALIKE) {
			add.operand = static_cast<uint64_t>(-5); /* as it was */
			ASSERT_EQ(XPORT_OK, xport_atomic(ep, &add, rkey, 512, nullptr));
			done = poll(10);
			ASSERT_EQ(1u, done.size());
			EXPECT_EQ(5u, old) << "it is the owner's word that was changed";
		}
		drop();
	}
}

/* An answer for which neither a frame nor the network has room waits for them. */
TEST_F(Inside, AValueThatCannotLeaveYet)
{
	alignas(8) static uint64_t words[8];
	xport_mr *region;
	xport_rkey *rkey;
	Bytes key(1024);
	size_t len = key.size();
	uint64_t old = 99;
	xport_completion c{};
	int n = 0;

	connect();
	memset(words, 0, sizeof(words));
	ASSERT_EQ(XPORT_OK, xport_mr_reg(a, words, sizeof(words), XPORT_REMOTE_ATOMIC, &region));
	ASSERT_EQ(XPORT_OK, xport_rkey_pack(region, key.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_rkey_unpack(peer, key.data(), len, &rkey));
	xport_atomic_args add = adding(5, &old);
	ASSERT_EQ(XPORT_OK, xport_atomic(peer, &add, rkey, 0, nullptr));
	EXPECT_EQ(0, xport_poll(b, nullptr, 0));
	inside_no_frames(a, true);
	inside_refuse(1);
	EXPECT_EQ(0, xport_poll(a, nullptr, 0));
	EXPECT_EQ(5u, words[0]);
	inside_no_frames(a, false);
	EXPECT_EQ(0, xport_poll(b, &c, 1)) << "it left all the same";
	for (int i = 0; i < 100 && n == 0; i++) {
		EXPECT_EQ(0, xport_poll(a, nullptr, 0));
		n = xport_poll(b, &c, 1);
	}
	ASSERT_EQ(1, n);
	EXPECT_EQ(XPORT_OK, c.status);
	EXPECT_EQ(0u, old);
	EXPECT_EQ(5u, words[0]) << "once";
}

/* A peer may keep so many keys of parts that were revoked, and not one more. */
TEST_F(Inside, KeysOfPartsThatThePeerKeeps)
{
	xport_completion c{};
	Bytes key(1024);
	int n;

	connect("loop:native");
	for (int i = 0; i <= 65536; i++) {
		size_t len = key.size();

		ASSERT_EQ(XPORT_EP_OPEN, state()) << i;
		ASSERT_EQ(XPORT_OK, xport_rkey_pack_range(mr, 0, 64, 0, key.data(), &len));
		ASSERT_TRUE(inside_hold(ep, key.data(), len));
		ASSERT_EQ(XPORT_OK, xport_rkey_revoke(a, key.data(), len));
	}
	EXPECT_EQ(XPORT_EP_LOST, state());
	do
		n = xport_poll(a, &c, 1);
	while (n == 0);
	ASSERT_EQ(1, n);
	EXPECT_EQ(XPORT_EVENT_LOST, c.type);
	EXPECT_EQ(XPORT_ERR_PROTOCOL, c.status);
}

/* The grant of a native key waits in the queue, and meanwhile the key is revoked. */
TEST_F(Inside, AGrantAfterTheEndOfItsKey)
{
	Bytes key(1024);
	size_t len = key.size();

	connect("loop:native");
	ASSERT_EQ(XPORT_OK, xport_rkey_pack_range(mr, 0, 64, 0, key.data(), &len));
	ASSERT_TRUE(inside_hold(ep, key.data(), len));
	EXPECT_LT(0u, inside_granted(ep, key.data(), len));
	ASSERT_EQ(XPORT_OK, xport_rkey_revoke(a, key.data(), len));
	EXPECT_EQ(0u, inside_granted(ep, key.data(), len));
}

/* The peer's word that it is ready is not here yet, but its frames are. */
TEST_F(Inside, AKeyThatIsGrantedBeforeTheEndpointIsOpen)
{
	xport_listener *listener;
	xport_ep *second, *here = nullptr;
	Bytes key(1024);
	size_t len = key.size();
	char name[64];

	connect("loop:native");
	ASSERT_EQ(XPORT_OK, xport_rkey_pack(mr, key.data(), &len));
	ASSERT_EQ(XPORT_OK, xport_listen(a, "127.0.0.1:0", nullptr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	ASSERT_EQ(XPORT_OK, xport_connect(b, name, nullptr, 0, &second));
	for (int i = 0; i < 60000 && here == nullptr; i++) {
		EXPECT_GE(xport_poll(b, nullptr, 0), 0);
		EXPECT_GE(xport_poll(a, nullptr, 0), 0);
		here = inside_connecting(a);
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	ASSERT_NE(nullptr, here);
	inside_claim(here, mr);
	std::atomic<bool> over{false};
	std::thread owner([&] {
		EXPECT_EQ(XPORT_OK, xport_mr_dereg(mr));
		over = true;
	});
	std::this_thread::sleep_for(std::chrono::milliseconds(200));
	EXPECT_FALSE(over) << "the peer may still use it";
	while (!over)
		EXPECT_GE(xport_poll(b, nullptr, 0), 0);
	owner.join();
}

TEST_F(Inside, ADamagedKey)
{
	Bytes key;
	xport_rkey *rkey;

	connect();
	remote(&key);
	key[9] ^= 1;
	EXPECT_EQ(XPORT_ERR_BAD_KEY, xport_rkey_unpack(ep, key.data(), key.size(), &rkey));
}

TEST_F(Inside, TextThatIsTooLong)
{
	EXPECT_TRUE(inside_text_fits(65535));
	EXPECT_FALSE(inside_text_fits(65536));
}

TEST_F(Inside, OneOfTheTwoPathsByMessage)
{
	for (const char *emulate : {"put", "get", "put,get"}) {
		xport_rkey_info info{};

		connect("loop:native", emulate);
		xport_rkey *rkey = remote();
		poll(10);
		info.size = sizeof(info);
		ASSERT_EQ(XPORT_OK, xport_rkey_query(rkey, &info));
		EXPECT_EQ(strstr(emulate, "put") ? XPORT_EMULATED : XPORT_NATIVE, info.put) << emulate;
		EXPECT_EQ(strstr(emulate, "get") ? XPORT_EMULATED : XPORT_NATIVE, info.get) << emulate;
		drop();
	}
}

/* Whoever reads the control channel was kept from running for as long as that. */
TEST_F(Inside, APeerThatClosedIsNotLostThoughNobodyReadThatYet)
{
	setenv("XPORT_LIVENESS", "poll", 1);
	connect();
	unsetenv("XPORT_LIVENESS");
	xport_ep_destroy(peer);
	inside_broken_long(ep);
	EXPECT_EQ(XPORT_EP_CLOSED, state()) << logged;

	drop();
	setenv("XPORT_LIVENESS", "poll", 1);
	connect();
	unsetenv("XPORT_LIVENESS");
	inside_broken_long(ep);
	EXPECT_EQ(XPORT_EP_LOST, state()) << logged;
}

TEST_F(Inside, AKeyOfAnotherEndpoint)
{
	static uint8_t source[8];
	xport_ep *first;

	connect();
	xport_rkey *key = remote();
	first = ep;
	xport_listener *listener;
	char name[64];
	ASSERT_EQ(XPORT_OK, xport_listen(b, "127.0.0.1:0", nullptr, &listener));
	ASSERT_EQ(XPORT_OK, xport_listener_name(listener, name, sizeof(name)));
	ASSERT_EQ(XPORT_OK, xport_connect(a, name, nullptr, 0, &ep));
	for (int i = 0; i < 60000 && state() == XPORT_EP_CONNECTING; i++) {
		poll();
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	ASSERT_EQ(XPORT_EP_OPEN, state());
	EXPECT_EQ(XPORT_ERR_INVALID, xport_put(ep, source, 8, key, 0, nullptr));
	EXPECT_EQ(XPORT_OK, xport_put(first, source, 8, key, 0, nullptr));
}

} // namespace
