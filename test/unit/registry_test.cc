/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

/* In C a function and a struct may share a name. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/config/module_path.h"
#include "core/config/registry.h"
#include "core/config/settings.h"
}

namespace
{

void ignore_line(void *, int, const char *, const char *)
{
}

const struct xpi_log quiet = {XPORT_LOG_DEBUG, ignore_line, nullptr, -1, nullptr, {}};

/* A back end with the required slots only; none of them is called. */
struct xpi_backend minimal(const char *name)
{
	struct xpi_backend b;

	memset(&b, 0, sizeof(b));
	b.abi = XPI_BACKEND_ABI;
	b.name = name;
	b.list = [](const struct xpi_log *, xpi_candidate_fn, void *) { return 0; };
	b.open = [](const struct xpi_be_open_args *, struct xpi_be **) {
		return static_cast<int>(XPORT_ERR_NO_BACKEND);
	};
	b.close = [](struct xpi_be *) {};
	b.query = [](struct xpi_be *, struct xpi_be_caps *) {};
	b.address = [](struct xpi_be *, void *, struct xpi_core_ep *, void *, size_t *) { return 0; };
	b.ep_connect = [](struct xpi_be *, void *, enum xpi_role, const void *, size_t) { return 0; };
	b.ep_quiesce = [](struct xpi_be *, void *) { return 0; };
	b.ep_destroy = [](struct xpi_be *, void *) {};
	b.am_send = [](struct xpi_be *, void *, const void *, size_t, struct xpi_req *) { return 0; };
	b.am_send_two = [](struct xpi_be *, void *, const void *, size_t, const void *, size_t, struct xpi_req *) {
		return 0;
	};
	b.poll = [](struct xpi_be *) { return 0; };
	return b;
}

class Registry : public testing::Test
{
protected:
	void SetUp() override
	{
		memset(&err, 0, sizeof(err));
		err.size = sizeof(err);
	}

	int load(const struct xpi_registry_entry *e, const struct xpi_backend **be)
	{
		return xpi_registry_load(e, &quiet, &err, be);
	}

	/* What loading a back end whose one slot was changed says. */
	std::string refusal(void (*change)(struct xpi_backend *))
	{
		struct xpi_backend b = minimal("odd");
		struct xpi_registry_entry e = {"odd", nullptr, nullptr, &b};
		const struct xpi_backend *be = nullptr;

		change(&b);
		EXPECT_EQ(XPORT_ERR_INCOMPATIBLE, load(&e, &be));
		EXPECT_EQ(nullptr, be);
		return err.text;
	}

	struct xport_error err;
};

TEST_F(Registry, HasEachNameOnceAndTheSitesLast)
{
	const struct xpi_registry_entry *e = xpi_registry();
	std::set<std::string> names;
	size_t site = 0, n = 0;

	while (xpi_site_backends[site] != nullptr)
		site++;
	for (; e->name != nullptr; e++, n++) {
		EXPECT_TRUE(names.insert(e->name).second) << e->name << " twice";
		if (e->why_not != nullptr) {
			EXPECT_NE('\0', e->why_not[0]) << e->name;
		}
	}
	ASSERT_GE(n, site);
	for (size_t i = 0; i < site; i++)
		EXPECT_EQ(xpi_site_backends[i], (e - site + i)->builtin);
	EXPECT_EQ(xpi_registry(), e - n) << "always the same table";
}

TEST_F(Registry, LoadsEachThatIsBuiltOnceAndWhole)
{
	for (const struct xpi_registry_entry *e = xpi_registry(); e->name != nullptr; e++) {
		const struct xpi_backend *be = nullptr, *again = nullptr;
		int rc = load(e, &be);

		if (e->why_not != nullptr) {
			EXPECT_EQ(XPORT_ERR_NO_BACKEND, rc);
			EXPECT_NE(nullptr, strstr(err.text, e->why_not)) << err.text;
			EXPECT_NE('\0', err.hint[0]);
			continue;
		}
		ASSERT_EQ(XPORT_OK, rc) << err.text;
		EXPECT_STREQ(e->name, be->name);
		EXPECT_TRUE(be->mr_reg && be->mr_alloc && be->mr_dereg && be->rkey_pack && be->rkey_unpack &&
		            be->rkey_destroy);
		EXPECT_TRUE(be->put && be->get && be->drain && be->fds && be->arm);
		EXPECT_EQ(XPORT_OK, load(e, &again));
		EXPECT_EQ(be, again);
	}
}

