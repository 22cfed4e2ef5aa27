// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"time"
	"unsafe"
)

type stage uint8

const (
	unused stage = iota
	queued       // waits for space in the queue of its endpoint
	posted
	done
)

// slot is an operation, from the call to its result. It owns the buffer until the completion.
type slot struct {
	number uint64 // generation<<32 | index: the context of the operation
	stage  stage
	orphan bool // nobody waits for it
	parked bool // a goroutine sleeps until wake
	wake   chan struct{}
	op     C.struct_xpg_operation
	word   *C.uint64_t // C memory for the result of an atomic
	ep     *Endpoint
	key    *RemoteKey
	buf    *Buffer
	behind *fifo     // where it waits if there is no space
	end    time.Time // when the library ends it; zero: never
	expiry *time.Timer
	result outcome
}

// outcome is the result of an operation.
type outcome struct {
	err     error
	message Message
	old     uint64
}

// table has the slots of an instance.
type table struct {
	slots    []*slot
	unused   []uint32
	words    []unsafe.Pointer // C memory
	inFlight int
	orphans  int
}

const wordsAtOnce = 64

func (t *table) take() *slot {
	if len(t.unused) == 0 {
		words := C.calloc(wordsAtOnce, 8)
		if words == nil {
			panic("xport: out of memory")
		}
		t.words = append(t.words, words)
		for i := 0; i < wordsAtOnce; i++ {
			t.unused = append(t.unused, uint32(len(t.slots)))
			word := (*C.uint64_t)(unsafe.Add(words, 8*i))
			t.slots = append(t.slots, &slot{number: uint64(len(t.slots)), word: word, wake: make(chan struct{}, 1)})
		}
	}
	s := t.slots[t.unused[len(t.unused)-1]]
	t.unused = t.unused[:len(t.unused)-1]
	s.number += 1 << 32
	return s
}

// find returns the slot of an operation that is in flight.
func (t *table) find(number uint64) *slot {
	i := uint32(number)
	if int(i) >= len(t.slots) || t.slots[i].number != number || t.slots[i].stage != posted {
		return nil
	}
	return t.slots[i]
}

func (t *table) giveBack(s *slot) {
	s.stage, s.orphan = unused, false
	s.ep, s.key, s.buf, s.behind, s.result = nil, nil, nil, nil, outcome{}
	t.unused = append(t.unused, uint32(s.number))
}

func (t *table) free() {
	for _, words := range t.words {
		C.free(words)
	}
	t.words, t.slots, t.unused = nil, nil, nil
}

// request is what an operation is asked to do.
type request struct {
	kind             C.int
	ep               *Endpoint
	key              *RemoteKey
	buf              *Buffer
	offset, value    uint64
	tag, mask        uint64
	atomic           AtomicOp
	operand, compare uint64
	try              bool      // fails if there is no space
	end              time.Time // zero: none
	flags            C.uint32_t
}

var operationNames = map[C.int]string{
	C.XPORT_OP_PUT:        "xport_put",
	C.XPORT_OP_GET:        "xport_get",
	C.XPORT_OP_PUT_NOTIFY: "xport_put_notify",
	C.XPORT_OP_ATOMIC:     "xport_atomic",
	C.XPORT_OP_SEND:       "xport_send",
	C.XPORT_OP_RECV:       "xport_recv",
	C.XPORT_OP_FLUSH:      "xport_flush",
}

// submit posts an operation, or queues it behind others of its endpoint. The caller holds mu. An operation that was
// refused has ended: its slot has the result. An error means that there is no slot.
func (x *Instance) submit(r *request, turn C.int) (*slot, error) {
	if x.reaper.busy || x.rpc != nil && x.rpc.closed {
		turn = 0
	}
	if r.ep != nil && r.ep.c == nil {
		return nil, r.ep.closedError(operationNames[r.kind])
	}
	if r.key != nil && (r.key.c == nil || r.key.ep != r.ep) {
		return nil, refuse(ErrInvalid, operationNames[r.kind], "the key is closed, or belongs to another endpoint",
			"Unpack it on this endpoint.")
	}
	if r.buf != nil {
		if err := r.buf.checkOut(x); err != nil {
			return nil, err
		}
	}
	s := x.table.take()
	s.ep, s.key, s.buf, s.behind, s.end = r.ep, r.key, r.buf, x.fifoOf(r), r.end
	s.stage = queued
	o := &s.op
	*o = C.struct_xpg_operation{kind: r.kind, offset: C.uint64_t(r.offset), value: C.uint64_t(r.value),
		tag: C.uint64_t(r.tag), mask: C.uint64_t(r.mask), number: C.uint64_t(s.number), flags: r.flags}
	if r.kind == C.XPORT_OP_ATOMIC {
		o.atomic, o.width = C.int(r.atomic), 8
		o.operand, o.compare = C.uint64_t(r.operand), C.uint64_t(r.compare)
		o.buf = unsafe.Pointer(s.word)
	}
	x.table.inFlight++
	status := C.int(C.XPORT_ERR_AGAIN)
	if s.behind.live == 0 {
		status = x.post(s, turn)
	}
	switch {
	case status == C.XPORT_ERR_AGAIN && !r.try:
		x.push(s)
		x.turn() // what was reaped after the post may have made space
	case status == C.XPORT_ERR_AGAIN:
		x.finish(s, status, refuse(ErrAgain, operationNames[r.kind], "the queue is full",
			"Wait until an operation has completed, then try again."))
	}
	return s, nil
}

