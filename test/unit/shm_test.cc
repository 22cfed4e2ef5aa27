/* SPDX-License-Identifier: BSD-3-Clause */
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shm_maker.h"

namespace
{

constexpr size_t LENGTH = 3 * 4096;

class Shm : public testing::Test
{
protected:
	void SetUp() override { ASSERT_EQ(XPORT_OK, xpi_shm_alloc(&shm, LENGTH, nullptr)); }
	void TearDown() override { xpi_shm_free(&shm); }
	void *map(uint64_t length, bool writing, bool writable = true)
	{
		uint8_t key[XPI_SHM_KEY];

		xpi_shm_pack(&shm, writable, key);
		return xpi_shm_map(key, length, writing);
	}

	std::string path() const { return "/proc/self/fd/" + std::to_string(shm.fd); }
	std::string name() const
	{
		std::string s(64, '\0');

		EXPECT_GT(readlink(path().c_str(), &s[0], s.size()), 0);
		return s.substr(0, s.find(' ')).substr(strlen("/memfd:"));
	}

	struct xpi_shm shm = {};
};

TEST_F(Shm, IsMappedAsFarAsItGoes)
{
	for (uint64_t length : {uint64_t{1}, uint64_t{4097}, uint64_t{LENGTH}}) {
		auto *p = static_cast<uint8_t *>(map(length, true));

		ASSERT_NE(nullptr, p) << length;
		p[length - 1] = 7;
		EXPECT_EQ(7, static_cast<uint8_t *>(shm.base)[length - 1]);
		xpi_shm_unmap(p, length);
	}
	for (uint64_t length : {uint64_t{0}, uint64_t{LENGTH + 1}, uint64_t{1} << 30, UINT64_MAX})
		EXPECT_EQ(nullptr, map(length, true)) << length;
}

TEST_F(Shm, IsWrittenToByWhoMay)
{
	void *p = map(LENGTH, false, false);

	EXPECT_EQ(nullptr, map(LENGTH, true, false));
	ASSERT_NE(nullptr, p);
	EXPECT_EQ(-1, mprotect(p, LENGTH, PROT_READ | PROT_WRITE)) << "it was opened for reading alone";
	xpi_shm_unmap(p, LENGTH);
}

/* Or whoever has mapped it would be ended by a signal. */
TEST_F(Shm, StaysAsLongAsItIs)
{
	EXPECT_EQ(-1, ftruncate(shm.fd, 4096));
}

/* The same memory, but that its owner can take it away. */
TEST_F(Shm, IsNotMappedIfItCanBecomeShorter)
{
	struct xpi_shm other = shm;

	other.fd = memfd_create(name().c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ASSERT_EQ(0, ftruncate(other.fd, LENGTH));
	std::swap(shm.fd, other.fd);
	EXPECT_EQ(nullptr, map(LENGTH, true));
	ASSERT_EQ(0, fcntl(shm.fd, F_ADD_SEALS, F_SEAL_SHRINK));
	void *p = map(LENGTH, true);
	EXPECT_NE(nullptr, p) << "it is the seal alone that was missing";
	xpi_shm_unmap(p, LENGTH);
	std::swap(shm.fd, other.fd);
	close(other.fd);
}

/* Its owner makes a hole, and takes the last huge pages: that would end whoever looks there. */
TEST_F(Shm, IsNotMappedOfHugePages)
{
	struct xpi_shm other = shm;

	struct stat st {
	};

	other.fd = memfd_create(name().c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (other.fd < 0)
		GTEST_SKIP() << "this kernel has no huge pages";
	ASSERT_EQ(0, fstat(other.fd, &st));
	other.length = static_cast<size_t>(st.st_blksize);
	ASSERT_EQ(0, ftruncate(other.fd, st.st_blksize));
	ASSERT_EQ(0, fcntl(other.fd, F_ADD_SEALS, F_SEAL_SHRINK));
	std::swap(shm, other);
	EXPECT_EQ(nullptr, map(4096, false));
	EXPECT_EQ(ENOENT, errno) << "it was tried, and may have failed for want of such pages alone";
	std::swap(shm, other);
	close(other.fd);
}

/* The kernel asks who has a lease to give it up, and has whoever opens the file wait for that. */
TEST_F(Shm, IsNotWaitedFor)
{
	int fd = open(path().c_str(), O_RDWR | O_CLOEXEC);
	auto before = signal(SIGIO, SIG_IGN);
	timespec from{}, to{};

	ASSERT_GE(fd, 0);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
		GTEST_SKIP() << "this kernel gives no lease on it";
	clock_gettime(CLOCK_MONOTONIC, &from);
	EXPECT_EQ(nullptr, map(LENGTH, false));
	EXPECT_EQ(EAGAIN, errno);
	clock_gettime(CLOCK_MONOTONIC, &to);
	EXPECT_LT(to.tv_sec - from.tv_sec, 5);
	close(fd);
	signal(SIGIO, before);
	void *p = map(LENGTH, false);
	EXPECT_NE(nullptr, p);
	xpi_shm_unmap(p, LENGTH);
}

TEST_F(Shm, KeyNamesTheMakerAndTheFile)
{
	uint8_t key[XPI_SHM_KEY];

	xpi_shm_pack(&shm, false, key);
	EXPECT_EQ(getpid(), xpi_shm_maker(key));
	void *p = xpi_shm_map(key, LENGTH, false);
	ASSERT_NE(nullptr, p);
	EXPECT_EQ(-1, mprotect(p, LENGTH, PROT_READ | PROT_WRITE)) << "it is for reading";
	xpi_shm_unmap(p, LENGTH);
	key[1] ^= 1;
	EXPECT_EQ(nullptr, xpi_shm_map(key, LENGTH, false)) << "it has another name";
}

void be_another_user()
{
	if (setuid(65534) != 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1); /* as a program that was not root's before */
}

/* Root may look into the process of any user, and maps nothing there: neither if another user made it, nor if its maker has
 * become another. */
TEST_F(Shm, RootMapsNothingOfAnotherUsersProcess)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root, to have a process of another user";
	for (bool first : {true, false}) {
		ShmMaker maker(
			LENGTH,
			[&](xpi_shm *) {
				if (!first)
					be_another_user();
			},
			[&] {
				if (first)
					be_another_user();
			});

		ASSERT_TRUE(maker.made());
		EXPECT_EQ(nullptr, xpi_shm_map(maker.key, LENGTH, false)) << first;
		EXPECT_EQ(EACCES, errno);
	}
}

} // namespace
