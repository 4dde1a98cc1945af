// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package features has one test per feature that shows its promise to a user: on every journal, and
// over three nodes and a NATS server if it concerns a cluster. The tests of a package show the
// details. docs/features.md lists the features with their tests.
package features
