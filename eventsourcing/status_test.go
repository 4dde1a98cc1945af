// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/transport"
)

// tableErrors are the errors that have a line in the table of the package documentation.
func tableErrors() map[string]error {
	kind := func(k eventsourcing.Kind) error { return eventsourcing.NewRefusal("test/refusal", "refused").OfKind(k) }
	return map[string]error{
		"ErrPartlyStored": eventsourcing.ErrPartlyStored, "ErrOutcomeUnknown": eventsourcing.ErrOutcomeUnknown,
		"ErrNoReply": eventsourcing.ErrNoReply, "ErrWrongReply": eventsourcing.ErrWrongReply,
		"ErrRecoveryTimeout": eventsourcing.ErrRecoveryTimeout, "ErrRecovery": eventsourcing.ErrRecovery,
		"Refusal, Rejected": kind(eventsourcing.Rejected), "Refusal, BadRequest": kind(eventsourcing.BadRequest), "Refusal, Denied": kind(eventsourcing.Denied),
		"Refusal, NotFound": kind(eventsourcing.NotFound), "Refusal, AlreadyExists": kind(eventsourcing.AlreadyExists),
		"PanicError": &eventsourcing.PanicError{Value: "oops"}, "ErrRejected": eventsourcing.ErrRejected,
		"ErrReadOnly": eventsourcing.ErrReadOnly, "ErrNoJournal": eventsourcing.ErrNoJournal, "ErrArgument": eventsourcing.ErrArgument,
		"ErrInvalid": eventsourcing.ErrInvalid, "codec.ErrNotRegistered": codec.ErrNotRegistered, "ErrUnhandled": eventsourcing.ErrUnhandled,
		"ErrUnknownType": eventsourcing.ErrUnknownType, "ErrStashFull": eventsourcing.ErrStashFull, "ErrConflict": eventsourcing.ErrConflict,
		"ErrStopped": eventsourcing.ErrStopped, "ErrNotStored": eventsourcing.ErrNotStored, "journal.ErrHistoryGap": journal.ErrHistoryGap, "delivery.ErrFull": delivery.ErrFull,
		"context.DeadlineExceeded": context.DeadlineExceeded, "context.Canceled": context.Canceled, "other": errors.New("other"),
	}
}

// linesOf has the lines of other errors that an Ask returns as they are.
func linesOf() map[string]struct {
	err  error
	line string
} {
	return map[string]struct {
		err  error
		line string
	}{
		"eventsourcing.ErrClosed":      {eventsourcing.ErrClosed, "ErrStopped"},
		"eventsourcing.RecoveryFailed": {&eventsourcing.RecoveryFailed{Err: errors.New("other")}, "ErrRecovery"},
		"journal.ConflictError":        {&journal.ConflictError{ID: "a|1"}, "ErrConflict"},
		"journal.RejectedError":        {&journal.RejectedError{Reason: codec.ErrNotRegistered}, "ErrRejected"},
		"sharding.ErrHandOff":          {sharding.ErrHandOff, "ErrStopped"},
		"sharding.ErrNotHome":          {sharding.ErrNotHome, "ErrStopped"},
		"sharding.ErrBuffersFull":      {sharding.ErrBuffersFull, "ErrStashFull"},
		"sharding.ErrStopped":          {sharding.ErrStopped, "ErrStopped"},
		"sharding.ErrNotSent":          {sharding.ErrNotSent, "ErrStopped"},
		"sharding.ErrAbandoned":        {sharding.ErrAbandoned, "ErrStopped"},
	}
}

