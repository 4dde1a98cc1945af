// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Strategy says what to do about an event that the handler returns an error
// for, or panics at, or that can't be decoded:
//
//	Strategy{}                        fails: nothing behind the event is handled until it can be
//	Strategy{Skip: true}              skips it at once
//	Strategy{Retries: 5}              tries it 5 times more, 1 s apart, and then fails
//	Strategy{Retries: 5, Skip: true}  likewise, and then skips it
type Strategy struct {
	// Retries is how often to try again. What can't be decoded is not tried
	// again. Defaults to 0.
	Retries int
	// Delay is the time between two attempts. Defaults to 1 s.
	Delay time.Duration
	// Skip goes on with the next event then, after the event was logged and
	// shown to the Observer. The default is to fail: the worker begins again, at
	// this event, after the pauses of Config.MinBackoff and its relatives.
	Skip bool
}

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
