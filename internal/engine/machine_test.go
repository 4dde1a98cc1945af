// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
)

// machine returns a machine that was recovered to a sequence number and a time, and its effects.
func machine(t *testing.T, cfg engine.Config, at uint64, last time.Time) (*engine.Machine, *engine.Effects) {
	t.Helper()
	agg := &aggregate{trace: func(string, ...any) {}}
	m, out := &engine.Machine{}, &engine.Effects{}
	m.Init(&cfg, agg, t.Name())
	m.Step(last, deliver("start: reply"), out)
	out.Reset()
	m.Step(last, engine.Input{Kind: engine.Recovered, Recovery: engine.Recovery{SequenceNr: at, Time: last, Writer: "w"}}, out)
	out.Reset()
	return m, out
}

func deliver(text string) engine.Input {
	c := newCaller(message{text, parse(text[len("start: "):])})
	return engine.Input{Kind: engine.Deliver, Env: &c.env}
}

func config() engine.Config {
	return engine.Config{
		StashCapacity: 100, MaxPending: 100, MinBackoff: 3 * time.Second, MaxBackoff: 30 * time.Second,
		BackoffStash: 1000, PanicLimit: 5, PanicWindow: 10 * time.Second,
	}
}

// TestTimesNeverDecrease checks that an event or a fence has the current time, or the time of the
// previous event if the clock was set back.
func TestTimesNeverDecrease(t *testing.T) {
	t.Parallel()
	last := time.Unix(2000, 0).UTC()
	m, out := machine(t, config(), 7, last)
	for _, c := range []struct{ now, want time.Time }{
		{last.Add(-time.Hour), last},
		{last.Add(time.Microsecond), last.Add(time.Microsecond)},
		{last.Add(-time.Minute), last.Add(time.Microsecond)},
	} {
		out.Reset()
		m.Step(c.now, deliver("start: persist(a,b) persist(c)"), out)
		for _, u := range out.Append {
			for _, e := range u.Request.Write.Events {
				if !e.Time.Equal(c.want) {
					t.Errorf("at %v event %d has time %v, want %v", c.now, e.SequenceNr, e.Time, c.want)
				}
			}
		}
	}
	for range 6 {
		out.Reset()
		m.Step(last, engine.Input{Kind: engine.NotStored, Err: errLost}, out)
	}
	if out.Fence == nil || out.Fence.Events[0].Time.Before(last.Add(time.Microsecond)) {
		t.Errorf("the fence is %+v, want one with a time after the last event", out.Fence)
	}
}

// TestSnapshotTimes checks that a snapshot has the time of the last event that it covers.
func TestSnapshotTimes(t *testing.T) {
	t.Parallel()
	last := time.Unix(2000, 0).UTC()
	now := last.Add(time.Second)
	m, out := machine(t, config(), 7, last)
	m.Step(now, deliver("start: save persist(a) save"), out)
	out.Reset()
	m.Step(now, engine.Input{Kind: engine.Stored, N: 1}, out)
	want := []engine.State{{SequenceNr: 7, Time: last}, {SequenceNr: 8, Time: now}}
	if len(out.Save) != len(want) {
		t.Fatalf("the machine requested %d snapshots, want %d", len(out.Save), len(want))
	}
	for i, s := range out.Save {
		if s.SequenceNr != want[i].SequenceNr || !s.Time.Equal(want[i].Time) {
			t.Errorf("snapshot %d has the time %v, want snapshot %d with the time %v", s.SequenceNr, s.Time, want[i].SequenceNr, want[i].Time)
		}
	}
}

// TestJitter checks that a pause is extended by up to Jitter of its length, differently for
// different entities.
func TestJitter(t *testing.T) {
	t.Parallel()
	seen := make(map[time.Duration]bool)
	for i := range 100 {
		cfg := config()
		cfg.Jitter = 0.2
		agg := &aggregate{trace: func(string, ...any) {}}
		var m engine.Machine
		var out engine.Effects
		m.Init(&cfg, agg, fmt.Sprint("entity|", i))
		m.Step(time.Unix(1, 0), deliver("start: reply"), &out)
		out.Reset()
		m.Step(time.Unix(1, 0), engine.Input{Kind: engine.Recovered, Err: errLost}, &out)
		if out.Wake < 3*time.Second || out.Wake > 3600*time.Millisecond {
			t.Errorf("the pause is %v, want 3 s to 3.6 s", out.Wake)
		}
		seen[out.Wake] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 entities have %d different pauses, want at least 50", len(seen))
	}
}

