/* SPDX-License-Identifier: BSD-3-Clause */
/* settings_test.cc - the environment variables; the fields of xport_attr are in settings_attr_test.cc. */
#include <fcntl.h>
#include <sys/stat.h>

#include "settings_fixture.h"

extern "C" {
#include "core/auth/auth.h"
}

namespace
{

TEST_F(Settings, Defaults)
{
	ASSERT_EQ(XPORT_OK, xpi_settings_read(nullptr, &s, &err)) << err.text;
	EXPECT_STREQ("auto", s.backend);
	EXPECT_EQ(0u, s.require);
	EXPECT_EQ(0u, s.emulate);
	EXPECT_FALSE(s.multiple);
	EXPECT_FALSE(s.progress_thread);
	EXPECT_STREQ("", s.progress_cores);
	EXPECT_TRUE(s.liveness_thread);
	EXPECT_EQ(5000, s.peer_timeout_ms);
	EXPECT_EQ(0, s.op_timeout_ms);
	EXPECT_EQ(16384u, s.queue_depth);
	EXPECT_EQ(1024u, s.peer_connections);
	EXPECT_FALSE(s.auth_none);
	EXPECT_EQ(XPORT_LOG_WARN, s.log.level);
	EXPECT_EQ(nullptr, s.log.fn);
	EXPECT_EQ(STDERR_FILENO, s.log.fd);
	EXPECT_FALSE(s.log_owned);
	xpi_settings_fini(&s);
}

TEST_F(Settings, AnEmptyVariableIsUnset)
{
	for (const struct xpi_variable *v = xpi_variables; v->name != nullptr; v++)
		setenv(v->name, "", 1);
	EXPECT_EQ(XPORT_OK, read()) << err.text;
	EXPECT_EQ(5000, s.peer_timeout_ms);
}

TEST_F(Settings, TheTableIsWhole)
{
	int n = 0;

	for (const struct xpi_variable *v = xpi_variables; v->name != nullptr; v++, n++) {
		EXPECT_EQ(0, strncmp(v->name, "XPORT_", 6)) << v->name;
		EXPECT_NE('\0', v->type[0]) << v->name;
		EXPECT_NE('\0', v->range[0]) << v->name;
		EXPECT_NE('\0', v->text[0]) << v->name;
		/* What the table calls the standard value is a value. */
		if (v->standard[0] != '\0') {
			EXPECT_EQ(XPORT_OK, read_with(v->name, v->standard)) << err.text;
		}
	}
	EXPECT_GT(n, 0);
	EXPECT_LE(n, 25);
}

TEST_F(Settings, TheVariablesAreListed)
{
	const int all = xport_variables(nullptr, 0, 0);
	std::vector<struct xport_variable> v(64);
	int named = 0;

	ASSERT_GT(all, 0);
	setenv("XPORT_PEER_TIMEOUT", "9s", 1);
	setenv("XPORT_QUEUE_DEPTH", "none", 1);
	setenv("XPORT_BACKEND", "", 1);
	ASSERT_EQ(all, xport_variables(v.data(), sizeof(v[0]), 64));
	for (int i = 0; i < all; i++) {
		const std::string name = v[i].name;

		EXPECT_EQ(xpi_variables[i].name, name);
		EXPECT_STREQ(xpi_variables[i].type, v[i].type);
		EXPECT_STREQ(xpi_variables[i].range, v[i].range);
		EXPECT_STREQ(xpi_variables[i].standard, v[i].standard);
		EXPECT_STREQ(xpi_variables[i].text, v[i].text);
		if (name == "XPORT_PEER_TIMEOUT") {
			EXPECT_STREQ("9s", v[i].value);
			EXPECT_STREQ("", v[i].problem);
			named++;
		} else if (name == "XPORT_QUEUE_DEPTH") {
			EXPECT_STREQ("none", v[i].value);
			EXPECT_NE(nullptr, strstr(v[i].problem, "XPORT_QUEUE_DEPTH=none: not a number"))
				<< v[i].problem;
			named++;
		} else {
			EXPECT_EQ(nullptr, v[i].value) << name;
			EXPECT_STREQ("", v[i].problem) << name;
		}
	}
	EXPECT_EQ(2, named);
	EXPECT_EQ(nullptr, xpi_variables[all].name) << "not all of them";
}

TEST_F(Settings, TheListOfVariablesStaysInItsRoom)
{
	struct xport_variable v[3];

	memset(v, 0x5a, sizeof(v));
	EXPECT_LT(2, xport_variables(v, sizeof(v[0]), 2));
	EXPECT_STREQ(xpi_variables[1].name, v[1].name);
	EXPECT_EQ(0x5a, v[2].problem[0]);
	EXPECT_EQ(XPORT_ERR_INVALID, xport_variables(nullptr, sizeof(v[0]), 2));
	EXPECT_EQ(XPORT_ERR_INVALID, xport_variables(v, sizeof(v[0]) - 1, 2));
	EXPECT_EQ(XPORT_ERR_INVALID, xport_variables(v, sizeof(v[0]), -1));
}

TEST_F(Settings, Backend)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_BACKEND", "verbs:rxe0,ofi:tcp;ofi_rxm"));
	EXPECT_STREQ("verbs:rxe0,ofi:tcp;ofi_rxm", s.backend);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_BACKEND", std::string(255, 'a').c_str()));
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_BACKEND", std::string(256, 'a').c_str()));
}

