// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package journal is the event log of Refold.
package journal
