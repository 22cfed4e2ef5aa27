// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// RPC is the remote procedure calls of an instance, as caller and as callee. An instance has one.
type RPC struct {
	x        *Instance
	c        *C.struct_xpg_rpc
	max      int
	calls    map[uint64]*call
	loans    map[uint64]*Loan // by the number of the call
	number   uint64
	handlers []Handler
	timer    *time.Timer
	space    signal // a call has ended
	closed   bool
	running  map[uint64]context.CancelFunc // handlers, by the id of the request
	looked   time.Time                     // when it was looked whether their callers have gone
	replies  []*Buffer                     // of calls that Close has ended
	ctx      context.Context               // of handlers
	cancel   context.CancelFunc
}

// Request is a call of a peer.
type Request struct {
	Endpoint *Endpoint // the caller; nil: it is not accepted yet
	Method   string
	Payload  []byte
	Trace    [24]byte // the trace context of the caller
	OneWay   bool     // the caller expects no reply: only its handler knows whether it failed
	Lent     bool     // the payload has keys of memory that was lent for this call
}

// Handler replies to a request, in a goroutine of its own. The context ends when the caller no longer waits. An error is
// reported to the caller: its status, which is ErrSystem if it has none, and its text.
type Handler func(ctx context.Context, r *Request) ([]byte, error)

// Ran says whether the handler of a call ran.
type Ran int

const (
	RanNo      Ran = C.XPORT_RPC_RAN_NO      // it did not, and will not: the call may be repeated
	RanYes     Ran = C.XPORT_RPC_RAN_YES     // it did
	RanUnknown Ran = C.XPORT_RPC_RAN_UNKNOWN // the callee did not answer
)

// CallError is the error of a call.
type CallError struct {
	Err        *Error
	Ran        Ran
	RetryAfter time.Duration // of ErrBusy
}

func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns the Error.
func (e *CallError) Unwrap() error { return e.Err }

type call struct {
	done      bool
	abandoned bool // its caller has gone before that
	wake      chan struct{}
	status    C.int
	ran       Ran
	retry     time.Duration
	why       string
	length    int
	reply     *Buffer
}

// RPC makes the calls of an instance. A payload has at most maxPayload bytes; 0: the default, 3900.
func (x *Instance) RPC(maxPayload int) (*RPC, error) {
	if err := x.enter(); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	if x.rpc != nil {
		return nil, refuse(ErrBusy, "xport_rpcs_create", "the instance has an RPC already", "Use that one.")
	}
	if maxPayload < 0 || maxPayload > 1<<30 {
		return nil, refuse(ErrInvalid, "xport_rpcs_create", fmt.Sprintf("a payload of %d bytes", maxPayload), "")
	}
	c := (*C.struct_xpg_rpc)(C.calloc(1, C.sizeof_struct_xpg_rpc))
	if c == nil {
		return nil, newError(C.XPORT_ERR_NO_MEMORY, "xport_rpcs_create", "")
	}
	c.g = x.g
	if err := x.must(C.xpg_rpcs_create(c, C.uint32_t(maxPayload)), "xport_rpcs_create"); err != nil {
		C.free(unsafe.Pointer(c))
		return nil, err
	}
	r := &RPC{x: x, c: c, calls: map[uint64]*call{}, loans: map[uint64]*Loan{}, running: map[uint64]context.CancelFunc{},
		max: int(C.xpg_rpcs_max_payload(c))}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.timer = time.AfterFunc(time.Hour, r.tick)
	x.rpc = r
	return r, nil
}

// enter locks the instance if the calls are open.
func (r *RPC) enter() error {
	if err := r.x.enter(); err != nil {
		return err
	}
	if r.closed {
		r.x.mu.Unlock()
		return refuse(ErrClosed, "RPC", "the calls are closed", "")
	}
	return nil
}

// tick continues when a time has passed, such as a deadline.
func (r *RPC) tick() {
	if r.enter() != nil {
		return
	}
	defer r.x.mu.Unlock()
	C.xport_rpcs_step(r.c.rpcs, nil)
	r.takeEvents()
}

