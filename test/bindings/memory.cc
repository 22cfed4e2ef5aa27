// SPDX-License-Identifier: BSD-3-Clause
//
// memory - leases and pools of xport_services.hpp.
//
//	memory serve             a lender: of 1 MiB, to one peer 512 KiB; it takes regions
//	memory ADDRESS NAME...   a borrower: prints "ok NAME" for each
//	memory alone NAME...     both sides are in this process
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <xport_services.h>

/* Calls of the library that the binding makes. */
static int queries, registered;
static int counted_query(const xport_lease *l, struct xport_lease_info *i)
{
	queries++;
	return xport_lease_query(l, i);
}
static int counted_alloc(xport *x, std::size_t length, std::uint32_t granted, xport_mr **mr)
{
	int status = xport_mr_alloc(x, length, granted, mr);
	registered += status == XPORT_OK;
	return status;
}
static int counted_dereg(xport_mr *mr)
{
	registered--;
	return xport_mr_dereg(mr);
}
/* What a borrower that hands over does instead of a return. */
static bool handing;
static int return_or_hand(xport_lease *l)
{
	return handing ? xport_lease_hand_over(l) : xport_lease_return(l);
}
#define xport_lease_return return_or_hand
#define xport_lease_query counted_query
#define xport_mr_alloc counted_alloc
#define xport_mr_dereg counted_dereg
#include <xport_services.hpp>

/* The allocation that fails; -1: none. */
static long failing = -1;
[[gnu::noinline]] void *operator new(std::size_t n)
{
	void *p = failing >= 0 && failing-- == 0 ? nullptr : std::malloc(n > 0 ? n : 1);
	if (p == nullptr)
		throw std::bad_alloc();
	return p;
}
[[gnu::noinline]] void operator delete(void *p) noexcept
{
	std::free(p);
}
[[gnu::noinline]] void operator delete(void *p, std::size_t) noexcept
{
	std::free(p);
}

#define CHECK(x) ((x) ? (void)0 : (void)(std::fprintf(stderr, "%d: not so: %s\n", __LINE__, #x), std::exit(1)))

static constexpr int limit = 60000;
static constexpr std::uint32_t rights = XPORT_REMOTE_READ | XPORT_REMOTE_WRITE;

struct side {
	explicit side(const char *address) : side(address, handed_over()) {}
	side(const char *address, const xport_leases_attr &attr)
	    : x(xp::instance::open()), ep(x.connect(address)), l(xp::leases::create(x, &attr)), loop(x)
	{
	}
	static xport_leases_attr handed_over()
	{
		xport_leases_attr attr{};
		attr.size = sizeof(attr);
		attr.flags = XPORT_LEASES_HAND_OVER;
		return attr;
	}
	/* What a peer writes to memory is no event: it is looked for. */
	template <class P> void until(P p, const char *what)
	{
		auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit);
		while (loop.try_run(p, 20) < 0) {
			if (std::chrono::steady_clock::now() < end)
				continue;
			std::fprintf(stderr, "not in time: %s\n", what);
			std::exit(1);
		}
	}
	void borrowed(std::uint64_t n)
	{
		until([&] { return l.info().borrowed == n; }, "leases that nobody has are returned");
	}
	xp::instance x;
	xp::endpoint ep;
	xp::leases l;
	xp::loop loop;
};

