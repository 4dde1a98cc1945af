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

// The regions of these tests repeat what is not answered after retry, and give up after patience.
const (
	retry    = 2 * time.Second
	patience = 3 * time.Second
)

// refused returns the tokens that are refused for a reason.
func refused(out region.Effects, why shard.Reason) (tokens []uint64) {
	for _, r := range out.Refused {
		if r.Reason == why {
			tokens = append(tokens, r.Token)
		}
	}
	return tokens
}

// A region that leaves does not wait for what nobody waits for any more, and the rest goes its way
// in its order.
func TestWhatIsGivenUpKeepsNobody(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	for token := uint64(1); token <= 3; token++ {
		m.Step(0, region.Send{Shard: 1, Token: token})
	}
	arrive(m, "b", region.Frame{Kind: region.Forward, Shard: 4, Token: 4})
	arrive(m, "b", region.Frame{Kind: region.Forward, Shard: 4, Token: 5, Hop: 1})
	if waiting := slices.Collect(m.Tokens()); !slices.Equal(waiting, []uint64{1, 2, 3, 5, 4}) {
		t.Fatalf("%v wait", waiting)
	}
	for token := range m.Tokens() { // not all of them
		if token == 2 {
			break
		}
	}
	out := m.Step(0, region.Drop{Tokens: []uint64{2, 4, 99}})
	if !slices.Equal(refused(out, shard.Abandoned), []uint64{2, 4}) || len(out.Refused) != 2 || m.Buffered() != 3 {
		t.Fatalf("given up: %+v, and %d wait", out, m.Buffered())
	}
	m.Step(0, region.Leave{})
	out = hear(m, homes(5, 1, "b"))
	if len(out.Frames) != 2 || out.Frames[0].Frame.Token != 1 || out.Frames[1].Frame.Token != 3 || out.Stopped {
		t.Fatalf("what is left: %+v", out)
	}
	out = m.Step(0, region.Drop{Tokens: []uint64{5}})
	if !slices.Equal(kinds(out, "b"), []region.FrameKind{region.Flush}) || out.Stopped {
		t.Fatalf("nothing waits: %+v", out)
	}
	if out = arrive(m, "b", region.Frame{Kind: region.Flushed, Instance: 2, ID: out.Frames[0].Frame.ID}); !out.Stopped || !says(out, coordinator.RegionStopped) {
		t.Errorf("all has arrived: %+v", out)
	}
}

// A region that leaves, and that no coordinator answers, refuses after a while what waits for homes
// and stops: whether it has registered before or not, and on a node that is not even a member. One
// that is there is asked before, though it may have said nothing for long: of a node that is
// Joining none may know.
func TestALeavingRegionThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	const left = 5 * time.Second
	for name, c := range map[string]struct {
		m     *region.Machine
		begin func(m *region.Machine)
	}{
		"registered": {start(t, region.Config{GiveUpAfter: patience}), func(*region.Machine) {}},
		"registered, and the coordinator has nothing to say": {start(t, region.Config{GiveUpAfter: patience}), func(m *region.Machine) {
			m.Step(0, region.Send{Shard: 3, Token: 7})
			m.Step(0, region.Drop{Tokens: []uint64{7}})
		}},
		"never registered": {fresh(t), func(m *region.Machine) { see(m, "c", "a", "b") }},
		"nobody to register with": {fresh(t), func(m *region.Machine) {
			m.Step(0, region.Members{Members: []identity.Member{{Node: node("a"), Status: identity.Joining}}})
		}},
		"no member": {fresh(t), func(*region.Machine) {}},
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
				t.Errorf("after %v, not %v", now, left+patience)
			}
			if got := refused(out, shard.Stopped); !slices.Equal(got, []uint64{1}) || !out.Stopped {
				t.Errorf("%+v", out)
			}
		})
	}
}

// As long as a coordinator answers, what waits keeps a region that leaves, also if the answers are
// about nothing. What has a home is not refused when none answers any more.
func TestALeavingRegionThatIsAnswered(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{GiveUpAfter: patience})
	hear(m, homes(5, 1, "b"))
	m.Step(0, region.Send{Shard: 1, Token: 1})
	hear(m, homes(5, 2, "c")) // and what was sent to b is flushed
	m.Step(0, region.Send{Shard: 1, Token: 2})
	m.Step(0, region.Send{Shard: 2, Token: 3})
	out := m.Step(0, region.Leave{})
	if !says(out, coordinator.Register) || m.Buffered() != 2 || !m.Registered() {
		t.Fatalf("it does not ask: %+v", out)
	}
	now, asked := time.Duration(0), 0
	for now < time.Minute {
		if says(out, coordinator.Register) {
			asked++
			hear(m, coordinator.Message{Kind: coordinator.RegisterAck, Term: 5, Round: 2})
		}
		now = m.Next()
		if out = m.Tick(now); len(out.Refused) > 0 {
			t.Fatalf("refused after %v: %+v", now, out)
		}
	}
	if asked < 25 || asked > 35 {
		t.Errorf("it has asked %d times in a minute", asked)
	}
	for silent := now; now < silent+retry+patience; {
		now = m.Next()
		out.Refused = append(out.Refused, m.Tick(now).Refused...)
	}
	if got := refused(out, shard.Stopped); !slices.Equal(got, []uint64{3}) || m.Buffered() != 1 {
		t.Errorf("nobody answers: %+v, and %d wait", out.Refused, m.Buffered())
	}
	if out = m.Step(now, region.Send{Shard: 2, Token: 4}); !slices.Equal(refused(out, shard.Stopped), []uint64{4}) {
		t.Errorf("what comes later: %+v", out)
	}
}

// A region that is refused hears of no home, and does not wait for one when it leaves.
func TestALeavingRegionThatIsRefused(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{GiveUpAfter: patience, Settings: coordinator.Settings{Shards: 100}})
	hear(m, coordinator.Message{Kind: coordinator.Refused, Term: 6, Round: 1, Settings: coordinator.Settings{Shards: 200}})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	if out := m.Step(0, region.Leave{}); !slices.Equal(refused(out, shard.Stopped), []uint64{1}) || !out.Stopped {
		t.Errorf("%+v", out)
	}
}

// Without a limit a region waits, whoever answers.
func TestALeavingRegionWithoutALimit(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	m.Step(0, region.Leave{})
	for now := time.Duration(0); now < time.Hour; now = m.Next() {
		if out := m.Tick(now); len(out.Refused) > 0 || out.Stopped {
			t.Fatalf("after %v: %+v", now, out)
		}
	}
}

// A region that stays keeps what waits, whoever answers.
func TestARegionThatStaysWaits(t *testing.T) {
	t.Parallel()
	m := start(t, region.Config{GiveUpAfter: patience})
	m.Step(0, region.Send{Shard: 1, Token: 1})
	m.Step(0, region.Leave{KeepRouting: true})
	for now := time.Duration(0); now < time.Minute; now = m.Next() {
		if out := m.Tick(now); len(out.Refused) > 0 {
			t.Fatalf("after %v: %+v", now, out)
		}
	}
	if out := m.Step(time.Minute, region.Leave{}); !slices.Equal(refused(out, shard.Stopped), []uint64{1}) || !out.Stopped {
		t.Errorf("it leaves, and nobody has answered for long: %+v", out)
	}
}

// fresh is a region that knows nothing.
func fresh(t *testing.T) *region.Machine {
	t.Helper()
	m, err := region.New(region.Config{Self: node("a"), Type: "account", Instance: 2, GiveUpAfter: patience})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
