// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"runtime"
	"sync"
	"time"

	"xport"
)

// wakeups loses none: each message is answered, although nothing else wakes the goroutine.
func wakeups(address string) {
	s := open(address, nil)
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
		check(time.Since(begun) < limit/2, "late answer to message", i)
	}
	s.end()
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
