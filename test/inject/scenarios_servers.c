/* SPDX-License-Identifier: BSD-3-Clause */
#include "scenarios_servers.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that ends with this process.  True in the child. */
static bool child(pid_t *pid)
{
	*pid = fork();
	if (*pid != 0)
		return false;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	return true;
}

/* ---- a launcher ---- */

enum { MESSAGE = 4096, VALUES = 16 };

/* Reads a message: a line, or with its length in six digits before it. */
static bool pmi_read(int fd, bool framed, char *text)
{
	char head[7] = "";
	size_t n = 0, len = MESSAGE;

	if (framed && (recv(fd, head, 6, MSG_WAITALL) != 6 || (len = strtoul(head, NULL, 10)) >= MESSAGE))
		return false;
	while (n < len && n < MESSAGE - 1 && read(fd, text + n, 1) == 1) {
		if (!framed && text[n] == '\n')
			break;
		n++;
	}
	text[n] = '\0';
	return n > 0;
}

static void pmi_write(int fd, bool framed, const char *text)
{
	char out[MESSAGE + 8];
	int n = framed ? snprintf(out, sizeof(out), "%6zu%s", strlen(text), text)
	               : snprintf(out, sizeof(out), "%s\n", text);

	(void)!write(fd, out, (size_t)n);
}

/* The value of a word, which ends with a space or a semicolon. */
static const char *pmi_word(const char *text, const char *key, char *value)
{
	const char *at = strstr(text, key);
	size_t n;

	value[0] = '\0';
	if (at == NULL)
		return value;
	at += strlen(key);
	n = strcspn(at, " ;");
	memcpy(value, at, n);
	value[n] = '\0';
	return value;
}

