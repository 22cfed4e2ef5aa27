// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import (
	"context"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// Status says why a call or an operation failed. It is an error by itself: errors.Is(err, xport.ErrPeerLost).
// xport_status(7) has the usual cause of each.
type Status int32

const (
	ErrAgain        Status = C.XPORT_ERR_AGAIN         // the queue is full
	ErrInvalid      Status = C.XPORT_ERR_INVALID       // an argument or call that is not allowed
	ErrNoMemory     Status = C.XPORT_ERR_NO_MEMORY     // out of memory, or over the limit of locked memory
	ErrNotSupported Status = C.XPORT_ERR_NOT_SUPPORTED // not supported by this back end or build
	ErrConfig       Status = C.XPORT_ERR_CONFIG        // a bad value in the environment or in Options
	ErrNoBackend    Status = C.XPORT_ERR_NO_BACKEND    // no back end has that name, or none is usable
	ErrFault        Status = C.XPORT_ERR_FAULT         // memory is not mapped, or does not allow the access
	ErrBounds       Status = C.XPORT_ERR_BOUNDS        // outside the remote region; or too long
	ErrAccess       Status = C.XPORT_ERR_ACCESS        // the remote region does not grant the right
	ErrStaleKey     Status = C.XPORT_ERR_STALE_KEY     // the region was closed, or its process has ended
	ErrBadKey       Status = C.XPORT_ERR_BAD_KEY       // damaged bytes, or not a key
	ErrTruncated    Status = C.XPORT_ERR_TRUNCATED     // the message was longer than its buffer
	ErrCanceled     Status = C.XPORT_ERR_CANCELED      // the operation was cancelled
	ErrPeerLost     Status = C.XPORT_ERR_PEER_LOST     // the peer died, was suspended for too long, or is cut off
	ErrPeerClosed   Status = C.XPORT_ERR_PEER_CLOSED   // the peer closed the endpoint
	ErrClosed       Status = C.XPORT_ERR_CLOSED        // this side closed the endpoint, listener, region or instance
	ErrTimeout      Status = C.XPORT_ERR_TIMEOUT       // a time limit expired
	ErrRefused      Status = C.XPORT_ERR_REFUSED       // nobody listens there, or the peer refused the connection
	ErrUnreachable  Status = C.XPORT_ERR_UNREACHABLE   // no route, or a name that does not resolve
	ErrIncompatible Status = C.XPORT_ERR_INCOMPATIBLE  // the peer runs another back end, provider or version
	ErrAddress      Status = C.XPORT_ERR_ADDRESS       // malformed, or an address that cannot be bound
	ErrAuth         Status = C.XPORT_ERR_AUTH          // authentication is missing or failed
	ErrFork         Status = C.XPORT_ERR_FORK          // called in a forked child
	ErrSystem       Status = C.XPORT_ERR_SYSTEM        // a system call failed
	ErrProtocol     Status = C.XPORT_ERR_PROTOCOL      // the peer violated the protocol
	ErrBusy         Status = C.XPORT_ERR_BUSY          // posted receives use the region; or the callee has too many calls
)

// Error returns the text of the status.
func (s Status) Error() string { return C.GoString(C.xport_strerror(C.int(s))) }

// String returns the name of the status, such as "XPORT_ERR_BOUNDS".
func (s Status) String() string { return C.GoString(C.xport_status_name(C.int(s))) }

// Error is what xport_last_error reports of a failed call; or the status of a failed operation, and why its endpoint
// ended. errors.Is compares it with a Status, and with the errors of the standard library that fit.
type Error struct {
	Status     Status
	Operation  string // the function of the C library, such as "xport_connect"
	Peer       string // the peer that the failure is about, or ""
	Text       string // what went wrong and why, a sentence
	Hint       string // what to do about it, or ""
	NativeCode int64  // errno, or the code of the network's library; 0: none
	Native     string // the name of NativeCode, or ""
}

func (e *Error) Error() string {
	s := "xport: " + e.Operation + ": " + e.Text
	if e.Hint != "" {
		s += " " + e.Hint
	}
	return s
}

// Unwrap returns the status.
func (e *Error) Unwrap() error { return e.Status }

// Is reports whether an error of the standard library means the same.
func (e *Error) Is(target error) bool { return e.Status.Is(target) }

// Is reports whether an error of the standard library means the same.
func (s Status) Is(target error) bool {
	switch s {
	case ErrAgain:
		return target == syscall.EAGAIN
	case ErrNoMemory:
		return target == syscall.ENOMEM
	case ErrAccess, ErrAuth:
		return target == fs.ErrPermission
	case ErrPeerLost:
		return target == syscall.ECONNRESET
	case ErrClosed:
		return target == fs.ErrClosed || target == net.ErrClosed
	case ErrTimeout:
		return target == os.ErrDeadlineExceeded || target == context.DeadlineExceeded
	case ErrRefused:
		return target == syscall.ECONNREFUSED
	case ErrInvalid, ErrBounds, ErrBadKey, ErrAddress:
		return target == fs.ErrInvalid
	}
	return false
}

// Timeout makes it a net.Error as far as time is concerned.
func (e *Error) Timeout() bool { return e.Status == ErrTimeout }

// Temporary reports whether the same call can succeed later: the queue was full.
func (e *Error) Temporary() bool { return e.Status == ErrAgain }

// What to do about an endpoint that could not be connected. The event that reports it has no hint.
var connectHints = map[Status]string{
	ErrRefused:      "Start the listener at this address; the text says who refused.",
	ErrUnreachable:  "Check the name and the route to the address.",
	ErrTimeout:      "Check that the other side runs and polls, or allow more time.",
	ErrIncompatible: "Set XPORT_BACKEND to the same value on both sides.",
	ErrAuth:         "Give both sides the same XPORT_AUTH_KEY_FILE, or XPORT_AUTH=none in a trusted network.",
	ErrProtocol:     "Check that the address is a listener of libxport.",
	ErrPeerLost:     "Check that the other side still runs, and connect again.",
}

func newError(status C.int, operation, text string) *Error {
	if text == "" {
		text = Status(status).Error()
	}
	return &Error{Status: Status(status), Operation: operation, Text: text}
}

// lastError copies the failure that a shim has stored, if it is the one of this status.
func lastError(g *C.struct_xpg, status C.int, operation string) *Error {
	e := &g.error
	if e.status != status {
		return newError(status, operation, "")
	}
	return &Error{
		Status:     Status(status),
		Operation:  C.GoString(&e.operation[0]),
		Peer:       C.GoString(&e.peer[0]),
		Text:       C.GoString(&e.text[0]),
		Hint:       C.GoString(&e.hint[0]),
		NativeCode: int64(e.native_code),
		Native:     C.GoString(&e.native[0]),
	}
}

func refuse(status Status, operation, text, hint string) *Error {
	return &Error{Status: status, Operation: operation, Text: text, Hint: hint}
}

var errInstanceClosed = refuse(ErrClosed, "xport", "the instance is closed", "Open another one.")

// ErrInUse is what a Buffer is refused with that an operation owns, or that its caller has freed or given up.
var ErrInUse error = refuse(ErrInvalid, "Buffer", "an operation owns the buffer, or it was freed or given up",
	"Wait until the operation has returned. After an error of its context the buffer is gone: make another one.")
