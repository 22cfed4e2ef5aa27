/* SPDX-License-Identifier: BSD-3-Clause */
/* group_world.h - the processes of a group, for tests: forked, watched, and reaped in bounded time. */
#ifndef TEST_GROUP_WORLD_H
#define TEST_GROUP_WORLD_H

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "services/xport_services.h"

namespace group_world
{

/* How a process ended, and what it said: "" if all was well. */
struct outcome {
	bool hung = false, killed = false;
	std::string said;
	int64_t at = 0; /* when it said it */
};

/* Milliseconds of CLOCK_MONOTONIC, the same in all processes. */
int64_t now_ms();
void sleep_ms(int ms);
/* `ms`, as much longer as H_TIMEOUT_SCALE says. */
int scaled(int ms);
/* "root:127.0.0.1:PORT" of a port that is free. */
std::string root_source();
/* A new directory, and "dir:PATH" of it. */
std::string make_directory();

/*
 * Forks `n` processes, which have rank and number in the environment, and run `body`. Meanwhile `meddle` runs here. Those that
 * do not end in time are killed: hung.
 */
std::vector<outcome> run(int n, const std::string &source, const std::function<std::string(int rank)> &body,
                         const std::function<void(const std::vector<pid_t> &)> &meddle = {}, int limit_ms = 30000);

/* In a process of run: says that it is busy. In `meddle`: waits until so many are. */
void say_busy();
void wait_busy(int n);

/* Memory that the processes share is all that the functions of xport_group_exchange need. */
struct board {
	struct {
		size_t len;
		char bytes[512];
	} of[8];
};

board *board_new();
void board_free(board *b);
int board_put(void *arg, const char *key, const void *value, size_t len);
int board_get(void *arg, const char *key, void *value, size_t *len);

/* An instance and its group, in a process of run. */
struct member {
	xport *x = nullptr;
	xport_group *g = nullptr;
	int rank = 0, n = 0;

	~member();
	/* Opens and joins; what went wrong. */
	std::string join(const xport_group_attr *attr = nullptr, int timeout_ms = 20000);
	/* A barrier, and the end of both. */
	std::string leave();
};

/* "XPORT_ERR_NAME: text|hint" of the last error. */
std::string error_of(int status);
/* "" if they are the same. */
std::string expect(int wanted, int status, const char *what);

} // namespace group_world

#endif
