// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import "time"

// ReportAll makes calls slow and stalls long from the start. It must be called before anything
// else.
func (db *DB) ReportAll() { db.watch.slowCall, db.watch.longStall = 0, 0 }

// ReportNoCall makes no call slow, however long it takes.
func (db *DB) ReportNoCall() { db.watch.slowCall = 1<<63 - 1 }

// Stall is a stall that is told what is seen, in order.
type Stall struct{ stall stall }

// Saw tells of a watermark, and returns "lasts" or "over" with the age if there is something to
// report.
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