TEST_F(Settings, Require)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_REQUIRE", "target_bounds"));
	EXPECT_EQ(static_cast<uint32_t>(XPI_REQUIRE_TARGET_BOUNDS), s.require);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_REQUIRE", "passive_target,target_bounds"));
	EXPECT_EQ(static_cast<uint32_t>(XPI_REQUIRE_TARGET_BOUNDS | XPI_REQUIRE_PASSIVE_TARGET), s.require);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_REQUIRE", "traffic_class"));
	EXPECT_EQ(static_cast<uint32_t>(XPI_REQUIRE_TRAFFIC_CLASS), s.require);
	for (const char *v : {"bounds", "target_bounds,", ",target_bounds", "target_bounds passive_target",
	                      "Target_Bounds", "target_bound"})
		expect_bad("XPORT_REQUIRE", v);
	expect_bad("XPORT_REQUIRE", "targetbounds");
	EXPECT_NE(nullptr, strstr(err.text, "did you mean target_bounds?")) << err.text;
}

TEST_F(Settings, Emulate)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_EMULATE", "put"));
	EXPECT_EQ(static_cast<uint32_t>(XPI_EMULATE_PUT), s.emulate);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_EMULATE", "put,get"));
	EXPECT_EQ(static_cast<uint32_t>(XPI_EMULATE_PUT | XPI_EMULATE_GET), s.emulate);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_EMULATE", "atomic"));
	EXPECT_EQ(static_cast<uint32_t>(XPI_EMULATE_ATOMIC), s.emulate);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_EMULATE", "all"));
	EXPECT_EQ(static_cast<uint32_t>(XPI_EMULATE_ALL), s.emulate);
	for (const char *v : {"puts", "put,,get", "none", "1", "put;get"})
		expect_bad("XPORT_EMULATE", v);
	expect_bad("XPORT_EMULATE", (std::string(80, 'p')).c_str());
}

TEST_F(Settings, Progress)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PROGRESS", "poll"));
	EXPECT_FALSE(s.progress_thread);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PROGRESS", "thread"));
	EXPECT_TRUE(s.progress_thread);
	EXPECT_TRUE(s.multiple) << "the progress thread implies the lock";
	EXPECT_STREQ("", s.progress_cores);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PROGRESS", "thread@0"));
	EXPECT_STREQ("0", s.progress_cores);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PROGRESS", "thread@1023"));
	EXPECT_STREQ("1023", s.progress_cores);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PROGRESS", "thread@0-3,8,10-1023"));
	EXPECT_STREQ("0-3,8,10-1023", s.progress_cores);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PROGRESS", "thread@device"));
	EXPECT_STREQ("device", s.progress_cores);
	for (const char *v : {"threads", "thread@", "thread@-1", "thread@1024", "thread@x", "thread@1x", "thread:1",
	                      "polling", "poll@1", "thread@99999999999999999999", "thread@devices", "thread@0,",
	                      "thread@0-", "thread@3-1", "thread@0-1024", "thread@,1", "thread@1\n", "poll@device"})
		expect_bad("XPORT_PROGRESS", v);
	std::string most = std::string(131, '0') + "1-12";
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PROGRESS", ("thread@" + most).c_str())) << err.text;
	EXPECT_EQ(most, s.progress_cores);
	for (const std::string &v : {"thread@0" + most, "thread@" + std::string(200, '1')}) {
		EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_PROGRESS", v.c_str())) << v;
		EXPECT_NE(nullptr, strstr(err.text, "the list of cores is longer than 135 bytes")) << err.text;
	}
}

