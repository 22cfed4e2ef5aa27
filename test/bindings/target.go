// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"xport"
)

// wakeups loses none: each message is answered, although nothing else wakes the goroutine.
func wakeups(address string) {
	s := open(address, &xport.Options{PeerTimeout: time.Hour})
	answer, text := value(s.x.Buffer(8)), value(s.x.Buffer(8))
	r := rand.New(rand.NewSource(1))
	n := number("WAKEUPS", 100000)
	for i := 0; i < n; i++ {
		switch r.Intn(64) {
		case 0:
			time.Sleep(time.Duration(r.Intn(200)) * time.Microsecond)
		case 1:
			for end := time.Now().Add(time.Duration(r.Intn(50)) * time.Microsecond); time.Now().Before(end); {
			}
		case 2, 3, 4, 5:
			runtime.Gosched()
		}
		copy(text.Bytes(), word(uint64(i)))
		got := s.ep.StartRecv(answer, 2)
		must(s.ep.Send(soon(), text, 1))
		begun := time.Now()
		value(got.Wait(soon()))
		check(bytes.Equal(answer.Bytes(), reversed(word(uint64(i)))), i)
		// Without a wake-up it would never come: so it may be late, when the machine is busy.
		check(time.Since(begun) < limit/2, "late answer to message", i, time.Since(begun))
	}
	// More completions than one turn reaps: the descriptor stays readable, and no new edge comes.
	for i := 0; i < 20; i++ {
		var started []*xport.Operation
		for k := 0; k < 2000; k++ {
			part := value(s.x.Buffer(8))
			defer part.Free()
			started = append(started, s.ep.StartPut(part, s.key, uint64(8*k)))
		}
		for k := len(started) - 1; k >= 0; k-- {
			value(started[k].Wait(soon()))
		}
	}
	s.end()
}

// closing ends all calls that wait.
func closing(address string) {
	s := open(address, nil)
	listener := value(s.x.Listen("127.0.0.1:0", nil))
	buf, kept := value(s.x.Buffer(8)), value(s.x.Buffer(8))
	ended := make(chan error)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := s.ep.Recv(ctx, buf, 77); return err },
		func(ctx context.Context) error { _, err := listener.Accept(ctx); return err },
		func(ctx context.Context) error { _, err := s.x.Event(ctx); return err },
	} {
		go func(call func(context.Context) error) { ended <- call(context.Background()) }(call)
	}
	started := s.ep.StartRecv(value(s.x.Buffer(8)), 78)
	// The goroutine that makes progress sleeps on the poller of the runtime, and keeps no thread.
	stacks := make([]byte, 1<<16)
	for end := time.Now().Add(limit); !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("[IO wait")); {
		check(time.Now().Before(end), "no goroutine waits on the poller")
		time.Sleep(time.Millisecond)
	}
	must(s.x.Close())
	for i := 0; i < 3; i++ {
		is(<-ended, xport.ErrClosed)
	}
	_, err := started.Wait(soon())
	is(err, xport.ErrClosed)
	refused(func() { kept.Bytes() })
	kept.Free()
	is(s.ep.Put(soon(), kept, s.key, 0), xport.ErrClosed)
	is(s.ep.Close(soon()), xport.ErrClosed)
	is(s.key.Close(), xport.ErrClosed)
	is(listener.Close(), xport.ErrClosed)
	check(s.ep.Handle() == nil && s.key.Handle() == nil && s.x.Handle() == nil && s.x.InFlight() == 0)
	<-s.ep.Done()
}

// race uses one endpoint from many goroutines, with contexts that end.
func race(address string) {
	s := open(address, &xport.Options{QueueDepth: 64})
	var wg sync.WaitGroup
	for g := 0; g < 16; g++ {
		wg.Add(1)
		go func(g int) {
			defer wg.Done()
			r := rand.New(rand.NewSource(int64(g)))
			offset := uint64(g * 4096)
			for i := 0; i < number("RACE", 100); i++ {
				data := pattern(r.Int(), 1+r.Intn(4096))
				must(s.ep.Write(soon(), data, s.key, offset))
				got := make([]byte, len(data))
				must(s.ep.Read(soon(), got, s.key, offset))
				check(bytes.Equal(got, data), g, i)
				s.ep.Read(within(time.Duration(r.Intn(100))*time.Microsecond), got, s.key, offset)
			}
		}(g)
	}
	wg.Wait()
	must(s.ep.Flush(soon()))
	settled(s)
	s.end()
}

