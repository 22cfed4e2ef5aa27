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
// An operation that is not complete at the deadline of the context fails with ErrTimeout, and its Buffer is the caller's
// again. A put, get or atomic that the network itself still holds then ends its endpoint: see "Deadlines" in xport.h. If the
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
	ms := (time.Until(end) + time.Millisecond - 1).Milliseconds()
	if ms > math.MaxInt32 {
		ms = math.MaxInt32
	}
	if ms < 1 {
		ms = 1
	}
	return C.uint32_t(ms)
}