static void leases(const char *address)
{
	side s(address);
	CHECK(xp::leases::try_create(s.x).status() == XPORT_ERR_BUSY);
	xp::lease lease = s.l.ask(s.ep, 5000, rights);
	CHECK(!lease.held() && lease.try_wait(limit) == XPORT_OK && lease.held());
	CHECK(lease.key().info().length == 5000);
	xp::slice out(5000), back(5000);
	for (std::size_t i = 0; i < out.size(); i++)
		out.data()[i] = static_cast<unsigned char>(i);
	s.ep.put(out, lease.key(), 0).wait(limit);
	s.ep.get(back, lease.key(), 0).wait(limit);
	CHECK(std::memcmp(out.data(), back.data(), 5000) == 0);
	CHECK(s.ep.put(out, lease.key(), 1).try_wait(limit).status == XPORT_ERR_BOUNDS);
	CHECK(lease.end() == XPORT_OK && lease.try_wait_end(limit) == XPORT_OK && lease.ended());
	CHECK(s.ep.put(out, lease.key(), 0).try_wait(limit).status == XPORT_ERR_STALE_KEY);
	CHECK(s.l.ask(s.ep, 1 << 20, rights).try_wait(limit) == XPORT_ERR_NO_MEMORY);
	CHECK(s.l.try_ask(s.ep, 0, rights).status() == XPORT_ERR_INVALID);
	s.borrowed(0);
	for (int i = 0; i < 60; i++) {
		xp::lease gone = s.l.ask(s.ep, 100000, rights);
		if (i % 3 > 0)
			CHECK(gone.try_wait(limit) == XPORT_OK);
		if (i % 3 > 1) /* in flight */
			s.ep.put(xp::slice(100000), gone.key(), 0).then([](xp::done &) {});
		if (i % 4 == 3) {
			xp::lease(std::move(gone));
			s.borrowed(0);
		}
	}
	s.borrowed(0);
	xp::lease last = s.l.ask(s.ep, 100, rights);
	CHECK(last.try_wait(limit) == XPORT_OK);
	s.ep.close(limit);
	CHECK(last.try_wait_end(limit) == XPORT_ERR_CLOSED);
	xp::lease outlives = std::move(last);
	s.x.close();
	CHECK(outlives.ended() && outlives.end() == XPORT_ERR_CLOSED);
}

enum { RETURNS, KEEPS, HANDS_OVER };

/* The first word says what the peer does: it writes 1 at 8, and returns the region, or keeps it, or hands it over. */
static void given(const char *address)
{
	side s(address);
	for (std::uint64_t keeps = RETURNS; keeps <= HANDS_OVER; keeps++) {
		xp::region r = s.x.alloc(8192, rights);
		std::memcpy(r.data(), &keeps, sizeof(keeps));
		{
			xp::slice used = r.all();
			CHECK(s.l.try_give(s.ep, r).status() == XPORT_ERR_BUSY);
		}
		xp::lease lease = s.l.give(s.ep, r);
		std::uint64_t seen = 0;
		s.until(
			[&] {
				if (r.size() > 0)
					std::memcpy(&seen, r.data() + 8, sizeof(seen));
				return keeps == KEEPS ? seen == 1 : lease.ended();
			},
			"the peer uses the region");
		if (keeps == KEEPS) {
			CHECK(lease.held() && r.size() == 8192);
			CHECK(lease.end() == XPORT_OK && lease.try_wait_end(limit) == XPORT_ERR_STALE_KEY);
		} else {
			CHECK(lease.status() == XPORT_OK);
		}
		CHECK(r.size() == 0 && r.data() == nullptr && r.all().size() == 0);
		xp::region other = s.x.alloc(8192, rights);
		std::memcpy(other.data(), &keeps, sizeof(keeps));
		s.l.give(s.ep, other); /* the peer keeps it */
	}
	xp::region none = s.x.alloc(64, 0);
	CHECK(s.l.try_give(s.ep, none).status() == XPORT_ERR_INVALID && none.size() == 64);
	s.ep.close(limit);
}

