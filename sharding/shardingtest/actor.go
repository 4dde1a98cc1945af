// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardingtest

import (
	"context"
	"errors"
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

// actor returns a coordinator on a node that has loaded nothing.
func (f *fixture) actor(node int) *actor {
	f.Helper()
	return &actor{fixture: f, ctx: f.ctx, store: f.coordinators(node, account()), node: identity.Node{Name: fmt.Sprint("n", node), UID: uint64(node) + 1}} //nolint:gosec // nodes have small numbers
}

// load loads the stored state.
func (a *actor) load() error {
	l, err := a.store.Load(a.ctx)
	if err == nil {
		a.state, a.rev = l.State, l.Rev
	}
	return err
}

// change returns a change that follows the loaded state.
func (a *actor) change(events ...coordinator.Event) sharding.Change {
	a.Helper()
	after, err := a.state.Apply(events...)
	if err != nil {
		a.Fatal(err)
	}
	return sharding.Change{Term: a.term, Rev: a.rev, Events: events, After: after}
}

// claim returns the change that begins a term.
func (a *actor) claim(term uint64) sharding.Change {
	a.Helper()
	a.term = term
	return a.change(a.starts(term))
}

func (a *actor) starts(term uint64) coordinator.Event {
	return coordinator.Event{Kind: coordinator.Started, Term: term, Node: a.node}
}

func (a *actor) save(c sharding.Change) error {
	err := a.store.Save(a.ctx, c)
	if err == nil {
		a.state, a.rev = c.After, c.Rev+uint64(len(c.Events))
	}
	return err
}

// mustLoad fails the check on an error.
func (a *actor) mustLoad() {
	a.Helper()
	if err := a.load(); err != nil {
		a.Fatalf("Load: %v", err)
	}
}

// mustSave fails the check on an error.
func (a *actor) mustSave(c sharding.Change) {
	a.Helper()
	if err := a.save(c); err != nil {
		a.Fatalf("Save of %s: %v", describe(c), err)
	}
}

// lead loads and begins a term.
func (a *actor) lead() {
	a.Helper()
	a.mustLoad()
	a.mustSave(a.claim(a.state.Term() + 1))
}

// refused checks that a change fails with an error.
func (a *actor) refused(c sharding.Change, want error) {
	a.Helper()
	if err := a.store.Save(a.ctx, c); !errors.Is(err, want) {
		a.Errorf("Save of %s: %v, want %v", describe(c), err, want)
	}
}

// stored checks the state that another store loads.
func (f *fixture) stored(node int, want coordinator.State) {
	f.Helper()
	l, err := f.coordinators(node, account()).Load(f.ctx)
	if err != nil {
		f.Fatalf("Load: %v", err)
	}
	if !l.State.Equal(want) || l.Repaired != 0 {
		f.Errorf("Load: %s, %d repairs, want %s", show(l.State), l.Repaired, show(want))
	}
}

func registered(name string) coordinator.Event {
	return coordinator.Event{Kind: coordinator.RegionRegistered, Node: region(name)}
}

func allocated(name string, shards ...shard) coordinator.Event {
	return coordinator.Event{Kind: coordinator.HomesAllocated, Node: region(name), Shards: shards}
}

func region(name string) identity.Node { return identity.Node{Name: name, UID: 99} }

// span returns n shards.
func span(from, n int) []shard {
	var s []shard
	for i := range n {
		s = append(s, shard(from+i)) //nolint:gosec // few
	}
	return s
}

func describe(c sharding.Change) string {
	var text strings.Builder
	fmt.Fprintf(&text, "term %d behind %d:", c.Term, c.Rev)
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