TEST_F(Settings, Liveness)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_LIVENESS", "poll"));
	EXPECT_FALSE(s.liveness_thread);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_LIVENESS", "thread"));
	EXPECT_TRUE(s.liveness_thread);
	for (const char *v : {"off", "Thread", "thread,poll", "0"})
		expect_bad("XPORT_LIVENESS", v);
}

TEST_F(Settings, PeerTimeout)
{
	const struct {
		const char *value;
		int ms;
	} good[] = {{"200ms", 200},  {"5s", 5000},       {"1m", 60000},          {"60m", 3600000},
	            {"1h", 3600000}, {"3600s", 3600000}, {"3600000ms", 3600000}, {"0250ms", 250}};

	for (const auto &g : good) {
		EXPECT_EQ(XPORT_OK, read_with("XPORT_PEER_TIMEOUT", g.value)) << err.text;
		EXPECT_EQ(g.ms, s.peer_timeout_ms);
	}
	for (const char *v : {"199ms",       "0",
	                      "0s",          "3601s",
	                      "3600001ms",   "2h",
	                      "5",           "5 s",
	                      " 5s",         "5S",
	                      "-5s",         "+5s",
	                      "1.5s",        "s",
	                      "5sec",        "ms",
	                      "0x5s",        "99999999999999999999s",
	                      "4294967295h", "4294967296ms",
	                      "5us"})
		expect_bad("XPORT_PEER_TIMEOUT", v);
	expect_bad("XPORT_PEER_TIMEOUT", "5");
	EXPECT_NE(nullptr, strstr(err.text, "unit")) << err.text;
}

TEST_F(Settings, OpTimeout)
{
	const struct {
		const char *value;
		int ms;
	} good[] = {{"0", 0}, {"0s", 0}, {"1ms", 1}, {"30s", 30000}, {"1h", 3600000}};

	for (const auto &g : good) {
		EXPECT_EQ(XPORT_OK, read_with("XPORT_OP_TIMEOUT", g.value)) << err.text;
		EXPECT_EQ(g.ms, s.op_timeout_ms);
	}
	for (const char *v : {"1", "61m", "-1", "never"})
		expect_bad("XPORT_OP_TIMEOUT", v);
}

TEST_F(Settings, QueueDepth)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_QUEUE_DEPTH", "1"));
	EXPECT_EQ(1u, s.queue_depth);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_QUEUE_DEPTH", "1048576"));
	EXPECT_EQ(1048576u, s.queue_depth);
	for (const char *v : {"0", "1048577", "-16", "16k", "0x20", "", "4294967312", "18446744073709551632"})
		if (*v != '\0')
			expect_bad("XPORT_QUEUE_DEPTH", v);
}

TEST_F(Settings, TrafficClass)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_TRAFFIC_CLASS", "bulk"));
	EXPECT_EQ(XPORT_TRAFFIC_BULK, s.traffic_class);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_TRAFFIC_CLASS", ""));
	EXPECT_EQ(XPORT_TRAFFIC_DEFAULT, s.traffic_class);
	for (const char *v : {"default", "Urgent", "bulk,normal", "3", "normal "})
		expect_bad("XPORT_TRAFFIC_CLASS", v);
	attr.traffic_class = XPORT_TRAFFIC_URGENT;
	EXPECT_EQ(XPORT_OK, read_with("XPORT_TRAFFIC_CLASS", "bulk"));
	EXPECT_EQ(XPORT_TRAFFIC_URGENT, s.traffic_class) << "the attribute replaces the variable";
}

TEST_F(Settings, ShmDir)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_SHM_DIR", "/run/xport"));
	EXPECT_STREQ("/run/xport", s.shm_dir);
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_SHM_DIR", std::string(256, 'x').c_str()));
}

TEST_F(Settings, Flight)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_FLIGHT", "1m"));
	EXPECT_EQ(1u << 20, s.flight);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_FLIGHT", "1g"));
	EXPECT_EQ(1u << 30, s.flight);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_FLIGHT", "2048k"));
	EXPECT_EQ(2u << 20, s.flight);
	for (const char *v : {"0", "64", "m", "1023k", "2g", "1025m", "4194304k", "64M", "64mb", "-1m", "4294967295g"})
		expect_bad("XPORT_FLIGHT", v);
}

TEST_F(Settings, PeerConnections)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PEER_CONNECTIONS", "1"));
	EXPECT_EQ(1u, s.peer_connections);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_PEER_CONNECTIONS", "65536"));
	EXPECT_EQ(65536u, s.peer_connections);
	for (const char *v : {"0", "65537", "-16", "16k", "0x20", "", "4294967312", "18446744073709551632"})
		if (*v != '\0')
			expect_bad("XPORT_PEER_CONNECTIONS", v);
}

