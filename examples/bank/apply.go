// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/requests"
)

// applyCmd executes a file of commands.
//
// Each account belongs to one worker, which executes the lines of the account in the order of the
// file. The request ID is the hash of the file and the line number. After a crash the file can
// therefore be applied again: executed lines are not executed twice.
type applyCmd struct {
	File    string `arg:"" type:"existingfile" help:"CSV file: ${header}"`
	Workers int    `default:"1024" help:"Number of concurrent workers."`
	Settle  bool   `help:"Wait for each transfer to end before the account's next line."`
	Log     string `placeholder:"FILE" help:"Append a log of recoveries, transfers and lines to FILE, as lines of JSON."`
	Rejects string `placeholder:"FILE" help:"Write bad and refused lines to FILE. Defaults to the name of the input and .rejects.csv."`
}

func (c *applyCmd) Run(app *app) (err error) {
	if c.Workers < 1 || c.Workers > maxWorkers {
		return usageError(fmt.Errorf("--workers %d: must be 1 to %d", c.Workers, maxWorkers))
	}
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	hash, total, err := survey(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.File, err)
	}
	events, err := openLog(c.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	rejects := &rejects{path: c.Rejects}
	if rejects.path == "" {
		rejects.path = c.File + ".rejects.csv"
	}
	defer func() { err = errors.Join(err, rejects.Close()) }()

	b, done, err := app.open(events)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	ctx, cancel := context.WithCancelCause(app.ctx)
	defer cancel(nil)
	a := &applier{
		bank: b, hash: hash, settle: c.Settle, log: events, rejects: rejects, logger: app.logger, stderr: app.stderr,
		progress: newProgress(app.stderr, total), fail: cancel,
	}
	start := time.Now()
	a.run(ctx, batch.Read(file), c.Workers)
	a.progress.stop()
	a.tally.elapsed = time.Since(start)
	a.tally.rejects = rejects.name()
	a.tally.print(app.stdout)
	switch cause := context.Cause(ctx); {
	case app.ctx.Err() != nil:
		return exitError{fmt.Errorf("interrupted; run the command again to execute the remaining lines"), exitInterrupted}
	case cause != nil:
		return fmt.Errorf("%w; run the command again to execute the remaining lines", cause)
	case a.tally.bad > 0:
		return exitError{fmt.Errorf("%d bad lines, see %s", a.tally.bad, a.tally.rejects), exitBadLines}
	}
	return nil
}

// maxWorkers bounds --workers: each worker is a goroutine with a queue.
const maxWorkers = 65_536

// survey returns the hash and the number of commands of the file, and rewinds it.
func survey(file io.ReadSeeker) (hash string, commands int, err error) {
	if hash, err = requests.Hash(file); err != nil {
		return "", 0, err
	}
	if _, err = file.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	for _, err := range batch.Read(file) {
		if _, bad := errors.AsType[*batch.LineError](err); err != nil && !bad {
			return "", 0, err
		}
		commands++
	}
	_, err = file.Seek(0, io.SeekStart)
	return hash, commands, err
}

type applier struct {
	bank     *bank
	hash     string
	settle   bool
	log      *eventLog
	rejects  *rejects
	logger   *slog.Logger
	progress progress
	stderr   io.Writer
	fail     context.CancelCauseFunc
	asking   context.Context //nolint:containedctx // for pending requests; it ends some time after the run is interrupted

	mu         sync.Mutex
	tally      tally
	complained time.Time
}

type task struct {
	line   batch.Line
	opens  chan struct{}   // closed when this line has opened its account
	opened <-chan struct{} // closed when the destination of this transfer is open
}

// run distributes the lines, and returns when all are executed or ctx has ended.
func (a *applier) run(ctx context.Context, lines func(func(batch.Line, error) bool), workers int) {
	var stop func()
	a.asking, stop = outlive(ctx, stopPatience)
	defer stop()
	var wg sync.WaitGroup
	queues := make([]chan task, workers)
	for i := range queues {
		queues[i] = make(chan task, 16)
		wg.Go(func() { a.work(ctx, queues[i]) })
	}
	defer wg.Wait()
	defer func() {
		for _, q := range queues {
			close(q)
		}
	}()
	seed := maphash.MakeSeed()
	opening := make(map[string]chan struct{}) // the channel of the last line that opens the account
	for line, err := range lines {
		bad, isBad := errors.AsType[*batch.LineError](err)
		switch {
		case isBad:
			a.bad(bad)
			continue
		case err != nil:
			a.fail(err)
			return
		}
		t := task{line: line}
		switch line.Command {
		case batch.Open:
			t.opens = make(chan struct{})
			opening[line.Account] = t.opens
		case batch.Transfer:
			t.opened = opening[line.To]
		}
		select {
		case queues[maphash.String(seed, line.Account)%uint64(len(queues))] <- t:
		case <-ctx.Done():
			return
		}
	}
}

