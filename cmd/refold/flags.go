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

// watchFlags say whether something is shown again and again.
type watchFlags struct {
	Watch    bool          `help:"Show them again whenever they change, until Ctrl-C."`
	Interval time.Duration `help:"How often --watch looks." default:"1s"`
}

// Validate checks the flags.
func (f *watchFlags) Validate() error {
	if f.Interval < 10*time.Millisecond {
		return fmt.Errorf("--interval is %v, it must be at least 10ms", f.Interval)
	}
	return nil
}

// show lets look print once, or whenever that changes. Then an error is shown too, and is no reason to end.
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
			return nil // that is how it ends
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

// poll is how often it is asked whether it is so by now.
const poll = 200 * time.Millisecond

// waitFlags say whether to wait until something is so. Whoever embeds them sets until, and limit.
type waitFlags struct {
	Wait        bool          `help:"Wait until ${until}."`
	WaitTimeout time.Duration `help:"How long --wait waits." default:"${limit}"`
}

// Validate checks the flags.
func (f *waitFlags) Validate() error {
	if f.WaitTimeout <= 0 {
		return fmt.Errorf("--wait-timeout is %v, it must be more than 0", f.WaitTimeout)
	}
	return nil
}

// rest waits until it is time to ask again.
func rest(ctx context.Context) error {
	select {
	case <-time.After(poll):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
