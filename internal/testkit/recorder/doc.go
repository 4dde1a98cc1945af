// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package testrecorder runs the checks of a conformance suite against a testing.TB
// that notes failures instead of failing, to prove that each check finds the bug it is
// there for:
//
//	failures := testrecorder.Find(t, func(tb testing.TB) { leasetest.RunOne(tb, broken, check) })
package recorder