// takeEvents takes the events that there are. The caller holds mu.
func (r *RPC) takeEvents() {
	if r.closed {
		return
	}
	for C.xpg_rpcs_next(r.c) == 1 {
		e := &r.c.event
		number := pointerBits(unsafe.Pointer(&e.context))
		switch e._type {
		case C.XPORT_RPC_DONE:
			if c := r.calls[number]; c != nil {
				c.status, c.ran, c.length = C.int(e.status), Ran(e.ran), int(e.len)
				c.retry, c.why = time.Duration(e.retry_after_ms)*time.Millisecond, C.GoString(e.why)
				if c.abandoned {
					r.x.pool.reclaim(c.reply)
				} else {
					c.reply.checkIn()
				}
				r.finish(number, c)
			}
		case C.XPORT_RPC_RELEASED:
			if l := r.loans[number]; l != nil {
				r.endLoan(number, l, C.int(e.status), "the callee cannot be heard")
			}
		case C.XPORT_RPC_REQUEST:
			request := &Request{Endpoint: r.x.known[pointerBits(unsafe.Pointer(&e.ep))], Method: C.GoString(e.method),
				Payload: C.GoBytes(e.payload, C.int(e.len)), Trace: *(*[24]byte)(unsafe.Pointer(&e.trace)),
				OneWay: e.flags&C.XPORT_RPC_ONE_WAY != 0, Lent: e.flags&C.XPORT_RPC_LENT != 0}
			ctx, cancel := context.WithTimeout(r.ctx, time.Duration(e.left_ms)*time.Millisecond)
			r.running[uint64(e.id)] = cancel
			go r.serve(ctx, cancel, r.handlers[number], uint64(e.id), request)
		}
	}
	r.lookAtCallers()
	next := time.Hour
	if ms := C.xport_rpcs_timeout(r.c.rpcs); ms >= 0 {
		next = time.Duration(ms)*time.Millisecond + time.Millisecond
	}
	if len(r.running) > 0 && next > lookEvery {
		next = lookEvery
	}
	r.timer.Reset(next)
}

// lookEvery is how often it is looked whether callers of running handlers have gone: no event reports that.
const lookEvery = 20 * time.Millisecond

// lookAtCallers ends the contexts of handlers whose callers have gone. The caller holds mu.
func (r *RPC) lookAtCallers() {
	if len(r.running) == 0 || time.Since(r.looked) < lookEvery {
		return
	}
	r.looked = time.Now()
	for id, cancel := range r.running {
		if C.xport_rpc_left(r.c.rpcs, C.uint64_t(id)) < 0 {
			cancel()
			delete(r.running, id)
		}
	}
}

// finish ends a call. The caller holds mu.
func (r *RPC) finish(number uint64, c *call) {
	delete(r.calls, number)
	c.done = true
	close(c.wake)
	r.space.raise()
}

// serve runs a handler, and replies.
func (r *RPC) serve(ctx context.Context, cancel context.CancelFunc, h Handler, id uint64, request *Request) {
	defer cancel()
	reply, err := h(ctx, request)
	status := Status(C.XPORT_OK)
	if err == nil && len(reply) > r.max {
		err = refuse(ErrBounds, "RPC", fmt.Sprintf("a reply of %d bytes: at most %d are allowed", len(reply), r.max), "")
	}
	if err != nil {
		var e *Error
		switch {
		case errors.As(err, &e):
			status = e.Status
		case errors.As(err, &status):
		case errors.Is(err, context.DeadlineExceeded):
			status = ErrTimeout
		case errors.Is(err, context.Canceled):
			status = ErrCanceled
		default:
			status = ErrSystem
		}
		if status >= C.XPORT_OK { // it would be taken for a success
			status = ErrSystem
		}
		if reply = []byte(err.Error()); len(reply) > r.max {
			reply = reply[:r.max]
		}
	}
	if r.enter() != nil {
		return
	}
	defer r.x.mu.Unlock()
	delete(r.running, id)
	switch r.reply(id, status, reply) {
	case C.XPORT_ERR_BOUNDS:
		r.reply(id, ErrBounds, nil) // longer than the caller takes
	case C.XPORT_ERR_NO_MEMORY:
		r.reply(id, ErrNoMemory, nil)
	case C.XPORT_ERR_INVALID:
		r.reply(id, ErrSystem, nil) // such as a status that is not allowed
	}
	r.takeEvents()
}