// work executes the lines of some accounts, and then waits until their transfers are settled.
func (a *applier) work(ctx context.Context, queue <-chan task) {
	var sources []string
	known := make(map[string]bool)
	for t := range queue {
		if ctx.Err() != nil {
			continue // drain the queue
		}
		if t.line.Command == batch.Transfer && !known[t.line.Account] {
			known[t.line.Account] = true
			sources = append(sources, t.line.Account)
		}
		if err := a.handle(ctx, t); err != nil {
			a.fail(err)
		}
	}
	for _, id := range sources {
		pending, err := a.waitSettled(ctx, id, settlePatience)
		if err != nil {
			return
		}
		a.mu.Lock()
		a.tally.inFlight += pending
		a.mu.Unlock()
	}
}

// handle executes one line. Its error stops the run.
func (a *applier) handle(ctx context.Context, t task) error {
	if t.opens != nil {
		defer close(t.opens)
	}
	if t.opened != nil {
		// A line waits only for an earlier line, so there is no deadlock.
		select {
		case <-t.opened:
		case <-ctx.Done():
			return nil
		}
	}
	repeated, err := a.execute(ctx, t.line)
	refusal, refused := errors.AsType[*eventsourcing.Refusal](err)
	record := logRecord{Event: "line", Account: t.line.Account, Line: t.line.Number}
	switch {
	case err == nil && repeated:
		record.Outcome = "repeated"
		a.rejects.repeat()
	case err == nil:
		record.Outcome = "done"
	case errors.Is(err, requests.ErrPassed):
		record.Outcome = "passed"
		a.rejects.repeat()
	case refused:
		record.Outcome, record.Code = "refused", refusal.Code()
		a.rejects.write(t.line.Number, refusal.Code(), err)
	case errors.Is(err, eventsourcing.ErrInvalid):
		a.bad(&batch.LineError{Line: t.line.Number, Field: "account", Err: err})
		return nil
	case ctx.Err() != nil:
		return nil
	default:
		return fmt.Errorf("line %d: %w", t.line.Number, err)
	}
	a.finish(record)
	if a.settle && t.line.Command == batch.Transfer {
		_, err := a.waitSettled(ctx, t.line.Account, 0)
		return err
	}
	return nil
}

// bad records an unreadable line. A line with an invalid amount or currency counts as refused.
func (a *applier) bad(err *batch.LineError) {
	record := logRecord{Event: "line", Line: err.Line, Outcome: "bad"}
	code := "bad_line"
	if refusal := refusalOf(err); refusal != nil {
		code = refusal.Code()
		record.Outcome, record.Code = "refused", code
	}
	a.rejects.write(err.Line, code, err)
	a.finish(record)
}

func (a *applier) finish(r logRecord) {
	a.mu.Lock()
	a.tally.add(r.Outcome, r.Code)
	a.mu.Unlock()
	a.log.write(r)
	a.progress.add()
}

// refusalOf returns the refusal for an invalid amount or currency, or nil for any other error.
func refusalOf(err error) *eventsourcing.Refusal {
	switch {
	case errors.Is(err, money.ErrTooFine):
		return ErrTooFine
	case errors.Is(err, money.ErrOverflow):
		return ErrOverflow
	case errors.Is(err, money.ErrCurrency):
		return ErrCurrency
	}
	return nil
}

// execute executes a line. It retries temporary failures.
func (a *applier) execute(ctx context.Context, l batch.Line) (repeated bool, err error) {
	pause := firstPause
	for {
		receipt, err := a.bank.execute(a.asking, l, requests.FileLine(a.hash, l.Number)) //nolint:contextcheck // asking derives from ctx
		_, refused := errors.AsType[*eventsourcing.Refusal](err)
		if err == nil || refused || errors.Is(err, eventsourcing.ErrInvalid) || pause > lastPause {
			return receipt.Repeated, err
		}
		a.logger.WarnContext(ctx, "line failed, retrying", slog.Uint64("line", l.Number), slog.Any("error", err))
		a.complain(l.Number, err)
		if !sleep(ctx, pause) {
			return false, err
		}
		pause *= 2
	}
}