static void pool(const char *address)
{
	side s(address);
	xp::lease lease = s.l.ask(s.ep, 100001, rights);
	CHECK(lease.try_wait(limit) == XPORT_OK);
	xp::pool pool(s.x, 100001);
	pool.reserve(3);
	CHECK(pool.buffers() == 3 && pool.in_use() == 0);
	for (int i = 0; i < 300; i++) {
		xp::slice out = pool.take();
		CHECK(out.size() == 100001 && reinterpret_cast<std::uintptr_t>(out.data()) % 64 == 0 &&
		      out.mr() != nullptr);
		std::memset(out.data(), i, out.size());
		if (i % 3 == 0) { /* in flight without an owner */
			s.ep.put(std::move(out), lease.key(), 0).then([](xp::done &) {}).abandon();
		} else {
			s.ep.put(std::move(out), lease.key(), 0).wait(limit);
			xp::slice back = s.ep.get(pool.take(), lease.key(), 0).wait(limit).buffer;
			for (std::size_t j = 0; j < back.size(); j++)
				CHECK(back.data()[j] == static_cast<unsigned char>(i));
			std::memset(back.data(), 0xdd, back.size());
		}
		xp::slice junk = pool.take(); /* would reach what is in flight */
		std::memset(junk.data(), 0xdd, junk.size());
	}
	s.until([&] { return pool.in_use() == 0; }, "buffers without an owner come back");
	CHECK(xp::pool(s.x, 0).try_take().status() == XPORT_ERR_INVALID);
	xp::slice outlives = pool.take();
	s.ep.close(limit);
	s.x.close();
	CHECK(outlives.size() == 0 && outlives.data() == nullptr && pool.try_take().status() == XPORT_ERR_CLOSED);
}

/* ---- both sides in this process ---- */

struct both {
	both() : both(taking()) {}
	explicit both(const xport_leases_attr &attr)
	    : target(xp::instance::open()), x(xp::instance::open()), taker(xp::leases::create(target, &attr)),
	      l(xp::leases::create(x)), target_loop(target), loop(x), listener(target.listen("127.0.0.1:0")),
	      ep(x.connect(listener.address().c_str(), 0))
	{
		until([&] {
			auto accepted = listener.try_accept(0);
			if (accepted)
				peer.emplace(*std::move(accepted));
			return peer.has_value() && ep.info().state == XPORT_EP_OPEN;
		});
	}
	static xport_leases_attr taking()
	{
		xport_leases_attr attr{};
		attr.size = sizeof(attr);
		attr.quota = 1 << 20;
		attr.flags = XPORT_LEASES_TAKE | XPORT_LEASES_HAND_OVER;
		return attr;
	}
	template <class P> void until(P p)
	{
		auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit);
		while (!p()) {
			CHECK(std::chrono::steady_clock::now() < end);
			(void)target_loop.try_turn();
			(void)loop.try_turn();
		}
	}
	xp::instance target, x;
	xp::leases taker, l;
	xp::loop target_loop, loop;
	xp::listener listener;
	xp::endpoint ep;
	std::optional<xp::endpoint> peer;
};

/* Says whether the callback that has it is still there. */
struct probe {
	explicit probe(bool &flag) : alive(&flag) { *alive = true; }
	probe(probe &&p) noexcept : alive(std::exchange(p.alive, nullptr)) {}
	probe(const probe &p) noexcept : alive(std::exchange(p.alive, nullptr)) {} /* std::function copies nothing */
	~probe()
	{
		if (alive != nullptr)
			*alive = false;
	}
	mutable bool *alive;
};

/* Callbacks that replace themselves. */
static void replaced()
{
	both b;
	bool alive = false, called = false, there = false;
	b.taker.on_given([&, p = probe(alive)](xp::lease) {
		b.taker.on_given({});
		there = alive;
		called = true;
	});
	xp::region r = b.x.alloc(4096, rights);
	xp::lease given = b.l.give(b.ep, r);
	b.until([&] { return called; });
	CHECK(there && !alive);
	called = there = false;
	b.target.on_event([&, p = probe(alive)](const xp::event &) {
		b.target.on_event({});
		there = alive;
		called = true;
	});
	b.ep.close(0);
	b.until([&] { return called; });
	CHECK(there && !alive);
}

