/* SPDX-License-Identifier: BSD-3-Clause */
/* units_test.cc - parts of the services that need no instance. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "services/xport_services.h"

extern "C" {
#include "services/stats_label.h"
#include "services/units.h"

int svc_link_wait_ms(uint64_t *random, int first_ms, int max_ms, uint32_t failures);
}

namespace
{

std::string last_text()
{
	xport_error e = {};

	e.size = sizeof(e);
	EXPECT_EQ(XPORT_OK, xport_services_last_error(&e));
	return std::string(e.text) + "|" + e.hint;
}

bool locks(const char *backend, const char *provider)
{
	xport_info info = {};

	snprintf(info.backend, sizeof(info.backend), "%s", backend);
	snprintf(info.provider, sizeof(info.provider), "%s", provider);
	return svc_memlock_network_c(&info) != 0;
}

TEST(Memlock, NetworksThatLock)
{
	EXPECT_TRUE(locks("verbs", "rxe0"));
	EXPECT_TRUE(locks("ofi", "verbs"));
	EXPECT_TRUE(locks("ofi", "verbs;ofi_rxm"));
	EXPECT_TRUE(locks("ofi", "psm2"));
	EXPECT_TRUE(locks("ofi", "psm3;ofi_rxd"));
	EXPECT_TRUE(locks("ofi", "efa"));
	EXPECT_TRUE(locks("ucx", "rc"));
	EXPECT_TRUE(locks("ucx", "rc_mlx5"));
	EXPECT_TRUE(locks("ucx", "dc_x"));
	EXPECT_TRUE(locks("ucx", "ib"));
	EXPECT_TRUE(locks("ucx", "ud"));
	EXPECT_TRUE(locks("ucx", "ud_x"));
	EXPECT_FALSE(locks("ucx", "tcp"));
	EXPECT_FALSE(locks("ucx", "shm"));
	EXPECT_FALSE(locks("ofi", "tcp"));
	EXPECT_FALSE(locks("ofi", "udp"));
	EXPECT_FALSE(locks("ofi", "udp;ofi_rxd"));
}

/* Doubled up to the limit, then by a random part less: from half of it to all of it, and the same for the same seed. */
TEST(LinkWait, DoublesUpToTheLimitWithJitter)
{
	uint64_t one = 1, same = 1, other = 2;
	int differ = 0, low = 0, high = 0;

	for (int turn = 0; turn < 200; turn++) {
		for (uint32_t failures = 0; failures < 40; failures++) {
			int full = failures < 7 ? 10 << failures : 1000;
			int ms = svc_link_wait_ms(&one, 10, 1000, failures);
			EXPECT_LE(full - full / 2, ms);
			EXPECT_GE(full, ms);
			EXPECT_EQ(ms, svc_link_wait_ms(&same, 10, 1000, failures));
			differ += ms != svc_link_wait_ms(&other, 10, 1000, failures);
			low += full == 1000 && ms < 550;
			high += full == 1000 && ms > 950;
		}
	}
	EXPECT_GT(differ, 4000);
	EXPECT_GT(low, 200);
	EXPECT_GT(high, 200);
	EXPECT_EQ(1, svc_link_wait_ms(&one, 1, 1, 5));
	EXPECT_LE(INT32_MAX / 2, svc_link_wait_ms(&one, INT32_MAX, INT32_MAX, UINT32_MAX));
	EXPECT_GE(svc_link_wait_ms(&one, 1, INT32_MAX, UINT32_MAX), INT32_MAX / 2);
}

