// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// A region ignores the messages of strangers. It follows a younger member neither to a higher term
// nor in the term of another node.
func TestOnlyCandidatesAreCoordinators(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	for _, from := range []string{"x", "b"} {
		for kind := coordinator.RegisterAck; kind <= coordinator.Refused; kind++ {
			for _, term := range []uint64{4, 5, 1 << 63} {
				if term == 4 && from == "b" {
					continue // it receives Fenced
				}
				msg := coordinator.Message{Kind: kind, Type: "account", Term: term, Instance: 2, Shards: []region.Shard{1}}
				if out := m.Step(0, region.CoordinatorMessage{From: node(from), Message: msg}); len(out.Messages)+len(out.Actions)+len(out.Frames) > 0 {
					t.Errorf("%v of term %d from %s: %+v, want no effect", kind, term, from, out)
				}
			}
		}
	}
	if out := receive(m, homes(5, 1, "b")); !m.Registered() || hasMessage(out, coordinator.Fenced) {
		t.Errorf("Homes of the coordinator: %+v, registered = %t, want no effect of the other messages", out, m.Registered())
	}
	if home, _ := m.Home(1); home != node("b") {
		t.Errorf("Home(1) = %v, want b", home)
	}
}

// A node that was the oldest member has invented a term. The region drops this term when the store
// does not confirm it, and follows the messages of the stored term again.
func TestInventedTermIsDropped(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	receive(m, coordinator.Message{Kind: coordinator.Host, Term: 1 << 63, Round: 9, Shards: []region.Shard{1}})
	out := receive(m, coordinator.Message{Kind: coordinator.RegisterAgain, Term: 6})
	if !hasMessage(out, coordinator.Fenced) || out.CheckTerm != 1<<63 {
		t.Fatalf("a lower term: %+v, want Fenced and a check of the term", out)
	}
	if out = receive(m, coordinator.Message{Kind: coordinator.RegisterAgain, Term: 6}); out.CheckTerm != 0 {
		t.Errorf("a second message: %+v, want no second check at the same time", out)
	}
	for _, answer := range []region.TermChecked{{Term: 1 << 63, Stored: 1 << 63}, {Term: 5, Stored: 6}} {
		m.Step(0, answer)
		if out = receive(m, homes(6, 1, "b")); !hasMessage(out, coordinator.Fenced) {
			t.Errorf("after %+v: %+v, want Fenced", answer, out)
		}
	}
	if out = m.Step(0, region.TermChecked{Term: 1 << 63, Stored: 6}); !hasMessage(out, coordinator.Register) {
		t.Errorf("after the check: %+v, want Register", out)
	}
	receive(m, coordinator.Message{Kind: coordinator.RegisterAck, Term: 6})
	if out = receive(m, coordinator.Message{Kind: coordinator.HandOff, Term: 6, Round: 1, Shards: []region.Shard{1}}); !m.Registered() || len(out.Actions) != 1 || out.Actions[0].Kind != region.HandOff {
		t.Errorf("HandOff: %+v, registered = %t, want the end of the shard", out, m.Registered())
	}
}

// A proxy cannot read the store. It drops a term whose node cannot run the coordinator any more.
func TestProxyDropsTermOfRemovedNode(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{Proxy: true})
	receive(m, coordinator.Message{Kind: coordinator.RegisterAgain, Term: 1 << 63})
	if out := receive(m, homes(5, 3, "b")); !hasMessage(out, coordinator.Fenced) || out.CheckTerm != 0 {
		t.Errorf("a lower term: %+v, want Fenced and no check", out)
	}
	setMembers(m, "b", "a")
	msg := coordinator.Message{Kind: coordinator.RegisterAck, Type: "account", Term: 6, Instance: 2}
	if m.Step(0, region.CoordinatorMessage{From: node("b"), Message: msg}); !m.Registered() {
		t.Error("the proxy is not registered with the next coordinator")
	}
}
