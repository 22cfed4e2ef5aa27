// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

// fifo has the operations that wait for space in a queue of the C library, in order.
type fifo struct {
	list  []waiting
	live  int  // those of list that were not abandoned
	noted bool // it is in Instance.full
}

// waiting is an operation in a fifo. If its slot has another number, the operation was abandoned.
type waiting struct {
	s      *slot
	number uint64
}

func (w waiting) abandoned() bool { return w.s.number != w.number || w.s.stage != queued }

// abandoned notes that an operation was abandoned. Its entry stays until there are many.
func (q *fifo) abandoned() {
	if q.live--; len(q.list) < 2*q.live+64 {
		return
	}
	kept := make([]waiting, 0, q.live)
	for _, w := range q.list {
		if !w.abandoned() {
			kept = append(kept, w)
		}
	}
	q.list = kept
}

// fifoOf returns where a request waits. Receives have a limit for the whole instance, the others one for each endpoint.
func (x *Instance) fifoOf(r *request) *fifo {
	if r.kind == C.XPORT_OP_RECV {
		return &x.receives
	}
	return &r.ep.queue
}

// push queues the operation of a slot. The caller holds mu.
func (x *Instance) push(s *slot) {
	q := s.behind
	q.list = append(q.list, waiting{s, s.number})
	q.live++
	x.expireLater(s)
	if !q.noted {
		q.noted = true
		x.full = append(x.full, q)
	}
}

// postQueued posts the operations that wait for space, as far as there is some. The caller holds mu.
func (x *Instance) postQueued() {
	if len(x.full) == 0 || x.closed || x.failure != nil {
		return
	}
	all := x.full
	x.full = nil
	for _, q := range all {
		if x.postFrom(q); q.live > 0 {
			x.full = append(x.full, q)
		} else {
			*q = fifo{}
		}
	}
}

// postFrom posts operations of a queue until there is no space.
func (x *Instance) postFrom(q *fifo) {
	for len(q.list) > 0 {
		w := q.list[0]
		if !w.abandoned() {
			if x.post(w.s, 0) == C.XPORT_ERR_AGAIN {
				return
			}
			q.live--
		}
		q.list[0] = waiting{}
		q.list = q.list[1:]
	}
}
