// SPDX-License-Identifier: BSD-3-Clause
// measure ADDRESS ROUNDS - the program of bindings/measure/run in C++.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sys/resource.h>
#include <xport.hpp>

static constexpr int depth = 64, mib = 1 << 20;

template <class F> static double seconds(F step, int rounds)
{
	using clock = std::chrono::steady_clock;

	for (int i = 0; i < rounds / 10 + 1; i++)
		step();
	clock::time_point begin = clock::now();
	for (int i = 0; i < rounds; i++)
		step();
	return std::chrono::duration<double>(clock::now() - begin).count() / rounds;
}

int main(int argc, char **argv)
try {
	int rounds = argc > 2 ? std::atoi(argv[2]) : 1000;
	xp::instance x = xp::instance::open();
	xp::endpoint ep = x.connect(argv[1]);
	xport_ep_info info = ep.info();
	xp::remote_key key = ep.unpack({info.private_data, info.private_len});
	xp::loop loop(x);
	xp::slice small(8), answer(8);
	xp::region memory = x.alloc(mib, 0);
	int left = 0;
	auto count = [&left](xp::done &d) {
		d.check();
		left--;
	};
	auto run = [&] { loop.run([&left] { return left == 0; }); };
	auto put = [&] {
		left = 1;
		ep.put(small, key, 0).then(count);
		run();
	};
	auto echo = [&] {
		left = 2;
		x.recv(answer, 2, ~std::uint64_t{0}, &ep).then(count);
		ep.send(small, 1).then(count);
		run();
	};
	auto deep = [&] {
		left = depth;
		for (int i = 0; i < depth; i++)
			ep.put(small, key, 0).then(count);
		run();
	};
	auto big = [&] {
		left = 1;
		ep.get(memory.all(), key, 0).then(count);
		run();
	};
	std::printf("%.3f ", seconds(put, rounds) * 1e6);
	std::printf("%.2f ", seconds(echo, rounds) * 1e6);
	std::printf("%.0f ", depth / seconds(deep, rounds / depth + 1) / 1e3);
	std::printf("%.2f ", 1 / seconds(big, rounds / 50 + 1) / 1024);
	rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	std::printf("%.1f\n", static_cast<double>(usage.ru_maxrss) / 1024);
	ep.close(5000);
	return 0;
} catch (const xp::error &e) {
	std::fprintf(stderr, "%s\n", e.what());
	return 1;
}
