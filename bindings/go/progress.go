// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// turn makes progress once. The caller holds mu. Returns the number of completions and events.
func (x *Instance) turn() int {
	if x.closed || x.failure != nil || x.reaper.busy {
		return 0
	}
	x.postQueued()
	if x.rpc != nil && x.rpc.closed {
		return x.rpc.ending()
	}
	C.xpg_turn(x.g)
	return x.reap(len(x.retired), len(x.buried))
}

// pointerBits reads a pointer of C that may be stale, or no pointer at all, as a number: the collector must not see it.
func pointerBits(p unsafe.Pointer) uint64 { return *(*uint64)(p) }

// reap takes what the last call has polled. `retired` and `buried` are the lengths of these lists when it began. The
// caller holds mu.
func (x *Instance) reap(retired, buried int) int {
	n := int(x.g.n)
	if n > 0 && x.rpc != nil {
		C.xpg_rpcs_step(x.rpc.c)
	}
	x.g.n = 0
	if n < 0 {
		C.xpg_turn(x.g) // gets the error once more, with its text
		x.fail(lastError(x.g, C.int(n), "xport_poll"))
		return 0
	}
	for i := 0; i < n; i++ {
		if x.rpc == nil || x.rpc.c.taken[i] == 0 {
			x.dispatch(&x.g.list[i])
		}
	}
	if n > 0 && x.rpc != nil {
		x.rpc.takeEvents()
	}
	if n > 0 {
		x.postQueued()
	}
	if n < C.XPG_BATCH && retired+buried > 0 {
		x.buryRetired(retired, buried)
	}
	return n
}

func (x *Instance) dispatch(c *C.struct_xport_completion) {
	if c._type >= C.XPORT_EVENT_NOTIFY {
		x.event(c)
	} else if s := x.table.find(pointerBits(unsafe.Pointer(&c.context))); s != nil {
		x.complete(s, c)
	}
}

func (x *Instance) complete(s *slot, c *C.struct_xport_completion) {
	var err error
	if c.status < 0 {
		why := ""
		if s.ep != nil && s.ep.c != nil {
			why = s.ep.why()
		}
		err = newError(C.int(c.status), operationNames[s.op.kind], why)
	}
	if s.op.kind == C.XPORT_OP_RECV {
		s.result.message = Message{Tag: uint64(c.tag), Length: int(c.length),
			Endpoint: x.known[pointerBits(unsafe.Pointer(&c.ep))]}
	}
	x.finish(s, C.int(c.status), err)
}

// fail ends all that waits: the back end failed. The caller holds mu.
func (x *Instance) fail(err *Error) {
	if x.failure != nil {
		return
	}
	x.failure = err
	x.endOperations(C.int(err.Status), err)
	for _, ep := range x.known {
		ep.end(err)
	}
	if x.rpc != nil {
		x.rpc.endCalls(C.int(err.Status), err.Text)
	}
	x.arrived.raise()
	x.incoming.raise()
}

// reaper says who reaps. One at a time does: so notifications stay in order.
type reaper struct {
	busy     bool          // a goroutine is in xport_wait, without mu
	patience int           // for how many milliseconds the next one may stay there
	aside    bool          // the goroutine that makes progress waits for resume
	resume   chan struct{} // of capacity 1
}

const patienceMax = 4

// waitInline waits for a short time in xport_wait, which polls before it sleeps: that is much faster than to wake up a
// goroutine. How long depends on whether it was of use lately. The caller holds mu; it is released meanwhile.
func (x *Instance) waitInline(ctx context.Context, ready func() bool) {
	r := &x.reaper
	if r.busy || x.rpc != nil && x.rpc.closed {
		return
	}
	if r.patience == 0 {
		if patienceMax > 0 {
			r.patience = 1 // the next one tries
		}
		return
	}
	r.busy = true
	x.inside.Add(1)
	for i := 0; i < r.patience && !ready() && !x.closed && x.failure == nil && ctx.Err() == nil; i++ {
		retired, buried := len(x.retired), len(x.buried)
		x.mu.Unlock()
		C.xpg_wait(x.g, 1)
		x.mu.Lock()
		x.reap(retired, buried)
		x.postQueued()
	}
	x.inside.Done()
	if !ready() {
		r.patience /= 2
	} else if r.patience < patienceMax {
		r.patience++
	}
	x.leave(ready())
}

