// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import "time"

// clock tells a runtime two times: the one that events carry, which may be set
// back and forth, and a steady one. What waits for a time to pass goes by that.
type clock struct {
	opened time.Time // with its monotonic reading
	wall   func() time.Time
}

// now is the time as events carry it.
func (c *clock) now() time.Time { return c.wall().UTC().Truncate(time.Microsecond) }

// steady never jumps and never goes back.
func (c *clock) steady() time.Time { return c.opened.Add(time.Since(c.opened)) }
