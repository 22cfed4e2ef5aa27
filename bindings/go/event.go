// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"unsafe"
)

// EventType says what happened.
type EventType int

const (
	Notify     EventType = C.XPORT_EVENT_NOTIFY // a peer's PutNotify has arrived
	PeerClosed EventType = C.XPORT_EVENT_CLOSED // the peer closed the endpoint
	PeerLost   EventType = C.XPORT_EVENT_LOST   // the endpoint is lost
	Dropped    EventType = -1                   // nobody took the events: notifications were dropped, Value is their number
)

// eventsMax is how many events wait for Event. Notifications beyond it are dropped.
const eventsMax = 1 << 16

// Event is what happened on an instance.
type Event struct {
	Type     EventType
	Endpoint *Endpoint // nil: closed since, or not accepted yet
	Value    uint64    // Notify: the value of PutNotify; Dropped: how many were dropped
	Region   *Region   // Notify: where the put went; nil: the region was closed since
	Offset   uint64
	Length   uint64
	Err      error // PeerLost, PeerClosed: why
}

// happened is an event. Its address is that of an endpoint that is not accepted yet, and otherwise 0: the C library uses
// the address of an endpoint again after its end.
type happened struct {
	Event
	address uint64
}

// event takes an event. The caller holds mu.
func (x *Instance) event(c *C.struct_xport_completion) {
	address := pointerBits(unsafe.Pointer(&c.ep))
	ep := x.known[address]
	switch c._type {
	case C.XPORT_EVENT_INCOMING:
		x.incoming.raise()
		return
	case C.XPORT_EVENT_CONNECTED, C.XPORT_EVENT_LOST, C.XPORT_EVENT_CLOSED:
		if ep != nil && ep.over != nil {
			ep.closeStatus = C.int(c.status)
			close(ep.over)
			ep.over = nil
			return
		}
		if c._type == C.XPORT_EVENT_CLOSED {
			break
		}
		if ep != nil && ep.pending {
			ep.connected(c)
			return
		}
		if ep == nil && c.ep != nil {
			x.dropEvents(func(e *happened) bool { return e.address == address })
			C.xport_ep_destroy(c.ep) // a message named it, and it was lost before it was accepted
			return
		}
	}
	e := happened{Event: Event{Type: EventType(c._type), Endpoint: ep}}
	if ep == nil {
		e.address = address
	}
	switch e.Type {
	case Notify:
		e.Value, e.Offset, e.Length = uint64(c.tag), uint64(c.offset), uint64(c.length)
		e.Region = x.regions[pointerBits(unsafe.Pointer(&c.mr))]
	case PeerClosed:
		e.Err = newError(C.XPORT_ERR_PEER_CLOSED, "xport_poll", "")
	default:
		why := ""
		if ep != nil && ep.c != nil {
			why = ep.why()
		}
		e.Err = newError(C.int(c.status), "xport_poll", why)
	}
	if ep != nil && e.Type != Notify {
		if ep.c == nil {
			return // closed here, as its caller knows
		}
		if ep.end(e.Err); ep.reported {
			return
		}
		ep.reported = true
	}
	x.queueEvent(e)
}

// queueEvent keeps an event for Event. Ends of endpoints are kept always: there is one for each endpoint, until its Close.
func (x *Instance) queueEvent(e happened) {
	if n := len(x.events); n >= eventsMax && e.Type == Notify {
		if last := &x.events[n-1]; last.Type == Dropped {
			last.Value++
			return
		}
		e = happened{Event: Event{Type: Dropped, Value: 1}}
	}
	x.events = append(x.events, e)
	x.arrived.raise()
}

// dropEvents drops events that nobody will ask for.
func (x *Instance) dropEvents(unwanted func(*happened) bool) {
	kept := x.events[:0]
	for i := range x.events {
		if !unwanted(&x.events[i]) {
			kept = append(kept, x.events[i])
		}
	}
	for i := len(kept); i < len(x.events); i++ {
		x.events[i] = happened{}
	}
	x.events = kept
}

// Event returns the next event of the instance. A program whose peers notify it must call it: 65,536 events are kept, and
// later notifications are dropped. The event Dropped is at their place. Endpoint.Close drops the event of the endpoint's
// end: Endpoint.Done and Endpoint.Err report it as well.
func (x *Instance) Event(ctx context.Context) (Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		if err := x.enterFailed(); err != nil {
			return Event{}, err
		}
		if len(x.events) == 0 {
			x.waitInline(ctx, func() bool { return len(x.events) > 0 })
			if x.closed { // meanwhile: the signal has been raised already
				x.mu.Unlock()
				return Event{}, errInstanceClosed
			}
		}
		if len(x.events) > 0 {
			e := x.events[0].Event
			x.events[0] = happened{}
			x.events = x.events[1:]
			x.mu.Unlock()
			return e, nil
		}
		wake, failure := x.arrived.wait(), x.failure
		x.mu.Unlock()
		if failure != nil {
			return Event{}, failure
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}