TEST(Memlock, TheLimitIsCheckedAhead)
{
	EXPECT_EQ(XPORT_OK, svc_memlock_check_c(1 << 20, 0, 0, 1 << 20));
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, svc_memlock_check_c(1 << 20, 0, 0, (1 << 20) + 1));
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, svc_memlock_check_c(1 << 20, 1, 0, 1 << 20));
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, svc_memlock_check_c(1 << 20, 2 << 20, 0, 1));
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, svc_memlock_check_c(8 << 20, 6 << 20, 0, 4 << 20));
	EXPECT_NE(std::string::npos,
	          last_text().find("cannot lock 4096 KiB more; the limit of locked memory is 8192 KiB, and "
	                           "6144 KiB are locked already|raise the limit: ulimit -l"));
	EXPECT_EQ(XPORT_OK, svc_memlock_check_c(8 << 20, 6 << 20, 1, 4 << 20)) << "CAP_IPC_LOCK";
	EXPECT_EQ(XPORT_OK, svc_memlock_check_c(UINT64_MAX, 6 << 20, 0, UINT64_MAX)) << "no limit";
	EXPECT_GT(svc_memlock_limit_c(), 0u);
}

/* Much more than it begins with, entered, removed, entered again. */
TEST(Table, FindsWhatIsThere)
{
	const uintptr_t span = 65536, first = uintptr_t{0x7f1234560000};
	void *t = svc_addr_map_new_c();
	std::vector<int> spans(5000);

	for (size_t i = 0; i < spans.size(); i++)
		t = svc_addr_map_enter_c(t, first + i * i * span, &spans[i]);
	for (size_t i = 0; i < spans.size(); i++) {
		ASSERT_EQ(&spans[i], svc_addr_map_find_c(t, first + i * i * span));
		ASSERT_EQ(&spans[i], svc_addr_map_find_c(t, first + i * i * span + span - 1));
	}
	EXPECT_EQ(nullptr, svc_addr_map_find_c(t, first - 1));
	EXPECT_EQ(nullptr, svc_addr_map_find_c(t, first + 2 * span));
	EXPECT_EQ(nullptr, svc_addr_map_find_c(t, 0));
	EXPECT_EQ(nullptr, svc_addr_map_find_c(t, UINTPTR_MAX));
	for (size_t i = 0; i < spans.size(); i += 2)
		svc_addr_map_remove_c(t, first + i * i * span);
	for (size_t i = 0; i < spans.size(); i++)
		ASSERT_EQ(i % 2 ? &spans[i] : nullptr, svc_addr_map_find_c(t, first + i * i * span));
	for (size_t i = 0; i < spans.size(); i += 2)
		t = svc_addr_map_enter_c(t, first + i * i * span, &spans[i]);
	for (size_t i = 0; i < spans.size(); i++)
		ASSERT_EQ(&spans[i], svc_addr_map_find_c(t, first + i * i * span));
	svc_addr_map_free_c(t);
}

/* The multiplication in place of a division, for each byte of a span and each class. */
TEST(LeaseTable, FindsEachLeaseInAShortChain)
{
	EXPECT_EQ(1, svc_lease_table_longest_c(1));
	EXPECT_EQ(1, svc_lease_table_longest_c(64));
	EXPECT_EQ(1, svc_lease_table_longest_c(65536));
}

TEST(Span, IndexOfEachByte)
{
	EXPECT_EQ(-1, svc_index_wrong_c()) << "class";
}

/* Two versions, byte by byte from one or the other: no mix is accepted, whatever the pieces. */
class Snapshot : public testing::TestWithParam<size_t>
{
};

TEST_P(Snapshot, NoMixIsAccepted)
{
	size_t length = GetParam(), size = 16 + length;
	std::vector<unsigned char> a(size), b(size), mix(size);
	unsigned seed = 1;
	uint64_t version = 0;

	for (int i = 0; i < 20000; i++) {
		uint64_t v = rand_r(&seed) % 3 ? static_cast<uint64_t>(i) * 2 : rand_r(&seed);
		size_t piece = size_t{1} << rand_r(&seed) % 6;

		for (size_t k = 16; k < size; k++)
			a[k] = static_cast<unsigned char>(v + k), b[k] = static_cast<unsigned char>(v + k + 1);
		svc_snapshot_make_c(a.data(), v, length);
		svc_snapshot_make_c(b.data(), v + 2, length);
		ASSERT_TRUE(svc_snapshot_accepts_c(a.data(), length, &version));
		ASSERT_EQ(v, version);
		for (size_t k = 0; k < size; k += piece) {
			const auto &from = rand_r(&seed) % 2 ? a : b;

			memcpy(&mix[k], &from[k], std::min(piece, size - k));
		}
		if (mix != a && mix != b) {
			ASSERT_FALSE(svc_snapshot_accepts_c(mix.data(), length, &version)) << i;
		}
	}
}

