// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"time"
)

type enforcedKey struct{}

// Enforce returns a context whose end ends operations, and not only the wait for them.
//
// Operations with this context fail with ErrTimeout at its deadline, also while they wait for space in the queue. Without
// Enforce only the wait ends. The Buffer is the caller's again. A put, get or atomic that the network itself still holds then ends its endpoint: see "Deadlines" in xport.h. If the
// context is cancelled, a Send that no receive has matched is withdrawn. Such operations are copied, which costs bandwidth for
// long data.
func Enforce(ctx context.Context) context.Context {
	return context.WithValue(ctx, enforcedKey{}, true)
}

// enforce notes what a context of Enforce asks for.
func (r *request) enforce(ctx context.Context) {
	if ctx.Value(enforcedKey{}) == nil {
		return
	}
	r.end, _ = ctx.Deadline()
	if r.kind == C.XPORT_OP_SEND {
		r.flags = C.XPORT_CANCELABLE
	}
}

// deadlineMs returns the time until then, rounded up: at least 1.
func deadlineMs(end time.Time) C.uint32_t {
	left := time.Until(end)
	if left > math.MaxInt32*time.Millisecond {
		return math.MaxInt32
	}
	if left < time.Millisecond {
		return 1
	}
	return C.uint32_t((left + time.Millisecond - 1).Milliseconds())
}

// expireLater ends an operation at its deadline if it waits for space still. The caller holds mu.
func (x *Instance) expireLater(s *slot) {
	if s.end.IsZero() {
		return
	}
	number := s.number
	s.expiry = time.AfterFunc(time.Until(s.end), func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if s.number == number && s.stage == queued {
			x.finish(s, C.XPORT_ERR_TIMEOUT, refuse(ErrTimeout, operationNames[s.op.kind],
				"the deadline expired while the operation waited for space in the queue",
				"Raise queue_depth, or post fewer operations at a time."))
			s.behind.abandoned()
		}
	})
}

// unqueued notes that an operation no longer waits for space. The caller holds mu.
func (s *slot) unqueued() {
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
}
