// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package panics converts panics into errors.
//
// Code of the user (handlers, observers, codecs, stores, strategies) runs inside Catch or below a
// deferred Into, so that its panic fails one operation and not the program.
package panics
