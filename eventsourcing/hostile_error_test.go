// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// hostileError is an error of which one method panics. If nested is set, the argument of the panic is
// the error itself, so that the methods of the argument panic as well.
type hostileError struct {
	method string
	nested bool
}

func (e hostileError) check(method string) {
	switch {
	case e.method != method:
	case e.nested:
		panic(e)
	default:
		panic("in " + method)
	}
}

func (e hostileError) Error() string {
	e.check("Error")
	return "hostile"
}

func (e hostileError) Unwrap() error {
	e.check("Unwrap")
	return nil
}

func (e hostileError) Is(error) bool {
	e.check("Is")
	return false
}

func (e hostileError) As(any) bool {
	e.check("As")
	return false
}

func (e hostileError) LogValue() slog.Value {
	e.check("LogValue")
	return slog.StringValue("hostile")
}

func (e hostileError) Format(s fmt.State, _ rune) {
	e.check("Format")
	_, _ = io.WriteString(s, "hostile")
}

// TestHostileErrors checks that a runtime survives errors of the user's code whose methods panic.
func TestHostileErrors(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Error", "Unwrap", "Is", "As", "LogValue", "Format"} {
		for _, nested := range []bool{false, true} {
			err := hostileError{method, nested}
			for name, do := range map[string]func(s *scene, err error){
				"refuse": func(s *scene, err error) {
					_, _ = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Refuse(err) })
					_, _ = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Refuse(errors.Join(err, err)) })
					s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Persist(line{"x"}).Refuse(err) })
				},
				"resolve": func(s *scene, err error) {
					var token eventsourcing.Token[string]
					reply := later(func() (string, error) {
						return s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
							token = ctx.Token()
							return ctx.ReplyLater()
						})
					})
					synctest.Wait()
					s.tell(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
						return ctx.Resolve(token.Refuse(err)).Reply("")
					})
					_, _ = reply()
				},
				"handler": func(s *scene, err error) { _, _ = s.ask(func(*actorCtx, *actor, act) actorDecision { panic(err) }) },
				"ReplyFunc": func(s *scene, err error) {
					_, _ = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.ReplyFunc(func() string { panic(err) }) })
				},
				"Then": func(s *scene, err error) {
					_, _ = s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
						return ctx.Persist(line{"x"}).Then(func(*actorCtx) actorStep { panic(err) }).Reply("")
					})
				},
				"Go": func(s *scene, err error) {
					s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision {
						return ctx.Go(func(context.Context) eventsourcing.Message[actor] { panic(err) }).Reply("")
					})
				},
				"Append": func(s *scene, err error) {
					for _, do := range []journaltest.Effect{journaltest.Lose, journaltest.Store, journaltest.Reject, journaltest.NotSent, journaltest.Conflict} {
						s.journal.Inject(journaltest.Fault{Do: do, Err: err})
						_, _ = s.ask(addLines("x"))
						time.Sleep(time.Minute)
					}
					s.journal.Inject(journaltest.Fault{Do: journaltest.Lose, Err: errors.Join(journal.ErrNotSent, err)})
					_, _ = s.ask(addLines("x"))
				},
				"Replay": func(s *scene, err error) {
					for _, op := range []journaltest.Op{journaltest.OpReplay, journaltest.OpHighest} {
						s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Stop().Reply("") })
						synctest.Wait()
						s.journal.Inject(journaltest.Fault{Op: op, Err: err})
						_, _ = s.ask(recall)
						time.Sleep(time.Minute)
					}
				},
				"snapshots": func(s *scene, err error) {
					for _, op := range []snapshottest.Op{snapshottest.OpSave, snapshottest.OpLoad, snapshottest.OpDelete} {
						s.snapshots.Inject(snapshottest.Fault{Op: op, Err: err, Times: 3})
						for range 3 {
							_, _ = s.ask(addLines("x"))
							time.Sleep(time.Minute)
						}
						s.mustAsk(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Stop().Reply("") })
						synctest.Wait()
					}
				},
			} {
				t.Run(fmt.Sprint(name, " ", method, " nested=", nested), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						s := newScene(t)
						s.typ.Snapshots = eventsourcing.Snapshots[actor, actorEvent]{Every: 2, Keep: 1}
						s.cfg.Logger = slog.New(slog.NewTextHandler(new(bytes.Buffer), nil))
						s.open()
						defer s.close()
						s.mustAsk(addLines("x"))
						do(s, err)
						time.Sleep(time.Minute)
						s.mustAsk(recall)
					})
				})
			}
		}
	}
}
