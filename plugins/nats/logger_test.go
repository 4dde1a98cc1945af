// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

// blocking is a log handler that blocks on warnings.
type blocking struct {
	slog.Handler

	goOn <-chan struct{}
}

func (blocking) Enabled(context.Context, slog.Level) bool { return true }

func (b blocking) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		<-b.goOn
	}
	return nil
}

func (b blocking) WithAttrs([]slog.Attr) slog.Handler { return b }

// The loss of the server is reported at once, even while the logger blocks.
func TestBlockedLogger(t *testing.T) {
	t.Parallel()
	server := start(t, embedded.Config{})
	goOn := make(chan struct{})
	cfg := config(server, "a")
	cfg.Logger = slog.New(blocking{slog.DiscardHandler, goOn})
	var tcfg transport.Config
	reports := connections(&tcfg)
	open(t, cfg, tcfg)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := next(t, reports); err == nil {
		t.Error("the carrier reported a connection although the server is stopped")
	}
	close(goOn)
}
