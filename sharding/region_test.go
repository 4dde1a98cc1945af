// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/sharding/passivation"
	"github.com/refold-io/refold/transport"
)

// both runs a test with each of the two stores of the coordinator.
func both(t *testing.T, f func(w *world)) {
	t.Helper()
	for name, replicated := range map[string]bool{"journal": false, "replicated": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				w.replicated, w.options.Shards = replicated, 30
				f(w)
			})
		})
	}
}

// TestEveryNodeReachesEachEntity checks that commands of all nodes reach the same instance, and
// that all nodes host entities.
func TestEveryNodeReachesEachEntity(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		for n := range 3 {
			if where := w.spread(all, 40, n); len(where) != 3 {
				w.Errorf("round %d: replies by node: %v, want three nodes", n, where)
			}
		}
		for _, h := range all {
			for d := range 40 {
				w.wrote(all[0], "d"+strconv.Itoa(d), h.Self().Name, 3)
			}
		}
	})
}

// TestNodeLeaves checks that the shards of a leaving node move while other nodes continue to write.
// No write is lost, and the order is kept.
func TestNodeLeaves(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 20, 0)
		const writes = 300
		var wg sync.WaitGroup
		for _, h := range all[1:] {
			for d := range 10 {
				wg.Go(func() {
					id, by := "d"+strconv.Itoa(d), "writer "+h.Self().Name
					for n := range writes {
						if _, err := ask(w, h, id, write{By: by, N: n}); err != nil {
							w.Errorf("%s: write %d to %s: %v", by, n, id, err)
							return
						}
						pause()
					}
				})
			}
		}
		w.sleep(time.Second)
		w.must(all[0].Shutdown(w.Context())) // a runs the coordinator
		wg.Wait()
		for _, h := range all[1:] {
			for d := range 10 {
				w.wrote(h, "d"+strconv.Itoa(d), "writer "+h.Self().Name, writes)
			}
		}
		for d := range 20 {
			w.wrote(all[1], "d"+strconv.Itoa(d), "a", 1)
		}
	})
}

// TestNodeStops checks that the shards of a stopped node move when the node was removed and the
// margin has passed.
func TestNodeStops(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 20, 0)
		w.network.CutOneWay([]string{"a"}, []string{"b", "c"})
		w.network.CutOneWay([]string{"b", "c"}, []string{"a"})
		for d := range 20 {
			ctx, cancel := context.WithTimeout(w.Context(), 5*time.Minute)
			for {
				try, stop := context.WithTimeout(ctx, 5*time.Second)
				p, err := eventsourcing.Ask(try, all[1].region.Ref("d"+strconv.Itoa(d)), write{By: "late"})
				stop()
				if err == nil {
					if p.Node == "a" || p.Count < 4 {
						w.Errorf("d%d: reply %v, want four pages on another node", d, p)
					}
					break
				}
				if ctx.Err() != nil {
					w.Fatalf("d%d does not run after five minutes: %v", d, err)
				}
			}
			cancel()
		}
		<-all[0].Done()
		if !errors.Is(all[0].Err(), cluster.ErrDowned) {
			w.Errorf("a ended with %v, want ErrDowned", all[0].Err())
		}
	})
}

// TestRepliesOfOtherNodes checks refusals, codes, late replies, and replies and commands that
// cannot be encoded.
func TestRepliesOfOtherNodes(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		for range 2 { // through the loop, and through the fast path
			for d := range 10 {
				id := "d" + strconv.Itoa(d)
				_, err := ask(w, all[0], id, tear{})
				if !errors.Is(err, errTear) || eventsourcing.StatusOf(err).Code != "diary/tear" {
					w.Errorf("%s: %v, want errTear with its code", id, err)
				}
				_, err = ask(w, all[0], id, ponder{})
				w.must(err)
				short, cancel := context.WithTimeout(w.Context(), time.Second)
				_, err = eventsourcing.Ask(short, all[0].region.Ref(id), ponder{Stay: true})
				cancel()
				w.wantErr(err, eventsourcing.ErrOutcomeUnknown, true)
				number, err := all[0].region.ShardOf(id)
				w.must(err)
				home, known, err := all[0].region.Home(w.Context(), number)
				w.must(err)
				if !known {
					w.Errorf("%s: the home is unknown after an ask", id)
				}
				if _, err = ask(w, all[0], id, secret{}); home == all[1].Self() {
					w.wantErr(err, eventsourcing.ErrInvalid, false)
				} else {
					w.wantErr(err, eventsourcing.ErrUnhandled, false)
				}
			}
		}
		_, err := ask(w, all[0], "", tear{})
		w.wantErr(err, eventsourcing.ErrInvalid, false)
	})
}

