// SPDX-License-Identifier: BSD-3-Clause

// scenarios runs the scenarios of scenarios.txt with the package xport.
//
//	scenarios serve             the target, as peer.c
//	scenarios ADDRESS NAME...   the initiator: prints "ok NAME" for each
//
// Not in the table: wakeups, WAKEUPS messages and answers with pauses; cancels, 10,000 operations that are cancelled
// beside a stopped peer; race, many goroutines at a time; closing, the end of an instance; rpc, lends and echo, calls; and
// those of faults.go.
package main

// #cgo pkg-config: libxport
// #include <sys/wait.h>
// #include <unistd.h>
// #include <xport.h>
//
// /* Puts in a forked child, which may call C only.  Returns the status of the put. */
// static int put_in_child(void *ep, void *key)
// {
// 	int status = 0;
// 	pid_t child = fork();
//
// 	if (child == 0)
// 		_exit(-xport_put(ep, &status, sizeof(status), key, 0, NULL));
// 	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
// 		return 1;
// 	return -WEXITSTATUS(status);
// }
import "C"

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"xport"
)

const (
	region  = 1 << 20
	message = 1 << 18
	all     = xport.RemoteRead | xport.RemoteWrite | xport.RemoteAtomic
	watched = 12345 // bytes: no other buffer has this size
)

var limit = time.Duration(number("WAIT_S", 60)) * time.Second

func number(name string, standard int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return standard
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

func check(ok bool, what ...any) {
	if !ok {
		panic(fmt.Sprintln(append([]any{"assertion failed:"}, what...)...))
	}
}

func is(err, want error) {
	check(errors.Is(err, want), err, "is not", want)
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	time.AfterFunc(d+time.Minute, cancel)
	return ctx
}

func soon() context.Context { return within(limit) }

// gone is a context that has ended.
func gone() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func pattern(seed, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(seed + i*7 + i/251)
	}
	return p
}

func word(n uint64) []byte {
	p := make([]byte, 8)
	binary.LittleEndian.PutUint64(p, n)
	return p
}

// side is one connection to the target.
type side struct {
	x   *xport.Instance
	ep  *xport.Endpoint
	key *xport.RemoteKey
}

func open(address string, o *xport.Options) *side {
	if os.Getenv("WAIT_IN_THREAD") != "" {
		if o == nil {
			o = &xport.Options{}
		}
		o.WaitInThread = true
	}
	x := value(xport.Open(o))
	ep := value(x.Connect(soon(), address, nil))
	return &side{x, ep, value(ep.Unpack(ep.PrivateData()))}
}

func (s *side) buffer(p []byte) *xport.Buffer { return value(s.x.BufferOf(p)) }

func (s *side) ask(p []byte) ([]byte, xport.Message) {
	answer := value(s.x.Buffer(message))
	defer answer.Free()
	got := s.ep.StartRecv(answer, 2)
	must(s.ep.SendBytes(soon(), p, 1))
	m := value(got.Wait(soon()))
	return append([]byte(nil), answer.Bytes()[:m.Length]...), m
}

// end closes: nothing may be left.
func (s *side) end() {
	must(s.ep.Close(soon()))
	check(s.x.InFlight() == 0 && s.x.Orphans() == 0, s.x.InFlight(), s.x.Orphans())
	must(s.x.Close())
	check(s.x.Close() != nil, "closed twice")
}

func connect(address string) {
	s := open(address, nil)
	info := s.ep.Info()
	check(info.Open && info.PeerPID > 1 && s.key.Len() == region && s.key.Rights() == all, info)
	check(info.Backend != "" && info.Provider != "" && info.PassedOver == "", info)
	_, err := s.x.Connect(soon(), "127.0.0.1:1", nil)
	var e *xport.Error
	check(errors.As(err, &e), err)
	check(e.Operation == "xport_connect" && e.Text != "" && e.Hint != "" && e.Status == xport.ErrRefused, e)
	is(err, xport.ErrRefused)
	is(err, syscall.ECONNREFUSED)
	_, err = s.x.Connect(gone(), address, nil)
	is(err, context.Canceled)
	_, err = s.x.Connect(soon(), "nowhere", nil)
	is(err, xport.ErrAddress)
	s.end()
	check(!s.ep.Info().Open)
	<-s.ep.Done()
	is(s.ep.Err(), xport.ErrClosed)
	_, err = s.x.Buffer(8)
	is(err, xport.ErrClosed)
	is(s.ep.Flush(soon()), xport.ErrClosed)
	_, err = xport.Open(&xport.Options{Backend: "nothing"})
	check(errors.As(err, &e) && e.Status == xport.ErrNoBackend && e.Text != "", err)
}

