// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgserver"
)

// Env names the variable with the DSN of a server to use.
const Env = "REFOLD_POSTGRES"

// shared is the server of this process's tests.
//
//nolint:gochecknoglobals // tests have nothing in common but their process
var shared struct {
	sync.Mutex

	main   bool // Main runs, and will stop it
	server *pgserver.Server
	err    error // why it did not start
}

// Main is what TestMain calls. It runs the tests, stops the shared server,
// fails if they have left a goroutine behind that none of the options ignores, and
// exits.
func Main(m *testing.M, ignored ...goleak.Option) {
	shared.Lock()
	shared.main = true
	shared.Unlock()
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "testpg: stop the shared server:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		err := goleak.Find(ignored...)
		for patience := time.Now().Add(time.Minute); err != nil && time.Now().Before(patience); { // some may be just ending
			err = goleak.Find(ignored...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testpg: leaked goroutines:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// sharedDSN returns the address of a database of the shared server, which is
// started if it does not run.
func sharedDSN(database string) (string, error) {
	if dsn := os.Getenv(Env); dsn != "" {
		return withDatabase(dsn, database)
	}
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		return "", errors.New("testpg: TestMain must call testpg.Main, which stops the server")
	}
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		shared.server, shared.err = pgserver.Start(ctx, pgserver.Config{})
	}
	if shared.err != nil {
		return "", explain(shared.err)
	}
	return shared.server.DSN(database), nil
}

// explain adds the other way out.
func explain(err error) error {
	if errors.Is(err, pgserver.ErrNoBinaries) {
		return fmt.Errorf("install PostgreSQL 13 or newer, e.g. apt-get install postgresql; or set %s to the DSN of a superuser on a running server: %w", Env, err)
	}
	return err
}
