// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdDir); dir != "" {
		hold(dir)
	}
	if dir := os.Getenv(crashDir); dir != "" {
		crash(dir)
	}
	if dir := os.Getenv(holdDurableDir); dir != "" {
		holdDurable(dir)
	}
	if dir := os.Getenv(crashDurableDir); dir != "" {
		crashDurable(dir)
	}
	// The engine drains its own pool for up to a second after it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}