// TestStashWhileStopping checks that the limit of the stash also applies to messages for the next
// instance.
func TestStashWhileStopping(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.StashCapacity = 2
	m, out := machine(t, cfg, 0, time.Unix(1, 0))
	now := time.Unix(2, 0)
	m.Step(now, deliver("start: persist(a) noreply"), out)
	m.Step(now, deliver("start: stop"), out)
	m.Step(now, deliver("start: then(x){persist(b)}"), out)
	m.Step(now, engine.Input{Kind: engine.Stored, N: 1}, out)
	out.Reset()
	for range 3 {
		m.Step(now, deliver("start: reply"), out)
	}
	if len(out.Answers) != 1 || describe(out.Answers[0].Err) != "stash full" {
		t.Errorf("the answers are %v, want one with ErrStashFull", out.Answers)
	}
}

// TestStaleInputs checks that inputs for an instance that has ended change nothing.
func TestStaleInputs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	m, out := machine(t, config(), 0, now)
	for _, in := range []engine.Input{
		{Kind: engine.Stored, N: 3},
		{Kind: engine.NotStored, Err: errLost},
		{Kind: engine.Fenced},
		{Kind: engine.Fenced, Err: journal.ErrConflict},
		{Kind: engine.Probed, LastNr: 9},
		{Kind: engine.Recovered, Recovery: engine.Recovery{SequenceNr: 9}},
		{Kind: engine.Woken},
		{Kind: engine.Continue},
	} {
		out.Reset()
		m.Step(now, in, out)
		if len(out.Append)+len(out.Answers) > 0 || out.Fence != nil || out.Probe != 0 || out.Recover || out.Wake != 0 || out.Stopped || m.SequenceNr() != 0 {
			t.Errorf("input %v has the effects %+v, want none", in.Kind, out)
		}
	}
}

// TestStashedMessagesKeepTheirOrder checks that stashed messages are decided a few at a time, so
// that a long stash does not occupy a worker. A message that arrives before all of them are decided
// is decided last.
func TestStashedMessagesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	const waiting = 1000
	now := time.Unix(1, 0)
	cfg := config()
	cfg.StashCapacity = -1
	var decided []string
	agg := &aggregate{trace: func(format string, args ...any) { decided = append(decided, fmt.Sprintf(format, args...)) }}
	var m engine.Machine
	var out engine.Effects
	m.Init(&cfg, agg, t.Name())
	var want []string
	send := func() {
		c := newCaller(message{name: fmt.Sprint(len(want))})
		want = append(want, "decide "+c.name)
		m.Step(now, engine.Input{Kind: engine.Deliver, Env: &c.env}, &out)
	}
	for range waiting {
		send()
	}
	m.Step(now, engine.Input{Kind: engine.Recovered}, &out)
	if !out.More {
		t.Fatalf("one step decided all %d messages, want several steps", len(decided))
	}
	for out.More {
		out.Reset()
		if len(want) < waiting+20 {
			send()
			out.Reset()
		}
		m.Step(now, engine.Input{Kind: engine.Continue}, &out)
	}
	if !slices.Equal(decided, want) {
		t.Errorf("%d messages were decided, want %d in the order of their arrival", len(decided), len(want))
	}
}

// TestNow checks that a machine keeps whole microseconds of any time, and that its zero value has the zero
// Time.
func TestNow(t *testing.T) {
	t.Parallel()
	var m engine.Machine
	if !m.Now().IsZero() {
		t.Errorf("the time of a new machine is %v", m.Now())
	}
	for _, at := range []time.Time{
		{},
		time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		time.Date(2026, 11, 28, 1, 2, 3, 4_005_000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	} {
		m.SetNow(at)
		if got := m.Now(); !got.Equal(at) || got.Location() != time.UTC {
			t.Errorf("the time is %v, want %v", got, at)
		}
	}
}
