// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package register_test

import (
	"context"
	"errors"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/register"
)

var errNoReply = errors.New("no reply")

// data is the only replica, as one node accesses it.
type data struct {
	*keys

	self     *crdt.Self
	stays    *crdt.LWWRegister[[]byte] // the state on the nodes that are not leaving, if it is older
	noReply  bool                      // changes of the state are stored and return an error
	halfDone bool                      // changes of the claims are stored and return an error
}

// keys are the data of all nodes.
type keys struct {
	claims crdt.ORSet[string]
	state  crdt.LWWRegister[[]byte]
}

func (d *data) Self() *crdt.Self { return d.self }

func (d *data) ReadClaims(context.Context) (crdt.ORSet[string], error) { return d.claims, nil }

func (d *data) ChangeClaims(_ context.Context, modify func(crdt.ORSet[string]) (crdt.ORSet[string], error)) (err error) {
	if d.claims, err = modify(d.claims); err == nil && d.halfDone {
		err = errNoReply
	}
	return err
}

func (d *data) ReadState(_ context.Context, more, _ bool) (crdt.LWWRegister[[]byte], error) {
	if more && d.stays != nil {
		return *d.stays, nil
	}
	return d.state, nil
}

func (d *data) ChangeState(_ context.Context, modify func(crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error)) (err error) {
	if d.state, err = modify(d.state); err == nil && d.noReply {
		err = errNoReply
	}
	return err
}

// actor is a coordinator with its store.
type actor struct {
	testing.TB
	*data

	store *register.Store
	node  identity.Node
	state coordinator.State
	rev   uint64
}

func act(tb testing.TB, k *keys, name string) *actor {
	tb.Helper()
	node := identity.Node{Name: name, UID: 1}
	self, err := crdt.NewSelf(node)
	if err != nil {
		tb.Fatal(err)
	}
	d := &data{keys: k, self: self}
	return &actor{TB: tb, data: d, store: register.New(d, name), node: node}
}

func (a *actor) load() {
	a.Helper()
	state, rev, claimed, err := a.store.Load(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	a.state, a.rev = state.Claimed(claimed), rev
}

func (a *actor) save(term uint64, e coordinator.Event) (coordinator.State, error) {
	a.Helper()
	after, err := a.state.Apply(e)
	if err != nil {
		a.Fatal(err)
	}
	return after, a.store.Save(a.Context(), coordinator.Change{Term: term, Rev: a.rev, Events: []coordinator.Event{e}, After: after})
}

func (a *actor) claim(term uint64) (coordinator.State, error) {
	a.Helper()
	return a.save(term, coordinator.Event{Kind: coordinator.Started, Term: term, Node: a.node})
}

// TestLoadedClaimIsHeld checks that a coordinator that loads its own claim, whose Save failed,
// holds the term.
func TestLoadedClaimIsHeld(t *testing.T) {
	t.Parallel()
	a := act(t, &keys{}, "a")
	a.load()
	a.noReply = true
	after, err := a.claim(1)
	if !errors.Is(err, errNoReply) {
		t.Fatalf("claim(1) = %v, want errNoReply", err)
	}
	a.noReply = false
	if a.load(); !a.state.Equal(after) {
		t.Fatalf("Load = term %d of %v, want the claimed state", a.state.Term(), a.state.Holder())
	}
	if _, err := a.save(1, coordinator.Event{Kind: coordinator.RegionRegistered, Node: a.node}); err != nil {
		t.Errorf("a change of the loaded term: got error %v, want none", err)
	}
}

// TestLoadCountsLeavingNodes checks that a coordinator loads a state that only leaving nodes hold.
func TestLoadCountsLeavingNodes(t *testing.T) {
	t.Parallel()
	k := &keys{}
	a, b := act(t, k, "a"), act(t, k, "b")
	a.load()
	if _, err := a.claim(1); err != nil {
		t.Fatal(err)
	}
	old := k.state
	a.load()
	after, err := a.save(1, coordinator.Event{Kind: coordinator.RegionRegistered, Node: a.node})
	if err != nil {
		t.Fatal(err)
	}
	b.stays = &old
	if b.load(); !b.state.Equal(after) {
		t.Errorf("Load = %v, want the last stored state", b.state.Regions())
	}
}

// TestLoadedClaimOfOthersIsNotHeld checks that a coordinator does not hold a term that another one
// has claimed, or that is below a higher claim.
func TestLoadedClaimOfOthersIsNotHeld(t *testing.T) {
	t.Parallel()
	k := &keys{}
	a, b := act(t, k, "a"), act(t, k, "b")
	region := coordinator.Event{Kind: coordinator.RegionRegistered, Node: a.node}
	refused := func(peer *actor, term uint64) {
		t.Helper()
		peer.load()
		if _, err := peer.save(term, region); !errors.Is(err, register.ErrConflict) {
			t.Errorf("a change of term %d by %v: %v, want ErrConflict", term, peer.node, err)
		}
	}
	a.load()
	a.noReply = true
	if _, err := a.claim(1); !errors.Is(err, errNoReply) {
		t.Fatalf("claim(1) = %v, want errNoReply", err)
	}
	a.noReply = false
	refused(b, 1)
	b.halfDone = true
	if _, err := b.claim(2); !errors.Is(err, errNoReply) {
		t.Fatalf("claim of the next term: %v, want errNoReply", err)
	}
	refused(a, 1)
	refused(a, 2)
}
