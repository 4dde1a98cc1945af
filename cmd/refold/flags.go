// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/refold-io/refold/cmd/refold/operator"
)

type watchFlags struct {
	Watch    bool          `help:"Print again after each change, until Ctrl-C."`
	Interval time.Duration `help:"Polling interval of --watch." default:"1s"`
}

func (f *watchFlags) Validate() error {
	if f.Interval < 10*time.Millisecond {
		return fmt.Errorf("--interval is %v, must be at least 10ms", f.Interval)
	}
	return nil
}

// show calls look once. With --watch it calls look repeatedly, and prints changes and errors.
func (f *watchFlags) show(ctx context.Context, w io.Writer, asJSON bool, look func(w io.Writer) error) error {
	if !f.Watch {
		return look(w)
	}
	var last string
	ticker := time.NewTicker(f.Interval)
	defer ticker.Stop()
	for {
		var now bytes.Buffer
		err := look(&now)
		switch {
		case ctx.Err() != nil:
			return nil // an interrupt is the normal end
		case err == nil, errors.Is(err, operator.ErrProblems):
		case asJSON:
			if failed := json.NewEncoder(&now).Encode(map[string]string{"error": err.Error()}); failed != nil {
				return failed
			}
		default:
			fmt.Fprintf(&now, "%v\n", err)
		}
		if shown := now.String(); shown != last {
			last = shown
			if !asJSON {
				shown = time.Now().Format(time.TimeOnly) + "\n" + shown + "\n"
			}
			if _, err = io.WriteString(w, shown); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// poll is the polling interval of --wait.
const poll = 200 * time.Millisecond

// waitFlags make a command wait. The embedding struct sets until and limit.
type waitFlags struct {
	Wait        bool          `help:"Wait until ${until}."`
	WaitTimeout time.Duration `help:"Time limit of --wait." default:"${limit}"`
}

func (f *waitFlags) Validate() error {
	if f.WaitTimeout <= 0 {
		return fmt.Errorf("--wait-timeout is %v, must be greater than 0", f.WaitTimeout)
	}
	return nil
}

func rest(ctx context.Context) error {
	select {
	case <-time.After(poll):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
