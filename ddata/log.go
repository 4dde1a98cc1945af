// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"log/slog"
	"time"

	"github.com/refold-io/refold/internal/replication"
)

// line is a kind of lines that somebody else can cause, and so that there may be many of.
type line uint8

const (
	lineUnsent line = iota
	lineMalformed
	lineRefused
	lineTooLarge
	lineStore
	lineFull
	lineSlow
	lineKinds
)

// lineInterval is how often there is one of a kind.
const lineInterval = time.Minute

// lines remember when lines were written last.
type lines [lineKinds]struct {
	next time.Duration
	lost int
}

// write writes a line unless there was one of its kind shortly before.
func (l *lines) write(r *Replicator, kind line, level slog.Level, message string, attrs ...slog.Attr) {
	k := &l[kind]
	now := r.now()
	if k.next > now {
		k.lost++
		return
	}
	if k.lost > 0 {
		attrs = append(attrs, slog.Int("not_logged_before", k.lost))
	}
	k.next, k.lost = now+lineInterval, 0
	r.log.LogAttrs(r.base, level, message, attrs...) //nolint:sloglint // those that are given are constants
}

// note logs what the protocol finds worth knowing.
func (r *Replicator) note(n *replication.Note) {
	ctx := r.base
	peer, key, count, why := slog.String("peer", n.Node.String()), slog.String("key", n.Key), slog.Int("count", n.N), slog.Any("error", plain(n.Err))
	switch n.Kind {
	case replication.NoteMalformed:
		r.lines.write(r, lineMalformed, slog.LevelWarn, "a message can't be read", peer, why)
	case replication.NoteRefused:
		r.lines.write(r, lineRefused, slog.LevelWarn, "what a node has sent can't be merged", peer, key, why)
	case replication.NoteFull:
		r.lines.write(r, lineFull, slog.LevelError, "there is no room for a key", peer, key, why)
	case replication.NoteTooLarge:
		r.lines.write(r, lineTooLarge, slog.LevelError, "a value is too large to be sent, until it is smaller", key, slog.Int("bytes", n.N))
	case replication.NoteStore:
		r.lines.write(r, lineStore, slog.LevelError, "durable keys can't be written to disk", key, count, why)
	case replication.NoteLoad:
		r.log.LogAttrs(ctx, slog.LevelError, "a durable key can't be loaded", key, why)
	case replication.NotePulling:
		r.log.LogAttrs(ctx, slog.LevelDebug, "the data is got from other nodes", slog.Int("nodes", n.N))
	case replication.NotePulled:
		r.log.LogAttrs(ctx, slog.LevelInfo, "the data was got from other nodes", slog.Int("keys", n.N))
	case replication.NotePruning:
		r.log.LogAttrs(ctx, slog.LevelDebug, "what a node has changed that has left is about to be moved to this one", slog.String("node", n.Node.String()), slog.Int("keys", n.N))
	case replication.NotePruned:
		r.log.LogAttrs(ctx, slog.LevelInfo, "what a node has changed that has left was moved to this one", slog.String("left", n.Node.String()), slog.Int("keys", n.N))
	case replication.NoteRemoved:
		r.log.LogAttrs(ctx, slog.LevelInfo, "the replicator ends: the node is no member any more")
	}
}
