// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"unsafe"
)

// Listener is an address that peers connect to.
type Listener struct {
	x       *Instance
	c       *C.xport_listener // nil: closed
	address string
}

var noBytes [1]byte

// bytesForC returns bytes that a call of C reads, and their number. The slice is never empty. Write unsafe.Pointer(&p[0]) in
// the call itself: then cgo checks these bytes only, and not all of the object that they are a part of.
func bytesForC(p []byte) ([]byte, C.size_t) {
	if len(p) == 0 {
		return noBytes[:], 0
	}
	return p, C.size_t(len(p))
}

// Listen listens at "host:port". Each peer gets the private data with its connection, for example the key of a region.
// With port 0 the system chooses one. A name is looked up by the resolver of Go.
func (x *Instance) Listen(address string, private []byte) (*Listener, error) {
	found, err := lookUp(address)
	if err != nil {
		return nil, err
	}
	var l *Listener
	for _, numeric := range found {
		if l, err = x.listen(numeric, private); !errors.Is(err, ErrAddress) {
			break // with ErrAddress this one cannot be bound
		}
	}
	return l, err
}

func (x *Instance) listen(numeric string, private []byte) (*Listener, error) {
	if err := x.enter(); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	name := C.CString(numeric)
	defer C.free(unsafe.Pointer(name))
	l := &Listener{x: x}
	p, n := bytesForC(private)
	status := C.xpg_listen(x.g, name, unsafe.Pointer(&p[0]), n, &l.c)
	if err := x.must(status, "xport_listen"); err != nil {
		return nil, err
	}
	var text [128]C.char
	if status := C.xport_listener_name(l.c, &text[0], C.size_t(len(text))); status < 0 {
		err := x.must(C.xpg_failed(x.g, status), "xport_listener_name")
		C.xport_listener_close(l.c)
		return nil, err
	}
	l.address = C.GoString(&text[0])
	x.listeners[l] = struct{}{}
	return l, nil
}

// lookUp returns addresses whose host is a number, or "*". The C library would look a name up with its lock held.
func lookUp(address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || host == "*" || address[0] == '[' || net.ParseIP(host) != nil {
		return []string{address}, nil
	}
	found, err := net.DefaultResolver.LookupIPAddr(context.Background(), host)
	if err != nil || len(found) == 0 {
		return nil, refuse(ErrUnreachable, "xport_listen", fmt.Sprintf("the name %q does not resolve: %v", host, err),
			"Check the name, or give a numeric address.")
	}
	all := make([]string, len(found))
	for i := range found {
		all[i] = net.JoinHostPort(found[i].String(), port)
	}
	return all, nil
}

// Address returns "host:port" with the real port.
func (l *Listener) Address() string { return l.address }

