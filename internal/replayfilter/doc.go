// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replayfilter detects records of two concurrent writers in the history of one persistence
// ID. See journal.FilterConfig.
package replayfilter