/* Loads all back ends; returns what is not as before in signal actions and environment. */
std::string traces_of_loading()
{
	struct sigaction before[_NSIG], after;
	std::vector<std::string> env, now;
	std::string traces;

	for (int i = 1; i < _NSIG; i++) {
		(void)sigaction(i, nullptr, &before[i]);
	}
	for (char **e = environ; *e != nullptr; e++)
		env.push_back(*e);
	for (const struct xpi_registry_entry *e = xpi_registry(); e->name != nullptr; e++) {
		const struct xpi_backend *be;
		struct xport_error err;

		err.size = sizeof(err);
		if (xpi_registry_load(e, &quiet, &err, &be) != XPORT_OK && e->why_not == nullptr)
			traces += std::string(" not loaded: ") + err.text;
	}
	for (int i = 1; i < _NSIG; i++)
		if (sigaction(i, nullptr, &after) == 0 && after.sa_handler != before[i].sa_handler)
			traces += " signal " + std::to_string(i);
	for (char **e = environ; *e != nullptr; e++)
		now.push_back(*e);
	return env == now ? traces : traces + " environment";
}

/* In a process of its own, which has loaded nothing yet: the stacks do it once. */
TEST(RegistryDeathTest, LoadingLeavesNoSignalHandlerAndNoVariable)
{
	GTEST_FLAG_SET(death_test_style, "threadsafe");
	EXPECT_EXIT(
		{
			std::string traces = traces_of_loading();
			fprintf(stderr, "traces:%s.\n", traces.c_str());
			_exit(traces.empty() ? 0 : 1);
		},
		testing::ExitedWithCode(0), "traces:\\.");
}

TEST_F(Registry, AModuleThatIsNotThereSaysSo)
{
	const struct xpi_registry_entry e = {"nosuchmodule", nullptr, "XPUNIT_LOAD=1", nullptr};
	const struct xpi_backend *be = nullptr;

	EXPECT_EQ(XPORT_ERR_NO_BACKEND, load(&e, &be));
	EXPECT_EQ(nullptr, be);
	EXPECT_NE(nullptr, strstr(err.text, "nosuchmodule")) << err.text;
	EXPECT_NE(nullptr, strstr(err.text, "No such file or directory")) << err.text;
	EXPECT_NE('\0', err.hint[0]);
	EXPECT_EQ(nullptr, getenv("XPUNIT_LOAD"));
}

/* While a module is loaded `environ` moves; AddressSanitizer sees who reads it then. */
TEST_F(Registry, NobodyReadsTheEnvironmentWhileItChanges)
{
	const struct xpi_registry_entry e = {"nosuchmodule", nullptr, "XPUNIT_LOAD=1 XPUNIT_MORE=2", nullptr};
	struct xport_attr attr = {};
	std::vector<std::thread> readers;

	attr.size = sizeof(attr);
	attr.log_fn = ignore_line;
	for (int i = 0; i < 3; i++)
		readers.emplace_back([&attr] {
			struct xpi_settings s;
			struct xport_error mine = {};
			struct xport_variable v;

			mine.size = sizeof(mine);
			for (int n = 0; n < 1000; n++) {
				EXPECT_EQ(XPORT_OK, xpi_settings_read(&attr, &s, &mine)) << mine.text;
				xpi_settings_fini(&s);
				EXPECT_TRUE(xpi_settings_variable(n % 8, &v));
			}
		});
	for (int n = 0; n < 1000; n++) {
		const struct xpi_backend *be;

		EXPECT_EQ(XPORT_ERR_NO_BACKEND, load(&e, &be));
	}
	for (std::thread &t : readers)
		t.join();
}

TEST_F(Registry, FillsWhatABackEndLeavesOut)
{
	static const struct xpi_backend b = minimal("small");
	static const struct xpi_registry_entry e = {"small", nullptr, nullptr, &b};
	const struct xpi_backend *be;
	int fds[4];

	ASSERT_EQ(XPORT_OK, load(&e, &be)) << err.text;
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, be->mr_reg(nullptr, nullptr, nullptr, 0, 0));
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, be->mr_alloc(nullptr, nullptr, 0, 0, nullptr));
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, be->rkey_pack(nullptr, nullptr, nullptr, nullptr, nullptr));
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, be->rkey_unpack(nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0, nullptr));
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, be->put(nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, nullptr));
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, be->get(nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, nullptr));
	EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, be->drain(nullptr, nullptr, nullptr));
	EXPECT_EQ(0, be->fds(nullptr, fds, 4));
	EXPECT_EQ(XPORT_OK, be->arm(nullptr));
	be->mr_dereg(nullptr, nullptr);
	be->rkey_destroy(nullptr, nullptr);
	EXPECT_EQ(b.poll, be->poll) << "what is there stays";
	EXPECT_EQ(nullptr, b.put) << "the back end's own struct is not written";
}

