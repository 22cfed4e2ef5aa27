// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"xport"
)

// lends makes one-way calls, passes trace contexts, and lends regions, which a handler may still access after the end of its
// call.
func lends(address string) {
	s := open(address, nil)
	calls := value(s.x.RPC(0))
	options := xport.CallOptions{OneWay: true}
	copy(options.Trace[:], "trace")
	check(value(calls.CallWith(soon(), s.ep, "keep", []byte("one way"), options)) == nil)
	want := "one way|" + string(options.Trace[:]) + "|true|false"
	for end := time.Now().Add(limit); string(value(calls.Call(soon(), s.ep, "kept", nil))) != want; {
		check(time.Now().Before(end), string(value(calls.Call(soon(), s.ep, "kept", nil)))) // handlers run at the same time
		time.Sleep(time.Millisecond)
	}
	// The error of its handler is not reported, and that the method does not exist is.
	value(calls.CallWith(soon(), s.ep, "fail", nil, options))
	_, err := calls.CallWith(soon(), s.ep, "nothing", nil, options)
	is(err, xport.ErrNotSupported)

	region := value(s.x.Alloc(100, xport.RemoteRead|xport.RemoteWrite))
	reply, loan, err := calls.Lend(soon(), s.ep, "lent", value(region.Key()), xport.CallOptions{}, region)
	check(string(value(reply, err)) == "true", string(reply))
	must(loan.Wait(soon()))
	for i := 0; i < 1100; i++ { // more than may be in progress at a time
		_, _, err := calls.Lend(soon(), s.ep, "lent", nil, xport.CallOptions{}, region)
		for errors.Is(err, xport.ErrBusy) {
			time.Sleep(time.Millisecond)
			_, _, err = calls.Lend(soon(), s.ep, "lent", nil, xport.CallOptions{}, region)
		}
		must(err)
	}
	settledLoans(region)

	// Its caller no longer waits, and the handler still uses the region.
	region = value(s.x.Alloc(100, xport.RemoteRead|xport.RemoteWrite))
	_, loan, err = calls.Lend(within(100*time.Millisecond), s.ep, "hold", nil, xport.CallOptions{}, region)
	check(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, xport.ErrTimeout), err)
	is(loan.Wait(within(50*time.Millisecond)), context.DeadlineExceeded)
	is(region.Close(soon()), xport.ErrBusy)
	select {
	case <-loan.Ended():
		panic("assertion failed: the loan ended before its handler")
	default:
	}
	value(calls.Call(soon(), s.ep, "let-go", nil))
	must(loan.Wait(soon()))
	must(region.Close(soon()))

	// Nothing is lent if the call is refused.
	_, loan, err = calls.Lend(soon(), s.ep, "lent", nil, xport.CallOptions{}, region)
	is(err, xport.ErrClosed)
	check(loan == nil)
	other := value(xport.Open(nil))
	_, loan, err = calls.Lend(soon(), s.ep, "lent", nil, xport.CallOptions{}, value(other.Alloc(8, all)))
	is(err, xport.ErrInvalid)
	check(loan == nil)
	must(other.Close())
	region = value(s.x.Alloc(100, all))
	_, loan, err = calls.Lend(soon(), s.ep, "no name\n", nil, xport.CallOptions{}, region)
	is(err, xport.ErrInvalid)
	check(loan == nil)
	_, loan, err = calls.Lend(soon(), s.ep, "lent", nil, options, region) // one-way
	is(err, xport.ErrInvalid)
	check(loan == nil)

	// RPC.Close ends loans.
	_, loan, err = calls.Lend(within(100*time.Millisecond), s.ep, "hold", nil, xport.CallOptions{}, region)
	check(err != nil && loan != nil)
	must(calls.Close(soon()))
	is(loan.Wait(soon()), xport.ErrClosed)
	must(region.Close(soon()))
	calls = value(s.x.RPC(0))
	for { // the handler may not have begun
		if string(value(calls.Call(soon(), s.ep, "let-go", nil))) == "1" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	must(calls.Close(soon()))
	s.end()
	lendsToNobody()
}

// settledLoans closes the region, when it is no longer lent.
func settledLoans(region *xport.Region) {
	end := time.Now().Add(limit)
	for err := region.Close(soon()); err != nil; err = region.Close(soon()) {
		is(err, xport.ErrBusy)
		check(time.Now().Before(end), "a loan does not end")
		time.Sleep(time.Millisecond)
	}
}

// lendsToNobody lends to a callee that is killed.
func lendsToNobody() {
	peer := start("serve")
	x := value(xport.Open(nil))
	ep := value(x.Connect(soon(), peer.address, nil))
	calls := value(x.RPC(0))
	region := value(x.Alloc(100, all))
	_, loan, err := calls.Lend(within(100*time.Millisecond), ep, "hold", nil, xport.CallOptions{}, region)
	check(err != nil && loan != nil)
	peer.end()
	err = loan.Wait(soon())
	check(errors.Is(err, xport.ErrPeerLost), err)
	must(region.Close(soon()))
	must(calls.Close(soon()))
	ep.Close(soon())
	must(x.Close())
}

// serveLoans registers the methods of lends.
func serveLoans(calls *xport.RPC) {
	var mu sync.Mutex
	var kept []byte
	var held []chan struct{}
	must(calls.Handle("keep", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		kept = bytes.Join([][]byte{r.Payload, r.Trace[:], []byte(fmt.Sprint(r.OneWay)), []byte(fmt.Sprint(r.Lent))}, []byte("|"))
		return nil, nil
	}))
	must(calls.Handle("kept", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		return kept, nil
	}))
	must(calls.Handle("lent", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		return []byte(fmt.Sprint(r.Lent)), nil
	}))
	must(calls.Handle("hold", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		c := make(chan struct{})
		mu.Lock()
		held = append(held, c)
		mu.Unlock()
		<-c // even if the context ends
		return nil, nil
	}))
	must(calls.Handle("let-go", func(ctx context.Context, r *xport.Request) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range held {
			close(c)
		}
		n := len(held)
		held = nil
		return []byte(fmt.Sprint(n)), nil
	}))
}