func put(address string) {
	s := open(address, nil)
	buf := s.buffer(pattern(1, 300001))
	must(s.ep.Put(soon(), buf, s.key, 17))
	check(bytes.Equal(buf.Bytes(), pattern(1, 300001)))
	must(s.ep.Fence())
	memory := value(s.x.Alloc(4096, 0))
	value(memory.WriteAt(pattern(2, 8), 100))
	must(s.ep.Put(soon(), value(memory.Buffer(100, 8)), s.key, 400000))
	must(s.ep.Flush(soon()))
	must(s.ep.Get(soon(), buf, s.key, 17))
	check(bytes.Equal(buf.Bytes(), pattern(1, 300001)))
	buf.SetLen(8)
	must(s.ep.Get(soon(), buf, s.key, 400000))
	check(bytes.Equal(buf.Bytes(), pattern(2, 8)))
	must(memory.Close(soon()))
	is(memory.Close(soon()), xport.ErrClosed)
	buf.Free()
	refused(func() { buf.Bytes() })
	is(s.ep.Put(soon(), buf, s.key, 0), xport.ErrInUse)

	var wg sync.WaitGroup
	for i := 0; i < 50; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			must(s.ep.Write(soon(), pattern(i, 5000), s.key, uint64(5000*i)))
		}(i)
	}
	wg.Wait()
	got := make([]byte, 250000)
	must(s.ep.Read(soon(), got, s.key, 0))
	for i := 0; i < 50; i++ {
		check(bytes.Equal(got[5000*i:5000*i+5000], pattern(i, 5000)), i)
	}
	s.end()
}

// refused expects the panic of a buffer that is not the caller's.
func refused(f func()) {
	defer func() {
		err, ok := recover().(error)
		check(ok && errors.Is(err, xport.ErrInUse), err)
	}()
	f()
}

func get(address string) {
	s := open(address, nil)
	data := pattern(3, 70001)
	check(value(s.key.WriteAt(data, 5)) == len(data))
	got := make([]byte, len(data))
	check(value(s.key.ReadAt(got, 5)) == len(data) && bytes.Equal(got, data))
	// As standard readers use it.
	got = value(io.ReadAll(io.NewSectionReader(s.key, 5, 70001)))
	check(bytes.Equal(got, data))
	n, err := s.key.ReadAt(make([]byte, 100), region-10)
	check(n == 10 && err == io.EOF, n, err)
	n, err = s.key.ReadAt(make([]byte, 1), region)
	check(n == 0 && err == io.EOF, n, err)
	_, err = s.key.WriteAt(make([]byte, 100), region-10)
	is(err, xport.ErrBounds)
	_, err = s.key.ReadAt(nil, -1)
	is(err, xport.ErrBounds)
	// Several pieces, each of 1 MiB at most.
	whole := pattern(4, region)
	must(s.ep.Write(soon(), whole, s.key, 0))
	got = make([]byte, region)
	must(s.ep.Read(soon(), got, s.key, 0))
	check(bytes.Equal(got, whole))

	memory := value(s.x.Alloc(100000, all))
	part := value(memory.Buffer(7, len(data)))
	must(s.ep.Get(soon(), part, s.key, 0))
	got = make([]byte, len(data))
	check(value(memory.ReadAt(got, 7)) == len(data) && bytes.Equal(got, whole[:len(data)]))
	check(bytes.Equal(memory.Bytes()[7:7+len(data)], got))
	_, err = memory.Buffer(1, 100000)
	is(err, xport.ErrBounds)
	_, err = memory.Word(4)
	is(err, xport.ErrInvalid)
	atomic.StoreUint64(value(memory.Word(8)), 77)
	check(binary.LittleEndian.Uint64(memory.Bytes()[8:]) == 77)
	must(memory.Close(soon()))
	is(s.ep.Get(soon(), part, s.key, 0), xport.ErrClosed)
	s.end()
}

