/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inside.h - for C++, which cannot read these parts of the core: frames into an endpoint, keys that are encoded again,
 * handshakes.
 */
#ifndef INSIDE_H
#define INSIDE_H

#include <stdbool.h>

#include "xport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A frame of the endpoint's peer, the next in order, in one piece; `freed` is added to what it says was consumed. */
void inside_frame(xport_ep *ep, const void *records, size_t len, int freed);
/* The same, whose last `cut` bytes are a second piece. */
void inside_frame_cut(xport_ep *ep, const void *records, size_t len, size_t cut);
/* The same in one piece, on the channel of `from` (NULL: nobody knows on which it came), with a session that differs in the bits `change`. */
void inside_frame_by(xport_ep *ep, const xport_ep *from, uint64_t change, const void *records, size_t len);
/* A frame that came from nobody knows where, for the endpoint that has, or had, those numbers. */
void inside_frame_late(xport *x, uint32_t id, uint64_t session, const void *records, size_t len);
uint32_t inside_id(const xport_ep *ep);
uint64_t inside_session(const xport_ep *ep);
/* Bytes that are fewer than the head of a frame; `named`: they come on the channel of that endpoint. */
void inside_runt(xport_ep *ep, bool named);
/* How many frames fitted no endpoint. */
uint64_t inside_strays(const xport *x);
/* From now on the endpoint sends its frames as if they were for another one of its peer's instance. */
void inside_pretend(xport_ep *ep, const xport_ep *other, uint64_t change);
/* What the peer calls the operation with that context. */
uint32_t inside_name(xport_ep *ep, const void *context);
/* How many requests may be asked of an endpoint at a time; the longest message that may come unexpected. */
uint32_t inside_requests(void);
/* A get of so many bytes is answered at once. */
uint32_t inside_at_once(void);
uint32_t inside_unexpected(const xport_ep *ep);
uint64_t inside_region(const xport_mr *mr);
/* `loop` answers AGAIN to so many frames. */
void inside_refuse(unsigned frames);
/* Instances opened over it from now on say that a frame costs little. */
void inside_cheap(bool yes);
/* With 1 it has no native keys, with n > 1 wrong ones of n - 1 bytes; with a negative status, it fails to pack them. */
void inside_no_keys(int status);
/* Whatever a key of `loop` is of, it is mapped here; NULL: it is not. */
void inside_mapped(void *memory);
/* Instances opened over `loop` from now on take their peers for processes of this host. */
void inside_one_host(bool yes);
/* The place in its instance's outbox where an operation with that context is offered; 0: it is not. */
uint32_t inside_offer(xport_ep *ep, const void *context);
/* How many of the endpoint's operations are. */
uint32_t inside_offered(const xport_ep *ep);
/* What an endpoint would tell its peer of that outbox, 40 bytes; a bit of it is another one. */
void inside_outbox(xport_ep *ep, void *key, bool other);
/* How many bytes of memory the instance has for messages that nobody receives, in use or not. */
size_t inside_unexpected_bytes(const xport *x);
/* Memory for packed frames, as for acknowledgements, is out; or there is some again. */
void inside_no_frames(xport *x, bool none);
/* The same for operations. */
void inside_no_operations(xport *x, bool none);
/* Of operations, so many are left; inside_no_operations(x, false) ends it. */
void inside_some_operations(xport *x, unsigned n);
/* An endpoint of a listener's that waits for the peer to say that it is ready; NULL: there is none. */
xport_ep *inside_connecting(xport *x);
/* The endpoint's peer asks for the native key of the region. */
void inside_claim(xport_ep *ep, const xport_mr *mr);
/* The endpoint's peer has the native key of what this packed key of ours is to. Whether it could have it. */
bool inside_hold(xport_ep *ep, const void *key, size_t len);
/* The length of the native key that a GRANT for it would carry. */
size_t inside_granted(xport_ep *ep, const void *key, size_t len);

/* The key as another process would have packed it, with its checksum. */
size_t inside_other_key(const void *key, size_t len, void *out, size_t room);
/* Encodes a key into so much room: its length, 0 if it does not fit. */
size_t inside_encode(size_t room);

/* Whether a text of so many bytes can be encoded. */
bool inside_text_fits(size_t len);

/* A handshake over that socket, at a step of enum xpi_conn_step by name. */
struct inside_conn;
enum inside_step { INSIDE_TCP, INSIDE_HELLO, INSIDE_NATIVE_STEP, INSIDE_REFUSING };
struct inside_conn *inside_conn_new(xport *x, int fd, enum inside_step step);
void inside_conn_free(struct inside_conn *c);
/* xpi_conn_flush with a word and a HELLO of so many bytes before it, xpi_conn_fill. */
int inside_flush(struct inside_conn *c, size_t word, size_t hello);
int inside_fill(struct inside_conn *c, size_t want);
/* xpi_conn_same_user, so long after the peer's HELLO came. */
int inside_same_user(struct inside_conn *c, int64_t after_ms);
/* xpi_conn_watch; what it waits for, and until when, relative to now. */
int inside_watch(struct inside_conn *c, int64_t deadline_ms, int64_t addr_deadline_ms, uint32_t *events,
                 int64_t *until_ms);

/* What a peer over `loop`, at the address of `x`, would say first; its length. */
size_t inside_hello(xport *x, void *buf, size_t room);
/* A frame for the endpoint of those ids, into the inbox of `x`: from any thread. */
void inside_frame_to(xport *x, uint32_t id, uint64_t session, uint32_t seq, const void *records, size_t len);
/* The network below says that the endpoint failed. */
void inside_ep_failed(xport_ep *ep);
/* It said so a second ago, and what has become of the peer is judged now, before anything else is looked at. */
void inside_broken_long(xport_ep *ep);
/* From here on the instance is this thread's alone, though others are within its calls: they wait; and to here. */
void inside_alone(xport *x, bool yes);
/* Endpoints that are not freed. */
unsigned inside_endpoints(xport *x);

#ifdef __cplusplus
}
#endif

#endif
