// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// moment is a time that a user names.
type moment struct{ time.Time }

// UnmarshalText reads a time as RFC 3339 has it, or a date, which stands for its
// end, in UTC.
func (m *moment) UnmarshalText(text []byte) error {
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err == nil {
		m.Time = t
		return nil
	}
	day, err := time.Parse(time.DateOnly, string(text))
	if err != nil {
		return fmt.Errorf("%.40q is neither a time such as 2026-07-01T12:00:00Z nor a date", text)
	}
	m.Time = day.AddDate(0, 0, 1).Add(-time.Microsecond)
	return nil
}

// beginning is a time from which on something is shown: a date stands for its
// beginning.
type beginning struct{ time.Time }

// UnmarshalText is like that of moment.
func (b *beginning) UnmarshalText(text []byte) error {
	var m moment
	if err := m.UnmarshalText(text); err != nil {
		return err
	}
	b.Time = m.Time
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		b.Time = day
	}
	return nil
}
