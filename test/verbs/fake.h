/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake.h - an RDMA device of memory, for what no real one does when it is asked to: the functions of libibverbs and
 * librdmacm that the verbs back end calls, as far as it calls them.  What happens is up to the test: it says what
 * fails, and it writes the completions and events.
 */
#ifndef TEST_VERBS_FAKE_H
#define TEST_VERBS_FAKE_H

#include "backends/verbs/verbs.h"

enum { FAKE_QUEUE = 4096, FAKE_EVENTS = 64, FAKE_SIW = 0x626d74 /* as a vendor */ };

struct fake {
	/* what it is */
	enum ibv_transport_type transport;
	uint8_t link_layer;
	enum ibv_port_state port;
	uint32_t inline_max; /* more is refused */
	int max_cqe;
	int vectors; /* interrupts it has */
	uint32_t max_msg;
	enum ibv_fork_status fork_status;
	bool no_device, no_address, no_rdma_cm;
	bool carrier; /* it has a second address, 10.0.0.2, on an interface that has one */
	bool elsewhere; /* peers are reached by another device */
	bool silent;    /* they do not answer */
	/* what fails, with which errno; 0: nothing */
	int post_send_after; /* ... but it takes so many before */
	bool post_send_zero; /* ... and answers 0 */
	int doorbell_fails;  /* all are taken, and none is named */
	int poll_cq_fails;   /* what polling the completion queue answers */
	int post_recv_after; /* as post_send_after */
	int reg_fails, post_send_fails, post_recv_fails, qp_fails, cq_fails, listen_fails, connect_fails, accept_fails;
	int routes_late; /* so many times the subnet manager does not answer */
	int ports_taken; /* to listen at, and to connect from: so many times that is refused */
	uint32_t vendor;
	bool stop_fails; /* a stopped queue pair takes nothing more and gives nothing back */
	/* what there is: all 0 after closing */
	int contexts, pds, channels, mrs, cqs, qps, cms, ids, lists;
	/* what was done */
	int cqe, vector; /* asked for, of the last completion queue */
	struct ibv_qp *qp; /* the last one made */
	struct rdma_cm_id *id, *listener;
	struct ibv_send_wr sent[FAKE_QUEUE]; /* without their lists */
	uint8_t bytes[FAKE_QUEUE][64];       /* the beginning of each one's data */
	uint32_t lengths[FAKE_QUEUE];
	unsigned doorbells; /* calls that posted something to be sent */
	unsigned nsent, nreceives, nrejected, nacked, ncalls, ndisconnected;
	uint64_t receives[FAKE_QUEUE]; /* wr_id of those posted, in order */
	void *places[FAKE_QUEUE];      /* ... and where each lies */
	unsigned receives_head;
	uint8_t private_data[64];
	enum ibv_qp_state state, disconnected_in; /* of the last queue pair; ... and when rdma_cm was asked to */
	uint8_t timeout, rnr_timer, retries; /* the last: asked for by who called or answered */
	uint8_t tos, route_tos;              /* of the last queue pair, and of the route that was asked for */
	/* what waits to be taken */
	struct ibv_wc wc[FAKE_QUEUE];
	unsigned wc_head, wc_tail;
	struct rdma_cm_event events[FAKE_EVENTS];
	unsigned event_head, event_tail;
	int async[2], comp[2]; /* pipes: what is read is what the device says */
};

extern struct fake fake;

/* As new. */
void fake_reset(void);
/* A completion of the nth thing that was sent. */
void fake_sent(unsigned n, enum ibv_wc_status status);
/* A frame into the oldest receive that is posted; the bytes are written there. */
void fake_received(const void *bytes, uint32_t len, enum ibv_wc_status status);
/* The oldest receive that is posted answers what did not, or not all, go there. */
void fake_received_elsewhere(enum ibv_wc_opcode opcode, uint32_t len);
/* Whatever is posted comes back. */
void fake_flush(void);
void fake_event(enum rdma_cm_event_type type, struct rdma_cm_id *id, int status, const void *data, uint8_t len);
/* The peer asks for a connection. */
void fake_call(const void *data, uint8_t len);
void fake_async(enum ibv_event_type type, void *element);
/* How many objects there are. */
int fake_left(void);

#endif
