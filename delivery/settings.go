// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/outbox"
)

// Settings configure an Outbox. The zero value holds the defaults.
type Settings struct {
	// Interval is after how long without a confirmation a delivery is sent again;
	// it is looked for every half interval. Defaults to 5 s; at least 1 ms.
	Interval time.Duration
	// Burst is how many deliveries are sent again at one time. Defaults to
	// 10,000.
	Burst int
	// WarnAfter is how many transmissions a delivery may have before the
	// aggregate is told. Defaults to 5.
	WarnAfter int
	// MaxUnconfirmed is how many unconfirmed deliveries Outbox.Room allows.
	// Defaults to 100,000.
	MaxUnconfirmed int
}

func (s Settings) withDefaults() Settings {
	s.Interval = cmp.Or(s.Interval, 5*time.Second)
	s.Burst = cmp.Or(s.Burst, 10_000)
	s.WarnAfter = cmp.Or(s.WarnAfter, 5)
	s.MaxUnconfirmed = cmp.Or(s.MaxUnconfirmed, 100_000)
	return s
}

// validate checks settings to which the defaults were added.
func (s Settings) validate() error {
	var errs []error
	if s.Interval < time.Millisecond {
		errs = append(errs, fmt.Errorf("%w: Settings.Interval is %v, at least 1 ms is needed", eventsourcing.ErrInvalid, s.Interval))
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"Burst", s.Burst}, {"WarnAfter", s.WarnAfter}, {"MaxUnconfirmed", s.MaxUnconfirmed}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("%w: Settings.%s is %d, at least 1 is needed", eventsourcing.ErrInvalid, f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

func (s Settings) window() outbox.Config {
	return outbox.Config{Interval: s.Interval, Burst: s.Burst, WarnAfter: s.WarnAfter}
}
