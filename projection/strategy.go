// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Strategy says what to do about an event that the handler returns an error
// for, or panics at, or that can't be decoded. The zero value fails.
type Strategy struct {
	// Retries is how often to try again. What can't be decoded is not tried
	// again. Defaults to 0.
	Retries int
	// Delay is the time between two attempts. Defaults to 1 s.
	Delay time.Duration
	// Skip goes on with the next event then, after the event was logged and
	// shown to the Observer. The default is to fail: the worker begins again, at
	// this event, after the pauses of Config.Restart.
	Skip bool
}

// Fail returns the zero Strategy.
func Fail() Strategy { return Strategy{} }

// Skip returns the Strategy that skips at once.
func Skip() Strategy { return Strategy{Skip: true} }

// RetryAndFail returns the Strategy that tries 5 times more, 1 s apart, and then
// fails.
func RetryAndFail() Strategy { return Strategy{Retries: 5} }

// RetryAndSkip returns the Strategy that tries 5 times more, 1 s apart, and then
// skips.
func RetryAndSkip() Strategy { return Strategy{Retries: 5, Skip: true} }

func (s Strategy) withDefaults() Strategy {
	s.Delay = cmp.Or(s.Delay, time.Second)
	return s
}

func (s Strategy) validate() error {
	var errs []error
	if s.Retries < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.OnFailure.Retries is negative", ErrInvalid))
	}
	if s.Delay < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.OnFailure.Delay is negative", ErrInvalid))
	}
	return errors.Join(errs...)
}

// Backoff says how long a worker pauses that failed, before it begins again at
// its stored position: each time twice as long, until it has handled something.
type Backoff struct {
	// Min is the first pause. Defaults to 3 s.
	Min time.Duration
	// Max is the longest. Defaults to 30 s.
	Max time.Duration
	// Jitter draws a pause out by up to this share of it. Defaults to 0.2;
	// negative is none.
	Jitter float64
	// Limit is how often in a row to begin again before Run returns the error.
	// Defaults to no limit; negative is never.
	Limit int
}

func (b Backoff) withDefaults() Backoff {
	b.Min = cmp.Or(b.Min, 3*time.Second)
	b.Max = max(b.Min, cmp.Or(b.Max, 30*time.Second))
	b.Jitter = max(0, cmp.Or(b.Jitter, 0.2))
	return b
}

func (b Backoff) validate() error {
	var errs []error
	if b.Min < 0 || b.Max < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.Restart has a negative pause", ErrInvalid))
	}
	if b.Jitter > 1 || math.IsNaN(b.Jitter) {
		errs = append(errs, fmt.Errorf("%w: Config.Restart.Jitter is %v, more than 1", ErrInvalid, b.Jitter))
	}
	return errors.Join(errs...)
}

// pause returns how long the nth pause in a row is, counted from 1, and whether
// there is one. Random is at least 0 and below 1.
func (b Backoff) pause(n int, random float64) (time.Duration, bool) {
	if b.Limit < 0 || b.Limit > 0 && n > b.Limit {
		return 0, false
	}
	d := b.Min
	for i := 1; i < n && d < b.Max; i++ {
		d *= 2
	}
	d = min(d, b.Max)
	return d + time.Duration(float64(d)*b.Jitter*random), true
}
