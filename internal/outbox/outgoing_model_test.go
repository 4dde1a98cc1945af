// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package outbox_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/internal/outbox"
)

// act is the effect of one event on a window: deliveries and confirmations.
type act struct {
	add     []string
	confirm []uint64
}

// saved is a snapshot.
type saved struct {
	event, last uint64
	entries     []outbox.Entry[string]
}

// owner is an aggregate with a window, whose events are stored late or lost.
type owner struct {
	cfg    outbox.Config
	acts   []act // act i belongs to event i+1
	stored uint64
	saves  []saved
	now    time.Time
	window *outbox.Outgoing[string]
	ledger *ledger
}

func (o *owner) apply(t *rapid.T, event uint64, a act, skipWindow bool) {
	for _, item := range a.add {
		want := o.ledger.add(event, item)
		if skipWindow {
			continue
		}
		if got := o.window.Add(event, item); got != want {
			t.Fatalf("Add returns %d, want %d", got, want)
		}
	}
	for _, nr := range a.confirm {
		want := o.ledger.confirm(event, nr)
		if skipWindow {
			continue
		}
		if got := o.window.Confirm(event, nr); got != want {
			t.Fatalf("Confirm(%d) is %v, want %v", nr, got, want)
		}
	}
}

// restart recovers from a snapshot and the later events.
func (o *owner) restart(t *rapid.T, from saved) {
	o.acts = o.acts[:o.stored]
	o.saves = slices.DeleteFunc(o.saves, func(s saved) bool { return s.event > o.stored })
	o.ledger = &ledger{cfg: o.cfg}
	var err error
	if o.window, err = outbox.Restore(o.cfg, from.last, slices.Clone(from.entries)); err != nil {
		t.Fatal(err)
	}
	for i, a := range o.acts {
		o.apply(t, uint64(i)+1, a, uint64(i) < from.event)
	}
	if d := difference(o.window.Recovered(o.now), o.ledger.recover(o.stored, o.now)); d != "" {
		t.Fatalf("Recovered %s", d)
	}
}

func (o *owner) check(t *rapid.T) {
	open := o.ledger.open()
	if got := o.window.Open(); got != len(open) {
		t.Fatalf("Open is %d, want %d", got, len(open))
	}
	if got, want := o.window.Floor(), o.ledger.floor(); got != want {
		t.Fatalf("Floor is %d, want %d", got, want)
	}
	if got, want := o.window.Next(), o.ledger.tick; !got.Equal(want) {
		t.Fatalf("Next is %v, want %v", got, want)
	}
	if got, _ := o.window.State(); got != uint64(len(o.ledger.entries)) {
		t.Fatalf("State returns the last number %d, want %d", got, len(o.ledger.entries))
	}
	var want []outbox.Sending[string]
	for _, e := range open {
		want = append(want, outbox.Sending[string]{Nr: e.nr, Attempt: len(e.sent), Item: e.item})
	}
	if got := slices.Collect(o.window.All()); !slices.Equal(got, want) {
		t.Fatalf("All yields %+v, want %+v", got, want)
	}
	for nr := range uint64(len(o.ledger.entries)) + 2 {
		i := slices.IndexFunc(want, func(s outbox.Sending[string]) bool { return s.Nr == nr })
		got, ok := o.window.Find(nr)
		if ok != (i >= 0) || ok && got != want[i] {
			t.Fatalf("Find(%d) returns %+v, %v, want the entry of All", nr, got, ok)
		}
	}
}

// TestOutgoingModel compares an Outgoing with the ledger, over events that are stored or lost,
// snapshots, restarts and ticks.
func TestOutgoingModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &owner{now: time.Unix(1_000_000, 0), cfg: outbox.Config{
			Interval:  time.Duration(rapid.IntRange(1, 10).Draw(t, "interval")) * time.Second,
			Burst:     rapid.IntRange(1, 6).Draw(t, "burst"),
			WarnAfter: rapid.IntRange(1, 3).Draw(t, "warn after"),
		}}
		o.restart(t, saved{})
		added := 0
		t.Repeat(map[string]func(*rapid.T){
			"": o.check,
			"event": func(t *rapid.T) {
				var a act
				for range rapid.IntRange(0, 3).Draw(t, "adds") {
					added++
					a.add = append(a.add, fmt.Sprint(added))
				}
				nr := rapid.Uint64Range(0, uint64(len(o.ledger.entries)+len(a.add))+1)
				a.confirm = rapid.SliceOfN(nr, 0, 4).Draw(t, "confirm")
				o.acts = append(o.acts, a)
				o.apply(t, uint64(len(o.acts)), a, false)
			},
			"add many": func(t *rapid.T) {
				var a act
				for range rapid.IntRange(30, 80).Draw(t, "adds") {
					added++
					a.add = append(a.add, fmt.Sprint(added))
				}
				o.acts = append(o.acts, a)
				o.apply(t, uint64(len(o.acts)), a, false)
			},
			"confirm many": func(t *rapid.T) {
				from := rapid.IntRange(0, len(o.ledger.entries)).Draw(t, "from")
				var a act
				for _, e := range o.ledger.entries[from:] {
					a.confirm = append(a.confirm, e.nr)
				}
				o.acts = append(o.acts, a)
				o.apply(t, uint64(len(o.acts)), a, false)
			},
			"store": func(t *rapid.T) {
				o.stored = rapid.Uint64Range(o.stored, uint64(len(o.acts))).Draw(t, "stored")
				if d := difference(o.window.Durable(o.stored, o.now), o.ledger.store(o.stored, o.now)); d != "" {
					t.Fatalf("Durable %s", d)
				}
			},
			"tick": func(t *rapid.T) {
				o.now = o.now.Add(time.Duration(rapid.IntRange(0, 2*int(o.cfg.Interval/time.Second)).Draw(t, "half seconds")) * time.Second / 2)
				var want outbox.Effects[string]
				if !o.ledger.tick.IsZero() && !o.now.Before(o.ledger.tick) {
					want = o.ledger.burst(o.now)
				}
				if d := difference(o.window.Tick(o.now), want); d != "" {
					t.Fatalf("Tick %s", d)
				}
			},
			"snapshot": func(*rapid.T) {
				last, entries := o.window.State()
				o.saves = append(o.saves, saved{event: uint64(len(o.acts)), last: last, entries: slices.Clone(entries)})
			},
			"restart": func(t *rapid.T) {
				from := saved{}
				if ok := slices.DeleteFunc(slices.Clone(o.saves), func(s saved) bool { return s.event > o.stored }); len(ok) > 0 {
					from = rapid.SampledFrom(append(ok, saved{})).Draw(t, "from")
				}
				o.restart(t, from)
			},
		})
	})
}
