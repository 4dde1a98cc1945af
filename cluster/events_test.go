// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
)

// The snapshot and the events after it contain each change exactly once, regardless of when a
// subscriber starts.
func TestEventsFromAnyStart(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		type read struct {
			snapshot int
			events   []cluster.Event
		}
		results := make(chan read)
		const readers = 8
		for range readers {
			go func() {
				var r read
				for e := range a.Events(w.Context()) {
					if e.Kind == cluster.Snapshot {
						r.snapshot = len(e.State.Members)
						continue
					}
					r.events = append(r.events, e)
				}
				results <- r
			}()
			w.sleep(300 * time.Millisecond)
			w.start(string(rune('d' + len(w.all)))) // joins while the subscribers read
		}
		w.sleep(time.Minute)
		a.Stop()
		<-a.Done()
		for range readers {
			r := <-results
			joined, ups := 0, 0
			for _, e := range r.events {
				switch e.Kind {
				case cluster.MemberJoined:
					joined++
				case cluster.MemberUp:
					ups++
				case cluster.ShuttingDown, cluster.MemberRemoved, cluster.MemberUnreachable:
				default:
				}
			}
			if r.snapshot+joined != readers+1 {
				w.Errorf("a snapshot of %d members, then %d joined; want %d in total", r.snapshot, joined, readers+1)
			}
			last := r.events[len(r.events)-readers-2:]
			if last[0].Kind != cluster.ShuttingDown {
				w.Errorf("the last events are %v, want ShuttingDown first", last)
			}
			for _, e := range last[1:] {
				if e.Kind != cluster.MemberRemoved || e.Previous != cluster.Up {
					w.Errorf("event after the end of the node: %v, want only removals of Up members", e)
				}
			}
		}
	})
}

func TestEventsFilterByKind(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e := range a.Events(w.Context(), cluster.MemberUp, cluster.LeaderChanged) {
				got = append(got, e.String())
				if len(got) == 2 {
					return
				}
			}
		}()
		b := w.start("b")
		<-done
		if want := []string{"snapshot of 1 members", "up " + b.Self().String()}; !slices.Equal(got, want) {
			w.Errorf("got %q, want %q", got, want)
		}
	})
}

// The buffer of a slow subscriber is bounded. When it is full, a snapshot replaces the events.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.start("a", func(c *cluster.Config) { c.MaxEvents = 4 })
		must(w.T, a.AwaitUp(w.Context()))
		go func() {
			w.sleep(time.Second)
			for _, name := range []string{"d", "e", "f"} {
				w.start(name)
			}
		}()
		snapshots := 0
		for e := range a.Events(w.Context()) {
			if e.Kind != cluster.Snapshot {
				continue
			}
			if snapshots++; snapshots == 1 {
				w.sleep(time.Minute) // the node is not blocked
				continue
			}
			if notUp := slices.ContainsFunc(e.State.Members, func(m cluster.Member) bool { return m.Status != cluster.Up }); notUp || len(e.State.Members) != 4 {
				w.Errorf("the second snapshot has the members %v, want 4 with the status Up", e.State.Members)
			}
			break
		}
		if snapshots != 2 {
			w.Errorf("%d snapshots, want 2", snapshots)
		}
	})
}

// Changes yields all changes from an empty cluster to the current one, also to a slow subscriber.
func TestChanges(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.clusterWith(func(c *cluster.Config) { c.MaxEvents, c.Roles = 4, []string{"teller"} }, "a", "b")
		a, b := nodes[0], nodes[1]
		var got []string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e := range a.Changes(w.Context()) {
				got = append(got, e.String())
				if len(got) == 4 {
					w.sleep(2 * time.Minute)
				}
			}
		}()
		w.sleep(time.Second)
		must(w.T, a.Leave(w.Context(), b.Self()))
		w.wantEnded(b, cluster.ErrLeft)
		c := w.start("c")
		w.until(a, func(s *cluster.State) bool { return s.Status(c.Self()) == cluster.Up })
		w.sleep(3 * time.Minute)
		a.Stop()
		<-ended
		want := []string{
			"up " + a.Self().String(), "up " + b.Self().String(), "leader " + a.Self().String(), "role-leader teller " + a.Self().String(),
			"removed " + b.Self().String(), "up " + c.Self().String(),
		}
		if !slices.Equal(got[:len(want)], want) {
			w.Errorf("got %q, want %q", got, want)
		}
		if rest := got[len(want):]; !slices.Contains(rest, "shutting-down") || !slices.Contains(rest, "removed "+c.Self().String()) {
			w.Errorf("the last changes are %q, want shutting-down and the removal of %v", rest, c.Self())
		}
	})
}
