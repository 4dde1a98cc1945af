// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"maps"
	"slices"
)

// Actions returns the names of all actions, sorted.
func Actions() []string { return slices.Sorted(maps.Keys(actionTable())) }

// MillisText is the function "millis" of the templates.
var MillisText = millisText
