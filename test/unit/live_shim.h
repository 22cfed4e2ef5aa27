/* SPDX-License-Identifier: BSD-3-Clause */
/* live_shim.h - core/live.h for C++, which cannot read C's atomics: one helper, one bell, handles. */
#ifndef LIVE_SHIM_H
#define LIVE_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shim;
struct shim_chan;
struct shim_watch;

struct shim *shim_new(bool thread);
void shim_free(struct shim *s);
void shim_put(struct shim *s); /* only the helper, as a forked child might */
int shim_step(struct shim *s);
int shim_fd(struct shim *s);
int64_t shim_now(void);
uint64_t shim_process_start(int64_t pid);
/* Waits for the bell, making steps if there is no thread; false: it was not rung in time. */
bool shim_wait(struct shim *s, int timeout_ms);

enum { SHIM_BYE = 1, SHIM_LOST = 2 };

/* Takes the socket over.  NULL: could not be started. */
struct shim_chan *shim_chan_start(struct shim *s, int fd, int timeout_ms, int64_t pid, uint64_t start_time);
unsigned shim_chan_found(struct shim_chan *c);
uint32_t shim_chan_bye_ack(struct shim_chan *c, uint32_t before);
const char *shim_chan_why(struct shim_chan *c);
bool shim_chan_has_pidfd(struct shim_chan *c);
void shim_chan_bye(struct shim_chan *c, bool proper);
void shim_chan_stop(struct shim_chan *c);

struct shim_watch *shim_watch_add(struct shim *s, int fd, uint32_t events, int64_t deadline_ms);
bool shim_watch_rang(struct shim_watch *w);
void shim_watch_arm(struct shim_watch *w, uint32_t events, int64_t deadline_ms);
void shim_watch_remove(struct shim_watch *w);

#ifdef __cplusplus
}
#endif

#endif
