// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package testpg gives tests a PostgreSQL server.
//
//	func TestMain(m *testing.M) { testpg.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool, err := pgxpool.New(t.Context(), testpg.DSN(t))
//		...
//	}
//
// The tests of a package share one private server, which is started when the
// first of them asks, from installed binaries; see package pgserver. Each test
// has a database of its own, which is dropped at its end. A test that needs a
// server for itself, to kill it or to set it up differently, calls Start.
//
// If REFOLD_POSTGRES is set, it is the DSN of a superuser on a server to use
// instead of the shared one; servers from Start are private all the same. If there are
// neither this nor binaries, the test fails and says what to install.
package pgtest
