// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/sharding/passivation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	for _, settings := range []passivation.Settings{
		{},                              // after 2 idle minutes
		{IdleTimeout: 10 * time.Minute}, // after 10 idle minutes
		{Limit: 50_000},                 // the least recently used one above 50,000
		{Disabled: true},                // never passivated
	} {
		used, err := settings.WithDefaults()
		fmt.Println(used.IdleTimeout, used.Limit, err)
	}
	// Output:
	// 2m0s 0 <nil>
	// 10m0s 0 <nil>
	// -1ns 50000 <nil>
	// -1ns 0 <nil>
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ settings, want passivation.Settings }{
		"none":      {want: passivation.Settings{IdleTimeout: 2 * time.Minute, IdleInterval: time.Minute}},
		"limit":     {settings: passivation.Settings{Limit: 3}, want: passivation.Settings{IdleTimeout: -1, IdleInterval: 1, Limit: 3}},
		"disabled":  {settings: passivation.Settings{Disabled: true, Limit: 3}, want: passivation.Settings{Disabled: true, IdleTimeout: -1}},
		"unlimited": {settings: passivation.Settings{IdleTimeout: math.MaxInt64, IdleInterval: math.MaxInt64}, want: passivation.Settings{IdleTimeout: math.MaxInt64, IdleInterval: math.MaxInt64 / 2}},
	} {
		got, err := test.settings.WithDefaults()
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
		if again, err := got.WithDefaults(); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: WithDefaults of %+v = %+v, %v, want the same settings", name, got, again, err)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	for field, s := range map[string]passivation.Settings{
		"Settings.IdleInterval is -1ns": {IdleInterval: -1},
		"Settings.Limit is -1":          {Limit: -1},
	} {
		_, err := s.WithDefaults()
		if !errors.Is(err, passivation.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("WithDefaults of %+v: %v, want an error with %q", s, err, field)
		}
	}
}