// wrapped are the errors that an Ask returns only as the reason of an error of the table. The package
// decides which ones.
func wrapped() map[string]error {
	return map[string]error{
		"journal.ErrBreakerOpen": journal.ErrBreakerOpen, "journal.ErrCallTimeout": journal.ErrCallTimeout, "journal.ErrViolation": journal.ErrViolation,
		"journal.ErrSkipped": journal.ErrSkipped, "journal.ErrNotSent": journal.ErrNotSent, "journal.ErrUnavailable": journal.ErrUnavailable,
		"journal.ErrClosed": journal.ErrClosed, "journal.ErrCorrupt": journal.ErrCorrupt, "journal.ErrNewerVersion": journal.ErrNewerVersion,
		"journal.ErrInvalid": journal.ErrInvalid, "journal.ErrContract": journal.ErrContract, "journal.ErrNoQueries": journal.ErrNoQueries,
		"journal.ErrOffset": journal.ErrOffset, "journal.ViolationError": &journal.ViolationError{ID: "a|1"},
		"journal.CorruptError": &journal.CorruptError{}, "journal.GapError": &journal.GapError{ID: "a|1"},
		"snapshot.ErrInvalid": snapshot.ErrInvalid, "snapshot.ErrTooLarge": snapshot.ErrTooLarge, "snapshot.ErrBreakerOpen": snapshot.ErrBreakerOpen,
		"snapshot.ErrCallTimeout": snapshot.ErrCallTimeout, "snapshot.ErrNotFound": snapshot.ErrNotFound, "snapshot.ErrClosed": snapshot.ErrClosed,
		"snapshot.ErrCorrupt": snapshot.ErrCorrupt, "snapshot.ErrNewerVersion": snapshot.ErrNewerVersion, "snapshot.CorruptError": &snapshot.CorruptError{},
		"eventsourcing.ErrSnapshotVersion": eventsourcing.ErrSnapshotVersion,
		"codec.ErrUnknown":                 codec.ErrUnknown, "codec.ErrMalformed": codec.ErrMalformed, "codec.ErrLimit": codec.ErrLimit, "codec.PanicError": &codec.PanicError{},
		"transport.ErrInvalid": transport.ErrInvalid, "transport.ErrBackpressure": transport.ErrBackpressure, "transport.ErrTooLarge": transport.ErrTooLarge,
		"transport.ErrQuarantined": transport.ErrQuarantined, "transport.ErrTooManyPeers": transport.ErrTooManyPeers, "transport.ErrClosed": transport.ErrClosed,
		"transport.ErrDisconnected": transport.ErrDisconnected, "transport.ErrNoHandler": transport.ErrNoHandler, "transport.ErrHandlerFailed": transport.ErrHandlerFailed,
		"transport.ErrNoNode": transport.ErrNoNode, "transport.ErrDenied": transport.ErrDenied, "transport.ErrForgotten": transport.ErrForgotten,
		"cluster.ErrNotMember": cluster.ErrNotMember, "cluster.ErrStopped": cluster.ErrStopped, "cluster.ErrShuttingDown": cluster.ErrShuttingDown,
		"ddata.ErrQuorum": ddata.ErrQuorum, "ddata.ErrStopped": ddata.ErrStopped,
	}
}

// never are the errors that no Ask returns: those of signals, of settings and of other calls.
const never = `eventsourcing.ErrNoSnapshots eventsourcing.ErrNotCovered
sharding.ErrNoRegion sharding.ErrNotReady sharding.ErrMismatch sharding.ErrUndrained sharding.ErrNoCoordinator sharding.ErrCannotMove sharding.ErrRescaling
sharding.ErrFenced sharding.ErrConflict sharding.ErrInvalid`

// statusLine is a line of the table: a status without its code, and the code.
type statusLine struct{ done, again, http, grpc, code string }

// readTable returns the table of the package documentation, with its lines in order.
func readTable(t *testing.T) (names []string, lines map[string]statusLine) {
	t.Helper()
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(source), "//\terror ")
	_, table, _ = strings.Cut(table, "\n")
	if !found {
		t.Fatal("doc.go has no table of errors")
	}
	lines = make(map[string]statusLine)
	for text := range strings.Lines(table) {
		line, ok := strings.CutPrefix(text, "//\t")
		if !ok {
			break
		}
		f := regexp.MustCompile(`\s{2,}`).Split(strings.TrimSpace(line), -1)
		if len(f) != 6 {
			t.Fatalf("the line %q has %d columns, want 6", line, len(f))
		}
		names, lines[f[0]] = append(names, f[0]), statusLine{f[1], f[2], f[3], f[4], f[5]}
	}
	return names, lines
}

// lineOf returns the status of an error in the words of the table.
func lineOf(err error) statusLine {
	s := eventsourcing.StatusOf(err)
	return statusLine{
		done: map[eventsourcing.Outcome]string{
			eventsourcing.Done: "yes", eventsourcing.DoneNot: "no", eventsourcing.DonePartly: "partly",
			eventsourcing.DoneUnknown: "unknown", eventsourcing.DoneByEntity: "by entity",
		}[s.Outcome],
		again: map[eventsourcing.Retry]string{
			eventsourcing.RetryNo: "no", eventsourcing.RetryNow: "now", eventsourcing.RetryLater: "later", eventsourcing.RetryIfHarmless: "if harmless",
		}[s.Retry],
		http: strconv.Itoa(s.HTTP), grpc: strconv.Itoa(s.GRPC), code: strings.Replace(s.Code, "test/refusal", "its own", 1),
	}
}

