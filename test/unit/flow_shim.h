/* SPDX-License-Identifier: BSD-3-Clause */
/* flow_shim.h - core/flow.h for C++, which cannot read C's atomics: one end and its counters. */
#ifndef FLOW_SHIM_H
#define FLOW_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct flow;

struct flow *flow_new(void); /* free(3) it */
void flow_send(struct flow *f, unsigned frames);
void flow_receive(struct flow *f, unsigned frames);
void flow_send_control(struct flow *f);
void flow_receive_control(struct flow *f);
/* The owner polls, and answers if it is asked. */
void flow_poll(struct flow *f, bool idle);
bool flow_asked(const struct flow *f);
void flow_say(struct flow *f, uint8_t *bytes, int64_t now);
int flow_heard(struct flow *f, const uint8_t *bytes, int64_t now, int timeout_ms);
bool flow_stands(int verdict);

#ifdef __cplusplus
}
#endif

#endif
