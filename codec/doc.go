// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package codec gives Go types names that outlive them, and turns values into
// bytes and back.
package codec