// checkLine compares an error with a line, here and after it has travelled to another node once and
// twice.
func checkLine(t *testing.T, what string, err error, want statusLine) {
	t.Helper()
	for _, place := range []string{"here", "on another node", "on a third node"} {
		if got := lineOf(err); got != want {
			t.Errorf("%s %s: the status of %q is %v, want %v", what, place, err, got, want)
		}
		if eventsourcing.NotDone(err) != (want.done == "no") {
			t.Errorf("%s %s: NotDone(%q) is %t", what, place, err, eventsourcing.NotDone(err))
		}
		err = encodeAndDecode(t, err)
	}
}

// TestStatusTable checks the status of every error that an Ask can return against the table in the
// package documentation, alone, wrapped and joined.
func TestStatusTable(t *testing.T) {
	t.Parallel()
	names, lines := readTable(t)
	all := tableErrors()
	for name := range all {
		if _, ok := lines[name]; !ok {
			t.Errorf("the table has no line for %s", name)
		}
	}
	if got := eventsourcing.StatusOf(nil); got != (eventsourcing.Status{HTTP: 200}) || eventsourcing.NotDone(nil) {
		t.Errorf("the status of nil is %+v", got)
	}
	names = names[1:] // see TestStatusOfHandlerErrors
	for i, name := range names {
		err, ok := all[name]
		if !ok {
			t.Errorf("the test has no error for the line %s", name)
			continue
		}
		checkLine(t, name, err, lines[name])
		checkLine(t, name+", wrapped", fmt.Errorf("ask: %w", err), lines[name])
		for _, later := range names[i+1:] {
			if strings.HasPrefix(name, "Refusal") && strings.HasPrefix(later, "Refusal") {
				continue // the first one in the tree counts
			}
			checkLine(t, name+" before "+later, errors.Join(all[later], err), lines[name])
			checkLine(t, name+" around "+later, fmt.Errorf("%w: %w", err, all[later]), lines[name])
		}
	}
	page, err := os.ReadFile("../docs/sharding.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("(?m)^\\| `(Err\\w+)` \\|.*\\| `(Err\\w+)` \\|$").FindAllStringSubmatch(string(page), -1)
	for name, e := range linesOf() {
		checkLine(t, name, e.err, lines[e.line])
		if own, ok := strings.CutPrefix(name, "sharding."); ok && !slices.ContainsFunc(documented, func(row []string) bool { return row[1] == own && row[2] == e.line }) {
			t.Errorf("docs/sharding.md does not document that %s has the status of %s", name, e.line)
		}
	}
	for name, err := range wrapped() {
		for around, outer := range map[string]error{
			"ErrRecovery":       &eventsourcing.RecoveryFailed{Err: err},
			"ErrPartlyStored":   fmt.Errorf("%w: %w", eventsourcing.ErrPartlyStored, err),
			"ErrNotStored":      fmt.Errorf("%w: %w", eventsourcing.ErrNotStored, err),
			"ErrNoReply":        fmt.Errorf("%w: %w", eventsourcing.ErrNoReply, err),
			"ErrOutcomeUnknown": fmt.Errorf("%w: %w", eventsourcing.ErrOutcomeUnknown, err),
			"ErrStopped":        fmt.Errorf("%w to b: %w", sharding.ErrNotSent, err),
			"ErrArgument":       fmt.Errorf("%w: %w: %w", sharding.ErrNotSent, eventsourcing.ErrArgument, err),
		} {
			checkLine(t, around+" around "+name, outer, lines[around])
		}
	}
	for name, err := range all { // nothing is handled before a recovery
		if !slices.Contains([]string{"ErrPartlyStored", "ErrOutcomeUnknown", "ErrNoReply", "ErrWrongReply", "ErrRecoveryTimeout"}, name) {
			checkLine(t, "ErrRecovery around "+name, &eventsourcing.RecoveryFailed{Err: err}, lines["ErrRecovery"])
		}
	}
}

// TestStatusOfRecovery checks that a command has the status of a failed recovery, whatever the reason.
func TestStatusOfRecovery(t *testing.T) {
	t.Parallel()
	_, lines := readTable(t)
	for name, prepare := range map[string]func(s *scene){
		"Apply": func(s *scene) { s.mustAsk(addLines("1")); s.typ.Apply = func(*actor, actorEvent) { panic("poison") } },
		"Type.New": func(s *scene) {
			s.typ.New = func(id string) *actor { return map[bool]*actor{id == "": {scene: s}}[true] }
		},
		"Type.Events": func(s *scene) { s.mustAsk(addLines("1")); s.typ.Events = codec.Types(codec.Name[unlisted]("unlisted")) },
		"the journal": func(s *scene) { s.journal.Inject(journaltest.Fault{Op: journaltest.OpHighest}) },
		"RecoveryCompleted": func(s *scene) {
			s.withSignals().on(func(*signalCtx, *actor, eventsourcing.Signal) signalEffect { panic("oops") })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t).open()
			prepare(s)
			s.reopen()
			_, err := s.ask(recall)
			checkLine(t, name, err, lines["ErrRecovery"])
			s.close()
		})
	}
}

