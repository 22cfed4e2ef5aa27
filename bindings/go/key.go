// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"io"
	"unsafe"
)

// RemoteKey is the key of a peer's region, on one endpoint. It is an io.ReaderAt and an io.WriterAt over that region.
type RemoteKey struct {
	x      *Instance
	ep     *Endpoint
	c      *C.xport_rkey // nil: closed
	length uint64
	rights Rights
}

// Unpack makes a peer's key usable on this endpoint. Any bytes may be passed.
func (ep *Endpoint) Unpack(key []byte) (*RemoteKey, error) {
	x := ep.x
	if err := x.enter(); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	if ep.c == nil {
		return nil, ep.closedError("xport_rkey_unpack")
	}
	k := &RemoteKey{x: x, ep: ep}
	p, n := bytesForC(key)
	status := C.xport_rkey_unpack(ep.c, unsafe.Pointer(&p[0]), n, &k.c)
	if err := x.must(C.xpg_failed(x.g, status), "xport_rkey_unpack"); err != nil {
		return nil, err
	}
	var i C.struct_xport_rkey_info
	i.size = C.size_t(unsafe.Sizeof(i))
	if err := x.must(C.xpg_failed(x.g, C.xport_rkey_query(k.c, &i)), "xport_rkey_query"); err != nil {
		return nil, err
	}
	k.length, k.rights = uint64(i.length), Rights(i.rights)
	ep.keys[k] = struct{}{}
	return k, nil
}

// Len returns the number of bytes of the region.
func (k *RemoteKey) Len() uint64 { return k.length }

// Rights returns what the region grants.
func (k *RemoteKey) Rights() Rights { return k.rights }

// Close frees the key. Operations in flight go on. Endpoint.Close does the same for all keys of the endpoint.
func (k *RemoteKey) Close() error {
	if err := k.x.enterFailed(); err != nil {
		return err
	}
	defer k.x.mu.Unlock()
	k.close()
	return nil
}

func (k *RemoteKey) close() {
	C.xport_rkey_destroy(k.c)
	k.c = nil
	delete(k.ep.keys, k)
}

// Handle returns the key as a pointer to struct xport_rkey, for C code that is in the same program.
func (k *RemoteKey) Handle() unsafe.Pointer {
	if err := k.x.enter(); err != nil {
		return nil
	}
	defer k.x.mu.Unlock()
	return unsafe.Pointer(k.c)
}

// ---- slices of Go, which are copied ----

const pieceMax = 1 << 20

// Write copies p into the remote region, by way of buffers of the package: p may be used again at any time.
func (ep *Endpoint) Write(ctx context.Context, p []byte, key *RemoteKey, offset uint64) error {
	_, err := ep.copy(ctx, p, key, offset, true)
	return err
}

// Read copies bytes of the remote region into p. If the context ends first, p is not written to later.
func (ep *Endpoint) Read(ctx context.Context, p []byte, key *RemoteKey, offset uint64) error {
	_, err := ep.copy(ctx, p, key, offset, false)
	return err
}

// copy moves pieces of at most pieceMax bytes. Returns how many bytes were moved.
func (ep *Endpoint) copy(ctx context.Context, p []byte, key *RemoteKey, offset uint64, write bool) (int, error) {
	for n := 0; ; {
		piece := p[n:]
		if len(piece) > pieceMax {
			piece = piece[:pieceMax]
		}
		buf, err := ep.x.Buffer(len(piece))
		if err != nil {
			return n, err
		}
		if write {
			if err = buf.copyIn(piece); err == nil {
				err = ep.Put(ctx, buf, key, offset+uint64(n))
			}
		} else if err = ep.Get(ctx, buf, key, offset+uint64(n)); err == nil {
			err = buf.copyOut(piece)
		}
		buf.Free()
		if err != nil {
			return n, err
		}
		if n += len(piece); n == len(p) {
			return n, nil
		}
	}
}

// SendBytes sends a copy of p.
func (ep *Endpoint) SendBytes(ctx context.Context, p []byte, tag uint64) error {
	buf, err := ep.x.BufferOf(p)
	if err != nil {
		return err
	}
	defer buf.Free()
	return ep.Send(ctx, buf, tag)
}

// RecvBytes receives a message of at most max bytes, and returns a copy of it.
func (ep *Endpoint) RecvBytes(ctx context.Context, max int, tag uint64) ([]byte, error) {
	buf, err := ep.x.Buffer(max)
	if err != nil {
		return nil, err
	}
	defer buf.Free()
	m, err := ep.Recv(ctx, buf, tag)
	if err != nil {
		return nil, err
	}
	p := make([]byte, m.Length)
	return p, buf.copyOut(p)
}

// ReadAt reads from the remote region: io.ReaderAt. Endpoint.Read takes a context.
func (k *RemoteKey) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, refuse(ErrBounds, "ReadAt", fmt.Sprintf("offset %d", offset), "")
	}
	if uint64(offset) >= k.length && len(p) > 0 {
		return 0, io.EOF
	}
	short := uint64(len(p)) > k.length-uint64(offset)
	if short {
		p = p[:k.length-uint64(offset)]
	}
	n, err := k.ep.copy(context.Background(), p, k, uint64(offset), false)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// WriteAt writes to the remote region: io.WriterAt. Endpoint.Write takes a context.
func (k *RemoteKey) WriteAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, refuse(ErrBounds, "WriteAt", fmt.Sprintf("offset %d", offset), "")
	}
	return k.ep.copy(context.Background(), p, k, uint64(offset), true)
}
