// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import "context"

// Message is what a receive took.
type Message struct {
	Tag      uint64
	Length   int       // the full length of the message, which may be more than the Buffer has
	Endpoint *Endpoint // the sender; nil: it is closed, or not accepted yet
}

// AtomicOp is what an atomic stores in the word.
type AtomicOp int

const (
	Add            AtomicOp = C.XPORT_ATOMIC_ADD  // old + operand
	And            AtomicOp = C.XPORT_ATOMIC_AND  // old & operand
	Or             AtomicOp = C.XPORT_ATOMIC_OR   // old | operand
	Xor            AtomicOp = C.XPORT_ATOMIC_XOR  // old ^ operand
	Swap           AtomicOp = C.XPORT_ATOMIC_SWAP // operand
	compareAndSwap AtomicOp = C.XPORT_ATOMIC_CAS
)

// Put writes the buffer to the remote region. It returns when the bytes are visible there.
//
// Like all operations here: if the queue is full, it waits for space, behind earlier operations of the endpoint. If the
// context ends first, it returns ctx.Err() at once, and the buffer is gone.
func (ep *Endpoint) Put(ctx context.Context, buf *Buffer, key *RemoteKey, offset uint64) error {
	return ep.x.run(ctx, request{kind: C.XPORT_OP_PUT, ep: ep, key: key, buf: buf, offset: offset}).err
}

// PutNotify writes the buffer, and then notifies the peer with a value: its instance has an event.
func (ep *Endpoint) PutNotify(ctx context.Context, buf *Buffer, key *RemoteKey, offset, value uint64) error {
	return ep.x.run(ctx, request{kind: C.XPORT_OP_PUT_NOTIFY, ep: ep, key: key, buf: buf, offset: offset, value: value}).err
}

// Get reads from the remote region into the buffer.
func (ep *Endpoint) Get(ctx context.Context, buf *Buffer, key *RemoteKey, offset uint64) error {
	return ep.x.run(ctx, request{kind: C.XPORT_OP_GET, ep: ep, key: key, buf: buf, offset: offset}).err
}

// Send sends a message. It returns when the buffer may be used again.
func (ep *Endpoint) Send(ctx context.Context, buf *Buffer, tag uint64) error {
	return ep.x.run(ctx, request{kind: C.XPORT_OP_SEND, ep: ep, buf: buf, tag: tag}).err
}

// Recv receives a message of this peer with this tag. If the context ends first, the receive is cancelled, and takes no
// message, unless one had matched already. Of a message that is too long the error is ErrTruncated.
func (ep *Endpoint) Recv(ctx context.Context, buf *Buffer, tag uint64) (Message, error) {
	o := ep.x.run(ctx, request{kind: C.XPORT_OP_RECV, ep: ep, buf: buf, tag: tag, mask: ^uint64(0)})
	return o.message, o.err
}

// Recv receives a message of any peer whose tag equals tag in the bits of mask.
func (x *Instance) Recv(ctx context.Context, buf *Buffer, tag, mask uint64) (Message, error) {
	o := x.run(ctx, request{kind: C.XPORT_OP_RECV, buf: buf, tag: tag, mask: mask})
	return o.message, o.err
}

// Atomic changes a word of 8 bytes, and returns its old value.
func (ep *Endpoint) Atomic(ctx context.Context, op AtomicOp, key *RemoteKey, offset, operand uint64) (uint64, error) {
	o := ep.x.run(ctx, request{kind: C.XPORT_OP_ATOMIC, ep: ep, key: key, offset: offset, atomic: op, operand: operand})
	return o.old, o.err
}

// CompareAndSwap stores the new value in a word of 8 bytes if it has the expected one. It returns the old value.
func (ep *Endpoint) CompareAndSwap(ctx context.Context, key *RemoteKey, offset, expected, value uint64) (uint64, error) {
	o := ep.x.run(ctx, request{kind: C.XPORT_OP_ATOMIC, ep: ep, key: key, offset: offset, atomic: compareAndSwap,
		operand: value, compare: expected})
	return o.old, o.err
}

// Flush returns when all earlier puts and atomics of the endpoint are placed.
func (ep *Endpoint) Flush(ctx context.Context) error {
	return ep.x.run(ctx, request{kind: C.XPORT_OP_FLUSH, ep: ep}).err
}

// Fence orders later operations behind earlier ones, without waiting. Those that wait for space are not covered.
func (ep *Endpoint) Fence() error {
	if err := ep.x.enter(); err != nil {
		return err
	}
	defer ep.x.mu.Unlock()
	if ep.c == nil {
		return ep.closedError("xport_fence")
	}
	return ep.x.must(C.xpg_failed(ep.x.g, C.xport_fence(ep.c)), "xport_fence")
}

// ---- operations in flight ----

// Operation is in flight. Wait must be called once.
type Operation struct {
	x   *Instance
	s   *slot
	err error
}

func (x *Instance) start(r request) *Operation {
	if err := x.enter(); err != nil {
		return &Operation{err: err}
	}
	defer x.mu.Unlock()
	s, err := x.submit(&r, 0)
	return &Operation{x: x, s: s, err: err}
}

// Wait returns the result of the operation. If the context ends first, the operation is abandoned, and its buffer gone.
// The Message is that of a receive.
func (o *Operation) Wait(ctx context.Context) (Message, error) {
	if o.err != nil {
		return Message{}, o.err
	}
	if o.s == nil {
		return Message{}, refuse(ErrInvalid, "Wait", "Wait was called before", "")
	}
	o.x.mu.Lock()
	s := o.s
	o.s = nil
	if err := ctx.Err(); err != nil && s.stage != done {
		o.x.abandon(s)
		o.x.mu.Unlock()
		return Message{}, err
	}
	r := o.x.wait(ctx, s)
	return r.message, r.err
}

// StartPut posts a Put, and returns without waiting for it.
func (ep *Endpoint) StartPut(buf *Buffer, key *RemoteKey, offset uint64) *Operation {
	return ep.x.start(request{kind: C.XPORT_OP_PUT, ep: ep, key: key, buf: buf, offset: offset})
}

// TryPut is StartPut, and fails with ErrAgain if the queue is full. Then the buffer is the caller's still.
func (ep *Endpoint) TryPut(buf *Buffer, key *RemoteKey, offset uint64) (*Operation, error) {
	o := ep.x.start(request{kind: C.XPORT_OP_PUT, ep: ep, key: key, buf: buf, offset: offset, try: true})
	if o.err != nil {
		return nil, o.err
	}
	o.x.mu.Lock()
	defer o.x.mu.Unlock()
	if o.s.stage == done && o.s.result.err != nil {
		err := o.s.result.err
		o.x.table.giveBack(o.s)
		return nil, err
	}
	return o, nil
}

// StartGet posts a Get, and returns without waiting for it.
func (ep *Endpoint) StartGet(buf *Buffer, key *RemoteKey, offset uint64) *Operation {
	return ep.x.start(request{kind: C.XPORT_OP_GET, ep: ep, key: key, buf: buf, offset: offset})
}

// StartSend posts a Send, and returns without waiting for it.
func (ep *Endpoint) StartSend(buf *Buffer, tag uint64) *Operation {
	return ep.x.start(request{kind: C.XPORT_OP_SEND, ep: ep, buf: buf, tag: tag})
}

// StartRecv posts a Recv, and returns without waiting for it.
func (ep *Endpoint) StartRecv(buf *Buffer, tag uint64) *Operation {
	return ep.x.start(request{kind: C.XPORT_OP_RECV, ep: ep, buf: buf, tag: tag, mask: ^uint64(0)})
}