INSTANTIATE_TEST_SUITE_P(Lengths, Snapshot, testing::Values(0, 1, 8, 100, 1000));

TEST(LastError, RefusesAWrongStruct)
{
	xport_error e = {};

	EXPECT_EQ(XPORT_ERR_INVALID, xport_services_last_error(&e));
	EXPECT_EQ(XPORT_ERR_INVALID, xport_services_last_error(nullptr));
	e.size = 4097;
	EXPECT_EQ(XPORT_ERR_INVALID, xport_services_last_error(&e));
}

/* A newer program's struct xport_error, and one of the first size, as xport_last_error takes them. */
TEST(LastError, TakesAStructThatHasGrown)
{
	struct {
		xport_error known;
		char more[16];
	} e;

	EXPECT_EQ(XPORT_ERR_NO_MEMORY, svc_memlock_check_c(1, 0, 0, 2));
	memset(&e, 0xee, sizeof(e));
	e.known.size = sizeof(e);
	ASSERT_EQ(XPORT_OK, xport_services_last_error(&e.known));
	EXPECT_EQ(sizeof(e), e.known.size);
	EXPECT_EQ(XPORT_ERR_NO_MEMORY, e.known.status);
	EXPECT_STREQ("test", e.known.operation);
	EXPECT_EQ(std::string(16, 0), std::string(e.more, 16));
	memset(&e, 0xee, sizeof(e));
	e.known.size = offsetof(xport_error, hint) + sizeof(e.known.hint);
	ASSERT_EQ(XPORT_OK, xport_services_last_error(&e.known));
	EXPECT_EQ(std::string(16, '\xee'), std::string(e.more, 16));
}

/* What svc_label_add makes of a value, in `size` bytes. */
std::string label(const std::string &value, size_t size = 100, const char *before = "")
{
	std::vector<char> labels(size + 1, '#');

	snprintf(labels.data(), size, "%s", before);
	svc_label_add(labels.data(), size, "name", value.c_str());
	EXPECT_EQ('#', labels[size]);
	EXPECT_LT(strlen(labels.data()), size);
	return labels.data();
}

TEST(Label, IsEscaped)
{
	EXPECT_EQ("name=\"\"", label(""));
	EXPECT_EQ("name=\"a,b={c}\"", label("a,b={c}"));
	EXPECT_EQ("name=\"say \\\"hi\\\"\"", label("say \"hi\""));
	EXPECT_EQ("name=\"C:\\\\dir\"", label("C:\\dir"));
	EXPECT_EQ("name=\"one\\ntwo\"", label("one\ntwo"));
	EXPECT_EQ("name=\"\\\\\\\"\\n\"", label("\\\"\n"));
	EXPECT_EQ("name=\"?[2J??\"", label("\x1b[2J\xff\xc3"));
	EXPECT_EQ("x=\"1\",name=\"2\"", label("2", 100, "x=\"1\""));
}

/* Whole escapes, and the quote at the end. */
TEST(Label, ThatDoesNotFitIsCutOff)
{
	for (size_t size = 1; size < 30; size++) {
		std::string l = label("\"\"\"\"\"\"\"\"\"\"\"\"", size);

		if (l.empty()) {
			EXPECT_LT(size, 9U);
			continue;
		}
		ASSERT_EQ(0U, l.find("name=\"")) << l;
		EXPECT_EQ(1U, l.size() % 2) << l; /* name=" and " are 7 bytes, and each escape is 2 */
		EXPECT_EQ('"', l.back());
	}
	EXPECT_EQ("x=\"1\"", label("2", 10, "x=\"1\""));
}

} // namespace
