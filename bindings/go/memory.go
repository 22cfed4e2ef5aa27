// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Rights say what peers may do with a region by means of its key. They are combined by |.
type Rights uint32

const (
	RemoteRead   Rights = C.XPORT_REMOTE_READ   // peers may get from it
	RemoteWrite  Rights = C.XPORT_REMOTE_WRITE  // peers may put to it
	RemoteAtomic Rights = C.XPORT_REMOTE_ATOMIC // peers may use atomics on it
	AtomicNIC    Rights = C.XPORT_ATOMIC_NIC    // with RemoteAtomic: the network adapter may apply the atomics
	RemoteRecv   Rights = C.XPORT_REMOTE_RECV   // long messages may be placed directly: see xport.h
)

// block is memory of C that one Buffer at a time may use.
type block struct {
	base   unsafe.Pointer
	size   int
	pool   *C.xport_mr // the region of a block of the pool
	region *Region     // or the region that it is a part of
	// The generation of the Buffer that it belongs to, times 2; plus 1 while the caller may use it.
	state atomic.Uint64
}

func (b *block) mr() *C.xport_mr {
	if b.region != nil {
		return b.region.mr
	}
	return b.pool
}

// Buffer is the memory of an operation: C memory that is registered. It belongs to its caller, or to an operation.
//
// An operation takes it, and gives it back when it has completed. If the context ended first, the Buffer is gone: each
// use of it is refused, and its memory returns to the package when the operation completes.
type Buffer struct {
	x          *Instance
	b          *block
	generation uint64
	length     int
}

// Len returns the number of bytes that operations use.
func (b *Buffer) Len() int { return b.length }

// Cap returns the number of bytes that the memory has.
func (b *Buffer) Cap() int { return b.b.size }

// Bytes returns the memory. The slice is valid until the next operation on the Buffer, or Free. It panics with
// ErrInUse if the Buffer is in flight, or no longer the caller's, and if its Region or Instance is closed.
func (b *Buffer) Bytes() []byte {
	b.mustOwn()
	return b.bytes()
}

func (b *Buffer) mustOwn() {
	if b.x.gone.Load() || b.b.state.Load() != b.generation<<1|1 || b.b.region != nil && b.b.region.closed.Load() {
		panic(ErrInUse)
	}
}

// bytes is Bytes for callers that own the buffer and hold the instance.
func (b *Buffer) bytes() []byte { return unsafe.Slice((*byte)(b.b.base), b.b.size)[:b.length:b.length] }

// copyIn copies to the buffer, and copyOut from it. The caller owns it. They fail if the instance is closed.
func (b *Buffer) copyIn(p []byte) error {
	if err := b.x.hold(); err != nil {
		return err
	}
	defer b.x.release()
	copy(b.bytes(), p)
	return nil
}

func (b *Buffer) copyOut(p []byte) error {
	if err := b.x.hold(); err != nil {
		return err
	}
	defer b.x.release()
	copy(p, b.bytes())
	return nil
}

// SetLen changes the length. It panics if n is not from 0 to Cap, and with ErrInUse as Bytes does.
func (b *Buffer) SetLen(n int) {
	b.mustOwn()
	if n < 0 || n > b.b.size {
		panic(fmt.Sprintf("xport: SetLen(%d) of a Buffer with a capacity of %d bytes", n, b.b.size))
	}
	b.length = n
}

// Free gives the memory back, for other Buffers. Of a Buffer that is not the caller's it does nothing.
func (b *Buffer) Free() {
	if !b.b.state.CompareAndSwap(b.generation<<1|1, b.generation<<1) {
		return
	}
	b.x.mu.Lock()
	defer b.x.mu.Unlock()
	b.x.pool.reclaim(b)
}

// checkOut takes the buffer from its caller, for an operation of x.
func (b *Buffer) checkOut(x *Instance) error {
	if b.x != x {
		return refuse(ErrInvalid, "Buffer", "the buffer belongs to another instance", "")
	}
	if b.b.region != nil && b.b.region.mr == nil {
		return b.b.region.closedError()
	}
	if !b.b.state.CompareAndSwap(b.generation<<1|1, b.generation<<1) {
		return ErrInUse
	}
	return nil
}

// checkIn gives the buffer back to its caller.
func (b *Buffer) checkIn() { b.b.state.Store(b.generation<<1 | 1) }

// ---- the pool ----

const (
	smallest = 6  // 64 bytes: the sizes are powers of two
	largest  = 20 // 1 MiB: longer blocks have a region of their own
)

