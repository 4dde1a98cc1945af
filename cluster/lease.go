// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/lease"
)

// leases carries out the lease operations of the machine, in order for each lease.
type leases struct {
	node    *Node
	running loop.InFlight   // goroutines, one for each lease
	busy    loop.InFlight   // operations
	ctx     context.Context //nolint:containedctx // of all operations
	cancel  context.CancelFunc

	held map[string]*leaser // belongs to the loop
}

type leaser struct {
	lease *lease.Lease
	ops   *loop.Mailbox[node.LeaseOp]
}

// NewLease returns a lease of Config.Leases with the settings Config.Lease, which this node may
// acquire. Packages that build on this one use it. The caller closes the lease. The error matches
// ErrInvalid if Config.Leases is missing or the name is invalid.
func (n *Node) NewLease(name string) (*lease.Lease, error) {
	if n.cfg.Leases == nil {
		return nil, invalid("Config.Leases is missing")
	}
	l, err := lease.New(n.cfg.Leases, n.cfg.Lease.of(name, n.self.String(), n.rootLog))
	if err != nil {
		return nil, invalid("%w", err)
	}
	return l, nil
}

func (l *leases) begin(op node.LeaseOp) {
	w := l.held[op.Lease]
	if w == nil {
		var err error
		if w, err = l.open(op.Lease); err != nil {
			l.node.out.Log(slog.LevelError, "lease: invalid configuration", slog.String("lease", op.Lease), slog.Any("error", err))
			l.node.inputs.Add(answer(op, false, ""))
			return
		}
	}
	l.busy.Begin()
	w.ops.Add(op)
}

func (l *leases) open(name string) (*leaser, error) {
	held, err := l.node.NewLease(name)
	if err != nil {
		return nil, err
	}
	w := &leaser{lease: held, ops: loop.NewMailbox[node.LeaseOp](loop.NewSignal())}
	l.held[name] = w
	l.running.Begin()
	go l.run(w)
	return w, nil
}

// answer returns the result of an operation as an input for the machine. If another node holds the
// lease, owner is that node.
func answer(op node.LeaseOp, ok bool, owner string) node.Input {
	if op.Release {
		return node.LeaseReleased{Lease: op.Lease, Done: ok}
	}
	return node.LeaseAnswer{Lease: op.Lease, Held: ok, Owner: owner}
}

func (l *leases) run(w *leaser) {
	defer l.running.End()
	defer func() { _ = w.lease.Close() }() // Close never fails
	for {
		select {
		case <-w.ops.Ready:
		case <-l.ctx.Done():
			return
		}
		for _, op := range w.ops.Take(nil) {
			l.carryOut(l.ctx, w, op)
		}
	}
}

// carryOut carries out one operation and reports the result. A loss of the lease is reported only
// after the result.
func (l *leases) carryOut(ctx context.Context, w *leaser, op node.LeaseOp) {
	defer l.busy.End()
	n := l.node
	if op.Release {
		err := w.lease.Release(ctx)
		if err != nil && ctx.Err() == nil {
			n.out.Log(slog.LevelWarn, "lease: release failed", slog.String("lease", op.Lease), slog.Any("error", err))
		}
		n.inputs.Add(answer(op, err == nil, ""))
		return
	}
	answered := make(chan struct{})
	defer close(answered)
	held, err := w.lease.AcquireWithLost(ctx, func(error) {
		<-answered
		n.inputs.Add(node.LeaseLost{Lease: op.Lease})
	})
	if err != nil && ctx.Err() == nil {
		n.out.Log(slog.LevelWarn, "lease: acquire failed", slog.String("lease", op.Lease), slog.Any("error", err))
	}
	owner := ""
	if !held && err == nil {
		owner = w.lease.HeldBy()
	}
	n.inputs.Add(answer(op, held && err == nil, owner))
}

// close cancels all operations and lets held leases expire. It must be called after the loop has
// ended. close waits at most the given time for the operations, because a store may ignore its
// context.
func (l *leases) close(ctx context.Context, atMost time.Duration) {
	l.cancel()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	if !l.running.Wait(ctx) {
		l.node.out.Log(slog.LevelWarn, "lease: a store operation does not return, shutting down without waiting for it")
	}
}