/* A lease costs nothing while other completions come; its memory ends with its endpoint. */
static void many()
{
	both b;
	std::vector<xp::lease> kept, given;
	std::vector<xp::region> regions;
	b.taker.on_given([&](xp::lease lease) { kept.push_back(std::move(lease)); });
	for (int i = 0; i < 40; i++) {
		regions.push_back(b.x.alloc(4096, rights));
		given.push_back(b.l.give(b.ep, regions.back()));
	}
	b.until([&] { return kept.size() == 40 && given.back().held(); });
	queries = 0;
	int sent = 0;
	for (int i = 0; i < 200; i++) {
		b.target.recv(xp::slice(8), 1).then([](xp::done &) {});
		b.ep.send(xp::slice(8), 1).then([&](xp::done &) { sent++; });
		b.until([&] { return sent > i; });
	}
	CHECK(queries < 40 * 100);
	bool lost = false, there = false;
	b.x.on_event([&](const xp::event &) {
		for (xp::region &r : regions)
			there = there || r.data() != nullptr;
		lost = true;
	});
	b.peer->close(0);
	b.until([&] { return lost; });
	CHECK(!there);
}

/* A borrower may hand the memory over: at the lender that is an end, and nothing of the lease is left. */
static void handed()
{
	both b;
	handing = true;
	for (int i = 0; i < 8; i++) { /* the quota is that of two */
		xp::lease asked = b.l.ask(b.ep, 1 << 19, rights);
		b.until([&] { return asked.held() || asked.ended(); });
		CHECK(asked.held() && b.taker.info().lent == 1);
		CHECK(asked.end() == XPORT_OK);
		b.until([&] { return asked.ended(); });
		CHECK(asked.status() == XPORT_OK);
		b.until([&] { return b.taker.info().lent_bytes == 0; });
	}
	handing = false;
}

/* Nothing is left of what an exception interrupts. */
static void exceptions(const char *address)
{
	side b(address);
	for (long i = 0, done = 0; done == 0; i++) {
		try {
			failing = i;
			xp::lease lease = b.l.ask(b.ep, 100, rights);
			done = 1;
		} catch (const std::bad_alloc &) {
		}
		failing = -1;
		b.borrowed(0);
	}
	xp::pool pool(b.x, 1000);
	for (long i = 0, done = 0; done == 0; i++) {
		int before = registered;
		try {
			failing = i;
			pool.reserve(100);
			done = 1;
		} catch (const std::bad_alloc &) {
		}
		failing = -1;
		CHECK(done != 0 || (pool.buffers() == 0 && registered == before));
	}
	CHECK(pool.buffers() == 100 && pool.in_use() == 0 && pool.take().size() == 1000);
	CHECK(xp::pool(b.x, SIZE_MAX).try_take().status() == XPORT_ERR_INVALID);
	CHECK(xp::pool(b.x, 64).try_reserve(SIZE_MAX / 128) == XPORT_ERR_NO_MEMORY);
}

static bool says(const xp::failure &why, int status, const char *text)
{
	return why.status == status && why.message().find(text) != std::string::npos;
}