// pool has the blocks of an instance by size. Registering memory takes long: it is never given back before Close.
type pool struct {
	x      *Instance
	unused map[int][]*block
	slabs  map[int]slab
}

// slab is registered memory of which the first bytes are blocks already.
type slab struct {
	mr   *C.xport_mr
	base unsafe.Pointer
	used int
}

// sizeFor returns the size of the block for n bytes.
func sizeFor(n int) int {
	switch {
	case n <= 1<<smallest:
		return 1 << smallest
	case n <= 1<<largest:
		return 1 << bits.Len(uint(n-1))
	}
	return (n + 1<<largest - 1) &^ (1<<largest - 1)
}

// take returns a block. The caller holds mu.
func (p *pool) take(n int) (*block, error) {
	size := sizeFor(n)
	if list := p.unused[size]; len(list) > 0 {
		p.unused[size] = list[:len(list)-1]
		return list[len(list)-1], nil
	}
	if p.slabs == nil {
		p.slabs, p.unused = map[int]slab{}, map[int][]*block{}
	}
	s := p.slabs[size]
	if s.mr == nil || s.used+size > 1<<largest {
		length := 1 << largest
		if size > length {
			length = size
		}
		s = slab{}
		status := C.xport_mr_alloc(p.x.g.x, C.size_t(length), 0, &s.mr)
		if err := p.x.must(C.xpg_failed(p.x.g, status), "xport_mr_alloc"); err != nil {
			return nil, err
		}
		s.base = C.xpg_mr_base(s.mr)
	}
	b := &block{base: unsafe.Add(s.base, s.used), size: size, pool: s.mr}
	s.used += size
	p.slabs[size] = s
	return b, nil
}

// reclaim takes a block back that no operation uses. The caller holds mu.
func (p *pool) reclaim(b *Buffer) {
	if b.b.region == nil && b.b.state.Load() == b.generation<<1 {
		b.b.state.Store((b.generation + 1) << 1)
		p.unused[b.b.size] = append(p.unused[b.b.size], b.b)
	}
}

// Buffer returns a Buffer of n bytes, whose content is undefined.
func (x *Instance) Buffer(n int) (*Buffer, error) {
	if n < 0 {
		return nil, refuse(ErrInvalid, "Buffer", fmt.Sprintf("a buffer of %d bytes", n), "Ask for 0 or more.")
	}
	if n > math.MaxInt-1<<largest {
		return nil, refuse(ErrNoMemory, "Buffer", fmt.Sprintf("a buffer of %d bytes", n), "Ask for less.")
	}
	if err := x.enter(); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	return x.buffer(n)
}

func (x *Instance) buffer(n int) (*Buffer, error) {
	block, err := x.pool.take(n)
	if err != nil {
		return nil, err
	}
	b := &Buffer{x: x, b: block, generation: block.state.Load() >> 1, length: n}
	b.checkIn()
	return b, nil
}

// BufferOf returns a Buffer with a copy of p.
func (x *Instance) BufferOf(p []byte) (*Buffer, error) {
	b, err := x.Buffer(len(p))
	if err != nil {
		return nil, err
	}
	if err := b.copyIn(p); err != nil {
		return nil, err
	}
	return b, nil
}

// ---- regions ----

// Region is registered memory that peers may access, if it grants the rights and they have its key. It is an
// io.ReaderAt and an io.WriterAt of this process.
type Region struct {
	x      *Instance
	mr     *C.xport_mr // nil: closed
	closed atomic.Bool // the same, for those that do not hold mu
	base   unsafe.Pointer
	length int
	loans  int // calls that lend it
}

// Alloc allocates a region: zeroed memory, the fastest that the back end offers. Close frees it.
func (x *Instance) Alloc(n int, rights Rights) (*Region, error) {
	if err := x.enter(); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	r := &Region{x: x, length: n}
	if n < 0 {
		return nil, refuse(ErrInvalid, "xport_mr_alloc", fmt.Sprintf("a region of %d bytes", n), "Ask for 1 or more.")
	}
	status := C.xport_mr_alloc(x.g.x, C.size_t(n), C.uint32_t(rights), &r.mr)
	if err := x.must(C.xpg_failed(x.g, status), "xport_mr_alloc"); err != nil {
		return nil, err
	}
	r.base = C.xpg_mr_base(r.mr)
	x.regions[uint64(uintptr(unsafe.Pointer(r.mr)))] = r
	return r, nil
}

// enter locks the instance if the region is open.
func (r *Region) enter() error {
	if err := r.x.enter(); err != nil {
		return err
	}
	if r.mr == nil {
		r.x.mu.Unlock()
		return r.closedError()
	}
	return nil
}

