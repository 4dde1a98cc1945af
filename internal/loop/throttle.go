// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const throttleInterval = time.Minute

// Throttle limits log lines that a remote node can cause at a high rate: one line a minute for each
// kind. The next line of the kind has the attribute "not_logged_before" with the number of lines
// that were suppressed. The zero value is ready for use. A Throttle keeps one entry for each kind
// that was ever used, so there must be few kinds.
type Throttle[K comparable] struct {
	mu    sync.Mutex
	kinds map[K]throttled
}

type throttled struct {
	next       time.Time
	suppressed int
}

// Log writes a line unless one of the same kind was written within the last minute.
func (t *Throttle[K]) Log(ctx context.Context, log *slog.Logger, kind K, level slog.Level, message string, attrs ...slog.Attr) {
	suppressed, ok := t.Allow(kind)
	if !ok {
		return
	}
	if suppressed > 0 {
		attrs = append(slices.Clip(attrs), slog.Int("not_logged_before", suppressed))
	}
	log.LogAttrs(ctx, level, message, attrs...) //nolint:sloglint // callers pass constants
}

// Allow reports whether a line of a kind may be written now, and how many were suppressed since the
// last one.
func (t *Throttle[K]) Allow(kind K) (suppressed int, ok bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds == nil {
		t.kinds = map[K]throttled{}
	}
	k := t.kinds[kind]
	if now.Before(k.next) {
		t.kinds[kind] = throttled{k.next, k.suppressed + 1}
		return 0, false
	}
	t.kinds[kind] = throttled{next: now.Add(throttleInterval)}
	return k.suppressed, true
}