// TestLostReply checks that an ask without a deadline ends although its reply is lost. An outbox
// sends such asks.
func TestLostReply(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		id := ""
		for d := 0; id == ""; d++ {
			at, err := ask(w, all[0], "d"+strconv.Itoa(d), write{By: "x"})
			if w.must(err); at.Node == "b" {
				id = "d" + strconv.Itoa(d)
			}
		}
		heal := w.network.Inject(inmem.Fault{From: "b", To: "a", Lanes: []transport.Lane{transport.Data}, Drop: 1})
		asked := make(chan error, 1)
		go func() {
			_, err := eventsourcing.Ask(context.Background(), all[0].region.Ref(id), write{By: "x"})
			asked <- err
		}()
		w.sleep(time.Second)
		heal()
		w.sleep(time.Hour)
		select {
		case err := <-asked:
			w.wantErr(err, eventsourcing.ErrOutcomeUnknown, true)
		default:
			w.Error("the ask still waits for its reply")
		}
		if s, err := all[0].region.State(w.Context()); err != nil || s.Asks != 0 {
			w.Errorf("%d asks are outstanding, error %v; want 0", s.Asks, err)
		}
	})
}

// TestRefusalsThatPanic checks that a node survives refusals that hold nil or whose methods panic.
func TestRefusalsThatPanic(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		for range 2 { // through the loop, and through the fast path
			for d := range 10 {
				for how := range refusals() {
					if _, err := ask(w, all[0], "d"+strconv.Itoa(d), tear{How: how}); err == nil {
						w.Errorf("refusal %d of diary %d arrived as a success", how, d)
					}
				}
			}
		}
	})
}

// TestProxies checks that a node that hosts no entities reaches all of them, and that Host on a
// node without the role starts a proxy.
func TestProxies(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards = "library", 10
		all := []*host{w.start("a", "library"), w.start("b", "library"), w.start("c")}
		d := w.join("d")
		var err error
		d.region, err = sharding.Proxy(w.Context(), d.Node, nil, diaries("d").Protocol(), sharding.Options{Role: "library", Shards: 10})
		w.must(err)
		all = append(all, d)
		w.up(all...)
		where := w.spread(all, 20, 0)
		if where["a"] == 0 || where["b"] == 0 || len(where) != 2 {
			w.Errorf("replies by node: %v, want a and b", where)
		}
		if r, err := sharding.RegionOf[diary](d.Node, "diary"); err != nil || r != d.region {
			w.Errorf("RegionOf the proxy = %v, %v, want the region that Host returned", r, err)
		}
		if _, err := sharding.RegionOf[string](d.Node, "diary"); !errors.Is(err, sharding.ErrInvalid) {
			w.Errorf("RegionOf with another state: %v, want ErrInvalid", err)
		}
	})
}

var _ eventsourcing.Entities[diary] = (*sharding.Region[diary])(nil)

