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

// ErrFull means that an outbox holds as many unconfirmed deliveries as it may. It is no refusal:
// the same command can succeed later.
var ErrFull = errors.New("delivery: too many unconfirmed deliveries")

// Options configure an Outbox, see SendsWith. The zero value holds the defaults.
type Options struct {
	// Interval is the time after which an unconfirmed delivery is sent again. It is checked every
	// half interval. Defaults to 5 s; at least 1 ms.
	Interval time.Duration
	// Burst is the number of deliveries that are sent again at one time. Defaults to 10,000.
	Burst int
	// WarnAfter is the number of transmissions of a delivery before an Unconfirmed signal. Defaults to 5.
	WarnAfter int
	// MaxUnconfirmed is the number of unconfirmed deliveries that Outbox.Room allows. Defaults to 100,000.
	MaxUnconfirmed int
}

func (s Options) withDefaults() Options {
	s.Interval = cmp.Or(s.Interval, 5*time.Second)
	s.Burst = cmp.Or(s.Burst, 10_000)
	s.WarnAfter = cmp.Or(s.WarnAfter, 5)
	s.MaxUnconfirmed = cmp.Or(s.MaxUnconfirmed, 100_000)
	return s
}

// validate checks settings to which the defaults were added.
func (s Options) validate() error {
	var errs []error
	if s.Interval < time.Millisecond {
		errs = append(errs, fmt.Errorf("%w: Options.Interval is %v, at least 1 ms is needed", eventsourcing.ErrInvalid, s.Interval))
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"Burst", s.Burst}, {"WarnAfter", s.WarnAfter}, {"MaxUnconfirmed", s.MaxUnconfirmed}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("%w: Options.%s is %d, at least 1 is needed", eventsourcing.ErrInvalid, f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

func (s Options) window() outbox.Config {
	return outbox.Config{Interval: s.Interval, Burst: s.Burst, WarnAfter: s.WarnAfter}
}
