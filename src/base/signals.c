/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/signals.h"

#include <time.h>

void xpi_signals_save(struct xpi_signals *s)
{
	for (int i = 1; i < _NSIG; i++)
		s->known[i] = sigaction(i, NULL, &s->action[i]) == 0;
}

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
	if (a->sa_flags != b->sa_flags)
		return false;
	return a->sa_flags & SA_SIGINFO ? a->sa_sigaction == b->sa_sigaction : a->sa_handler == b->sa_handler;
}

void xpi_signals_restore(const struct xpi_signals *s, const struct xpi_log *log, const char *culprit)
{
	struct sigaction now;

	for (int i = 1; i < _NSIG; i++) {
		if (!s->known[i] || sigaction(i, NULL, &now) != 0 || same_action(&s->action[i], &now))
			continue;
		sigaction(i, &s->action[i], NULL);
		xpi_log(log, XPORT_LOG_DEBUG, "0203", "%s installed a handler of signal %d: restored the previous one",
		        culprit, i);
	}
}

void xpi_signals_hold(sigset_t *before)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
	sigset_t set;

	sigfillset(&set);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&set, faults[i]);
	pthread_sigmask(SIG_BLOCK, &set, before);
}

void xpi_signals_release(const sigset_t *before)
{
	const struct timespec no_wait = {0, 0};
	sigset_t too_long;

	sigemptyset(&too_long);
	sigaddset(&too_long, SIGXFSZ);
	if (!sigismember(before, SIGXFSZ))
		(void)sigtimedwait(&too_long, NULL, &no_wait);
	pthread_sigmask(SIG_SETMASK, before, NULL);
}