// TestRegionAsEntities checks that a region lists, starts and wakes entities as a host on one node
// does. IDs lists the entities of all nodes. Start works for entities of other nodes. After a
// restart of all nodes, the calls of Wake on all nodes together start each entity with a deadline
// once.
func TestRegionAsEntities(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards, w.options.DisableWake = 10, true
		begin := func(name string) *host {
			h, typ := w.join(name), diaries(name)
			typ.Deadline = func(d *diary) time.Time { return time.Now().Add(time.Duration(len(d.pages)) * time.Hour) }
			typ.Signals = eventsourcing.Signals(eventsourcing.OnSignal(
				func(_ *diary, ctx *diaryCtx[eventsourcing.None], _ eventsourcing.StateTimeout) eventsourcing.Effect[diary, wrote, eventsourcing.None] {
					return ctx.Effect
				}))
			var err error
			h.region, err = sharding.Host(w.Context(), h.Node, h.rt, typ, w.opts(h))
			w.must(err)
			return h
		}
		resident := func(all []*host) (n int) {
			for _, h := range all {
				n += h.rt.Resident()["diary"]
			}
			return n
		}
		all := []*host{begin("a"), begin("b")}
		w.up(all...)
		w.spread(all, 20, 0)
		for _, h := range all {
			n := 0
			for id, err := range h.region.IDs(w.Context()) {
				w.must(err)
				if n++; !strings.HasPrefix(id, "d") {
					w.Errorf("IDs of %v yields %q, want d and a number", h.Self(), id)
				}
			}
			if n != 20 {
				w.Errorf("IDs of %v yields %d IDs, want 20", h.Self(), n)
			}
			for i := range 10 { // some of them have their home on the other node
				w.must(h.region.Start(w.Context(), "new"+strconv.Itoa(i)))
			}
		}
		if n := resident(all); n != 30 {
			w.Errorf("%d entities are in memory after Start, want 30", n)
		}
		w.halt()
		all = []*host{begin("a"), begin("b")}
		w.up(all...)
		woken := 0
		for _, h := range all {
			n, err := h.region.Wake(w.Context())
			w.must(err)
			woken += n
			w.sleep(time.Minute)
		}
		if n := resident(all); n != 20 || woken != 20+all[1].rt.Resident()["diary"] {
			w.Errorf("Wake started %d entities, %d are in memory, want 20", woken, n)
		}
	})
}

// TestBuffersFull checks that commands wait without a coordinator up to a limit, and that further
// ones are refused at once.
func TestBuffersFull(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Tuning.BufferSize, w.options.MinMembers = 3, 2
		a := w.start("a")
		w.must(a.region.AwaitReady(w.Context()))
		var wg sync.WaitGroup
		for n := range 3 {
			wg.Go(func() {
				if _, err := ask(w, a, "d"+strconv.Itoa(n), write{}); err != nil {
					w.Errorf("ask %d: %v", n, err)
				}
			})
			w.sleep(time.Second)
		}
		_, err := ask(w, a, "d", write{})
		w.wantErr(err, sharding.ErrBuffersFull, false)
		short, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err = eventsourcing.Tell(short, a.region.Ref("d"), write{}); err != nil { // accepted, and dropped later
			w.Error(err)
		}
		if s, err := a.region.State(w.Context()); err != nil || s.Waiting != 3 || s.Dropped != 2 || !s.Registered {
			w.Errorf("State = %+v, %v, want 3 waiting and 2 dropped commands of a registered region", s, err)
		}
		w.start("b")
		wg.Wait()
	})
}

