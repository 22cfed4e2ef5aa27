// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"xport"
)

// ---- time ----

// soonest is the bound for what must happen at once. It is short against the peer timeout, whose heartbeats would hide a
// wake-up that was lost.
const soonest = 500 * time.Millisecond

// notRunning is when this process last found that it had not run for some time.
var notRunning atomic.Value

// metronome notes when this process does not run, since the machine is busy.
func metronome() {
	for last := time.Now(); ; last = time.Now() {
		time.Sleep(10 * time.Millisecond)
		if now := time.Now(); now.Sub(last) > soonest/4 {
			notRunning.Store(now)
		}
	}
}

func starved(since time.Time) bool {
	time.Sleep(20 * time.Millisecond)
	at, ok := notRunning.Load().(time.Time)
	return ok && at.After(since)
}

// prompt checks that f takes no longer than it must.
func prompt(what string, f func()) {
	begun := time.Now()
	f()
	took := time.Since(begun)
	check(took < soonest || starved(begun) && took < limit/2, what, "took", took)
}

// ends waits for the result of a goroutine.
func ends(what string, c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-time.After(limit):
		panic("assertion failed: " + what + " does not end")
	}
}

// ---- processes ----

// child is this program as another process.
type child struct {
	*exec.Cmd
	address string
}

func start(args ...string) *child {
	c := &child{Cmd: exec.Command(os.Args[0], args...)}
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out := value(c.StdoutPipe())
	must(c.Start())
	c.address = strings.TrimSpace(value(bufio.NewReader(out).ReadString('\n')))
	return c
}

func (c *child) end() {
	c.Process.Signal(syscall.SIGKILL)
	c.Wait()
}

// hold keeps the key of a region until it is killed.
func hold(address string) {
	s := open(address, nil)
	must(s.ep.Write(soon(), word(1), s.key, 0))
	fmt.Println("holds")
	select {}
}

// stopped returns an instance with a region whose key a stopped process has, and the endpoint to that process. A message
// from the region is on its way, which keeps the region in use.
func stopped() (*xport.Instance, *xport.Region, *xport.Endpoint, *child) {
	x := value(xport.Open(&xport.Options{PeerTimeout: time.Hour}))
	memory := value(x.Alloc(region, all))
	listener := value(x.Listen("127.0.0.1:0", value(memory.Key())))
	accepted := make(chan *xport.Endpoint)
	go func() { accepted <- value(listener.Accept(soon())) }()
	c := start(listener.Address(), "hold")
	check(c.address == "holds", c.address)
	must(c.Process.Signal(syscall.SIGSTOP))
	ep := <-accepted
	ep.StartSend(value(memory.Buffer(0, region)), 9)
	return x, memory, ep, c
}

// ---- the ends of endpoints, regions and instances ----

// reconnect connects again and again to peers that are killed, and never asks for events.
func reconnect(string) {
	x := value(xport.Open(nil))
	for i := 0; i < number("RECONNECT", 100); i++ {
		peer := start("serve")
		ep := value(x.Connect(soon(), peer.address, nil))
		select {
		case <-ep.Done():
			panic(fmt.Sprint("assertion failed: ended at once: ", i, ep.Err()))
		default:
		}
		key := value(ep.Unpack(ep.PrivateData()))
		must(ep.Write(soon(), word(1), key, 0))
		peer.end()
		select {
		case <-ep.Done():
		case <-time.After(limit):
			panic("assertion failed: the loss is not noticed")
		}
		ep.Close(soon())
	}
	_, err := x.Event(within(20 * time.Millisecond))
	is(err, context.DeadlineExceeded) // none of them was kept
	must(x.Close())
}