// Accept returns the next connection.
func (l *Listener) Accept(ctx context.Context) (*Endpoint, error) {
	x := l.x
	for {
		if err := x.enter(); err != nil {
			return nil, err
		}
		if l.c == nil {
			x.mu.Unlock()
			return nil, refuse(ErrClosed, "xport_accept", "the listener is closed", "")
		}
		var c *C.xport_ep
		status := C.xpg_accept(x.g, l.c, &c)
		if status != C.XPORT_ERR_TIMEOUT {
			defer x.mu.Unlock()
			if err := x.must(status, "xport_accept"); err != nil {
				return nil, err
			}
			return x.adopt(c), nil
		}
		wake := x.incoming.wait()
		failure := x.failure
		x.mu.Unlock()
		if failure != nil {
			return nil, failure
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close stops listening. Endpoints that were accepted stay.
func (l *Listener) Close() error {
	if err := l.x.enterFailed(); err != nil {
		return err
	}
	defer l.x.mu.Unlock()
	C.xport_listener_close(l.c)
	l.c = nil
	delete(l.x.listeners, l)
	l.x.incoming.raise()
	return nil
}

// Endpoint is a connection to one peer.
type Endpoint struct {
	x       *Instance
	c       *C.xport_ep // nil: closed
	closing bool
	queue   fifo // operations that wait for space; receives are in that of the instance
	keys    map[*RemoteKey]struct{}
	opened  chan struct{} // closed when Connect has its result
	pending bool          // it has none yet
	ended   chan struct{} // closed at the end
	err     error         // why it ended
	last    EndpointInfo  // as it was when it was closed

	reported    bool          // its end is, or was, among the events of the instance
	over        chan struct{} // closed when the close that Close has started is over; nil: none is under way
	closeStatus C.int         // how that ended
}

// adopt makes an Endpoint for a handle. The caller holds mu.
func (x *Instance) adopt(c *C.xport_ep) *Endpoint {
	ep := &Endpoint{x: x, c: c, keys: map[*RemoteKey]struct{}{}, ended: make(chan struct{})}
	address := uint64(uintptr(unsafe.Pointer(c)))
	x.known[address] = ep
	// Events that came before it was accepted.
	for i := range x.events {
		if e := &x.events[i]; e.Endpoint == nil && e.address == address {
			e.Endpoint, e.address = ep, 0
			if e.Type != Notify {
				ep.reported = true
				ep.end(e.Err)
			}
		}
	}
	return ep
}

// Connect connects to a listener. It fails within 30 s. A thread of the C library looks host names up. If the context ends
// first, Connect returns ctx.Err().
func (x *Instance) Connect(ctx context.Context, address string, private []byte) (*Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := x.enter(); err != nil {
		return nil, err
	}
	name := C.CString(address)
	defer C.free(unsafe.Pointer(name))
	var c *C.xport_ep
	p, n := bytesForC(private)
	status := C.xpg_connect(x.g, name, unsafe.Pointer(&p[0]), n, &c)
	if err := x.must(status, "xport_connect"); err != nil {
		x.mu.Unlock()
		return nil, err
	}
	ep := x.adopt(c)
	ep.opened, ep.pending = make(chan struct{}), true
	x.mu.Unlock()
	var err error
	select {
	case <-ep.opened:
	case <-ep.ended: // Instance.Close
	case <-ctx.Done():
		err = ctx.Err()
	}
	if e := x.enter(); e != nil {
		return nil, e
	}
	defer x.mu.Unlock()
	if ep.err != nil {
		err = ep.err
	}
	if ep.pending || ep.err != nil {
		ep.pending = false
		ep.retire()
		return nil, err
	}
	return ep, nil
}

// connected takes the first event of an endpoint that connects. The caller holds mu.
func (ep *Endpoint) connected(c *C.struct_xport_completion) {
	ep.pending = false
	if c._type == C.XPORT_EVENT_LOST {
		e := newError(C.int(c.status), "xport_connect", ep.why())
		e.Hint = connectHints[e.Status]
		ep.end(e)
	}
	close(ep.opened)
}

// end notes that the endpoint has ended. The caller holds mu.
func (ep *Endpoint) end(err error) {
	if ep.err == nil {
		ep.err = err
		close(ep.ended)
	}
}

// retire gives the handle up, and destroys it when its completions are reaped. The caller holds mu.
func (ep *Endpoint) retire() {
	if ep.c == nil {
		return
	}
	ep.last = ep.info()
	ep.last.Open = false
	for key := range ep.keys {
		key.close()
	}
	C.xport_ep_close(ep.c, 0)
	if ep.x.rpc != nil {
		ep.x.rpc.forget(ep)
	}
	x := ep.x
	x.retired = append(x.retired, retiree{ep, ep.c})
	ep.c, ep.over = nil, nil
	ep.end(ep.closedError("xport_ep_close"))
	if ep.reported {
		x.dropEvents(func(e *happened) bool { return e.Endpoint == ep && e.Type != Notify })
	}
	x.turn()
}

// retiree is a closed endpoint. First its handle is destroyed, then its address is forgotten: each after a poll that began
// later, so that no completion that was polled before names it.
type retiree struct {
	ep *Endpoint
	c  *C.xport_ep
}

// buryRetired destroys the first `retired` of the closed endpoints, and forgets the first `buried` of those that were
// destroyed before. The caller holds mu.
func (x *Instance) buryRetired(retired, buried int) {
	for _, r := range x.buried[:buried] {
		address := uint64(uintptr(unsafe.Pointer(r.c)))
		if x.known[address] == r.ep {
			delete(x.known, address)
		}
	}
	x.buried = append([]retiree(nil), x.buried[buried:]...)
	for _, r := range x.retired[:retired] {
		C.xport_ep_destroy(r.c)
		x.buried = append(x.buried, r)
	}
	x.retired = append([]retiree(nil), x.retired[retired:]...)
}

func (ep *Endpoint) closedError(operation string) error {
	var e *Error
	if errors.As(ep.err, &e) && e.Status != ErrClosed {
		return e
	}
	return refuse(ErrClosed, operation, "the endpoint is closed", "Connect again.")
}

// Done returns a channel that is closed when the endpoint has ended: the peer has closed it or is lost, or Close.
func (ep *Endpoint) Done() <-chan struct{} { return ep.ended }

// Err returns why the endpoint has ended, or nil.
func (ep *Endpoint) Err() error {
	ep.x.mu.Lock()
	defer ep.x.mu.Unlock()
	return ep.err
}

// Close waits until the peer's library has received what was posted, and closes the endpoint. The peer gets the event
// PeerClosed. If the context ends first, Close drops unsent data, closes the endpoint at once, and returns ctx.Err(). It returns ErrClosed if Instance.Close comes first.
func (ep *Endpoint) Close(ctx context.Context) error {
	x := ep.x
	if err := x.enterFailed(); err != nil {
		return err
	}
	if ep.c == nil || ep.closing {
		defer x.mu.Unlock()
		return ep.closedError("xport_ep_close")
	}
	ep.closing = true
	x.mu.Unlock()
	err := ep.Flush(ctx) // behind the operations that wait for space
	if err := x.enterFailed(); err != nil {
		return err
	}
	defer x.mu.Unlock()
	if ctx.Err() != nil {
		if ep.retire(); err == nil {
			err = ctx.Err()
		}
		return err
	}
	return ep.closeAndWait(ctx)
}

// closeAndWait closes the endpoint, within the time of the context. The caller holds mu, which is released meanwhile.
func (ep *Endpoint) closeAndWait(ctx context.Context) error {
	x := ep.x
	err := x.must(C.xpg_failed(x.g, C.xport_ep_close_start(ep.c, -1)), "xport_ep_close")
	if err != nil { // it has ended before
		ep.retire()
		return err
	}
	over := make(chan struct{})
	ep.over = over
	x.turn()
	if ep.over != nil {
		x.waitInline(ctx, func() bool { return ep.over == nil })
	}
	if ep.over != nil && !x.closed {
		x.mu.Unlock()
		select {
		case <-over:
		case <-ep.ended: // Instance.Close, or the back end failed
		case <-ctx.Done():
		}
		x.mu.Lock()
	}
	if x.closed {
		return errInstanceClosed
	}
	ended := ep.over == nil
	status, why := ep.closeStatus, ep.why()
	ep.retire()
	switch {
	case !ended && x.failure != nil:
		return x.failure
	case !ended:
		return ctx.Err()
	case status < 0:
		return newError(status, "xport_ep_close", why)
	}
	return nil
}

// EndpointInfo describes an endpoint.
type EndpointInfo struct {
	Open        bool
	Peer, Local string // "host:port" of both ends of the control channel
	PeerHost    string // as the peer reported them
	PeerPID     int
	Why         string // why the endpoint ended, a sentence; "" before its end
	Backend     string // the transport in use
	Provider    string
	Device      string
	PassedOver  string // with several transports: why no better one is used, or ""
	PrivateData []byte // what the peer passed to Listen or Connect
}

func (ep *Endpoint) query() *C.struct_xport_ep_info {
	var i C.struct_xport_ep_info
	i.size = C.size_t(unsafe.Sizeof(i))
	if C.xport_ep_query(ep.c, &i) < 0 {
		return nil
	}
	return &i
}

// why returns why the endpoint ended. The caller holds mu.
func (ep *Endpoint) why() string {
	if i := ep.query(); i != nil {
		return C.GoString(&i.why[0])
	}
	return ""
}

func (ep *Endpoint) info() EndpointInfo {
	if ep.c == nil {
		return ep.last
	}
	i := ep.query()
	if i == nil {
		return EndpointInfo{}
	}
	info := EndpointInfo{
		Open:       i.state == C.XPORT_EP_OPEN,
		Peer:       C.GoString(&i.peer[0]),
		Local:      C.GoString(&i.local[0]),
		PeerHost:   C.GoString(&i.peer_host[0]),
		PeerPID:    int(i.peer_pid),
		Why:        C.GoString(&i.why[0]),
		Backend:    C.GoString(&i.backend[0]),
		Provider:   C.GoString(&i.provider[0]),
		Device:     C.GoString(&i.device[0]),
		PassedOver: C.GoString(&i.passed_over[0]),
	}
	if i.private_data != nil {
		info.PrivateData = C.GoBytes(i.private_data, C.int(i.private_len))
	}
	return info
}

// Info returns what the endpoint is; of a closed one, what it was.
func (ep *Endpoint) Info() EndpointInfo {
	ep.x.mu.Lock()
	defer ep.x.mu.Unlock()
	if ep.x.closed {
		return ep.last
	}
	return ep.info()
}

// PrivateData returns what the peer passed to Listen or Connect.
func (ep *Endpoint) PrivateData() []byte { return ep.Info().PrivateData }

// Handle returns the endpoint as a pointer to struct xport_ep, for C code that is in the same program; nil if it is
// closed. It is valid until Close.
func (ep *Endpoint) Handle() unsafe.Pointer {
	if err := ep.x.enterFailed(); err != nil {
		return nil
	}
	defer ep.x.mu.Unlock()
	return unsafe.Pointer(ep.c)
}

func (ep *Endpoint) String() string {
	i := ep.Info()
	return fmt.Sprintf("endpoint to %s over %s:%s", i.Peer, i.Backend, i.Provider)
}
