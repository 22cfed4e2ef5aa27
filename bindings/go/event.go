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
)

// Event is what happened on an instance.
type Event struct {
	Type     EventType
	Endpoint *Endpoint // nil: closed since
	Value    uint64    // Notify: the value of PutNotify
	Region   *Region   // Notify: where the put went; nil: the region was closed since
	Offset   uint64
	Length   uint64
	Err      error // PeerLost, PeerClosed: why
}

// happened is an event, with the address of an endpoint that may not be accepted yet.
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
	case C.XPORT_EVENT_CONNECTED, C.XPORT_EVENT_LOST:
		if ep != nil && ep.pending {
			ep.connected(c)
			return
		}
		if ep == nil && c.ep != nil {
			x.forget(address)
			C.xport_ep_destroy(c.ep) // a message named it, and it was lost before it was accepted
			return
		}
	}
	e := happened{address: address, Event: Event{Type: EventType(c._type), Endpoint: ep}}
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
		ep.end(e.Err)
	}
	x.events = append(x.events, e)
	x.arrived.raise()
}

// forget drops the events of an endpoint that nobody will accept.
func (x *Instance) forget(address uint64) {
	kept := x.events[:0]
	for _, e := range x.events {
		if e.address != address {
			kept = append(kept, e)
		}
	}
	x.events = kept
}

// Event returns the next event of the instance. Events are kept until they are taken: a program whose peers notify it
// must take them.
func (x *Instance) Event(ctx context.Context) (Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		if err := x.enter(); err != nil {
			return Event{}, err
		}
		if len(x.events) == 0 {
			x.waitInline(ctx, func() bool { return len(x.events) > 0 })
		}
		if len(x.events) > 0 {
			e := x.events[0].Event
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
