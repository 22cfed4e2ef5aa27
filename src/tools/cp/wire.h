/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - what the two sides of xport_cp tell each other.
 *
 * One of them is the source, which reads files, the other the sink, which writes them; either may be the client.  What
 * is said goes by messages, all of one layout: the numbers, little-endian, then three strings with their lengths.
 * Data go by notified puts into the sink's slots: a head, then the bytes of a block.  The value of the notification is
 * the number of the slot.
 *
 *   client            START    flags, path: where (PUT: the sink's) or what (GET); text: as which name (GET); key (GET)
 *   server            READY    mode: what `path` is there (enum cp_there); key (PUT); or status and text: refused
 *   source            FILE     path, length, mode, times, flags      answered by OPENED
 *                     HOLE     offset, length                        not answered
 *                     CHECK    slot, offset, length, hash            answered by ACK: CP_HAVE or CP_NEED
 *                     a block by put                                 answered by ACK
 *                     FINISH   offset: bytes of blocks, hash: all of them; status: do not keep it   answered by DONE
 *                     DIR, DIREND, LINK   path, mode, times; text: where a link leads               answered by DONE
 *                     NOTE     text: something was not copied        not answered
 *                     BYE      that was all                          answered by DONE
 *   sink              OPENED   offset: so many bytes may be there already; CP_SAME: nothing to do; status
 *                     ACK      slot, status;  DONE  status, text
 *
 * These are not calls of xport_rpc.h, because that would not make them simpler.  An ACK answers a put, which is no call.  HOLE
 * and NOTE are not answered; as calls, each would cost a credit and an answer.  A call has a deadline, but the DONE of FINISH
 * takes as long as the disk does.  A message with a path and a text is longer than the payload of a call.  The layout below
 * would stay, since a call carries bytes.  Calls would only replace the queue of messages in link.c.
 *
 * ASSUMPTIONS: the peer may send anything.  ERRORS: what is malformed is refused as a whole.
 */
#ifndef CP_WIRE_H
#define CP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CP_HELLO "xport_cp 1"

enum {
	CP_TAG = 0x6370,
	CP_PATH = 4096, /* longest path, its NUL included */
	CP_TEXT = 512,
	CP_KEY = 2048,
	CP_MESSAGE = 12288,
	CP_SLOTS = 16,
	CP_BLOCK = 1 << 20,
	CP_HEAD = 64, /* before the data of a slot, which begin on a page */
	CP_FRONT = 4096,
	CP_STRIDE = CP_FRONT + CP_BLOCK
};

enum cp_kind {
	CP_START = 1,
	CP_READY,
	CP_FILE,
	CP_OPENED,
	CP_HOLE,
	CP_CHECK,
	CP_ACK,
	CP_FINISH,
	CP_DIR,
	CP_DIREND,
	CP_LINK,
	CP_DONE,
	CP_NOTE,
	CP_BYE,
	CP_KINDS
};

enum cp_flags {
	CP_PUT = 1,
	CP_GET = 2,
	CP_RECURSIVE = 4,
	CP_SYNC = 8,
	CP_UPDATE = 16,
	CP_SPARSE = 32,
	CP_SAME = 64,
	CP_LAST = 128
};

/* Of ACK and of others that answer: 0, one of these, or an errno. */
enum cp_status { CP_OK = 0, CP_HAVE = 1001, CP_NEED = 1002, CP_BUSY = 1003 };

enum cp_there { CP_ABSENT = 0, CP_IS_DIR = 1, CP_IS_OTHER = 2 };

struct cp_bytes {
	const void *p;
	size_t n;
};

struct cp_msg {
	uint32_t kind; /* enum cp_kind */
	uint32_t status, slot, flags, mode;
	uint64_t offset, length;
	uint64_t hash[2];
	int64_t mtime_s, atime_s;
	uint32_t mtime_ns, atime_ns;
	struct cp_bytes path, text, key; /* in the buffer that was read */
};

/* Writes the message; returns its bytes, at most CP_MESSAGE.  ASSUMPTIONS: the strings are within their bounds. */
size_t cp_msg_write(const struct cp_msg *m, uint8_t *buf);
/* False: these bytes are no message. */
bool cp_msg_read(struct cp_msg *m, const uint8_t *buf, size_t len);
/* A string of a message with a NUL of its own; false: it is too long for `room`, or has a NUL in it. */
bool cp_msg_string(const struct cp_bytes *s, char *to, size_t room);

struct cp_head {
	uint64_t offset, length, hash[2];
};

void cp_head_write(const struct cp_head *h, uint8_t *buf);
void cp_head_read(struct cp_head *h, const uint8_t *buf);

#endif