TEST_F(Registry, NamesTheMissingSlot)
{
#define MISSING(slot) \
	EXPECT_NE(std::string::npos, refusal([](struct xpi_backend *b) { b->slot = nullptr; }).find("slot " #slot)) \
		<< err.text;
	MISSING(list)
	MISSING(open)
	MISSING(close)
	MISSING(query)
	MISSING(address)
	MISSING(ep_connect)
	MISSING(ep_quiesce)
	MISSING(ep_destroy)
	MISSING(am_send)
	MISSING(am_send_two)
	MISSING(poll)
}

TEST_F(Registry, SlotsThatGoTogetherMustBothBeThere)
{
	std::string text = refusal([](struct xpi_backend *b) {
		b->put = [](struct xpi_be *, void *, const void *, size_t, void *, void *, uint64_t, struct xpi_req *) {
			return 0;
		};
	});

	EXPECT_NE(std::string::npos, text.find("lacks get")) << text;
	text = refusal([](struct xpi_backend *b) {
		b->rkey_pack = [](struct xpi_be *, void *, const void *, void *, size_t *) { return 0; };
	});
	EXPECT_NE(std::string::npos, text.find("lacks rkey_unpack")) << text;
}

/* Of an opened one: what it says must fit its slots, and the contract. */
TEST_F(Registry, SaysWhatContradicts)
{
	struct xpi_be_caps good = {};
	good.am_max = 4096;
	good.am_credits = 4;
	static const struct xpi_backend b = minimal("bare");
	static struct xpi_backend p = minimal("putting");
	static const struct xpi_registry_entry of_bare = {"bare", nullptr, nullptr, &b};
	static const struct xpi_registry_entry of_putting = {"putting", nullptr, nullptr, &p};
	const struct xpi_backend *bare, *putting;

	p.put = [](struct xpi_be *, void *, const void *, size_t, void *, void *, uint64_t, struct xpi_req *) {
		return 0;
	};
	p.get = [](struct xpi_be *, void *, void *, size_t, void *, void *, uint64_t, struct xpi_req *) { return 0; };
	p.rkey_pack = [](struct xpi_be *, void *, const void *, void *, size_t *) { return 0; };
	p.rkey_unpack = [](struct xpi_be *, void *, void *, const void *, size_t, uint64_t, uint64_t, uint32_t,
	                   void **) { return 0; };
	ASSERT_EQ(XPORT_OK, load(&of_bare, &bare)) << err.text;
	ASSERT_EQ(XPORT_OK, load(&of_putting, &putting)) << err.text;
	EXPECT_EQ(nullptr, xpi_registry_contradiction(bare, &good));
#define CONTRADICTS(ops, member, value, part) \
	{ \
		struct xpi_be_caps c = good; \
		c.member = value; \
		const char *text = xpi_registry_contradiction(ops, &c); \
		ASSERT_NE(nullptr, text) << #member; \
		EXPECT_NE(nullptr, strstr(text, part)) << text; \
	}
	CONTRADICTS(bare, am_max, 4095, "4096")
	CONTRADICTS(bare, am_credits, 3, "4 frames")
	CONTRADICTS(bare, rkey_native_max, 8, "rkey_pack")
	CONTRADICTS(bare, rma_reg, true, "mr_reg")
	CONTRADICTS(bare, drain_places, true, "drain")
	CONTRADICTS(bare, put_short, 8, "put_short")
	CONTRADICTS(bare, passive_target, true, "native keys")
	CONTRADICTS(bare, rma_max, 127, "128")
	CONTRADICTS(bare, nic_atomic, true, "slot atomic")
	CONTRADICTS(bare, lends, true, "lends")
	CONTRADICTS(bare, traffic, XPI_TRAFFIC_EACH, "ep_mark")
	CONTRADICTS(putting, am_max, 4096, "am_after_put")
	good.am_after_put = true;
	EXPECT_EQ(nullptr, xpi_registry_contradiction(putting, &good));
	CONTRADICTS(putting, rkey_native_max, 1025, "1024")
	good.rkey_native_max = 1024;
	good.passive_target = true;
	good.put_short = 8;
	good.rma_max = 128;
	EXPECT_EQ(nullptr, xpi_registry_contradiction(putting, &good));
}

TEST_F(Registry, RefusesAnotherContractOrName)
{
	EXPECT_NE(std::string::npos, refusal([](struct xpi_backend *b) {
					     b->abi++;
				     }).find("contract " + std::to_string(XPI_BACKEND_ABI + 1)));
	EXPECT_NE(std::string::npos,
	          refusal([](struct xpi_backend *b) { b->name = "even"; }).find("calls itself even"));
	refusal([](struct xpi_backend *b) { b->name = nullptr; });
}

TEST_F(Registry, ManyThreadsLoadOneBackEnd)
{
	static const struct xpi_backend b = minimal("shared");
	static const struct xpi_registry_entry e = {"shared", nullptr, nullptr, &b};
	const struct xpi_backend *got[8] = {};
	std::vector<std::thread> threads;

	for (auto &g : got)
		threads.emplace_back([&g] {
			struct xport_error mine;

			mine.size = sizeof(mine);
			if (xpi_registry_load(&e, &quiet, &mine, &g) != XPORT_OK)
				g = nullptr;
		});
	for (auto &t : threads)
		t.join();
	for (const auto *g : got) {
		EXPECT_NE(nullptr, g);
		EXPECT_EQ(got[0], g);
	}
}

} // namespace
