// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"maps"
	"slices"
)

func sorted(s setOf) []string { return slices.Sorted(maps.Keys(s)) }
