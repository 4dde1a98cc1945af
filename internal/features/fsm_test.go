// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/eventsourcing/fsm"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A gate opens for a short time.
type (
	gateMode string
	gate     struct{ At fsm.Position[gateMode] }
	// openGate is answered with the state before.
	openGate struct {
		eventsourcing.Command[gate, gateMode]
	}
	gateOpened struct{}
)

func (g *gate) open(ctx *fsm.Context[gate, gateOpened, gateMode, gateMode], _ openGate) fsm.Transition[gate, gateOpened, gateMode, gateMode] {
	return ctx.Goto("open").Applying(gateOpened{}).ForMax(100 * time.Millisecond).Reply(g.At.State)
}

// gateType returns the type of gates. timedOut receives a value when a state times out. initial is the
// time-out of a gate that was never opened.
func gateType(tb testing.TB, timedOut chan<- struct{}, initial time.Duration) eventsourcing.Type[gate, any] {
	tb.Helper()
	typ, err := fsm.Machine[gate, gateOpened, gateMode]{
		Type:     eventsourcing.Type[gate, any]{Name: "gate"},
		Events:   []codec.Entry{codec.Name[gateOpened]("opened")},
		Position: func(g *gate) *fsm.Position[gateMode] { return &g.At },
		States:   []gateMode{"closed", "open", "walled"},
		Apply:    func(*gate, gateOpened) {},
		Handlers: []fsm.Handler[gate, gateOpened, gateMode]{fsm.On("open", fsm.Otherwise((*gate).open))},
		Initial:  "closed", InitialForMax: initial,
		Timeouts: []fsm.Timeout[gate, gateOpened, gateMode]{
			fsm.OnTimeout("open", func(_ *gate, ctx *fsm.Context[gate, gateOpened, gateMode, eventsourcing.None]) fsm.Transition[gate, gateOpened, gateMode, eventsourcing.None] {
				return ctx.Goto("closed").AndThen(func(*gate) { timedOut <- struct{}{} })
			}),
			fsm.OnTimeout("closed", func(_ *gate, ctx *fsm.Context[gate, gateOpened, gateMode, eventsourcing.None]) fsm.Transition[gate, gateOpened, gateMode, eventsourcing.None] {
				return ctx.Goto("walled").AndThen(func(*gate) { timedOut <- struct{}{} })
			}),
		},
	}.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return typ
}

// The time-out of a state survives a restart.
func TestStateMachine(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		timedOut := make(chan struct{}, 10)
		rt := openRuntime(t, db)
		gates, err := eventsourcing.Host(rt, gateType(t, timedOut, 0))
		if err != nil {
			t.Fatal(err)
		}
		if before, asked := eventsourcing.Ask(within(t), gates.Ref("a"), openGate{}); before != "closed" || asked != nil {
			t.Errorf("the state before is %q, %v, want closed", before, asked)
		}
		closeRuntime(t, rt)
		if gates, err = eventsourcing.Host(openRuntime(t, db), gateType(t, timedOut, 0)); err != nil {
			t.Fatal(err)
		}
		if err = gates.Start(within(t), "a"); err != nil {
			t.Fatal(err)
		}
		<-timedOut
		if before, asked := eventsourcing.Ask(within(t), gates.Ref("a"), openGate{}); before != "closed" || asked != nil {
			t.Errorf("the state after the time-out is %q, %v, want closed", before, asked)
		}
	})
}

// State machines are sharded like other entities.
func TestShardedStateMachine(t *testing.T) {
	t.Parallel()
	f, ctx := threeNodes(t), within(t)
	timedOut := make(chan struct{}, 100)
	for i, node := range f.nodes {
		r, err := sharding.Host(ctx, node, f.runtimes[i], gateType(t, timedOut, 0), sharding.Options{Shards: 10})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = askAgain(ctx, r.Ref("a"), openGate{}); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	<-timedOut
}

// The time-out of the initial state begins with the first start, and survives a restart.
func TestInitialTimeout(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		timedOut := make(chan struct{}, 10)
		rt := openRuntime(t, db)
		gates, err := eventsourcing.Host(rt, gateType(t, timedOut, time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err = gates.Start(within(t), "a"); err != nil {
			t.Fatal(err)
		}
		closeRuntime(t, rt)
		if gates, err = eventsourcing.Host(openRuntime(t, db), gateType(t, timedOut, time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err = gates.Wake(within(t)); err != nil {
			t.Fatal(err)
		}
		<-timedOut
		if before, asked := eventsourcing.Ask(within(t), gates.Ref("a"), openGate{}); before != "walled" || asked != nil {
			t.Errorf("the state after the time-out is %q, %v, want walled", before, asked)
		}
	})
}

// The time-out of the initial state passes on another node, without a command, after the crash of the
// home.
func TestShardedInitialTimeout(t *testing.T) {
	t.Parallel()
	f, ctx := threeNodes(t), within(t)
	timedOut := make(chan struct{}, 100)
	var regions []*sharding.Region[gate]
	for i, node := range f.nodes {
		r, err := sharding.Host(ctx, node, f.runtimes[i], gateType(t, timedOut, 5*time.Second), sharding.Options{Shards: 10})
		if err != nil {
			t.Fatal(err)
		}
		if err = r.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	for id := range 10 { // in different shards
		if err := regions[0].Start(ctx, fmt.Sprint(id)); err != nil {
			t.Fatal(err)
		}
	}
	f.crash(f.nodes[2])
	for n := range 10 {
		select {
		case <-timedOut:
		case <-ctx.Done():
			t.Fatalf("%d of 10 gates have timed out", n)
		}
	}
}