// TestMemoryBudget checks that waiting commands of this node and of each peer have a share of the
// memory budget, and that further ones are refused and counted.
func TestMemoryBudget(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.MinMembers = 2 // commands wait until there are two regions
		w.limits = transport.Config{MaxMessage: 512 << 10, Window: 1 << 20, MemoryBudget: 4 << 20, CompressAbove: -1}
		a := w.start("a")
		evil, good := w.join("evil"), w.join("good")
		w.up(a, evil, good)
		w.must(a.region.AwaitReady(w.Context()))
		large := write{By: strings.Repeat("x", 300<<10)} // counts twice, because it is kept encoded and decoded
		for n := range 3 {
			w.must(eventsourcing.Tell(w.Context(), a.region.Ref("d"), large))
			w.sleep(time.Second)
			if held := a.Transport().Stats().Memory; held < (n+1)*600<<10 {
				w.Errorf("%d bytes are counted for %d commands of 300 KiB", held, n+1)
			}
		}
		w.wantErr(eventsourcing.Tell(w.Context(), a.region.Ref("d"), large), sharding.ErrBuffersFull, false)
		send := func(from *host, command write, waiting int, refused uint64) {
			w.Helper()
			w.must(from.Transport().Send(a.Self(), transport.Data, kindRegion, w.forward(a, "d", command, from.Self())))
			w.sleep(time.Second)
			if s, err := a.region.State(w.Context()); err != nil || s.Waiting != waiting || s.OverBudget != refused {
				w.Errorf("%d commands wait and %d are refused, %v; want %d and %d", s.Waiting, s.OverBudget, err, waiting, refused)
			}
		}
		send(evil, large, 4, 1)
		send(evil, large, 4, 2)
		send(evil, large, 4, 3)
		send(good, write{By: "good"}, 5, 3)
		w.start("b")
		w.sleep(time.Minute)
		w.wrote(a, "d", "good", 1)
		if held := a.Transport().Stats().Memory; held != 0 {
			w.Errorf("%d bytes are counted after all commands were handled", held)
		}
	})
}

// TestPassivation checks that an entity that has left memory runs again with the next command,
// whichever node sends it.
func TestPassivation(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		running := func() (n int) {
			for _, h := range all {
				s, err := h.region.State(w.Context())
				w.must(err)
				for _, shard := range s.Shards {
					n += len(shard.Entities)
				}
			}
			return n
		}
		for n := range 3 {
			w.spread(all, 10, n)
			if got := running(); got != 10 {
				w.Errorf("%d entities run, want 10", got)
			}
			switch n {
			case 0:
				w.sleep(10 * time.Minute)
			case 1:
				for d := range 10 {
					_, err := ask(w, all[d%2], "d"+strconv.Itoa(d), closeIt{})
					w.must(err)
				}
				w.sleep(time.Second)
			default:
				continue
			}
			if got := running(); got != 0 {
				w.Errorf("after round %d, %d entities run, want none", n, got)
			}
		}
		for range 300 { // the entity is never idle, and stays
			_, err := ask(w, all[0], "d0", read{})
			w.must(err)
			w.sleep(time.Second)
		}
		if got := running(); got != 1 {
			w.Errorf("%d entities run at the end, want 1", got)
		}
	})
}

// TestUnknownIDs checks that entities without events leave memory after their commands, and that
// remembered ones stay.
func TestUnknownIDs(t *testing.T) {
	t.Parallel()
	for _, remembers := range []bool{false, true} {
		in(t, func(w *world) {
			w.remembers = remembers
			a := w.start("a")
			w.must(a.region.AwaitReady(w.Context()))
			for range 2 {
				for i := range 20 {
					_, err := ask(w, a, "unknown"+strconv.Itoa(i), read{})
					w.must(err)
				}
			}
			w.sleep(time.Second)
			want := 0
			if remembers {
				want = 20
			}
			state, err := a.region.State(w.Context())
			w.must(err)
			entities := 0
			for _, s := range state.Shards {
				entities += len(s.Entities)
			}
			if n := a.rt.Resident()["diary"]; n != want || entities != want {
				w.Errorf("remembered %t: %d entities are in memory, the region counts %d, want %d", remembers, n, entities, want)
			}
			_, err = ask(w, a, "unknown1", write{})
			w.must(err)
		})
	}
}

