// SPDX-License-Identifier: BSD-3-Clause

// Package xport moves bytes between the memories of processes: put, get and send over UCX, verbs or libfabric, chosen at
// run time. It is the interface of libxport for Go. doc/go.md is the tutorial.
//
// An operation runs in the goroutine that calls it, and returns when it has completed, or when its context has ended.
// Its memory is a Buffer: memory of C, since the network may access it after the goroutine has gone on.
//
// If the context ends first, the call returns ctx.Err() at once. The operation then goes on as an orphan, and owns the
// Buffer: the caller has lost it. The package takes the memory back when the operation completes.
//
// All objects may be used by several goroutines at a time. No object has a finalizer: close instances, and free
// buffers. After Instance.Close the memory of its buffers and regions is unmapped.
package xport

// #cgo pkg-config: libxport_services libxport
// #include "shim.h"
import "C"

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Options are those of struct xport_attr. A zero field means the variable of the environment, or the default.
type Options struct {
	Backend     string        // XPORT_BACKEND, such as "ucx:tcp"
	Require     string        // XPORT_REQUIRE
	Emulate     string        // XPORT_EMULATE
	Progress    string        // XPORT_PROGRESS
	PeerTimeout time.Duration // XPORT_PEER_TIMEOUT
	OpTimeout   time.Duration // XPORT_OP_TIMEOUT
	QueueDepth  uint32        // XPORT_QUEUE_DEPTH
	// WaitInThread makes a thread wait for the network, and not the poller of Go's runtime. The package chooses that by
	// itself if the poller refuses the descriptor.
	WaitInThread bool
}

// Instance is an opened back end, with its endpoints, its memory and the operations in flight.
type Instance struct {
	mu        sync.Mutex // protects all below, and is held for each call of the C library that does not wait
	g         *C.struct_xpg
	table     table
	receives  fifo    // those that wait for space: all receives of an instance share it
	full      []*fifo // the queues that are not empty
	pool      pool
	failure   error // why the back end failed
	closed    bool
	reaper    reaper
	retired   []retiree            // closed endpoints, whose handles are not destroyed yet
	buried    []retiree            // those whose addresses are not forgotten yet
	known     map[uint64]*Endpoint // by the address of the C handle
	regions   map[uint64]*Region
	listeners map[*Listener]struct{}
	events    []happened
	rpc       *RPC   // nil: none
	arrived   signal // an event
	incoming  signal // a connection

	gone   atomic.Bool    // the memory is unmapped
	inside sync.WaitGroup // calls of the C library without mu
	file   *os.File       // a copy of the descriptor
	ended  chan struct{}  // the goroutine that makes progress has ended
}

// signal wakes all goroutines that wait for it.
type signal struct{ c chan struct{} }

func (s *signal) wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) raise() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

func milliseconds(d time.Duration) C.int {
	ms := d / time.Millisecond
	if d > ms*time.Millisecond {
		ms++ // rounded up: 0 would mean the default
	}
	if ms > 1<<30 {
		ms = 1 << 30
	}
	if ms < -1<<30 {
		ms = -1 << 30
	}
	return C.int(ms)
}

// Version returns the version of the C library that is loaded, such as "0.1.0".
func Version() string { return C.GoString(C.xport_version()) }

// Open opens an instance. Options may be nil: the variable XPORT_BACKEND selects the transport.
func Open(o *Options) (*Instance, error) {
	if o == nil {
		o = &Options{}
	}
	var attr C.struct_xport_attr
	attr.size = C.size_t(unsafe.Sizeof(attr))
	for _, s := range []struct {
		value string
		field **C.char
	}{{o.Backend, &attr.backend}, {o.Require, &attr.require}, {o.Emulate, &attr.emulate}, {o.Progress, &attr.progress}} {
		if s.value != "" {
			*s.field = C.CString(s.value)
			defer C.free(unsafe.Pointer(*s.field))
		}
	}
	// A call that waits, such as xport_ep_close, must not keep other goroutines out.
	attr.thread_mode = C.XPORT_THREAD_MULTIPLE
	attr.peer_timeout_ms = milliseconds(o.PeerTimeout)
	attr.op_timeout_ms = milliseconds(o.OpTimeout)
	attr.queue_depth = C.uint32_t(o.QueueDepth)

	g := (*C.struct_xpg)(C.calloc(1, C.sizeof_struct_xpg))
	if g == nil {
		return nil, newError(C.XPORT_ERR_NO_MEMORY, "xport_open", "")
	}
	if status := C.xpg_open(g, &attr); status < 0 {
		defer C.free(unsafe.Pointer(g))
		return nil, lastError(g, status, "xport_open")
	}
	x := &Instance{g: g, known: map[uint64]*Endpoint{}, regions: map[uint64]*Region{},
		listeners: map[*Listener]struct{}{}, ended: make(chan struct{})}
	x.pool.x = x
	x.reaper = reaper{patience: patienceMax, resume: make(chan struct{}, 1)}
	if err := x.startProgress(o.WaitInThread); err != nil {
		C.xport_close(g.x)
		C.free(unsafe.Pointer(g))
		return nil, err
	}
	return x, nil
}

