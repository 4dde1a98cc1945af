// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding"
)

type shard = sharding.Shard

// actor is a coordinator from the view of its store.
type actor struct {
	*fixture
	ctx   context.Context //nolint:containedctx // of the calls
	store sharding.CoordinatorStore
	node  identity.Node
	state coordinator.State // last loaded or acknowledged state
	rev   uint64
	term  uint64
}

// actor returns a coordinator on a node. The coordinator has loaded nothing.
func (f *fixture) actor(node int) *actor { return f.actorOf(node, account()) }

func (f *fixture) actorOf(node int, scope sharding.Scope) *actor {
	f.Helper()
	return &actor{fixture: f, ctx: f.ctx, store: f.coordinators(node, scope), node: identity.Node{Name: fmt.Sprint("n", node), UID: uint64(node) + 1}} //nolint:gosec // nodes have small numbers
}

func (a *actor) load() error {
	state, rev, err := load(a.ctx, a.store)
	if err == nil {
		a.state, a.rev = state, rev
	}
	return err
}

// load returns the decoded state. A repair is an error, because the suite stores only valid
// histories.
func load(ctx context.Context, store sharding.CoordinatorStore) (state coordinator.State, rev uint64, err error) {
	l, err := store.Load(ctx)
	if err != nil {
		return coordinator.State{}, 0, err
	}
	state, fold, err := coordinator.Restore(l.State, l.Events, l.Term)
	if err != nil {
		return coordinator.State{}, 0, err
	}
	if repairs, n := fold.Repairs(); n > 0 {
		return coordinator.State{}, 0, fmt.Errorf("the loaded events need %d repairs: %v", n, repairs)
	}
	return state, l.Rev, nil
}

func encode(c *coordinator.Change) sharding.Change {
	events, after := c.Encode()
	return sharding.Change{Term: c.Term, Rev: c.Rev, Claim: c.IsClaim(), Events: events, After: after}
}

// change returns a change that follows the loaded state.
func (a *actor) change(events ...coordinator.Event) coordinator.Change {
	a.Helper()
	after, err := a.state.Apply(events...)
	if err != nil {
		a.Fatal(err)
	}
	return coordinator.Change{Term: a.term, Rev: a.rev, Events: events, After: after}
}

func (a *actor) claim(term uint64) coordinator.Change {
	a.Helper()
	a.term = term
	return a.change(a.starts(term))
}

func (a *actor) starts(term uint64) coordinator.Event {
	return coordinator.Event{Kind: coordinator.Started, Term: term, Node: a.node}
}

func (a *actor) save(c coordinator.Change) error {
	err := a.store.Save(a.ctx, encode(&c))
	if err == nil {
		a.state, a.rev = c.After, c.Rev+uint64(len(c.Events))
	}
	return err
}

func (a *actor) mustLoad() {
	a.Helper()
	if err := a.load(); err != nil {
		a.Fatalf("Load: %v", err)
	}
}

func (a *actor) mustSave(c coordinator.Change) {
	a.Helper()
	if err := a.save(c); err != nil {
		a.Fatalf("Save of %s: %v", describe(c), err)
	}
}

// leader returns a coordinator that has begun a term. If there are events, it has also saved them.
func (f *fixture) leader(node int, events ...coordinator.Event) *actor {
	f.Helper()
	a := f.actor(node)
	a.lead()
	if len(events) > 0 {
		a.mustSave(a.change(events...))
	}
	return a
}

func (a *actor) lead() {
	a.Helper()
	a.mustLoad()
	a.mustSave(a.claim(a.state.Term() + 1))
}

func (a *actor) refused(c coordinator.Change, want error) {
	a.Helper()
	a.want(a.store.Save(a.ctx, encode(&c)), want, "Save of %s", describe(c))
}

func (f *fixture) stored(node int, want coordinator.State) {
	f.Helper()
	f.storedIn(f.coordinators(node, account()), want, "")
}

func (f *fixture) storedIn(store sharding.CoordinatorStore, want coordinator.State, when string) {
	f.Helper()
	got, _, err := load(f.ctx, store)
	if err != nil || !got.Equal(want) {
		f.Errorf("%sLoad = %s, %v, want %s", when, show(got), err, show(want))
	}
}

func registered(name string) coordinator.Event {
	return coordinator.Event{Kind: coordinator.RegionRegistered, Node: region(name)}
}

func allocated(name string, shards ...shard) coordinator.Event {
	return coordinator.Event{Kind: coordinator.HomesAllocated, Node: region(name), Shards: shards}
}

func region(name string) identity.Node { return identity.Node{Name: name, UID: 99} }

func span(from, n int) []shard {
	var s []shard
	for i := range n {
		s = append(s, shard(from+i)) //nolint:gosec // few
	}
	return s
}

func describe(c coordinator.Change) string {
	var text strings.Builder
	fmt.Fprintf(&text, "term %d after event %d:", c.Term, c.Rev)
	for i, e := range c.Events {
		if i == 5 {
			fmt.Fprintf(&text, " and %d more", len(c.Events)-i)
			break
		}
		fmt.Fprintf(&text, " %v %v (%d shards)", e.Kind, e.Node, len(e.Shards))
	}
	return text.String()
}

func show(s coordinator.State) string {
	return fmt.Sprintf("term %d of %v, %d regions, %d proxies, %d shards", s.Term(), s.Holder(), len(s.Regions()), len(s.Proxies()), s.Shards())
}
