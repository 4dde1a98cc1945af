// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"log/slog"
	"time"
)

// outageAfter is how many RetryIntervals no coordinator has answered for when the log says so. A coordinator that moves, in order, is back
// before.
const outageAfter = 5

// tellOutage writes into the log, once, that no coordinator answers, and that one does again.
func (s *site) tellOutage() {
	if s.empty || s.halted {
		return
	}
	silence := s.machine.Silence()
	long := silence >= outageAfter*s.opts.RetryInterval
	by, refused := s.machine.Refused()
	switch {
	case long && !s.outage:
		s.outage = true
		var asked []string
		for _, n := range s.machine.Likely() {
			asked = append(asked, n.String())
		}
		s.log.LogAttrs(s.base, slog.LevelWarn, "no coordinator answers, commands for shards without a known home wait", slog.String("role", s.opts.Role),
			slog.Any("asked", asked), slog.Duration("silent", silence.Round(time.Millisecond)), slog.Int("waiting", s.machine.Waiting()))
	case !long && s.outage && (s.machine.Registered() || refused != nil):
		s.outage = false
		s.log.LogAttrs(s.base, slog.LevelInfo, "a coordinator answers again", slog.String("role", s.opts.Role), slog.String("coordinator", by.String()))
	}
}
