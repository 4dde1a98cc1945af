// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// The regions of these tests repeat requests after retry, and refuse waiting messages after
// patience.
const (
	retry    = 2 * time.Second
	patience = 3 * time.Second
)

// refused returns the tokens of the messages that are refused for a reason.
func refused(out region.Effects, why shard.Reason) (tokens []uint64) {
	for _, r := range out.Refused {
		if r.Reason == why {
			tokens = append(tokens, r.Token)
		}
	}
	return tokens
}

// A leaving region does not wait for abandoned messages. The other messages keep their order.
func TestLeaveDropsAbandonedMessages(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	for token := uint64(1); token <= 3; token++ {
		m.Step(0, region.Send{Shard: 1, Token: token})
	}
	arrive(m, "b", region.Frame{Kind: region.Forward, Shard: 4, Token: 4})
	arrive(m, "b", region.Frame{Kind: region.Forward, Shard: 4, Token: 5, Hop: 1})
	if waiting := slices.Collect(m.Tokens()); !slices.Equal(waiting, []uint64{1, 2, 3, 5, 4}) {
		t.Fatalf("Tokens() = %v, want [1 2 3 5 4]", waiting)
	}
	for token := range m.Tokens() { // a range that ends early
		if token == 2 {
			break
		}
	}
	out := m.Step(0, region.Drop{Tokens: []uint64{2, 4, 99}})
	if !slices.Equal(refused(out, shard.Abandoned), []uint64{2, 4}) || len(out.Refused) != 2 || m.Buffered() != 3 {
		t.Fatalf("Drop: %+v, %d messages wait, want 2 and 4 refused as abandoned and 3 waiting messages", out, m.Buffered())
	}
	m.Step(0, region.Leave{})
	out = receive(m, homes(5, 1, "b"))
	if len(out.Frames) != 2 || out.Frames[0].Frame.Token != 1 || out.Frames[1].Frame.Token != 3 || out.Stopped {
		t.Fatalf("the remaining messages: %+v, want messages 1 and 3 sent to their homes", out)
	}
	out = m.Step(0, region.Drop{Tokens: []uint64{5}})
	if !slices.Equal(kinds(out, "b"), []region.FrameKind{region.Flush}) || out.Stopped {
		t.Fatalf("when no message waits: %+v, want one Flush to b", out)
	}
	if out = arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 2, ID: out.Frames[0].Frame.ID}); !out.Stopped || !hasMessage(out, coordinator.RegionStopped) {
		t.Errorf("after the flush: %+v, want a stop with RegionStopped", out)
	}
}

// A leaving region without a reply of a coordinator refuses the messages that wait for homes after
// some time, and stops. It does so even if it has never registered or its node is not a member.
// Before this, it requests a reply, because a silent coordinator may still run.
func TestLeaveWithoutCoordinator(t *testing.T) {
	t.Parallel()
	const left = 5 * time.Second
	for name, c := range map[string]struct {
		m     *region.Machine
		begin func(m *region.Machine)
	}{
		"registered": {start(t, region.Config{GiveUpAfter: patience}), func(*region.Machine) {}},
		"registered with a silent coordinator": {start(t, region.Config{GiveUpAfter: patience}), func(m *region.Machine) {
			m.Step(0, region.Send{Shard: 3, Token: 7})
			m.Step(0, region.Drop{Tokens: []uint64{7}})
		}},
		"never registered": {fresh(t), func(m *region.Machine) { setMembers(m, "c", "a", "b") }},
		"no candidate": {fresh(t), func(m *region.Machine) {
			m.Step(0, region.Members{Members: []identity.Member{{Node: node("a"), Status: identity.Joining}}})
		}},
		"not a member": {fresh(t), func(*region.Machine) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := c.m
			c.begin(m)
			for now := time.Duration(0); now < left; now = m.Next() {
				m.Tick(now)
			}
			m.Step(left, region.Send{Shard: 1, Token: 1})
			out, now := m.Step(left, region.Leave{}), left
			for len(out.Refused) == 0 && now < time.Minute {
				now = m.Next()
				out = m.Tick(now)
			}
			if now != left+patience {
				t.Errorf("refused after %v, want %v", now, left+patience)
			}
			if got := refused(out, shard.Stopped); !slices.Equal(got, []uint64{1}) || !out.Stopped {
				t.Errorf("Leave: %+v, want message 1 refused and a stop", out)
			}
		})
	}
}

