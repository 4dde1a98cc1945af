// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// A secret that every user can read causes a warning.
func TestExposedSecret(t *testing.T) {
	t.Parallel()
	server := start(t, embedded.Config{})
	secret, err := os.ReadFile(server.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]int{0o644: 1, 0o640: 0, 0o600: 0} {
		cfg := config(server, "a")
		cfg.TokenFile = filepath.Join(t.TempDir(), "token")
		if err := errors.Join(os.WriteFile(cfg.TokenFile, secret, mode), os.Chmod(cfg.TokenFile, mode)); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		carrier := connect(t, cfg)
		if err := carrier.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), cfg.TokenFile); got != want {
			t.Errorf("mode %v: %d warnings, want %d: %s", mode, got, want, log.String())
		}
	}
}

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
