// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// Silence returns how long a request has had no reply of a coordinator.
func TestSilence(t *testing.T) {
	t.Parallel()
	m := fresh(t)
	silence := func(now, want time.Duration) {
		t.Helper()
		m.Tick(now)
		if got := m.Silence(); got != want {
			t.Errorf("at %v: Silence() = %v, want %v", now, got, want)
		}
	}
	silence(time.Second, 0) // the node is not a member
	m.Step(time.Second, region.Members{Members: []identity.Member{{Node: node("a"), Status: identity.Up}, {Node: node("c"), Status: identity.Up}}})
	silence(time.Minute, 59*time.Second)
	receive(m, coordinator.Message{Kind: coordinator.Refused, Term: 5, Round: 1})
	silence(time.Minute, 0)
	receive(m, coordinator.Message{Kind: coordinator.RegisterAck, Term: 5, Round: 1})
	silence(2*time.Minute, 0) // no request waits
	m.Step(2*time.Minute, region.Send{Shard: 1, Token: 1})
	silence(3*time.Minute, time.Minute)
	receive(m, homes(4, 9, "c")) // the message has an earlier term
	silence(3*time.Minute, time.Minute)
	receive(m, homes(5, 2, "a"))
	silence(4*time.Minute, 0)
	setMembers(m, "b", "a")
	silence(5*time.Minute, time.Minute)
	m.Step(0, region.Stop{})
	m.Step(0, region.ShardDone{Shard: 1, Generation: 1})
	silence(6*time.Minute, 0)
}

// A coordinator that does not reply with a home may wait for its store, or may have stopped. The
// region verifies its registration at long intervals, because a live coordinator replies to a
// registration at once.
func TestSilentCoordinatorIsVerified(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	asked := 0
	for now := time.Duration(0); now < time.Minute; now = m.Next() {
		out := m.Tick(now)
		if silence := m.Silence(); hasMessage(out, coordinator.Register) != (silence >= 3*retry) || silence > 4*retry {
			t.Fatalf("at %v, after a silence of %v: %+v, want Register between 3 and 4 RetryIntervals", now, silence, out)
		}
		if hasMessage(out, coordinator.Register) {
			asked++
			receive(m, coordinator.Message{Kind: coordinator.RegisterAck, Term: 5, Round: 1})
		}
	}
	if asked < 5 || asked > 10 {
		t.Errorf("%d registrations in a minute, want 5 to 10", asked)
	}
	for now := m.Next(); m.Silence() < 3*retry; now = m.Next() {
		m.Tick(now)
	}
	begun, again := m.Silence(), 0
	for now := m.Next(); m.Silence() < begun+retry; now = m.Next() {
		if hasMessage(m.Tick(now), coordinator.Register) {
			again++
		}
	}
	if again < 3 || !m.Registered() {
		t.Errorf("without a reply the region sends %d more requests in a RetryInterval, want at least 3 from a registered region", again)
	}
}