// flood notifies an instance that takes no events until the end.
func flood(string) {
	const most, more = 1 << 16, 1000
	x, y := value(xport.Open(nil)), value(xport.Open(nil))
	memory := value(x.Alloc(64, all))
	listener := value(x.Listen("127.0.0.1:0", value(memory.Key())))
	ep := value(y.Connect(soon(), listener.Address(), nil))
	value(listener.Accept(soon()))
	key := value(ep.Unpack(ep.PrivateData()))
	var wg sync.WaitGroup
	for g := 0; g < 16; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			empty := value(y.Buffer(0))
			for i := 0; i < (most+more)/16; i++ {
				must(ep.PutNotify(soon(), empty, key, 0, 1))
			}
		}()
	}
	wg.Wait()
	must(ep.Close(soon()))
	got, dropped := 0, uint64(0)
	for e := value(x.Event(soon())); e.Type != xport.PeerClosed; e = value(x.Event(soon())) {
		switch e.Type {
		case xport.Notify:
			got++
		case xport.Dropped:
			dropped = e.Value
		}
	}
	check(got == most && dropped == (most+more)/16*16-most, got, dropped)
	must(y.Close())
	must(x.Close())
}

// churn connects and closes from many goroutines at a time. Each message and event belongs to the endpoint of its sender,
// although the C library uses addresses again.
func churn(string) {
	const callers, rounds = 8, 40
	x, y := value(xport.Open(nil)), value(xport.Open(nil))
	listener := value(x.Listen("127.0.0.1:0", nil))
	var wg sync.WaitGroup
	for g := 0; g < callers; g++ {
		wg.Add(1)
		go func(g int) {
			defer wg.Done()
			for i := 0; i < rounds; i++ {
				tag := uint64(1000*g + i + 1)
				ep := value(y.Connect(soon(), listener.Address(), word(tag)))
				must(ep.SendBytes(soon(), word(tag), tag))
				must(ep.Close(soon()))
			}
		}(g)
	}
	for g := 0; g < callers; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; i < rounds; i++ {
				ep := value(listener.Accept(soon()))
				tag := binary.LittleEndian.Uint64(ep.PrivateData())
				buf := value(x.Buffer(8))
				m := value(x.Recv(soon(), buf, tag, ^uint64(0)))
				check(m.Endpoint == ep && bytes.Equal(buf.Bytes(), word(tag)), m, tag)
				buf.Free()
				select {
				case <-ep.Done():
				case <-time.After(limit):
					panic("assertion failed: the peer's close is not noticed")
				}
				is(ep.Err(), xport.ErrPeerClosed)
				ep.Close(soon())
			}
		}()
	}
	wg.Wait()
	_, err := x.Event(within(20 * time.Millisecond))
	is(err, context.DeadlineExceeded)
	must(y.Close())
	must(x.Close())
}

// stuck ends calls beside a peer that does not answer, and that is not lost for an hour.
func stuck(string) {
	x, memory, ep, c := stopped()
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error, 2)
	go func() { closed <- ep.Close(ctx) }()
	time.Sleep(50 * time.Millisecond)
	prompt("Endpoint.Close", func() {
		cancel()
		is(ends("Endpoint.Close", closed), context.Canceled)
	})
	must(x.Close())
	c.end()

	// A region that the peer may access.
	x, memory, ep, c = stopped()
	prompt("Region.Close", func() { is(memory.Close(within(50*time.Millisecond)), context.DeadlineExceeded) })
	is(memory.Close(soon()), xport.ErrClosed)
	go func() { closed <- ep.Close(context.Background()) }()
	time.Sleep(50 * time.Millisecond)
	prompt("Instance.Close", func() {
		must(x.Close())
		is(ends("Endpoint.Close", closed), xport.ErrClosed)
	})
	c.end()

	x, memory, ep, c = stopped()
	go func() { closed <- memory.Close(context.Background()) }()
	time.Sleep(50 * time.Millisecond)
	prompt("Instance.Close", func() {
		must(x.Close())
		must(ends("Region.Close", closed))
	})
	c.end()
}