static void pmi1_answer(const char *cmd, const char *value, char *out)
{
	if (strcmp(cmd, "init") == 0)
		strcpy(out, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
	else if (strcmp(cmd, "get_maxes") == 0)
		strcpy(out, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=256");
	else if (strcmp(cmd, "get_my_kvsname") == 0)
		strcpy(out, "cmd=my_kvsname rc=0 kvsname=kvs");
	else if (strcmp(cmd, "barrier_in") == 0)
		strcpy(out, "cmd=barrier_out rc=0");
	else if (strcmp(cmd, "finalize") == 0)
		strcpy(out, "cmd=finalize_ack rc=0");
	else if (strcmp(cmd, "get") == 0)
		snprintf(out, MESSAGE, "cmd=get_result rc=0 value=%.3000s", value);
	else
		snprintf(out, MESSAGE, "cmd=%.40s_result rc=0", cmd);
}

static void pmi2_answer(const char *cmd, const char *value, char *out)
{
	if (strcmp(cmd, "init") == 0)
		strcpy(out, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0");
	else if (strcmp(cmd, "fullinit") == 0)
		strcpy(out, "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;rc=0;");
	else if (strcmp(cmd, "kvs-get") == 0)
		snprintf(out, MESSAGE, "cmd=kvs-get-response;found=TRUE;value=%.3000s;rc=0;", value);
	else
		snprintf(out, MESSAGE, "cmd=%.40s-response;rc=0;", cmd);
}

/* Of one process: what is put can be got. */
static void pmi_serve(int fd, int version)
{
	static char keys[VALUES][64], values[VALUES][MESSAGE];
	char in[MESSAGE], cmd[MESSAGE], key[MESSAGE], out[MESSAGE];
	bool framed = false;
	int n = 0, i;

	while (pmi_read(fd, framed, in)) {
		pmi_word(in, "cmd=", cmd);
		pmi_word(in, "key=", key);
		if (strstr(cmd, "put") != NULL && n < VALUES) {
			snprintf(keys[n], sizeof(keys[n]), "%.60s", key);
			pmi_word(in, "value=", values[n++]);
		}
		for (i = 0; i < n - 1 && strcmp(keys[i], key) != 0; i++)
			;
		(version == 1 ? pmi1_answer : pmi2_answer)(cmd, values[i], out);
		pmi_write(fd, framed, out);
		framed = version == 2;
	}
	_exit(0);
}

static bool launcher_start(struct sv_servers *s, int version)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		return false;
	if (child(&s->pid[version - 1])) {
		close(pair[0]);
		pmi_serve(pair[1], version);
	}
	close(pair[1]);
	s->launcher[version - 1] = pair[0];
	return s->pid[version - 1] > 0;
}

/* ---- an etcd with one entry: the first that was put ---- */

enum { CLIENTS = 16, REQUEST = 1 << 15 };

struct client {
	int fd;
	size_t len;
	char in[REQUEST];
};

static char entry_key[2048], entry_value[8192];
static int revision = 5;

/* Copies the string that follows `"name":"`. */
static bool text_of(const char *json, const char *name, char *text, size_t size)
{
	const char *at = strstr(json, name), *end;

	if (at == NULL)
		return false;
	at += strlen(name);
	end = strchr(at, '"');
	if (end == NULL || (size_t)(end - at) >= size)
		return false;
	memcpy(text, at, (size_t)(end - at));
	text[end - at] = '\0';
	return true;
}

static void etcd_entry(char *out, size_t size)
{
	if (entry_key[0] == '\0')
		snprintf(out, size, "{\"header\":{\"revision\":\"%d\"}}", revision);
	else
		snprintf(out, size,
		         "{\"header\":{\"revision\":\"%d\"},\"count\":\"1\",\"kvs\":[{\"key\":\"%s\",\"value\":\"%s\","
		         "\"mod_revision\":\"5\",\"lease\":\"7\"}]}",
		         revision, entry_key, entry_value);
}

static void etcd_txn(const char *request, char *out, size_t size)
{
	const char *inner = strstr(request, "request_txn"); /* a directory's: the first put is of its sequence */
	const char *put = strstr(inner != NULL ? inner : request, "request_put");

	revision++;
	if (put != NULL && entry_key[0] == '\0') {
		text_of(put, "\"key\":\"", entry_key, sizeof(entry_key));
		text_of(put, "\"value\":\"", entry_value, sizeof(entry_value));
	} else if (put == NULL) {
		entry_key[0] = '\0';
	}
	snprintf(out, size, "{\"header\":{\"revision\":\"%d\"},\"responses\":[{\"%s\":{}}%s]}", revision,
	         put != NULL ? "response_put" : "response_delete_range",
	         inner != NULL ? ",{\"response_txn\":{\"responses\":[{\"response_put\":{}}]}}" : "");
}

static void etcd_answer(struct client *c, const char *path, const char *request)
{
	char body[16384], out[17000];
	int n;

	if (strncmp(path, "/v3/watch", 9) == 0) {
		/* Two lines, the second one with an event, and no end. */
		n = snprintf(body, sizeof(body),
		             "{\"result\":{\"created\":true}}\n{\"result\":{\"events\":[{\"type\":\"DELETE\",\"kv\":{"
		             "\"key\":\"%s\","
		             "\"mod_revision\":\"9\"}}]}}\n",
		             entry_key);
		n = snprintf(out, sizeof(out), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", n,
		             body);
		(void)!write(c->fd, out, (size_t)n);
		return;
	}
	if (strstr(path, "authenticate") != NULL)
		strcpy(body, "{\"token\":\"secret\"}");
	else if (strstr(path, "grant") != NULL)
		strcpy(body, "{\"ID\":\"7\",\"TTL\":\"10\"}");
	else if (strstr(path, "keepalive") != NULL)
		strcpy(body, "{\"result\":{\"TTL\":\"10\"}}");
	else if (strstr(path, "txn") != NULL)
		etcd_txn(request, body, sizeof(body));
	else if (strstr(path, "range") != NULL)
		etcd_entry(body, sizeof(body));
	else
		strcpy(body, "{}");
	n = snprintf(out, sizeof(out), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	(void)!write(c->fd, out, (size_t)n);
}

/* Reads, and answers each whole request.  False: the connection has ended. */
static bool etcd_read(struct client *c)
{
	ssize_t n = read(c->fd, c->in + c->len, sizeof(c->in) - 1 - c->len);
	char *body, *length;
	size_t whole;

	if (n <= 0)
		return false;
	c->len += (size_t)n;
	c->in[c->len] = '\0';
	while ((body = strstr(c->in, "\r\n\r\n")) != NULL) {
		length = strstr(c->in, "Content-Length: ");
		if (length == NULL || length > body)
			return false;
		whole = (size_t)(body + 4 - c->in) + strtoul(length + 16, NULL, 10);
		if (c->len < whole)
			return whole < sizeof(c->in);
		etcd_answer(c, c->in + strlen("POST "), body + 4);
		memmove(c->in, c->in + whole, c->len - whole + 1);
		c->len -= whole;
	}
	return true;
}

static void etcd_serve(int listener)
{
	static struct client clients[CLIENTS];
	struct pollfd p[CLIENTS + 1];

	for (int i = 0; i < CLIENTS; i++)
		clients[i].fd = -1;
	for (;;) {
		p[CLIENTS] = (struct pollfd){.fd = listener, .events = POLLIN};
		for (int i = 0; i < CLIENTS; i++)
			p[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
		if (poll(p, CLIENTS + 1, -1) < 0)
			_exit(1);
		for (int i = 0; i < CLIENTS; i++) {
			if (clients[i].fd >= 0 && p[i].revents != 0 && !etcd_read(&clients[i])) {
				close(clients[i].fd);
				clients[i].fd = -1;
			} else if (clients[i].fd < 0 && p[CLIENTS].revents != 0) {
				clients[i].fd = accept(listener, NULL, NULL);
				clients[i].len = 0;
				p[CLIENTS].revents = 0;
			}
		}
	}
}

static bool etcd_start(struct sv_servers *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), file;

	strcpy(s->password, "/tmp/xport-inject-XXXXXX");
	file = mkstemp(s->password);
	if (fd < 0 || file < 0 || write(file, "secret\n", 7) != 7 || bind(fd, (struct sockaddr *)&a, len) != 0 ||
	    listen(fd, CLIENTS) != 0 || getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		return false;
	close(file);
	snprintf(s->etcd, sizeof(s->etcd), "etcd:http://127.0.0.1:%d", ntohs(a.sin_port));
	if (child(&s->pid[2]))
		etcd_serve(fd);
	close(fd);
	return s->pid[2] > 0;
}

/* ---- all of them ---- */

bool sv_start(struct sv_servers *s)
{
	memset(s, 0, sizeof(*s));
	return launcher_start(s, 1) && launcher_start(s, 2) && etcd_start(s);
}

void sv_stop(struct sv_servers *s)
{
	for (int i = 0; i < 3; i++) {
		kill(s->pid[i], SIGKILL);
		waitpid(s->pid[i], NULL, 0);
	}
	unlink(s->password);
}
