// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire takes encoded messages apart: numbers, lengths and nodes, each with a limit that is checked before
// memory is taken.
//
// An encoding begins with a byte for its version. The high half is the major one: another can't be read. A higher minor
// one may add fields at the end, which are passed over.
package wire
