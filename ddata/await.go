// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"sync/atomic"
)

// AwaitReplicas waits until this node knows of so many nodes that count in a quorum, itself included, and has got what the others had when it
// joined. A program that has just started calls it before it relies on majorities: a node that knows of nobody else yet is a majority of
// one. It says nothing about whether the replicators of those nodes have started.
//
// The error is that of ctx, or matches ErrStopped, or ErrInvalid if the number is below 1.
func (r *Replicator) AwaitReplicas(ctx context.Context, replicas int) error {
	if replicas < 1 {
		return fmt.Errorf("ddata: wait for replicas of %q: %w: %d of them", r.cfg.Name, ErrInvalid, replicas)
	}
	w := &await{replicas: replicas, done: make(chan struct{})}
	defer w.over.Store(true)
	err := r.call(ctx, func() {
		r.awaits = append(r.awaits, w)
		r.tellAwaits()
	})
	if err == nil {
		select {
		case <-w.done:
			return nil
		case <-ctx.Done():
			err = causeOf(ctx)
		case <-r.done:
			err = r.Err()
		}
	}
	return fmt.Errorf("ddata: wait for %d replicas of %q, there are %d: %w", replicas, r.cfg.Name, r.ReplicaCount(), err)
}

// await is a call of AwaitReplicas.
type await struct {
	replicas int
	over     atomic.Bool // nobody waits any more
	done     chan struct{}
}

// tellAwaits ends the waiting of those that have what they wait for. It is called with the turn.
func (r *Replicator) tellAwaits() {
	if len(r.awaits) == 0 {
		return
	}
	p := r.machine.Protocol()
	count, synced := p.ReplicaCount(), p.Synced()
	rest := r.awaits[:0]
	for _, w := range r.awaits {
		switch {
		case w.over.Load():
		case synced && count >= w.replicas:
			close(w.done)
		default:
			rest = append(rest, w)
		}
	}
	clear(r.awaits[len(rest):])
	r.awaits = rest
}