// post passes the operation of a slot to the C library, and makes a turn after it. The status is that of the post. If
// it is an error other than XPORT_ERR_AGAIN, the slot has ended.
func (x *Instance) post(s *slot, turn C.int) C.int {
	o := &s.op
	if s.ep != nil {
		if s.ep.c == nil {
			x.finish(s, C.XPORT_ERR_CLOSED, s.ep.closedError(operationNames[o.kind]))
			return C.XPORT_ERR_CLOSED
		}
		o.ep = s.ep.c
	}
	if s.key != nil {
		if s.key.c == nil {
			x.finish(s, C.XPORT_ERR_INVALID, refuse(ErrInvalid, operationNames[o.kind], "the key was closed", ""))
			return C.XPORT_ERR_INVALID
		}
		o.key = s.key.c
	}
	if s.buf != nil {
		if r := s.buf.b.region; r != nil && r.mr == nil { // closed while the operation was queued
			x.finish(s, C.XPORT_ERR_CLOSED, r.closedError())
			return C.XPORT_ERR_CLOSED
		}
		o.buf, o.len, o.mr = s.buf.b.base, C.size_t(s.buf.length), s.buf.b.mr()
	}
	if !s.end.IsZero() {
		o.deadline_ms = deadlineMs(s.end)
	}
	x.g.op = *o
	retired, buried := len(x.retired), len(x.buried)
	status := C.xpg_post(x.g, turn)
	if status >= 0 {
		s.stage = posted
		s.unqueued()
		o.id = x.g.op.id
	} else if status != C.XPORT_ERR_AGAIN {
		x.finish(s, status, lastError(x.g, status, operationNames[o.kind]))
	}
	if turn != 0 {
		x.reap(retired, buried)
	}
	return status
}

// endOperations ends all operations, at the end of the instance or of its back end. The caller holds mu.
func (x *Instance) endOperations(status C.int, err error) {
	for _, s := range x.table.slots {
		if s.stage == posted && x.closed {
			s.buf = nil // the C library uses its memory until xport_close
		}
		if s.stage == queued || s.stage == posted {
			x.finish(s, status, err)
		}
	}
	for _, q := range x.full {
		*q = fifo{}
	}
	x.full = nil
}

// finish ends an operation that has completed, or was refused. The caller holds mu.
func (x *Instance) finish(s *slot, status C.int, err error) {
	s.stage = done
	s.unqueued()
	s.result.err = err
	x.table.inFlight--
	if s.op.kind == C.XPORT_OP_ATOMIC && status >= 0 {
		s.result.old = uint64(*s.word)
	}
	if s.orphan {
		x.table.orphans--
		if s.buf != nil {
			x.pool.reclaim(s.buf)
		}
		x.table.giveBack(s)
		return
	}
	if s.buf != nil {
		s.buf.checkIn()
	}
	if s.parked {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// abandon makes an operation an orphan, whose caller has gone. The caller holds mu.
func (x *Instance) abandon(s *slot) {
	switch s.stage {
	case posted:
		s.orphan = true
		x.table.orphans++
		if (s.op.kind == C.XPORT_OP_RECV || s.op.flags != 0) && !x.closed {
			// If it has matched already, its completion comes without this.
			C.xport_cancel(x.g.x, s.op.id)
		}
	case queued:
		x.table.inFlight--
		s.stage = done
		s.unqueued()
		s.behind.abandoned()
		fallthrough
	case done:
		if s.buf != nil {
			x.pool.reclaim(s.buf)
		}
		x.table.giveBack(s)
	}
}

// wait returns the result of an operation. The caller holds mu, which is released.
func (x *Instance) wait(ctx context.Context, s *slot) outcome {
	if s.stage != done {
		x.waitInline(ctx, func() bool { return s.stage == done })
	}
	if s.stage != done {
		var err error
		s.parked = true
		x.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			err = ctx.Err()
			if err == context.DeadlineExceeded && !s.end.IsZero() {
				<-s.wake // it ends now: by the library, or by expireLater
			}
		}
		x.mu.Lock()
		s.parked = false
		select {
		case <-s.wake:
		default:
		}
		if s.stage != done {
			x.abandon(s)
			x.mu.Unlock()
			return outcome{err: err}
		}
	}
	result := s.result
	x.table.giveBack(s)
	x.mu.Unlock()
	return result
}

// run posts an operation and waits for its result.
func (x *Instance) run(ctx context.Context, r request) outcome {
	r.enforce(ctx)
	if err := ctx.Err(); err != nil {
		if r.buf != nil {
			r.buf.Free()
		}
		return outcome{err: err}
	}
	if err := x.enter(); err != nil {
		return outcome{err: err}
	}
	s, err := x.submit(&r, 1)
	if err != nil {
		x.mu.Unlock()
		return outcome{err: err}
	}
	return x.wait(ctx, s)
}