// reply ends a request, unless the status is XPORT_ERR_BOUNDS, _NO_MEMORY or _INVALID. If the caller has gone, that is an
// error as well, but the request has ended. The caller holds mu.
func (r *RPC) reply(id uint64, status Status, payload []byte) C.int {
	p, n := bytesForC(payload)
	return C.xport_rpc_reply(r.c.rpcs, C.uint64_t(id), C.int(status), unsafe.Pointer(&p[0]), n)
}

// Handle registers a method. It stays until Close.
func (r *RPC) Handle(method string, h Handler) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.x.mu.Unlock()
	name := C.CString(method)
	defer C.free(unsafe.Pointer(name))
	status := C.xpg_rpc_register(r.c, name, C.uint64_t(len(r.handlers)))
	if err := r.x.must(status, "xport_rpc_register"); err != nil {
		return err
	}
	r.handlers = append(r.handlers, h)
	return nil
}

// Call calls a method of a peer, and returns its reply. Its error is a *CallError, or that of the context. The deadline of
// the context travels with the call; without one it is a day. A context that ends cancels the call.
func (r *RPC) Call(ctx context.Context, ep *Endpoint, method string, payload []byte) ([]byte, error) {
	return r.CallWith(ctx, ep, method, payload, CallOptions{})
}

// CallOptions are the options of a call.
type CallOptions struct {
	OneWay bool     // no reply: the call ends when the callee has handed it to its application
	Trace  [24]byte // trace context that the handler gets, such as a trace id and a span id
}

// CallWith is Call, with options. The reply of a one-way call is nil.
func (r *RPC) CallWith(ctx context.Context, ep *Endpoint, method string, payload []byte, options CallOptions) ([]byte, error) {
	return r.call(ctx, ep, method, payload, options, nil)
}

func (r *RPC) call(ctx context.Context, ep *Endpoint, method string, payload []byte, options CallOptions, loan *Loan) ([]byte, error) {
	x := r.x
	name := C.CString(method)
	defer C.free(unsafe.Pointer(name))
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.enter(); err != nil {
			return nil, err
		}
		c, number, id, err := r.post(ctx, ep, name, payload, options, loan)
		if err == nil {
			return r.wait(ctx, c, number, id)
		}
		space := r.space.wait()
		x.mu.Unlock()
		if !errors.Is(err, ErrAgain) {
			return nil, err
		}
		select {
		case <-space:
		case <-ctx.Done():
		}
	}
}

// post begins a call. The caller holds mu.
func (r *RPC) post(ctx context.Context, ep *Endpoint, name *C.char, payload []byte, options CallOptions,
	loan *Loan) (*call, uint64, C.uint64_t, error) {
	if ep.c == nil {
		return nil, 0, 0, ep.closedError("xport_rpc_call")
	}
	deadline := C.uint32_t(C.XPORT_RPC_DEADLINE_MAX)
	if end, ok := ctx.Deadline(); ok {
		left := milliseconds(time.Until(end))
		if left < 1 {
			left = 1
		}
		if C.uint32_t(left) < deadline {
			deadline = C.uint32_t(left)
		}
	}
	max, flags := r.max, C.uint32_t(0)
	if options.OneWay {
		max, flags = 0, C.XPORT_RPC_ONE_WAY
	}
	if loan != nil {
		if err := loan.check(); err != nil {
			return nil, 0, 0, err
		}
		flags |= C.XPORT_RPC_LENT
	}
	reply, err := r.x.buffer(max)
	if err != nil {
		return nil, 0, 0, err
	}
	r.number++
	var id C.uint64_t
	p, n := bytesForC(payload)
	status := C.xpg_rpc_call(r.c, ep.c, name, unsafe.Pointer(&p[0]), n, reply.b.base, C.size_t(max), deadline,
		flags, (*C.uint8_t)(unsafe.Pointer(&options.Trace[0])), C.uint64_t(r.number), &id)
	if err := reply.checkOut(r.x); err != nil {
		panic(err)
	}
	if err := r.x.must(status, "xport_rpc_call"); err != nil {
		r.x.pool.reclaim(reply)
		if status == C.XPORT_ERR_AGAIN {
			return nil, 0, 0, err
		}
		return nil, 0, 0, &CallError{Err: err.(*Error), Ran: RanNo}
	}
	c := &call{reply: reply, wake: make(chan struct{})}
	r.calls[r.number] = c
	number := r.number
	if loan != nil {
		r.loans[number] = loan
		loan.begin()
	}
	r.takeEvents()
	return c, number, id, nil
}

