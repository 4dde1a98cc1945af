// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"github.com/refold-io/refold/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
