/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_maker.h - another process that shares memory, until the test ends it. */
#ifndef SHM_MAKER_H
#define SHM_MAKER_H

#include <csignal>
#include <fcntl.h>
#include <functional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wextra"
extern "C" {
#include "base/shm.h"
}
#pragma GCC diagnostic pop

class ShmMaker
{
public:
	uint8_t key[XPI_SHM_KEY] = {};

	/* `after` runs there once it is made, `before` before that. */
	ShmMaker(size_t length, std::function<void(xpi_shm *)> after, std::function<void()> before = {})
	{
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) != 0)
			return;
		pid = fork();
		if (pid == 0)
			make(length, after, before, ends[1]);
		close(ends[1]);
		told = read(ends[0], key, sizeof(key)) == static_cast<ssize_t>(sizeof(key));
		close(ends[0]);
	}
	~ShmMaker()
	{
		if (pid <= 0)
			return;
		kill(pid, SIGKILL);
		waitpid(pid, nullptr, 0);
	}
	bool made() const { return told; }

private:
	pid_t pid = -1;
	bool told = false;

	[[noreturn]] void make(size_t length, const std::function<void(xpi_shm *)> &after,
	                       const std::function<void()> &before, int out)
	{
		xpi_shm shm = {};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (before)
			before();
		if (xpi_shm_alloc(&shm, length, nullptr) != XPORT_OK)
			_exit(1);
		if (after)
			after(&shm);
		xpi_shm_pack(&shm, false, key);
		if (write(out, key, sizeof(key)) != static_cast<ssize_t>(sizeof(key)))
			_exit(1);
		for (;;)
			pause();
	}
};

#endif
