// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding/passivation"
)

func TestIdle(t *testing.T) {
	t.Parallel()
	const second = time.Second
	e := entities(t, passivation.Settings{}, 0)
	if e.Next() != passivation.Never {
		t.Errorf("without entities the next check is at %v", e.Next())
	}
	for _, id := range []string{"a", "b", "c"} {
		if got := e.Touch(0, id); len(got) > 0 {
			t.Errorf("%v are passivated", got)
		}
	}
	e.Touch(30*second, "a")
	e.Remove("b")
	if e.Next() != 60*second || e.Limit() != -1 {
		t.Errorf("the next check is at %v, the limit is %d", e.Next(), e.Limit())
	}
	for _, step := range []struct {
		at, next time.Duration
		want     []string
	}{
		{59 * second, 60 * second, nil},
		{60 * second, 120 * second, nil},
		{120 * second, 180 * second, nil}, // not longer than 120 seconds
		{179 * second, 180 * second, nil}, // no check
		{180 * second, passivation.Never, []string{"c", "a"}},
		{500 * second, passivation.Never, nil},
	} {
		if got := e.Tick(step.at); !slices.Equal(got, step.want) || e.Next() != step.next {
			t.Errorf("%v: %v, next at %v, want %v, at %v", step.at, got, e.Next(), step.want, step.next)
		}
	}
	if e.Touch(600*second, "d"); e.Next() != 660*second || e.Len() != 1 {
		t.Errorf("the next check is at %v, %d are active", e.Next(), e.Len())
	}
}

// Idle entities go under each policy, and don't count any more.
func TestIdleWithALimit(t *testing.T) {
	t.Parallel()
	e := entities(t, passivation.Settings{Limit: 1, IdleTimeout: 10, IdleInterval: 1}, 2)
	e.Touch(0, "a")
	e.Touch(5, "b")
	if got := e.Tick(11); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v were idle", got)
	}
	if got := e.Touch(11, "c"); len(got) > 0 {
		t.Errorf("%v are passivated, there is room", got)
	}
	if got := e.Touch(12, "d"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v are passivated", got)
	}
	if got := entities(t, passivation.Settings{Limit: 1}, 2); got.Touch(0, "a") != nil || got.Next() != passivation.Never {
		t.Error("with a limit entities are not idle unless the settings say so")
	}
}

func TestNothingIsTracked(t *testing.T) {
	t.Parallel()
	for _, s := range []passivation.Settings{{Disabled: true, Limit: 5}, {IdleTimeout: -1}} {
		e := entities(t, s, 1)
		for _, id := range []string{"a", "b", "c"} {
			if got := e.Touch(0, id); len(got) > 0 {
				t.Errorf("%v are passivated", got)
			}
			e.Remove("a")
		}
		if e.Len() != 0 || e.Next() != passivation.Never || len(e.Tick(math.MaxInt64)) > 0 || len(e.SetLimit(0)) > 0 || e.Limit() != -1 {
			t.Errorf("%+v: something is tracked", s)
		}
	}
}

func TestPerShard(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]int{{100_000, 1000, 100}, {10, 3, 3}, {10, 11, 0}, {10, 0, 10}} {
		if got := passivation.PerShard(test[0], test[1]); got != test[2] {
			t.Errorf("%d among %d shards: %d, want %d", test[0], test[1], got, test[2])
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := passivation.Settings{}.WithDefaults()
	want := passivation.Settings{
		IdleTimeout: 2 * time.Minute, IdleInterval: time.Minute,
		Replacement: passivation.Replacement{Policy: passivation.LeastRecent, Levels: 1, Proportions: []float64{1}},
		Window: passivation.Window{
			Replacement: passivation.Replacement{Levels: 1, Proportions: []float64{1}}, Proportion: 0.01, Min: 0.01, Max: 1,
			Climb: passivation.Climb{Multiplier: 10, Step: 0.0625, Restart: 0.05, Decay: 0.98},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	got, err = passivation.Composite().WithDefaults()
	if err != nil || got.Limit != 100_000 || got.IdleTimeout != -1 || got.Replacement.Levels != 2 || got.Filter != passivation.FrequencySketch ||
		got.Window.Replacement.Policy != passivation.LeastRecent || !got.Window.Climb.Enabled || got.Window.Max != 1 {
		t.Errorf("composite: %+v, %v", got, err)
	}
	if again, err := got.WithDefaults(); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("what has defaults gets others: %+v, %v", again, err)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	window := func(w passivation.Window) passivation.Settings { return passivation.Settings{Window: w} }
	climb := func(c passivation.Climb) passivation.Settings { return window(passivation.Window{Climb: c}) }
	for field, s := range map[string]passivation.Settings{
		"IdleInterval":                     {IdleInterval: -1},
		"Settings.Limit":                   {Limit: -1},
		"Filter":                           {Filter: "x"},
		"Settings.Replacement.Policy":      {Replacement: passivation.Replacement{Policy: "x"}},
		"Window.Replacement.Policy":        window(passivation.Window{Replacement: passivation.Replacement{Policy: "x"}}),
		"Replacement.Levels is 17":         {Replacement: passivation.Replacement{Levels: 17}},
		"Replacement.Levels is -1":         {Replacement: passivation.Replacement{Levels: -1}},
		"Levels is 3, there are 2":         {Replacement: passivation.Replacement{Levels: 3, Proportions: []float64{0.5, 0.5}}},
		"Levels is of no use":              {Replacement: passivation.Replacement{Policy: passivation.MostRecent, Levels: 2}},
		"Proportions are 0.5":              {Replacement: passivation.Replacement{Proportions: []float64{0.5}}},
		"Proportions has 0":                {Replacement: passivation.Replacement{Proportions: []float64{0, 1}}},
		"Proportions has NaN":              {Replacement: passivation.Replacement{Proportions: []float64{math.NaN(), 1}}},
		"DynamicAging":                     {Replacement: passivation.Replacement{DynamicAging: true}},
		"Window.Proportion":                window(passivation.Window{Proportion: 2}),
		"Window.Min is 1.5":                window(passivation.Window{Min: 1.5}),
		"Window.Max":                       window(passivation.Window{Max: math.NaN()}),
		"Window.Min is 0.5, more than Max": window(passivation.Window{Min: 0.5, Max: 0.4}),
		"Window.Climb.Multiplier is -1":    climb(passivation.Climb{Multiplier: -1}),
		"Window.Climb.Multiplier is 1e+09": climb(passivation.Climb{Multiplier: 1e9}),
		"Window.Climb.Step":                climb(passivation.Climb{Step: -1}),
		"Window.Climb.Restart":             climb(passivation.Climb{Restart: 1.5}),
		"Window.Climb.Decay":               climb(passivation.Climb{Decay: 1.5}),
	} {
		_, err := passivation.New(s, 1)
		if !errors.Is(err, passivation.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v, want one about %s", s, err, field)
		}
	}
}
