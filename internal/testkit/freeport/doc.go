// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package freeport finds ports for servers of tests that are killed and come back at
// the same address. A port that the system picks for "127.0.0.1:0" is no good for that:
// while its server is away the system may hand it to any connection or listener.
package freeport
