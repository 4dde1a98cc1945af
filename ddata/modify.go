// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
)

// slowModify is from which time on a function that is given to Update is logged: all else of the replicator waits for it.
const slowModify = time.Second

// modifyError is an error of a function given to Update, so that it is told from others.
type modifyError struct{ err error }

func (e *modifyError) Error() string { return e.err.Error() }
func (e *modifyError) Unwrap() error { return e.err }

// untyped returns a function of values for one of a Go type.
func untyped[T any](r *Replicator, key string, modify func(T) (T, error)) func(crdt.Value) (crdt.Value, error) {
	return func(current crdt.Value) (crdt.Value, error) {
		v, err := crdt.As[T](r.types, current)
		if err != nil {
			return current, err
		}
		r.modifying.Store(&key)
		defer r.modified(key, r.now())
		if modify == nil {
			return current, &modifyError{errors.New("there is no function")}
		}
		if v, err = modify(v); err != nil {
			return current, &modifyError{err}
		}
		return r.types.Value(v)
	}
}

// modified says that the function of an update has returned, or panicked.
func (r *Replicator) modified(key string, began time.Duration) {
	r.modifying.Store(nil)
	if took := r.now() - began; took >= slowModify {
		r.lines.write(r, lineSlow, slog.LevelWarn, "the function of an update has held up the replicator", slog.String("key", key), slog.Duration("took", took))
	}
}

// held adds to an error which update holds the replicator up, if one does.
func (r *Replicator) held(err error) error {
	if key := r.modifying.Load(); key != nil {
		return fmt.Errorf("%w: the function of an update of %q has not returned", err, *key)
	}
	return err
}