// TestHostInvalid checks that the error names each invalid option.
func TestHostInvalid(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a", "library")
		typ := diaries("a")
		typ.Commands = nil
		for want, opts := range map[string]sharding.Options{
			"Type.Commands": w.opts(a), "Options.Shards": {Shards: -1},
			"Options.Tuning.HandOffTimeout": {Tuning: sharding.Tuning{HandOffTimeout: -1}}, "Options.Host": {Host: eventsourcing.HostOptions{PassivateAfter: 1}},
			"Options.Host.SharedJournal":                                       {Host: eventsourcing.HostOptions{SharedJournal: true}},
			"Options.Strategy: allocation: invalid: LeastShards.AbsoluteLimit": {Strategy: sharding.Pure(allocation.LeastShards{AbsoluteLimit: -5})},
			"Options.Strategy: Pure needs a strategy":                          {Strategy: sharding.Pure(nil)}, "Options.Strategy: panic": {Strategy: sharding.Pure((*allocation.Hashing)(nil))},
			"Options.MinMembers": {MinMembers: -1}, "Options.Tuning.BufferSize": {Tuning: sharding.Tuning{BufferSize: -1}}, "Options.Tuning.MaxStarts": {Tuning: sharding.Tuning{MaxStarts: -1}}, "Options.Tuning.RecoverNumber": {Tuning: sharding.Tuning{RecoverNumber: -1}},
			"Options.Tuning.RestartBackoff": {Tuning: sharding.Tuning{RestartBackoff: -1}}, "Options.Tuning.RecoverInterval": {Tuning: sharding.Tuning{RecoverInterval: -1}}, "Options.Tuning.RetryInterval": {Tuning: sharding.Tuning{RetryInterval: -1}},
			"Options.Tuning.ShardStartTimeout": {Tuning: sharding.Tuning{ShardStartTimeout: -1}}, "Options.Tuning.RebalanceInterval": {Tuning: sharding.Tuning{RebalanceInterval: -1}}, "Options.Tuning.CoordinatorBackoff": {Tuning: sharding.Tuning{CoordinatorBackoff: -1}},
			"Options.Tuning.LoadTimeout": {Tuning: sharding.Tuning{LoadTimeout: -1}}, "Options.Tuning.SaveTimeout": {Tuning: sharding.Tuning{SaveTimeout: -1}}, "Options.Tuning.LeaseRetryInterval": {Tuning: sharding.Tuning{LeaseRetryInterval: -1}}, "Options.Lease: cluster: invalid": {Lease: true}, "Options.HandOff": {HandOff: 2}, "Options.Tuning.ShardBackoff": {Tuning: sharding.Tuning{ShardBackoff: -1}}, "Options.Tuning.StrategyTimeout": {Tuning: sharding.Tuning{StrategyTimeout: -1}}, "Options.Passivation.Limit": {Passivation: passivation.Settings{Limit: -1}},
		} {
			_, err := sharding.Host(w.Context(), a.Node, a.rt, typ, opts)
			if !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Type.Commands") {
				w.Errorf("Host: %[2]v, want ErrInvalid that contains %[1]q and Type.Commands", want, err)
			}
		}
		for _, role := range []string{"", "library"} {
			if _, err := sharding.Proxy(w.Context(), a.Node, nil, diaries("a").Protocol(), sharding.Options{Role: role}); !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), "must call Host") {
				w.Errorf("Proxy with role %q on a node with this role: %v, want ErrInvalid with the advice to call Host", role, err)
			}
		}
		empty, err := eventsourcing.Open(eventsourcing.Config{})
		w.must(err)
		for want, rt := range map[string]*eventsourcing.Runtime{"the runtime is nil": nil, "Options.State is missing": empty} {
			if _, err = sharding.Host(w.Context(), a.Node, rt, diaries("a"), sharding.Options{}); !errors.Is(err, sharding.ErrInvalid) || !strings.Contains(err.Error(), want) {
				w.Errorf("Host = %v, want ErrInvalid: %s", err, want)
			}
		}
		w.must(empty.Close(w.Context()))
		if _, err = sharding.RegionOf[diary](a.Node, "diary"); !errors.Is(err, sharding.ErrInvalid) {
			w.Errorf("RegionOf without a region: %v, want ErrInvalid", err)
		}
		_, err = sharding.Host(w.Context(), a.Node, a.rt, diaries("a"), w.opts(a))
		w.must(err)
		if _, err = sharding.Host(w.Context(), a.Node, a.rt, diaries("a"), w.opts(a)); !errors.Is(err, sharding.ErrInvalid) {
			w.Errorf("second Host: %v, want ErrInvalid", err)
		}
	})
}