// As long as a coordinator replies, a leaving region keeps the messages that wait, even if the
// replies contain no homes. Messages with a home are not refused when the replies end.
func TestLeaveWithCoordinator(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{GiveUpAfter: patience})
	receive(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	receive(m, homes(5, 2, "c")) // the path to b is flushed
	m.Step(0, region.Send{Shard: 1, Token: 2})
	m.Step(0, region.Send{Shard: 2, Token: 3})
	out := m.Step(0, region.Leave{})
	if !hasMessage(out, coordinator.Register) || m.Buffered() != 2 || !m.Registered() {
		t.Fatalf("Leave: %+v, want a Register that verifies the registration and 2 waiting messages", out)
	}
	now, asked := time.Duration(0), 0
	for now < time.Minute {
		if hasMessage(out, coordinator.Register) {
			asked++
			receive(m, coordinator.Message{Kind: coordinator.RegisterAck, Term: 5, Round: 2})
		}
		now = m.Next()
		if out = m.Tick(now); len(out.Refused) > 0 {
			t.Fatalf("refused after %v: %+v, want no refusal", now, out)
		}
	}
	if asked < 25 || asked > 35 {
		t.Errorf("%d requests in a minute, want 25 to 35", asked)
	}
	for silent := now; now < silent+retry+patience; {
		now = m.Next()
		out.Refused = append(out.Refused, m.Tick(now).Refused...)
	}
	if got := refused(out, shard.Stopped); !slices.Equal(got, []uint64{3}) || m.Buffered() != 1 {
		t.Errorf("without replies: refused %+v, %d messages wait, want message 3 refused and 1 waiting message", out.Refused, m.Buffered())
	}
	if out = m.Step(now, region.Send{Shard: 2, Token: 4}); !slices.Equal(refused(out, shard.Stopped), []uint64{4}) {
		t.Errorf("a later message: %+v, want message 4 refused", out)
	}
}

// A rejected region gets no homes, and does not wait for them when it leaves.
func TestLeaveOfRejectedRegion(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{GiveUpAfter: patience, Settings: coordinator.Settings{Shards: 100}})
	receive(m, coordinator.Message{Kind: coordinator.Refused, Term: 6, Round: 1, Settings: coordinator.Settings{Shards: 200}})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	if out := m.Step(0, region.Leave{}); !slices.Equal(refused(out, shard.Stopped), []uint64{1}) || !out.Stopped {
		t.Errorf("Leave: %+v, want message 1 refused and a stop", out)
	}
}

// Without GiveUpAfter a leaving region waits without a limit.
func TestLeaveWithoutLimit(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	m.Step(0, region.Leave{})
	for now := time.Duration(0); now < time.Hour; now = m.Next() {
		if out := m.Tick(now); len(out.Refused) > 0 || out.Stopped {
			t.Fatalf("after %v: %+v, want no refusal and no stop", now, out)
		}
	}
}

// A drained region keeps the waiting messages.
func TestDrainedRegionWaits(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{GiveUpAfter: patience})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	m.Step(0, region.Leave{KeepRouting: true})
	for now := time.Duration(0); now < time.Minute; now = m.Next() {
		if out := m.Tick(now); len(out.Refused) > 0 {
			t.Fatalf("after %v: %+v, want no refusal", now, out)
		}
	}
	if out := m.Step(time.Minute, region.Leave{}); !slices.Equal(refused(out, shard.Stopped), []uint64{1}) || !out.Stopped {
		t.Errorf("Leave after a long silence: %+v, want message 1 refused and a stop", out)
	}
}

// fresh returns a region without members.
func fresh(t *testing.T) *region.Machine {
	t.Helper()
	m, err := region.New(region.Config{Self: node("a"), Type: "account", Instance: 2, GiveUpAfter: patience})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