// complain prints the reason for a retry, at most once per complaintInterval.
func (a *applier) complain(line uint64, err error) {
	a.mu.Lock()
	due := a.stderr != nil && time.Since(a.complained) > complaintInterval
	if due {
		a.complained = time.Now()
	}
	a.mu.Unlock()
	if due {
		printf(a.stderr, "line %d failed, retrying: %v\n", line, err)
	}
}

// outlive returns a context that ends some time after ctx, so that pending requests can complete.
func outlive(ctx context.Context, patience time.Duration) (later context.Context, stop func()) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(patience, cancel)
		context.AfterFunc(later, func() { timer.Stop() })
	})
	return later, func() { unwatch(); cancel() }
}

const (
	// stopPatience bounds how long an interrupted apply waits for pending lines.
	stopPatience = 5 * time.Second
	// complaintInterval is the minimum time between two printed failures.
	complaintInterval = 5 * time.Second
	firstPause        = 50 * time.Millisecond
	lastPause         = 15 * time.Second
	// settlePatience bounds how long apply waits for an account whose transfers make no progress.
	settlePatience = 15 * time.Second
)

// waitSettled waits until an account has no pending transfers. It stops when their number has not
// changed for the duration patience, unless patience is 0. It returns the number of pending
// transfers.
func (a *applier) waitSettled(ctx context.Context, id string, patience time.Duration) (int, error) {
	pause, pending, since := time.Millisecond, -1, time.Now()
	for {
		view, err := eventsourcing.Ask(ctx, a.bank.account(id), Lookup{})
		switch {
		case errors.Is(err, ErrNotOpen):
			return 0, nil
		case err != nil:
			return 0, err
		case len(view.Pending) == 0:
			return 0, nil
		case len(view.Pending) != pending:
			pause, pending, since = time.Millisecond, len(view.Pending), time.Now()
		case patience > 0 && time.Since(since) > patience:
			return pending, nil
		}
		if !sleep(ctx, pause) {
			return pending, nil
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// sleep waits for d, and reports whether ctx is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// rejects is the file of bad and refused lines. write appends to it, so that a killed run leaves its
// lines. Close replaces it by the lines of this run and, if the run has repeated lines of earlier
// runs, of these runs.
type rejects struct {
	path string

	mu       sync.Mutex
	file     *os.File
	csv      *csv.Writer
	before   map[uint64][]string // the rows of the file before this run, by line
	rows     map[uint64][]string // the rows of this run
	repeated bool
	err      error
}

func (r *rejects) write(line uint64, code string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil && r.err == nil {
		r.open()
	}
	if r.err == nil {
		r.rows[line] = []string{strconv.FormatUint(line, 10), code, why.Error()}
		_ = r.csv.Write(r.rows[line]) // Close returns the error
	}
}

func (r *rejects) open() {
	if r.file, r.err = os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); r.err != nil {
		return
	}
	r.csv, r.before, r.rows = csv.NewWriter(r.file), make(map[uint64][]string), make(map[uint64][]string)
	for in := csv.NewReader(r.file); ; {
		row, err := in.Read()
		if err != nil {
			return // the end, or a row that a killed run has not completed
		}
		if line, err := strconv.ParseUint(row[0], 10, 64); err == nil {
			r.before[line] = row
		}
	}
}

// repeat records that an earlier run has handled a line.
func (r *rejects) repeat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repeated = true
}

func (r *rejects) name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return ""
	}
	return r.path
}

// Close completes and closes the file, and returns the first error.
func (r *rejects) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		r.csv.Flush()
		if r.err = r.csv.Error(); r.err == nil {
			r.err = r.replace()
		}
		r.err = errors.Join(r.err, r.file.Close())
	}
	if r.err != nil {
		return fmt.Errorf("write the rejects: %w", r.err)
	}
	return nil
}

func (r *rejects) replace() error {
	if !r.repeated {
		clear(r.before)
	}
	maps.Copy(r.before, r.rows)
	if err := r.file.Truncate(0); err != nil {
		return err
	}
	_ = r.csv.Write([]string{"line", "code", "reason"})
	for _, line := range slices.Sorted(maps.Keys(r.before)) {
		_ = r.csv.Write(r.before[line])
	}
	r.csv.Flush()
	return r.csv.Error()
}