/* Owners that were moved from, and handles of two instances. */
static void moved(const char *address)
{
	side b(address);
	xp::lease one = b.l.ask(b.ep, 100, rights), two = b.l.ask(b.ep, 200, rights);
	b.until([&] { return one.held() && two.held(); }, "the leases are granted");
	xp::lease three = std::move(one);
	CHECK(three.held() && three.key().info().length == 100);
	CHECK(!one.held() && one.ended() && one.status() == XPORT_ERR_CLOSED && one.end() == XPORT_ERR_CLOSED);
	CHECK(one.try_wait(0) == XPORT_ERR_CLOSED && one.try_wait_end(0) == XPORT_ERR_CLOSED);
	CHECK(one.key().info().length == 0);
	CHECK(b.ep.put(xp::slice(8), one.key(), 0).try_wait(limit).status == XPORT_ERR_STALE_KEY);
	CHECK(two.key().info().length == 200);
	two = std::move(three); /* what it had is returned now */
	CHECK(two.key().info().length == 100);
	b.borrowed(1);
	one = std::move(two);
	CHECK(one.held() && one.key().info().length == 100 && b.l.info().borrowed == 1);

	both other;
	CHECK(b.l.try_ask(b.ep, 0, rights).status() == XPORT_ERR_INVALID); /* an old text */
	CHECK(says(b.l.try_ask(other.ep, 100, rights).why(), XPORT_ERR_INVALID, "endpoint belongs to another"));
	xp::region r = b.x.alloc(4096, rights), foreign = other.x.alloc(4096, rights);
	CHECK(says(b.l.try_give(other.ep, r).why(), XPORT_ERR_INVALID, "endpoint belongs to another"));
	CHECK(says(b.l.try_give(b.ep, foreign).why(), XPORT_ERR_INVALID, "region belongs to another"));
	xp::slice used = r.all();
	CHECK(says(b.l.try_give(b.ep, r).why(), XPORT_ERR_BUSY, "slices"));
	xp::rpc rpc = xp::rpc::create(b.x);
	CHECK(rpc.call(other.ep, "method", {}, limit).try_wait(limit).status == XPORT_ERR_INVALID);
	other.x.close();
	CHECK(says(b.l.try_ask(other.ep, 100, rights).why(), XPORT_ERR_CLOSED, "endpoint is closed"));
	CHECK(says(other.l.try_ask(b.ep, 100, rights).why(), XPORT_ERR_CLOSED, "leases have ended"));
}

static void serve()
{
	xp::instance x = xp::instance::open();
	xport_leases_attr attr{};
	attr.size = sizeof(attr);
	attr.quota = 1 << 20;
	attr.peer_quota = 1 << 19;
	attr.flags = XPORT_LEASES_TAKE;
	xp::leases l = xp::leases::create(x, &attr);
	xp::listener listener = x.listen("127.0.0.1:0");
	std::printf("%s\n", listener.address().c_str());
	std::fflush(stdout);
	xp::loop loop(x);
	for (;;) {
		xp::endpoint ep = listener.accept();
		std::vector<xp::lease> kept;
		std::vector<xp::lease> fresh;
		bool ended = false;
		l.on_given([&](xp::lease lease) { fresh.push_back(std::move(lease)); });
		x.on_event([&](const xp::event &e) {
			ended = ended || e.type == XPORT_EVENT_CLOSED || e.type == XPORT_EVENT_LOST;
		});
		while (!ended) {
			(void)loop.try_run([&] { return ended || !fresh.empty(); }, 100);
			for (xp::lease &lease : std::exchange(fresh, {})) {
				xp::slice word(8);
				if (!ep.get(word, lease.key(), 0).try_wait(limit).ok())
					continue;
				std::uint64_t keeps = 0, one = 1;
				std::memcpy(&keeps, word.data(), sizeof(keeps));
				ep.put_value(one, lease.key(), 8).try_wait(limit);
				handing = keeps == HANDS_OVER;
				if (keeps == KEEPS)
					kept.push_back(std::move(lease));
				else
					(void)lease.end();
				handing = false;
			}
		}
		l.on_given({});
	}
}

int main(int argc, char **argv)
try {
	if (argc > 1 && std::strcmp(argv[1], "serve") == 0)
		serve();
	for (int i = 2; i < argc; i++) {
		std::string name = argv[i];
		if (name == "leases")
			leases(argv[1]);
		else if (name == "given")
			given(argv[1]);
		else if (name == "pool")
			pool(argv[1]);
		else if (name == "replaced")
			replaced();
		else if (name == "many")
			many();
		else if (name == "handed")
			handed();
		else if (name == "exceptions")
			exceptions(argv[1]);
		else if (name == "moved")
			moved(argv[1]);
		else
			return 2;
		std::printf("ok %s\n", argv[i]);
		std::fflush(stdout);
	}
	return 0;
} catch (const xp::error &e) {
	std::fprintf(stderr, "%s\n", e.what());
	return 1;
}
