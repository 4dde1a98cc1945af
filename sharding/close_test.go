// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
)

// rehost hosts the diaries of a node again.
func (w *world) rehost(h *host) {
	w.Helper()
	var err error
	h.region, err = sharding.Host(w.Context(), h.Node, h.rt, diaries(h.Self().Name), w.opts(h))
	w.must(err)
}

// measuring is LeastShards, but the nodes report their load.
type measuring struct{ allocation.LeastShards }

func (measuring) ReadsLoad() bool { return true }

// A region closes under load, also on the node of the coordinator. No write is lost, the node still
// reaches all diaries, and it can host the type again.
func TestCloseRegion(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards, w.options.Standbys = 20, 1
		w.options.Strategy = sharding.Pure(measuring{})
		all := w.cluster("a", "b", "c")
		w.spread(all, 20, 0)
		const writes = 100
		var wg sync.WaitGroup
		for _, h := range all {
			region := h.region // its references stay valid
			for d := range 10 {
				wg.Go(func() {
					by := "writer " + h.Self().Name
					for n := range writes {
						if _, err := eventsourcing.Ask(w.Context(), region.Ref(id(d)), write{By: by, N: n}); err != nil {
							w.Errorf("%s: write %d to %s: %v", by, n, id(d), err)
							return
						}
						pause()
					}
				})
			}
		}
		w.sleep(time.Second)
		for _, h := range all[:2] { // node a runs the coordinator
			w.must(h.region.Close(w.Context()))
			<-h.region.Done()
			if err := h.region.Err(); err != nil {
				w.Errorf("Err = %v, want nil", err)
			}
			if n, hosted := h.rt.Resident()["diary"]; hosted {
				w.Errorf("the runtime of %v still hosts the type, with %d entities", h.Self(), n)
			}
			if err := h.region.Undrain(w.Context()); !errors.Is(err, sharding.ErrInvalid) {
				w.Errorf("Undrain of a closed region = %v, want ErrInvalid", err)
			}
			w.must(h.region.Close(w.Context()))
		}
		wg.Wait()
		for _, h := range all {
			for d := range 10 {
				w.wrote(all[0], id(d), "writer "+h.Self().Name, writes)
			}
		}
		if where := w.spread(all, 20, 1); len(where) != 1 || where["c"] == 0 {
			w.Errorf("replies by node: %v, want all of c", where)
		}
		for _, h := range all[:2] {
			w.rehost(h)
		}
		if found, err := sharding.RegionOf[diary](all[0].Node, "diary"); err != nil || found != all[0].region {
			w.Errorf("RegionOf = %p, %v, want the second region %p", found, err, all[0].region)
		}
		if _, err := sharding.Host(w.Context(), all[0].Node, all[0].rt, diaries("a"), w.opts(all[0])); !errors.Is(err, sharding.ErrInvalid) {
			w.Errorf("a third Host = %v, want ErrInvalid", err)
		}
		w.sleep(5 * time.Minute)
		if where := w.spread(all, 20, 2); where["a"] == 0 || where["b"] == 0 {
			w.Errorf("replies by node: %v, want some of a and b", where)
		}
		w.must(all[2].region.Close(w.Context())) // the first of the next regions
		if where := w.spread(all, 20, 3); where["c"] != 0 {
			w.Errorf("replies by node: %v, want none of c", where)
		}
		w.must(all[0].Shutdown(w.Context())) // the coordinator moves to b
		if where := w.spread(all[1:], 20, 4); where["b"] == 0 || len(where) != 1 {
			w.Errorf("replies by node: %v, want all of b", where)
		}
	})
}

// The context of Close ends while an entity does not stop. The shards move as soon as the entities are
// aborted.
func TestCloseRegionByForce(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards, w.hung, w.remembers = 1, make(chan struct{}), true
		all := w.cluster("a", "b")
		result := make(chan error, 1)
		go func() {
			_, err := ask(w, all[0], "stuck", write{By: "a", N: 0})
			result <- err
		}()
		w.sleep(time.Second)
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		if err := all[0].region.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Close = %v, want the cause of its context", err)
		}
		if err := <-result; !errors.Is(err, eventsourcing.ErrOutcomeUnknown) {
			w.Errorf("the write of a killed entity: %v, want ErrOutcomeUnknown", err)
		}
		<-all[0].region.Done()
		if p, err := ask(w, all[0], "stuck", write{By: "b", N: 0}); err != nil || p.Node != "b" {
			w.Errorf("the reply is %v, %v, want one of b", p, err)
		}
		close(w.hung)
	})
}

// An entity escalates its failure: its region closes, and other nodes host the type.
func TestEscalate(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		w.options.Host.Supervise = func(error) eventsourcing.Directive { return eventsourcing.Escalate }
		all := w.cluster("a", "b")
		w.spread(all, 20, 0)
		p, err := ask(w, all[0], id(3), write{By: "x", N: 0})
		w.must(err)
		failing, other := all[0], all[1]
		if p.Node == "b" {
			failing, other = other, failing
		}
		if err := failing.region.Err(); err != nil {
			w.Errorf("Err = %v before the failure, want nil", err)
		}
		if _, err := ask(w, other, id(3), fail{}); err == nil {
			w.Error("a diary that fails answered without an error")
		}
		<-failing.region.Done()
		if _, ok := errors.AsType[*eventsourcing.PanicError](failing.region.Err()); !ok {
			w.Errorf("Err = %v, want a PanicError", failing.region.Err())
		}
		if where := w.spread(all, 20, 1); where[other.Self().Name] == 0 || len(where) != 1 {
			w.Errorf("replies by node: %v, want all of %v", where, other.Self())
		}
		for d := range 20 {
			w.wrote(all[0], id(d), "a", 2)
		}
		w.rehost(failing)
		w.sleep(5 * time.Minute)
		if where := w.spread(all, 20, 2); len(where) != 2 {
			w.Errorf("replies by node: %v, want some of both", where)
		}
	})
}

// The directive Stop forgets a remembered entity until its next command.
func TestSuperviseStopForgets(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.remembers = true
		w.options.Shards = 1
		w.options.Host.Supervise = func(error) eventsourcing.Directive { return eventsourcing.Stop }
		all := w.cluster("a", "b")
		w.spread(all, 1, 0)
		if _, err := ask(w, all[0], id(0), fail{}); err == nil {
			w.Error("a diary that fails answered without an error")
		}
		w.sleep(time.Minute) // longer than Tuning.RestartBackoff
		state, err := all[0].region.State(w.Context())
		w.must(err)
		if len(state.Shards) != 1 || len(state.Shards[0].Entities) > 0 {
			w.Errorf("State = %+v, want one shard without entities", state.Shards)
		}
		w.spread(all, 1, 1)
	})
}
