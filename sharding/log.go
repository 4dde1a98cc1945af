// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// line is a kind of lines that there may be many of.
type logKind uint8

const (
	logUnsent logKind = iota
	logMalformed
	logDropped
	logIgnored
	logRefused
	logKinds
)

// logInterval is how often there is one of a kind.
const logInterval = time.Minute

// lines remember when lines were written last.
type logThrottle struct {
	mu   sync.Mutex
	last [logKinds]struct {
		next time.Duration
		lost int
	}
}

// write writes a line unless there was one of its kind shortly before.
func (l *logThrottle) write(s *shell, kind logKind, level slog.Level, message string, attrs ...slog.Attr) {
	now := s.now()
	l.mu.Lock()
	k := &l.last[kind]
	if k.next > now {
		k.lost++
		l.mu.Unlock()
		return
	}
	if k.lost > 0 {
		attrs = append(attrs, slog.Int("not_logged_before", k.lost))
	}
	k.next, k.lost = now+logInterval, 0
	l.mu.Unlock()
	s.log.LogAttrs(s.ctx, level, message, attrs...) //nolint:sloglint // those that are given are constants
}

// drop tells that a command reached nobody.
func (s *shell) reportDropped(id string, asked bool, err error) {
	s.dropped.Add(1)
	n, _ := s.shardOf(id)
	if f := s.opts.Observer.Dropped; f != nil {
		defer func() {
			if p := recover(); p != nil {
				s.log.ErrorContext(s.ctx, "an observer panicked", slog.String("panic", fmt.Sprint(p)))
			}
		}()
		f(DroppedInfo{Type: s.name, Entity: id, Shard: n, Asked: asked, Err: err})
	}
	level := slog.LevelWarn
	if asked {
		level = slog.LevelDebug // whoever waits is told
	}
	s.throttle.write(s, logDropped, level, "a command reached nobody", slog.String("entity", id), slog.Any("error", err))
}

// note logs what the coordinator finds worth knowing.
func (s *shell) logNote(n *coordinator.Note) {
	level := slog.LevelDebug
	switch n.Kind {
	case coordinator.Ignored:
		s.throttle.write(s, logIgnored, level, "the coordinator does not heed a message", slog.String("peer", n.Node.String()), slog.String("message", n.Message.String()))
		return
	case coordinator.RegionRefused:
		s.throttle.write(s, logRefused, slog.LevelError, "the coordinator refuses a region with other settings", slog.String("peer", n.Node.String()),
			slog.String("fields", strings.Join(n.Fields, " ")))
		return
	case coordinator.PhaseChanged, coordinator.HandOffDone, coordinator.Terminating, coordinator.Silent:
		level = slog.LevelInfo
	case coordinator.Repaired, coordinator.LoadRetried, coordinator.SaveRetried, coordinator.HandOffFailed:
		level = slog.LevelWarn
	case coordinator.Stored, coordinator.NotAllocated, coordinator.HandOffBegun:
	}
	attrs := []slog.Attr{
		slog.String("what", n.Kind.String()), slog.String("phase", n.Phase.String()), slog.Uint64("term", n.Term), slog.Int("shards", len(n.Shards)), slog.Int("count", n.Count),
	}
	if n.Node.Name != "" {
		attrs = append(attrs, slog.String("peer", n.Node.String()))
	}
	if n.Reason != 0 {
		attrs = append(attrs, slog.String("why", n.Reason.String()))
	}
	s.log.LogAttrs(s.ctx, level, "coordinator", attrs...)
}

// outageAfter is how many RetryIntervals no coordinator has answered for when the log says so. A coordinator that moves, in order, is back
// before.
const outageAfter = 5

// logOutage writes into the log, once, that no coordinator answers, and that one does again.
func (s *shell) logOutage() {
	if s.stopped || s.halted {
		return
	}
	silence := s.machine.Silence()
	long := silence >= outageAfter*s.opts.RetryInterval
	by, refused := s.machine.Refused()
	switch {
	case long && !s.outageLogged:
		s.outageLogged = true
		var asked []string
		for _, n := range s.machine.Candidates() {
			asked = append(asked, n.String())
		}
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "no coordinator answers, commands for shards without a known home wait", slog.String("role", s.opts.Role),
			slog.Any("asked", asked), slog.Duration("silent", silence.Round(time.Millisecond)), slog.Int("waiting", s.machine.Waiting()))
	case !long && s.outageLogged && (s.machine.Registered() || refused != nil):
		s.outageLogged = false
		s.log.LogAttrs(s.ctx, slog.LevelInfo, "a coordinator answers again", slog.String("role", s.opts.Role), slog.String("coordinator", by.String()))
	}
}
