// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"log/slog"
	"runtime"
	"time"
)

// lines is a handler that leaves lines to an outlet, so that nobody waits for a log that is slow.
type lines struct {
	outlet *outlet
	next   slog.Handler
}

// Enabled implements slog.Handler.
func (h lines) Enabled(ctx context.Context, level slog.Level) bool {
	enabled := true
	_ = caught(func() { enabled = h.next.Enabled(ctx, level) })
	return enabled
}

// Handle implements slog.Handler.
func (h lines) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.outlet.add(func() { _ = h.next.Handle(ctx, r) }) // nobody is left to tell
	return nil
}

// WithAttrs implements slog.Handler.
func (h lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lines{h.outlet, h.next.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h lines) WithGroup(name string) slog.Handler { return lines{h.outlet, h.next.WithGroup(name)} }

// write logs a line, as if it had been written at once. Not even whether it is wanted is asked here: the handler is the user's.
func (o *outlet) write(level slog.Level, message string, attrs ...slog.Attr) {
	var pc [1]uintptr
	runtime.Callers(2, pc[:])
	r := slog.NewRecord(time.Now(), level, message, pc[0])
	r.AddAttrs(attrs...)
	o.add(func() {
		if handler := o.log.Handler(); handler.Enabled(o.base, level) {
			_ = handler.Handle(o.base, r) // nobody is left to tell
		}
	})
}
