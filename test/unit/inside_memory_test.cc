/* SPDX-License-Identifier: BSD-3-Clause */
/* inside_memory_test.cc - requests of a peer without memory to answer them: the endpoint ends, and nothing was done. */
#include <cerrno>
#include <cstdlib>

#include "inside_fixture.h"

extern "C" void *__real_calloc(size_t n, size_t size);

static thread_local bool nothing_left;

/* The linker calls it in place of calloc (sources.am). */
extern "C" void *__wrap_calloc(size_t n, size_t size)
{
	if (nothing_left) {
		errno = ENOMEM;
		return nullptr;
	}
	return __real_calloc(n, size);
}

namespace
{

class NoMemory : public Inside
{
protected:
	/* The frame ends the endpoint, for that reason and no other; memory is as it was. */
	void ends(const Bytes &records, const char *what)
	{
		xport_ep_info info{};
		Bytes before(memory, memory + sizeof(memory));

		inside_no_operations(a, true);
		inside_frame(ep, records.data(), records.size(), 0);
		inside_no_operations(a, false);
		poll();
		info.size = sizeof(info);
		EXPECT_EQ(XPORT_OK, xport_ep_query(ep, &info));
		EXPECT_EQ(XPORT_EP_LOST, info.state) << what;
		EXPECT_EQ(XPORT_ERR_NO_MEMORY, info.reason) << what;
		EXPECT_EQ(std::string::npos, logged.find("broke the protocol")) << what;
		EXPECT_EQ(0, memcmp(before.data(), memory, sizeof(memory))) << what;
	}
};

TEST_F(NoMemory, APutThatIsRefused)
{
	connect();
	xpi_rec_put p{};
	p.r = record(XPI_REC_PUT, 8);
	p.region = htole64(inside_region(mr) ^ 1);
	ends(bytes(p, 8), "whoever put that is to be told");
}

TEST_F(NoMemory, ALongGet)
{
	connect();
	xpi_rec_get g{};
	g.r = record(XPI_REC_GET);
	g.region = htole64(inside_region(mr));
	g.length = htole64(inside_at_once() + 1);
	g.op = htole32(1);
	ends(bytes(g), "a get");
}

/* A short one needs none, while there is room in a frame. */
TEST_F(NoMemory, AnAtomicIsNotAppliedWithoutItsAnswer)
{
	connect();
	xpi_rec_atomic at{};
	at.r = record(XPI_REC_ATOMIC);
	at.r.a = XPORT_ATOMIC_ADD;
	at.r.b = htole16(8 | XPI_ATOMIC_FETCH);
	at.region = htole64(inside_region(mr));
	at.operand = htole64(1);
	at.op = htole32(1);
	inside_no_frames(a, true);
	ends(bytes(at), "an atomic");
	inside_no_frames(a, false);
}

TEST_F(NoMemory, ANotification)
{
	connect();
	xpi_rec_notify n{};
	n.r = record(XPI_REC_NOTIFY, 8);
	n.region = htole64(inside_region(mr));
	n.length = htole64(8);
	n.op = htole32(XPI_OP_NOBODY);
	Bytes f = bytes(n, 8);
	f.back() = 1;
	ends(f, "its data are not there without it");
}

TEST_F(NoMemory, AClaim)
{
	for (const char *backend : {"loop:message", "loop:rdma"}) {
		connect(backend);
		xpi_rec_key k{};
		k.r = record(XPI_REC_CLAIM);
		k.region = htole64(inside_region(mr));
		if (strcmp(backend, "loop:rdma") != 0)
			k.region ^= htole64(1); /* of a region that is none: GONE */
		ends(bytes(k), backend);
		drop();
	}
}

/* What the adapter carries waits for the grant. */
TEST_F(NoMemory, AClaimOfWhatTheAdapterCarries)
{
	connect("loop:rdma");
	xport_mr *nic;
	alignas(8) static uint8_t words[64];
	ASSERT_EQ(XPORT_OK, xport_mr_reg(a, words, sizeof(words), XPORT_REMOTE_ATOMIC | XPORT_ATOMIC_NIC, &nic));
	for (xport_mr *of : {mr, nic}) {
		xpi_rec_key k{};
		k.r = record(XPI_REC_CLAIM);
		k.region = htole64(inside_region(of));
		Bytes f = bytes(k);
		nothing_left = true;
		inside_frame(ep, f.data(), f.size(), 0);
		nothing_left = false;
		poll();
		EXPECT_EQ(of == mr ? XPORT_EP_OPEN : XPORT_EP_LOST, state()) << logged;
	}
}

} // namespace