// ---- the target ----

func serve() {
	x := value(xport.Open(nil))
	serveCalls(x)
	memory := value(x.Alloc(region, all))
	listener := value(x.Listen("127.0.0.1:0", value(memory.Key())))
	fmt.Println(listener.Address())
	values := make(chan uint64, 16)
	go func() {
		for {
			if e := value(x.Event(context.Background())); e.Type == xport.Notify {
				values <- e.Value
			}
		}
	}()
	for {
		ep := value(listener.Accept(context.Background()))
		go answer(x, ep, values)
	}
}

func answer(x *xport.Instance, ep *xport.Endpoint, values chan uint64) {
	buf := value(x.Buffer(message))
	defer buf.Free()
	defer ep.Close(gone())
	for {
		buf.SetLen(message)
		m, err := ep.Recv(context.Background(), buf, 1)
		if err != nil {
			return // it has ended
		}
		got := buf.Bytes()[:m.Length]
		if string(got) == "N" {
			m.Length = copy(buf.Bytes(), word(<-values))
		} else {
			for i, j := 0, len(got)-1; i < j; i, j = i+1, j-1 {
				got[i], got[j] = got[j], got[i]
			}
		}
		buf.SetLen(m.Length)
		if ep.Send(context.Background(), buf, 2) != nil {
			return
		}
	}
}

// ---- remote procedure calls ----

// rpc calls the methods of a target in Go.
func rpc(address string) {
	s := open(address, nil)
	calls := value(s.x.RPC(0))
	_, err := s.x.RPC(0)
	is(err, xport.ErrBusy)
	for _, n := range []int{0, 1, 3000} {
		data := pattern(n, n)
		check(bytes.Equal(value(calls.Call(soon(), s.ep, "reverse", data)), reversed(data)), n)
	}
	var failed *xport.CallError
	_, err = calls.Call(soon(), s.ep, "fail", []byte("why not"))
	check(errors.As(err, &failed) && failed.Err.Status == xport.ErrBounds && failed.Ran == xport.RanYes, err)
	check(failed.Err.Text == "xport: fail: why not", failed.Err.Text)
	_, err = calls.Call(soon(), s.ep, "nothing", nil)
	check(errors.As(err, &failed) && failed.Err.Status == xport.ErrNotSupported && failed.Ran == xport.RanNo, err)
	_, err = calls.Call(soon(), s.ep, "reverse", make([]byte, 1<<20))
	is(err, xport.ErrBounds)
	begun := time.Now()
	_, err = calls.Call(within(50*time.Millisecond), s.ep, "sleep", nil)
	check(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, xport.ErrTimeout), err)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(60*time.Millisecond, cancel)
	_, err = calls.Call(ctx, s.ep, "sleep", nil)
	is(err, context.Canceled)
	check(time.Since(begun) < limit/2)
	// The handlers notice that.
	for end := time.Now().Add(limit); string(value(calls.Call(soon(), s.ep, "sleeping", nil))) != "0"; {
		check(time.Now().Before(end), "handlers whose callers have gone still run")
		time.Sleep(5 * time.Millisecond)
	}
	var wg sync.WaitGroup
	for g := 0; g < 50; g++ {
		wg.Add(1)
		go func(g int) {
			defer wg.Done()
			var busy *xport.CallError
			for i := 0; i < 40; i++ {
				data := pattern(g*i, 100)
				got, err := calls.Call(soon(), s.ep, "reverse", data)
				for errors.As(err, &busy) && busy.Err.Status == xport.ErrBusy && busy.Ran == xport.RanNo {
					time.Sleep(busy.RetryAfter)
					got, err = calls.Call(soon(), s.ep, "reverse", data)
				}
				check(bytes.Equal(value(got, err), reversed(data)))
			}
		}(g)
	}
	wg.Wait()
	must(calls.Close(soon()))
	_, err = calls.Call(soon(), s.ep, "reverse", nil)
	is(err, xport.ErrClosed)
	must(s.ep.Write(soon(), word(1), s.key, 0))
	// Instance.Close ends calls as well.
	calls = value(s.x.RPC(0))
	begun = time.Now()
	time.AfterFunc(20*time.Millisecond, func() { s.x.Close() })
	_, err = calls.Call(soon(), s.ep, "sleep", nil)
	is(err, xport.ErrClosed)
	check(time.Since(begun) < limit/2)
}