// Close ends the instance, and all that belongs to it. Endpoints are closed without waiting: close those first whose
// peers must get what was sent. Operations and other calls that wait return ErrClosed. Buffers in flight are not given
// back.
func (x *Instance) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return errInstanceClosed
	}
	x.closed = true
	x.endOperations(C.XPORT_ERR_CLOSED, errInstanceClosed)
	// Without peers no call of the C library waits.
	for l := range x.listeners {
		C.xport_listener_close(l.c)
		l.c = nil
	}
	for _, ep := range x.known {
		ep.end(errInstanceClosed)
		switch {
		case ep.c == nil:
		case ep.over != nil && (x.rpc == nil || !x.rpc.closed):
			if x.rpc != nil {
				x.rpc.forget(ep)
			}
			C.xport_ep_destroy(ep.c) // cuts the close short that is under way
			ep.c, ep.over = nil, nil
		default:
			C.xport_ep_close(ep.c, 0)
		}
	}
	x.arrived.raise()
	x.incoming.raise()
	x.mu.Unlock()
	x.stopProgress()
	x.inside.Wait()

	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rpc != nil {
		x.rpc.endWithInstance()
	}
	x.gone.Store(true)
	C.xport_close(x.g.x)
	x.table.free()
	C.free(unsafe.Pointer(x.g))
	x.g = nil
	return nil
}

// enter locks the instance. It fails, without the lock, if the instance is closed, or its back end has failed.
func (x *Instance) enter() error {
	if err := x.enterFailed(); err != nil {
		return err
	}
	if err := x.failure; err != nil {
		x.mu.Unlock()
		return err
	}
	return nil
}

// enterFailed is enter for calls that are allowed after the back end has failed.
func (x *Instance) enterFailed() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return errInstanceClosed
	}
	return nil
}

// hold keeps the memory of the instance mapped until release, without the lock.
func (x *Instance) hold() error {
	if err := x.enterFailed(); err != nil {
		return err
	}
	x.inside.Add(1)
	x.mu.Unlock()
	return nil
}

func (x *Instance) release() { x.inside.Done() }

// must is the error of a call with this status, or nil.
func (x *Instance) must(status C.int, operation string) error {
	if status >= 0 {
		return nil
	}
	return lastError(x.g, status, operation)
}

// Info describes an instance.
type Info struct {
	Backend, Provider, Device, Stack string
	QueueDepth                       uint32
	PeerTimeout                      time.Duration
	EagerMax, PrivateMax             uint64
	PassiveTarget                    bool
}

// Info returns what the instance is.
func (x *Instance) Info() (Info, error) {
	if err := x.enter(); err != nil {
		return Info{}, err
	}
	defer x.mu.Unlock()
	var i C.struct_xport_info
	i.size = C.size_t(unsafe.Sizeof(i))
	if err := x.must(C.xpg_failed(x.g, C.xport_query(x.g.x, &i)), "xport_query"); err != nil {
		return Info{}, err
	}
	return Info{
		Backend:       C.GoString(&i.backend[0]),
		Provider:      C.GoString(&i.provider[0]),
		Device:        C.GoString(&i.device[0]),
		Stack:         C.GoString(&i.stack[0]),
		QueueDepth:    uint32(i.queue_depth),
		PeerTimeout:   time.Duration(i.peer_timeout_ms) * time.Millisecond,
		EagerMax:      uint64(i.eager_max),
		PrivateMax:    uint64(i.private_max),
		PassiveTarget: i.passive_target == 1,
	}, nil
}

// InFlight returns the number of operations that have not completed, those without space in a queue included.
func (x *Instance) InFlight() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.table.inFlight
}

// Orphans returns the number of operations in flight whose callers have gone.
func (x *Instance) Orphans() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.table.orphans
}

// Handle returns the instance as a pointer to struct xport, for C code that is in the same program. It is valid until
// Close. The C library locks by itself; completions belong to the package.
func (x *Instance) Handle() unsafe.Pointer {
	if err := x.enter(); err != nil {
		return nil
	}
	defer x.mu.Unlock()
	return unsafe.Pointer(x.g.x)
}
