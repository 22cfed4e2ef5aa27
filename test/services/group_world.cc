/* SPDX-License-Identifier: BSD-3-Clause */
#include "services/group_world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

extern "C" int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

namespace group_world
{

int64_t now_ms()
{
	timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1000000;
}

void sleep_ms(int ms)
{
	timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, nullptr);
}

int scaled(int ms)
{
	const char *scale = getenv("H_TIMEOUT_SCALE");

	return ms * (scale != nullptr ? atoi(scale) : 1);
}

/* Not one that the kernel chooses: it would hand it out again, to a connection of another test, before the root has bound it. */
std::string root_source()
{
	enum { FIRST = 11000, PORTS = 21000 };
	static unsigned next = static_cast<unsigned>(getpid()) * 61;

	for (int i = 0; i < PORTS; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0), port = FIRST + static_cast<int>(next++ % PORTS);
		sockaddr_in a = {};
		bool is_free;

		a.sin_family = AF_INET;
		a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		a.sin_port = htons(static_cast<uint16_t>(port));
		is_free = bind(fd, reinterpret_cast<sockaddr *>(&a), sizeof(a)) == 0;
		close(fd);
		if (is_free)
			return "root:127.0.0.1:" + std::to_string(port);
	}
	abort();
}

std::string make_directory()
{
	char path[] = "/tmp/xport-group-XXXXXX";

	if (mkdtemp(path) == nullptr)
		abort();
	return std::string("dir:") + path;
}

std::string error_of(int status)
{
	xport_error e = {};

	e.size = sizeof(e);
	xport_services_last_error(&e);
	return std::string(xport_status_name(status)) + ": " +
	       (e.status == status ? std::string(e.text) + "|" + e.hint : std::string("no text"));
}

std::string expect(int wanted, int status, const char *what)
{
	return wanted == status
	               ? ""
	               : std::string(what) + ": not " + xport_status_name(wanted) + " but " + error_of(status) + "\n";
}

/* ---- processes ---- */

/* Of all processes; the number of those that are busy. */
static int *busy;

void say_busy()
{
	__atomic_add_fetch(busy, 1, __ATOMIC_RELEASE);
}

void wait_busy(int n)
{
	for (int64_t until = now_ms() + scaled(20000); __atomic_load_n(busy, __ATOMIC_ACQUIRE) < n && now_ms() < until;)
		sleep_ms(5);
}

static void child(int rank, int n, const std::string &source, int out, const std::function<std::string(int)> &body)
{
	std::string said;

	if (!source.empty())
		setenv("XPORT_GROUP", source.c_str(), 1);
	setenv("XPORT_GROUP_RANK", std::to_string(rank).c_str(), 1);
	setenv("XPORT_GROUP_SIZE", std::to_string(n).c_str(), 1);
	setenv("XPORT_STRICT", "1", 1);
	said = body(rank);
	said += '\0' + std::to_string(now_ms());
	if (write(out, said.data(), said.size()) != static_cast<ssize_t>(said.size()))
		_exit(3);
	if (__lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0)
		_exit(4);
	_exit(0);
}

/* Waits for a process until `until`. */
static void reap(pid_t pid, int in, int64_t until, outcome *o)
{
	char buf[4096];
	ssize_t n;
	size_t nul;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now_ms() > until && !o->hung) {
			o->hung = true;
			kill(pid, SIGCONT);
			kill(pid, SIGKILL);
		}
		sleep_ms(5);
	}
	o->killed = WIFSIGNALED(status);
	if (o->killed && !o->hung)
		fprintf(stderr, "process %d: signal %d\n", static_cast<int>(pid), WTERMSIG(status));
	while ((n = read(in, buf, sizeof(buf))) > 0)
		o->said.append(buf, static_cast<size_t>(n));
	close(in);
	nul = o->said.find('\0');
	if (nul != std::string::npos) {
		o->at = strtoll(o->said.c_str() + nul + 1, nullptr, 10);
		o->said.resize(nul);
	}
	/* 23: LeakSanitizer could not stop the threads of a stack. */
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 23)
		o->said += "exit status " + std::to_string(WEXITSTATUS(status));
}

std::vector<outcome> run(int n, const std::string &source, const std::function<std::string(int)> &body,
                         const std::function<void(const std::vector<pid_t> &)> &meddle, int limit_ms)
{
	int64_t until = now_ms() + scaled(limit_ms);
	std::vector<outcome> all(static_cast<size_t>(n));
	std::vector<pid_t> pids;
	std::vector<int> ins;

	if (busy == nullptr)
		busy = static_cast<int *>(
			mmap(nullptr, sizeof(*busy), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	if (busy == MAP_FAILED)
		abort();
	*busy = 0;
	fflush(nullptr);
	for (int i = 0; i < n; i++) {
		int ends[2];
		pid_t pid;

		if (pipe2(ends, O_CLOEXEC) != 0 || (pid = fork()) < 0)
			abort();
		if (pid == 0)
			child(i, n, source, ends[1], body);
		close(ends[1]);
		pids.push_back(pid);
		ins.push_back(ends[0]);
	}
	if (meddle)
		meddle(pids);
	for (size_t i = 0; i < pids.size(); i++)
		reap(pids[i], ins[i], until, &all[i]);
	return all;
}

/* ---- exchange ---- */

board *board_new()
{
	void *b = mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (b == MAP_FAILED)
		abort();
	return static_cast<board *>(b);
}

void board_free(board *b)
{
	munmap(b, sizeof(*b));
}

int board_put(void *arg, const char *key, const void *value, size_t len)
{
	auto *b = static_cast<board *>(arg);
	int rank = atoi(key + 4);

	memcpy(b->of[rank].bytes, value, len);
	__atomic_store_n(&b->of[rank].len, len, __ATOMIC_RELEASE);
	return XPORT_OK;
}

int board_get(void *arg, const char *key, void *value, size_t *len)
{
	auto *b = static_cast<board *>(arg);
	int rank = atoi(key + 4);
	size_t n = __atomic_load_n(&b->of[rank].len, __ATOMIC_ACQUIRE);

	if (n == 0)
		return XPORT_ERR_AGAIN;
	memcpy(value, b->of[rank].bytes, n);
	*len = n;
	return XPORT_OK;
}

/* ---- members ---- */

member::~member()
{
	if (g != nullptr)
		xport_group_destroy(g, scaled(1000));
	xport_close(x);
}

std::string member::join(const xport_group_attr *attr, int timeout_ms)
{
	xport_group_info info = {};
	xport_error e = {};
	int r = xport_open(nullptr, &x);

	e.size = sizeof(e);
	if (r != XPORT_OK && xport_last_error(nullptr, &e) == XPORT_OK)
		return std::string("open: ") + e.text;
	r = xport_group_create(x, attr, scaled(timeout_ms), &g);
	if (r != XPORT_OK)
		return error_of(r);
	info.size = sizeof(info);
	if (xport_group_query(g, &info) != XPORT_OK)
		return "query";
	rank = info.rank;
	n = info.members;
	return "";
}

std::string member::leave()
{
	std::string wrong = expect(XPORT_OK, xport_group_barrier(g, scaled(20000)), "last barrier");
	int r = xport_group_destroy(g, scaled(5000));

	g = nullptr;
	return wrong + expect(XPORT_OK, r, "destroy");
}

} // namespace group_world