// TestStatusOfHandlerErrors checks that an error of Refold which a handler returns does not report that
// nothing was done: the handler may have persisted events.
func TestStatusOfHandlerErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, table := readTable(t)
		s := newScene(t).open()
		defer s.close()
		for name, err := range tableErrors() {
			want, around := table["of this table, by entity"], table["Refusal, Denied"]
			if strings.HasPrefix(name, "Refusal") {
				want, around = table[name], table[name]
			}
			for refused, want := range map[error]statusLine{
				err: want, fmt.Errorf("ask the bank: %w", err): want,
				fmt.Errorf("%w: %w", err, eventsourcing.NewRefusal("test/refusal", "refused").OfKind(eventsourcing.Denied)): around,
			} {
				_, got := s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { return ctx.Persist(lines("1")...).Refuse(refused) })
				checkLine(t, name+" of a handler", got, want)
				if !errors.Is(got, err) || got.Error() != refused.Error() {
					t.Errorf("%s of a handler: the error is %q, want %q", name, got, refused)
				}
				var promise eventsourcing.Token[string]
				waits := later(func() (string, error) {
					return s.ask(func(ctx *actorCtx, _ *actor, _ act) actorDecision { promise = ctx.Token(); return ctx.ReplyLater() })
				})
				synctest.Wait()
				s.mustAsk(request(func(ctx *actorCtx) actorStep { return ctx.Resolve(promise.Refuse(refused)) }))
				_, got = waits()
				checkLine(t, name+" of a later reply", got, want)
			}
		}
	})
}

// TestStatusCoversAllErrors checks that the tests of the status know every exported error of the
// packages whose errors an Ask can return.
func TestStatusCoversAllErrors(t *testing.T) {
	t.Parallel()
	known := strings.Fields(never)
	for name := range tableErrors() {
		name, _, _ = strings.Cut(name, ",")
		if !strings.Contains(name, ".") {
			name = "eventsourcing." + name
		}
		known = append(known, name)
	}
	for name := range linesOf() {
		known = append(known, name)
	}
	for name := range wrapped() {
		known = append(known, name)
	}
	known = append(known, "journal.ErrConflict", "journal.ErrRejected") // the same as those of eventsourcing
	for _, pkg := range []string{"eventsourcing", "sharding", "journal", "snapshot", "codec", "transport"} {
		for _, name := range exportedErrors(t, filepath.Join("..", pkg)) {
			if !slices.Contains(known, pkg+"."+name) {
				t.Errorf("no test covers the status of %s.%s", pkg, name)
			}
		}
	}
}

// exportedErrors returns the exported variables Err... of a package, and the types with a method Error.
func exportedErrors(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Err") {
						names = append(names, v.Names[0].Name)
					}
				}
			case *ast.FuncDecl:
				if d.Name.Name != "Error" || d.Recv == nil {
					continue
				}
				receiver := d.Recv.List[0].Type
				if p, ok := receiver.(*ast.StarExpr); ok {
					receiver = p.X
				}
				if id, ok := receiver.(*ast.Ident); ok && id.IsExported() {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}
