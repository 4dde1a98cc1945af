// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package fielderror reports invalid fields of configurations.
//
// A validation collects an Error for each invalid field in an Errors value. A package whose
// configuration contains settings of another package renames the fields in the errors of that
// package with Rename. Users then see the names of the fields that they set.
package fielderror

import (
	"errors"
	"fmt"
	"strings"
)

// Error reports one field.
type Error struct {
	// Field is the path of the field, such as "Config.Downing.StableAfter".
	Field string
	// Problem follows the field in the text, such as "is 0s, it must be more than 0". It is empty
	// if Err is set.
	Problem string
	// Err is the error of the field's value, nil if Problem is set.
	Err error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Field + ": " + e.Err.Error()
	}
	return e.Field + " " + e.Problem
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Errors collects errors of one configuration. The zero value is empty.
type Errors []error

// Addf adds the error that a field has a problem, such as Addf("Config.Size", "is %d, it must be at
// least 1", size).
func (e *Errors) Addf(field, problem string, args ...any) {
	*e = append(*e, &Error{Field: field, Problem: fmt.Sprintf(problem, args...)})
}

// Add adds an error about the value of a field. It does nothing if err is nil.
func (e *Errors) Add(field string, err error) {
	if err != nil {
		*e = append(*e, &Error{Field: field, Err: err})
	}
}

// Join adds the errors of another configuration with their fields renamed as by Rename.
func (e *Errors) Join(err error, rules ...string) { *e = append(*e, renamed(err, rules)...) }

// NotNegative adds an error about a number or a duration below 0.
func NotNegative[T ~int | ~int64](e *Errors, field string, value T) {
	if value < 0 {
		e.Addf(field, "is %v, it must not be negative", value)
	}
}

// Err returns nil if there are no errors, otherwise an error that matches kind and all errors. Its
// text is that of kind, followed by those of the errors, separated by semicolons.
func (e Errors) Err(kind error) error {
	if len(e) == 0 {
		return nil
	}
	return &invalid{kind, e}
}

type invalid struct {
	kind error
	list Errors
}

func (e *invalid) Error() string {
	texts := make([]string, 0, len(e.list))
	for _, err := range e.list {
		texts = append(texts, err.Error())
	}
	return e.kind.Error() + ": " + strings.Join(texts, "; ")
}

// Unwrap implements the multi-error interface of package errors.
func (e *invalid) Unwrap() []error { return append([]error{e.kind}, e.list...) }

// Rename returns the errors in err with the beginnings of their fields replaced, as an error that
// matches kind instead of the original kind. The rules are pairs of an old and a new beginning; the
// first pair that matches a field applies. It returns nil for nil.
func Rename(kind, err error, rules ...string) error {
	return Errors(renamed(err, rules)).Err(kind)
}

// renamed returns the renamed errors of the fields in err, and err itself if it has none.
func renamed(err error, rules []string) []error {
	if list, ok := errors.AsType[*invalid](err); ok {
		var out []error
		for _, err := range list.list {
			out = append(out, renamed(err, rules)...)
		}
		return out
	}
	var field *Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &field):
		return []error{err}
	}
	out := *field
	for i := 0; i+1 < len(rules); i += 2 {
		if rest, ok := strings.CutPrefix(field.Field, rules[i]); ok {
			out.Field = rules[i+1] + rest
			break
		}
	}
	return []error{&out}
}