// copies closes the instance while slices are copied.
func copies(address string) {
	for round := 0; round < number("COPIES", 20); round++ {
		s := open(address, nil)
		var wg sync.WaitGroup
		for _, call := range []func(p []byte) error{
			func(p []byte) error { return s.ep.Write(soon(), p, s.key, 0) },
			func(p []byte) error { return s.ep.Read(soon(), p, s.key, 0) },
			func(p []byte) error { _, err := s.key.ReadAt(p, 0); return err },
			func(p []byte) error { _, err := s.key.WriteAt(p, 0); return err },
			func(p []byte) error { return s.ep.SendBytes(soon(), p[:1000], 99) },
			func(p []byte) error {
				b, err := s.x.BufferOf(p)
				if err == nil {
					b.Free()
				}
				return err
			},
		} {
			wg.Add(1)
			go func(call func(p []byte) error) {
				defer wg.Done()
				p := make([]byte, region)
				for {
					if err := call(p); err != nil {
						is(err, xport.ErrClosed)
						return
					}
				}
			}(call)
		}
		time.Sleep(time.Duration(round%10) * 2 * time.Millisecond)
		must(s.x.Close())
		wg.Wait()
	}
}

// regions closes a region while operations that use it wait for space.
func regions(address string) {
	for round := 0; round < 20; round++ {
		s := open(address, &xport.Options{QueueDepth: 4, Emulate: "put"})
		memory := value(s.x.Alloc(1<<20, 0))
		var started []*xport.Operation
		for i := 0; i < 200; i++ {
			started = append(started, s.ep.StartPut(value(memory.Buffer(5000*i, 5000)), s.key, 0))
		}
		part, again := value(memory.Buffer(0, 8)), value(memory.Buffer(8, 8))
		must(memory.Close(soon()))
		for _, o := range started {
			if _, err := o.Wait(soon()); err != nil {
				is(err, xport.ErrClosed)
			}
		}
		is(s.ep.Put(soon(), part, s.key, 0), xport.ErrClosed)
		panics(func() { again.Bytes() })
		panics(func() { memory.Bytes() })
		_, err := memory.Word(0)
		is(err, xport.ErrClosed)
		_, err = memory.ReadAt(make([]byte, 8), 0)
		is(err, xport.ErrClosed)
		// Receives that are queued for certain, since nobody sends.
		var posted, queued []*xport.Operation
		for i := 0; i < 4; i++ {
			posted = append(posted, s.ep.StartRecv(value(s.x.Buffer(8)), 50))
		}
		memory = value(s.x.Alloc(64, 0))
		for i := 0; i < 4; i++ {
			queued = append(queued, s.ep.StartRecv(value(memory.Buffer(8*i, 8)), 50))
		}
		must(memory.Close(soon()))
		for i := 0; i < 4; i++ {
			_, err := posted[i].Wait(gone())
			is(err, context.Canceled)
		}
		for i := 0; i < 4; i++ {
			_, err := queued[i].Wait(soon())
			is(err, xport.ErrClosed)
		}
		// A posted receive keeps its region.
		memory = value(s.x.Alloc(64, 0))
		receive := s.ep.StartRecv(value(memory.Buffer(0, 64)), 50)
		is(memory.Close(soon()), xport.ErrBusy)
		check(len(memory.Bytes()) == 64)
		_, err = receive.Wait(gone())
		is(err, context.Canceled)
		settled(s)
		must(memory.Close(soon()))
		s.end()
	}
}

func panics(f func()) {
	defer func() { check(recover() != nil, "it did not panic") }()
	f()
}

// sleepers ends calls of Event that look for events in the C library just then.
func sleepers(string) {
	for i := 0; i < 20; i++ {
		x := value(xport.Open(nil))
		ended := make(chan error, 1)
		go func() {
			_, err := x.Event(context.Background())
			ended <- err
		}()
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		must(x.Close())
		is(ends("Event", ended), xport.ErrClosed)
	}
}

// receives posts more receives than there is space for. Sends must not wait behind them.
func receives(address string) {
	s := open(address, &xport.Options{QueueDepth: 4})
	const n = 30
	var answers []*xport.Operation
	for i := 0; i < n; i++ {
		answers = append(answers, s.ep.StartRecv(value(s.x.Buffer(8)), 2))
	}
	for i := 0; i < n; i++ {
		must(s.ep.SendBytes(soon(), word(uint64(i)), 1))
		value(answers[i].Wait(soon()))
	}
	// Those that are given up leave nothing behind.
	for i := 0; i < 1000; i++ {
		answers = append(answers, s.ep.StartRecv(value(s.x.Buffer(8)), 2))
	}
	for _, o := range answers[n:] {
		_, err := o.Wait(gone())
		is(err, context.Canceled)
	}
	got, _ := s.ask([]byte("ab"))
	check(string(got) == "ba", got)
	settled(s)
	s.end()
}

