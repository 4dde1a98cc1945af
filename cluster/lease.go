// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/lease"
)

// leases carries out what the machine wants done with leases, one thing after the other for each lease.
type leases struct {
	node    *Node
	running sync.WaitGroup
	busy    underway
	ctx     context.Context //nolint:containedctx // of all operations
	cancel  context.CancelFunc

	held map[string]*leaser // of the loop
}

// leaser is one lease.
type leaser struct {
	lease *lease.Lease
	news  chan struct{}

	mu  sync.Mutex
	ops []node.LeaseOp
}

func newLeases(n *Node) *leases {
	l := &leases{node: n, held: map[string]*leaser{}}
	l.ctx, l.cancel = context.WithCancel(n.base)
	return l
}

// begin begins an operation. It is called by the loop.
func (l *leases) begin(op node.LeaseOp) {
	w := l.held[op.Lease]
	if w == nil {
		var err error
		if w, err = l.open(op.Lease); err != nil {
			l.node.outlet.write(slog.LevelError, "a lease can't be", slog.String("lease", op.Lease), slog.Any("error", err))
			l.node.inputs.add(answer(op, false, ""))
			return
		}
	}
	l.busy.more()
	w.mu.Lock()
	w.ops = append(w.ops, op)
	w.mu.Unlock()
	wake(w.news)
}

func (l *leases) open(name string) (*leaser, error) {
	n := l.node
	if n.cfg.Leases == nil {
		return nil, invalid("Config.Leases is missing")
	}
	held, err := lease.New(n.cfg.Leases, n.cfg.Lease.of(name, n.self.String(), n.plain))
	if err != nil {
		return nil, err
	}
	w := &leaser{lease: held, news: make(chan struct{}, 1)}
	l.held[name] = w
	l.running.Go(func() { l.run(w) })
	return w, nil
}

// answer is what the machine is told about an operation, and about who else has the lease.
func answer(op node.LeaseOp, ok bool, owner string) node.Input {
	if op.Release {
		return node.LeaseReleased{Lease: op.Lease, Done: ok}
	}
	return node.LeaseAnswer{Lease: op.Lease, Held: ok, Owner: owner}
}

// run carries out the operations on one lease.
func (l *leases) run(w *leaser) {
	for {
		w.mu.Lock()
		ops := w.ops
		w.ops = nil
		w.mu.Unlock()
		for _, op := range ops {
			l.carryOut(l.ctx, w, op)
		}
		if len(ops) > 0 {
			continue
		}
		select {
		case <-w.news:
		case <-l.ctx.Done():
			return
		}
	}
}

// carryOut carries out one operation and answers it. That the lease is lost is told after that.
func (l *leases) carryOut(ctx context.Context, w *leaser, op node.LeaseOp) {
	defer l.busy.less()
	n := l.node
	if op.Release {
		err := w.lease.Release(ctx)
		if err != nil && ctx.Err() == nil {
			n.outlet.write(slog.LevelWarn, "a lease was not released", slog.String("lease", op.Lease), slog.Any("error", err))
		}
		n.inputs.add(answer(op, err == nil, ""))
		return
	}
	answered := make(chan struct{})
	defer close(answered)
	held, err := w.lease.AcquireWithLost(ctx, func(error) {
		<-answered
		n.inputs.add(node.LeaseLost{Lease: op.Lease})
	})
	if err != nil && ctx.Err() == nil {
		n.outlet.write(slog.LevelWarn, "a lease can't be asked for", slog.String("lease", op.Lease), slog.Any("error", err))
	}
	owner := ""
	if !held && err == nil {
		owner = w.lease.HeldBy()
	}
	n.inputs.add(answer(op, held && err == nil, owner))
}

// close ends all operations, and leaves what is held to expire. It is called when the loop has ended. It waits a while only: a store
// may not care about its context.
func (l *leases) close(atMost time.Duration) {
	l.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.running.Wait()
		for _, w := range l.held {
			_ = w.lease.Close() // it never fails
		}
	}()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		l.node.outlet.write(slog.LevelWarn, "the store of leases does not return, the node ends without")
	}
}
