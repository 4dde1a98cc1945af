// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

// Find is FindBinaries with places of the test's.
var Find = find
