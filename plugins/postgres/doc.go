// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package postgres is the shared journal and snapshot store: both live in one
// schema of a PostgreSQL database, version 13 or newer, that many nodes use at a
// time.
package postgres