func (r *Region) closedError() error { return refuse(ErrClosed, "Region", "the region is closed", "") }

// Len returns the number of bytes.
func (r *Region) Len() int { return r.length }

// Key returns the packed key, for peers: as the private data of a connection, or in a message.
func (r *Region) Key() ([]byte, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.x.mu.Unlock()
	key := make([]byte, C.XPG_KEY_MAX)
	n := C.size_t(len(key))
	status := C.xport_rkey_pack(r.mr, unsafe.Pointer(&key[0]), &n)
	if err := r.x.must(C.xpg_failed(r.x.g, status), "xport_rkey_pack"); err != nil {
		return nil, err
	}
	return key[:n], nil
}

// Bytes returns the memory, which is valid until Close. What peers may write is read reliably after a notification or
// a message only. Words that peers change by atomics are for sync/atomic: see Word.
func (r *Region) Bytes() []byte {
	if err := r.enter(); err != nil {
		panic(err)
	}
	defer r.x.mu.Unlock()
	return unsafe.Slice((*byte)(r.base), r.length)
}

// Word returns the word of 8 bytes at an offset, for sync/atomic. It is valid until Close.
func (r *Region) Word(offset int) (*uint64, error) {
	if err := r.check(offset, 8); err != nil {
		return nil, err
	}
	if offset%8 != 0 {
		return nil, refuse(ErrInvalid, "Word", fmt.Sprintf("offset %d is not aligned", offset), "Use a multiple of 8.")
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.x.mu.Unlock()
	return (*uint64)(unsafe.Add(r.base, offset)), nil
}

func (r *Region) check(offset, n int) error {
	if offset < 0 || n < 0 || offset > r.length || n > r.length-offset {
		return refuse(ErrBounds, "Region", fmt.Sprintf("%d bytes at %d are not in a region of %d bytes", n, offset, r.length), "")
	}
	return nil
}

// ReadAt copies bytes out of the region. While a peer writes, old and new bytes may be mixed.
func (r *Region) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, refuse(ErrBounds, "Region", fmt.Sprintf("offset %d", offset), "")
	}
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.x.mu.Unlock()
	if offset > int64(r.length) {
		return 0, io.EOF
	}
	n := copy(p, unsafe.Slice((*byte)(r.base), r.length)[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies bytes into the region.
func (r *Region) WriteAt(p []byte, offset int64) (int, error) {
	if offset < 0 || offset > int64(r.length) || len(p) > r.length-int(offset) {
		return 0, refuse(ErrBounds, "Region", fmt.Sprintf("%d bytes at %d are not in a region of %d bytes", len(p), offset, r.length), "")
	}
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.x.mu.Unlock()
	return copy(unsafe.Slice((*byte)(r.base), r.length)[offset:], p), nil
}

// Buffer returns a part of the region as a Buffer for operations. Its Free does nothing.
func (r *Region) Buffer(offset, n int) (*Buffer, error) {
	if err := r.check(offset, n); err != nil {
		return nil, err
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.x.mu.Unlock()
	b := &Buffer{x: r.x, b: &block{base: unsafe.Add(r.base, offset), size: n, region: r}, length: n}
	b.checkIn()
	return b, nil
}

// Close ends the registration, and frees the memory, when no peer can access it, and when the operations that use it have
// completed. Operations that still wait for space in a queue fail with ErrClosed. It fails with ErrBusy if posted receives
// use the region, or a call lends it.
//
// A peer that does not answer makes that last until the peer is lost. If the context ends first, Close returns ctx.Err(),
// and the rest goes on without the caller. Instance.Close ends it.
func (r *Region) Close(ctx context.Context) error {
	if err := r.enter(); err != nil {
		return err
	}
	x, mr := r.x, r.mr
	if r.loans > 0 {
		x.mu.Unlock()
		return refuse(ErrBusy, "xport_mr_dereg", "a call lends the region to its callee", "Wait for the end of the Loan.")
	}
	address := uint64(uintptr(unsafe.Pointer(mr)))
	r.mr = nil
	r.closed.Store(true)
	delete(x.regions, address) // another region may get the address before this continues
	x.inside.Add(1)
	x.mu.Unlock()
	result := make(chan error, 1)
	go func() {
		status := C.xport_mr_dereg(mr) // may wait
		x.mu.Lock()
		defer x.mu.Unlock()
		defer x.release()
		if status < 0 {
			r.mr = mr
			r.closed.Store(false)
			x.regions[address] = r
		}
		result <- x.must(C.xpg_failed(x.g, status), "xport_mr_dereg")
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