// call is that of scenarios.txt: the callee may be that in C.
func call(address string) {
	x := value(xport.Open(nil))
	ep := value(x.Connect(soon(), address, nil))
	calls := value(x.RPC(0))
	check(string(value(calls.Call(soon(), ep, "echo", []byte("from Go")))) == "from Go")
	var failed *xport.CallError
	_, err := calls.Call(soon(), ep, "nothing", nil)
	check(errors.As(err, &failed) && failed.Err.Status == xport.ErrNotSupported && failed.Ran == xport.RanNo, err)
	check(len(value(calls.Call(soon(), ep, "echo", nil))) == 0)
	must(calls.Close(soon()))
	must(ep.Close(soon()))
	must(x.Close())
}

// echo calls the server of examples/rpc_echo.c.
func echo(address string) {
	x := value(xport.Open(nil))
	ep := value(x.Connect(soon(), address, nil))
	calls := value(x.RPC(0))
	check(string(value(calls.Call(soon(), ep, "echo", []byte("from Go")))) == "from Go")
	check(string(value(calls.Call(soon(), ep, "length", make([]byte, 12)))) == "12 bytes")
	must(calls.Close(soon()))
	must(ep.Close(soon()))
	must(x.Close())
}

func serveCalls(x *xport.Instance) {
	var sleeping int32
	calls := value(x.RPC(0))
	must(calls.Handle("echo", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return r.Payload, nil
	}))
	must(calls.Handle("reverse", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return reversed(r.Payload), nil
	}))
	must(calls.Handle("fail", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return nil, &xport.Error{Status: xport.ErrBounds, Operation: r.Method, Text: string(r.Payload)}
	}))
	must(calls.Handle("sleep", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		atomic.AddInt32(&sleeping, 1)
		defer atomic.AddInt32(&sleeping, -1)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(limit):
			return nil, nil
		}
	}))
	must(calls.Handle("long", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return make([]byte, 3000), nil
	}))
	must(calls.Handle("zero", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return nil, &xport.Error{Text: "an error without a status"}
	}))
	must(calls.Handle("odd", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return nil, &xport.Error{Status: -12345, Text: "an error with a status that does not exist"}
	}))
	must(calls.Handle("sleeping", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return []byte(fmt.Sprint(atomic.LoadInt32(&sleeping))), nil
	}))
	serveLoans(calls)
	err := calls.Handle("reverse", nil)
	is(err, xport.ErrBusy)
}

// deadline has operations that the peer never matches, whose contexts the library enforces.
func deadline(address string) {
	s := open(address, nil)
	data := make([]byte, 3<<20) // longer than eager max
	soonOver := func() context.Context { return xport.Enforce(within(50 * time.Millisecond)) }
	buf := value(s.x.Buffer(100))
	_, err := s.ep.Recv(soonOver(), buf, 99)
	is(err, xport.ErrTimeout)
	check(len(buf.Bytes()) == 100) // the caller's again
	buf.Free()
	buf = s.buffer(data)
	is(s.ep.Send(soonOver(), buf, 99), xport.ErrTimeout)
	check(bytes.Equal(buf.Bytes(), data))
	must(s.ep.Write(xport.Enforce(soon()), word(1), s.key, 0))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	is(s.ep.Send(xport.Enforce(ctx), buf, 99), context.Canceled)
	settled(s) // it was withdrawn
	check(s.ep.Info().Open)
	far, cancel := context.WithTimeout(context.Background(), math.MaxInt64)
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err = s.ep.Recv(xport.Enforce(far), value(s.x.Buffer(8)), 99)
	is(err, context.Canceled) // and not ErrTimeout
	settled(s)
	s.end()
	queuedDeadline(address)
}

// queuedDeadline has an operation that waits for space, which never comes.
func queuedDeadline(address string) {
	s := open(address, &xport.Options{QueueDepth: 4})
	for i := 0; i < 8; i++ {
		s.ep.StartSend(s.buffer(make([]byte, 3<<20)), 99)
	}
	buf := s.buffer(make([]byte, 100))
	for i := 0; i < 3; i++ {
		begun := time.Now()
		is(s.ep.Send(xport.Enforce(within(50*time.Millisecond)), buf, 99), xport.ErrTimeout)
		check(time.Since(begun) >= 50*time.Millisecond && len(buf.Bytes()) == 100)
	}
	must(s.x.Close())
}