func notify(address string) {
	s := open(address, nil)
	must(s.ep.PutNotify(soon(), s.buffer(pattern(4, 4099)), s.key, 1000, 0xfeedfacecafebeef))
	got, _ := s.ask([]byte("N"))
	check(bytes.Equal(got, word(0xfeedfacecafebeef)), got)
	s.end()
}

func atomics(address string) {
	s := open(address, nil)
	must(s.ep.Write(soon(), word(100), s.key, 800))
	must(s.ep.Fence())
	change := func(op xport.AtomicOp, operand, old uint64) {
		got := value(s.ep.Atomic(soon(), op, s.key, 800, operand))
		check(got == old, op, got, old)
	}
	change(xport.Add, 41, 100)
	check(value(s.ep.CompareAndSwap(soon(), s.key, 800, 141, 7)) == 141)
	check(value(s.ep.CompareAndSwap(soon(), s.key, 800, 141, 8)) == 7)
	change(xport.Or, 8, 7)
	change(xport.And, 9, 15)
	change(xport.Xor, 1, 9)
	change(xport.Swap, 1, 8)
	_, err := s.ep.Atomic(soon(), xport.Add, s.key, 801, 1)
	is(err, xport.ErrInvalid)
	// The results of operations that are in flight together do not mix.
	must(s.ep.Write(soon(), word(0), s.key, 800))
	var sum uint64
	var wg sync.WaitGroup
	for i := 0; i < 100; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			atomic.AddUint64(&sum, value(s.ep.Atomic(soon(), xport.Add, s.key, 800, 1)))
		}()
	}
	wg.Wait()
	check(sum == 99*100/2, sum)
	s.end()
}

func reversed(p []byte) []byte {
	r := make([]byte, len(p))
	for i := range p {
		r[len(p)-1-i] = p[i]
	}
	return r
}

func messages(address string) {
	s := open(address, nil)
	for _, n := range []int{1, 100, 0, 5000, 200003} {
		data := pattern(5, n)
		got, m := s.ask(data)
		check(bytes.Equal(got, reversed(data)) && m.Tag == 2 && m.Length == n && m.Endpoint == s.ep, n, m)
	}
	short := value(s.x.Buffer(3))
	answer := s.ep.StartRecv(short, 2)
	must(s.ep.SendBytes(soon(), []byte("abcde"), 1))
	m, err := answer.Wait(soon())
	is(err, xport.ErrTruncated)
	check(m.Length == 5 && string(short.Bytes()) == "edc", m)
	s.end()
}

// address returns where the memory of a buffer is.
func address(b *xport.Buffer) uintptr { return uintptr(unsafe.Pointer(&b.Bytes()[0])) }