// wait returns the reply. The caller holds mu, which is released.
func (r *RPC) wait(ctx context.Context, c *call, number uint64, id C.uint64_t) ([]byte, error) {
	x := r.x
	defer c.reply.Free()
	defer x.mu.Unlock()
	if !c.done {
		x.waitInline(ctx, func() bool { return c.done })
	}
	if !c.done {
		x.mu.Unlock()
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
		x.mu.Lock()
		if !c.done {
			if !r.closed && !x.closed {
				C.xport_rpc_cancel(r.c.rpcs, id)
				r.takeEvents()
			}
			c.abandoned = !c.done
			return nil, ctx.Err()
		}
	}
	if x.gone.Load() {
		return nil, &CallError{Err: errInstanceClosed, Ran: c.ran}
	}
	var reply []byte
	if n := c.length; n > 0 {
		if n > r.max {
			n = r.max
		}
		reply = append(reply, c.reply.bytes()[:n]...)
	}
	if c.status >= 0 {
		return reply, nil
	}
	text := c.why
	if text == "" {
		text = string(reply)
	}
	return nil, &CallError{Err: newError(c.status, "xport_rpc_call", text), Ran: c.ran, RetryAfter: c.retry}
}

// forget ends the calls to and of an endpoint, before it is destroyed. The caller holds mu.
func (r *RPC) forget(ep *Endpoint) {
	if !r.closed {
		C.xport_rpcs_forget(r.c.rpcs, ep.c)
		r.takeEvents()
	}
}

// shut ends all calls for their callers here. From then on ending is called, and nothing else. The caller holds mu.
func (r *RPC) shut() {
	r.closed = true
	r.cancel()
	r.timer.Stop()
	r.endCalls(C.XPORT_ERR_CLOSED, "the calls were closed")
}

// endCalls ends all calls for their callers here. The caller holds mu.
func (r *RPC) endCalls(status C.int, why string) {
	for number, c := range r.calls {
		c.status, c.ran, c.why = status, RanUnknown, why
		r.replies = append(r.replies, c.reply) // the C library may write to it still
		r.finish(number, c)
	}
	for number, l := range r.loans {
		r.endLoan(number, l, status, why)
	}
}

// ending makes a turn while the calls end in the C library, which polls by itself then. The caller holds mu.
func (r *RPC) ending() int {
	x := r.x
	status := C.xpg_rpcs_destroy(r.c, 0)
	n := int(r.c.n_others)
	for i := 0; i < n; i++ {
		x.dispatch((*C.struct_xport_completion)(unsafe.Add(unsafe.Pointer(r.c.others), i*C.sizeof_struct_xport_completion)))
	}
	r.c.n_others = 0
	if status == C.XPORT_ERR_TIMEOUT {
		return n
	}
	x.rpc = nil
	if status < 0 {
		x.fail(lastError(x.g, status, "xport_rpcs_destroy"))
		return n
	}
	for _, reply := range r.replies {
		x.pool.reclaim(reply)
	}
	C.free(unsafe.Pointer(r.c.others))
	C.free(unsafe.Pointer(r.c))
	return n
}

// Close ends all calls. It waits until replies of handlers that have returned are sent. If the context ends first, that
// goes on in the background.
func (r *RPC) Close(ctx context.Context) error {
	if err := r.enter(); err != nil {
		return err
	}
	x := r.x
	r.shut()
	for x.rpc == r && !x.closed && x.failure == nil {
		x.turn()
		x.mu.Unlock()
		select {
		case <-time.After(200 * time.Microsecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		x.mu.Lock()
	}
	x.mu.Unlock()
	return nil
}

// endWithInstance ends the calls before the instance is closed. The caller holds mu.
func (r *RPC) endWithInstance() {
	for _, ep := range r.x.known {
		if ep.c != nil {
			C.xport_ep_close(ep.c, 0)
		}
	}
	if !r.closed {
		r.shut()
	}
	for i := 0; i < 1000 && r.x.rpc == r; i++ {
		if r.ending(); r.x.rpc == r {
			time.Sleep(time.Millisecond)
		}
	}
}
