// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"strings"
)

// fieldsOf returns what the parts of a node say is wrong, with the fields as this package has them.
func fieldsOf(err error) error {
	paths := strings.NewReplacer(
		"node: ", "", "membership: ", "", "field ", "",
		"downing: invalid: Settings.", "Config.Downing.", "singleton: invalid: Config.", "Singleton.", "singleton: invalid: ", "", "lease: invalid argument: Config.", "Config.Lease.",
		"Config.Membership.Settings.", "Config.Settings.", "Config.Membership.", "Config.", "Config.Settings.", "Config.Settings.", "Config.ExitTimeout", "Config.PhaseTimeout of exiting", "Settings.", "Config.Settings.",
	)
	said := strings.Split(err.Error(), "\n") // as errors.Join does
	for i, text := range said {
		said[i] = withPath(paths, text)
	}
	return errors.New(strings.Join(said, "; "))
}

// withPath replaces what stands before a value, which may be the user's.
func withPath(paths *strings.Replacer, text string) string {
	end := len(text)
	if i := strings.IndexByte(text, '"'); i >= 0 {
		end = i
	}
	return paths.Replace(text[:end]) + text[end:]
}