func cancel(at string) {
	s := open(at, nil)
	// None of these takes the answer below.
	var buf *xport.Buffer
	var err error
	prompt("a receive", func() {
		buf = value(s.x.Buffer(watched))
		_, err := s.ep.Recv(within(20*time.Millisecond), buf, 2)
		is(err, context.DeadlineExceeded)
	})
	refused(func() { buf.Bytes() })
	buf.Free() // does nothing
	ctx, stop := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, stop)
	_, err = s.x.Recv(ctx, value(s.x.Buffer(watched)), 2, ^uint64(0))
	is(err, context.Canceled)
	operation := s.ep.StartRecv(value(s.x.Buffer(watched)), 2)
	_, err = operation.Wait(gone())
	is(err, context.Canceled)
	_, err = operation.Wait(soon())
	is(err, xport.ErrInvalid)
	buf = value(s.x.Buffer(8))
	is(s.ep.Put(gone(), buf, s.key, 0), context.Canceled)
	is(s.ep.Put(soon(), buf, s.key, 0), xport.ErrInUse)
	got, _ := s.ask([]byte("ab"))
	check(string(got) == "ba", got)
	must(s.ep.Flush(soon()))
	settled(s)

	// A buffer in flight is refused, whichever operation asks.
	buf = value(s.x.Buffer(100))
	operation = s.ep.StartRecv(buf, 99)
	is(s.ep.Send(soon(), buf, 1), xport.ErrInUse)
	refused(func() { buf.Bytes() })
	_, err = operation.Wait(gone())
	is(err, context.Canceled)
	settled(s)

	// Abandoned in the middle: memory that was reused too early would change what arrives.
	for i := 0; i < 1000; i++ {
		put := s.ep.StartPut(s.buffer(pattern(i, watched)), s.key, 0)
		fetch := s.ep.StartGet(value(s.x.Buffer(watched)), s.key, 0)
		put.Wait(within(time.Duration(i%50) * time.Microsecond))
		fetch.Wait(gone())
		junk := s.buffer(bytes.Repeat([]byte{0xdd}, watched))
		if i%100 == 99 {
			must(s.ep.Flush(soon()))
			got := make([]byte, watched)
			must(s.ep.Read(soon(), got, s.key, 0))
			check(bytes.Equal(got, pattern(i, watched)), i)
		}
		junk.Free()
	}
	must(s.ep.Flush(soon()))
	settled(s)
	s.end()
}

// settled waits until no orphan is left.
func settled(s *side) {
	for end := time.Now().Add(limit); s.x.Orphans() > 0; time.Sleep(100 * time.Microsecond) {
		check(time.Now().Before(end), s.x.Orphans(), "orphans are not complete in time")
	}
}

func wrong_key(address string) {
	s := open(address, nil)
	_, err := s.ep.Unpack(make([]byte, 64))
	var e *xport.Error
	check(errors.As(err, &e) && e.Status == xport.ErrBadKey && e.Text != "", err)
	_, err = s.ep.Unpack(nil)
	is(err, xport.ErrBadKey)
	buf := s.buffer(pattern(7, 8))
	err = s.ep.Put(soon(), buf, s.key, region-7)
	check(errors.As(err, &e) && e.Status == xport.ErrBounds && e.Text != "" && e.Operation == "xport_put", err)
	check(bytes.Equal(buf.Bytes(), pattern(7, 8))) // it is the caller's still
	other := value(s.x.Connect(soon(), s.ep.Info().Peer, nil))
	is(other.Put(soon(), buf, s.key, 0), xport.ErrInvalid)
	must(s.key.Close())
	is(s.ep.Put(soon(), buf, s.key, 0), xport.ErrInvalid)
	s.end()
}

func again(address string) {
	s := open(address, &xport.Options{QueueDepth: 4})
	var started []*xport.Operation
	for {
		buf := s.buffer([]byte{7})
		operation, err := s.ep.TryPut(buf, s.key, 8)
		if err != nil {
			is(err, xport.ErrAgain)
			is(err, syscall.EAGAIN)
			check(len(started) >= 4 && buf.Bytes()[0] == 7, len(started))
			break
		}
		started = append(started, operation)
		check(len(started) < 100000) // another goroutine reaps meanwhile
	}
	for i := 0; i < 200; i++ {
		started = append(started, s.ep.StartPut(s.buffer(word(uint64(i))), s.key, 8))
	}
	for _, operation := range started {
		value(operation.Wait(soon()))
	}
	got := make([]byte, 8)
	must(s.ep.Read(soon(), got, s.key, 8))
	check(bytes.Equal(got, word(199)), got)
	var wg sync.WaitGroup
	for i := 0; i < 200; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			err := s.ep.Write(within(time.Duration(i)*10*time.Microsecond), word(1), s.key, 16)
			check(err == nil || errors.Is(err, context.DeadlineExceeded), err)
			must(s.ep.Write(soon(), word(1), s.key, 8))
		}(i)
	}
	wg.Wait()
	must(s.ep.Flush(soon()))
	settled(s)
	s.end()
}

