// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command refold looks into journals, and measures Refold.
package main
