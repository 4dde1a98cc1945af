// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/outbox"
)

// ErrFull means that a command would lead to more than Options.MaxUnconfirmed unconfirmed deliveries
// in an outbox. Nothing was stored. The same command can succeed later.
var ErrFull = engine.ErrOutboxFull

// Options configure an Outbox, see SendsWith. The zero value holds the defaults.
type Options struct {
	// Interval is the time after which an unconfirmed delivery is sent again, with a precision of
	// half an Interval. Defaults to 5 s; at least 1 ms.
	Interval time.Duration
	// Burst is the number of deliveries that are sent again at one time. Defaults to 10,000.
	Burst int
	// WarnAfter is the number of transmissions of a delivery before an Unconfirmed signal. Defaults to 5.
	WarnAfter int
	// MaxUnconfirmed is the number of unconfirmed deliveries that a command may lead to, see ErrFull and
	// Outbox.Room. Defaults to 100,000.
	MaxUnconfirmed int
}

func (s Options) withDefaults() Options {
	s.Interval = cmp.Or(s.Interval, 5*time.Second)
	s.Burst = cmp.Or(s.Burst, 10_000)
	s.WarnAfter = cmp.Or(s.WarnAfter, 5)
	s.MaxUnconfirmed = cmp.Or(s.MaxUnconfirmed, 100_000)
	return s
}

// validate checks options with defaults.
func (s Options) validate() error {
	var errs fielderror.Errors
	if s.Interval < time.Millisecond {
		errs.Addf("Options.Interval", "is %v, it must be at least 1ms", s.Interval)
	}
	positive := func(field string, n int) {
		if n < 1 {
			errs.Addf(field, "is %d, it must be at least 1", n)
		}
	}
	positive("Options.Burst", s.Burst)
	positive("Options.WarnAfter", s.WarnAfter)
	positive("Options.MaxUnconfirmed", s.MaxUnconfirmed)
	return errs.Err(eventsourcing.ErrInvalid)
}

func (s Options) window() outbox.Config {
	return outbox.Config{Interval: s.Interval, Burst: s.Burst, WarnAfter: s.WarnAfter}
}
