// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/pgserver"
)

// orphanEnv makes this program start a server and wait until it is killed.
const orphanEnv = "REFOLD_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		orphan()
	}
	goleak.VerifyTestMain(m)
}

func orphan() {
	server, err := pgserver.Start(orphanContext(), pgserver.Config{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(server.DSN("postgres"))
	if os.Getenv(orphanEnv) == "panic" {
		panic("requested panic")
	}
	select {}
}