TEST_F(Settings, LogLevel)
{
	const char *names[] = {"error", "warn", "info", "debug"};

	for (int i = 0; i < 4; i++) {
		EXPECT_EQ(XPORT_OK, read_with("XPORT_LOG", names[i]));
		EXPECT_EQ(i + 1, s.log.level);
	}
	for (const char *v : {"warning", "WARN", "3", "info,", ",file", "debug;x"})
		expect_bad("XPORT_LOG", v);
}

TEST_F(Settings, LogFileIsAppendedToAndPrivate)
{
	char dir[] = "/tmp/xpunit.XXXXXX";
	ASSERT_NE(nullptr, mkdtemp(dir));
	std::string file = std::string(dir) + "/log,with comma", link = std::string(dir) + "/link";
	struct stat st;

	attr.log_fn = nullptr;
	setenv("XPORT_LOG", ("info," + file).c_str(), 1);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(XPORT_OK, xpi_settings_read(&attr, &s, &err)) << err.text;
		EXPECT_TRUE(s.log_owned);
		EXPECT_EQ(FD_CLOEXEC, fcntl(s.log.fd, F_GETFD) & FD_CLOEXEC);
		xpi_log(&s.log, XPORT_LOG_INFO, "9001", "x");
		int fd = s.log.fd;
		xpi_settings_fini(&s);
		EXPECT_EQ(-1, fcntl(fd, F_GETFD)) << "closed";
	}
	ASSERT_EQ(0, stat(file.c_str(), &st));
	EXPECT_EQ(2 * static_cast<off_t>(strlen("xport I XP-9001: x\n")), st.st_size);
	EXPECT_EQ(0600u, st.st_mode & 0777);

	ASSERT_EQ(0, symlink(file.c_str(), link.c_str()));
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_LOG", ("warn," + link).c_str()));
	EXPECT_STREQ("ELOOP", err.native);
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_LOG", (std::string("warn,") + dir + "/no/such").c_str()));
	EXPECT_STREQ("ENOENT", err.native);
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_LOG", (std::string("warn,") + dir).c_str()));
	EXPECT_STREQ("EISDIR", err.native);
	std::string fifo = std::string(dir) + "/fifo";
	ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_LOG", ("warn," + fifo).c_str())) << "must not wait for a reader";

	/* Another user's file could be read by that user. */
	std::string foreign = std::string(dir) + "/foreign";
	if (geteuid() == 0) {
		close(open(foreign.c_str(), O_WRONLY | O_CREAT, 0666));
		ASSERT_EQ(0, chown(foreign.c_str(), 65534, 65534));
		EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_LOG", ("warn," + foreign).c_str()));
		EXPECT_NE(nullptr, strstr(err.text, "belongs to user 65534")) << err.text;
		unlink(foreign.c_str());
		ASSERT_EQ(0, mkfifo(foreign.c_str(), 0666));
		ASSERT_EQ(0, chown(foreign.c_str(), 65534, 65534));
		int reader = open(foreign.c_str(), O_RDONLY | O_NONBLOCK);
		EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_LOG", ("warn," + foreign).c_str()));
		EXPECT_NE(nullptr, strstr(err.text, "belongs to user 65534")) << err.text;
		close(reader);
		unlink(foreign.c_str());
	}

	/* With a sink the file is not opened. */
	attr.log_fn = collect;
	EXPECT_EQ(XPORT_OK, read_with("XPORT_LOG", ("debug," + link).c_str()));
	EXPECT_EQ(XPORT_LOG_DEBUG, s.log.level);
	unlink(fifo.c_str());
	unlink(link.c_str());
	unlink(file.c_str());
	EXPECT_EQ(0, rmdir(dir));
}

TEST_F(Settings, Auth)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_AUTH", "none"));
	EXPECT_TRUE(s.auth_none);
	for (const char *v : {"None", "key", "0"})
		expect_bad("XPORT_AUTH", v);
	EXPECT_EQ(nullptr, s.secret);
	EXPECT_TRUE(log.empty());
}

