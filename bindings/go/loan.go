// SPDX-License-Identifier: BSD-3-Clause

package xport

// #include "shim.h"
import "C"

import "context"

// Loan is memory that a call has lent to its callee. Until it ends, the callee may access the regions, even if the call
// has ended, and Region.Close fails with ErrBusy.
type Loan struct {
	r       *RPC
	regions []*Region
	begun   bool
	ended   chan struct{}
	err     error
}

// Lend is CallWith, and lends regions, whose keys are in the payload. The call cannot be one-way, since its reply ends the
// loan. The Loan is nil if the call was refused: then nothing is lent.
func (r *RPC) Lend(ctx context.Context, ep *Endpoint, method string, payload []byte, options CallOptions,
	regions ...*Region) ([]byte, *Loan, error) {
	l := &Loan{r: r, regions: regions, ended: make(chan struct{})}
	reply, err := r.call(ctx, ep, method, payload, options, l)
	if !l.begun {
		return nil, nil, err
	}
	return reply, l, err
}

// Ended is closed when the loan has ended.
func (l *Loan) Ended() <-chan struct{} { return l.ended }

// Wait waits for the end of the loan. It returns nil if the callee has confirmed that it accesses the regions no longer.
// Otherwise it returns why the callee cannot be heard, or ctx.Err() if the context ends first: then Wait may be called again.
//
// After ErrProtocol, ErrNoMemory, ErrPeerClosed and ErrClosed a handler may still access the regions: close them before
// their memory is used again.
func (l *Loan) Wait(ctx context.Context) error {
	select {
	case <-l.ended:
		return l.err
	default:
	}
	select {
	case <-l.ended:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check fails if a region cannot be lent. The caller holds mu.
func (l *Loan) check() error {
	for _, region := range l.regions {
		if region.x != l.r.x {
			return refuse(ErrInvalid, "xport_rpc_call", "a region belongs to another instance", "")
		}
		if region.mr == nil {
			return region.closedError()
		}
	}
	return nil
}

// begin begins the loan. The caller holds mu.
func (l *Loan) begin() {
	l.begun = true
	for _, region := range l.regions {
		region.loans++
	}
}

// endLoan ends a loan. The caller holds mu.
func (r *RPC) endLoan(number uint64, l *Loan, status C.int, why string) {
	delete(r.loans, number)
	for _, region := range l.regions {
		region.loans--
	}
	if status < 0 {
		l.err = newError(status, "xport_rpc_call", why)
	}
	close(l.ended)
	r.space.raise() // a call that lends counts until then
}
