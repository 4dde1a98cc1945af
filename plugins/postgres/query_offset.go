// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/refold-io/refold/journal"
)

// offsetPrefix begins an offset: what made it, and the version of the form.
// The ordinal follows, decimal and without zeros in front, so that one position has
// one offset and offsets compare.
const offsetPrefix = "pg1:"

func formatOffset(ordinal int64) journal.Offset {
	if ordinal <= 0 {
		return ""
	}
	return journal.Offset(offsetPrefix + strconv.FormatInt(ordinal, 10))
}

func parseOffset(o journal.Offset) (int64, error) {
	if o == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(string(o), offsetPrefix)
	ordinal, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || formatOffset(ordinal) != o {
		return 0, fmt.Errorf("%w: %.64q is not %q and a number", journal.ErrOffset, string(o), offsetPrefix)
	}
	return ordinal, nil
}