TEST_F(Settings, KeyFile)
{
	char dir[] = "/tmp/xport-settings.XXXXXX";
	ASSERT_NE(nullptr, mkdtemp(dir));
	std::string file = std::string(dir) + "/key";
	int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);

	ASSERT_EQ(17, write(fd, "0123456789abcdef\n", 17));
	close(fd);
	if (!xpi_auth_built()) {
		EXPECT_EQ(XPORT_ERR_NOT_SUPPORTED, read_with("XPORT_AUTH_KEY_FILE", file.c_str()));
	} else {
		setenv("XPORT_AUTH_KEY_FILE", file.c_str(), 1);
		ASSERT_EQ(XPORT_OK, xpi_settings_read(&attr, &s, &err)) << err.text;
		EXPECT_NE(nullptr, s.secret);
		EXPECT_FALSE(s.auth_none);
		xpi_settings_fini(&s);
		EXPECT_EQ(nullptr, s.secret);
		EXPECT_TRUE(log.empty());
		/* A key is used, whatever else is said; and that is told. */
		setenv("XPORT_AUTH", "none", 1);
		ASSERT_EQ(XPORT_OK, xpi_settings_read(&attr, &s, &err)) << err.text;
		EXPECT_NE(nullptr, s.secret);
		xpi_settings_fini(&s);
		ASSERT_EQ(1u, log.size());
		EXPECT_NE(std::string::npos, log[0].find("2 XP-0202 XPORT_AUTH=none is ignored")) << log[0];
		unsetenv("XPORT_AUTH");
		chmod(file.c_str(), 0644);
		EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_AUTH_KEY_FILE", file.c_str()));
		EXPECT_NE(nullptr, strstr(err.hint, "chmod 600 ")) << err.hint;
		EXPECT_EQ(nullptr, s.secret);
	}
	unlink(file.c_str());
	rmdir(dir);
}

TEST_F(Settings, Strict)
{
	for (const char *v : {"2", "yes", "true", "01", "-1"})
		expect_bad("XPORT_STRICT", v);
	EXPECT_EQ(XPORT_OK, read_with("XPORT_STRICT", "0"));
	EXPECT_EQ(XPORT_OK, read_with("XPORT_STRICT", "1"));
}

TEST_F(Settings, AMisspeltNameIsAWarningWithTheNearest)
{
	EXPECT_EQ(XPORT_OK, read_with("XPORT_BAKCEND", "ucx"));
	ASSERT_EQ(1u, log.size());
	EXPECT_EQ("2 XP-0201 XPORT_BAKCEND is not a variable of this library: did you mean XPORT_BACKEND?", log[0]);
	EXPECT_STREQ("auto", s.backend);
	log.clear();
	EXPECT_EQ(XPORT_OK, read_with("XPORT_SOMETHING_ELSE", "1"));
	ASSERT_EQ(1u, log.size());
	EXPECT_EQ(std::string::npos, log[0].find("did you mean")) << log[0];
	log.clear();
	EXPECT_EQ(XPORT_OK, read_with("MY_XPORT_THING", "1"));
	EXPECT_EQ(XPORT_OK, read_with("XPORTER", "1"));
	EXPECT_TRUE(log.empty());
	unsetenv("MY_XPORT_THING");
}

TEST_F(Settings, AMisspeltNameIsAnErrorWhenStrict)
{
	setenv("XPORT_STRICT", "1", 1);
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_PEER_TIMEOUTS", "5s"));
	EXPECT_NE(nullptr, strstr(err.text, "XPORT_PEER_TIMEOUTS")) << err.text;
	EXPECT_STREQ("did you mean XPORT_PEER_TIMEOUT?", err.hint);
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with((std::string("XPORT_") + std::string(500, 'X')).c_str(), "1"));
	for (std::string name : {"", "_RANK", "_SIZE", "_NAME", "_ADDRESS"}) /* the services' own */
		EXPECT_EQ(XPORT_OK, read_with(("XPORT_GROUP" + name).c_str(), "1")) << name;
	EXPECT_TRUE(log.empty());
}

TEST_F(Settings, AFailureLeavesNothingOpen)
{
	char file[] = "/tmp/xpunit.XXXXXX";
	int fd = mkstemp(file), next, after;

	ASSERT_GE(fd, 0);
	close(fd);
	next = dup(0);
	close(next);
	attr.log_fn = nullptr;
	setenv("XPORT_STRICT", "1", 1);
	setenv("XPORT_NONSENSE", "1", 1);
	EXPECT_EQ(XPORT_ERR_CONFIG, read_with("XPORT_LOG", (std::string("warn,") + file).c_str()));
	after = dup(0);
	close(after);
	EXPECT_EQ(next, after) << "a descriptor stayed open";
	unlink(file);
}

} // namespace
