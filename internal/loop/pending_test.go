// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/refold-io/refold/internal/loop"
)

func TestPending(t *testing.T) {
	t.Parallel()
	p := loop.Pending[string]{Limit: 2}
	first, err := p.Add("a")
	second, err2 := p.Add("b")
	if err != nil || err2 != nil || first == 0 || first == second {
		t.Fatalf("Add = %d, %v, then %d, %v, want different numbers above 0", first, err, second, err2)
	}
	if _, err := p.Add("c"); !errors.Is(err, loop.ErrFull) {
		t.Errorf("Add beyond the limit: %v, want ErrFull", err)
	}
	if p.Answer(first, func(string) bool { return false }) || p.Len() != 2 {
		t.Error("a rejected answer removed the question")
	}
	var got []string
	answer := func(asker string) bool { got = append(got, asker); return true }
	if !p.Answer(first, answer) || p.Answer(first, answer) || p.Remove(first) {
		t.Error("a question was answered twice or was not answered")
	}
	third, _ := p.Add("c")
	p.Close()
	if _, err := p.Add("d"); !errors.Is(err, loop.ErrClosed) {
		t.Errorf("Add after Close: %v, want ErrClosed", err)
	}
	p.AnswerAll(func(asker string) bool { return asker == "b" && answer(asker) })
	if !slices.Equal(got, []string{"a", "b"}) || p.Len() != 1 || !p.Remove(third) {
		t.Errorf("answered %v and %d questions are open, want [a b] and 1", got, p.Len())
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	var calls loop.Calls
	ended, end := calls.Begin(t.Context())
	end()
	open, end := calls.Begin(t.Context())
	defer end()
	cause := errors.New("lost")
	calls.Fail(cause)
	if got := context.Cause(ended); errors.Is(got, cause) {
		t.Errorf("Fail also ended the context of the finished call: %v", got)
	}
	if got := context.Cause(open); !errors.Is(got, cause) {
		t.Errorf("the open call has the cause %v, want %v", got, cause)
	}
}
