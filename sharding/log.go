// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"log/slog"
	"strings"
	"time"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// logKind is a kind of log lines that is throttled.
type logKind uint8

const (
	logUnsent logKind = iota
	logMalformed
	logDropped
	logIgnored
	logRefused
	logKinds
)

// reportDropped reports a command that was not delivered.
func (s *shell) reportDropped(id string, asked bool, err error) {
	s.dropped.Add(1)
	n, _ := s.shardOf(id)
	if f := s.opts.Observer.Dropped; f != nil {
		info := DroppedInfo{Type: s.name, Entity: id, Shard: n, Asked: asked, Err: err}
		if panicked := panics.Catch(func() error { f(info); return nil }); panicked != nil {
			s.log.ErrorContext(s.ctx, "observer panicked", slog.Any("error", panicked))
		}
	}
	level := slog.LevelWarn
	if asked {
		level = slog.LevelDebug // the caller gets an error
	}
	s.throttle.Log(s.ctx, s.log, logDropped, level, "command not delivered", slog.String("entity", id), slog.Any("error", err))
}

// logNote logs a note of the coordinator.
func (s *shell) logNote(n *coordinator.Note) {
	level := slog.LevelDebug
	switch n.Kind {
	case coordinator.Ignored:
		s.throttle.Log(s.ctx, s.log, logIgnored, level, "coordinator: message ignored", slog.String("peer", n.Node.String()), slog.String("message", n.Message.String()))
		return
	case coordinator.RegionRefused:
		s.throttle.Log(s.ctx, s.log, logRefused, slog.LevelError, "coordinator: region rejected: its settings differ", slog.String("peer", n.Node.String()),
			slog.String("fields", strings.Join(n.Fields, " ")))
		return
	case coordinator.PhaseChanged, coordinator.HandOffDone, coordinator.Terminating, coordinator.Silent:
		level = slog.LevelInfo
	case coordinator.Repaired, coordinator.LoadRetried, coordinator.SaveRetried, coordinator.HandOffFailed:
		level = slog.LevelWarn
	case coordinator.Stored, coordinator.NotAllocated, coordinator.HandOffBegun:
	}
	attrs := []slog.Attr{
		slog.String("event", n.Kind.String()), slog.String("phase", n.Phase.String()), slog.Uint64("term", n.Term), slog.Int("shards", len(n.Shards)), slog.Int("count", n.Count),
	}
	if n.Node.Name != "" {
		attrs = append(attrs, slog.String("peer", n.Node.String()))
	}
	if len(n.Repairs) > 0 {
		attrs = append(attrs, slog.Any("repairs", n.Repairs))
	}
	if n.Reason != 0 {
		attrs = append(attrs, slog.String("reason", n.Reason.String()))
	}
	s.log.LogAttrs(s.ctx, level, "coordinator", attrs...)
}

// outageAfter is after how many RetryIntervals without a reply of a coordinator the log reports an
// outage. A planned move of the coordinator takes less time.
const outageAfter = 5

// logOutage logs the begin and the end of an outage of the coordinator once.
func (s *shell) logOutage() {
	if s.machine.Halted() {
		return
	}
	silence := s.machine.Silence()
	long := silence >= outageAfter*s.opts.Tuning.RetryInterval
	by, refused := s.machine.Refused()
	switch {
	case long && !s.outageLogged:
		s.outageLogged = true
		var asked []string
		for _, n := range s.machine.Candidates() {
			asked = append(asked, n.String())
		}
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "no coordinator replies: commands for shards without a known home wait", slog.String("role", s.opts.Role),
			slog.Any("asked", asked), slog.Duration("silent", silence.Round(time.Millisecond)), slog.Int("waiting", s.machine.Waiting()))
	case !long && s.outageLogged && (s.machine.Registered() || refused != nil):
		s.outageLogged = false
		s.log.LogAttrs(s.ctx, slog.LevelInfo, "coordinator replies again", slog.String("role", s.opts.Role), slog.String("coordinator", by.String()))
	}
}
