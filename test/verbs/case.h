/* SPDX-License-Identifier: BSD-3-Clause */
/* case.h - what the cases of verbs_be_test share: a core of a few lines, an instance, an endpoint. */
#ifndef TEST_VERBS_CASE_H
#define TEST_VERBS_CASE_H

#include "fake.h"

/* All cases, in order: each is a function t_NAME without arguments, in cases_*.c. */
/* clang-format off */
#define ALL_CASES(X) \
	X(open_and_close) X(no_device) X(port_down) X(no_address) X(carrier_first) X(no_rdma_cm) X(unknown_name) \
	X(locked_memory) X(huge_pages) X(interrupts) X(longest_message_unsaid) X(every_part_may_fail) X(inline_is_found) X(first_queue_of_siw) X(target_bounds_but_of_siw) X(called) \
	X(calling) X(traffic_class) X(strangers_are_rejected) X(called_by_the_wrong_side) X(other_transport) X(reads_at_one_end) X(route_late) X(malformed_address) \
	X(connecting_fails) X(ports_that_tcp_has) X(no_port_that_tcp_has_not) X(siw_answers) X(siw_is_silent) X(siw_refuses) X(siw_no_queue_pair) X(siw_call_fails) X(siw_listens_anew) X(reached_by_another_device) X(no_queue_pair) X(frames_come) \
	X(full_and_free_again) X(long_frames_of_siw) X(frame_in_two_pieces) X(stack_is_full) \
	X(stack_refuses) X(receives_cannot_be_posted) X(receives_half_posted) X(put_and_get) X(drain_reads_the_page) X(puts_share_a_doorbell) X(doorbell_half_answered) X(batch_is_full) X(doorbell_fails) X(doorbell_fails_for_memory) X(batch_breaks) X(puts_that_never_leave) X(short_gets) \
	X(completions_out_of_order) X(region_too_long) X(region_that_no_adapter_has) X(receiver_not_ready) X(immediate_data) X(longer_than_a_receive) X(queue_pair_fatal) \
	X(completion_queue_overrun) X(completion_queue_unreadable) X(another_completion_queue) X(device_fatal) X(port_goes_down) X(port_comes_back) X(another_port_goes_down) \
	X(device_removed) X(peer_disconnects) X(events_are_looked_for_seldom) X(stops_before_it_disconnects) X(giving_a_call_up) X(giving_an_accepted_call_up) X(does_not_drain) X(arm)
/* clang-format on */

#define DECLARE_CASE(name) void t_##name(void);
ALL_CASES(DECLARE_CASE)
#undef DECLARE_CASE

extern const struct xpi_backend xpi_backend_verbs;
static const struct xpi_backend *const ops = &xpi_backend_verbs;

/* Says what is not so, and goes on: a case has ended badly if `failures` grew. */
extern int failures;
void wrong(int line, const char *what, const char *more);
#define IS(cond) ((cond) ? (void)0 : wrong(__LINE__, #cond, err.text))

/* What the core saw. */
struct xpi_core {
	unsigned frames, done, failed;
	size_t last_len;
	uint8_t last;
	struct xpi_req *last_done;
	struct xpi_core_ep *from; /* whose frame came last */
	char why[128];
};

struct xpi_core_ep {
	int unused;
};

extern struct xpi_core core;
extern struct xpi_core_ep core_ep;
extern struct xport_error err;
extern struct xpi_log quiet;
extern struct xpi_be *be;
extern struct xpi_be_caps caps;
extern struct vrb_ep ep;
extern uint8_t address[2048];
extern size_t address_len;
extern uint8_t memory[1 << 16];
extern struct vrb_mr mr;
extern struct vrb_rkey key;

int open_be(const char *provider);
/* The endpoint's own address serves as the peer's: they differ in nothing that is looked at. */
void prepare(void);
int connect_step(enum xpi_role role);
void make_call(const uint8_t *cookie);
/* Opens, and has an endpoint that was called and is up. */
void be_up(void);
/* Ends the endpoint and closes; nothing may be left. */
void end(void);
int send_frame(const void *buf, size_t len);
/* Registers `memory` as `mr`; `key` is its key. */
void share(void);

#endif
