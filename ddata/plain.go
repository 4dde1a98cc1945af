// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import "strings"

// plainError is an error of what this package stands on, without the names of that.
type plainError struct {
	text string
	errs []error
}

func (e *plainError) Error() string   { return e.text }
func (e *plainError) Unwrap() []error { return e.errs }

// plain returns an error in the words of this package. What it matches stays.
func plain(err error) error {
	if err == nil {
		return nil
	}
	text := plainText(err.Error())
	if text == err.Error() {
		return err
	}
	return &plainError{text, []error{err}}
}

// plainText returns a text of several lines in one, without those names.
func plainText(text string) string {
	text = strings.NewReplacer(
		": replication: invalid: ", ": ", ": replication: the key holds another type: ", ": ", ": replication: ", ": ", ": replica: ", ": ",
		": crdt: another type: ", ": ", ": crdt: ", ": ",
		"\nreplication: ", "; ", "\nreplica: ", "; ", "\n", "; ",
	).Replace(": " + text)
	return strings.TrimPrefix(text, ": ")
}