// ---- arguments, replies, and the back end ----

func arguments(address string) {
	s := open(address, nil)
	_, err := s.x.Buffer(math.MaxInt)
	is(err, xport.ErrNoMemory)
	buf := value(s.x.Buffer(8))
	receive := s.ep.StartRecv(buf, 70)
	refused(func() { buf.SetLen(4) })
	_, err = receive.Wait(gone())
	is(err, context.Canceled)
	settled(s)
	// Bytes that are a part of an object with pointers of Go's.
	object := &struct {
		p     *int
		bytes [64]byte
	}{p: new(int)}
	_, err = s.ep.Unpack(object.bytes[:])
	is(err, xport.ErrBadKey)
	runtime.KeepAlive(object)
	listener := value(s.x.Listen("localhost:0", object.bytes[:]))
	check(!strings.Contains(listener.Address(), "localhost"), listener.Address())
	value(s.x.Connect(soon(), listener.Address(), object.bytes[:]))
	must(listener.Close())
	_, err = xport.Open(&xport.Options{PeerTimeout: math.MaxInt64})
	is(err, xport.ErrConfig)
	is(xport.ErrTimeout, context.DeadlineExceeded)
	is(&xport.Error{Status: xport.ErrClosed}, net.ErrClosed)
	check(!errors.Is(xport.ErrPeerClosed, io.EOF))
	_, err = s.x.Listen("name.invalid:0", nil)
	is(err, xport.ErrUnreachable)
	s.end()
}

// replies calls methods whose replies the library refuses.
func replies(address string) {
	s := open(address, nil)
	calls := value(s.x.RPC(100))
	var failed *xport.CallError
	_, err := calls.Call(soon(), s.ep, "long", nil)
	check(errors.As(err, &failed) && failed.Err.Status == xport.ErrBounds && failed.Ran == xport.RanYes, err)
	for _, method := range []string{"zero", "odd"} {
		_, err = calls.Call(soon(), s.ep, method, nil)
		check(errors.As(err, &failed) && failed.Err.Status == xport.ErrSystem && failed.Ran == xport.RanYes, method, err)
	}
	must(calls.Close(soon()))
	s.end()
}

// failing is for a package whose back end fails when the variable XPG_FAIL is set.
func failing(address string) {
	s := open(address, &xport.Options{QueueDepth: 64})
	calls := value(s.x.RPC(0))
	var started []*xport.Operation
	for i := 0; i < 100; i++ {
		started = append(started, s.ep.StartRecv(value(s.x.Buffer(8)), 2))
	}
	waits := make(chan error, 2)
	go func() { _, err := s.x.Event(context.Background()); waits <- err }()
	listener := value(s.x.Listen("127.0.0.1:0", nil))
	go func() { _, err := listener.Accept(context.Background()); waits <- err }()
	buf := s.buffer(word(1))
	os.Setenv("XPG_FAIL", "1")
	s.ep.Put(within(time.Second), buf, s.key, 0)
	for _, o := range started {
		_, err := o.Wait(soon())
		is(err, xport.ErrSystem)
	}
	is(ends("Event", waits), xport.ErrSystem)
	is(ends("Accept", waits), xport.ErrSystem)
	check(s.x.InFlight() == 0, s.x.InFlight())
	is(s.ep.Put(soon(), buf, s.key, 0), xport.ErrSystem)
	_, err := calls.Call(soon(), s.ep, "reverse", nil)
	is(err, xport.ErrSystem)
	_, err = s.x.Connect(soon(), address, nil)
	is(err, xport.ErrSystem)
	<-s.ep.Done()
	check(bytes.Equal(buf.Bytes(), word(1)))
	s.ep.Close(soon())
	must(s.x.Close())
}
