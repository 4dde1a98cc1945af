// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import "time"

// ReportAll reports every call as slow and every stall immediately. It must be called before all
// other methods.
func (db *DB) ReportAll() { db.watch.slowCall, db.watch.longStall = 0, 0 }

// ReportNoCall reports no call as slow.
func (db *DB) ReportNoCall() { db.watch.slowCall = 1<<63 - 1 }

// Stall detects stalls from a sequence of watermarks.
type Stall struct{ stall stall }

// Saw adds a watermark. It returns "lasts" or "over" with the age if a report is due.
func (s *Stall) Saw(now time.Time, below int64, held bool) string {
	age, report := s.stall.saw(now, mark{below: below, held: held}, longStall)
	switch report {
	case stallLasts:
		return "lasts " + age.String()
	case stallOver:
		return "over " + age.String()
	case stallQuiet:
	}
	return ""
}
