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

// catchUpRestarts is how often in a row CatchUp begins again by default. Together
// with the pauses that is about four minutes: longer than a server takes to start.
const catchUpRestarts = 10

// withBackoffDefaults fills in what says how to begin again.
func (c Config[E]) withBackoffDefaults() Config[E] {
	c.MinBackoff = cmp.Or(c.MinBackoff, 3*time.Second)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, max(30*time.Second, c.MinBackoff))
	c.BackoffJitter = max(0, cmp.Or(c.BackoffJitter, 0.2))
	return c
}

func (c Config[E]) checkBackoff() error {
	var errs []error
	if c.MinBackoff < 0 || c.MaxBackoff < c.MinBackoff {
		errs = append(errs, fmt.Errorf("%w: Config.MinBackoff %v and MaxBackoff %v are no range", ErrInvalid, c.MinBackoff, c.MaxBackoff))
	}
	if c.BackoffJitter > 1 || math.IsNaN(c.BackoffJitter) {
		errs = append(errs, fmt.Errorf("%w: Config.BackoffJitter is %v, at most 1 is allowed", ErrInvalid, c.BackoffJitter))
	}
	return errors.Join(errs...)
}

// pause returns how long to wait after the nth failure in a row, counted from 1.
// Random is at least 0 and below 1.
func (c Config[E]) pause(n int, random float64) time.Duration {
	d := c.MinBackoff
	for i := 1; i < n && d < c.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, c.MaxBackoff)
	return d + time.Duration(float64(d)*c.BackoffJitter*random)
}

// streak counts failures in a row.
type streak struct {
	failures int // those that count
	fences   int // those by another process, which does the work meanwhile
}

// add counts an error, and reports whether it was the last one: whether to give
// up now.
func (s *streak) add(err error, maxRestarts int, once bool) bool {
	if errors.Is(err, ErrFenced) {
		s.fences++
	} else {
		s.failures++
	}
	if maxRestarts == 0 && once {
		maxRestarts = catchUpRestarts
	}
	return maxRestarts < 0 || maxRestarts > 0 && s.failures > maxRestarts
}

// length is how many there were.
func (s *streak) length() int { return s.failures + s.fences }
