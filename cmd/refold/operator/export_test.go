// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"io"
	"iter"
	"runtime/debug"

	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/internal/jsontext"
)

// RunOnTerminal is Run with Stderr as a terminal.
func RunOnTerminal(ctx context.Context, p Program, args []string) int {
	return p.withDefaults().run(ctx, args, true)
}

// Render renders msgpack as JSON of at most limit bytes.
func Render(payload []byte, limit int) ([]byte, error) { return inspect.Msgpack.Render(payload, limit) }

// RenderJSON renders JSON as JSON of at most limit bytes.
func RenderJSON(payload []byte, limit int) ([]byte, error) {
	return inspect.JSON.Render(payload, limit)
}

// Cell renders msgpack for a table.
func Cell(payload []byte) string { return renderCell(inspect.Msgpack, payload) }

// Printable escapes text.
func Printable(s string) string { return jsontext.Printable(s) }

// ErrTooLong is the error of Render at its limit.
var ErrTooLong = inspect.ErrTooLong

// InOrder is inOrder.
func InOrder[T any](ctx context.Context, n int, ids iter.Seq2[string, error],
	do func(ctx context.Context, id string) (T, error), take func(id string, result T) error,
) error {
	return inOrder(ctx, n, ids, do, take)
}

// Merged is merged.
func Merged(a, b iter.Seq2[string, error]) iter.Seq2[string, error] { return merged(a, b) }

// NewEnv returns the environment of a program with databases.
func NewEnv(databases ...Database) *Env { return &Env{databases: databases} }

// VersionText is versionText.
func VersionText(name string, info *debug.BuildInfo) string { return versionText(name, info) }

// IsTerminal is isTerminal.
func IsTerminal(w io.Writer) bool { return isTerminal(w) }
