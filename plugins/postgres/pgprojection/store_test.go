// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

// unavailable is the address of a server that does not respond, with a password.
const unavailable = "postgres://refold:swordfish@127.0.0.1:1/bank?connect_timeout=1"

func unavailablePool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), unavailable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// NewStore rejects invalid arguments and names the fields. It accepts the same schema names as the
// journal.
func TestNewStoreErrors(t *testing.T) {
	t.Parallel()
	pool := unavailablePool(t)
	for _, bad := range []string{`odd "name`, "a b", "pg_mine", strings.Repeat("a", 64), "straße", "x\x00"} {
		store, err := pgprojection.NewStore(pool, pgprojection.Config{Schema: bad})
		if store != nil || !errors.Is(err, projection.ErrInvalid) || !strings.Contains(err.Error(), "Config.Schema is ") {
			t.Errorf("schema %q: %v, want ErrInvalid about Config.Schema", bad, err)
		}
		if _, err := postgres.Migrate(t.Context(), unavailable, postgres.Config{Schema: bad}); err == nil || !strings.Contains(err.Error(), "Config.Schema is ") {
			t.Errorf("schema %q of postgres.Config: %v, want an error about Config.Schema", bad, err)
		}
	}
	for _, good := range []string{"", "refold", "My_schema-2", strings.Repeat("a", 63)} {
		if _, err := pgprojection.NewStore(pool, pgprojection.Config{Schema: good}); err != nil {
			t.Errorf("schema %q: %v", good, err)
		}
	}
	_, err := pgprojection.NewStore(nil, pgprojection.Config{Schema: "a b"})
	if !errors.Is(err, projection.ErrInvalid) || !strings.Contains(err.Error(), "pool is nil") || !strings.Contains(err.Error(), "Config.Schema") {
		t.Errorf("NewStore without a pool and with an invalid schema: %v, want ErrInvalid about both", err)
	}
}

// The log reports that the database is unavailable, without the password.
func TestPasswordIsNotLogged(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	cfg := config(newJournal(t), handler(unavailablePool(t), 0))
	cfg.Logger = slog.New(slog.NewTextHandler(&buf, nil))
	cfg.MaxRestarts = 1
	p := create(t, cfg)
	err := p.CatchUp(t.Context())
	if err == nil {
		t.Fatal("CatchUp of an unavailable database returned nil")
	}
	all := buf.String() + err.Error() + p.Status().Err.Error()
	if strings.Contains(all, "swordfish") || !strings.Contains(buf.String(), "failed, restarting") || !strings.Contains(buf.String(), "127.0.0.1") {
		t.Errorf("CatchUp logged %s and returned %v, want the host without the password", buf.String(), err)
	}
}