func fork(address string) {
	s := open(address, nil)
	status := C.put_in_child(s.ep.Handle(), s.key.Handle())
	check(status == C.XPORT_ERR_FORK, status)
	is(xport.Status(status), xport.ErrFork)
	// Go's own way, fork and exec at once, leaves the instance alone.
	must(exec.Command("true").Run())
	must(s.ep.Write(soon(), word(1), s.key, 0))
	s.end()
}

// stops waits until each thread of the process has stopped: kill only asks for it, and a thread that runs may answer still.
func stops(pid int) {
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		running := false
		for _, file := range value(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))) {
			stat := string(value(os.ReadFile(file)))
			running = running || stat[strings.LastIndex(stat, ")")+2] != 'T'
		}
		if !running {
			return
		}
		check(time.Now().Before(end), "the process does not stop")
	}
}

func lost(at string, signal syscall.Signal, count int) {
	// Else a get from memory that is mapped here completes beside a stopped peer.
	s := open(at, &xport.Options{Emulate: "get"})
	pid := s.ep.Info().PeerPID
	waiting := s.ep.StartRecv(value(s.x.Buffer(100)), 2)
	must(syscall.Kill(pid, signal))
	if signal == syscall.SIGSTOP {
		stops(pid)
	}
	mine := map[uintptr]bool{}
	for i := 0; i < count; i++ {
		buf := value(s.x.Buffer(watched))
		mine[address(buf)] = true
		_, err := s.ep.StartGet(buf, s.key, 0).Wait(gone())
		if signal == syscall.SIGKILL && !errors.Is(err, context.Canceled) {
			is(err, xport.ErrPeerLost) // noticed at once, so that the buffer is the caller's still
			buf.Free()
			continue
		}
		is(err, context.Canceled)
	}
	if signal == syscall.SIGSTOP {
		// The memory in flight is in no other buffer.
		check(s.x.Orphans() == count && len(mine) == count, s.x.Orphans(), len(mine))
		for i := 0; i < 10; i++ {
			buf := value(s.x.Buffer(watched))
			check(!mine[address(buf)])
			defer buf.Free()
		}
	}
	begun := time.Now()
	_, err := waiting.Wait(soon())
	is(err, xport.ErrPeerLost)
	is(err, syscall.ECONNRESET)
	settled(s)
	took := time.Since(begun)
	check(took < value(s.x.Info()).PeerTimeout*3/2 || starved(begun), took)
	check(s.x.InFlight() == 0, s.x.InFlight())
	buf := value(s.x.Buffer(watched))
	check(mine[address(buf)], "the memory was not freed")
	e := value(s.x.Event(soon()))
	check(e.Type == xport.PeerLost && e.Endpoint == s.ep && errors.Is(e.Err, xport.ErrPeerLost), e)
	<-s.ep.Done()
	is(s.ep.Err(), xport.ErrPeerLost)
	is(s.ep.Put(soon(), buf, s.key, 0), xport.ErrPeerLost)
	is(s.ep.Close(soon()), xport.ErrPeerLost)
	must(s.x.Close())
	syscall.Kill(pid, syscall.SIGKILL)
}

func main() {
	scenarios := map[string]func(string){
		"connect": connect, "put": put, "get": get, "notify": notify, "atomics": atomics, "messages": messages,
		"cancel": cancel, "deadline": deadline, "wrong_key": wrong_key, "again": again, "fork": fork, "wakeups": wakeups, "race": race,
		"rpc": rpc, "call": call, "echo": echo, "closing": closing, "hold": hold, "reconnect": reconnect, "flood": flood, "churn": churn,
		"stuck": stuck, "copies": copies, "regions": regions, "sleepers": sleepers, "receives": receives,
		"arguments": arguments, "replies": replies, "failing": failing, "lends": lends,
		"kill":    func(address string) { lost(address, syscall.SIGKILL, 100) },
		"stop":    func(address string) { lost(address, syscall.SIGSTOP, 100) },
		"cancels": func(address string) { lost(address, syscall.SIGSTOP, 10000) },
	}
	go metronome()
	if os.Args[1] == "serve" {
		serve()
	}
	for _, name := range os.Args[2:] {
		scenarios[name](os.Args[1])
		fmt.Println("ok", name)
	}
}
