// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
)

type register = crdt.LWWRegister[string]

func at(t int64) crdt.Clock[string] {
	return func(*crdt.Self, int64, string) (int64, error) { return t, nil }
}

func TestRegisterMerge(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	write := func(by *crdt.Self, v string, time int64) register {
		return must(register{}.SetBy(by, v, at(time)))
	}
	for name, tt := range map[string]struct{ win, lose register }{
		"a written register, an empty one":  {write(a, "x", math.MinInt64), register{}},
		"different timestamps":              {write(b, "x", 5), write(a, "y", 4)},
		"negative timestamps":               {write(b, "x", -4), write(a, "y", -5)},
		"equal timestamps, different nodes": {write(a, "y", 5), write(b, "x", 5)},
		"different bytes only":              {write(a, "x", 5), write(a, "y", 5)},
	} {
		if m := must(tt.lose.Merge(tt.win)); !m.Equal(tt.win) {
			t.Errorf("%s: got %q, want %q", name, must(m.Value()), must(tt.win.Value()))
		}
		if m := must(tt.win.Merge(tt.lose)); !m.Equal(tt.win) {
			t.Errorf("%s, merged in reverse order: got %q, want %q", name, must(m.Value()), must(tt.win.Value()))
		}
	}
}

func TestDefaultClock(t *testing.T) {
	t.Parallel()
	a := self(t, "a") // the clock of a is at 1000
	r := must(register{}.Set(a, "x"))
	if r.Timestamp() != 1000 || r.UpdatedBy() != a.Node() || must(r.Value()) != "x" || !r.IsSet() {
		t.Errorf("got %q at %d, want \"x\" at 1000", must(r.Value()), r.Timestamp())
	}
	// A node never uses a timestamp twice, even for different registers, because two registers may
	// have the same key.
	if other := must(register{}.Set(a, "y")); other.Timestamp() != 1001 {
		t.Errorf("another register: got %d, want 1001", other.Timestamp())
	}
	r = must(r.Set(a, "z"))
	if r.Timestamp() != 1002 {
		t.Errorf("second write: got %d, want 1002", r.Timestamp())
	}
	a.Advance(time.UnixMilli(500)) // the clock jumps back
	if r = must(r.Set(a, "z")); r.Timestamp() != 1003 {
		t.Errorf("with an earlier clock: got %d, want 1003", r.Timestamp())
	}
	a.Advance(time.UnixMilli(5000))
	if r = must(r.Set(a, "z")); r.Timestamp() != 5000 {
		t.Errorf("with a later clock: got %d, want 5000", r.Timestamp())
	}
	// A timestamp from a clock that is ahead raises the following timestamps, also in other
	// registers.
	ahead := must(register{}.SetBy(self(t, "bb"), "q", at(9000)))
	if r = must(ahead.Set(a, "z")); r.Timestamp() != 9001 {
		t.Errorf("after 9000: got %d, want 9001", r.Timestamp())
	}
	if other := must(register{}.Set(a, "y")); other.Timestamp() != 9002 {
		t.Errorf("another register: got %d, want 9002", other.Timestamp())
	}
	// A timestamp that is far ahead does not raise the timestamps of other registers.
	tomorrow := must(register{}.SetBy(self(t, "bb"), "q", at(math.MaxInt64/2)))
	if tomorrow = must(tomorrow.Set(a, "z")); tomorrow.Timestamp() != math.MaxInt64/2+1 {
		t.Errorf("after a timestamp far ahead: got %d, want one more than that timestamp", tomorrow.Timestamp())
	}
	if other := must(register{}.Set(a, "y")); other.Timestamp() > 10_000 {
		t.Errorf("another register: got %d, want at most 10,000", other.Timestamp())
	}
	far := must(register{}.SetBy(self(t, "bb"), "q", at(math.MaxInt64-1)))
	if far = must(far.Set(a, "z")); far.Timestamp() != math.MaxInt64 {
		t.Errorf("after the second highest timestamp: got %d, want the highest timestamp", far.Timestamp())
	}
	if other := must(register{}.Set(a, "y")); other.Timestamp() > 10_000 {
		t.Errorf("another register: got %d, want at most 10,000", other.Timestamp())
	}
	if _, err := far.Set(a, "z"); !errors.Is(err, crdt.ErrClock) {
		t.Errorf("after the highest timestamp: got error %v, want ErrClock", err)
	}
}

func TestReverseClock(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	first := must(register{}.SetBy(a, "first", crdt.ReverseClock[string]))
	second := must(register{}.SetBy(a, "second", crdt.ReverseClock[string]))
	third := must(first.SetBy(a, "third", crdt.ReverseClock[string]))
	if first.Timestamp() != -1000 || second.Timestamp() != -1001 || third.Timestamp() != -1002 {
		t.Errorf("got timestamps %d, %d, %d, want -1000, -1001 and -1002", first.Timestamp(), second.Timestamp(), third.Timestamp())
	}
	if m := must(must(second.Merge(third)).Merge(first)); must(m.Value()) != "first" {
		t.Errorf("%q wins, want first", must(m.Value()))
	}
	last := must(register{}.SetBy(a, "x", at(math.MinInt64)))
	if _, err := last.SetBy(a, "y", crdt.ReverseClock[string]); !errors.Is(err, crdt.ErrClock) {
		t.Errorf("below the lowest timestamp: got error %v, want ErrClock", err)
	}
}

func TestCustomClock(t *testing.T) {
	t.Parallel()
	a := self(t, "a")
	type record = crdt.LWWRegister[int]
	version := func(_ *crdt.Self, _ int64, v int) (int64, error) { return int64(v), nil }
	r := must(record{}.SetBy(a, 7, version))
	older := must(r.SetBy(a, 3, version))
	if m := must(r.Merge(older)); must(m.Value()) != 7 {
		t.Errorf("%d wins, want 7", must(m.Value()))
	}
	broken := errors.New("no version")
	if _, err := r.SetBy(a, 1, func(*crdt.Self, int64, int) (int64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("a failing clock: got error %v, want the error of the clock", err)
	}
	if _, err := must(record{}.SetBy(a, 7, nil)).Value(); err != nil {
		t.Errorf("a nil clock: got error %v, want no error", err)
	}
}