// leave ends the time in which this goroutine alone reaped. The caller holds mu.
func (x *Instance) leave(ready bool) {
	r := &x.reaper
	r.busy = false
	// Without others that wait, the next operation is likely to come before it is worth to wake that goroutine.
	if r.aside && (x.table.inFlight > 0 || x.arrived.c != nil || x.rpc != nil || !ready) {
		r.aside = false
		select {
		case r.resume <- struct{}{}:
		default:
		}
	}
}

// asideFor is how long the goroutine that makes progress waits before it looks whether it is needed.
const asideFor = 200 * time.Microsecond

// stepAside waits until the goroutine in xport_wait may have left.
func (r *reaper) stepAside() {
	timer := time.NewTimer(asideFor)
	select {
	case <-r.resume:
		timer.Stop()
	case <-timer.C:
	}
}

// startProgress starts the goroutine that makes progress while no other one does.
func (x *Instance) startProgress(inThread bool) error {
	// A copy, which the runtime may close. The status flag is that of both: the library does not read from it.
	copied, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(C.xport_fd(x.g.x)), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return refuse(ErrSystem, "xport_open", "fcntl: "+errno.Error(), "Raise the limit of open files (ulimit -n).")
	}
	fd := int(copied)
	if err := syscall.SetNonblock(fd, true); err != nil {
		inThread = true
	}
	x.file = os.NewFile(uintptr(fd), "xport")
	raw, err := x.file.SyscallConn()
	if inThread || err != nil || x.file.SetReadDeadline(time.Time{}) != nil {
		go x.waitInThread(fd)
		return nil
	}
	go func() {
		defer close(x.ended)
		// The runtime clears the readiness before it calls drain, and drain looks at the descriptor before it returns
		// false. A wake-up that comes after that is a new edge, and drain is called again.
		raw.Read(func(fd uintptr) bool { return x.drain(C.int(fd)) })
	}()
	return nil
}

// drain makes turns until the descriptor is no longer readable. The poller reports edges: one that is left readable
// would not be reported again. Returns true at the end of the instance.
func (x *Instance) drain(fd C.int) bool {
	for idle := 0; ; {
		x.mu.Lock()
		if x.closed || x.failure != nil {
			x.mu.Unlock()
			return true
		}
		if x.reaper.busy {
			x.reaper.aside = true
			x.mu.Unlock()
			x.reaper.stepAside()
			continue
		}
		n := x.turn()
		x.mu.Unlock()
		if n > 0 {
			idle = 0
			runtime.Gosched()
			continue
		}
		if C.xpg_readable(fd, 0) == 0 {
			return false
		}
		// After XPORT_ERR_AGAIN it may stay readable for a second.
		if idle++; idle > 16 {
			time.Sleep(time.Millisecond)
		} else {
			runtime.Gosched()
		}
	}
}

// waitInThread keeps a thread in poll(2).
func (x *Instance) waitInThread(fd int) {
	defer close(x.ended)
	for !x.drain(C.int(fd)) {
		for C.xpg_readable(C.int(fd), 100) == 0 {
			x.mu.Lock()
			closed := x.closed
			x.mu.Unlock()
			if closed {
				return
			}
		}
	}
}

// stopProgress waits until the goroutine has ended. The caller does not hold mu; the instance is closed.
func (x *Instance) stopProgress() {
	// Of a thread in poll(2) the descriptor must stay.
	x.file.SetReadDeadline(time.Now())
	<-x.ended
	x.file.Close()
}
