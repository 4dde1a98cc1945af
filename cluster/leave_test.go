// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
)

func TestLeave(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		watched := make(chan error, 1)
		go func() { watched <- nodes[0].Watch(w.Context(), nodes[2].Self()) }()
		var events []cluster.EventKind
		read := make(chan struct{})
		go func() {
			defer close(read)
			for e := range nodes[0].Events(w.Context(), cluster.MemberLeft, cluster.MemberExited, cluster.MemberRemoved, cluster.MemberDowned) {
				if e.Kind != cluster.Snapshot && e.Member.Node == nodes[2].Self() {
					events = append(events, e.Kind)
				}
				if e.Kind == cluster.MemberRemoved {
					return
				}
			}
		}()
		synctest.Wait()
		must(w.T, nodes[0].Leave(w.Context(), identity.Node{Name: "c"})) // whoever has the name
		w.wantGone(nodes[2], cluster.ErrLeft)
		w.allUp(nodes[:2]...)
		<-read
		if last := events[len(events)-1]; events[0] != cluster.MemberLeft || last != cluster.MemberRemoved {
			w.Errorf("events %v", events)
		}
		must(w.T, <-watched)
		must(w.T, nodes[0].Watch(w.Context(), nodes[2].Self())) // it is known to be gone
		if err := nodes[0].Leave(w.Context(), nodes[2].Self()); !errors.Is(err, cluster.ErrNotMember) {
			w.Errorf("Leave of one that has left: %v", err)
		}
		if err := nodes[2].Leave(w.Context(), nodes[0].Self()); !errors.Is(err, cluster.ErrLeft) {
			w.Errorf("Leave by one that has left: %v", err)
		}
		if err := nodes[2].Watch(w.Context(), nodes[0].Self()); !errors.Is(err, cluster.ErrLeft) {
			w.Errorf("Watch by one that has left: %v", err)
		}
	})
}

func TestDown(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		must(w.T, nodes[0].Down(w.Context(), nodes[1].Self()))
		w.wantGone(nodes[1], cluster.ErrDowned)
		if err := nodes[1].Live(); !errors.Is(err, cluster.ErrDowned) {
			w.Errorf("Live: %v", err)
		}
		w.allUp(nodes[0], nodes[2])
		must(w.T, nodes[0].Watch(w.Context(), nodes[1].Self()))
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		nodes := w.cluster("a", "b")
		if err := nodes[0].Watch(w.Context(), identity.Node{Name: "x", UID: 1}); !errors.Is(err, cluster.ErrNotMember) {
			w.Errorf("Watch of nobody: %v", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if err := nodes[0].Watch(ctx, nodes[1].Self()); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Watch of one that lives: %v", err)
		}
	})
}

// From then on nobody joins, and everybody can be stopped.
func TestPrepareForShutdown(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		nodes := w.cluster("a", "b")
		must(w.T, nodes[1].PrepareForShutdown(w.Context()))
		for _, n := range nodes {
			w.until(n, func(s *cluster.State) bool { return s.Status(n.Self()) == cluster.ReadyForShutdown })
			must(w.T, n.AwaitUp(w.Context()))
		}
		d := w.start("d")
		w.sleep(time.Minute)
		if d.State().Joined {
			w.Error("a node has joined a cluster that is about to stop")
		}
	})
}
